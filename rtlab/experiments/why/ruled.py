"""What the rules of a predicted engine say of two nodes: no experiment is needed where they are known."""

from __future__ import annotations

from rtlab.backends.roles import role
from rtlab.core.facts import Facts
from rtlab.core.protocols import Explainer
from rtlab.experiments.why.oracle import inputs_of
from rtlab.questions.why import Outcome, Verdict


def ruled(facts: Facts, first: str, second: str) -> Verdict:
    """A verdict by rule, with its source.

    Raises:
        Unavailable: the backend of the engine knows no rules.
    """
    model, engine = facts.prepared.model, facts.engine
    explainer: Explainer = role(engine.backend, "explains", "tell why")
    told = explainer.explain(model, first, second)
    # A rule that is hindered holds elsewhere; where there is none, nothing helps.
    apart: Outcome = "unknown" if told.fused is None else "blocked" if told.rule else "never"
    return Verdict(
        first,
        second,
        "fused" if told.fused else apart,
        text=f"{told.text} Source: {told.source}.",
        compiler=engine.title,
        shapes=inputs_of(model),
        basis="predicted",
    )
