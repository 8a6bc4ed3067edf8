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


def fits(model: Model, value: str) -> bool:
    """Whether there is a neutral reader for a value."""
    shape = model.sizes().get(value)
    return shape is not None and 2 <= len(shape) <= _POOLED[-1] and model.values[value].dtype in _FLOATS


def read(edit: Edit, value: ir.Value) -> None:
    """Let a neutral reader read a value, where there is one for it; its result is an output.

    Poolings and products were found to stay steps of their own, and to leave what writes their input as it is.
    """
    name = value.name or ""
    if not fits(edit.model, name):
        edit.graph.outputs.append(value)
        return
    shape = edit.model.sizes().get(name) or ()
    # Sizes that are open stay so.
    dims = tuple(value.shape) if value.shape is not None and len(value.shape) == len(shape) else shape
    made = ir.Value(
        name=edit.value_name(f"{name}/read"),
        type=value.type,
        shape=ir.Shape(dims if len(shape) in _POOLED else (*dims[:-1], 4)),
    )
    title = edit.node_name(f"{name}/neutral")
    if len(shape) in _POOLED:
        node = _pooling(value, made, title, len(shape) - 2)
    else:
        weight = edit.constant(
            f"{name}/weight", np.ones((shape[-1], 4), (value.dtype or ir.DataType.FLOAT).numpy())
        )
        node = ir.Node("", "MatMul", [value, weight], outputs=[made], name=title)
    edit.graph.append(node)
    edit.graph.outputs.append(made)
    edit.nodes[title], edit.values[made.name or ""] = node, made


def write(edit: Edit, value: ir.Value, given: ir.Value) -> ir.Value:
    """What a neutral writer makes of an input, ``given``, that stands for a value; the input itself without one.

    A pooling alone is neutral: a product may take what reads it into its own step.
    """
    name = value.name or ""
    shape = edit.model.sizes().get(name) or ()
    if not fits(edit.model, name) or len(shape) not in _POOLED:
        return given
    made = ir.Value(name=edit.value_name(f"{name}/pooled"), type=value.type, shape=value.shape)
    title = edit.node_name(f"{name}/pool")
    node = _pooling(given, made, title, len(shape) - 2)
    edit.graph.append(node)
    edit.nodes[title], edit.values[made.name or ""] = node, made
    return made


def _pooling(given: ir.Value, made: ir.Value, title: str, area: int) -> ir.Node:
    """A pooling that keeps the shape."""
    attributes = {"kernel_shape": [3] * area, "pads": [1] * (2 * area), "strides": [1] * area}
    told = ir.convenience.convert_attributes(attributes)
    return ir.Node("", "MaxPool", [given], told, outputs=[made], name=title)


def rimmed(model: Model, ends: frozenset[str], *, alone: bool = False) -> Model:
    """A part with neutral readers at its rim: of outputs that are none of ``ends``, those of the whole model.

    Where it is ``alone``, nobody outside reads what somebody in the part reads.
    """
    edit = Edit(model, source=True)
    cut = [v for v in edit.graph.outputs if v.name not in ends]
    edit.graph.outputs[:] = [v for v in edit.graph.outputs if v.name in ends]
    for value in cut:
        if not alone or not value.uses():
            read(edit, value)
    edit.settle()
    return edit.finish()
