"""The relation between nodes of a model and layers of an engine, node by node and layer by layer."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingType
from typing import Annotated, Literal, NamedTuple

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.schema import UNSENT
from rtlab.relation.dataflow import moves
from rtlab.relation.flow import Reason
from rtlab.relation.roles import SERVING, Role

Evidence = Literal["declared", "inferred", "merged", "predicted"]


class Pair(NamedTuple):
    """A node and a layer that belong together. ``note`` says in words how we know, ``role`` what the layer does for it.

    A layer whose role is "work" runs the node, alone or with other layers; one of another role serves it.
    """

    node: str
    layer: str
    evidence: Evidence
    note: Annotated[str, UNSENT] = ""
    role: Role = "work"


class Missing(NamedTuple):
    """A node without a layer, the reason, and the sentence that explains it."""

    node: str
    reason: Reason
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Mapping:
    """Nodes of a source model and layers of an engine, many to many; each node is in ``pairs`` or in ``missing``."""

    pairs: tuple[Pair, ...]
    missing: tuple[Missing, ...]

    def __repr__(self) -> str:
        nodes, unknown = len(self._by_node), sum(m.reason == "unknown" for m in self.missing)
        return f"<Mapping {nodes} nodes in layers, {len(self.missing)} without, {unknown} unknown>"

    @functools.cached_property
    def _by_node(self) -> MappingType[str, tuple[Pair, ...]]:
        return _group(self.pairs, lambda p: p.node)

    @functools.cached_property
    def _by_layer(self) -> MappingType[str, tuple[Pair, ...]]:
        return _group(self.pairs, lambda p: p.layer)

    @functools.cached_property
    def _by_missing(self) -> MappingType[str, Missing]:
        return {m.node: m for m in self.missing}

    def layers(self, node: str) -> tuple[str, ...]:
        """Ids of the layers that a node became, in execution order; empty when it has none."""
        return tuple(p.layer for p in self._by_node.get(node, ()))

    @functools.cached_property
    def _roles(self) -> MappingType[str, frozenset[Role]]:
        return {node: frozenset(p.role for p in pairs) for node, pairs in self._by_node.items()}

    def roles(self, node: str) -> frozenset[Role]:
        """What the layers of a node do for it."""
        return self._roles.get(node, frozenset())

    def nodes(self, layer: str) -> tuple[str, ...]:
        """Ids of the nodes that a layer runs, in the compiler's order."""
        return tuple(p.node for p in self._by_layer.get(layer, ()))

    def of(self, layer: str) -> tuple[Pair, ...]:
        """The pairs of a layer, in the compiler's order."""
        return self._by_layer.get(layer, ())

    def run(self, layer: str) -> tuple[str, ...]:
        """Ids of the nodes whose work a layer does, in the compiler's order: what it serves with a Q is left out."""
        return tuple(p.node for p in self._by_layer.get(layer, ()) if p.role == "work")

    def why(self, node: str) -> Missing | None:
        """Why a node has no layer, or None when it has one."""
        return self._by_missing.get(node)


def _group(pairs: Iterable[Pair], key: Callable[[Pair], str]) -> dict[str, tuple[Pair, ...]]:
    return {k: tuple(members) for k, members in itertools.groupby(sorted(pairs, key=key), key)}


def map_to_places(mapping: Mapping, model: Model) -> Mapping:
    """A mapping of nodes as one of the places where they run (``Model.places``).

    A node of a function has one pair per call: with the layers of that call where they are known, else with all layers
    of the node.
    """
    if len(model.places) == len(model.nodes) and all(i in model.places for i in model.by_id):
        return mapping
    homes = {node: _NodePlaces(node, mapping, model) for node in mapping._by_node}  # noqa: SLF001 - of this module
    pairs = [pair._replace(node=place) for pair in mapping.pairs for place in homes[pair.node].of(pair.layer)]
    missing = [m._replace(node=id_) for m in mapping.missing for id_ in model.where(m.node)]
    return Mapping(tuple(pairs), tuple(missing))


class _NodePlaces:
    """The places where a node runs, by its layers."""

    def __init__(self, node: str, mapping: Mapping, model: Model) -> None:
        mine = set(mapping.layers(node))
        #: Places, numbered in their order: those that any layer may run, and those of one layer.
        self._any: list[tuple[int, str]] = []
        self._by_layer: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for place in enumerate(model.where(node)):
            call = _find_call(place[1], mapping, model) if place[1] != node else None
            call_layers = mine.intersection(mapping.layers(model.places[call].node.id)) if call else ()
            for layer in call_layers:
                self._by_layer[layer].append(place)
            if not call_layers:
                self._any.append(place)

    def of(self, layer: str) -> list[str]:
        """Places that a layer runs, in their order."""
        return [place for _, place in heapq.merge(self._any, self._by_layer.get(layer, ()))]


def _find_call(place: str, mapping: Mapping, model: Model) -> str | None:
    """The nearest owner of a place that runs in this place alone and has layers."""
    owner = model.owners[place]
    while owner:
        node = model.places[owner].node.id
        if node == owner and mapping.layers(node):
            return owner
        owner = model.owners[owner]
    return None


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Counts of nodes and layers that a mapping explains.

    ``nodes`` of ``all_nodes`` are in a layer, and ``explained`` more have a reason for being in none. ``layers`` of
    ``all_layers`` compute a node, and ``moves`` more only move or quantize data. ``declared`` of ``pairs`` are the
    compiler's own word; the others are inferred.
    """

    nodes: int
    all_nodes: int
    explained: int
    layers: int
    all_layers: int
    moves: int
    declared: int
    pairs: int


def coverage(mapping: Mapping, model: Model, engine: Engine) -> Coverage:
    """Count what a mapping explains, as ``relate`` makes it of this model and engine."""
    computing = {p.layer for p in mapping.pairs if p.role not in SERVING}
    serving = {p.layer for p in mapping.pairs} - computing
    return Coverage(
        nodes=len({p.node for p in mapping.pairs}),
        all_nodes=len(model.nodes),
        explained=sum(m.reason != "unknown" for m in mapping.missing),
        layers=len(computing),
        all_layers=len(engine.layers),
        moves=sum(y.id in serving or (y.id not in computing and moves(y)) for y in engine.layers),
        declared=sum(p.evidence == "declared" for p in mapping.pairs),
        pairs=len(mapping.pairs),
    )
