"""Where the time went, as a panel and a table tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rtlab import questions
from rtlab.core.model import Model
from rtlab.core.schema import UNSENT, Meaning, Origin
from rtlab.documents.numbers import counted, steps, time_unit
from rtlab.questions.difference import unexplained
from rtlab.questions.difference.diff import BASES, INFERRED, Difference, Group, Half, Side
from rtlab.questions.scene import Scene
from rtlab.questions.titles import titled, titles
from rtlab.relation.mapping import Mapping, placed

_OUTSIDE = (
    "What whole inferences differ by beyond their layers: gaps between layers, and the cost of timing them."
)


@dataclasses.dataclass(frozen=True)
class ComparedGroup:
    """Nodes, and what runs them before and after: how many steps, in how many milliseconds.

    ``layers`` and ``others`` are those of the engines on screen, in whose place others may have been timed.
    """

    title: Annotated[str, Meaning("Nodes")]
    steps_before: Annotated[int, Meaning("{of.steps[0]} before")]
    steps_after: Annotated[int, Meaning("{of.steps[1]} after")]
    before: Annotated[float | None, Meaning("{of.before}{of.alone}", "ms", "{of.origin}")]
    after: Annotated[float | None, Meaning("{of.after}{of.alone}", "ms", "{of.origin}")]
    difference: Annotated[float | None, Meaning("Difference", "ms", "{of.origin}")]
    cause: Annotated[str, Meaning("What differs")]
    basis: Annotated[str, Meaning("Known by", note="How the layers of both came side by side.")]
    note: str
    nodes: Annotated[tuple[str, ...], Meaning(links="nodes")]
    layers: Annotated[tuple[str, ...], Meaning(links="layers")]
    others: Annotated[tuple[str, ...], Meaning(links="others")]


@dataclasses.dataclass(frozen=True)
class TimeDifference:
    """Where the milliseconds between two variants went, which are called ``before`` and ``after``.

    ``milliseconds`` are of whole inferences where both are known, else sums of layers; None where there are no times.
    ``outside`` is the part of their difference that is in no group, ``steps`` what the steps of each are called.
    """

    latency: Annotated[str | None, Meaning("{self.what}", origin="{self.origin}", omit=True)]
    change: Annotated[str | None, Meaning("Difference", origin="{self.origin}", omit=True)]
    became: Annotated[str, Meaning("{self.counted}")]
    count: Annotated[int, Meaning("Groups of nodes")]
    rest: Annotated[
        str | None, Meaning("Outside the layers", origin="{self.origin}", note=_OUTSIDE, omit=True)
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


def time_difference(found: Difference, groups: Sequence[Group], scene: Scene) -> TimeDifference:
    """A difference as its panel and its table tell it, by groups in the order in which they are given."""
    called, sides = titles(scene.study), (found.first, found.second)
    kinds = (counted(found.first.engine), counted(found.second.engine))
    heads = (steps(found.first.engine), steps(found.second.engine))
    first, second = (len(s.engine.layers) - s.engine.sync for s in sides)
    alike = kinds[0] == kinds[1]
    whole = found.first.whole is not None and found.second.whole is not None
    unit, factor = unit_of(found)
    latency = change = rest = None
    if found.totals is not None and found.delta is not None:
        before, after = found.totals
        latency = f"{before * factor:.4g} → {after * factor:.4g} {unit}"
        share = f" ({found.delta / before:+.0%})" if before else ""
        change = signed(f"{found.delta * factor:+.4g} {unit}{share}") if found.delta else f"0 {unit}"
        rest = signed(f"{found.rest * factor:+.4g} {unit}") if found.rest is not None and whole else None
    return TimeDifference(
        latency=latency,
        change=change,
        became=f"{first} → {second}" if alike else f"{first} {kinds[0]}s → {second} {kinds[1]}s",
        count=len(groups),
        rest=rest,
        before=called[found.first.name],
        after=called[found.second.name],
        milliseconds=found.totals,
        outside=found.rest,
        origin=found.origin,
        steps=heads,
        what="Latency" if whole else "Sum of the layers",
        counted=heads[0] if alike else "Steps",
        alone=", timed alone" if found.unexplained else "",
        groups=_groups(found, groups, scene),
        notes=tuple(filter(None, (unexplained(found), *_notes(titled(found, called))))),
    )


def unit_of(found: Difference) -> tuple[str, float]:
    """The unit of all its times, and how many of it a millisecond has."""
    return time_unit(max(found.totals or (1.0,)))


def signed(text: str) -> str:
    """A true minus sign instead of a hyphen."""
    return text.replace("-", "−")


def more(group: Group) -> int:
    """How many layers the second engine has more for it."""
    return len(group.second.layers) - len(group.first.layers)


def group_title(group: Group, model: Model) -> str:
    """Operators and the first node, or what the layers say."""
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    if not nodes:
        return group.title
    ops = [n.op for n in nodes]
    shown = "·".join(ops[:3]) + (f"·+{len(ops) - 3}" if len(ops) > 3 else "")
    return f"{shown} {nodes[0].title}"


def _groups(found: Difference, groups: Sequence[Group], scene: Scene) -> tuple[ComparedGroup, ...]:
    model, rows = scene.model, []
    mappings = {
        s.name: placed(questions.fusion.mapping(scene.study.facts[s.name]), model)
        for s in (found.first, found.second)
    }
    for group in groups:
        places = [p for n in group.nodes if n in model.by_id for p in model.where(n)]
        halves = ((found.second, group.second), (found.first, group.first))
        layers, others = (_shown(s, h, places, scene, mappings[s.name]) for s, h in halves)
        rows.append(
            ComparedGroup(
                group_title(group, model), len(group.first.layers), len(group.second.layers), group.first.time,
                group.second.time, None if found.unexplained else group.delta, group.cause, group.basis,
                BASES[group.basis],
                tuple(places), layers, others,
            )
        )  # fmt: skip
    return tuple(rows)


def _shown(side: Side, half: Half, places: list[str], scene: Scene, mapping: Mapping) -> tuple[str, ...]:
    """Layers of the engine on screen, which may be another one than was timed."""
    if side.engine is scene.study.facts[side.name].engine:
        return half.layers
    return tuple(dict.fromkeys(i for p in places for i in mapping.layers(p)))


def _notes(found: Difference) -> list[str]:
    """What a reader of these times must not miss."""
    notes = list(found.doubts)
    notes += [
        f'"{s.name}": {s.withheld}'
        if s.withheld
        else f'"{s.name}" has no times of its layers, so layers are counted instead.'
        for s in (found.first, found.second)
        if not s.times
    ]
    if not any(map(more, found.groups)) and not (found.timed and any(g.delta for g in found.groups)):
        time = " and takes as long" if found.timed else ""
        notes.append(f"Every group of nodes became as many layers{time} in both engines.")
    streams = [len({y.stream for y in s.engine.layers}) for s in (found.first, found.second)]
    if streams[0] != streams[1]:
        notes.append(
            f"They run on {streams[0]} and {streams[1]} streams: a sum of layers does not tell what runs side by side. "
            "The tab Streams does."
        )
    used = {g.basis for g in found.groups}
    if used & INFERRED:
        notes.append(
            "Not all layers have names that both engines share: some were set side by side by what they do and where "
            "they stand (inferred). Give both the same model= to compare by nodes."
        )
    if used - {"nodes", "moves", "alone"}:
        told = (f"{basis}: {text[:1].lower()}{text[1:-1]}" for basis, text in BASES.items() if basis in used)
        notes.append(f"Known by {'; '.join(told)}.")
    names = [s.engine.title for s in (found.first, found.second)]
    if names[0] != names[1]:
        notes.append(f"{found.first.name}: {names[0]}; {found.second.name}: {names[1]}.")
    return notes
