"""Where the time went, as a panel and a table tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rtlab.analyses.difference import explain_rest
from rtlab.analyses.difference.compare import BASES, INFERRED, Difference, Group, Half, Side
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.titles import apply_titles, get_variant_titles
from rtlab.core.model import Model
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.numbers import choose_time_unit, get_layer_heading, get_layer_noun
from rtlab.relation.mapping import Mapping, map_to_places

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


def summarize_difference(
    difference: Difference, groups: Sequence[Group], context: PanelContext
) -> TimeDifference:
    """A difference as its panel and its table tell it, by groups in the order in which they are given."""
    variant_titles, sides = get_variant_titles(context.study), (difference.first, difference.second)
    kinds = (get_layer_noun(difference.first.engine), get_layer_noun(difference.second.engine))
    heads = (get_layer_heading(difference.first.engine), get_layer_heading(difference.second.engine))
    first, second = (len(s.engine.layers) - s.engine.sync for s in sides)
    alike = kinds[0] == kinds[1]
    has_latencies = difference.first.latency is not None and difference.second.latency is not None
    unit, factor = choose_unit(difference)
    latency = change = rest = None
    if difference.totals is not None and difference.delta is not None:
        before, after = difference.totals
        latency = f"{before * factor:.4g} → {after * factor:.4g} {unit}"
        share = f" ({difference.delta / before:+.0%})" if before else ""
        change = (
            use_minus_sign(f"{difference.delta * factor:+.4g} {unit}{share}")
            if difference.delta
            else f"0 {unit}"
        )
        rest = (
            use_minus_sign(f"{difference.rest * factor:+.4g} {unit}")
            if difference.rest is not None and has_latencies
            else None
        )
    return TimeDifference(
        latency=latency,
        change=change,
        became=f"{first} → {second}" if alike else f"{first} {kinds[0]}s → {second} {kinds[1]}s",
        count=len(groups),
        rest=rest,
        before=variant_titles[difference.first.name],
        after=variant_titles[difference.second.name],
        milliseconds=difference.totals,
        outside=difference.rest,
        origin=difference.origin,
        steps=heads,
        what="Latency" if has_latencies else "Sum of the layers",
        counted=heads[0] if alike else "Steps",
        alone=", timed alone" if difference.unexplained else "",
        groups=_build_groups(difference, groups, context),
        notes=tuple(
            filter(None, (explain_rest(difference), *_list_notes(apply_titles(difference, variant_titles))))
        ),
    )


def choose_unit(difference: Difference) -> tuple[str, float]:
    """The unit of all its times, and how many of it a millisecond has."""
    return choose_time_unit(max(difference.totals or (1.0,)))


def use_minus_sign(text: str) -> str:
    """A true minus sign instead of a hyphen."""
    return text.replace("-", "−")


def count_extra_layers(group: Group) -> int:
    """How many layers the second engine has more for it."""
    return len(group.second.layers) - len(group.first.layers)


def format_group_title(group: Group, model: Model) -> str:
    """Operators and the first node, or what the layers say."""
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    if not nodes:
        return group.title
    ops = [n.op for n in nodes]
    op_names = "·".join(ops[:3]) + (f"·+{len(ops) - 3}" if len(ops) > 3 else "")
    return f"{op_names} {nodes[0].title}"


def _build_groups(
    difference: Difference, groups: Sequence[Group], context: PanelContext
) -> tuple[ComparedGroup, ...]:
    model, rows = context.model, []
    mappings = {
        s.name: map_to_places(map_nodes(context.study.results[s.name]), model)
        for s in (difference.first, difference.second)
    }
    for group in groups:
        places = [p for n in group.nodes if n in model.by_id for p in model.where(n)]
        halves = ((difference.second, group.second), (difference.first, group.first))
        layers, others = (_find_screen_layers(s, h, places, context, mappings[s.name]) for s, h in halves)
        rows.append(
            ComparedGroup(
                format_group_title(group, model), len(group.first.layers), len(group.second.layers), group.first.time,
                group.second.time, None if difference.unexplained else group.delta, group.cause, group.basis,
                BASES[group.basis],
                tuple(places), layers, others,
            )
        )  # fmt: skip
    return tuple(rows)


def _find_screen_layers(
    side: Side, half: Half, places: list[str], context: PanelContext, mapping: Mapping
) -> tuple[str, ...]:
    """Layers of the engine on screen, which may be another one than was timed."""
    if side.engine is context.study.results[side.name].engine:
        return half.layers
    return tuple(dict.fromkeys(i for p in places for i in mapping.layers(p)))


def _list_notes(difference: Difference) -> list[str]:
    """What a reader of these times must not miss."""
    notes = list(difference.warnings)
    notes += [
        f'"{s.name}": {s.no_estimate_reason}'
        if s.no_estimate_reason
        else f'"{s.name}" has no times of its layers, so layers are counted instead.'
        for s in (difference.first, difference.second)
        if not s.times
    ]
    if not any(map(count_extra_layers, difference.groups)) and not (
        difference.has_layer_times and any(g.delta for g in difference.groups)
    ):
        time = " and takes as long" if difference.has_layer_times else ""
        notes.append(f"Every group of nodes became as many layers{time} in both engines.")
    streams = [len({y.stream for y in s.engine.layers}) for s in (difference.first, difference.second)]
    if streams[0] != streams[1]:
        notes.append(
            f"They run on {streams[0]} and {streams[1]} streams: a sum of layers does not show what runs side by side. "
            "The tab Streams does."
        )
    bases = {g.basis for g in difference.groups}
    if bases & INFERRED:
        notes.append(
            "Not all layers have names that both engines share: some were set side by side by what they do and where "
            "they stand (inferred). Give both the same model= to compare by nodes."
        )
    if bases - {"nodes", "moves", "alone"}:
        basis_texts = (
            f"{basis}: {text[:1].lower()}{text[1:-1]}" for basis, text in BASES.items() if basis in bases
        )
        notes.append(f"Known by {'; '.join(basis_texts)}.")
    names = [s.engine.title for s in (difference.first, difference.second)]
    if names[0] != names[1]:
        notes.append(f"{difference.first.name}: {names[0]}; {difference.second.name}: {names[1]}.")
    return notes
