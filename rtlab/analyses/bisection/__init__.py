"""What changed from one engine of a model to another: groups of nodes, and the fewest nodes that still show each.

In another precision every layer is another one. What the compiler decides otherwise is which nodes run together: a pair
of Q and DQ, a cast or a layout that a layer makes for a node belongs to that node, and makes no group.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from rtlab.analyses import fusion
from rtlab.analyses.why.missed_fusions import BETWEEN, find_readers
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.results import ResultTable
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.roles import SERVING

#: What places that changed alike have in common: the operators of neighbours, and whether they share a layer now; of
#: nodes that no value joins, their operators.
Kind: TypeAlias = frozenset[tuple[str, ...]]
#: By node the layers that work for it, by their id.
NodeLayers: TypeAlias = Mapping[str, Mapping[str, Layer]]
#: What is left of a layer's name without the number of its program and its place in it.
_PLACE = re.compile(r"_myl\d+_\d+$")


@dataclasses.dataclass(frozen=True)
class Regrouping:
    """Nodes that share their layers otherwise than before, in the order of the model.

    ``merged_pairs`` and ``split_pairs`` are the neighbours among them that share a layer now, and no more.
    """

    nodes: tuple[str, ...]
    merged_pairs: tuple[tuple[str, str], ...]
    split_pairs: tuple[tuple[str, str], ...]

    def compute_kind(self, model: Model) -> Kind:
        """What places that changed alike have in common: the operators that were joined and parted."""
        turns = {(model.by_id[a].op, model.by_id[b].op, "joined") for a, b in self.merged_pairs}
        turns |= {(model.by_id[a].op, model.by_id[b].op, "parted") for a, b in self.split_pairs}
        return frozenset(turns) or frozenset((model.by_id[n].op,) for n in self.nodes)


def find_regroupings(
    model: Model,
    relations: Sequence[NodeMapping],
    engines: Sequence[Engine],
    among: Collection[str] | None = None,
) -> list[Regrouping]:
    """Where nodes share their layers otherwise: each with all others that this concerns, apart from the rest.

    Nodes that one of the engines has no layer for are left out.

    Args:
        model: Whose nodes they are.
        relations: The nodes that the layers of both engines run.
        engines: The two.
        among: The nodes that are looked at; by default all that compute.
    """
    node_ids = [n.id for n in model.nodes if n.op not in BETWEEN and (among is None or n.id in among)]
    one, two = (_find_peers(r, e, frozenset(node_ids)) for r, e in zip(relations, engines, strict=True))
    common = one.keys() & two.keys()
    differences = {n: mates for n in node_ids if n in common and (mates := (one[n] ^ two[n]) & common)}
    regroupings = []
    for nodes in join_components(list(differences), differences):
        merged: list[tuple[str, str]] = []
        split: list[tuple[str, str]] = []
        for node in nodes:
            readers = dict.fromkeys(r for v in model.by_id[node].outputs for r in find_readers(model, v))
            for reader in readers:
                if reader in differences[node]:
                    (merged if reader in two[node] else split).append((node, reader))
        regroupings.append(Regrouping(tuple(nodes), tuple(merged), tuple(split)))
    return regroupings


def join_components(nodes: Sequence[str], mates: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Nodes that belong together, through others too; in the order of ``nodes``, as the nodes of each are."""
    # Importing it takes a while, and few runs compare engines.
    from scipy.cluster.hierarchy import DisjointSet

    sets = DisjointSet(nodes)
    for node in nodes:
        for mate in mates.get(node, ()):
            sets.merge(node, mate)
    components: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        components[sets[node]].append(node)
    return list(components.values())


def collect_node_layers(relation: NodeMapping, engine: Engine) -> NodeLayers:
    """The layers that work for each node, and those that bring its inputs into a layout and name no node."""
    unnamed: defaultdict[str, list[Layer]] = defaultdict(list)
    for layer in (y for y in engine.layers if not relation.nodes(y.id)):
        for tensor in layer.outputs:
            unnamed[tensor.name].append(layer)
    layers: defaultdict[str, dict[str, Layer]] = defaultdict(dict)
    for layer in engine.layers:
        feeders = (y for tensor in layer.inputs for y in unnamed[tensor.name])
        mine = {y.id: y for y in (layer, *feeders)}
        for node in relation.nodes(layer.id):
            layers[node] |= mine
    return layers


