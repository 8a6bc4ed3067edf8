"""Two engines compared by groups of ONNX nodes, although fusions and layer names differ.

Nodes and the layers of both engines are one graph; each of its connected components is a group: the least set of nodes
that both engines run in layers of their own. A layer that only quantizes for a node does not join that node. What a
group costs in one engine can then be set against what it costs in the other, whatever was fused in which. Layers of
which no node is known are set side by side by what they do and what stands around them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from rtlab.analyses import fusion, roofline, timing
from rtlab.analyses.roofline.estimate import pick_default_gpu
from rtlab.core.collector import pause_collector
from rtlab.core.engine import NOWHERE, Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.documents.numbers import format_number
from rtlab.errors import VariantError
from rtlab.relation import dataflow
from rtlab.relation.align import align
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.names import is_trt_name, operator, words
from rtlab.relation.roles import SERVING
from rtlab.relation.similarity import PRODUCTS, Signature, compute_signatures, find_shared_words

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
    def extra_layers(self) -> int:
        """How many layers more the second engine has for it."""
        return len(self.second.layers) - len(self.first.layers)

    @property
    def weight(self) -> float:
        """How much the engines differ: in milliseconds, or in layers where times are not known."""
        return abs(self.extra_layers if self.delta is None else self.delta)

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

    def largest(self, count: int | None = None) -> tuple[Group, ...]:
        """The groups that differ most: by time, or by layers where times are not known."""
        return tuple(sorted(self.groups, key=lambda g: g.weight, reverse=True)[:count])


@pause_collector()
def compute_difference(first: Side, second: Side, model: Model) -> Difference:
    """Compare two engines of one model by the nodes that their layers run.

    Without a model, names of nodes and weights are taken from the names of the layers, as far as both engines mean the
    same by them. What then stands on one side only is aligned by kind, kernel, shapes and neighbours, as after an
    export that numbers its nodes anew.
    """
    # Importing it takes a while, and few runs compare variants.
    from scipy.cluster.hierarchy import DisjointSet

    signs = compute_signatures((first.engine, second.engine))
    halves = (_SideNodes(first, model, signs[0]), _SideNodes(second, model, signs[1]))
    labels: Sequence[Mapping[str, Sequence[str]]]
    if model.nodes:
        labels = [{i: half.get_home_nodes(i) for i in half.computing} for half in halves]
    else:
        words_by_layer = [{i: half.words[i] for i in half.computing} for half in halves]
        labels = find_shared_words((words_by_layer[0], words_by_layer[1]), signs)
    # A layer without names is a part of its own; in engines that share none there are thousands.
    components = DisjointSet((n, i) for n, mine in enumerate(labels) for i, names in mine.items() if names)
    for n, mine in enumerate(labels):
        for layer, names in mine.items():
            for name in names:
                components.add((2, name))
                components.merge((n, layer), (2, name))
    parts = [_Part.from_vertices(component) for component in components.subsets()]
    parts += [_Part(((i,), ()), ()) for i, names in labels[0].items() if not names]
    parts += [_Part(((), (i,)), ()) for i, names in labels[1].items() if not names]
    # Where two stand at the same place, that of the first engine comes first.
    parts.sort(key=lambda p: not p.layers[0])
    order = {n.id: n.index for n in model.nodes}
    groups = [_build_group(p, halves, order) for p in _align_parts(parts, halves, model, signs)]
    groups.sort(key=lambda g: _compute_position(g, halves))
    if any(half.moves for half in halves):
        one, two = (half.build_half(half.moves) for half in halves)
        groups.append(Group("Data movement and bookkeeping", (), one, two, "moves"))
    return Difference(first, second, tuple(groups), _compute_overlap(groups, signs))


#: What the layers of both engines do, by their ids.
_Signs: TypeAlias = tuple[Mapping[str, Signature], Mapping[str, Signature]]


def _compute_overlap(groups: Sequence[Group], signs: _Signs) -> Overlap:
    paired, of, comparable = [], [], []
    for number, mine in enumerate(signs):
        products = {i for i, s in mine.items() if s.kind in PRODUCTS}
        paired_groups = [g for g in groups if g.first.layers and g.second.layers]
        by_kind, known = (
            {
                i
                for g in paired_groups
                if (g.basis == "kinds") == guess
                for i in (g.first, g.second)[number].layers
            }
            for guess in (True, False)
        )
        paired.append(len(products & known))
        of.append(len(products - by_kind))
        comparable.append(all(s.kind != "region" for s in signs[1 - number].values()))
    return Overlap((paired[0], paired[1]), (of[0], of[1]), (comparable[0], comparable[1]))


class _SideNodes:
    """One side with the nodes of each of its layers: those of the mapping, or the words of its name."""

    def __init__(self, side: Side, model: Model, signs: Mapping[str, Signature]) -> None:
        self.side, layers = side, side.engine.layers
        self.position_by_id = {y.id: i for i, y in enumerate(layers)}
        self.mapping = side.mapping if model.nodes else None
        # Names of nodes and of weights in labels or names of layers, TensorRT's own words apart.
        self.words = {
            y.id: y.origins or tuple(dict.fromkeys(w for w in words(y.name) if not is_trt_name(w)))
            for y in (() if self.mapping else layers)
        }
        #: The layers that compute a node.
        self.home_layers: defaultdict[str, set[str]] = defaultdict(set)
        for pair in self.mapping.pairs if self.mapping else ():
            if pair.role not in SERVING:
                self.home_layers[pair.node].add(pair.layer)
        idle = dataflow.MOVES | {"control"}
        idle_layers = (y.id for y in layers if signs[y.id].kind in idle)
        self.moves = [i for i in idle_layers if not (model.nodes and self.get_nodes(i))]
        moves = set(self.moves)
        self.computing = [y.id for y in layers if y.id not in moves]
        self.empty_half = Half((), 0 if side.times else None, (), ())

    def get_nodes(self, layer: str) -> tuple[str, ...]:
        """Of one layer."""
        return tuple(self.iterate_nodes(layer))

    def iterate_nodes(self, layer: str) -> Iterator[str]:
        """The same one by one: most who ask want the first."""
        if self.mapping:
            return iter(self.mapping.nodes(layer))
        origins = self.side.engine.layer(layer).origins
        return iter(origins) if origins else (w for w in self.words[layer] if operator(w))

    def get_home_nodes(self, layer: str) -> tuple[str, ...]:
        """The nodes that a layer computes, or a part of them; of one that computes none, the first that it serves.

        The layer before often quantizes for the next node; that must not make one group of the two.
        """
        nodes = self.get_nodes(layer)
        return tuple(n for n in nodes if layer in self.home_layers.get(n, (layer,))) or nodes[:1]

    def build_half(self, ids: Sequence[str]) -> Half:
        """What the engine does with some of its layers: where it was timed, no layers take no time."""
        if not ids:
            return self.empty_half
        layers = [self.side.engine.layer(i) for i in ids]
        times = [self.side.times[i] for i in ids if i in self.side.times]
        return Half(
            tuple(ids),
            sum(times) if times else None,
            tuple(dict.fromkeys(y.precision for y in layers if y.precision)),
            tuple(dict.fromkeys(y.tactic for y in layers if y.tactic)),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A component: ids of layers of both sides, and nodes."""

    layers: tuple[tuple[str, ...], tuple[str, ...]]
    nodes: tuple[str, ...]
    basis: Basis = "nodes"

    @classmethod
    def from_vertices(cls, part: Iterable[_Vertex]) -> _Part:
        vertices = sorted(part)
        first, second, nodes = (tuple(name for n, name in vertices if n == number) for number in range(3))
        return cls((first, second), nodes)


