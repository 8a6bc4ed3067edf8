"""Two engines compared by groups of ONNX nodes, although fusions and layer names differ.

Nodes and the layers of both engines are one graph; each of its connected components is a group: the least set of nodes
that both engines run in layers of their own. A layer that only quantizes for a node does not join that node. What a
group costs in one engine can then be set against what it costs in the other, whatever was fused in which. Layers of
which no node is known are set side by side by what they do and what stands around them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from rtlab.core.engine import NOWHERE, Engine
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.relation import dataflow
from rtlab.relation.align import align
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.names import is_trt_name, operator, words
from rtlab.relation.roles import SERVING
from rtlab.relation.shared_words import find_shared_words
from rtlab.relation.similarity import PRODUCTS, Signature, compute_signatures

#: How the layers of both sides came into one group, as ``BASES`` says in words.
Basis = Literal[
    "nodes", "names", "shapes", "neighbours", "fused", "order", "kinds", "converts", "moves", "alone"
]

#: Why the layers of a group stand side by side.
BASES: Mapping[Basis, str] = {
    "nodes": "They run the same ONNX nodes.",
    "names": "Their layers' names contain the same nodes.",
    "shapes": "No other layers of either engine have this kernel and these shapes.",
    "neighbours": "They have one kernel and the same shapes, and stand next to the same layers.",
    "fused": "What one engine runs in parts is one layer of the other, by the shapes of its ends or by what is around.",
    "order": "They stand at the same place among layers of this kind, kernel and shape (inferred).",
    "kinds": "They stand at the same place among layers of this kind; the files contain no shapes (inferred).",
    "converts": "Only one of the engines has a layer of its own here that quantizes.",
    "moves": "Layers that only move or retype data, or order streams.",
    "alone": "Only one of the engines has layers for it.",
}

#: What tells the same place, and not the same work: a guess.
INFERRED: frozenset[Basis] = frozenset({"order", "kinds"})

#: The part of a latency below which a difference is that of rounding.
_NOTHING = 1e-6
#: The part of the layers that multiply below which two engines of one name may still be of two models.
_ALIKE = 0.9
#: The least part by which two engines are of one model.
_SAME_MODEL = 0.5

#: A layer of the first or the second engine (0 or 1) by id, or a node (2).
_Vertex: TypeAlias = tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Side:
    """An engine on one side of a comparison.

    ``mapping`` is that of the source's nodes, None without a model; ``times`` are milliseconds by layer id, empty where
    nothing was measured. ``latency`` is the latency of whole inferences in milliseconds, None where it is not known.
    ``no_estimate_reason`` says why there is no estimate where one was asked for.
    """

    name: str
    engine: Engine
    mapping: NodeMapping | None = None
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    latency: float | None = None
    origin: Origin = "measured"
    no_estimate_reason: str = ""

    @property
    def layer_sum(self) -> float | None:
        """The sum of the layers' times; None where none is known."""
        return sum(self.times.values()) if self.times else None


