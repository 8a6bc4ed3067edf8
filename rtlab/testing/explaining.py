"""What an ``Explainer`` says of two nodes, beside what its own engine shows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from onnx import TensorProto, helper

from rtlab.core.engine import Engine
from rtlab.core.model import Model, wrap
from rtlab.core.protocols import Explainer, Ruled
from rtlab.errors import BuildError
from rtlab.testing.assertions import assert_that, catch_error, check_message


def rule_checks(
    backend: Explainer, model: Model, engine: Callable[[], Engine]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The checks of an ``Explainer``, by what they hold; ``engine`` is what it builds of the model."""
    yield (
        "tells of two nodes what its engines show, with a rule and its source",
        lambda: check_rules(backend, model, engine()),
    )
    yield (
        "refuses to tell of a model that it cannot compile, with a message",
        functools.partial(check_unknown_op, backend),
    )


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
        verdict, both = backend.explain(model, one, other), f'of "{one}" and "{other}"'
        assert_that(
            isinstance(verdict, Ruled), f"explain() gives {verdict!r} {both}, and a Ruled belongs there"
        )
        assert_that(
            verdict.text.rstrip().endswith("."), f'what it tells {both} is no sentence: "{verdict.text}"'
        )
        assert_that(verdict.source, f"what it tells {both} has no source")
        assert_that(verdict.rule or not verdict.fused, f"it says {both} that they are one layer, by no rule")
        if verdict.fused is None or one not in homes or other not in homes:
            continue
        shared = bool(homes[one] & homes[other])
        assert_that(
            verdict.fused == shared,
            f"it says {both} that they are {_words(shared=verdict.fused)}, and in its engine they are "
            f"{_words(shared=shared)}",
        )


def make_unknown_op_model() -> Model:
    """A model with an operator that nobody knows, ``make_unknown_op_model``, and one behind it that everybody does."""
    nodes = [
        helper.make_node("Nobody", ["x"], ["y"], name="odd", domain="of.nowhere"),
        helper.make_node("Relu", ["y"], ["z"], name="behind"),
    ]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 4])
    graph = helper.make_graph(nodes, "odd", [value("x")], [value("z")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nowhere", 1)]
    return wrap(helper.make_model(graph, opset_imports=imports, ir_version=9), name="odd")


def check_unknown_op(backend: Explainer) -> None:
    """Ask about a node that nobody knows; raises ``AssertionError`` where that is not refused as promised."""
    explain_unknown = functools.partial(backend.explain, make_unknown_op_model(), "odd", "behind")
    check_message(catch_error(explain_unknown, "it explains an unknown operator"), BuildError)


def _words(*, shared: bool) -> str:
    return "one layer" if shared else "two layers"
