"""Two variants, group by group of ONNX nodes: where the milliseconds went."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analyses.difference import compare_variants, explain_rest
from rtlab.analyses.difference.answer import (
    TimeDifference,
    choose_unit,
    count_extra_layers,
    format_group_title,
    summarize_difference,
    use_minus_sign,
)
from rtlab.analyses.difference.compare import BASES, Difference, Group
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.titles import apply_titles, get_variant_titles
from rtlab.core.peaks import TABLE, resolve_peaks
from rtlab.core.schema import Origin
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import BETTER, MAIN, SIGNS, WORSE, axis, figure
from rtlab.documents.numbers import format_number
from rtlab.documents.panel import make_select
from rtlab.errors import RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: Bars of groups; what is left is one bar.
_BARS = 14
#: Letters of a bar's name.
_LONG = 24
#: Where times come from: a setting's value.
_MEASURED, _TARGET = "measured", "target"
_ORDERS = {"size": "largest first", "time": "as executed"}
#: Numbers above bars, all of one size.
_TEXTS = {"textposition": "outside", "constraintext": "none", "textangle": 0, "textfont": {"size": 10}}


def analyze_difference(context: PanelContext) -> TimeDifference:
    """The variant shown against another one of the study: the groups that differ most first, unless asked otherwise.

    Raises:
        VariantError: it is the only one.
        ModelError: a dimension has no size.
    """
    return summarize_difference(*_compute_difference(context, _build_settings(context)), context)


def build_difference_panel(context: PanelContext) -> PanelParts:
    """The same as a waterfall and a table.

    Raises:
        VariantError: it is the only one.
    """
    settings = _build_settings(context)
    try:
        difference, groups = _compute_difference(context, settings)
    except RtlabError as error:
        # Other times may be had: the choice stays at hand.
        return PanelParts(settings=settings, problem=str(error))
    result, unit, problem = (
        summarize_difference(difference, groups, context),
        choose_unit(difference),
        explain_rest(difference),
    )
    keys = {id(g): f"row {i}" for i, g in enumerate(groups)}
    titled_difference = apply_titles(difference, get_variant_titles(context.study))
    return PanelParts(
        result=result,
        units={"ms": unit},
        title=f"From {result.before} to {result.after}",
        settings=settings,
        figures=[] if problem else _draw_figures(titled_difference, groups, keys, context.model, unit),
        problem=problem,
        notes=[n for n in result.notes if n != problem],
    )


def _build_settings(context: PanelContext) -> list[Setting]:
    study, result = context.study, context.result
    others = [n for n in study.results if n != result.name]
    preferred_name = context.settings.get("from") or (context.baseline.name if context.baseline else "")
    other = preferred_name if preferred_name in others else next(iter(others), "")
    if not other:
        raise VariantError(
            "There is nothing to compare with yet: this is the only variant. Build a second one, in another "
            "precision or for another GPU for example, or read an engine from files."
        )
    variant_titles = get_variant_titles(study)
    has_times = all(compute_timing(study.results[n]) is not None for n in (other, result.name))
    estimates = {_TARGET: "estimated for the GPU of each"}
    estimates |= {p.name: f"estimated on {p.name}" for p in (*TABLE, *study.processors)}
    guesses = [estimate_timing(r) for r in (study.results[other], result)]
    is_emulated = all(g is not None for g in guesses)
    measured_label = "measured on the CPU that stands in for the GPU" if is_emulated else "measured"
    measured_sources = {_MEASURED: measured_label} if has_times else {}
    # The CPU runs other kernels than the GPU that the engines are for, and emulates some precisions.
    is_reliable = all(g is not None and g.coverage.enough for g in guesses)
    sources = (
        {_TARGET: estimates[_TARGET], **measured_sources, **estimates}
        if is_reliable
        else {**measured_sources, **estimates}
    )
    # What was chosen for two other variants may not be had for these.
    gpu = _resolve_source(context.settings.get("times", ""), sources) or next(iter(sources))
    order = context.settings.get("order", "")
    return [
        make_select(
            "from",
            "Compared with",
            "The variant that times are compared with.",
            {n: variant_titles[n] for n in others},
            other,
        ),
        make_select(
            "times", "Times", "Which times: those that were measured, or an estimate for a GPU.", sources, gpu
        ),
        make_select(
            "order",
            "Order",
            "Which groups stand first.",
            _ORDERS,
            order if order in _ORDERS else next(iter(_ORDERS)),
        ),
    ]


def _compute_difference(context: PanelContext, settings: list[Setting]) -> tuple[Difference, list[Group]]:
    """The difference as it is asked for, and its groups in the order that is wanted."""
    other, gpu, order = (s["value"] for s in settings)
    custom_processors = {p.name: p for p in context.study.processors}
    difference = compare_variants(
        context.study.results[other],
        context.result,
        gpu=None if gpu == _MEASURED else custom_processors.get(gpu, gpu),
    )
    return difference, sorted(
        difference.groups, key=lambda g: -_compute_weight(g)
    ) if order == "size" else list(difference.groups)


def _resolve_source(source_name: str, sources: Mapping[str, str]) -> str:
    """The choice itself, or the GPU of the table that it is another name of; empty where it is neither."""
    if source_name in sources:
        return source_name
    try:
        gpu_name = resolve_peaks(source_name).name
    except VariantError:
        return ""
    return gpu_name if gpu_name in sources else ""


def _format_delta(value: float) -> str:
    """A difference above a narrow bar: two digits, and all of a whole number; the rest is in the hover text."""
    return use_minus_sign(f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.2g}")


def _compute_weight(group: Group) -> float:
    return abs(group.delta) if group.delta is not None else abs(count_extra_layers(group))


#: A unit of time, and how many of it a millisecond has.
_Unit = tuple[str, float]


def _draw_figures(
    difference: Difference, groups: list[Group], keys: dict[int, str], model: Model, unit: _Unit
) -> list[Figure]:
    """Times where both engines have them, else layers; nothing where nothing differs."""
    if difference.totals is None or not difference.has_layer_times:
        origins = (difference.first.engine.origin, difference.second.engine.origin)
        return (
            [_draw_layer_counts(groups, keys, model, origins)] if any(map(count_extra_layers, groups)) else []
        )
    changed_groups = [g for g in groups if g.delta]
    return (
        [_draw_waterfall(difference, changed_groups, keys, model, unit)]
        if changed_groups or difference.rest
        else []
    )


def _draw_waterfall(
    difference: Difference, groups: list[Group], keys: dict[int, str], model: Model, times: _Unit
) -> Figure:
    (before, after), (unit, factor) = difference.totals or (0.0, 0.0), times
    ranked_groups = sorted(groups, key=lambda g: -_compute_weight(g))
    visible_ids = {id(g) for g in ranked_groups[:_BARS]}
    visible_groups = [g for g in groups if id(g) in visible_ids]
    remainder = sum(g.delta or 0.0 for g in groups if id(g) not in visible_ids)
    labels = [difference.first.name, *_build_labels(visible_groups, model)]
    values = [before, *(g.delta or 0.0 for g in visible_groups)]
    # Points of one id are one point to Plotly.
    ids = ["before", *(keys[id(g)] for g in visible_groups)]
    hover = [
        f"{difference.first.name}: {before * factor:.4g} {unit}",
        *(_format_hover(g, model, times) for g in visible_groups),
    ]
    if len(visible_ids) < len(groups):
        labels.append(f"{len(groups) - len(visible_ids)} others")
        values.append(remainder)
        ids.append("others")
        hover.append(
            f"{len(groups) - len(visible_ids)} smaller differences together: "
            f"{use_minus_sign(f'{remainder * factor:+.4g}')} {unit}"
        )
    if difference.rest and difference.first.latency is not None and difference.second.latency is not None:
        labels.append("outside layers")
        values.append(difference.rest)
        ids.append("rest")
        hover.append(f"outside the layers: {use_minus_sign(f'{difference.rest * factor:+.4g}')} {unit}")
    labels.append(difference.second.name)
    values.append(after)
    ids.append("after")
    hover.append(f"{difference.second.name}: {after * factor:.4g} {unit}")
    shares = [v * factor for v in values]
    # Each difference stands on the level before it.
    base = [0.0, *itertools.accumulate(shares[:-2]), 0.0]
    inner = [WORSE if share > 0 else BETTER for share in shares[1:-1]]
    trace = {
        "type": "bar",
        # Two groups may bear one label; each has a place of its own.
        "x": list(range(len(labels))),
        "y": shares,
        "base": base,
        "ids": ids,
        "text": [format_number(shares[0]), *map(_format_delta, shares[1:-1]), format_number(shares[-1])],
        **_TEXTS,
        "cliponaxis": False,
        "customdata": hover,
        "hovertemplate": f"%{{customdata}}<extra>{difference.origin}</extra>",
        "marker": {"color": [MAIN, *inner, MAIN]},
    }
    return figure(
        f"From {difference.first.name} to {difference.second.name}: {before * factor:.4g} to {after * factor:.4g} "
        f"{unit}, by groups of nodes",
        [trace],
        title=f"{SIGNS[difference.origin]} {unit}, {difference.origin}: down is faster",
        # A difference may be a bar without height.
        hovermode="x",
        xaxis=_build_name_axis(labels),
        # Room for the numbers above the highest bar and below the lowest.
        yaxis=axis(unit, range=_compute_range(shares)),
    )


def _compute_range(shares: list[float]) -> list[float]:
    """A range of the y axis that holds all bars of a waterfall and their numbers."""
    levels = [shares[0], *(sum(shares[:i]) for i in range(2, len(shares))), shares[-1], 0.0]
    low, high = min(levels), max(levels)
    spare = 0.14 * (high - low)
    return [low - spare if low < 0 else 0.0, high + spare]


def _build_name_axis(labels: list[str]) -> dict[str, Any]:
    """An axis of names."""
    return axis(tickvals=list(range(len(labels))), ticktext=labels, tickangle=-35, showgrid=False)


def _draw_layer_counts(
    groups: list[Group], keys: dict[int, str], model: Model, origins: tuple[Origin, Origin]
) -> Figure:
    """Without times, what differs is how many layers a group became; a predicted engine may be one of the two."""
    origin_text = " before, ".join(origins) + " after" if origins[0] != origins[1] else origins[0]
    visible_groups = [g for g in groups if count_extra_layers(g)][:_BARS]
    trace = {
        "type": "bar",
        "x": list(range(len(visible_groups))),
        "y": [count_extra_layers(g) for g in visible_groups],
        "ids": [keys[id(g)] for g in visible_groups],
        "marker": {"color": [WORSE if count_extra_layers(g) > 0 else BETTER for g in visible_groups]},
        "text": [use_minus_sign(f"{count_extra_layers(g):+d}") for g in visible_groups],
        **_TEXTS,
        "cliponaxis": False,
        "customdata": [_format_hover(g, model, ("ms", 1.0)) for g in visible_groups],
        "hovertemplate": f"%{{customdata}}<extra>{origin_text}</extra>",
    }
    title = "Layers more or less, by groups of nodes; no times are known of both"
    return figure(
        title,
        [trace],
        title=title,
        xaxis=_build_name_axis(_build_labels(visible_groups, model)),
        yaxis=axis("layers", dtick=1),
    )


def _build_labels(groups: list[Group], model: Model) -> list[str]:
    """Names below bars: ends of paths; of those that end alike the beginnings, or more of both, to tell them apart."""
    paths = [_split_path(g, model) for g in groups]
    ends = [_shorten_path(p, last=True) for p in paths]
    starts = [_shorten_path(p, last=False) for p in paths]
    both = [
        text if len(text) <= 2 * _LONG else f"{text[:_LONG]}…{text[1 - _LONG :]}"
        for text in map("/".join, paths)
    ]
    names = zip(ends, starts, both, strict=True)
    return [
        end if ends.count(end) == 1 else start if starts.count(start) == 1 else more
        for end, start, more in names
    ]


def _split_path(group: Group, model: Model) -> list[str]:
    """The path of a group's first node."""
    if group.basis == "moves":
        return ["data movement"]
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    text = nodes[0].title if nodes else group.title
    parts = [p for p in text.split("/") if p]
    # The end of a path repeats the operator; what stands before it tells the place.
    if nodes and len(parts) > 1 and parts[-1].rstrip("_0123456789") == nodes[0].op:
        parts.pop()
    # Exporters write each module with its place in the one around it: features/features.10/block/block.2.
    distinct_parts = [
        p for p, after in zip(parts, [*parts[1:], ""], strict=True) if not after.startswith(f"{p}.")
    ]
    return distinct_parts or [text]


def _shorten_path(parts: list[str], *, last: bool) -> str:
    """As much of a path as has room: its last parts, or its first ones."""
    short = parts[-1] if last else f"{parts[0]}/…"
    for count in range(2, len(parts) + 1):
        longer = "/".join(parts[-count:] if last else [*parts[:count], "…"])
        if len(longer) <= _LONG:
            short = longer
    return short if len(short) <= _LONG else f"…{short[1 - _LONG :]}"


def _format_hover(group: Group, model: Model, unit: _Unit) -> str:
    name, factor = unit
    before, after, delta = ((v or 0.0) * factor for v in (group.first.time, group.second.time, group.delta))
    times = (
        f"<br>{before:.4g} → {after:.4g} {name} ({use_minus_sign(f'{delta:+.4g}')})"
        if group.delta is not None
        else ""
    )
    return f"{format_group_title(group, model)}<br>{group.cause}{times}<br>{BASES[group.basis]}"
