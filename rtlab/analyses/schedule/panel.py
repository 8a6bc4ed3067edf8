"""The streams of an engine: what runs when, who waits for whom, and what streams buy and cost."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import html
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rtlab.analyses.cards.card import format_exact_names
from rtlab.analyses.fusion import map_nodes, relate_engine
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline.estimate import compute_engine_roofline
from rtlab.analyses.roofline.estimate_error import pick_default_gpu
from rtlab.analyses.schedule.answer import StreamedEngine, summarize_streams
from rtlab.analyses.schedule.gantt import draw_gantt
from rtlab.analyses.schedule.streams import Schedule, split_shared_times, unit_durations
from rtlab.analyses.schedule.streams import compute_schedule as scheduled
from rtlab.analyses.timing import compute_timing, get_engine_timing, get_layer_times, get_milliseconds
from rtlab.analyses.timing.times import map_times_to_layers
from rtlab.analyses.titles import get_variant_titles
from rtlab.backends.capabilities import list_capable
from rtlab.backends.selection import default_target
from rtlab.core.peaks import TABLE
from rtlab.core.schema import Origin
from rtlab.documents.contract import Figure, Setting, Work
from rtlab.documents.figure import MAIN, OTHER, SIGNS, axis, figure
from rtlab.documents.numbers import choose_byte_unit, choose_time_unit, format_bytes, format_number
from rtlab.documents.panel import button, make_select, make_slider
from rtlab.errors import ReadError, RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.variant import Variant

#: Auxiliary streams that the slider offers; builders use no more on branching networks than there are branches.
_AUX = range(8)
#: Variants beside each other.
_MAX_SIBLINGS = 8


@dataclasses.dataclass(frozen=True)
class _Durations:
    """Where durations come from: ``of`` gives them by layer id, empty where a variant has none of this kind."""

    id: str
    label: str
    origin: Origin | Literal[""]
    of: Callable[[VariantResult], Mapping[str, float]]
    note: str = ""


def analyze_streams(context: PanelContext) -> StreamedEngine:
    """When each layer runs on its stream, and what it waits for.

    Raises:
        VariantError: a setting is none that there is.
        RtlabError: no durations of this kind are known.
    """
    chosen, durations = _choose_durations(context, _sources(context))
    return _summarize_plan(context, chosen, *_plans(context, chosen, durations))


def build_schedule_panel(context: PanelContext) -> PanelParts:
    """The same as figures and a table.

    Raises:
        VariantError: a setting is none that there is.
    """
    sources = _sources(context)
    chosen, durations = _choose_durations(context, sources)
    settings = _settings(context, sources, chosen)
    try:
        plan, siblings = _plans(context, chosen, durations)
    except RtlabError as error:
        return PanelParts(settings=settings, problem=str(error))
    return PanelParts(
        result=_summarize_plan(context, chosen, plan, siblings),
        units={"ms": choose_time_unit(plan.makespan)},
        lead=_lead(plan),
        settings=settings,
        work=[_rebuild(context)],
        figures=[
            draw_gantt(plan, format_exact_names(context.layer_names, context.result.engine), chosen.label),
            *([_draw_comparison(siblings, get_variant_titles(context.study))] if len(siblings) > 1 else []),
        ],
    )


def _choose_durations(
    context: PanelContext, sources: Mapping[str, _Durations]
) -> tuple[_Durations, Mapping[str, float]]:
    """The durations that are asked for, else the best that there are; empty where there are none."""
    requested_source = context.settings.get("times", "")
    if requested_source and requested_source not in sources:
        listed = ", ".join(f'"{s}"' for s in sources)
        raise VariantError(
            f'Cannot draw the streams of "{context.result.name}" with "{requested_source}" times: there are none. '
            f"Choose one of {listed}."
        )
    for chosen in [sources[requested_source]] if requested_source else sources.values():
        with contextlib.suppress(RtlabError):
            if durations := chosen.of(context.result):
                return chosen, durations
    return chosen, {}


_Plans: TypeAlias = tuple[Schedule, list[tuple["VariantResult", Schedule]]]


def _plans(context: PanelContext, chosen: _Durations, durations: Mapping[str, float]) -> _Plans:
    """The schedule, and those of the variant and its siblings, the fewest streams first."""
    result = context.result
    if not durations:
        # Says itself what is missing.
        chosen.of(result)
        raise ReadError(f'Variant "{result.name}" has no layer that takes time. Choose another variant.')
    plan = scheduled(result.engine, durations, origin=chosen.origin)
    timed = ((other, chosen.of(other)) for other in _siblings(context)[1:_MAX_SIBLINGS])
    others = [(r, scheduled(r.engine, times, origin=chosen.origin)) for r, times in timed if times]
    return plan, sorted([(result, plan), *others], key=lambda pair: (len(pair[1].streams), pair[0].name))


def _summarize_plan(
    context: PanelContext, chosen: _Durations, plan: Schedule, siblings: list[tuple[VariantResult, Schedule]]
) -> StreamedEngine:
    return summarize_streams(context, plan, siblings, (*_notes(context, plan, chosen), *plan.notes))


def _sources(context: PanelContext) -> dict[str, _Durations]:
    """What durations the variant may have, the best first."""
    result, gpu = context.result, _gpu(context)
    sources, times = [], get_engine_timing(result)
    if times is not None and times.layers:
        device = times.device or "device not reported"
        sources.append(_Durations("measured", f"measured, {device}", "measured", get_milliseconds))
    note = f"Each layer's duration is estimated from its operations and bytes on {gpu}."
    sources.append(
        _Durations(
            "estimated",
            f"estimated, {gpu}",
            "estimated",
            lambda other: compute_engine_roofline(
                other.engine, map_nodes(other), context.model, gpu
            ).milliseconds(other.engine),
            note,
        )
    )
    if times is None and get_layer_times(result):
        note = "Measured on the CPU with another engine: only the order of the layers is this engine's."
        map_times = functools.partial(_map_times_to_layers, result)
        sources.append(_Durations("cpu", "measured on the CPU", "measured", map_times, note))
    note = "Every layer counts as one unit here, however long it takes."
    sources.append(
        _Durations("unit", "every layer alike", "", lambda other: unit_durations(other.engine), note)
    )
    return {s.id: s for s in sources}


def _gpu(context: PanelContext) -> str:
    """The one that was chosen, else that of the engine, else one of its target."""
    if chosen := context.settings.get("gpu"):
        return chosen
    return pick_default_gpu(context.result.engine).name


def _map_times_to_layers(measured: VariantResult, target: VariantResult) -> Mapping[str, float]:
    """The times of one variant on the layers of one that was built from the same model: two runs are never equal."""
    times = compute_timing(measured)
    if times is None or measured.measured is None:
        return {}
    shared = get_layer_times(measured)
    if target is not measured:
        built = measured.prepared.model
        ran, other = (relate_engine(e, built, built) for e in (measured.measured, target.engine))
        shared = map_times_to_layers(times, ran, other)
    return split_shared_times(times, shared)


def _settings(context: PanelContext, sources: Mapping[str, _Durations], chosen: _Durations) -> list[Setting]:
    return [
        make_select(
            "times",
            "Durations",
            "Whose times the bars have: measured, reported or estimated.",
            {s.id: s.label for s in sources.values()},
            chosen.id,
        ),
        make_select(
            "gpu",
            "GPU",
            "The GPU for which times are estimated.",
            {n: n for n in dict.fromkeys([*(p.name for p in TABLE), _gpu(context)])},
            _gpu(context),
        ),
        make_slider(
            "aux",
            "Auxiliary streams",
            "How many streams beside the main one the next build may use.",
            _AUX,
            _get_stream_count(context),
        ),
    ]


def _get_stream_count(context: PanelContext) -> int:
    """The number on the slider: what was chosen, else what was built, else the streams that the engine has."""
    configured_streams = _aux(context.result.variant)
    used = len({y.stream for y in context.result.engine.layers}) - 1
    return min(
        max(
            context.get_number("aux", max(used, 0) if configured_streams is None else configured_streams),
            _AUX[0],
        ),
        _AUX[-1],
    )


def _aux(variant: Variant) -> int | None:
    """What the builder was told of auxiliary streams; None where that was left to it."""
    stream_count = dict(variant.options.config).get("max_aux_streams") if variant.options else None
    return stream_count if isinstance(stream_count, int) and stream_count >= 0 else None


def _rebuild(context: PanelContext) -> Work:
    stream_count, result = _get_stream_count(context), context.result
    same = next((r.name for r in _siblings(context) if _aux(r.variant) == stream_count), "")
    reason = ""
    if result.recorded:
        reason = "This engine was read from files. Build the model in a study to choose its streams."
    elif "streams" not in result.engine.maker.reports:
        reason = f"{result.engine.compiler} has no streams to choose. {_with_streams()}"
    elif same:
        reason = f'Variant "{same}" is built with {_auxiliary(stream_count)}.'
    return button(
        "rebuild", f"Rebuild with {_auxiliary(stream_count)}", reason, max_aux_streams=str(stream_count)
    )


def _with_streams() -> str:
    """What builds engines whose streams can be chosen, those that are installed here first."""
    for name in list_capable(lambda c: c.builds and "streams" in c.maker.reports):
        return f'Build with backend="{name}", such as for target {default_target(name)}.'
    return "Build with another backend."


def _auxiliary(count: int) -> str:
    return f"{count} auxiliary stream{'s' * (count != 1)}"


def _siblings(context: PanelContext) -> list[VariantResult]:
    """Variants of the study that differ from the one shown in their streams only, and that one itself."""

    def rest(variant: Variant) -> Variant:
        if variant.options is None:
            return variant
        config = tuple(c for c in variant.options.config if c[0] != "max_aux_streams")
        options = dataclasses.replace(variant.options, config=config)
        return dataclasses.replace(variant, options=options if options.count else None)

    result = context.result
    if result.recorded:
        return [result]
    mine = rest(result.variant)
    others = [r for r in context.study.results.values() if r.name != result.name and not r.recorded]
    same = [r for r in others if r.engine.backend == result.engine.backend and rest(r.variant) == mine]
    return [result, *same]


def _lead(plan: Schedule) -> str:
    if len(plan.streams) < 2:
        return (
            "Every bar is a layer of the engine. All run on one stream, one after the other, so that no layer waits "
            "for another stream."
        )
    return (
        "Every bar is a layer on its stream. A hatched gap is an idle stream, and an arrow leads to its "
        "end from the layer that it waits for. The line along the bars is the critical path: only "
        "when a layer on it gets shorter does the whole end earlier."
    )


def _notes(context: PanelContext, plan: Schedule, chosen: _Durations) -> list[str]:
    notes = [chosen.note] if chosen.note else []
    if len(plan.streams) > 1:
        notes.append(
            "As soon as possible: layers side by side do not slow each other down here, and signals and waits cost "
            "nothing. On a GPU they share its units, and one thread of the CPU starts them one after the other unless "
            "a CUDA graph does: what streams save is at most this."
        )
        return notes
    if math.isclose(plan.chain, plan.serial, rel_tol=1e-6):
        why = "All layers that take time are one chain of tensors: a second stream would have nothing to do."
    else:
        free = format_number(plan.serial - plan.chain, plan.unit)
        why = f"Its tensors would allow it to end up to {free} earlier, were layers to run side by side."
    engine = context.result.engine
    if "streams" not in engine.maker.reports or context.result.recorded:
        return [*notes, why]
    if _aux(context.result.variant) == 0:
        tip = "It was built with max_aux_streams=0: rebuild it with more."
    else:
        tip = (
            "The builder was free to use more and did not: it does where long branches run side by side. "
            'Try rtlab.samples.load("googlenet").'
        )
    return [*notes, f"{why} {tip}"]


def _draw_comparison(
    siblings: list[tuple[VariantResult, Schedule]], variant_titles: Mapping[str, str]
) -> Figure:
    labels = [
        f"{html.escape(variant_titles[r.name])}<br>{len(p.streams)} stream{'s' * (len(p.streams) != 1)}"
        for r, p in siblings
    ]
    origin_text = "estimated" if siblings[0][1].origin else "unit length"
    longest = max((p for _, p in siblings), key=lambda p: p.makespan)
    unit, factor = choose_time_unit(longest.makespan) if longest.origin else (longest.unit, 1.0)
    memory = [r.engine.totals.get("activation") for r, _ in siblings]
    memory_unit, scale = choose_byte_unit(max(m or 0 for m in memory))
    bar: dict[str, Any] = {"type": "bar", "orientation": "h", "y": labels}
    data = [
        {
            **bar,
            "x": [p.makespan * factor for _, p in siblings],
            "marker": {"color": MAIN},
            "hovertemplate": f"%{{y}}<br>ends after %{{x:.3~g}} {unit}<extra>{origin_text}</extra>",
        },
        {
            **bar,
            "x": [m if m is None else m / scale for m in memory],
            "xaxis": "x2",
            "marker": {"color": OTHER},
            "hovertemplate": f"%{{y}}<br>%{{x:.3~g}} {memory_unit} of activations<extra>reported</extra>",
        },
    ]
    return figure(
        "Time and activation memory of the variants that differ in their streams: "
        + "; ".join(
            f"{label.replace('<br>', ': ')}, {format_number(p.makespan, p.unit)}, "
            + ("memory not reported" if m is None else format_bytes(m))
            for label, (_, p), m in zip(labels, siblings, memory, strict=True)
        ),
        data,
        height=110 + 28 * len(siblings),
        title="What streams save, and what they cost",
        # Side by side with the schedule there is room for few words; the hover text has the others.
        xaxis=axis(
            f"{SIGNS.get(origin_text, '')} time, {unit}".strip(), domain=[0, 0.46], rangemode="tozero", nticks=4,
        ),
        xaxis2=axis(
            f"{SIGNS['reported']} memory, {memory_unit}", domain=[0.54, 1], rangemode="tozero", anchor="y", nticks=4,
        ),
        yaxis=axis(type="category", automargin=True),
    )  # fmt: skip