def _align_parts(
    parts: Sequence[_Part], halves: tuple[_SideNodes, _SideNodes], model: Model, signs: _Signs
) -> list[_Part]:
    """Parts of both sides, and those of one side alone joined with their like in the other."""
    basis: Basis = "nodes" if model.nodes else "names"
    paired_parts = [dataclasses.replace(p, basis=basis) for p in parts if all(p.layers)]
    lone = [p for p in parts if not all(p.layers)]
    # With a model, layers of different nodes are different layers, whatever they look like: one of a pair must have no
    # node. What several layers run stays together.
    free = [p for p in lone if not model.nodes or sum(map(len, p.layers)) == 1]
    if model.nodes and all(p.nodes for p in free):
        return [*paired_parts, *lone]
    nodes = [{i: p.nodes for p in (*paired_parts, *free) for i in p.layers[n]} for n in (0, 1)]
    matches = align(
        (halves[0].side.engine, halves[1].side.engine),
        signs,
        (nodes[0].keys(), nodes[1].keys()),
        [p.layers for p in paired_parts],
        may=(lambda i, j: not (nodes[0][i] and nodes[1][j])) if model.nodes else None,
    )
    aligned_parts = [
        _Part(
            (m.first, m.second),
            tuple({w for n, ids in enumerate((m.first, m.second)) for i in ids for w in nodes[n][i]}),
            basis if m.reason == "known" else m.reason,
        )
        for m in matches
    ]
    aligned_ids = {(n, i) for p in aligned_parts for n in (0, 1) for i in p.layers[n]}
    remaining_parts = (p for p in lone if aligned_ids.isdisjoint((n, i) for n in (0, 1) for i in p.layers[n]))
    return [*aligned_parts, *remaining_parts]


