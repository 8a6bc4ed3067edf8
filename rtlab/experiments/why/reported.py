"""What is known of two nodes without an experiment: what files tell of an engine, and what rules predict of one."""

from __future__ import annotations

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import CAUSES, Outcome, Verdict
from rtlab.analyses.why.missed_fusions import same_layer, steps_of
from rtlab.backends.capabilities import require_capability
from rtlab.core.facts import VariantResult
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Explainer
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.oracle import format_input_shapes


def make_reported_verdict(facts: VariantResult, first: str, second: str, why: str) -> Verdict:
    """A verdict from what is known of an engine alone.

    What stands between two nodes, or reads what is between them, is named; that it is what keeps them apart was tried
    by nobody.

    Args:
        facts: The variant.
        first: The node that writes.
        second: The one that reads it.
        why: Why its compiler is not asked, and what to do.
    """
    model, engine = facts.prepared.model, facts.engine
    relation = relate_engine(engine, model, model)

    def make_verdict(verdict: Outcome, text: str, nodes: tuple[str, ...] = ()) -> Verdict:
        return Verdict(
            first,
            second,
            verdict,
            nodes=nodes,
            text=text,
            compiler=engine.title,
            shapes=format_input_shapes(model),
            basis="reported",
        )

    in_same_layer = same_layer(relation, first, second)
    one, other = steps_of(relation, first), steps_of(relation, second)
    if in_same_layer:
        layer = engine.layer(next(i for i in one if i in other))
        return make_verdict("fused", f'Layer {layer.index + 1}, "{layer.name}", does the work of both.')
    if in_same_layer is None:
        unmapped_node = first if not one else second
        missing = relation.why(unmapped_node)
        text = missing.text if missing is not None else "Its layers only serve it."
        return make_verdict("unknown", f'No layer is known to do the work of "{unmapped_node}". {text}')
    names = [quote_names(engine.layer(i).name for i in steps) for steps in (one, other)]
    text = f"{names[0]} does the work of the first and {names[1]} that of the second."
    way = cutting.paths(model, first, second) or ()
    ends = frozenset(model.outputs)
    after = [n for i in other for n in relation.run(i)]
    before = [n for i in one for n in relation.run(i)]
    suspects = [
        *changes.iter_changes_between(model, first, second, way, ends),
        *changes.iter_operand_changes(model, first, second),
        *changes.iter_competitors_after(model, (first, second), after),
        *changes.iter_competitors_before(model, first, before),
    ]
    nodes = tuple(dict.fromkeys(n for c in suspects for n in c.nodes))
    if suspects:
        causes = dict.fromkeys(c.cause for c in suspects)
        text += " What may keep them apart, none of it tried: " + "; ".join(
            f"{CAUSES[cause]} ({quote_names(dict.fromkeys(n for c in suspects if c.cause == cause for n in c.nodes))})"
            for cause in causes
        )
        text += "."
    else:
        text += " Nothing in the graph stands between them: the compiler itself may not do it."
    return make_verdict("unknown", f"{text} The compiler is not asked: {why}", nodes)


def explain_by_rules(facts: VariantResult, first: str, second: str) -> Verdict:
    """A verdict by rule, with its source.

    Raises:
        Unavailable: the backend of the engine knows no rules.
    """
    model, engine = facts.prepared.model, facts.engine
    explainer: Explainer = require_capability(engine.backend, "explains", "say why")
    rule_verdict = explainer.explain(model, first, second)
    # A rule that is hindered holds elsewhere; where there is none, nothing helps.
    unfused_outcome: Outcome = (
        "unknown" if rule_verdict.fused is None else "blocked" if rule_verdict.rule else "never"
    )
    return Verdict(
        first,
        second,
        "fused" if rule_verdict.fused else unfused_outcome,
        text=f"{rule_verdict.text} Source: {rule_verdict.source}.",
        compiler=engine.title,
        shapes=format_input_shapes(model),
        basis="predicted",
    )
