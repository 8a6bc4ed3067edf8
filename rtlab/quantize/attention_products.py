"""ONNX's Attention operator as two products with a softmax between, in the form that compilers have a kernel for.

The function that ONNX defines it by computes sizes, masks and the guard of rows without a key by some ninety nodes,
between which TensorRT-RTX 1.7.1 fuses nothing quantized.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.attention import read_operator_sizes
from rtlab.quantize import passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: A key that is masked: the lowest number of FP16, which every type of floats has.
_MASKED = -65504.0
#: Dimensions of one tensor for all heads, and of one with an axis of heads.
_FLAT, _BY_HEAD = 3, 4
#: Positions among the inputs: the mask, and the first of a cache.
_MASK, _CACHE = 3, 4


@dataclasses.dataclass(frozen=True)
class WrittenAttention:
    """Values of an attention in products.

    Attributes:
        nodes: Ids of the nodes that are new.
        probabilities: What the softmax writes.
        sources: Values that hold the numbers of one of the operator's own, in another order, by name.
    """

    nodes: tuple[str, ...]
    probabilities: str
    sources: dict[str, str]


def explain_unwritable(model: Model, node: Node) -> str:
    """Why an Attention, of static sizes, cannot be written as products; empty where it can."""
    shapes = [model.values[v].shape or () for v in node.inputs[:3]]
    rank, key_length = len(shapes[0]), shapes[1][-2] if len(shapes[1]) > 1 else None
    sizes = [_get_heads_and_size(model, node, i) for i in range(3)]
    mask = node.inputs[_MASK] if len(node.inputs) > _MASK else ""
    width = (model.values[mask].shape or (None,))[-1] if mask in model.values else None
    if any(node.inputs[_CACHE:]) or any(node.outputs[1:]):
        cause = "with a cache, or with its scores as an output,"
    elif node.attributes.get("softcap") or "softmax_precision" in node.attributes:
        cause = "with a cap of its scores, or with a type of its softmax,"
    elif rank not in {_FLAT, _BY_HEAD} or any(
        len(s) != rank or None in z for s, z in zip(shapes, sizes, strict=True)
    ):
        cause = "of sizes that are not static"
    elif len({z[1] for z in sizes}) > 1 or sizes[1] != sizes[2] or sizes[0][0] % sizes[1][0]:  # type: ignore[operator]
        cause = "whose values have other channels than its keys"
    elif mask and width not in {1, key_length}:
        cause = "whose mask has another length than its keys"
    else:
        return ""
    return f"an Attention {cause} is not written out as products"


def write_out(nodes: Sequence[str], written: list[WrittenAttention]) -> passes.Pass:
    """Attention as ``softmax(scale · q kᵀ + mask) v``; its second product takes its id.

    What it gives a row without any key differs: the mean of all values, and not NaN (opset 23) or 0.

    Args:
        nodes: Ids of nodes that can be written so.
        written: Takes in their values, in the order of ``nodes``.
    """

    def edit_graph(edit: Edit) -> None:
        model, masks = edit.model, dict[tuple[object, ...], ir.Value]()
        written.extend(_Writer(edit, model.by_id[n], model, masks).write() for n in nodes)

    promises = (passes.INTERFACE, passes.VALUES, passes.ORIGINS, passes.ORDER, passes.TYPES, passes.NUMBERS)
    return passes.Pass("attention in products", edit_graph, promises)


def _get_heads_and_size(model: Model, node: Node, position: int) -> tuple[int | None, int | None]:
    """Heads of one of queries, keys and values, and their channels; None for what is not static."""
    shape = model.values[node.inputs[position]].shape or ()
    width: object = shape[-1] if shape else None
    heads: object = (
        shape[1]
        if len(shape) == _BY_HEAD
        else node.attributes.get(("kv" if position else "q") + "_num_heads")
    )
    if len(shape) == _FLAT and isinstance(width, int) and isinstance(heads, int) and heads:
        width //= heads
    return heads if isinstance(heads, int) else None, width if isinstance(width, int) else None


class _Writer:
    """One node on the way to products."""

    def __init__(
        self, edit: Edit, node: Node, model: Model, masks: dict[tuple[object, ...], ir.Value]
    ) -> None:
        self.edit, self.node, self.masks = edit, node, masks
        sizes = read_operator_sizes(model, node)
        assert sizes.lengths is not None and sizes.head_size is not None  # noqa: S101, PT018 - it can be written so
        self.lengths, self.size = sizes.lengths, sizes.head_size
        self.heads = [_get_heads_and_size(model, node, i)[0] or 1 for i in range(3)]
        self.is_flat = len(model.values[node.inputs[0]].shape or ()) == _FLAT
        self.sources: dict[str, str] = {}
        self.nodes: list[ir.Node] = []

    def write(self) -> WrittenAttention:
        edit, node = self.edit, self.node
        old = edit.nodes[node.id]
        queries, keys, values = (self.arrange(i) for i in range(3))
        scores = self.put("scores", "MatMul", [queries, keys], self.lengths)
        dtype = scores.dtype or ir.DataType.FLOAT
        factor = node.attributes.get("scale") or 1 / math.sqrt(self.size)
        scores = self.put("scale", "Mul", [scores, self.make_number("factor", factor, dtype)], self.lengths)
        if len(old.inputs) > _MASK and (mask := old.inputs[_MASK]) is not None:
            if mask.dtype == ir.DataType.BOOL:
                masked = self.make_number("masked", _MASKED, dtype)
                scores = self.put("mask", "Where", [mask, scores, masked], self.lengths, dtype)
            else:
                scores = self.put("mask", "Add", [scores, mask], self.lengths)
        if node.attributes.get("is_causal"):
            scores = self.put("causal", "Add", [scores, self.get_causal_mask(dtype)], self.lengths)
        shares = self.put("softmax", "Softmax", [scores], self.lengths, axis=-1)
        context = self.put("context", "MatMul", [shares, values], (self.lengths[0], self.size))
        product, result = context.producer(), context
        if self.is_flat:
            self.sources[context.name or ""] = node.outputs[0]
            result = self.put("order", "Transpose", [context], perm=[0, 2, 1, 3])
            result = self.put("join", "Reshape", [result, self.make_shape(0, 0, self.heads[0] * self.size)])
        edit.substitute(result, old)
        assert product is not None  # noqa: S101 - it was inserted
        product.name = node.id
        edit.sort_and_reindex()
        nodes = tuple(n.name or "" for n in self.nodes if n is not product)
        return WrittenAttention(nodes, shares.name or "", self.sources)

    def arrange(self, position: int) -> ir.Value:
        """Queries, keys or values with an axis of heads, as many as there are of queries; keys turned."""
        source = self.edit.nodes[self.node.id].inputs[position]
        assert source is not None  # noqa: S101 - all three are required
        value, part, heads = source, ("queries", "keys", "values")[position], self.heads[position]
        length = self.lengths[position > 0]
        tail: tuple[int, ...] = (length, self.size)
        if self.is_flat:
            value = self.put(f"{part}/split", "Reshape", [value, self.make_shape(0, 0, heads, self.size)])
            value = self.put(f"{part}/order", "Transpose", [value], tail, heads=heads, perm=[0, 2, 1, 3])
        if heads != self.heads[0]:
            repeats = self.heads[0] // heads
            value = self.put(f"{part}/group", "Unsqueeze", [value, self.make_shape(2)])
            value = self.put(f"{part}/repeat", "Expand", [value, self.make_shape(1, 1, repeats, 1, 1)])
            shape = self.make_shape(0, self.heads[0], length, self.size)
            value = self.put(f"{part}/flatten", "Reshape", [value, shape], tail)
        if position == 1:
            value = self.put(f"{part}/turn", "Transpose", [value], tail[::-1], perm=[0, 1, 3, 2])
        if value is not source:
            self.sources[value.name or ""] = source.name or ""
        return value

    def put(
        self,
        title: str,
        op: str,
        inputs: list[ir.Value],
        tail: tuple[int, ...] = (),
        kind: ir.DataType | None = None,
        *,
        heads: int = 0,
        **attributes: Any,
    ) -> ir.Value:
        """A new node before the operator; ``tail`` are the last two dimensions of what it writes, if they are known."""
        place: dict[str, Any] = {"origin": self.edit.get_origin(self.node.id), "before": self.node.id}
        value = self.edit.insert(op, f"{self.node.id}/{title}", inputs, kind=kind, attrs=attributes, **place)
        maker = value.producer()
        assert maker is not None  # noqa: S101 - it was inserted
        self.nodes.append(maker)
        batch = self.edit.values[self.node.inputs[0]].shape
        value.shape = (
            ir.Shape([batch[0], heads or self.heads[0], *tail]) if tail and batch is not None else None
        )
        return value

    def make_shape(self, *sizes: int) -> ir.Value:
        return self.edit.add_constant(f"{self.node.id}/shape", np.array(sizes, np.int64))

    def make_number(self, title: str, number: Any, dtype: ir.DataType) -> ir.Value:
        return self.edit.add_constant(f"{self.node.id}/{title}", np.array(number, dtype.numpy()))

    def get_causal_mask(self, dtype: ir.DataType) -> ir.Value:
        """What hides the keys behind each query, one constant for all attentions of these lengths."""
        key = (*self.lengths, dtype)
        if key not in self.masks:
            mask = np.triu(np.full(self.lengths, _MASKED, dtype.numpy()), 1)
            self.masks[key] = self.edit.add_constant(f"{self.node.id}/causal_mask", mask)
        return self.masks[key]