@dataclasses.dataclass(frozen=True, slots=True)
class Half:
    """What one engine does with a group: its layers in order of execution, and their time in milliseconds."""

    layers: tuple[str, ...]
    time: float | None
    precisions: tuple[str, ...]
    tactics: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Nodes of the source, and the layers that run them in both engines."""

    title: str
    nodes: tuple[str, ...]
    first: Half
    second: Half
    basis: Basis

    @property
    def delta(self) -> float | None:
        """Milliseconds that the second engine takes more than the first; None where one has no times."""
        if self.first.time is None or self.second.time is None:
            return None
        return self.second.time - self.first.time

    @property
    def cause(self) -> str:
        """What differs between the two, as far as their layers tell."""
        first, second = self.first, self.second
        if not first.layers or not second.layers:
            return f"only in the {'second' if not first.layers else 'first'} engine"
        changes = []
        if first.precisions != second.precisions and first.precisions and second.precisions:
            changes.append(f"{'/'.join(first.precisions)} became {'/'.join(second.precisions)}")
        if len(first.layers) != len(second.layers):
            changes.append(f"{pluralize(len(first.layers), 'layer')} became {len(second.layers)}")
        elif first.tactics != second.tactics and first.tactics and second.tactics:
            changes.append("another tactic")
        return ", ".join(changes) or "the same layers"


@dataclasses.dataclass(frozen=True)
class Overlap:
    """How many of the layers that multiply stand beside some of the other engine: of the first, and of the second.

    ``total_counts`` are all that can be judged: not those that stand side by side because nothing of them is told but
    their kind. ``comparable`` says of each engine whether its layers can be missed in the other, which a region of
    untold steps in that one forbids.
    """

    paired_counts: tuple[int, int]
    total_counts: tuple[int, int]
    comparable: tuple[bool, bool] = (True, True)

    @property
    def share(self) -> float | None:
        """The lower of both parts, from 0 to 1; None where neither can be judged."""
        counts = zip(self.paired_counts, self.total_counts, self.comparable, strict=True)
        return min((p / n for p, n, is_comparable in counts if n and is_comparable), default=None)

    @property
    def is_enough(self) -> bool:
        """Whether the two may be engines of one model."""
        return self.share is None or self.share >= _SAME_MODEL

    def __str__(self) -> str:
        counts = zip(self.paired_counts, self.total_counts, strict=True)
        return " and ".join(f"{p} of {n}" for p, n in counts)


@dataclasses.dataclass(frozen=True, eq=False)
class Difference:
    """All groups, in order of execution, and what is left.

    ``overlap`` tells how much of each engine the other has too. ``rest`` is what the whole inferences differ by beyond
    their layers, in milliseconds: with it the differences of the groups add up to ``delta``.
    """

    first: Side
    second: Side
    groups: tuple[Group, ...]
    overlap: Overlap

    def __repr__(self) -> str:
        return f"<Difference {self.first.name} to {self.second.name}: {len(self.groups)} groups>"

    @property
    def origin(self) -> Origin:
        """Of every time and difference: an estimate on one side makes it an estimate."""
        return self.second.origin if self.first.origin == self.second.origin else "estimated"

    @property
    def has_layer_times(self) -> bool:
        """Whether both engines have times of layers."""
        return bool(self.first.times and self.second.times)

    @property
    def totals(self) -> tuple[float, float] | None:
        """Latency of both in milliseconds: of whole inferences where both are known, else the sums of the layers."""
        if self.first.latency is not None and self.second.latency is not None:
            return self.first.latency, self.second.latency
        first, second = self.first.layer_sum, self.second.layer_sum
        return None if first is None or second is None else (first, second)

    @property
    def delta(self) -> float | None:
        """Milliseconds that the second takes more than the first."""
        return None if self.totals is None else self.totals[1] - self.totals[0]

    @property
    def rest(self) -> float | None:
        """The part of ``delta`` that no layer accounts for; None where layers or latencies are not known."""
        if self.delta is None or not self.has_layer_times:
            return None
        return self.delta - sum(g.delta or 0.0 for g in self.groups)

    @property
    def unexplained(self) -> bool:
        """Whether more of the difference lies outside the layers than there is difference: the layers explain nothing.

        In a small model the cost of timing each layer exceeds the layer. The engine with more layers then seems to
        lose its time in them, though it is the measurement that takes it.
        """
        if self.rest is None or self.delta is None or self.totals is None:
            return False
        return abs(self.rest) > max(abs(self.delta), _NOTHING * max(self.totals))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the difference is not that of the engines alone: other processors, batches, perhaps models."""
        sides, messages = (self.first, self.second), []
        places = [s.engine.place for s in sides]
        timed = self.totals is not None
        if timed and self.origin == "measured" and places[0] != places[1] and NOWHERE not in places:
            messages.append(
                f"The times were measured on two processors, {places[0]} and {places[1]}: they tell which engine is "
                "faster there, not what the compiler changed."
            )
        batches = [next((t.shape[0] for t in s.engine.inputs if t.shape), 0) for s in sides]
        if timed and min(batches) > 0 and batches[0] != batches[1]:
            messages.append(
                f"One inference of the first engine is a batch of {batches[0]}, one of the second a batch of "
                f"{batches[1]}: build both for the same."
            )
        share = self.overlap.share
        if share is None and any(g.basis == "kinds" for g in self.groups):
            messages.append(
                "Nothing shows whether both engines are of one model: they share no names, and files contain no "
                "shapes. Build with detailed verbosity (--profilingVerbosity=detailed)."
            )
        elif share is not None and share < _ALIKE:
            messages.append(
                f"Of the layers that multiply, {self.overlap} stand beside some of the other engine: the two models "
                "may differ."
            )
        return tuple(messages)

    def largest(self, count: int = 5) -> tuple[Group, ...]:
        """The groups whose times differ most."""
        timed_groups = [g for g in self.groups if g.delta is not None]
        return tuple(sorted(timed_groups, key=lambda g: -abs(g.delta or 0.0))[:count])


