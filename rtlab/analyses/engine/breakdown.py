"""Where an engine's time goes: by kind of layer, by precision, and between precisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Annotated, TypeVar

from rtlab.analyses.timing.times import Timing
from rtlab.core.engine import Engine, Layer
from rtlab.core.schema import FieldMeta
from rtlab.relation.names import infer_work

_Key = TypeVar("_Key", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Layers that have something in common, by id in execution order.

    ``milliseconds`` is the sum of their measured times and ``share`` its part of the sum of all layers, from 0 to 1;
    both None where none of them has a time. ``name`` is what their cards say of it, such as their precision.
    """

    name: Annotated[str, FieldMeta("What")]
    layers: Annotated[tuple[str, ...], FieldMeta("Layers", links="layers")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "measured")]
    share: Annotated[float | None, FieldMeta("Share", "%", "measured")]


@dataclasses.dataclass(frozen=True)
class Transition:
    """Layers that read ``before`` and write ``after``, empty where a layer's types are not told."""

    before: Annotated[str, FieldMeta("Reads")]
    after: Annotated[str, FieldMeta("Writes")]
    layers: Annotated[tuple[str, ...], FieldMeta("Layers", links="layers")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "measured")]


def by_kind(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under the compiler's word for its kind, or what its name tells where that is all.

    The slice with most time comes first; without times, the one with most layers.
    """
    return _slices(
        engine, timing, lambda layer: f"{work} (by its name)" if (work := infer_work(layer)) else layer.kind
    )


def by_precision(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under the narrowest type that it touches. Ordered as by ``by_kind``."""
    return _slices(engine, timing, lambda layer: layer.precision)


def by_tactic(engine: Engine, timing: Timing | None = None) -> tuple[Slice, ...]:
    """Every layer once, under its kernel, empty where it is not told. Ordered as by ``by_kind``."""
    return _slices(engine, timing, lambda layer: layer.tactic)


def find_transitions(engine: Engine, timing: Timing | None = None) -> tuple[Transition, ...]:
    """Every layer once, under what it reads and what it writes. Ordered as by ``by_kind``."""
    groups = _groups(engine, timing, lambda layer: (layer.reads, layer.writes))
    return tuple(Transition(*key, ids, time) for key, ids, time in groups)


def _slices(engine: Engine, timing: Timing | None, key: Callable[[Layer], str]) -> tuple[Slice, ...]:
    summed = timing.summed if timing else 0.0
    return tuple(
        Slice(name, ids, time, None if time is None else time / summed if summed else 0.0)
        for name, ids, time in _groups(engine, timing, key)
    )


def _groups(
    engine: Engine, timing: Timing | None, key: Callable[[Layer], _Key]
) -> list[tuple[_Key, tuple[str, ...], float | None]]:
    times = {t.layer: t.median for t in timing.layers} if timing else {}
    layer_ids: dict[_Key, list[str]] = {}
    for layer in engine.layers:
        layer_ids.setdefault(key(layer), []).append(layer.id)
    groups = []
    for name, ids in layer_ids.items():
        measured_times = [times[i] for i in ids if i in times]
        groups.append((name, tuple(ids), sum(measured_times) if measured_times else None))
    return sorted(groups, key=lambda g: (-1.0 if g[2] is None else g[2], len(g[1])), reverse=True)
