"""Every layer under the roofs of a processor: what bounds it, how far it is from there, and how long it may take."""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.cards.card import format_exact_names
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline.estimate import (
    RECORDED,
    Bound,
    Point,
    Roofline,
    compute_engine_roofline,
    describe_estimate_error,
    get_efficiency,
    pick_default_gpu,
)
from rtlab.analyses.timing import compute_timing, get_engine_timing, get_layer_times
from rtlab.core.peaks import TABLE, Peaks, resolve_peaks
from rtlab.core.schema import FieldMeta
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import format_bytes, format_number, shorten_name
from rtlab.documents.panel import button, make_batch_slider, make_select
from rtlab.errors import ReadError, RtlabError, VariantError
from rtlab.relation.layerwork import batch_of

if TYPE_CHECKING:
    from rtlab.core.engine import Engine
    from rtlab.core.facts import VariantResult

_WORK = [button("peaks", "Measure this CPU's roofs")]
#: Symbol and colour of each bound; the symbol tells it without the colour.
_MARKS: Mapping[Bound, tuple[str, str, str]] = {
    "compute": ("circle", MAIN, "bound by arithmetic"),
    "memory": ("square", OTHER, "bound by memory"),
    "launch": ("diamond-open", "#808080", "too small: bound by the launch"),
    "unknown": ("x", "#808080", "bound unknown"),
}
#: The smallest and largest marker in pixels.
_SMALL, _LARGE = 6.0, 26.0
_OPERATIONS, _MACS = "two per multiply-accumulate{self.more}", "at batch {self.batch}{self.more}"
_SUM = "sum of the layers"
_SHARE = "share of the estimated time"
_MOVED = "read and written by all layers after fusion, as if no cache kept any of it{self.more}"
_COUNTED = "Layers of which operations and bytes are known, and what they move of all that moves."


@dataclasses.dataclass(frozen=True)
class RoofedLayer:
    """A layer under the roofs: ``distance`` is its measured time by the attainable one."""

    step: Annotated[int, FieldMeta("Step")]
    layer: Annotated[str, FieldMeta(links="layers")]
    name: Annotated[str, FieldMeta("Layer")]
    bound: Annotated[str, FieldMeta("Bound")]
    units: Annotated[str, FieldMeta("Type")]
    flops: Annotated[int | None, FieldMeta("Operations", "FLOP", "estimated")]
    moved: Annotated[int | None, FieldMeta("Moved", "B", "estimated")]
    intensity: Annotated[float | None, FieldMeta("Intensity", "FLOP/byte", "estimated")]
    attainable: Annotated[float | None, FieldMeta("Attainable", "ms", "estimated")]
    estimated: Annotated[float | None, FieldMeta("Estimated", "ms", "estimated")]
    measured: Annotated[float | None, FieldMeta("Measured", "ms", "measured")]
    distance: Annotated[float | None, FieldMeta("Measured by attainable")]
    note: str


@dataclasses.dataclass(frozen=True)
class RoofedEngine:
    """An engine under the roofs of a processor; words stand where a sum is withheld, None where there is none.

    ``more`` says how many layers are not counted, ``error`` how far the estimate may be off, ``start`` what it takes to
    start a layer.
    """

    operations: Annotated[str, FieldMeta("Operations", origin="estimated", note=_OPERATIONS)]
    macs: Annotated[str, FieldMeta("Multiply-accumulates", origin="estimated", note=_MACS)]
    parameters: Annotated[str | None, FieldMeta("Parameters", note="of the ONNX model", omit=True)]
    moved: Annotated[int, FieldMeta("Moved", "B", "estimated", note=_MOVED)]
    estimated: Annotated[str, FieldMeta("Estimated time", origin="estimated", note="{self.error}")]
    counted: Annotated[str | None, FieldMeta("Counted", note=_COUNTED, omit=True)]
    attainable: Annotated[str, FieldMeta("Attainable time", origin="estimated", note="{self.start}")]
    measured: Annotated[float | None, FieldMeta("Measured time", "ms", "measured", note=_SUM, omit=True)]
    memory: Annotated[str, FieldMeta("Bound by memory", origin="estimated", note=_SHARE)]
    launch: Annotated[str, FieldMeta("Bound by the launch", origin="estimated", note=_SHARE)]
    batch: int
    more: str
    error: str
    start: str
    layers: tuple[RoofedLayer, ...]


