"""Readers and writers that take part in no fusion: they stand where a part was cut.

So no value becomes an output or an input there: a compiler writes and reads these in the layout that it is asked for,
and may give up a fusion for that.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rtlab.core.model import Model
from rtlab.quantize.edit import Edit

_FLOATS = frozenset({"fp32", "fp16"})
#: Dimensions of an image or a volume, which a pooling reads; other tensors are read by a product.
_POOLED = (4, 5)


def has_neutral_reader(model: Model, value: str) -> bool:
    """Whether there is a neutral reader for a value."""
    shape = model.sizes().get(value)
    return shape is not None and 2 <= len(shape) <= _POOLED[-1] and model.values[value].dtype in _FLOATS


def add_reader(edit: Edit, value: ir.Value) -> None:
    """Let a neutral reader read a value, where there is one for it; its result is an output.

    Poolings and products were found to stay steps of their own, and to leave what writes their input as it is.
    """
    name = value.name or ""
    if not has_neutral_reader(edit.model, name):
        edit.graph.outputs.append(value)
        return
    shape = edit.model.sizes().get(name) or ()
    # Sizes that are open stay so.
    dims = tuple(value.shape) if value.shape is not None and len(value.shape) == len(shape) else shape
    output = ir.Value(
        name=edit.make_value_name(f"{name}/read"),
        type=value.type,
        shape=ir.Shape(dims if len(shape) in _POOLED else (*dims[:-1], 4)),
    )
    title = edit.make_node_name(f"{name}/neutral")
    if len(shape) in _POOLED:
        node = _make_pooling(value, output, title, len(shape) - 2)
    else:
        weight = edit.add_constant(
            f"{name}/weight", np.ones((shape[-1], 4), (value.dtype or ir.DataType.FLOAT).numpy())
        )
        node = ir.Node("", "MatMul", [value, weight], outputs=[output], name=title)
    edit.graph.append(node)
    edit.graph.outputs.append(output)
    edit.nodes[title], edit.values[output.name or ""] = node, output


def add_writer(edit: Edit, value: ir.Value, graph_input: ir.Value) -> ir.Value:
    """What a neutral writer makes of an input, ``graph_input``, that stands for a value; the input itself without one.

    A pooling alone is neutral: a product may take what reads it into its own step.
    """
    name = value.name or ""
    shape = edit.model.sizes().get(name) or ()
    if not has_neutral_reader(edit.model, name) or len(shape) not in _POOLED:
        return graph_input
    output = ir.Value(name=edit.make_value_name(f"{name}/pooled"), type=value.type, shape=value.shape)
    title = edit.make_node_name(f"{name}/pool")
    node = _make_pooling(graph_input, output, title, len(shape) - 2)
    edit.graph.append(node)
    edit.nodes[title], edit.values[output.name or ""] = node, output
    return output


def _make_pooling(source: ir.Value, output: ir.Value, title: str, area: int) -> ir.Node:
    """A pooling that keeps the shape."""
    attributes = {"kernel_shape": [3] * area, "pads": [1] * (2 * area), "strides": [1] * area}
    onnx_attributes = ir.convenience.convert_attributes(attributes)
    return ir.Node("", "MaxPool", [source], onnx_attributes, outputs=[output], name=title)


def add_neutral_readers(model: Model, ends: frozenset[str], *, alone: bool = False) -> Model:
    """A part with neutral readers at its rim: of outputs that are none of ``ends``, those of the whole model.

    Where it is ``alone``, nobody outside reads what somebody in the part reads.
    """
    edit = Edit(model, source=True)
    cut = [v for v in edit.graph.outputs if v.name not in ends]
    edit.graph.outputs[:] = [v for v in edit.graph.outputs if v.name in ends]
    for value in cut:
        if not alone or not value.uses():
            add_reader(edit, value)
    edit.sort_and_reindex()
    return edit.model
