"""Which kernels an engine runs, and what each of them takes: one kernel often serves many layers."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.core.facts import Facts
from rtlab.core.schema import Meaning
from rtlab.errors import ReadError
from rtlab.questions import timing
from rtlab.questions.engine.breakdown import Slice, by_tactic
from rtlab.questions.scene import Question


@dataclasses.dataclass(frozen=True)
class KernelShare(Slice):
    """The layers that one kernel computes, with their time and its share."""

    name: Annotated[str, Meaning("Kernel")]


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The kernels of one engine, the one with most time first; without times, the one with most layers.

    ``untold`` counts layers whose kernel the compiler does not tell; ``half`` is how many kernels take half of the
    time together, None without times.
    """

    layers: Annotated[int, Meaning("Layers", note="Those whose kernel is told.")]
    untold: Annotated[int, Meaning("Kernel not told")]
    half: Annotated[
        int | None, Meaning("Half of the time", origin="measured", note="So many kernels take half of it.")
    ]
    kernels: tuple[KernelShare, ...]


def of(facts: Facts) -> Kernels:
    """The kernels of an engine, by the names of their tactics.

    Raises:
        ReadError: no layer tells its kernel.
    """
    found = [
        KernelShare(s.name, s.layers, s.milliseconds, s.share)
        for s in by_tactic(facts.engine, timing.own(facts))
    ]
    told = tuple(k for k in found if k.name)
    if not told:
        raise ReadError(
            f'Cannot tell the kernels of "{facts.name}": no layer of {facts.engine.title} names one. Read an engine '
            "whose layers were exported with profilingVerbosity=detailed."
        )
    layers = sum(len(k.layers) for k in told)
    return Kernels(layers, sum(len(k.layers) for k in found) - layers, _half(told), told)


def _half(told: tuple[KernelShare, ...]) -> int | None:
    times = [k.milliseconds or 0.0 for k in told]
    if not sum(times):
        return None
    return next(count for count in range(1, len(times) + 1) if 2 * sum(times[:count]) >= sum(times))


KERNELS = Question(
    "kernels",
    tab="timing",
    label="Kernels",
    title="Kernels",
    lead="One kernel may compute many layers. Those at the top are worth another tactic, precision or shape.",
    told="Which kernels run how many layers, and what they take together.",
    noun=lambda scene: of(scene.result),
)
