"""Which nodes became which layers, how we know, and how much of the engine that explains."""

from __future__ import annotations

from rtlab.core.answers import kept
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import Facts
from rtlab.core.model import Model
from rtlab.relation import coverage as _coverage
from rtlab.relation.coverage import Coverage
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.relate import relate

_JOINED = "The decisions of the build log joined the node into this layer (inferred)."


@kept
def related(engine: Engine, source: Model, built: Model) -> NodeMapping:
    """The nodes of a model by the layers of an engine that was built from another one, or from itself."""
    return relate(source, built, engine)


def mapping(facts: Facts) -> NodeMapping:
    """Which nodes of the source became which layers of the engine, and how we know."""
    ask = _inferred if facts.inferred else _predicted if facts.engine.maker.predicts else related
    return ask(facts.engine, facts.source, facts.prepared.model)


@kept
def _inferred(engine: Engine, source: Model, built: Model) -> NodeMapping:
    found = related(engine, source, built)
    pairs = (p._replace(evidence="inferred", note=_JOINED) for p in found.pairs)
    return NodeMapping(tuple(pairs), found.missing)


@kept
def _predicted(engine: Engine, source: Model, built: Model) -> NodeMapping:
    found = related(engine, source, built)
    notes = {y.id: _rules(y) for y in engine.layers}
    pairs = (p._replace(evidence="predicted", note=notes[p.layer]) for p in found.pairs)
    return NodeMapping(tuple(pairs), found.missing)


def _rules(layer: Layer) -> str:
    """By which rules a predicted layer is one, with their sources."""
    told = layer.attributes
    if not told:
        return "No rule changes it."
    return f"By {told.get('Rules', 'no rule')}. Source: {told.get('Sources', 'not told')}."


def measured(facts: Facts) -> NodeMapping | None:
    """The same of the engine that was measured; None where none was."""
    if facts.measured is None or facts.measured is facts.engine:
        return mapping(facts) if facts.measured else None
    return related(facts.measured, facts.source, facts.prepared.model)


@kept
def coverage(facts: Facts) -> Coverage:
    """How much of the engine the mapping explains."""
    return _coverage.coverage(mapping(facts), facts.source, facts.engine)


def unmapped(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Nodes without a layer with the reason, in graph order."""
    return tuple((m.node, m.reason) for m in mapping(facts).missing)
