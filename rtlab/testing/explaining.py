"""What an ``Explainer`` says of two nodes, beside what its own engine shows."""

from __future__ import annotations

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Explainer, Ruled
from rtlab.testing.assertions import hold


def check_rules(backend: Explainer, model: Model, engine: Engine) -> None:
    """Ask about every two neighbours: where both have layers, they share one exactly where it says so.

    Raises:
        AssertionError: they do not, or what it tells lacks its rule, its source or its sentence.
    """
    homes: dict[str, set[str]] = {}
    for layer in engine.layers:
        for node in layer.origins:
            homes.setdefault(node, set()).add(layer.id)
    neighbours = ((n.id, r.id) for n in model.top for v in n.outputs for r in model.consumers.get(v, ()))
    for one, other in neighbours:
        told, both = backend.explain(model, one, other), f'of "{one}" and "{other}"'
        hold(isinstance(told, Ruled), f"explain() gives {told!r} {both}, and a Ruled belongs there")
        hold(told.text.rstrip().endswith("."), f'what it tells {both} is no sentence: "{told.text}"')
        hold(told.source, f"what it tells {both} has no source")
        hold(told.rule or not told.fused, f"it says {both} that they are one layer, by no rule")
        if told.fused is None or one not in homes or other not in homes:
            continue
        shared = bool(homes[one] & homes[other])
        hold(
            told.fused == shared,
            f"it says {both} that they are {_words(shared=told.fused)}, and in its engine they are "
            f"{_words(shared=shared)}",
        )


def _words(*, shared: bool) -> str:
    return "one layer" if shared else "two layers"