def count_kernels(layers: NodeLayers, nodes: Iterable[str]) -> Counter[tuple[str, str, str]]:
    """Kind, type and name of the layers that work for some nodes; the name without its place, which others move."""
    distinct = {i: y for n in nodes for i, y in layers.get(n, {}).items()}
    return Counter((y.kind, y.precision, _PLACE.sub("", y.name)) for y in distinct.values())


def describe_layers(model: Model, relation: NodeMapping, engine: Engine, nodes: Collection[str]) -> str:
    """The layers that run some nodes, in words: operators, and what a layer does besides for nodes around it."""
    counts: Counter[str] = Counter()
    for layer in engine.layers:
        run_nodes = [n for n in relation.run(layer.id) if n in nodes]
        if run_nodes:
            run_nodes.sort(key=lambda n: model.by_id[n].index)
            ops = dict.fromkeys(model.by_id[n].op for n in run_nodes)
            serves = dict.fromkeys(p.role for p in relation.of(layer.id) if p.role in SERVING - {"control"})
            besides = f" with {', '.join(serves)}" if serves else ""
            counts[f"{' + '.join(ops)}{besides}"] += 1
    return format_counts(counts)


def format_counts(counts: Counter[str]) -> str:
    """Layers in words, as "2 x Conv; Relu"."""
    return "; ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def describe_cause(model: Model, alike: Sequence[Regrouping]) -> str:
    """What became of neighbours, of places that changed alike: by the nodes of one, by the operators of several."""
    descriptions = []
    for title, pairs in (
        ("one layer now", [p for place in alike for p in place.merged_pairs]),
        ("apart now", [p for place in alike for p in place.split_pairs]),
    ):
        name_pairs = pairs if len(alike) == 1 else [(model.by_id[a].op, model.by_id[b].op) for a, b in pairs]
        if name_pairs:
            descriptions.append(f"{title}: {', '.join(dict.fromkeys(f'{a} and {b}' for a, b in name_pairs))}")
    if not descriptions:
        ops = dict.fromkeys(model.by_id[n].op for n in alike[0].nodes)
        descriptions.append(f"{', '.join(ops)} beside each other share their steps otherwise")
    return "; ".join(descriptions)


def _find_peers(relation: NodeMapping, engine: Engine, node_ids: Iterable[str]) -> dict[str, frozenset[str]]:
    """By node those that share a layer with it, itself included."""
    peers: dict[str, frozenset[str]] = {}
    for layer in engine.layers:
        run_nodes = frozenset(node_ids).intersection(relation.run(layer.id))
        for node in run_nodes:
            peers[node] = peers.get(node, run_nodes) | run_nodes
    return peers


@dataclasses.dataclass(frozen=True)
class ChangedGroup:
    """Nodes that two engines run in other layers, at one place or at several that changed alike.

    ``first`` and ``second`` are the layers: what they run, or their kernels where these alone differ; ``cause`` says
    what differs. ``smallest`` are the fewest nodes that both compilers still run otherwise, empty where none were
    found. ``example`` are the nodes of the place that they are looked for around; ``kind`` says who shares a layer
    with whom now, and is empty where kernels alone differ.
    """

    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    title: Annotated[str, FieldMeta("First node")]
    places: Annotated[int, FieldMeta("Places", note="Where the model changed in this way.")]
    first: Annotated[str, FieldMeta("Before", origin="{of.origins[0]}")]
    second: Annotated[str, FieldMeta("After", origin="{of.origins[1]}")]
    cause: Annotated[str, FieldMeta("What differs")]
    smallest: tuple[str, ...] = ()
    operators: Annotated[str, FieldMeta("Fewest nodes", note="By operator, of those that still show it.")] = (
        ""
    )
    example: Annotated[tuple[str, ...], UNSENT] = ()
    kind: Annotated[Kind, UNSENT] = frozenset()


