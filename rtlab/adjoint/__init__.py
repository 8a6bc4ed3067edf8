"""Gradients of an ONNX graph as an ONNX graph: one rule for each operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from rtlab.adjoint.rules import RULES
from rtlab.adjoint.site import Site
from rtlab.adjoint.tape import Tape, Unruled
from rtlab.core.node import ONNX_DOMAINS, bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients as values of the graph, in FP32 whatever the type of the forward part.

    Attributes:
        values: By value, of what was differentiated with respect to it, summed over all its readers.
        edges: The part that one reading edge has in it, by node and position of the input.
        stopped: Nodes that no rule covers, with what is in the way; nothing upstream of one has its whole gradient.
        lacking: The values whose gradient lacks a part for that.
    """

    values: Mapping[ir.Value, ir.Value]
    edges: Mapping[tuple[ir.Node, int], ir.Value]
    stopped: Mapping[str, str]
    lacking: frozenset[ir.Value]


def differentiate(
    tape: Tape,
    nodes: Iterable[ir.Node],
    seeds: Mapping[ir.Value, ir.Value],
    *,
    beyond: Callable[[ir.Value], bool],
) -> Gradients:
    """Append the gradients of a sum over products of outputs with seeds.

    What follows from constants alone has no gradient, nor has what is no number with a fraction: shapes, indices,
    comparisons. Nothing stops there; gradients stop at nodes without a rule, and at those with bodies.

    Args:
        tape: Writes to the graph.
        nodes: Those of the forward part, in their order.
        seeds: By output what it is multiplied with, of its shape.
        beyond: Whether the gradient of a value is not asked for, nor that of anything that it follows from.
    """
    forward = list(nodes)
    moving = _moving(tape, forward)
    values = {value: tape.real(seed) for value, seed in seeds.items()}
    edges: dict[tuple[ir.Node, int], ir.Value] = {}
    stopped: dict[str, str] = {}
    lacking: set[ir.Value] = set()
    for node in reversed(forward):
        given = [values.get(v) for v in node.outputs]
        reads = (*node.inputs, *_captured(node))
        asked = [v is not None and v in moving and not beyond(v) for v in reads]
        short = any(v in lacking for v in node.outputs)
        found: Sequence[ir.Value | None] = ()
        if any(asked) and any(g is not None for g in given):
            try:
                found = _found(tape, node, given, asked)
            except Unruled as why:
                stopped[node.name or ""] = str(why)
                short = True
        if short:
            lacking.update(v for v, w in zip(reads, asked, strict=True) if w and v is not None)
        for i, (value, gradient) in enumerate(zip(node.inputs, found, strict=False)):
            if value is None or gradient is None or not asked[i]:
                continue
            edges[node, i] = gradient
            before = values.get(value)
            values[value] = gradient if before is None else tape.op("Add", before, gradient)
    return Gradients(values, edges, stopped, frozenset(lacking))


def _found(
    tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], asked: Sequence[bool]
) -> Sequence[ir.Value | None]:
    """The gradients of a node's inputs."""
    rule = RULES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
    if bodies(node):
        raise Unruled(f"the bodies of {node.op_type} are not differentiated")
    if rule is None:
        raise Unruled(f"there is no rule for {node.op_type}")
    found = rule(Site(tape, node, given, asked))
    return [found] if found is None or isinstance(found, ir.Value) else found


def _moving(tape: Tape, forward: Iterable[ir.Node]) -> set[ir.Value]:
    """What has a slope: numbers with a fraction, or with the few bits of a quantizer, that follow from an input."""
    follows = {v for v in tape.graph.inputs if tape.number(v) is None}
    moving = {v for v in follows if _fractional(v)}
    for node in forward:
        if any(v in follows for v in (*node.inputs, *_captured(node)) if v is not None):
            mine = [v for v in node.outputs if tape.number(v) is None]
            follows.update(mine)
            moving.update(v for v in mine if _fractional(v) or node.op_type == "QuantizeLinear")
    return moving


def _fractional(value: ir.Value) -> bool:
    # One whose type nobody tells may be a number with a fraction: its rule, or what runs it, says so.
    return value.dtype is None or value.dtype.is_floating_point()


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """What the bodies of a node read from outside of them."""
    for body in bodies(node):
        graph = body.as_graph()
        inner: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
        for one in graph:
            for value in (*one.inputs, *_captured(one)):
                if value is not None and value not in inner:
                    yield value
            inner.update(one.outputs)
        yield from (v for v in graph.outputs if v not in inner)


__all__ = ["Gradients", "Tape", "Unruled", "differentiate"]
