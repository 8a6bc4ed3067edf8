"""What changed from one engine of a model to another: the few groups of nodes, and a part that still shows each."""

from __future__ import annotations

import collections
import dataclasses
import html
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

from rtlab.analyses import difference, fusion, roofline
from rtlab.analyses.bisection import fusion_changes
from rtlab.analyses.bisection.fusion_changes import Kind, Regrouping
from rtlab.analyses.difference import diff
from rtlab.analyses.difference.diff import Group, Side
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.results import ResultTable
from rtlab.relation.mapping import Mapping

#: Milliseconds below which a difference is that of rounding.
_NOTHING = 1e-6
#: What is left of a layer's name without the number of its program and its place in it.
_PLACE = re.compile(r"_myl\d+_\d+$")
#: What an engine does with some nodes: for each step that works for them which of them, its kind, type and kernel.
LayerCounts: TypeAlias = "collections.Counter[tuple[frozenset[str], str, str, str]]"


class Reproduction:
    """The smallest part found that shows a change: its models and logs, first and second; one model may be both.

    It is no dataclass: what reads records back would look into the fields of a model.
    """

    __slots__ = ("logs", "models")

    def __init__(self, models: tuple[Model, Model], logs: tuple[str, str]) -> None:
        self.models, self.logs = models, logs


@dataclasses.dataclass(frozen=True)
class ChangedGroup:
    """Nodes that two engines run in other steps, at one place or at several that changed alike.

    ``first`` and ``second`` are the steps: what they run, or their kernels where these alone differ; ``cause`` says
    what differs; ``delta`` is what the second takes more, in milliseconds on the GPU of each. ``part`` counts the nodes
    of the smallest part that still shows it, None where none was built. ``example`` are the nodes of the place that
    such a part is looked for around, and ``kind`` says who
    shares a step with whom now, and is empty where kernels alone differ.
    """

    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    title: Annotated[str, FieldMeta("First node")]
    places: Annotated[int, FieldMeta("Places", note="Where the model changed in this way.")]
    first: Annotated[str, FieldMeta("Before", origin="{of.origins[0]}")]
    second: Annotated[str, FieldMeta("After", origin="{of.origins[1]}")]
    delta: Annotated[float | None, FieldMeta("Difference", "ms", "estimated")]
    cause: Annotated[str, FieldMeta("What differs")]
    part: Annotated[int | None, FieldMeta("Part", note="Nodes of the smallest part that still shows it.")] = (
        None
    )
    shown: Annotated[Reproduction | None, UNSENT] = None
    operators: Annotated[
        str, FieldMeta("Its operators", note="Of the smallest part that still shows it.")
    ] = ""
    example: Annotated[tuple[str, ...], UNSENT] = ()
    kind: Annotated[Kind, UNSENT] = frozenset()


@dataclasses.dataclass(frozen=True)
class Changes:
    """All that changed: groups of nodes, and how many places keep their grouping though kernels or types differ.

    ``alone`` are those places, whose nodes are ``alone_nodes``; ``types`` says which types became which.
    """

    rows: tuple[ChangedGroup, ...]
    alone: int = 0
    alone_nodes: int = 0
    types: str = ""


