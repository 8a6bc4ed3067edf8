"""Every layer under the roofs of a processor: what bounds it, how far it is from there, and how long it may take."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab import questions
from rtlab.core.peaks import TABLE, Peaks, peaks
from rtlab.documents.contract import Figure, Panel, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import storage
from rtlab.documents.panel import batches, button, choices
from rtlab.errors import ReadError, RtlabError, VariantError
from rtlab.questions.cards.card import exact
from rtlab.questions.roofline.answer import RoofedEngine, roofed, scaled
from rtlab.questions.roofline.estimate_error import RECORDED, known_error, usual
from rtlab.questions.roofline.roofs import Bound, Point, Roofline, efficiency_of
from rtlab.questions.roofline.roofs import roofline as under_roofs
from rtlab.questions.scene import Question, Scene
from rtlab.relation.layerwork import batch_of

if TYPE_CHECKING:
    from rtlab.core.engine import Engine
    from rtlab.core.facts import Facts

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


def told(scene: Scene) -> RoofedEngine:
    """The layers of an engine under the roofs of a processor of one's choice.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
        ReadError: the layers tell no shapes.
        ModelError: a dimension has no size.
    """
    found, _ = _found(scene, _roofs(scene, _processors(scene)))
    return roofed(found, scene.result.engine, {i: _short(n) for i, n in scene.called.items()})


def roofline(scene: Scene) -> Panel:
    """The same as a figure and a table.

    Raises:
        VariantError: a setting is no number, or the processor is not known.
    """
    engine, known = scene.result.engine, _processors(scene)
    roofs, batch, own = _roofs(scene, known), scene.batch, 1
    try:
        own = batch_of(engine, scene.model)
        found, why = _found(scene, roofs)
    except RtlabError as error:
        settings = _settings(known, roofs, batch or own, own)
        return ROOFLINE.panel(scene, settings=settings, work=_WORK, problem=str(error))
    return ROOFLINE.panel(
        scene,
        roofed(found, engine, {i: _short(n) for i, n in scene.called.items()}),
        units={"FLOP": ("MFLOP", 1e-6), "ms": ("µs", 1e3)},
        lead=_lead(found),
        settings=_settings(known, roofs, found.batch, own),
        work=_WORK,
        figures=[_drawn(found, exact(scene.called, engine))]
        if any(p.intensity for p in found.layers)
        else [],
        notes=_notes(found, engine, why),
    )


def _found(scene: Scene, roofs: Peaks) -> tuple[Roofline, str]:
    """The estimate, and why it has no measured times beside it."""
    engine, batch = scene.result.engine, scene.batch
    own = batch_of(engine, scene.model)
    times, why = _times(scene.result, roofs, own if batch is None else batch, own)
    found = under_roofs(engine, scene.mapping, scene.model, roofs, times, batch=batch)
    if len(found.uncounted) == len(found.layers):
        raise ReadError(
            "Cannot count operations and bytes: the layers tell no shapes. Export them with "
            "profilingVerbosity=detailed (trtexec --profilingVerbosity=detailed --exportLayerInfo), or load the ONNX "
            "model with rtlab.load(..., shapes={...})."
        )
    return found, why


def _roofs(scene: Scene, known: Mapping[str, Peaks]) -> Peaks:
    default = _default(scene.result, known)
    return known.get(scene.settings.get("gpu") or default.name) or peaks(scene.settings["gpu"])


def _processors(scene: Scene) -> dict[str, Peaks]:
    """What can be chosen by name: the table, and what the user gave or measured."""
    given: tuple[Peaks, ...] = tuple(scene.study.processors)
    return {p.name: p for p in (*given, *TABLE)}


def _default(result: Facts, known: Mapping[str, Peaks]) -> Peaks:
    """This CPU for what runs on it, once it was measured; else the GPU that is usual for the engine."""
    measured = [p for p in known.values() if p.origin == "measured"]
    return measured[0] if measured and result.engine.target.name == "cpu" else usual(result.engine)


def _times(result: Facts, roofs: Peaks, batch: int, own: int) -> tuple[dict[str, float], str]:
    """Measured milliseconds by layer, if this processor took them at this batch; and else why there are none."""
    timing = questions.timing.of(result)
    if timing is None or not timing.layers:
        return {}, "Nothing was measured, so the figure shows estimates."
    if batch != own:
        return {}, f"Times were measured at batch {own}, so the figure shows estimates."
    here = roofs.origin == "measured" and timing.processor == "CPU" and not result.recorded
    if not here:
        try:
            here = (
                timing.processor == "GPU" and peaks(timing.device or result.engine.device).name == roofs.name
            )
        except VariantError:
            here = False
    if not here:
        where = timing.device or result.engine.device or "another processor"
        return {}, f"Times were measured on {where}, not on {roofs.name}, so the figure shows estimates."
    times = {i: t.median for i, t in questions.timing.on_layers(result).items() if t.shared == 1}
    joined = questions.timing.own(result) is None
    return times, "Times are those of the engine that ran, joined by node." if joined else ""


def _settings(known: Mapping[str, Peaks], roofs: Peaks, batch: int, own: int) -> list[Setting]:
    labels = {
        p.name: f"{p.name} ({p.origin})" if p.origin == "measured" else p.name
        for p in {**known, roofs.name: roofs}.values()
    }
    return [
        choices("gpu", "Processor", "Whose peaks the roofs are.", labels, roofs.name),
        batches(own, batch),
    ]


def _lead(found: Roofline) -> str:
    if not found.layers:
        return "This engine has no layer that computes or moves anything."
    roof = (
        "A layer left of the bend of its roof waits for memory, right of it for arithmetic. The height is how many "
        "operations it does per second: the nearer to the roof, the less there is to gain. "
    )
    if found.share("launch") > 0.5:
        return (
            f"{roof}But most of these layers are too small for {found.peaks.name}: to start them takes longer than to "
            "compute them, so that neither faster arithmetic nor faster memory helps. Choose a larger batch, and see "
            "where fewer layers would do."
        )
    return f"{roof}To go faster, look at large marks far below the line."


def _drawn(found: Roofline, called: Mapping[str, str]) -> Figure:
    """Points at intensity and rate in double logarithms, and a roof for each precision that a layer is computed in."""
    shown = [p for p in found.layers if p.intensity and p.rate]
    low = min(p.intensity or 1.0 for p in shown) / 2
    high = (
        max(*(p.intensity or 1.0 for p in shown), 2 * max(_rates(found).values()) / found.peaks.bandwidth) * 2
    )
    data = [_roof(found, name, rate, line, (low, high)) for (name, rate), line in _lines(found)]
    longest = max(_time(p) for p in shown)
    for bound, (symbol, colour, words) in _MARKS.items():
        points = [p for p in shown if p.bound == bound]
        if not points:
            continue
        data.append({
            "type": "scattergl", "mode": "markers", "name": words, "x": [p.intensity for p in points],
            "y": [p.rate for p in points], "ids": [p.layer for p in points],
            "marker": {
                "symbol": symbol, "color": colour, "opacity": 0.8, "line": {"width": 1.5, "color": "#808080"},
                "size": [_SMALL + (_LARGE - _SMALL) * math.sqrt(_time(p) / longest) for p in points],
            },
            "text": [_hover(p, called[p.layer]) for p in points], "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    return figure(
        f"Roofline on {found.peaks.name}: arithmetic intensity against operations per second, one mark for each layer",
        data,
        height=380,
        showlegend=True,
        legend=legend(itemsizing="trace"),
        xaxis=axis("FLOP per byte moved (size of a mark: its time)", type="log", dtick=1),
        yaxis=axis("FLOP/s", type="log", dtick=1, exponentformat="SI"),
    )


def _rates(found: Roofline) -> dict[str, float]:
    """The roofs in use, by the words for them."""
    used = dict.fromkeys((p.precision, p.units) for p in found.layers if p.flops)
    units = {"matrix": "matrix units", "cores": "cores"}
    return {
        f"{precision}, {units.get(kind, kind)}": found.peaks.rate(precision, matrix=kind == "matrix")[0]
        for precision, kind in used
    }


def _lines(found: Roofline) -> list[tuple[tuple[str, float], str]]:
    rates = sorted(_rates(found).items(), key=lambda r: -r[1])
    return [(rate, _LINES[i % len(_LINES)]) for i, rate in enumerate(rates)]


def _roof(found: Roofline, name: str, rate: float, line: str, ends: tuple[float, float]) -> dict[str, Any]:
    bandwidth = found.peaks.bandwidth
    bend = rate / bandwidth
    x = [min(ends[0], bend / 2), bend, max(ends[1], 2 * bend)]
    return {
        "type": "scatter", "mode": "lines", "name": f"{scaled(rate, 'FLOP/s')} {name}", "x": x,
        "y": [min(rate, i * bandwidth) for i in x], "line": {"color": "#808080", "width": 1.5, "dash": line},
        "hovertemplate": f"{html.escape(name)}: {scaled(rate, 'FLOP/s')}, {scaled(bandwidth, 'B/s')}; "
        f"{found.peaks.origin}<extra></extra>",
    }  # fmt: skip


def _time(point: Point) -> float:
    return point.measured or point.estimated or 0.0


def _hover(point: Point, name: str) -> str:
    time = f"{1e3 * point.measured:.3g} µs measured" if point.measured else ""
    parts = [
        f"<b>{html.escape(_short(name))}</b>",
        f"{scaled(point.flops or 0, 'FLOP')}, {storage(point.moved or 0)} (estimated)",
        f"{point.precision}, {_MARKS[point.bound][2]}",
        f"attainable {1e3 * (point.attainable or 0):.3g} µs, estimated {1e3 * (point.estimated or 0):.3g} µs",
        *([f"{time}, {point.distance:.2g} times the attainable"] if time and point.distance else []),
        *([html.escape(point.note)] if point.note else []),
    ]
    return "<br>".join(parts)


def _notes(found: Roofline, engine: Engine, why: str) -> list[str]:
    roofs, reached = found.peaks, efficiency_of(found.peaks)
    power = f" ({roofs.power})" if roofs.power else ""
    notes = [f"Peaks of {roofs.name}, {roofs.origin}: {roofs.source}{power}."]
    if roofs.origin == "reported":
        notes.append("They are dense, at the boost clock; another clock or power limit moves all roofs.")
    if roofs.origin != "measured":
        notes.append(
            f"An estimate takes {reached.launch} µs to start a kernel, {reached.memory:.0%} of the bandwidth and "
            f"{reached.matrix:.0%} of the matrix units, with whole waves of tiles: fitted to {len(RECORDED)} recorded "
            f"engines. Known error {known_error(roofs.name)}."
        )
    if why:
        notes.append(why)
    if engine.device:
        try:
            peaks(engine.device)
        except VariantError as error:
            notes.append(f"The engine's own GPU is not in the table, so another stands here. {error}")
    still = sum(p.flops == 0 for p in found.layers)
    if still:
        many = "layers only move data; they have" if still > 1 else "layer only moves data; it has"
        notes.append(f"{still} {many} no place in the figure, but a row in the table.")
    if found.uncounted:
        notes += [found.withheld] if found.withheld else []
        notes.append(
            f"{len(found.uncounted)} of {len(found.layers)} layers are not counted, because their shapes or what they "
            "compute is not told. Load the ONNX model with rtlab.load(..., shapes={...}) to count them."
        )
    below = sum(p.distance is not None and p.distance < 1 for p in found.layers)
    if below:
        notes.append(
            f"{below} of {len(found.layers)} layers took less than the attainable time: {_beaten(roofs)}"
        )
    if engine.detail == "region":
        notes.append("The compiler tells whole regions only, so a mark stands for many kernels.")
    return notes


def _beaten(roofs: Peaks) -> str:
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


ROOFLINE = Question(
    "roofline",
    tab="timing",
    label="Roofline",
    title="Roofline",
    lead="",
    told="How near each layer comes to what the processor's arithmetic and its memory allow.",
    noun=told,
    drawn=roofline,
)
