"""Which kernels an engine runs, and what each of them takes: one kernel often serves many layers."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses import timing
from rtlab.analyses.engine import Slice, by_tactic
from rtlab.core.facts import VariantResult
from rtlab.core.schema import FieldMeta
from rtlab.errors import ReadError

#: What Myelin writes where a kernel of its library, CASK, is not reported by its own name.
_STUB = "__myelin_CASK_STUB"
_STAND_IN = f"{_STUB} is a stand-in: one kernel or several of NVIDIA's library, which the compiler does not name here."


@dataclasses.dataclass(frozen=True)
class KernelShare(Slice):
    """The layers that one kernel computes, with their time and its share."""

    name: Annotated[str, FieldMeta("Kernel")]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The kernels of one engine, the one with most time first; without times, the one with most layers.

    ``layers`` counts those whose kernel is reported, ``untold`` the others, without signals and waits; ``half`` is how
    many kernels take half of the time together, None without times.
    """

    layers: Annotated[int, FieldMeta("Layers with a kernel", note="The others report none, such as copies.")]
    untold: Annotated[int, FieldMeta("Kernel not reported")]
    half: Annotated[
        int | None, FieldMeta("Half of the time", origin="measured", note="So many kernels take half of it.")
    ]
    kernels: tuple[KernelShare, ...]
    notes: tuple[str, ...] = ()


def list_kernels(facts: VariantResult) -> Kernels:
    """The kernels of an engine, by the names of their tactics.

    Raises:
        ReadError: no layer tells its kernel.
    """
    kernel_shares = [
        KernelShare(s.name, s.layers, s.milliseconds, s.share, _STAND_IN if s.name == _STUB else "")
        for s in by_tactic(facts.engine, timing.get_engine_timing(facts))
    ]
    named_kernels = tuple(k for k in kernel_shares if k.name)
    if not named_kernels:
        raise ReadError(
            f'Cannot show the kernels of "{facts.name}": no layer of {facts.engine.title} names one. Read an engine '
            "whose layers were exported with profilingVerbosity=detailed."
        )
    layers = sum(len(k.layers) for k in named_kernels)
    untold = sum(len(k.layers) for k in kernel_shares) - layers - facts.engine.sync
    notes = tuple(k.note for k in named_kernels if k.note)
    return Kernels(layers, untold, _half(named_kernels), named_kernels, notes)


def _half(kernels: tuple[KernelShare, ...]) -> int | None:
    times = [k.milliseconds or 0.0 for k in kernels]
    counts = (n for n in range(1, len(times) + 1) if 2 * sum(times[:n]) >= sum(times))
    return next(counts) if sum(times) else None
