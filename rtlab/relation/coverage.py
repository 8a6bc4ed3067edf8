"""How much of an engine a mapping explains, in numbers."""

from __future__ import annotations

import dataclasses

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.relation.dataflow import moves
from rtlab.relation.mapping import Mapping
from rtlab.relation.roles import SERVING


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
