"""Why two nodes are not one layer: a neighbourhood that shows it, and the fewest changes after which they are."""

from __future__ import annotations

import contextlib

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why.missed_fusions import steps_of
from rtlab.backends.capabilities import require_capability
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Builder
from rtlab.errors import ModelError, Unavailable, VariantError
from rtlab.experiments.why.cutting import find_route, paths


def neighbours(model: Model, node: str, other: str) -> tuple[str, str]:
    """The ids of two neighbours, the one that writes first.

    Raises:
        ModelError: there is no such node, or they are no neighbours; the message names the nodes between them.
    """
    one, two = model.node(node), model.node(other)
    error_prefix = f'Cannot ask why "{one.id}" and "{two.id}" are not one layer:'
    if one.id == two.id:
        raise ModelError(f"{error_prefix} they are the same node. Choose two.")
    for lone in (one, two):
        if lone.scope:
            raise ModelError(
                f'{error_prefix} "{lone.id}" stands in a body or a function. Choose nodes of the main graph.'
            )
    for first, second in ((one.id, two.id), (two.id, one.id)):
        if paths(model, first, second) is not None:
            return first, second
    between = find_route(model, one.id, two.id) or find_route(model, two.id, one.id)
    if between is None:
        raise ModelError(
            f"{error_prefix} no way leads from one to the other. Choose two nodes of which one reads what the other "
            "writes."
        )
    raise ModelError(
        f"{error_prefix} they are no neighbours; between them stand {quote_names(between[1:-1])}. "
        f'Ask about neighbours, such as "{between[0]}" and "{between[1]}".'
    )


def find_layer(facts: VariantResult, node_or_layer: str) -> str:
    """The layer that does a node's work, of several the one that does that of most nodes; of a layer, itself.

    Raises:
        ModelError: there is no such node.
        VariantError: no layer is known to do its work.
    """
    model = facts.prepared.model
    if node_or_layer not in model.by_id and node_or_layer in {layer.id for layer in facts.engine.layers}:
        return node_or_layer
    node = facts.source.node(node_or_layer)
    relation = relate_engine(facts.engine, model, model)
    steps = steps_of(relation, node.id) if node.id in model.by_id else ()
    if not steps:
        raise VariantError(
            f'Cannot ask what "{node.id}" is one layer with: no layer of "{facts.name}" is known to do its work. '
            f"Choose another node; study.explain({node.id!r}, variant={facts.name!r}) says what became of this one."
        )
    return max(steps, key=lambda i: len(relation.run(i)))


def get_builder(facts: VariantResult) -> Builder:
    """The compiler that a variant's engine is of.

    Raises:
        VariantError: the engine was read from files of another machine, is predicted by rules, or was built with what
            parts cannot have.
        Unavailable: it is not installed here.
    """
    why = explain_unavailable(facts)
    if not why and facts.engine.maker.predicts:
        why = (
            "its engine is predicted by rules, which no experiment would find out better. Ask study.fusion.why about "
            "two nodes, which names the rule; or build a variant with a compiler, and ask about that."
        )
    if why:
        raise VariantError(f'Cannot ask the compiler of "{facts.name}": {why}')
    builder: Builder = require_capability(facts.engine.backend, "builds", "build")
    return builder


def find_builder(facts: VariantResult) -> Builder | None:
    """The compiler that a variant's engine is of; None where no experiment can be made with it here."""
    with contextlib.suppress(VariantError, Unavailable):
        return get_builder(facts)
    return None


def explain_unavailable(facts: VariantResult) -> str:
    """Why no experiment can be made on a variant, and what to do then; empty where some can."""
    if not facts.recorded and facts.source.weightless:
        return (
            "it would build parts of the model, whose weights are not here. Open the study with its model, "
            "rtlab.open(path, model=...)."
        )
    if not facts.recorded:
        return ""
    return (
        "its engine was read from files of another machine. Build a variant here in the same precision, and ask about "
        "that."
    )