def compute_difference(first: Side, second: Side, model: Model) -> Difference:
    """Compare two engines of one model by the nodes that their layers run.

    Without a model, names of nodes and weights are taken from the names of the layers, as far as both engines mean the
    same by them. What then stands on one side only is aligned by kind, kernel, shapes and neighbours, as after an
    export that numbers its nodes anew.
    """
    halves = (_SideNodes(first, model), _SideNodes(second, model))
    signs = compute_signatures((first.engine, second.engine))
    layer_labels: Sequence[Mapping[str, Sequence[str]]]
    if model.nodes:
        layer_labels = [{y.id: half.get_home_nodes(y.id) for y in half.computing} for half in halves]
    else:
        words_by_layer = [{y.id: half.words[y.id] for y in half.computing} for half in halves]
        layer_labels = find_shared_words((words_by_layer[0], words_by_layer[1]), signs)
    edges = [
        ((n, layer), (2, word))
        for n, mine in enumerate(layer_labels)
        for layer, words in mine.items()
        for word in words
    ]
    alone = ((number, layer.id) for number, half in enumerate(halves) for layer in half.computing)
    parts = _align_parts(
        [_Part.from_vertices(part) for part in _find_components(edges, alone)], halves, model, signs
    )
    order = {n.id: n.index for n in model.nodes}
    groups = [_build_group(part, halves, order) for part in parts]
    groups.sort(key=lambda g: _compute_position(g, halves))
    if any(half.moves for half in halves):
        one, two = (half.build_half([y.id for y in half.moves]) for half in halves)
        groups.append(Group("Data movement and bookkeeping", (), one, two, "moves"))
    return Difference(first, second, tuple(groups), _compute_overlap(groups, signs))


#: What the layers of both engines do, by their ids.
_Signs: TypeAlias = tuple[Mapping[str, Signature], Mapping[str, Signature]]


def _compute_overlap(groups: Sequence[Group], signs: _Signs) -> Overlap:
    paired, of, comparable = [], [], []
    for number, mine in enumerate(signs):
        products = {i for i, s in mine.items() if s.kind in PRODUCTS}
        paired_layers: dict[bool, set[str]] = {True: set(), False: set()}
        for g in groups:
            if g.first.layers and g.second.layers:
                paired_layers[g.basis == "kinds"].update((g.first, g.second)[number].layers)
        paired.append(len(products & paired_layers[False]))
        of.append(len(products - paired_layers[True]))
        comparable.append(all(s.kind != "region" for s in signs[1 - number].values()))
    return Overlap((paired[0], paired[1]), (of[0], of[1]), (comparable[0], comparable[1]))


def _find_components(
    edges: Iterable[tuple[_Vertex, _Vertex]], vertices: Iterable[_Vertex]
) -> Iterable[Collection[_Vertex]]:
    """The connected components of a graph of edges and of vertices that may have none."""
    # Importing it takes a while, and few runs compare variants.
    from scipy.cluster.hierarchy import DisjointSet

    edges = list(edges)
    components = DisjointSet(dict.fromkeys([*itertools.chain.from_iterable(edges), *vertices]))
    for one, two in edges:
        components.merge(one, two)
    subsets: list[set[_Vertex]] = components.subsets()
    return subsets


