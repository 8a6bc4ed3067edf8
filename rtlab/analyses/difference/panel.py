"""Two variants, group by group of ONNX nodes: where the milliseconds went."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated

from rtlab.analyses.difference import BASES, INFERRED, Difference, Group, compare_variants, explain_rest
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.model import Model
from rtlab.core.peaks import TABLE, resolve_peaks
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import BETTER, MAIN, SIGNS, WORSE, axis, figure
from rtlab.documents.numbers import (
    choose_time_unit,
    format_number,
    get_layer_heading,
    get_layer_noun,
    shorten_name,
)
from rtlab.documents.panel import make_select
from rtlab.errors import RtlabError, VariantError
from rtlab.relation.mapping import map_to_places

#: Bars of groups, the others are one bar; and letters of a bar's name.
_BARS, _LONG = 14, 28
#: Where times come from: a setting's value.
_MEASURED, _TARGET = "measured", "target"
_OUTSIDE = (
    "What whole inferences differ by beyond their layers: gaps between layers, and the cost of timing them."
)


@dataclasses.dataclass(frozen=True)
class ComparedGroup:
    """Nodes, and what runs them before and after: how many steps, in how many milliseconds.

    ``layers`` and ``others`` are those of the engines on screen, in whose place others may have been timed.
    """

    title: Annotated[str, FieldMeta("Nodes")]
    steps_before: Annotated[int, FieldMeta("{of.steps[0]} before")]
    steps_after: Annotated[int, FieldMeta("{of.steps[1]} after")]
    before: Annotated[float | None, FieldMeta("{of.before}{of.alone}", "ms", "{of.origin}")]
    after: Annotated[float | None, FieldMeta("{of.after}{of.alone}", "ms", "{of.origin}")]
    difference: Annotated[float | None, FieldMeta("Difference", "ms", "{of.origin}")]
    cause: Annotated[str, FieldMeta("What differs")]
    basis: Annotated[str, FieldMeta("Known by", note="How the layers of both came side by side.")]
    note: str
    nodes: Annotated[tuple[str, ...], FieldMeta(links="nodes")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    others: Annotated[tuple[str, ...], FieldMeta(links="others")]


@dataclasses.dataclass(frozen=True)
class TimeDifference:
    """Where the milliseconds between two variants went, which are called ``before`` and ``after``.

    ``milliseconds`` are of whole inferences where both are known, else sums of layers; None where there are no times.
    ``outside`` is the part of their difference that is in no group, ``steps`` what the steps of each are called.
    """

    latency: Annotated[str | None, FieldMeta("{self.what}", origin="{self.origin}", omit=True)]
    change: Annotated[str | None, FieldMeta("Difference", origin="{self.origin}", omit=True)]
    became: Annotated[str, FieldMeta("{self.counted}")]
    count: Annotated[int, FieldMeta("Groups of nodes")]
    rest: Annotated[
        str | None, FieldMeta("Outside the layers", origin="{self.origin}", note=_OUTSIDE, omit=True)
    ]
    before: str
    after: str
    milliseconds: tuple[float, float] | None
    outside: float | None
    origin: Origin
    steps: tuple[str, str]
    what: Annotated[str, UNSENT]
    counted: Annotated[str, UNSENT]
    alone: Annotated[str, UNSENT]
    groups: tuple[ComparedGroup, ...]
    notes: tuple[str, ...]


def analyze_difference(context: PanelContext) -> TimeDifference:
    """The variant shown against another one of the study, the groups that differ most first.

    Raises:
        VariantError: it is the only one.
        ModelError: a dimension has no size.
    """
    return summarize_difference(_compute_difference(context, _build_settings(context)), context)


def build_difference_panel(context: PanelContext) -> PanelParts:
    """The same as a waterfall and a table.

    Raises:
        VariantError: it is the only one.
    """
    settings = _build_settings(context)
    try:
        difference = _compute_difference(context, settings)
    except RtlabError as error:
        # Other times may be available: the settings stay on screen.
        return PanelParts(settings=settings, problem=str(error))
    result, unit = summarize_difference(difference, context), _choose_unit(difference)
    problem = explain_rest(difference)
    return PanelParts(
        result=result,
        units={"ms": unit},
        title=f"From {result.before} to {result.after}",
        settings=settings,
        figures=[] if problem else _draw_waterfall(difference, context, unit),
        problem=problem,
        notes=[n for n in result.notes if n != problem],
    )


def _build_settings(context: PanelContext) -> list[Setting]:
    study, result = context.study, context.result
    other, others = context.other, [n for n in study.results if n != result.name]
    variant_titles = get_variant_titles(study)
    has_times = all(compute_timing(study.results[n]) is not None for n in (other, result.name))
    estimates = [estimate_timing(r) for r in (study.results[other], result)]
    measured = {_MEASURED: "measured"} if has_times else {}
    target = {_TARGET: "estimated for the GPU of each"}
    gpus = {p.name: f"estimated on {p.name}" for p in (*TABLE, *study.processors)}
    # The CPU runs other kernels than the GPU that the engines are for, and emulates some precisions.
    is_reliable = all(g is not None and g.coverage.enough for g in estimates)
    sources = target | measured | gpus if is_reliable else measured | target | gpus
    # What was chosen for two other variants may not be available for these.
    gpu = _resolve_source(context.settings.get("times", ""), sources) or next(iter(sources))
    label, times_label = (
        "The variant that times are compared with.",
        "Which times: measured, or an estimate for a GPU.",
    )
    return [
        make_select("from", "Compared with", label, {n: variant_titles[n] for n in others}, other),
        make_select("times", "Times", times_label, sources, gpu),
    ]


def _compute_difference(context: PanelContext, settings: list[Setting]) -> Difference:
    other, gpu = (s["value"] for s in settings)
    custom_processors = {p.name: p for p in context.study.processors}
    peaks = None if gpu == _MEASURED else custom_processors.get(gpu, gpu)
    return compare_variants(context.study.results[other], context.result, gpu=peaks)


def _resolve_source(source_name: str, sources: Mapping[str, str]) -> str:
    """The choice itself, or the GPU of the table that it is another name of; empty where it is neither."""
    if source_name in sources:
        return source_name
    try:
        gpu_name = resolve_peaks(source_name).name
    except VariantError:
        return ""
    return gpu_name if gpu_name in sources else ""


def summarize_difference(difference: Difference, context: PanelContext) -> TimeDifference:
    """A difference as its panel and its table show it, the groups that differ most first."""
    titles, sides = get_variant_titles(context.study), (difference.first, difference.second)
    kinds, heads = ([f(s.engine) for s in sides] for f in (get_layer_noun, get_layer_heading))
    first, second = (s.engine.layer_count for s in sides)
    has_latencies = all(s.latency is not None for s in sides)
    unit, factor = _choose_unit(difference)
    latency = change = rest = None
    if difference.totals is not None and difference.delta is not None:
        before, after = difference.totals
        latency = f"{before * factor:.4g} → {after * factor:.4g} {unit}"
        share = f" ({difference.delta / before:+.0%})" if before else ""
        change = f"{_sign(difference.delta * factor)} {unit}{share}" if difference.delta else f"0 {unit}"
        if difference.rest is not None and has_latencies:
            rest = f"{_sign(difference.rest * factor)} {unit}"
    return TimeDifference(
        latency=latency,
        change=change and change.replace("-", "−"),
        became=f"{first} → {second}"
        if kinds[0] == kinds[1]
        else f"{first} {kinds[0]}s → {second} {kinds[1]}s",
        count=len(difference.groups),
        rest=rest,
        before=titles[difference.first.name],
        after=titles[difference.second.name],
        milliseconds=difference.totals,
        outside=difference.rest,
        origin=difference.origin,
        steps=(heads[0], heads[1]),
        what="Latency" if has_latencies else "Sum of the layers",
        counted=heads[0] if kinds[0] == kinds[1] else "Steps",
        alone=", timed alone" if difference.unexplained else "",
        groups=_build_groups(difference, context),
        notes=tuple(filter(None, (explain_rest(difference), *_list_notes(difference, titles)))),
    )


def _choose_unit(difference: Difference) -> tuple[str, float]:
    """The unit of all its times, and how many of it a millisecond has."""
    return choose_time_unit(max(difference.totals or (1.0,)))


def _sign(value: float) -> str:
    return f"{value:+.4g}".replace("-", "−")


def _format_group_title(group: Group, model: Model) -> str:
    """Operators and the first node, or what the layers say."""
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    if not nodes:
        return group.title
    ops = [n.op for n in nodes]
    op_names = "·".join(ops[:3]) + (f"·+{len(ops) - 3}" if len(ops) > 3 else "")
    return f"{op_names} {nodes[0].title}"


def _build_groups(difference: Difference, context: PanelContext) -> tuple[ComparedGroup, ...]:
    model, rows = context.model, []
    sides = [(s, context.study.results[s.name]) for s in (difference.second, difference.first)]
    mappings = [map_to_places(map_nodes(facts), model) for _, facts in sides]
    for group in difference.largest():
        places = [p for n in group.nodes if n in model.by_id for p in model.where(n)]
        # Layers of the engine on screen, which may be another one than was timed.
        layers, others = (
            half.layers
            if side.engine is facts.engine
            else tuple(dict.fromkeys(i for p in places for i in mapping.layers(p)))
            for (side, facts), half, mapping in zip(sides, (group.second, group.first), mappings, strict=True)
        )
        rows.append(
            ComparedGroup(
                _format_group_title(group, model), len(group.first.layers), len(group.second.layers), group.first.time,
                group.second.time, None if difference.unexplained else group.delta, group.cause, group.basis,
                BASES[group.basis], tuple(places), layers, others,
            )
        )  # fmt: skip
    return tuple(rows)


def _list_notes(difference: Difference, titles: Mapping[str, str]) -> list[str]:
    """What a reader of these times must not miss."""
    sides = (difference.first, difference.second)
    notes = list(difference.warnings)
    notes += [
        f'"{titles[s.name]}": {s.no_estimate_reason}'
        if s.no_estimate_reason
        else f'"{titles[s.name]}" has no times of its layers, so layers are counted instead.'
        for s in sides
        if not s.times
    ]
    has_delta = difference.has_layer_times and any(g.delta for g in difference.groups)
    if not has_delta and not any(g.extra_layers for g in difference.groups):
        time = " and takes as long" if difference.has_layer_times else ""
        notes.append(f"Every group of nodes became as many layers{time} in both engines.")
    if INFERRED & {g.basis for g in difference.groups}:
        notes.append(
            "Not all layers have names that both engines share: some were set side by side by what they do and where "
            "they stand (inferred). Give both the same model= to compare by nodes."
        )
    if difference.first.engine.title != difference.second.engine.title:
        notes.append("; ".join(f"{titles[s.name]}: {s.engine.title}" for s in sides) + ".")
    return notes


def _draw_waterfall(difference: Difference, context: PanelContext, times: tuple[str, float]) -> list[Figure]:
    """From the first variant to the second: times where both have them, else layers; none where nothing differs."""
    titles, model, groups = get_variant_titles(context.study), context.model, difference.largest()
    names = [titles[s.name] for s in (difference.first, difference.second)]
    rest = 0.0
    if difference.totals is not None and difference.has_layer_times:
        (unit, factor), origin, sign = times, str(difference.origin), SIGNS[difference.origin]
        before, after = (t * factor for t in difference.totals)
        deltas = [(g.delta or 0.0) * factor for g in groups]
        if difference.first.latency is not None and difference.second.latency is not None:
            rest = (difference.rest or 0.0) * factor
    else:
        origins = (difference.first.engine.origin, difference.second.engine.origin)
        unit, sign = "layers", SIGNS[origins[1]]
        origin = " before, ".join(origins) + " after" if origins[0] != origins[1] else origins[0]
        before = float(sum(len(g.first.layers) for g in groups))
        after = float(sum(len(g.second.layers) for g in groups))
        deltas = [float(g.extra_layers) for g in groups]
    bars = [(i, g, d) for i, (g, d) in enumerate(zip(groups, deltas, strict=True)) if d]
    if not bars and not rest:
        return []
    # Points of one id are one point to Plotly.
    points = [("before", names[0], before, f"{names[0]}: {before:.4g} {unit}")]
    for i, group, delta in bars[:_BARS]:
        title = _format_group_title(group, model)
        halves = (group.first, group.second)
        sizes = [len(h.layers) if unit == "layers" else (h.time or 0.0) * times[1] for h in halves]
        change = f"{sizes[0]:.4g} → {sizes[1]:.4g} {unit} ({_sign(delta)})"
        hover = f"{title}<br>{group.cause}<br>{change}<br>{BASES[group.basis]}"
        points.append((f"row {i}", shorten_name(group.title, _LONG), delta, hover))
    if others := [d for _, _, d in bars[_BARS:]]:
        hover = f"{len(others)} smaller differences together: {_sign(sum(others))} {unit}"
        points.append(("others", f"{len(others)} others", sum(others), hover))
    if rest:
        points.append(("rest", "outside layers", rest, f"outside the layers: {_sign(rest)} {unit}"))
    points.append(("after", names[1], after, f"{names[1]}: {after:.4g} {unit}"))
    ids, labels, values, hover_texts = map(list, zip(*points, strict=True))
    changes = [f"{v:+.0f}" if abs(v) >= 10 else f"{v:+.2g}" for v in values[1:-1]]
    trace = {
        "type": "bar",
        # Two groups may have one label; each has a place of its own.
        "x": list(range(len(labels))),
        "y": values,
        # Each difference begins at the level before it.
        "base": [0.0, *accumulate(values[:-2]), 0.0],
        "ids": ids,
        "text": [format_number(before), *(c.replace("-", "−") for c in changes), format_number(after)],
        "textposition": "outside",
        "constraintext": "none",
        "textangle": 0,
        "textfont": {"size": 10},
        "cliponaxis": False,
        "customdata": hover_texts,
        "hovertemplate": f"%{{customdata}}<extra>{origin}</extra>",
        "marker": {"color": [MAIN, *(WORSE if v > 0 else BETTER for v in values[1:-1]), MAIN]},
    }
    levels = [*accumulate(values[:-1]), after, 0.0]
    low, high = min(levels), max(levels)
    # Room for the numbers above the highest bar and below the lowest.
    spare = 0.14 * (high - low)
    return [
        figure(
            f"From {names[0]} to {names[1]}: {before:.4g} to {after:.4g} {unit}, by groups of nodes",
            [trace],
            title=f"{sign} {unit}, {origin}: down is {'fewer' if unit == 'layers' else 'faster'}",
            xaxis=axis(tickvals=trace["x"], ticktext=labels, tickangle=-35, showgrid=False),
            yaxis=axis(unit, range=[low - spare if low < 0 else 0.0, high + spare]),
        )
    ]
