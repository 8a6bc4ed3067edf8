"""The batch that constants inside a graph demand, although its inputs leave it open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import onnx_ir as ir

from rtlab.core.sizes import Sizes

Constants: TypeAlias = Mapping[str, ir.TensorProtocol]

#: Initial states of recurrent nodes: directions, batch, width.
_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}


def find_written_batch(graph: ir.Graph, constants: Constants, sizes: Callable[[int], Sizes]) -> int:
    """The only batch that a model of an open batch can be run with; 0 where nothing in it fixes one.

    An exporter traces a model with one sample, and writes what it saw into a Reshape, into the first state of a
    recurrence, or into a constant that is joined to each sample. ``sizes`` gives the shapes of all values at a batch.
    """
    suspects = [n for n in graph if _may_fix(constants, n)]
    if not suspects:
        return 0
    one, two = sizes(1), sizes(2)
    for node in suspects:
        read = [v.name or "" if v is not None else "" for v in node.inputs]
        if node.op_type in _STATES:
            shapes = [
                _get_constant_shape(constants, read[at]) for at in _STATES[node.op_type] if len(read) > at
            ]
            sequence, twice = one.get(read[0]), two.get(read[0])
            if sequence and twice and (sequence[1:2], twice[1:2]) == ((1,), (2,)):
                return next(shape[1] for shape in shapes if shape)
        elif node.op_type == "Concat":
            open_ = [(one.get(v), two.get(v)) for v in read if not _get_constant_shape(constants, v)]
            if any(a and b and (a[0], b[0]) == (1, 2) for a, b in open_):
                return next(shape[0] for v in read if (shape := _get_constant_shape(constants, v)))
        else:
            sample, twice = one.get(read[0]), two.get(read[0])
            target = math.prod(_get_reshape_target(constants, read[1]))
            size = math.prod(sample or ())
            if sample and twice and math.prod(twice) == 2 * size and target % size == 0:
                return target // size
    return 0


def _may_fix(constants: Constants, node: ir.Node) -> bool:
    """Whether a node has a constant in which a batch may be written."""
    if node.domain not in {"", "ai.onnx"}:
        return False
    read = [v.name or "" if v is not None else "" for v in node.inputs]
    if node.op_type == "Reshape" and len(read) > 1:
        target = _get_reshape_target(constants, read[1])
        return bool(target) and min(target) > 0
    if node.op_type in _STATES:
        return any(
            len(_get_constant_shape(constants, read[at])) == 3
            for at in _STATES[node.op_type]
            if len(read) > at
        )
    axis = node.attributes.get_int("axis", 0) if node.op_type == "Concat" else 0
    return axis != 0 and any(len(_get_constant_shape(constants, v)) > 1 for v in read)


def _get_constant_shape(constants: Constants, name: str) -> tuple[int, ...]:
    """The shape of a constant; empty for what is none."""
    constant = constants.get(name)
    return tuple(int(d) for d in constant.shape.numpy()) if constant is not None else ()


def _get_reshape_target(constants: Constants, name: str) -> tuple[int, ...]:
    """The numbers of a constant of one dimension; empty for what is none."""
    constant = constants.get(name)
    return (
        tuple(int(n) for n in constant.numpy()) if constant is not None and len(constant.shape) == 1 else ()
    )