def analyze_roofline(context: PanelContext) -> RoofedEngine:
    """The layers of an engine under the roofs of a processor of one's choice.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
        ReadError: the layers have no shapes.
        ModelError: a dimension has no size.
    """
    estimate, _ = _estimate_roofline(context, _choose_roofs(context, _list_processors(context)))
    return _summarize_roofline(context, estimate)


def build_roofline_panel(context: PanelContext) -> PanelParts:
    """The same as a figure and a table.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
    """
    engine, processors = context.result.engine, _list_processors(context)
    roofs, batch, engine_batch = _choose_roofs(context, processors), context.batch, 1
    try:
        engine_batch = batch_of(engine, context.model)
        estimate, why = _estimate_roofline(context, roofs)
    except RtlabError as error:
        settings = _list_settings(processors, roofs, batch or engine_batch, engine_batch)
        return PanelParts(settings=settings, work=_WORK, problem=str(error))
    names = format_exact_names(context.layer_names, engine)
    return PanelParts(
        result=_summarize_roofline(context, estimate),
        units={"FLOP": ("MFLOP", 1e-6), "ms": ("µs", 1e3)},
        lead=_lead(estimate),
        settings=_list_settings(processors, roofs, estimate.batch, engine_batch),
        work=_WORK,
        figures=[_draw_roofline(estimate, names)] if any(p.intensity for p in estimate.layers) else [],
        notes=_notes(estimate, engine, why),
    )


def _estimate_roofline(context: PanelContext, roofs: Peaks) -> tuple[Roofline, str]:
    """The estimate, and why it has no measured times beside it."""
    engine, batch = context.result.engine, context.batch
    engine_batch = batch_of(engine, context.model)
    times, why = _times(context.result, roofs, engine_batch if batch is None else batch, engine_batch)
    estimate = compute_engine_roofline(engine, context.mapping, context.model, roofs, times, batch=batch)
    if len(estimate.uncounted) == len(estimate.layers):
        raise ReadError(
            "Cannot count operations and bytes: the layers have no shapes. Export them with "
            "profilingVerbosity=detailed (trtexec --profilingVerbosity=detailed --exportLayerInfo), or load the ONNX "
            "model with rtlab.load(..., shapes={...})."
        )
    return estimate, why


def _list_processors(context: PanelContext) -> dict[str, Peaks]:
    """What can be chosen by name: the table, and what the user gave or measured."""
    return {p.name: p for p in (*context.study.processors, *TABLE)}


def _choose_roofs(context: PanelContext, processors: Mapping[str, Peaks]) -> Peaks:
    """The setting, else this CPU for what runs on it, once it was measured, else the engine's usual GPU."""
    if chosen := context.settings.get("gpu"):
        return processors.get(chosen) or resolve_peaks(chosen)
    measured = [p for p in processors.values() if p.origin == "measured"]
    engine = context.result.engine
    return measured[0] if measured and engine.target.name == "cpu" else pick_default_gpu(engine)


def _times(
    result: VariantResult, roofs: Peaks, batch: int, engine_batch: int
) -> tuple[dict[str, float], str]:
    """Measured milliseconds by layer, if this processor took them at this batch; and else why there are none."""
    timing = compute_timing(result)
    if timing is None or not timing.layers:
        return {}, "Nothing was measured, so the figure shows estimates."
    if batch != engine_batch:
        return {}, f"Times were measured at batch {engine_batch}, so the figure shows estimates."
    device = timing.device or result.engine.device
    if timing.processor == "CPU":
        here = roofs.origin == "measured" and not result.recorded
    else:
        here = _name_gpu(device) == roofs.name
    if not here:
        where = device or "another processor"
        return {}, f"Times were measured on {where}, not on {roofs.name}, so the figure shows estimates."
    times = {i: t.median for i, t in get_layer_times(result).items() if t.shared == 1}
    is_mapped = get_engine_timing(result) is None
    return times, "Times are those of the engine that ran, joined by node." if is_mapped else ""


def _name_gpu(device: str) -> str:
    """The table's name of a GPU; empty where it has none."""
    try:
        return resolve_peaks(device).name
    except VariantError:
        return ""


def _list_settings(
    processors: Mapping[str, Peaks], roofs: Peaks, batch: int, engine_batch: int
) -> list[Setting]:
    listed = {**processors, roofs.name: roofs}
    labels = {n: f"{n} (measured)" if p.origin == "measured" else n for n, p in listed.items()}
    select = make_select("gpu", "Processor", "Whose peaks the roofs are.", labels, roofs.name)
    return [select, make_batch_slider(engine_batch, batch)]


