"""Gradients of an ONNX graph as an ONNX graph: one rule for each operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS, bodies
from rtlab.gradients.rules import RULES
from rtlab.gradients.tape import NotDifferentiable, Tape, VjpContext


@dataclasses.dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients as FP32 values of the graph, whatever the type of the forward part.

    Attributes:
        values: The gradient of each value, summed over all its readers.
        edges: The part that one reading edge has in it, by node and position of the input.
        unsupported_nodes: Nodes that no rule covers, by id, with the reason.
        incomplete_values: Values upstream of such a node, whose gradient lacks a part.
    """

    values: Mapping[ir.Value, ir.Value]
    edges: Mapping[tuple[ir.Node, int], ir.Value]
    unsupported_nodes: Mapping[str, str]
    incomplete_values: frozenset[ir.Value]


def differentiate(tape: Tape, nodes: Sequence[ir.Node], seeds: Mapping[ir.Value, ir.Value]) -> Gradients:
    """Append the gradients of a sum over products of outputs with seeds to a graph of opset 16 or later.

    Constants, shapes, indices and comparisons have no gradient. Gradients stop at nodes without a rule, and at nodes
    with bodies.

    Args:
        tape: Writes to the graph.
        nodes: The forward part, in its order.
        seeds: By output what it is multiplied with, of its shape.
    """
    differentiable = _collect_differentiable(tape, nodes)
    values = {value: tape.cast_to_float(seed) for value, seed in seeds.items()}
    edges: dict[tuple[ir.Node, int], ir.Value] = {}
    unsupported_nodes: dict[str, str] = {}
    incomplete_values: set[ir.Value] = set()
    for node in reversed(nodes):
        output_gradients = [values.get(v) for v in node.outputs]
        reads = (*node.inputs, *_iter_captured_values(node))
        needs_gradient = [v in differentiable for v in reads]
        is_incomplete = any(v in incomplete_values for v in node.outputs)
        input_gradients: Sequence[ir.Value | None] = ()
        if any(needs_gradient) and any(output_gradients):
            try:
                input_gradients = _apply_rule(tape, node, output_gradients, needs_gradient)
            except NotDifferentiable as why:
                unsupported_nodes[node.name or ""] = str(why)
                is_incomplete = True
        if is_incomplete:
            incomplete_values.update(v for v in reads if v in differentiable and v is not None)
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
    if bodies(node):
        raise NotDifferentiable(f"the bodies of {node.op_type} are not differentiated")
    if node.domain not in ONNX_DOMAINS or node.op_type not in RULES:
        raise NotDifferentiable(f"there is no rule for {node.op_type}")
    gradients = RULES[node.op_type](VjpContext(tape, node, output_gradients, needs_gradient))
    return [gradients] if gradients is None or isinstance(gradients, ir.Value) else gradients


def _collect_differentiable(tape: Tape, forward: Iterable[ir.Node]) -> set[ir.Value | None]:
    """Values that follow from an input and are floating-point, or written by a QuantizeLinear."""
    follows: set[ir.Value | None] = {v for v in tape.graph.inputs if tape.constant_value(v) is None}
    differentiable: set[ir.Value | None] = {v for v in follows if v is not None and _is_floating_point(v)}
    for node in forward:
        if any(v in follows for v in (*node.inputs, *_iter_captured_values(node))):
            computed = [v for v in node.outputs if tape.constant_value(v) is None]
            follows.update(computed)
            is_quantizer = node.op_type == "QuantizeLinear"
            differentiable.update(v for v in computed if is_quantizer or _is_floating_point(v))
    return differentiable


def _is_floating_point(value: ir.Value) -> bool:
    # A value of unknown type may be one: its rule decides.
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


__all__ = ["RULES", "Gradients", "Tape", "differentiate"]
