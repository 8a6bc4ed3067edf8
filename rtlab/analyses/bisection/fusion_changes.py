"""Where nodes share their layers with other nodes in one engine than in the other.

In another precision every layer is another one, and nothing is learned from that. What the compiler decides otherwise
is which nodes run together: a pair of Q and DQ, a cast or a layout that a layer makes for a node belongs to that node,
and makes no group.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from rtlab.analyses.why.missed_fusions import BETWEEN, find_readers
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.roles import SERVING

#: Of two engines: which nodes share a step with a node, itself included, of each that both run.
LayerPeers: TypeAlias = Mapping[str, tuple[frozenset[str], frozenset[str]]]
#: What a place has in common with those that changed alike: the operators of neighbours, and whether they share a step
#: now; of nodes that no value joins, their operators.
Kind: TypeAlias = frozenset[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Regrouping:
    """Nodes that share their steps otherwise than before, in the order of the model.

    ``merged_pairs`` and ``split_pairs`` are the neighbours among them that share a step now, and no more.
    """

    nodes: tuple[str, ...]
    merged_pairs: tuple[tuple[str, str], ...]
    split_pairs: tuple[tuple[str, str], ...]

    def compute_kind(self, model: Model) -> Kind:
        """What places that changed alike have in common: the operators that were joined and parted."""
        turns = {(model.by_id[a].op, model.by_id[b].op, "joined") for a, b in self.merged_pairs}
        turns |= {(model.by_id[a].op, model.by_id[b].op, "parted") for a, b in self.split_pairs}
        return frozenset(turns) or frozenset((model.by_id[n].op,) for n in self.nodes)


def find_layer_peers(
    relations: Sequence[NodeMapping], engines: Sequence[Engine], nodes: Iterable[str]
) -> LayerPeers:
    """Who of some nodes shares a step with whom; those that one of two engines has no step for are left out."""
    node_ids = frozenset(nodes)
    peers_by_engine = [_find_engine_peers(r, e, node_ids) for r, e in zip(relations, engines, strict=True)]
    common_nodes = peers_by_engine[0].keys() & peers_by_engine[1].keys()
    # Nodes of one step have one set: each is looked at once.
    common_peers: dict[frozenset[str], frozenset[str]] = {}
    for side in peers_by_engine:
        for company in {id(c): c for c in side.values()}.values():
            common_peers[company] = company & common_nodes
    return {
        n: (common_peers[peers_by_engine[0][n]], common_peers[peers_by_engine[1][n]]) for n in common_nodes
    }


def find_regrouped_nodes(peers: LayerPeers) -> frozenset[str]:
    """The nodes that share a step with others than before."""
    return frozenset(n for n, (old_peers, new_peers) in peers.items() if old_peers != new_peers)


def find_regroupings(
    model: Model,
    relations: Sequence[NodeMapping],
    engines: Sequence[Engine],
    among: Collection[str] | None = None,
) -> list[Regrouping]:
    """Where nodes share their steps otherwise: each with all others that this concerns, apart from the rest.

    Args:
        model: Whose nodes they are.
        relations: The nodes that the layers of both engines run.
        engines: The two.
        among: The nodes that are looked at; by default all that compute.
    """
    node_ids = [n.id for n in model.nodes if n.op not in BETWEEN and (among is None or n.id in among)]
    peers = find_layer_peers(relations, engines, node_ids)
    regrouped_nodes = find_regrouped_nodes(peers)
    parents = {n: n for n in regrouped_nodes}

    def root(node: str) -> str:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for node in regrouped_nodes:
        old_peers, new_peers = peers[node]
        for mate in old_peers ^ new_peers:
            parents[root(mate)] = root(node)
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for model_node in model.nodes:
        if model_node.id in regrouped_nodes:
            parts[root(model_node.id)].append(model_node.id)
    return [_build_regrouping(model, peers, nodes) for nodes in parts.values()]


def describe_layers(model: Model, relation: NodeMapping, engine: Engine, nodes: Collection[str]) -> str:
    """The steps that run some nodes, in words: operators, and what the step does besides for nodes around it."""
    counts: Counter[str] = Counter()
    for layer in engine.layers:
        run_nodes = [n for n in relation.run(layer.id) if n in nodes]
        if run_nodes:
            ops = list(
                dict.fromkeys(
                    model.by_id[n].op for n in sorted(run_nodes, key=lambda n: model.by_id[n].index)
                )
            )
            serves = dict.fromkeys(p.role for p in relation.of(layer.id) if p.role in SERVING - {"control"})
            besides = f" with {', '.join(serves)}" if serves else ""
            counts[f"{' + '.join(ops)}{besides}"] += 1
    return "; ".join(f"{count} x {step}" if count > 1 else step for step, count in counts.items())


def describe_cause(model: Model, alike: Sequence[Regrouping]) -> str:
    """What became of neighbours, of places that changed alike: by the nodes of one, by the operators of several."""
    descriptions = []
    for title, pairs in (
        ("one step now", [p for place in alike for p in place.merged_pairs]),
        ("apart now", [p for place in alike for p in place.split_pairs]),
    ):
        name_pairs = pairs if len(alike) == 1 else [(model.by_id[a].op, model.by_id[b].op) for a, b in pairs]
        if name_pairs:
            descriptions.append(f"{title}: {', '.join(dict.fromkeys(f'{a} and {b}' for a, b in name_pairs))}")
    if not descriptions:
        ops = dict.fromkeys(model.by_id[n].op for n in alike[0].nodes)
        descriptions.append(f"{', '.join(ops)} beside each other share their steps otherwise")
    return "; ".join(descriptions)


def _find_engine_peers(
    relation: NodeMapping, engine: Engine, node_ids: frozenset[str]
) -> dict[str, frozenset[str]]:
    peers: dict[str, frozenset[str]] = {}
    for layer in engine.layers:
        run_nodes = node_ids.intersection(relation.run(layer.id))
        for node in run_nodes:
            previous = peers.get(node)
            peers[node] = run_nodes if previous is None or previous == run_nodes else previous | run_nodes
    return peers


def _build_regrouping(model: Model, peers: LayerPeers, nodes: Sequence[str]) -> Regrouping:
    inside = frozenset(nodes)
    merged_pairs: list[tuple[str, str]] = []
    split_pairs: list[tuple[str, str]] = []
    for node in nodes:
        old_peers, new_peers = peers[node]
        for reader in dict.fromkeys(r for v in model.by_id[node].outputs for r in find_readers(model, v)):
            if reader in inside and (reader in old_peers) != (reader in new_peers):
                (merged_pairs if reader in new_peers else split_pairs).append((node, reader))
    return Regrouping(tuple(nodes), tuple(merged_pairs), tuple(split_pairs))