def _summarize_roofline(context: PanelContext, roofline: Roofline) -> RoofedEngine:
    roofs, coverage = roofline.peaks, roofline.coverage
    missing = len(roofline.uncounted)
    measured = [p.measured for p in roofline.layers if p.measured is not None]
    error = (
        "not known for a processor that was measured"
        if roofs.origin == "measured"
        else f"{describe_estimate_error(roofs.name)}. Timed one by one, layers of recorded engines sum to 1.02 to 1.78 "
        "times a whole inference"
    )
    steps = {y.id: y for y in context.result.engine.layers}
    share = math.floor(100 * coverage.moved)
    return RoofedEngine(
        operations=_format_si(roofline.flops, "FLOP"),
        macs=_format_si(roofline.macs, "MAC"),
        parameters=_format_si(roofline.parameters, "") if roofline.parameters else None,
        moved=roofline.moved,
        estimated=_format_time(roofline.estimated),
        counted=f"{coverage.layers} of {coverage.all_layers} layers, {share} % of the known bytes" if missing else None,
        attainable=_format_time(roofline.attainable),
        measured=sum(measured) if measured else None,
        memory=f"{roofline.share('memory'):.0%}",
        launch=f"{roofline.share('launch'):.0%}",
        batch=roofline.batch,
        more=f"; {missing} layers are not counted" if missing else "",
        error=roofline.withheld or f"sum of the layers on {roofs.name}; {error}",
        start=roofline.withheld
        or f"were every layer at its roof, after {get_efficiency(roofs).launch} µs to start it",
        layers=tuple(
            RoofedLayer(
                steps[p.layer].index + 1, p.layer, shorten_name(context.layer_names[p.layer]), p.bound,
                f"{p.precision} {p.units}".strip(), p.flops, p.moved, p.intensity, p.attainable, p.estimated,
                p.measured, p.distance, f"{steps[p.layer].name}: {p.note}" if p.note else steps[p.layer].name,
            )
            for p in roofline.layers
        ),
    )  # fmt: skip


def _format_time(milliseconds: float | None) -> str:
    return "withheld" if milliseconds is None else format_number(milliseconds, "ms")


