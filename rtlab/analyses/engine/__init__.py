"""What the layers of an engine are, and where its time goes."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Annotated, TypeVar

from rtlab.analyses import timing
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.reformats.reasons import Reformat, list_reformats
from rtlab.analyses.timing import get_engine_timing
from rtlab.analyses.timing.times import Timing
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.errors import ReadError
from rtlab.relation.mapping import Coverage, coverage
from rtlab.relation.names import infer_work

if TYPE_CHECKING:
    from rtlab.core.model import Model


_Key = TypeVar("_Key", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Layers that have something in common, by id in execution order.

    ``milliseconds`` is the sum of their times in an inference and ``share`` its part of the sum of all layers, from 0
    to 1; both None where none of them has a time. ``origin`` is that of the times. ``name`` is what their cards say of
    it, such as their precision.
    """

    name: Annotated[str, FieldMeta("What")]
    layers: Annotated[tuple[str, ...], FieldMeta("Layers", links="layers")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "{self.origin}")]
    share: Annotated[float | None, FieldMeta("Share", "%", "measured")]
    origin: Annotated[Origin, UNSENT] = "measured"


@dataclasses.dataclass(frozen=True)
class Transition:
    """Layers that read ``before`` and write ``after``, empty where a layer's types are not told."""

    before: Annotated[str, FieldMeta("Reads")]
    after: Annotated[str, FieldMeta("Writes")]
    layers: Annotated[tuple[str, ...], FieldMeta("Layers", links="layers")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "{self.origin}")]
    origin: Annotated[Origin, UNSENT] = "measured"


def _group_layers(
    engine: Engine, timing: Timing | None, key: Callable[[Layer], _Key]
) -> list[tuple[_Key, tuple[str, ...], float | None]]:
    times = {t.layer: t.median * timing.scale for t in timing.layers} if timing else {}
    layer_ids: defaultdict[_Key, list[str]] = defaultdict(list)
    for layer in engine.layers:
        layer_ids[key(layer)].append(layer.id)
    groups = []
    for name, ids in layer_ids.items():
        measured_times = [times[i] for i in ids if i in times]
        groups.append((name, tuple(ids), sum(measured_times) if measured_times else None))
    return sorted(groups, key=lambda g: (-1.0 if g[2] is None else g[2], len(g[1])), reverse=True)


def _slice_layers(engine: Engine, timing: Timing | None, key: Callable[[Layer], str]) -> tuple[Slice, ...]:
    summed = timing.summed * timing.scale if timing else 0.0
    return tuple(
        Slice(
            name, ids, time, None if time is None else time / summed if summed else 0.0, _get_origin(timing)
        )
        for name, ids, time in _group_layers(engine, timing, key)
    )


def by_kind(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under the compiler's word for its kind, or what its name tells where that is all.

    The slice with most time comes first; without times, the one with most layers.
    """
    return _slice_layers(
        engine, timing, lambda layer: f"{work} (by its name)" if (work := infer_work(layer)) else layer.kind
    )


def by_precision(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under the narrowest type that it touches. Ordered as by ``by_kind``."""
    return _slice_layers(engine, timing, lambda layer: layer.precision)


def by_tactic(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under its kernel, empty where it is not told. Ordered as by ``by_kind``."""
    return _slice_layers(engine, timing, lambda layer: layer.tactic)


def find_transitions(engine: Engine, timing: Timing | None = None) -> tuple[Transition, ...]:
    """Every layer once, under what it reads and what it writes. Ordered as by ``by_kind``."""
    groups = _group_layers(engine, timing, lambda layer: (layer.reads, layer.writes))
    return tuple(Transition(*key, ids, time, _get_origin(timing)) for key, ids, time in groups)


def _get_origin(timing: Timing | None) -> Origin:
    return "measured" if timing is None else timing.layer_origin


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the layers of one engine are, and where its time goes.

    ``processor`` is what the times belong to, ``source`` where they come from, both empty without times. ``total`` is
    the latency of whole inferences in milliseconds, ``summed`` the sum of the layers, ``ratio`` the second by the
    first; None where unknown.
    """

    kinds: Annotated[tuple[Slice, ...], FieldMeta("By kind")]
    precisions: Annotated[tuple[Slice, ...], FieldMeta("By precision")]
    transitions: Annotated[tuple[Transition, ...], FieldMeta("Between precisions")]
    reformats: Annotated[tuple[Reformat, ...], FieldMeta("Layers that only change types or layouts")]
    coverage: Coverage
    processor: Annotated[str, FieldMeta("Timed on")]
    source: Annotated[str, FieldMeta("Source")]
    total: Annotated[float | None, FieldMeta("Latency", "ms", "measured")]
    summed: Annotated[float | None, FieldMeta("Sum of the layers", "ms", "measured")]
    ratio: Annotated[float | None, FieldMeta("Sum by latency", origin="measured")]


def summarize_engine(facts: VariantResult, model: Model | None = None) -> Summary:
    """Kinds, precisions, transitions, reformats, and how far the mapping explains the engine.

    Times are those of this engine. Where another engine ran in its place, they belong to other layers and are left out.

    Args:
        facts: The variant.
        model: The source model that is shown; by default the one that the engine was built from.
    """
    times, engine = get_engine_timing(facts), facts.engine
    mapping_coverage = coverage(map_nodes(facts), model or facts.prepared.model, engine)
    return Summary(
        kinds=by_kind(engine, times),
        precisions=by_precision(engine, times),
        transitions=find_transitions(engine, times),
        reformats=list_reformats(facts),
        # Signals and waits compute no node.
        coverage=dataclasses.replace(mapping_coverage, all_layers=engine.layer_count),
        processor=times.processor if times else "",
        source=times.layer_source if times else "",
        total=times.total if times else None,
        summed=times.summed if times and times.layers else None,
        ratio=times.ratio if times else None,
    )


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
        KernelShare(s.name, s.layers, s.milliseconds, s.share, s.origin, _STAND_IN if s.name == _STUB else "")
        for s in by_tactic(facts.engine, timing.get_engine_timing(facts))
    ]
    named_kernels = tuple(k for k in kernel_shares if k.name)
    if not named_kernels:
        raise ReadError(
            f'Cannot show the kernels of "{facts.name}": no layer of {facts.engine.title} names one. Read an engine '
            "whose layers were exported with profilingVerbosity=detailed."
        )
    layers = sum(len(k.layers) for k in named_kernels)
    untold = sum(len(k.layers) for k in kernel_shares) - layers - facts.engine.control_count
    notes = tuple(k.note for k in named_kernels if k.note)
    return Kernels(layers, untold, _half(named_kernels), named_kernels, notes)


def _half(kernels: tuple[KernelShare, ...]) -> int | None:
    times = [k.milliseconds or 0.0 for k in kernels]
    counts = (n for n in range(1, len(times) + 1) if 2 * sum(times[:n]) >= sum(times))
    return next(counts) if sum(times) else None
