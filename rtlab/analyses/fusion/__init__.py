"""Which nodes became which layers, how we know, and how much of the engine that explains."""

from __future__ import annotations

from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.relation import coverage as _coverage
from rtlab.relation.coverage import Coverage
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.relate import relate

_INFERRED_NOTE = "The decisions of the build log joined the node into this layer (inferred)."


@memoized
def relate_engine(engine: Engine, source: Model, built: Model) -> NodeMapping:
    """The nodes of a model by the layers of an engine that was built from another one, or from itself."""
    return relate(source, built, engine)


def map_nodes(facts: VariantResult) -> NodeMapping:
    """Which nodes of the source became which layers of the engine, and how we know."""
    ask = (
        _relate_inferred
        if facts.inferred
        else _relate_predicted
        if facts.engine.maker.predicts
        else relate_engine
    )
    return ask(facts.engine, facts.source, facts.prepared.model)


@memoized
def _relate_inferred(engine: Engine, source: Model, built: Model) -> NodeMapping:
    node_mapping = relate_engine(engine, source, built)
    pairs = (p._replace(evidence="inferred", note=_INFERRED_NOTE) for p in node_mapping.pairs)
    return NodeMapping(tuple(pairs), node_mapping.missing)


@memoized
def _relate_predicted(engine: Engine, source: Model, built: Model) -> NodeMapping:
    node_mapping = relate_engine(engine, source, built)
    notes = {y.id: _rules(y) for y in engine.layers}
    pairs = (p._replace(evidence="predicted", note=notes[p.layer]) for p in node_mapping.pairs)
    return NodeMapping(tuple(pairs), node_mapping.missing)


def _rules(layer: Layer) -> str:
    """By which rules a predicted layer is one, with their sources."""
    attributes = layer.attributes
    if not attributes:
        return "No rule changes it."
    return f"By {attributes.get('Rules', 'no rule')}. Source: {attributes.get('Sources', 'not reported')}."


def map_measured_engine(facts: VariantResult) -> NodeMapping | None:
    """The same of the engine that was measured; None where none was."""
    if facts.measured is None or facts.measured is facts.engine:
        return map_nodes(facts) if facts.measured else None
    return relate_engine(facts.measured, facts.source, facts.prepared.model)


@memoized
def compute_coverage(facts: VariantResult) -> Coverage:
    """How much of the engine the mapping explains."""
    return _coverage.coverage(map_nodes(facts), facts.source, facts.engine)


def list_unmapped_nodes(facts: VariantResult) -> tuple[tuple[str, str], ...]:
    """Nodes without a layer with the reason, in graph order."""
    return tuple((m.node, m.reason) for m in map_nodes(facts).missing)
