"""Every layer under the roofs of a processor: what bounds it, how far it is from there, and how long it may take."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analyses.cards.card import format_exact_names
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline.answer import RoofedEngine, format_si, summarize_roofline
from rtlab.analyses.roofline.estimate import Bound, Point, Roofline, get_efficiency
from rtlab.analyses.roofline.estimate import compute_engine_roofline as under_roofs
from rtlab.analyses.roofline.estimate_error import RECORDED, describe_estimate_error, pick_default_gpu
from rtlab.analyses.timing import compute_timing, get_engine_timing, get_layer_times
from rtlab.core.peaks import TABLE, Peaks, resolve_peaks
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import format_bytes
from rtlab.documents.panel import button, make_batch_slider, make_select
from rtlab.errors import ReadError, RtlabError, VariantError
from rtlab.relation.layerwork import batch_of

if TYPE_CHECKING:
    from rtlab.core.engine import Engine
    from rtlab.core.facts import VariantResult

_WORK = [button("peaks", "Measure this CPU's roofs")]
_LONG = 70
#: Symbol and colour of each bound; the symbol tells it without the colour.
_MARKS: Mapping[Bound, tuple[str, str, str]] = {
    "compute": ("circle", MAIN, "bound by arithmetic"),
    "memory": ("square", OTHER, "bound by memory"),
    "launch": ("diamond-open", "#808080", "too small: bound by the launch"),
    "unknown": ("x", "#808080", "bound unknown"),
}
#: The smallest and largest marker in pixels.
_SMALL, _LARGE = 6.0, 26.0
_LINES = ("solid", "dash", "dot", "dashdot", "longdash")


def analyze_roofline(context: PanelContext) -> RoofedEngine:
    """The layers of an engine under the roofs of a processor of one's choice.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
        ReadError: the layers tell no shapes.
        ModelError: a dimension has no size.
    """
    estimate, _ = _estimate_roofline(context, _roofs(context, _processors(context)))
    return summarize_roofline(
        estimate, context.result.engine, {i: _short(n) for i, n in context.layer_names.items()}
    )


def build_roofline_panel(context: PanelContext) -> PanelParts:
    """The same as a figure and a table.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
    """
    engine, processors = context.result.engine, _processors(context)
    roofs, batch, engine_batch = _roofs(context, processors), context.batch, 1
    try:
        engine_batch = batch_of(engine, context.model)
        estimate, why = _estimate_roofline(context, roofs)
    except RtlabError as error:
        settings = _settings(processors, roofs, batch or engine_batch, engine_batch)
        return PanelParts(settings=settings, work=_WORK, problem=str(error))
    return PanelParts(
        result=summarize_roofline(estimate, engine, {i: _short(n) for i, n in context.layer_names.items()}),
        units={"FLOP": ("MFLOP", 1e-6), "ms": ("µs", 1e3)},
        lead=_lead(estimate),
        settings=_settings(processors, roofs, estimate.batch, engine_batch),
        work=_WORK,
        figures=[_draw_roofline(estimate, format_exact_names(context.layer_names, engine))]
        if any(p.intensity for p in estimate.layers)
        else [],
        notes=_notes(estimate, engine, why),
    )


def _estimate_roofline(context: PanelContext, roofs: Peaks) -> tuple[Roofline, str]:
    """The estimate, and why it has no measured times beside it."""
    engine, batch = context.result.engine, context.batch
    engine_batch = batch_of(engine, context.model)
    times, why = _times(context.result, roofs, engine_batch if batch is None else batch, engine_batch)
    estimate = under_roofs(engine, context.mapping, context.model, roofs, times, batch=batch)
    if len(estimate.uncounted) == len(estimate.layers):
        raise ReadError(
            "Cannot count operations and bytes: the layers have no shapes. Export them with "
            "profilingVerbosity=detailed (trtexec --profilingVerbosity=detailed --exportLayerInfo), or load the ONNX "
            "model with rtlab.load(..., shapes={...})."
        )
    return estimate, why


def _roofs(context: PanelContext, processors: Mapping[str, Peaks]) -> Peaks:
    default = _default(context.result, processors)
    return processors.get(context.settings.get("gpu") or default.name) or resolve_peaks(
        context.settings["gpu"]
    )


def _processors(context: PanelContext) -> dict[str, Peaks]:
    """What can be chosen by name: the table, and what the user gave or measured."""
    custom_processors: tuple[Peaks, ...] = tuple(context.study.processors)
    return {p.name: p for p in (*custom_processors, *TABLE)}


def _default(result: VariantResult, processors: Mapping[str, Peaks]) -> Peaks:
    """This CPU for what runs on it, once it was measured; else the GPU that is usual for the engine."""
    measured = [p for p in processors.values() if p.origin == "measured"]
    return measured[0] if measured and result.engine.target.name == "cpu" else pick_default_gpu(result.engine)


def _times(
    result: VariantResult, roofs: Peaks, batch: int, engine_batch: int
) -> tuple[dict[str, float], str]:
    """Measured milliseconds by layer, if this processor took them at this batch; and else why there are none."""
    timing = compute_timing(result)
    if timing is None or not timing.layers:
        return {}, "Nothing was measured, so the figure shows estimates."
    if batch != engine_batch:
        return {}, f"Times were measured at batch {engine_batch}, so the figure shows estimates."
    here = roofs.origin == "measured" and timing.processor == "CPU" and not result.recorded
    if not here:
        try:
            here = (
                timing.processor == "GPU"
                and resolve_peaks(timing.device or result.engine.device).name == roofs.name
            )
        except VariantError:
            here = False
    if not here:
        where = timing.device or result.engine.device or "another processor"
        return {}, f"Times were measured on {where}, not on {roofs.name}, so the figure shows estimates."
    times = {i: t.median for i, t in get_layer_times(result).items() if t.shared == 1}
    is_mapped = get_engine_timing(result) is None
    return times, "Times are those of the engine that ran, joined by node." if is_mapped else ""


def _settings(processors: Mapping[str, Peaks], roofs: Peaks, batch: int, engine_batch: int) -> list[Setting]:
    labels = {
        p.name: f"{p.name} ({p.origin})" if p.origin == "measured" else p.name
        for p in {**processors, roofs.name: roofs}.values()
    }
    return [
        make_select("gpu", "Processor", "Whose peaks the roofs are.", labels, roofs.name),
        make_batch_slider(engine_batch, batch),
    ]


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
    low = min(p.intensity or 1.0 for p in plotted_points) / 2
    high = (
        max(
            *(p.intensity or 1.0 for p in plotted_points),
            2 * max(_rates(estimate).values()) / estimate.peaks.bandwidth,
        )
        * 2
    )
    data = [_roof(estimate, name, rate, line, (low, high)) for (name, rate), line in _lines(estimate)]
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


def _rates(estimate: Roofline) -> dict[str, float]:
    """The roofs in use, by the words for them."""
    used = dict.fromkeys((p.precision, p.units) for p in estimate.layers if p.flops)
    units = {"matrix": "matrix units", "cores": "cores"}
    return {
        f"{precision}, {units.get(kind, kind)}": estimate.peaks.rate(precision, matrix=kind == "matrix")[0]
        for precision, kind in used
    }


def _lines(estimate: Roofline) -> list[tuple[tuple[str, float], str]]:
    rates = sorted(_rates(estimate).items(), key=lambda r: -r[1])
    return [(rate, _LINES[i % len(_LINES)]) for i, rate in enumerate(rates)]


def _roof(estimate: Roofline, name: str, rate: float, line: str, ends: tuple[float, float]) -> dict[str, Any]:
    bandwidth = estimate.peaks.bandwidth
    bend = rate / bandwidth
    x = [min(ends[0], bend / 2), bend, max(ends[1], 2 * bend)]
    return {
        "type": "scatter", "mode": "lines", "name": f"{format_si(rate, 'FLOP/s')} {name}", "x": x,
        "y": [min(rate, i * bandwidth) for i in x], "line": {"color": "#808080", "width": 1.5, "dash": line},
        "hovertemplate": f"{html.escape(name)}: {format_si(rate, 'FLOP/s')}, {format_si(bandwidth, 'B/s')}; "
        f"{estimate.peaks.origin}<extra></extra>",
    }  # fmt: skip


def _time(point: Point) -> float:
    return point.measured or point.estimated or 0.0


def _hover(point: Point, name: str) -> str:
    time = f"{1e3 * point.measured:.3g} µs measured" if point.measured else ""
    parts = [
        f"<b>{html.escape(_short(name))}</b>",
        f"{format_si(point.flops or 0, 'FLOP')}, {format_bytes(point.moved or 0)} (estimated)",
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
    if engine.device:
        try:
            resolve_peaks(engine.device)
        except VariantError as error:
            notes.append(f"The engine's own GPU is not in the table, so another stands here. {error}")
    still = sum(p.flops == 0 for p in estimate.layers)
    if still:
        many = "layers only move data; they have" if still > 1 else "layer only moves data; it has"
        notes.append(f"{still} {many} no place in the figure, but a row in the table.")
    if estimate.uncounted:
        notes += [estimate.withheld] if estimate.withheld else []
        notes.append(
            f"{len(estimate.uncounted)} of {len(estimate.layers)} layers are not counted, because their shapes or what "
            "they compute is not reported. Load the ONNX model with rtlab.load(..., shapes={...}) to count them."
        )
    below = sum(p.distance is not None and p.distance < 1 for p in estimate.layers)
    if below:
        notes.append(
            f"{below} of {len(estimate.layers)} layers took less than the attainable time: "
            f"{_explain_fast_layers(roofs)}"
        )
    if engine.detail == "region":
        notes.append("The compiler reports whole regions only, so a mark stands for many kernels.")
    return notes


def _explain_fast_layers(roofs: Peaks) -> str:
    """Why a layer may be faster than its roof."""
    if roofs.origin == "measured":
        return (
            "their tensors were still in a cache, or the machine was busy with something else while its roofs were "
            "measured. Measure them again."
        )
    size = f" of {roofs.cache / 2**20:.3g} MiB" if roofs.cache else ""
    return (
        f"their tensors were still in the cache{size}, they started faster than most, the clock was higher than that "
        "of the data sheet, or the kernel did not read all of its input, such as a 1×1 convolution of stride 2."
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONG else f"{name[: _LONG - 1]}…"