@dataclasses.dataclass(frozen=True)
class Bisection:
    """What changed from one engine to another.

    ``left`` counts the groups of which the fewest nodes were not looked for within the budget. ``origins`` say whose
    layers rules predict. ``refused`` is which of the two compilers refuses the model, ``first`` or ``second``, in the
    words of ``said``; ``changes`` has one row then, the nodes that it refuses.
    """

    first: Annotated[str, FieldMeta("First")]
    second: Annotated[str, FieldMeta("Second")]
    changes: tuple[ChangedGroup, ...]
    text: Annotated[str, FieldMeta("Answer")]
    refused: Annotated[Literal["", "first", "second"], FieldMeta("Refused by")] = ""
    said: Annotated[str, FieldMeta("In the compiler's words")] = ""
    builds: Annotated[int, FieldMeta("Builds")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")] = 0.0
    left: Annotated[int, FieldMeta("Not examined", note="Groups that the budget, or a cancel, left.")] = 0
    origins: Annotated[tuple[Origin, Origin], UNSENT] = ("reported", "reported")

    def _repr_html_(self) -> str:
        table = ResultTable(ChangedGroup, self.changes, placeholder="", of=self)
        return f"<p>{html.escape(self.text)}</p>{table.html()}"

    def to_text(self) -> str:
        """The answer, and a table of what changed."""
        table = (
            ResultTable(ChangedGroup, self.changes, placeholder="", of=self).text() if self.changes else ""
        )
        cost = (
            f"{pluralize(self.builds, 'build')} in {self.seconds:.2g} s (measured here)"
            if self.builds
            else ""
        )
        return "\n\n".join(filter(None, (self.text, table, self.said, cost)))


def find_changes(before: VariantResult, after: VariantResult) -> tuple[tuple[ChangedGroup, ...], int]:
    """The groups of nodes that two engines of one model run in other layers, the largest first.

    A group is a place where nodes share their layers with others than before; places that changed alike are one row.
    Where the rest differs in kernels alone, neighbours that do are a row of their own; between precisions every layer
    does, and the second of what is returned counts their nodes.
    """
    engines, model = (before.engine, after.engine), before.source
    maps = [fusion.map_nodes(f) for f in (before, after)]
    regroupings = find_regroupings(model, maps, engines)
    kinds: defaultdict[Kind, list[Regrouping]] = defaultdict(list)
    for place in regroupings:
        kinds[place.compute_kind(model)].append(place)
    layers = [collect_node_layers(m, e) for m, e in zip(maps, engines, strict=True)]
    rows = []
    for kind, alike in kinds.items():
        # The one with the fewest nodes stands for all.
        example = min(alike, key=lambda p: len(p.nodes)).nodes
        one, two = (describe_layers(model, m, e, example) for m, e in zip(maps, engines, strict=True))
        nodes = tuple(n for p in alike for n in p.nodes)
        cause = describe_cause(model, alike)
        rows.append(ChangedGroup(nodes, example[0], len(alike), one, two, cause, example=example, kind=kind))
    regrouped = {n for p in regroupings for n in p.nodes}
    others = [
        n.id
        for n in model.nodes
        if n.id not in regrouped and count_kernels(layers[0], [n.id]) != count_kernels(layers[1], [n.id])
    ]
    if _get_precisions(before) != _get_precisions(after):
        return _sort(rows), len(others)
    rows += [_make_kernel_change(nodes, layers) for nodes in _join_neighbours(model, others, layers)]
    return _sort(rows), 0


def _sort(rows: list[ChangedGroup]) -> tuple[ChangedGroup, ...]:
    return tuple(sorted(rows, key=lambda c: -len(c.nodes)))


def _get_precisions(facts: VariantResult) -> frozenset[str]:
    """The variant's precisions, or the types of the layers of an engine from files."""
    if not facts.recorded:
        return frozenset(map(str, facts.variant.precisions))
    return frozenset(y.precision for y in facts.engine.layers if y.precision)


def _join_neighbours(model: Model, nodes: Sequence[str], layers: Sequence[NodeLayers]) -> list[list[str]]:
    """Nodes of which one reads what the other writes, together; a node that no layer runs parts none."""
    mates: defaultdict[str, list[str]] = defaultdict(list)
    chosen = frozenset(nodes)
    for node in nodes:
        pending, visited = [node], {node}
        while pending:
            for value in model.by_id[pending.pop()].outputs:
                for reader in (r.id for r in model.consumers.get(value, ()) if r.id not in visited):
                    visited.add(reader)
                    if reader in chosen:
                        mates[node].append(reader)
                        mates[reader].append(node)
                    elif not any(side.get(reader) for side in layers):
                        pending.append(reader)
    return join_components(nodes, mates)


def _make_kernel_change(nodes: Sequence[str], layers: Sequence[NodeLayers]) -> ChangedGroup:
    one, two = (count_kernels(side, nodes) for side in layers)
    old, new = (
        format_counts(Counter(name for _, _, name in counts.elements())) for counts in (one - two, two - one)
    )
    types = ["/".join(sorted({t for _, t, _ in counts if t})) for counts in (one, two)]
    cause = f"{types[0]} became {types[1]}" if types[0] != types[1] and all(types) else "other kernels"
    return ChangedGroup(tuple(nodes), nodes[0], 1, old, new, cause, example=tuple(nodes))
