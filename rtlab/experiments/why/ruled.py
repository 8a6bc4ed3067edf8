"""What the rules of a predicted engine say of two nodes: no experiment is needed where they are known."""

from __future__ import annotations

from rtlab.analyses.why import Outcome, Verdict
from rtlab.backends.capabilities import require_capability
from rtlab.core.facts import VariantResult
from rtlab.core.protocols import Explainer
from rtlab.experiments.why.oracle import format_input_shapes


def explain_by_rules(facts: VariantResult, first: str, second: str) -> Verdict:
    """A verdict by rule, with its source.

    Raises:
        Unavailable: the backend of the engine knows no rules.
    """
    model, engine = facts.prepared.model, facts.engine
    explainer: Explainer = require_capability(engine.backend, "explains", "tell why")
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
