"""Numbers for many boxes at once, each with its origin."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.cards.picture import Overlay, OverlayValue
from rtlab.analyses.fusion import map_measured_engine, map_nodes
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.roofline.estimate import describe_estimate_error
from rtlab.analyses.timing import compute_timing, get_layer_times
from rtlab.analyses.timing.times import LayerTime, SharedTime, Timing, map_times_to_nodes
from rtlab.core.data import RANDOM
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.relation.footprint import Footprint, of_layers, of_nodes, sizes
from rtlab.relation.roles import SERVING

if TYPE_CHECKING:
    from rtlab.analyses.accuracy import Accuracy, ValueDelta
    from rtlab.analyses.roofline.estimate import Roofline
    from rtlab.core.facts import VariantResult

#: Names of measured layers that a note lists before it says that there are more.
_LISTED = 4


def build_overlays(result: VariantResult, model: Model) -> list[Overlay]:
    """The estimate for the engine's GPU, time and error where they were measured, memory of outputs.

    What was measured on a CPU in the place of a GPU comes after the estimate for that GPU.
    """
    overlay_list: list[Overlay] = []
    estimate, timing = estimate_timing(result), compute_timing(result)
    mapping, accuracy = map_measured_engine(result), compute_accuracy(result)
    if estimate is not None and estimate.coverage.enough:
        overlay_list.append(_estimate(result, estimate))
    if timing is not None and mapping is not None:
        overlay_list.append(_times(timing, map_times_to_nodes(timing, mapping), get_layer_times(result)))
    if accuracy is not None:
        error_overlays = (_errors(result, model, accuracy), _errors(result, model, accuracy, local_only=True))
        overlay_list += [errors for errors in error_overlays if errors is not None]
    for overlay in overlay_list:
        # What is known of a node of a function holds wherever the function is called.
        overlay["nodes"] = {i: r for n, r in overlay["nodes"].items() for i in model.where(n)}
    if memory_overlay := _memory(result, model):
        overlay_list.append(memory_overlay)
    return overlay_list


def _memory(result: VariantResult, model: Model) -> Overlay | None:
    nodes, layers = of_nodes(model), of_layers(result.engine, result.prepared.model)
    if not nodes and not layers:
        return None
    is_reported = all(f.origin == "reported" for f in (*nodes.values(), *layers.values()))
    reading = functools.cache(_bytes)
    at = ", ".join(f"{symbol} = {size}" for symbol, size in sizes(model).items())
    return Overlay(
        id="memory",
        title="Output memory",
        unit="B",
        # One estimate among reported sizes makes the whole an estimate.
        origin="reported" if is_reported else "estimated",
        source=result.engine.title if is_reported else f"from shapes and types{at and ', at '}{at}",
        best="low",
        nodes={i: reading(f) for i, f in nodes.items()},
        layers={i: reading(f) for i, f in layers.items()},
    )


def _bytes(footprint: Footprint) -> OverlayValue:
    outputs = f"{footprint.tensors} outputs" if footprint.tensors > 1 else "1 output"
    note = f"{outputs}, {footprint.origin}"
    return _single_value(float(footprint.nbytes), note)


def _estimate(result: VariantResult, roofline: Roofline) -> Overlay:
    times = roofline.milliseconds(result.engine)
    total = sum(times.values())
    layers = tuple(
        LayerTime(i, time, None, time / total if total else 0.0) for i, time in times.items() if time
    )
    # As if it had been measured, so that nodes get theirs in the same way.
    timing = Timing("", "", None, 0, None, total, layers, processor="GPU")
    return Overlay(
        id="estimate",
        title=f"{roofline.peaks.name} time",
        unit="ms",
        origin="estimated",
        source=(
            f"estimated for {roofline.peaks.name} at batch {roofline.batch}: "
            f"{describe_estimate_error(roofline.peaks.name)}"
        ),
        best="low",
        nodes={
            i: OverlayValue(value=s.median, spread=None, shared=s.shared, note="")
            for i, s in map_times_to_nodes(timing, map_nodes(result)).items()
        },
        layers={t.layer: _single_value(t.median) for t in layers},
    )


def _times(times: Timing, nodes: Mapping[str, SharedTime], layers: Mapping[str, SharedTime]) -> Overlay:
    return Overlay(
        id="time",
        title=f"{times.processor} time, scaled" if times.scaled else f"{times.processor} time",
        unit="ms",
        # A scaled time is not measured.
        origin="estimated" if times.scaled else "measured",
        source=f"estimated: {times.scaled}; {times.origin}" if times.scaled else times.origin,
        best="low",
        nodes=_readings(nodes, "node", times.scale),
        layers=_readings(layers, "layer", times.scale),
    )


def _readings(times: Mapping[str, SharedTime], what: str, scale: float = 1.0) -> dict[str, OverlayValue]:
    readings = {}
    for id_, time in times.items():
        names = ", ".join([i.split(":", 1)[-1] for i in time.layers[:_LISTED]])
        more = " ..." if len(time.layers) > _LISTED else ""
        together = f", together with {pluralize(time.shared - 1, f'other {what}')}" if time.shared > 1 else ""
        note = f"timed as {names}{more}{together}"
        spread = None if time.spread is None else time.spread * scale
        readings[id_] = OverlayValue(value=time.median * scale, spread=spread, shared=time.shared, note=note)
    return readings


def _errors(
    result: VariantResult, model: Model, errors: Accuracy, *, local_only: bool = False
) -> Overlay | None:
    """Accumulated errors, or those that nodes make themselves."""
    nodes: dict[str, OverlayValue] = {}
    for value in errors.values:
        sqnr = value.own_sqnr if local_only else value.sqnr
        # Equal values have no finite SQNR and need no mark; the status line names an overflow.
        if sqnr is not None and math.isfinite(sqnr):
            nodes.setdefault(value.node, _local_error(value) if local_only else _error(value))
    if not nodes:
        return None
    # A layer's error is that of the last value that it computes; what it makes, the most that its nodes make.
    layers = {
        layer: nodes[
            min(ids, key=lambda n: nodes[n]["value"])
            if local_only
            else max(ids, key=lambda n: model.by_id[n].index)
        ]
        for layer, ids in _list_layer_nodes(result, nodes)
    }
    return Overlay(
        id="own_error" if local_only else "error",
        title=f"{'Own SQNR' if local_only else 'SQNR'}{f', {RANDOM}' if errors.synthetic else ''}",
        unit="dB",
        origin="measured",
        source=f"{errors.origin}, against fp32",
        best="high",
        nodes=nodes,
        layers=layers,
    )


def _error(value: ValueDelta) -> OverlayValue:
    # Few digits: thousands of these sentences travel, and their digits are what does not compress.
    note = f"max |error| {value.max_abs:.3g}, RMSE {value.rmse:.3g}"
    note += f", {value.overflowed} not finite" if value.overflowed else f", cosine {value.cosine:.4f}"
    return _single_value(value.sqnr, note)


def _local_error(value: ValueDelta) -> OverlayValue:
    note = f"made here of exact inputs: max {value.own_max:.3g}, RMSE {value.own_rmse:.3g}"
    if value.saturated:
        note += f", {100 * value.saturated:.2g} % of it saturates"
    return _single_value(value.own_sqnr or 0.0, note)


def _list_layer_nodes(
    result: VariantResult, nodes: Mapping[str, OverlayValue]
) -> Iterator[tuple[str, list[str]]]:
    """The layers that do the work of any of these nodes, with those."""
    for layer in result.engine.layers:
        pairs = map_nodes(result).of(layer.id)
        if ids := [p.node for p in pairs if p.role not in SERVING and p.node in nodes]:
            yield layer.id, ids


def _single_value(value: float, note: str = "") -> OverlayValue:
    """A number of one node or layer alone."""
    return OverlayValue(value=value, spread=None, shared=1, note=note)
