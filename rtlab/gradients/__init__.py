"""Gradients of an ONNX graph as an ONNX graph: one rule for each operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS, bodies
from rtlab.gradients.rules import RULES
from rtlab.gradients.tape import NotDifferentiable, Tape
from rtlab.gradients.vjp_context import VjpContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients as values of the graph, in FP32 whatever the type of the forward part.

    Attributes:
        values: By value, of what was differentiated with respect to it, summed over all its readers.
        edges: The part that one reading edge has in it, by node and position of the input.
        unsupported_nodes: Nodes that no rule covers, with what is in the way; nothing upstream of one has its whole
            gradient.
        incomplete_values: The values whose gradient lacks a part for that.
    """

    values: Mapping[ir.Value, ir.Value]
    edges: Mapping[tuple[ir.Node, int], ir.Value]
    unsupported_nodes: Mapping[str, str]
    incomplete_values: frozenset[ir.Value]


def differentiate(
    tape: Tape,
    nodes: Iterable[ir.Node],
    seeds: Mapping[ir.Value, ir.Value],
    *,
    is_excluded: Callable[[ir.Value], bool],
) -> Gradients:
    """Append the gradients of a sum over products of outputs with seeds.

    What follows from constants alone has no gradient, nor has what is no number with a fraction: shapes, indices,
    comparisons. Nothing stops there; gradients stop at nodes without a rule, and at those with bodies.

    Args:
        tape: Writes to the graph.
        nodes: Those of the forward part, in their order.
        seeds: By output what it is multiplied with, of its shape.
        is_excluded: Whether the gradient of a value is not asked for, nor that of anything that it follows from.
    """
    forward = list(nodes)
    differentiable = _collect_differentiable(tape, forward)
    values = {value: tape.cast_to_float(seed) for value, seed in seeds.items()}
    edges: dict[tuple[ir.Node, int], ir.Value] = {}
    unsupported_nodes: dict[str, str] = {}
    incomplete_values: set[ir.Value] = set()
    for node in reversed(forward):
        output_gradients = [values.get(v) for v in node.outputs]
        reads = (*node.inputs, *_iter_captured_values(node))
        needs_gradient = [v is not None and v in differentiable and not is_excluded(v) for v in reads]
        is_incomplete = any(v in incomplete_values for v in node.outputs)
        input_gradients: Sequence[ir.Value | None] = ()
        if any(needs_gradient) and any(g is not None for g in output_gradients):
            try:
                input_gradients = _apply_rule(tape, node, output_gradients, needs_gradient)
            except NotDifferentiable as why:
                unsupported_nodes[node.name or ""] = str(why)
                is_incomplete = True
        if is_incomplete:
            incomplete_values.update(
                v for v, w in zip(reads, needs_gradient, strict=True) if w and v is not None
            )
        for i, (value, gradient) in enumerate(zip(node.inputs, input_gradients, strict=False)):
            if value is None or gradient is None or not needs_gradient[i]:
                continue
            edges[node, i] = gradient
            before = values.get(value)
            values[value] = gradient if before is None else tape.op("Add", before, gradient)
    return Gradients(values, edges, unsupported_nodes, frozenset(incomplete_values))


def _apply_rule(
    tape: Tape, node: ir.Node, output_gradients: Sequence[ir.Value | None], needs_gradient: Sequence[bool]
) -> Sequence[ir.Value | None]:
    """The gradients of a node's inputs."""
    rule = RULES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
    if bodies(node):
        raise NotDifferentiable(f"the bodies of {node.op_type} are not differentiated")
    if rule is None:
        raise NotDifferentiable(f"there is no rule for {node.op_type}")
    input_gradients = rule(VjpContext(tape, node, output_gradients, needs_gradient))
    return (
        [input_gradients]
        if input_gradients is None or isinstance(input_gradients, ir.Value)
        else input_gradients
    )


def _collect_differentiable(tape: Tape, forward: Iterable[ir.Node]) -> set[ir.Value]:
    """What has a slope: numbers with a fraction, or with the few bits of a quantizer, that follow from an input."""
    follows = {v for v in tape.graph.inputs if tape.constant_value(v) is None}
    differentiable = {v for v in follows if _is_floating_point(v)}
    for node in forward:
        if any(v in follows for v in (*node.inputs, *_iter_captured_values(node)) if v is not None):
            mine = [v for v in node.outputs if tape.constant_value(v) is None]
            follows.update(mine)
            differentiable.update(
                v for v in mine if _is_floating_point(v) or node.op_type == "QuantizeLinear"
            )
    return differentiable


def _is_floating_point(value: ir.Value) -> bool:
    # One whose type nobody tells may be a number with a fraction: its rule, or what runs it, says so.
    return value.dtype is None or value.dtype.is_floating_point()


def _iter_captured_values(node: ir.Node) -> Iterator[ir.Value]:
    """What the bodies of a node read from outside of them."""
    for body in bodies(node):
        graph = body.as_graph()
        inner: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
        for one in graph:
            for value in (*one.inputs, *_iter_captured_values(one)):
                if value is not None and value not in inner:
                    yield value
            inner.update(one.outputs)
        yield from (v for v in graph.outputs if v not in inner)


__all__ = ["Gradients", "NotDifferentiable", "Tape", "differentiate"]