@dataclasses.dataclass(frozen=True)
class Bisection:
    """What changed from one engine to another.

    ``budget`` is what could be taken, in words, and ``left`` counts the groups around which no part was looked for
    within it. ``asked`` is when; ``recalled`` says that it was found before. ``releases`` are those of the compilers,
    and ``origins`` say whose steps rules predict.
    ``refused`` is which of the two compilers refuses the model, ``first`` or ``second``, in the words of ``said``;
    ``changes`` has one row then, the nodes that it refuses.
    """

    first: Annotated[str, FieldMeta("First")]
    second: Annotated[str, FieldMeta("Second")]
    changes: tuple[ChangedGroup, ...]
    text: Annotated[str, FieldMeta("Answer")]
    refused: Annotated[Literal["", "first", "second"], FieldMeta("Refused by")] = ""
    said: Annotated[str, FieldMeta("In its words")] = ""
    builds: Annotated[int, FieldMeta("Builds", note="{self.budget}")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured", note="{self.budget}")] = 0.0
    budget: Annotated[str, FieldMeta("Budget")] = ""
    left: Annotated[int, FieldMeta("Not looked at", note="Groups that the budget, or a cancel, left.")] = 0
    asked: Annotated[str, FieldMeta("Asked on")] = ""
    recalled: Annotated[bool, FieldMeta("Asked before")] = False
    releases: Annotated[tuple[str, str], UNSENT] = ("", "")
    origins: Annotated[tuple[Origin, Origin], UNSENT] = ("reported", "reported")

    @property
    def date_text(self) -> str:
        """When it was asked, in words; what is built now is told where that is nothing."""
        return f"asked on {self.asked[:16].replace('T', ' ')} UTC{', 0 builds now' if self.recalled else ''}"

    def _repr_html_(self) -> str:
        table = ResultTable(ChangedGroup, self.changes, placeholder="", of=self)
        return f"<p>{html.escape(self.text)}</p>{table.html()}"

    def to_text(self) -> str:
        """The answer, and a table of what changed."""
        table = (
            ResultTable(ChangedGroup, self.changes, placeholder="", of=self).text() if self.changes else ""
        )
        cost_text = (
            f"{pluralize(self.builds, 'build')} in {self.seconds:.2g} s (measured here), {self.date_text}"
        )
        cost_text *= bool(self.builds)
        return "\n\n".join(filter(None, (self.text, table, self.said, cost_text)))


def count_layers(relation: Mapping, engine: Engine, nodes: Iterable[str]) -> LayerCounts:
    """What an engine does with some nodes, layouts that it brings their inputs into included."""
    node_ids = frozenset(nodes)
    return collections.Counter(
        (frozenset(relation.nodes(y.id)) & node_ids, y.kind, y.precision, get_kernel_name(y))
        for y in find_serving_layers(relation, engine, node_ids)
    )


def find_serving_layers(relation: Mapping, engine: Engine, nodes: Collection[str]) -> list[Layer]:
    """The layers that work for some nodes, and those that bring their inputs into a layout and name no node."""
    layer_ids = {y.id for y in engine.layers if not {*relation.nodes(y.id)}.isdisjoint(nodes)}
    input_names = {t.name for y in engine.layers if y.id in layer_ids for t in y.inputs}
    return [
        y
        for y in engine.layers
        if y.id in layer_ids or (not relation.nodes(y.id) and any(t.name in input_names for t in y.outputs))
    ]


def get_kernel_name(layer: Layer) -> str:
    """A layer's name without its place, which every layer before it moves."""
    return _PLACE.sub("", layer.name)


def find_changes(before: VariantResult, after: VariantResult) -> Changes:
    """The groups of nodes that two engines of one model run in other steps, the one with most time at stake first.

    A group is a place where nodes share their steps with others than before; places that changed alike are one row.
    Where the rest differs in kernels alone, neighbours that do are a row of their own; between precisions every layer
    does, and these are counted.
    """
    engines, model = (before.engine, after.engine), before.source
    maps = [fusion.map_nodes(f) for f in (before, after)]
    can_estimate = all(roofline.estimate_timing(f) is not None for f in (before, after))
    plain = [Side(f.name, f.engine, m) for f, m in zip((before, after), maps, strict=True)]
    comparison = (
        difference.compare_variants(before, after, gpu="target")
        if can_estimate
        else diff.compute_difference(plain[0], plain[1], model)
    )
    if not model.nodes:
        return Changes(
            tuple(
                _build_unmapped_group(g, engines) for g in comparison.groups if g.cause != "the same layers"
            )
        )
    groups = [g for g in comparison.groups if g.nodes]
    regroupings = fusion_changes.find_regroupings(model, maps, engines)
    home = {n: place for place in regroupings for n in place.nodes}
    # A group of the comparison is of one place at most: nodes of two places share no step in either engine.
    stakes: collections.defaultdict[int, list[Group]] = collections.defaultdict(list)
    remaining_groups = []
    for group in groups:
        place = next((home[n] for n in group.nodes if n in home), None)
        if place is not None:
            stakes[id(place)].append(group)
        elif count_layers(maps[0], engines[0], group.nodes) != count_layers(maps[1], engines[1], group.nodes):
            remaining_groups.append(group)
    kinds: collections.defaultdict[object, list[Regrouping]] = collections.defaultdict(list)
    for place in regroupings:
        kinds[place.compute_kind(model)].append(place)
    rows = [_build_regrouped_group(model, maps, engines, alike, stakes) for alike in kinds.values()]
    types = [_get_precisions(f) for f in (before, after)]
    if types[0] == types[1]:
        rows += _find_kernel_changes(model, maps, engines, remaining_groups)
        remaining_groups = []
    rows.sort(key=lambda c: (-abs(c.delta or 0.0), -len(c.nodes)))
    type_change = (
        " became ".join("/".join(sorted(t)) for t in types) if types[0] != types[1] and all(types) else ""
    )
    return Changes(
        tuple(rows), len(remaining_groups), sum(len(g.nodes) for g in remaining_groups), type_change
    )


def _get_precisions(facts: VariantResult) -> frozenset[str]:
    """What tells a precision: what was asked for, or the types of the layers where that is not known."""
    if not facts.recorded:
        return frozenset(map(str, facts.variant.precisions))
    return frozenset(y.precision for y in facts.engine.layers if y.precision)


def _build_regrouped_group(
    model: Model,
    maps: Sequence[Mapping],
    engines: Sequence[Engine],
    alike: Sequence[Regrouping],
    stakes: collections.abc.Mapping[int, Sequence[Group]],
) -> ChangedGroup:
    """Places that changed alike; the one with the fewest nodes stands for all."""
    example = min(alike, key=lambda p: len(p.nodes))
    node_ids = tuple(n for p in alike for n in p.nodes)
    one, two = (
        fusion_changes.describe_layers(model, m, e, example.nodes) for m, e in zip(maps, engines, strict=True)
    )
    return ChangedGroup(
        node_ids,
        example.nodes[0],
        len(alike),
        one,
        two,
        _sum_deltas([g for p in alike for g in stakes.get(id(p), ())]),
        "; ".join([fusion_changes.describe_cause(model, alike), *_list_differences(maps, engines, node_ids)]),
        example=example.nodes,
        kind=example.compute_kind(model),
    )


def _sum_deltas(groups: Iterable[Group]) -> float | None:
    """What groups take more, in milliseconds; None where that is not known, or nothing."""
    deltas = [g.delta for g in groups if g.delta is not None]
    return total if deltas and abs(total := sum(deltas)) > _NOTHING else None


def _find_kernel_changes(
    model: Model, maps: Sequence[Mapping], engines: Sequence[Engine], other: Sequence[Group]
) -> list[ChangedGroup]:
    """Groups whose kernels alone differ; neighbours are one."""
    rows = []
    steps = [
        {(k, y.id) for k in (0, 1) for y in find_serving_layers(maps[k], engines[k], g.nodes)} for g in other
    ]
    for indices in _cluster_neighbours(model, [g.nodes for g in other], steps):
        members = [other[i] for i in indices]
        nodes = tuple(n for g in members for n in g.nodes)
        old_layers, new_layers = (count_layers(m, e, nodes) for m, e in zip(maps, engines, strict=True))
        cause = "; ".join(_list_differences(maps, engines, nodes)) or "other kernels"
        rows.append(
            ChangedGroup(
                nodes,
                members[0].title,
                1,
                _format_kernels(old_layers - new_layers),
                _format_kernels(new_layers - old_layers),
                _sum_deltas(members),
                cause,
                example=nodes,
            )
        )
    return rows


def _format_kernels(steps: LayerCounts) -> str:
    """Kernels of steps, in words."""
    return ", ".join(
        sorted(f"{count} x {name}" if count > 1 else name for (_, _, _, name), count in steps.items())
    )


def _list_differences(maps: Sequence[Mapping], engines: Sequence[Engine], nodes: Sequence[str]) -> list[str]:
    """What else differs about some nodes: how many steps work for them, and in which types."""
    differences, inside = [], frozenset(nodes)
    counts = [sum(count_layers(m, e, nodes).values()) for m, e in zip(maps, engines, strict=True)]
    if counts[0] != counts[1]:
        differences.append(f"{pluralize(counts[0], 'step')} became {counts[1]}")
    types = [
        dict.fromkeys(y.precision for y in find_serving_layers(m, e, inside) if y.precision)
        for m, e in zip(maps, engines, strict=True)
    ]
    if all(types) and {*types[0]} != {*types[1]}:
        differences.append(f"{'/'.join(types[0])} became {'/'.join(types[1])}")
    return differences


def _build_unmapped_group(group: Group, engines: Sequence[Engine]) -> ChangedGroup:
    """A group of layers of two engines whose model nobody gave."""
    one, two = (
        ", ".join(get_kernel_name(engine.layer(i)) for i in half.layers)
        for half, engine in zip((group.first, group.second), engines, strict=True)
    )
    return ChangedGroup((), group.title, 1, one, two, group.delta, group.cause)


def _cluster_neighbours(
    model: Model, groups: Sequence[Sequence[str]], steps: Sequence[Collection[tuple[int, str]]]
) -> list[list[int]]:
    """Groups of which one reads what the other writes, or that a step works for in common, together."""
    home = {n: i for i, nodes in enumerate(groups) for n in nodes}
    parents = list(range(len(groups)))

    def root(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    for node, i in home.items():
        for value in model.by_id[node].outputs:
            for reader in model.consumers.get(value, ()):
                if reader.id in home:
                    parents[root(home[reader.id])] = root(i)
    first: dict[tuple[int, str], int] = {}
    for i, layer_keys in enumerate(steps):
        for step in layer_keys:
            parents[root(i)] = root(first.setdefault(step, i))
    clusters: dict[int, list[int]] = {}
    for i in range(len(groups)):
        clusters.setdefault(root(i), []).append(i)
    return list(clusters.values())