class _SideNodes:
    """One side with the nodes of each of its layers: those of the mapping, or the words of its name."""

    def __init__(self, side: Side, model: Model) -> None:
        self.side = side
        self.position_by_id = {y.id: i for i, y in enumerate(side.engine.layers)}
        self.mapping = side.mapping if model.nodes else None
        # Names of nodes and of weights in labels or names of layers, TensorRT's own words apart.
        self.words = {
            y.id: y.origins or tuple(dict.fromkeys(w for w in words(y.name) if not is_trt_name(w)))
            for y in (() if self.mapping else side.engine.layers)
        }
        idle = dataflow.MOVES | {"control"}
        self.moves = [
            y
            for y in side.engine.layers
            if dataflow.work(y) in idle and not (model.nodes and self.get_nodes(y.id))
        ]
        moves = {y.id for y in self.moves}
        self.computing = [y for y in side.engine.layers if y.id not in moves]

    def get_nodes(self, layer: str) -> tuple[str, ...]:
        """Of one layer."""
        if self.mapping:
            return self.mapping.nodes(layer)
        return self.side.engine.layer(layer).origins or tuple([w for w in self.words[layer] if operator(w)])

    def get_home_nodes(self, layer: str) -> tuple[str, ...]:
        """The nodes that a layer computes, or a part of them; of one that computes none, the first that it serves.

        The layer before often quantizes for the next node; that must not make one group of the two.
        """
        nodes = self.get_nodes(layer)
        return tuple(n for n in nodes if layer in self._home_layers.get(n, (layer,))) or nodes[:1]

    @functools.cached_property
    def _home_layers(self) -> Mapping[str, frozenset[str]]:
        """The layers that compute a node, by the nodes that a layer computes."""
        layers_by_node: defaultdict[str, set[str]] = defaultdict(set)
        for pair in self.side.mapping.pairs if self.side.mapping else ():
            if pair.role not in SERVING:
                layers_by_node[pair.node].add(pair.layer)
        return {node: frozenset(layers) for node, layers in layers_by_node.items()}

    def build_half(self, ids: Sequence[str]) -> Half:
        """What the engine does with some of its layers: where it was timed, no layers take no time."""
        layers = [self.side.engine.layer(i) for i in ids]
        times = [self.side.times[i] for i in ids if i in self.side.times]
        return Half(
            tuple(ids),
            sum(times) if times or (self.side.times and not ids) else None,
            tuple(dict.fromkeys(y.precision for y in layers if y.precision)),
            tuple(dict.fromkeys(y.tactic for y in layers if y.tactic)),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A component: ids of layers of both sides, and nodes."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    nodes: tuple[str, ...]
    basis: Basis = "nodes"

    @classmethod
    def from_vertices(cls, part: Iterable[_Vertex]) -> _Part:
        vertices = sorted(part)
        first, second, nodes = (tuple(name for n, name in vertices if n == number) for number in range(3))
        return cls(first, second, nodes)


def _align_parts(
    parts: Sequence[_Part], halves: tuple[_SideNodes, _SideNodes], model: Model, signs: _Signs
) -> list[_Part]:
    """What one side alone tells of, joined with its like in the other."""
    basis: Basis = "nodes" if model.nodes else "names"
    paired_parts = [dataclasses.replace(p, basis=basis) for p in parts if p.first and p.second]
    lone = [p for p in parts if not (p.first and p.second)]
    # With a model, layers of different nodes are different layers, whatever they look like: one of a pair has to tell
    # no node. What several layers run stays together.
    free = [p for p in lone if not model.nodes or len(p.first + p.second) == 1]
    nodes = [{i: p.nodes for p in (*paired_parts, *free) for i in (p.first, p.second)[n]} for n in (0, 1)]
    silent = [any(ids and not p.nodes for p in free for ids in [(p.first, p.second)[n]]) for n in (0, 1)]
    if model.nodes and not any(silent):
        return [*paired_parts, *lone]
    matches = align(
        (halves[0].side.engine, halves[1].side.engine),
        signs,
        (nodes[0].keys(), nodes[1].keys()),
        [(p.first, p.second) for p in paired_parts],
        may=(lambda i, j: not (nodes[0][i] and nodes[1][j])) if model.nodes else None,
    )
    aligned_parts = [
        _Part(
            m.first,
            m.second,
            tuple({w for n, ids in enumerate((m.first, m.second)) for i in ids for w in nodes[n][i]}),
            basis if m.reason == "known" else m.reason,
        )
        for m in matches
    ]
    aligned_ids = [{i for p in aligned_parts for i in (p.first, p.second)[n]} for n in (0, 1)]
    remaining_parts = (
        p for p in lone if aligned_ids[0].isdisjoint(p.first) and aligned_ids[1].isdisjoint(p.second)
    )
    return [*aligned_parts, *remaining_parts]


def _build_group(part: _Part, halves: tuple[_SideNodes, _SideNodes], order: Mapping[str, int]) -> Group:
    ids = tuple(
        sorted(names, key=half.position_by_id.__getitem__)
        for names, half in zip((part.first, part.second), halves, strict=True)
    )
    nodes = sorted(part.nodes, key=lambda n: (order.get(n, len(order)), n)) if order else []
    basis: Basis = part.basis
    if not (ids[0] and ids[1]):
        layers = (halves[n].side.engine.layer(i) for n, mine in enumerate(ids) for i in mine)
        basis = "converts" if all(dataflow.work(y) == "quantization" for y in layers) else "alone"
    # Without a model, the first node in the layers' names; else the name of the first layer.
    names = (n for mine, half in zip(ids, halves, strict=True) for i in mine for n in half.get_nodes(i))
    first_layer = halves[0 if ids[0] else 1].side.engine.layer((ids[0] or ids[1])[0])
    title = nodes[0] if nodes else next(names if not order else iter(()), first_layer.name)
    return Group(title, tuple(nodes), halves[0].build_half(ids[0]), halves[1].build_half(ids[1]), basis)


def _compute_position(group: Group, halves: tuple[_SideNodes, _SideNodes]) -> tuple[float, float]:
    """Where a group stands in the execution of both engines, as parts of the whole."""
    places = []
    for side, half in zip((group.first, group.second), halves, strict=True):
        if side.layers:
            places.append(min(half.position_by_id[i] for i in side.layers) / max(1, len(half.position_by_id)))
    return min(places), max(places)
