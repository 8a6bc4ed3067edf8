"""Sibling convolutions as one wider convolution and a Split: the middle of TensorRT's famous figure as a rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: From this opset on a Split has its sizes as an input.
_SIZED = 13
_WINDOW = {"kernel_shape": None, "strides": 1, "pads": 0, "dilations": 1}


def find_siblings(model: Model, node: Node) -> tuple[str, ...]:
    """The convolutions that one wider one could stand for, of which a node is the first; empty where there is none.

    They read one value through equal windows, in one group, with weights that are constant.
    """
    if node.op != "Conv" or node.scope:
        return ()
    key = _compute_merge_key(model, node)
    group = [
        n
        for n in model.consumers.get(node.inputs[0], ())
        if key is not None and _compute_merge_key(model, n) == key
    ]
    alike = tuple(n.id for n in group)
    return alike if len(alike) > 1 and alike[0] == node.id else ()


def _compute_merge_key(model: Model, node: Node) -> tuple[Any, ...] | None:
    """What siblings have in common; None for a node that can have none."""
    if node.op != "Conv" or node.attributes.get("group", 1) != 1:
        return None
    constants = [v for v in node.inputs[1:] if v]
    if not constants or not all(v in model.known for v in constants):
        return None
    weight = model.known[node.inputs[1]]
    window = []
    for name, default in _WINDOW.items():
        attribute = node.attributes.get(name)
        window.append(
            None if isinstance(attribute, list) and set(attribute) == {default} else repr(attribute)
        )
    kernel = tuple(weight.shape.numpy())[1:]
    return (node.inputs[0], kernel, *window[1:], node.attributes.get("auto_pad", "NOTSET"), weight.dtype)


def merge(edit: Edit, first: str, group: tuple[str, ...]) -> None:
    """Put one convolution with the weights of all in the place of siblings.

    Weights and biases stand one after the other along the output channels, so that each output is computed from the
    same numbers as before.
    """
    model, tensors = edit.model, edit.model.known
    nodes = [model.by_id[n] for n in group]
    weights = [tensors[n.inputs[1]].numpy() for n in nodes]
    widths = [len(w) for w in weights]
    original = edit.nodes[first]
    source = original.inputs[0]
    assert source is not None  # noqa: S101 - a convolution reads something
    inputs = [source, edit.add_constant(f"{first}/merged_weight", np.concatenate(weights))]
    biases = [tensors[n.inputs[2]].numpy() if len(n.inputs) > 2 and n.inputs[2] else None for n in nodes]
    if any(b is not None for b in biases):
        bias_arrays = [
            np.zeros(w, weights[0].dtype) if b is None else b for b, w in zip(biases, widths, strict=True)
        ]
        inputs.append(edit.add_constant(f"{first}/merged_bias", np.concatenate(bias_arrays)))
    like = original.outputs[0]
    wide = edit.insert("Conv", f"{first}/merged", inputs, origin=first, like=like, before=first)
    maker = wide.producer()
    assert maker is not None  # noqa: S101 - it was just made
    for name, attribute in original.attributes.items():
        maker.attributes[name] = attribute
    if like.shape is not None:
        wide.shape = ir.Shape([sum(widths) if i == 1 else d for i, d in enumerate(like.shape)])
    attributes: dict[str, Any] = {"axis": 1}
    split_inputs = [wide]
    if model.opset >= _SIZED:
        split_inputs.append(edit.add_constant(f"{first}/merged_widths", np.array(widths, np.int64)))
    else:
        attributes["split"] = widths
    split_node = ir.Node(
        "", "Split", split_inputs, ir.convenience.convert_attributes(attributes), num_outputs=len(group),
        name=edit.make_node_name(f"{first}/parted"), metadata_props={ORIGIN: first},
    )  # fmt: skip
    edit.graph.insert_before(original, split_node)
    for node, out in zip(group, split_node.outputs, strict=True):
        out.name = edit.make_value_name(f"{node}/parted")
    edit.sort_and_reindex()
    for node, out in zip(group, tuple(split_node.outputs), strict=True):
        edit.substitute(out, edit.nodes[node])
