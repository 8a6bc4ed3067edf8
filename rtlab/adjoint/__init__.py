"""Gradients of an ONNX graph as an ONNX graph: one rule for each operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

import onnx_ir as ir

from rtlab.adjoint.rules import RULES
from rtlab.adjoint.tape import Tape, Unruled

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


@dataclasses.dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients as values of the graph.

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

    Args:
        tape: Writes to the graph.
        nodes: Those of the forward part, in their order.
        seeds: By output what it is multiplied with, of its shape.
        beyond: Whether the gradient of a value is not asked for, nor that of anything that it follows from.
    """
    values: dict[ir.Value, ir.Value] = dict(seeds)
    edges: dict[tuple[ir.Node, int], ir.Value] = {}
    stopped: dict[str, str] = {}
    lacking: set[ir.Value] = set()
    for node in reversed(list(nodes)):
        given = [values.get(v) for v in node.outputs]
        if any(v in lacking for v in node.outputs):
            lacking.update(v for v in node.inputs if v is not None)
        if not any(g is not None for g in given):
            continue
        wanted = [
            v is not None and _continuous(v) and tape.number(v) is None and not beyond(v) for v in node.inputs
        ]
        if not any(wanted):
            continue
        rule = RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None
        try:
            found = (rule or _unruled)(tape, node, given, wanted)
        except Unruled as why:
            stopped[node.name or ""] = str(why)
            lacking.update(v for v, w in zip(node.inputs, wanted, strict=True) if w and v is not None)
            continue
        for i, (value, gradient) in enumerate(zip(node.inputs, found, strict=False)):
            if value is None or gradient is None or not wanted[i]:
                continue
            edges[node, i] = gradient
            before = values.get(value)
            values[value] = gradient if before is None else tape.op("Add", before, gradient)
    return Gradients(values, edges, stopped, frozenset(lacking))


def _unruled(_: Tape, node: ir.Node, *__: object) -> NoReturn:
    raise Unruled(f"there is no rule for {node.op_type}")


def _continuous(value: ir.Value) -> bool:
    maker = value.producer()
    return value.dtype in _FLOATS or (maker is not None and maker.op_type == "QuantizeLinear")


__all__ = ["Gradients", "Tape", "Unruled", "differentiate"]
