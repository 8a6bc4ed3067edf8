"""Which nodes became which layers, how we know, and how much of the engine that explains."""

from __future__ import annotations

from typing import Literal

from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.relation.mapping import Coverage
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.mapping import coverage as _coverage
from rtlab.relation.relate import relate

_INFERRED_NOTE = "The decisions of the build log joined the node into this layer (inferred)."


@memoized
def relate_engine(engine: Engine, source: Model, built: Model) -> NodeMapping:
    """The nodes of a model by the layers of an engine that was built from another one, or from itself."""
    return relate(source, built, engine)


def map_nodes(facts: VariantResult) -> NodeMapping:
    """Which nodes of the source became which layers of the engine, and how we know."""
    sides = (facts.engine, facts.source, facts.prepared.model)
    if facts.inferred:
        return _relate_unreported(*sides, "inferred")
    return _relate_unreported(*sides, "predicted") if facts.engine.maker.predicts else relate_engine(*sides)


@memoized
def _relate_unreported(
    engine: Engine, source: Model, built: Model, evidence: Literal["inferred", "predicted"]
) -> NodeMapping:
    """The mapping of layers that the decisions of a log imply, or that rules predict, with these as its notes."""
    node_mapping = relate_engine(engine, source, built)
    notes = {y.id: _INFERRED_NOTE if evidence == "inferred" else _describe_rules(y) for y in engine.layers}
    pairs = (p._replace(evidence=evidence, note=notes[p.layer]) for p in node_mapping.pairs)
    return NodeMapping(tuple(pairs), node_mapping.missing)


def _describe_rules(layer: Layer) -> str:
    """The rules by which a predicted layer is one, with their sources."""
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
    return _coverage(map_nodes(facts), facts.source, facts.engine)


def list_unmapped_nodes(facts: VariantResult) -> tuple[tuple[str, str], ...]:
    """Nodes without a layer with the reason, in graph order."""
    return tuple((m.node, m.reason) for m in map_nodes(facts).missing)