def _format_si(value: float, unit: str) -> str:
    """A large number with its prefix, such as 1.82 GFLOP."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".strip()
    return f"{value:.4g} {unit}".strip()


def _lead(estimate: Roofline) -> str:
    if not estimate.layers:
        return "This engine has no layer that computes or moves anything."
    roof = (
        "A layer left of the bend of its roof waits for memory, right of it for arithmetic. The height is how many "
        "operations it does per second: the nearer to the roof, the less there is to gain. "
    )
    if estimate.share("launch") > 0.5:
        return (
            f"{roof}But most of these layers are too small for {estimate.peaks.name}: to start them takes longer "
            "than to compute them, so that neither faster arithmetic nor faster memory helps. Choose a larger batch, "
            "and see where fewer layers would do."
        )
    return f"{roof}To go faster, look at large marks far below the line."


def _draw_roofline(estimate: Roofline, layer_names: Mapping[str, str]) -> Figure:
    """Points at intensity and rate in double logarithms, and a roof for each precision that a layer is computed in."""
    plotted_points = [p for p in estimate.layers if p.intensity and p.rate]
    rates, intensities = _list_rates(estimate), [p.intensity or 1.0 for p in plotted_points]
    bend = max(rates.values()) / estimate.peaks.bandwidth
    ends = min(intensities) / 2, 2 * max(*intensities, 2 * bend)
    ranked = sorted(rates.items(), key=lambda r: -r[1])
    lines = itertools.cycle(("solid", "dash", "dot", "dashdot", "longdash"))
    data = [_draw_roof(estimate, *roof, line, ends) for roof, line in zip(ranked, lines, strict=False)]
    longest = max(_time(p) for p in plotted_points)
    for bound, (symbol, colour, words) in _MARKS.items():
        points = [p for p in plotted_points if p.bound == bound]
        if not points:
            continue
        data.append({
            "type": "scattergl", "mode": "markers", "name": words, "x": [p.intensity for p in points],
            "y": [p.rate for p in points], "ids": [p.layer for p in points],
            "marker": {
                "symbol": symbol, "color": colour, "opacity": 0.8, "line": {"width": 1.5, "color": "#808080"},
                "size": [_SMALL + (_LARGE - _SMALL) * math.sqrt(_time(p) / longest) for p in points],
            },
            "text": [_hover(p, layer_names[p.layer]) for p in points], "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    return figure(
        f"Roofline on {estimate.peaks.name}: arithmetic intensity against operations per second, "
        "one mark for each layer",
        data,
        height=380,
        showlegend=True,
        legend=legend(itemsizing="trace"),
        xaxis=axis("FLOP per byte moved (size of a mark: its time)", type="log", dtick=1),
        yaxis=axis("FLOP/s", type="log", dtick=1, exponentformat="SI"),
    )


def _list_rates(estimate: Roofline) -> dict[str, float]:
    """The roofs in use, by the words for them."""
    used = dict.fromkeys((p.precision, p.units) for p in estimate.layers if p.flops)
    rates = {}
    for precision, kind in used:
        rate, _ = estimate.peaks.rate(precision, matrix=kind == "matrix")
        rates[f"{precision}, {'matrix units' if kind == 'matrix' else 'cores'}"] = rate
    return rates


def _draw_roof(
    estimate: Roofline, name: str, rate: float, line: str, ends: tuple[float, float]
) -> dict[str, Any]:
    bandwidth = estimate.peaks.bandwidth
    bend = rate / bandwidth
    x = [min(ends[0], bend / 2), bend, max(ends[1], 2 * bend)]
    return {
        "type": "scatter", "mode": "lines", "name": f"{_format_si(rate, 'FLOP/s')} {name}", "x": x,
        "y": [min(rate, i * bandwidth) for i in x], "line": {"color": "#808080", "width": 1.5, "dash": line},
        "hovertemplate": f"{html.escape(name)}: {_format_si(rate, 'FLOP/s')}, {_format_si(bandwidth, 'B/s')}; "
        f"{estimate.peaks.origin}<extra></extra>",
    }  # fmt: skip


def _time(point: Point) -> float:
    return point.measured or point.estimated or 0.0


def _hover(point: Point, name: str) -> str:
    time = f"{1e3 * point.measured:.3g} µs measured" if point.measured else ""
    parts = [
        f"<b>{html.escape(shorten_name(name))}</b>",
        f"{_format_si(point.flops or 0, 'FLOP')}, {format_bytes(point.moved or 0)} (estimated)",
        f"{point.precision}, {_MARKS[point.bound][2]}",
        f"attainable {1e3 * (point.attainable or 0):.3g} µs, estimated {1e3 * (point.estimated or 0):.3g} µs",
        *([f"{time}, {point.distance:.2g} times the attainable"] if time and point.distance else []),
        *([html.escape(point.note)] if point.note else []),
    ]
    return "<br>".join(parts)


def _notes(estimate: Roofline, engine: Engine, why: str) -> list[str]:
    roofs, efficiency = estimate.peaks, get_efficiency(estimate.peaks)
    power = f" ({roofs.power})" if roofs.power else ""
    notes = [f"Peaks of {roofs.name}, {roofs.origin}: {roofs.source}{power}."]
    if roofs.origin == "reported":
        notes.append("They are dense, at the boost clock; another clock or power limit moves all roofs.")
    if roofs.origin != "measured":
        notes.append(
            f"An estimate takes {efficiency.launch} µs to start a kernel, {efficiency.memory:.0%} of the bandwidth and "
            f"{efficiency.matrix:.0%} of the matrix units, with whole waves of tiles: fitted to {len(RECORDED)} "
            f"recorded engines. Known error {describe_estimate_error(roofs.name)}."
        )
    if why:
        notes.append(why)
    if engine.device and not _name_gpu(engine.device):
        notes.append(f'The GPU of this engine, "{engine.device}", is not in the table: another stands here.')
    if estimate.uncounted:
        notes += [estimate.withheld] if estimate.withheld else []
        notes.append(
            f"{len(estimate.uncounted)} of {len(estimate.layers)} layers are not counted, because their shapes or what "
            "they compute is not reported. Load the ONNX model with rtlab.load(..., shapes={...}) to count them."
        )
    below = sum(p.distance is not None and p.distance < 1 for p in estimate.layers)
    if below:
        notes.append(
            f"{below} of {len(estimate.layers)} layers took less than the attainable time: their tensors were still in "
            "a cache, the clock was higher than that of the peaks, or the kernel did not read all of its input."
        )
    if engine.detail == "region":
        notes.append("The compiler reports whole regions only, so a mark stands for many kernels.")
    return notes
