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

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.questions.why.missed import BETWEEN, readers
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.roles import SERVING

#: Of two engines: which nodes share a step with a node, itself included, of each that both run.
Companies: TypeAlias = Mapping[str, tuple[frozenset[str], frozenset[str]]]
#: What a place has in common with those that changed alike: the operators of neighbours, and whether they share a step
#: now; of nodes that no value joins, their operators.
Kind: TypeAlias = frozenset[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Regrouped:
    """Nodes that share their steps otherwise than before, in the order of the model.

    ``joined`` and ``parted`` are the neighbours among them that share a step now, and no more.
    """

    nodes: tuple[str, ...]
    joined: tuple[tuple[str, str], ...]
    parted: tuple[tuple[str, str], ...]

    def kind(self, model: Model) -> Kind:
        """What places that changed alike have in common: the operators that were joined and parted."""
        turns = {(model.by_id[a].op, model.by_id[b].op, "joined") for a, b in self.joined}
        turns |= {(model.by_id[a].op, model.by_id[b].op, "parted") for a, b in self.parted}
        return frozenset(turns) or frozenset((model.by_id[n].op,) for n in self.nodes)


def companies(relations: Sequence[NodeMapping], engines: Sequence[Engine], nodes: Iterable[str]) -> Companies:
    """Who of some nodes shares a step with whom; those that one of two engines has no step for are left out."""
    wanted = frozenset(nodes)
    told = [_company(r, e, wanted) for r, e in zip(relations, engines, strict=True)]
    known = told[0].keys() & told[1].keys()
    # Nodes of one step have one set: each is looked at once.
    within: dict[frozenset[str], frozenset[str]] = {}
    for side in told:
        for company in {id(c): c for c in side.values()}.values():
            within[company] = company & known
    return {n: (within[told[0][n]], within[told[1][n]]) for n in known}


def regrouped(found: Companies) -> frozenset[str]:
    """The nodes that share a step with others than before."""
    return frozenset(n for n, (was, now) in found.items() if was != now)


def places(
    model: Model,
    relations: Sequence[NodeMapping],
    engines: Sequence[Engine],
    among: Collection[str] | None = None,
) -> list[Regrouped]:
    """Where nodes share their steps otherwise: each with all others that this concerns, apart from the rest.

    Args:
        model: Whose nodes they are.
        relations: The nodes that the layers of both engines run.
        engines: The two.
        among: The nodes that are looked at; by default all that compute.
    """
    wanted = [n.id for n in model.nodes if n.op not in BETWEEN and (among is None or n.id in among)]
    found = companies(relations, engines, wanted)
    other = regrouped(found)
    whole = {n: n for n in other}

    def root(node: str) -> str:
        while whole[node] != node:
            whole[node] = whole[whole[node]]
            node = whole[node]
        return node

    for node in other:
        was, now = found[node]
        for mate in was ^ now:
            whole[root(mate)] = root(node)
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for told in model.nodes:
        if told.id in other:
            parts[root(told.id)].append(told.id)
    return [_place(model, found, nodes) for nodes in parts.values()]


def steps(model: Model, relation: NodeMapping, engine: Engine, nodes: Collection[str]) -> str:
    """The steps that run some nodes, in words: operators, and what the step does besides for nodes around it."""
    told: Counter[str] = Counter()
    for layer in engine.layers:
        run = [n for n in relation.run(layer.id) if n in nodes]
        if run:
            ops = list(
                dict.fromkeys(model.by_id[n].op for n in sorted(run, key=lambda n: model.by_id[n].index))
            )
            serves = dict.fromkeys(p.role for p in relation.of(layer.id) if p.role in SERVING - {"control"})
            besides = f" with {', '.join(serves)}" if serves else ""
            told[f"{' + '.join(ops)}{besides}"] += 1
    return "; ".join(f"{count} x {step}" if count > 1 else step for step, count in told.items())


def cause(model: Model, alike: Sequence[Regrouped]) -> str:
    """What became of neighbours, of places that changed alike: by the nodes of one, by the operators of several."""
    told = []
    for title, pairs in (
        ("one step now", [p for place in alike for p in place.joined]),
        ("apart now", [p for place in alike for p in place.parted]),
    ):
        named = pairs if len(alike) == 1 else [(model.by_id[a].op, model.by_id[b].op) for a, b in pairs]
        if named:
            told.append(f"{title}: {', '.join(dict.fromkeys(f'{a} and {b}' for a, b in named))}")
    if not told:
        ops = dict.fromkeys(model.by_id[n].op for n in alike[0].nodes)
        told.append(f"{', '.join(ops)} beside each other share their steps otherwise")
    return "; ".join(told)


def _company(relation: NodeMapping, engine: Engine, wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for layer in engine.layers:
        run = wanted.intersection(relation.run(layer.id))
        for node in run:
            known = found.get(node)
            found[node] = run if known is None or known == run else known | run
    return found


def _place(model: Model, found: Companies, nodes: Sequence[str]) -> Regrouped:
    inside = frozenset(nodes)
    joined: list[tuple[str, str]] = []
    parted: list[tuple[str, str]] = []
    for node in nodes:
        was, now = found[node]
        for reader in dict.fromkeys(r for v in model.by_id[node].outputs for r in readers(model, v)):
            if reader in inside and (reader in was) != (reader in now):
                (joined if reader in now else parted).append((node, reader))
    return Regrouped(tuple(nodes), tuple(joined), tuple(parted))
