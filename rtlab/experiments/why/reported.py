"""Verdicts on two nodes without an experiment: from an engine's files, and from rules that predict an engine."""

from __future__ import annotations

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import CAUSES, Outcome, Verdict
from rtlab.analyses.why.missed_fusions import same_layer, steps_of
from rtlab.backends.capabilities import require_capability
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Explainer
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.oracle import format_input_shapes
from rtlab.relation.mapping import Mapping as Relation


def read_engine(engine: Engine, relation: Relation, first: str, second: str) -> tuple[Outcome, str] | None:
    """What an engine shows of two nodes: that they are one layer, or that one has none; None where they are apart."""
    in_same_layer = same_layer(relation, first, second)
    if in_same_layer:
        layer = engine.layer(next(i for i in steps_of(relation, first) if second in relation.run(i)))
        return "fused", f'Layer {layer.index + 1}, "{layer.name}", does the work of both.'
    if in_same_layer is None:
        unmapped_node = next(n for n in (first, second) if not steps_of(relation, n))
        missing = relation.why(unmapped_node)
        text = (
            missing.text
            if missing is not None
            else "Its layers only serve it, with a cast, a Q/DQ pair or a layout."
        )
        return "unknown", f'No layer is known to do the work of "{unmapped_node}". {text}'
    return None


def make_reported_verdict(facts: VariantResult, first: str, second: str, why: str) -> Verdict:
    """A verdict from an engine alone; ``why`` says why its compiler is not asked, and what to do.

    What stands between two nodes, or reads what is between them, is named; that it is what keeps them apart was not
    tried.
    """
    model, engine = facts.prepared.model, facts.engine
    relation = relate_engine(engine, model, model)
    nodes: tuple[str, ...] = ()
    outcome, text = read_engine(engine, relation, first, second) or ("unknown", "")
    if not text:
        one, other = steps_of(relation, first), steps_of(relation, second)
        names = [quote_names(engine.layer(i).name for i in steps) for steps in (one, other)]
        way = cutting.paths(model, first, second) or ()
        before, after = ([n for i in steps for n in relation.run(i)] for steps in (one, other))
        suspects = [
            *changes.iter_changes_between(model, first, second, way, frozenset(model.outputs)),
            *changes.iter_operand_changes(model, first, second),
            *changes.iter_competitors_after(model, (first, second), after),
            *changes.iter_competitors_before(model, first, before),
        ]
        nodes_by_cause: dict[str, dict[str, None]] = {}
        for change in suspects:
            nodes_by_cause.setdefault(change.cause, {}).update(dict.fromkeys(change.nodes))
        nodes = tuple(dict.fromkeys(n for c in suspects for n in c.nodes))
        causes = "; ".join(f"{CAUSES[c]} ({quote_names(n)})" for c, n in nodes_by_cause.items())  # type: ignore[index]
        guess = (
            f"What may keep them apart, none of it tried: {causes}."
            if suspects
            else "Nothing in the graph stands between them: the compiler itself may not do it."
        )
        text = (
            f"{names[0]} does the work of the first and {names[1]} that of the second. {guess} The compiler is not "
            f"asked: {why}"
        )
    return Verdict(
        first,
        second,
        outcome,
        nodes=nodes,
        text=text,
        compiler=engine.title,
        shapes=format_input_shapes(model),
        basis="reported",
    )


def explain_by_rules(facts: VariantResult, first: str, second: str) -> Verdict:
    """A verdict by rule, with its source.

    Raises:
        Unavailable: the backend of the engine knows no rules.
    """
    model, engine = facts.prepared.model, facts.engine
    explainer: Explainer = require_capability(engine.backend, "explains", "say why")
    rule_verdict = explainer.explain(model, first, second)
    outcome: Outcome = "fused"
    if not rule_verdict.fused:
        # A rule that is hindered holds elsewhere.
        outcome = "unknown" if rule_verdict.fused is None else "blocked" if rule_verdict.rule else "not found"
    return Verdict(
        first,
        second,
        outcome,
        text=f"{rule_verdict.text} Source: {rule_verdict.source}.",
        compiler=engine.title,
        shapes=format_input_shapes(model),
        basis="predicted",
    )
