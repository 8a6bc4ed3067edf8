"""A product with a constant matrix, computed in other ways than the model has it."""

from __future__ import annotations

import math

import numpy as np

from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode


def direct(layer: WeightedNode, graph: Fragment) -> str:
    """The product as the model has it."""
    inputs = [layer.data, graph.constant(layer.weight)]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    return graph.node(layer.op, *inputs, **layer.attributes)


def transposed_storage(layer: WeightedNode, graph: Fragment) -> str:
    """A Gemm whose weights are stored the other way round than in the model."""
    trans_b = bool(layer.attributes.get("transB"))
    inputs = [_flatten_rows(layer, graph), graph.constant(layer.matrix if trans_b else layer.matrix.T)]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    return _restore_shape(layer, graph, graph.node("Gemm", *inputs, transB=int(not trans_b)))


def weights_first(layer: WeightedNode, graph: Fragment) -> str:
    """The transposed product: weights by rows of data, with both transposed."""
    product = graph.node(
        "MatMul", graph.constant(layer.matrix.T), graph.transpose(_flatten_rows(layer, graph), (1, 0))
    )
    return _add_bias(layer, graph, graph.transpose(product, (1, 0)))


def halves_fit(layer: WeightedNode) -> str:
    """Whether both sides of the matrix can be halved."""
    return "the matrix is too small to be split" if min(layer.matrix.shape) < 2 else ""


def split_columns(layer: WeightedNode, graph: Fragment) -> str:
    """Two products, each with half of the outputs."""
    rows = _flatten_rows(layer, graph)
    parts = [
        graph.node("MatMul", rows, graph.constant(part)) for part in np.array_split(layer.matrix, 2, axis=1)
    ]
    return _add_bias(layer, graph, graph.node("Concat", *parts, axis=1))


def split_sum(layer: WeightedNode, graph: Fragment) -> str:
    """Two products, each with half of the sum, then added."""
    rows, depth = _flatten_rows(layer, graph), len(layer.matrix)
    half = -(-depth // 2)
    parts = [
        graph.node("MatMul", graph.cut(rows, (1,), (a,), (b,)), graph.constant(layer.matrix[a:b]))
        for a, b in ((0, half), (half, depth))
    ]
    return _add_bias(layer, graph, graph.node("Add", *parts))


def as_convolution(layer: WeightedNode, graph: Fragment) -> str:
    """A convolution of 1×1: the rows are pixels."""
    depth, outputs = layer.matrix.shape
    count = _count_rows(layer)
    pixels = graph.reshape(graph.transpose(_flatten_rows(layer, graph), (1, 0)), (1, depth, 1, count))
    inputs = [pixels, graph.constant(layer.matrix.T.reshape(outputs, depth, 1, 1))]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    output = graph.reshape(graph.node("Conv", *inputs), (outputs, count))
    return _restore_shape(layer, graph, graph.transpose(output, (1, 0)))


def _count_rows(layer: WeightedNode) -> int:
    return math.prod(layer.shape[:-1])


def _flatten_rows(layer: WeightedNode, graph: Fragment) -> str:
    """The data as a matrix."""
    return (
        layer.data
        if len(layer.shape) == 2
        else graph.reshape(layer.data, (_count_rows(layer), layer.shape[-1]))
    )


def _add_bias(layer: WeightedNode, graph: Fragment, value: str) -> str:
    if layer.bias is not None:
        value = graph.node("Add", value, graph.constant(layer.bias))
    return _restore_shape(layer, graph, value)


def _restore_shape(layer: WeightedNode, graph: Fragment, value: str) -> str:
    if len(layer.shape) == 2:
        return value
    return graph.reshape(value, (*layer.shape[:-1], layer.matrix.shape[1]))