def _build_group(part: _Part, halves: tuple[_SideNodes, _SideNodes], order: Mapping[str, int]) -> Group:
    sides = [
        (half, sorted(names, key=half.position_by_id.__getitem__))
        for names, half in zip(part.layers, halves, strict=True)
    ]
    nodes = sorted(part.nodes, key=lambda n: (order.get(n, len(order)), n)) if order else []
    layers = [half.side.engine.layer(i) for half, ids in sides for i in ids]
    basis: Basis = part.basis
    if not all(part.layers):
        basis = "converts" if all(dataflow.work(y) == "quantization" for y in layers) else "alone"
    # Without a model, the first node in the layers' names; else the name of the first layer.
    names = (n for half, ids in sides for i in ids for n in half.iterate_nodes(i))
    title = nodes[0] if nodes else layers[0].name if order else next(names, layers[0].name)
    one, two = (half.build_half(ids) for half, ids in sides)
    return Group(title, tuple(nodes), one, two, basis)


def _compute_position(group: Group, halves: tuple[_SideNodes, _SideNodes]) -> tuple[float, float]:
    """Where a group stands in the execution of both engines, as parts of the whole."""
    places = [
        min(half.position_by_id[i] for i in side.layers) / len(half.position_by_id)
        for side, half in zip((group.first, group.second), halves, strict=True)
        if side.layers
    ]
    return min(places), max(places)


def build_side(facts: VariantResult, gpu: str | Peaks | None = None) -> Side:
    """The variant in a comparison: the engine that was timed, else the one that was built.

    With a GPU it is the engine that was built, with times that are estimated for it.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    if gpu is not None:
        estimate = roofline.compute_roofline(facts, gpu)
        layer_times = estimate.milliseconds(facts.engine) if estimate.coverage.enough else {}
        withheld = "" if estimate.coverage.enough else estimate.withheld
        return Side(
            facts.name, facts.engine, fusion.map_nodes(facts), layer_times, None, "estimated", withheld
        )
    times = timing.compute_timing(facts)
    if facts.measured is None or times is None:
        return Side(facts.name, facts.engine, fusion.map_nodes(facts))
    layer_times = {t.layer: t.median for t in times.layers}
    return Side(facts.name, facts.measured, fusion.map_measured_engine(facts), layer_times, times.total)


def compare_variants(
    before: VariantResult, after: VariantResult, *, gpu: str | Peaks | None = None
) -> Difference:
    """Where the time went from one variant to another, by groups of ONNX nodes.

    Args:
        before: The variant before.
        after: The variant after.
        gpu: In place of what was measured, times of both engines are estimated for this GPU; ``"target"`` takes for
            each one of the GPUs that it was built for.

    Raises:
        VariantError: the GPU is not known, or the engines are of different models.
        ModelError: a dimension has no size.
    """
    sides = [build_side(f, pick_default_gpu(f.engine) if gpu == "target" else gpu) for f in (before, after)]
    difference = compute_difference(sides[0], sides[1], before.source)
    if not difference.overlap.is_enough:
        raise VariantError(
            f'Cannot compare "{before.name}" with "{after.name}": of the layers that multiply, only '
            f"{difference.overlap} have one of the same kernel and shapes in the other engine, so they are of "
            "different models. Compare engines of one model, or give its ONNX file to both with model=, or --model "
            "on the command line."
        )
    return difference


def explain_rest(difference: Difference) -> str:
    """Why layers do not explain a difference, and what to do; empty where they do."""
    if not difference.unexplained:
        return ""
    first, second = difference.first, difference.second
    sums = " and ".join(
        f"{s.layer_sum / s.latency:.2g}" for s in (first, second) if s.layer_sum and s.latency
    )
    return (
        f"The layers cannot show where {format_number(difference.delta, 'ms', signed=True)} come from: "
        f"{format_number(difference.rest, 'ms', signed=True)} lie outside of them. Timed one by one, with the cost "
        f"of timing each, they sum to {sums} times the whole inferences. Choose estimated times, or build both for a "
        "larger batch or input."
    )
