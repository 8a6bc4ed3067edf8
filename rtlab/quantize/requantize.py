"""Changing the quantize and dequantize pairs of a graph under edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.core.precision import quantize_linear
from rtlab.quantize.qdq import VIEWS, QdqPair, get_constant, get_constant_tensor, is_nonnegative
from rtlab.quantize.rewrite import quantize_weight, require_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.edit import Edit

#: Integers of a stored weight and its FP32 scales.
Stored = tuple["NDArray[np.int8]", "NDArray[np.float32]"]


class QdqEditor:
    """The steps of repairs; each leaves the graph valid but for the order (``Edit.sort_and_reindex``)."""

    def __init__(self, edit: Edit) -> None:
        self._edit, self.graph, self.add_constant = edit, edit.graph, edit.add_constant

    # --- pairs ----------------------------------------------------------------------------------------------

    def remove(self, pair: QdqPair, replacement: ir.Value | None = None) -> None:
        """Let everything that reads the pair read what enters it, or ``replacement``."""
        if pair.dq.graph is None:
            return
        source = self.get_rectified_source(pair) if replacement is None else replacement
        out = pair.out
        if out.is_graph_output():
            self._replace_output(out, source)
        out.replace_all_uses_with(source)
        self._drop(pair.dq)

    def get_rectified_source(self, pair: QdqPair) -> ir.Value:
        """What enters a pair; behind a Relu, where the pair itself cuts what is below zero."""
        # Read now: an earlier repair may have changed it.
        source = _get_source(pair)
        if not pair.rectifies or is_nonnegative(source) or pair.q is None:
            return source
        return self.insert_node("Relu", f"{pair.id}/Relu", [source], pair.q, like=source, origin=pair.id)

    def reroute(self, node: ir.Node, position: int, value: ir.Value) -> None:
        """Let one input of a node read another value, and remove what is not read any more."""
        old_value = node.inputs[position]
        if node.graph is None or old_value is value:
            return
        node.replace_input_with(position, value)
        if old_value is not None and (maker := old_value.producer()) is not None:
            self._drop(maker)

    def remove_all(self, pairs: Iterable[QdqPair], replacement: ir.Value | None = None) -> None:
        """Remove each of the pairs; arguments are those of ``remove``."""
        for pair in pairs:
            self.remove(pair, replacement)

    def release(self, edge: tuple[ir.Node, int, QdqPair], weights: Iterable[QdqPair]) -> None:
        """Let one input read what enters its pair, and store these weights in FP32."""
        node, position, pair = edge
        if node.graph is not None and pair.dq.graph is not None:
            self.reroute(node, position, self.get_rectified_source(pair))
        for weight in weights:
            self.dequantize_weight(weight)

    def rescale_all(self, pairs: Iterable[QdqPair], scale: float) -> None:
        """Give all of the pairs one scale."""
        for pair in dict.fromkeys(pairs):
            self.rescale(pair, scale)

    def move(self, pair: QdqPair, activation: ir.Node) -> None:
        """Put a pair behind the only node that reads it."""
        if pair.q is None or pair.dq.graph is None or activation.graph is None:
            return
        out = activation.outputs[0]
        readers = [use for use in out.uses() if use.node.graph is self.graph]
        position = next(i for i, v in enumerate(activation.inputs) if v is pair.out)
        activation.replace_input_with(position, _get_source(pair))
        self.graph.remove([pair.q, pair.dq])
        self.graph.insert_after(activation, [pair.q, pair.dq])
        pair.q.replace_input_with(0, out)
        for use in readers:
            use.node.replace_input_with(use.idx, pair.out)
        for value in (*pair.q.outputs, pair.out):
            value.shape = out.shape

    def rescale(self, pair: QdqPair, scale: float) -> None:
        """Give a pair, and all that share its QuantizeLinear, one scale for the tensor, INT8 and zero point 0."""
        if pair.dq.graph is None:
            return
        nodes = [u.node for u in pair.q.outputs[0].uses()] if pair.q is not None else []
        if pair.q is not None:
            pair.q.replace_input_with(0, self.get_rectified_source(pair))
        size = self.add_constant(f"{pair.id}/scale", np.array(scale, _get_scale_dtype(pair)))
        zero = self.add_constant(f"{pair.id}/zero_point", np.zeros((), np.int8))
        for node in dict.fromkeys([pair.q or pair.dq, pair.dq, *nodes]):
            old = list(node.inputs[1:])
            node.resize_inputs(3)
            node.replace_input_with(1, size)
            node.replace_input_with(2, zero)
            for name in ("axis", "output_dtype"):
                node.attributes.pop(name, None)
            self._remove_unused(old)
        if pair.q is not None:
            pair.q.outputs[0].type = ir.TensorType(ir.DataType.INT8)

    def flatten(self, pair: QdqPair) -> None:
        """Store the scale and the zero point of one element as scalars."""
        nodes = [pair.q, *(u.node for u in pair.q.outputs[0].uses())] if pair.q is not None else [pair.dq]
        for node in nodes:
            for i in (1, 2):
                value = node.inputs[i] if len(node.inputs) > i else None
                array = get_constant(value)
                if value is None or array is None or array.shape != (1,):
                    continue
                maker = value.producer()
                node.replace_input_with(i, self.add_constant(f"{value.name}/scalar", array.reshape(())))
                self._remove_unused([value])
                if maker is not None:
                    self._drop(maker)
            node.attributes.pop("axis", None)

    # --- weights --------------------------------------------------------------------------------------------

    def store(self, pair: QdqPair, weight: Stored, axis: int | None) -> None:
        """Let a weight's pair dequantize these integers."""
        if pair.dq.graph is None:
            return
        values, scale = weight
        old, maker = list(pair.dq.inputs), pair.q
        pair.dq.resize_inputs(3)
        scale = scale.astype(_get_scale_dtype(pair))
        pair.dq.replace_input_with(0, self.add_constant(f"{pair.dq.name}/int8", values))
        pair.dq.replace_input_with(1, self.add_constant(f"{pair.dq.name}/scale", scale))
        pair.dq.replace_input_with(2, self._add_zero_point(pair.dq.name, scale))
        pair.dq.attributes.pop("axis", None)
        if axis is not None:
            pair.dq.attributes["axis"] = ir.AttrInt64("axis", axis)
        if maker is not None:
            self._drop(maker)
        self._remove_unused(old)

    def _add_zero_point(self, name: str | None, scale: NDArray[Any]) -> ir.Value:
        """Zero points of a weight, without which ONNX Runtime 1.23 loses its type before a Transpose."""
        return self.add_constant(f"{name}/zero_point", np.zeros(scale.shape, np.int8))

    def dequantize_weight(self, pair: QdqPair) -> None:
        """Store a weight or a bias as the FP32 numbers that it is dequantized to."""
        if pair.dq.graph is not None:
            numbers = dequantize(pair).astype(_get_scale_dtype(pair))
            self.remove(pair, self.add_constant(f"{pair.dq.name}/float", numbers))

    def quantize(self, node: ir.Node, slot: int, axis: int) -> None:
        """Store the FP32 weight of a node as INT8 with one scale per channel; ``axis`` is the stored weight's."""
        reader, position = node, slot
        value = node.inputs[slot]
        while value is not None and (maker := value.producer()) is not None and maker.op_type != "Constant":
            reader, position, value = maker, 0, maker.inputs[0]
        array = get_constant(value)
        if value is None or array is None or node.graph is None:
            return
        weight = require_finite(np.asarray(array, np.float32), value.name or "", node.name or "")
        numbers, scale = quantize_weight(weight, axis)
        name = f"{node.name}/weight"
        inputs = [self.add_constant(f"{name}/int8", numbers), self.add_constant(f"{name}/scale", scale)]
        inputs.append(self._add_zero_point(name, scale))
        floats = self.insert_node(
            "DequantizeLinear", f"{name}/DequantizeLinear", inputs, reader,
            attributes=[ir.AttrInt64("axis", axis)], like=value, origin=node.name,
        )  # fmt: skip
        reader.replace_input_with(position, floats)
        self._remove_unused([value])

    def insert_pair(self, node: ir.Node, position: int, scale: float) -> None:
        """Quantize an activation for one reader, symmetrically with one scale."""
        value = node.inputs[position]
        if value is None or node.graph is None:
            return
        name = f"{node.name}/input{position or ''}"
        size = self.add_constant(f"{name}/scale", np.array(scale, np.float32))
        zero = self.add_constant(f"{name}/zero_point", np.zeros((), np.int8))
        reads = [value, size, zero]
        q = self.insert_node("QuantizeLinear", f"{name}/QuantizeLinear", reads, node, like=value)
        q.type = ir.TensorType(ir.DataType.INT8)
        floats = self.insert_node("DequantizeLinear", f"{name}/DequantizeLinear", [q, size, zero], node)
        node.replace_input_with(position, floats)

    # --- operators ------------------------------------------------------------------------------------------

    def insert_node(
        self,
        op: str,
        name: str,
        inputs: Sequence[ir.Value | None],
        before: ir.Node,
        *,
        attributes: Sequence[ir.Attr] = (),
        like: ir.Value | None = None,
        origin: str | None = None,
    ) -> ir.Value:
        """The output of a new node before another one, which is its origin unless ``origin`` is another.

        ``like`` gives type and shape; without, what is dequantized has the type of its scale.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        new_node = ir.Node("", op, inputs, attributes, name=self._edit.make_node_name(name))
        new_node.metadata_props[ORIGIN] = before.name or "" if origin is None else origin
        out = new_node.outputs[0]
        out.name = self._edit.make_value_name(f"{new_node.name}/output")
        if like is not None:
            out.type, out.shape = like.type, like.shape
        elif op == "DequantizeLinear" and inputs[0] is not None and inputs[1] is not None:
            out.type, out.shape = inputs[1].type or ir.TensorType(ir.DataType.FLOAT), inputs[0].shape
        self.graph.insert_before(before, new_node)
        return out

    def take_over(self, node: ir.Node, value: ir.Value) -> None:
        """Let a value take the name and the readers of a node's output; what only served the node is removed."""
        out = node.outputs[0]
        name = out.name
        self._set_graph_output(out, value)
        out.replace_all_uses_with(value)
        out.name, value.name = self._edit.make_value_name(f"{name}/before"), name
        self._drop(node, force=True)

    def insert_after(
        self,
        node: ir.Node,
        out: ir.Value,
        op: str,
        parameters: Sequence[ir.Value | None],
        kind: ir.TypeProtocol | None,
    ) -> None:
        """Put a node behind an output of another one: it takes over the name and the readers, and has this type."""
        name = out.name or ""
        new_node = ir.Node("", op, [out, *parameters], name=self._edit.make_node_name(f"{node.name}/{op}"))
        new_node.metadata_props[ORIGIN] = node.name or ""
        self._set_graph_output(out, new_node.outputs[0])
        out.replace_all_uses_with(new_node.outputs[0])
        new_node.replace_input_with(0, out)
        out.name = self._edit.make_value_name(f"{name}/floats")
        new_node.outputs[0].name, new_node.outputs[0].type, new_node.outputs[0].shape = name, kind, out.shape
        self.graph.insert_after(node, new_node)

    # --- the graph ------------------------------------------------------------------------------------------

    def _replace_output(self, out: ir.Value, source: ir.Value) -> None:
        """Keep the name of a model's output when what it came from takes its place."""
        maker = source.producer()
        name = out.name
        if maker is None or source.is_graph_output() or maker.graph is not self.graph:
            keep = ir.Node("", "Identity", [source], name=self._edit.make_node_name(f"{name}/Identity"))
            keep.metadata_props[ORIGIN] = (out.producer() or keep).name or ""
            self.graph.append(keep)
            source = keep.outputs[0]
        out.name = self._edit.make_value_name(f"{name}/quantized")
        source.name, source.type, source.shape = name, out.type, out.shape
        self._set_graph_output(out, source)

    def _set_graph_output(self, out: ir.Value, value: ir.Value) -> None:
        """Let a value take the place of another among the model's outputs."""
        for i, end in enumerate(self.graph.outputs):
            if end is out:
                self.graph.outputs[i] = value

    def _drop(self, node: ir.Node, *, force: bool = False) -> None:
        """Remove a node that is not read, and what only it read, as far as these serve quantization, or ``force``."""
        stack = [node]
        while stack:
            node = stack.pop()
            is_read = any(v.uses() or v.is_graph_output() for v in node.outputs)
            if node.graph is not self.graph or is_read or not (force or _is_quantization_node(node)):
                continue
            input_values = [v for v in node.inputs if v is not None]
            self.graph.remove(node, safe=True)
            stack += [m for v in input_values if (m := v.producer()) is not None]
            self._remove_unused(input_values)

    def _remove_unused(self, values: Sequence[ir.Value | None]) -> None:
        for value in values:
            maker = None if value is None else value.producer()
            if maker is not None and maker.op_type == "Constant":
                self._drop(maker)


def _is_quantization_node(node: ir.Node) -> bool:
    """Whether a node is there for quantization: a part of a pair, or a constant on its way there."""
    pairs = {"QuantizeLinear", "DequantizeLinear", "Constant"}
    return node.op_type in pairs or get_constant_tensor(node.outputs[0], VIEWS) is not None


def _get_source(pair: QdqPair) -> ir.Value:
    """What enters a pair now."""
    value = pair.q.inputs[0] if pair.q is not None else pair.source
    return pair.source if value is None else value


def _get_scale_dtype(pair: QdqPair) -> np.dtype[Any]:
    """The type of a pair's scale, which is that of what it gives."""
    scale = get_constant(pair.dq.inputs[1])
    return np.dtype(np.float32) if scale is None else scale.dtype


def compute_integers(pair: QdqPair) -> NDArray[np.int32]:
    """What a weight's pair holds, less its zero point."""
    stored = np.asarray(get_constant(pair.source))
    scale, zero = (
        broadcast_parameters(pair, pair.scale),
        broadcast_parameters(pair, pair.zero).astype(np.int32),
    )
    if pair.q is not None:
        stored = quantize_linear(np.asarray(stored, np.float32), scale, zero, pair.bounds)
    return np.asarray(stored.astype(np.int32) - zero, np.int32)


def dequantize(pair: QdqPair) -> NDArray[np.float32]:
    """The FP32 numbers that a weight's pair gives."""
    scale = broadcast_parameters(pair, pair.scale)
    return np.asarray(compute_integers(pair).astype(np.float32) * scale, np.float32)


def quantize_symmetric(pair: QdqPair, axis: int | None) -> tuple[Stored, bool]:
    """A weight as INT8 with zero point 0, and whether its numbers are the same.

    Integers that fit are kept. Otherwise it is quantized anew per channel of ``axis``, or with one scale where that is
    None.
    """
    numbers = compute_integers(pair)
    fits = numbers.size == 0 or (numbers.min() >= -128 and numbers.max() <= 127)
    if fits and axis == pair.axis and pair.scale is not None:
        return (numbers.astype(np.int8), pair.scale.reshape(() if axis is None else (-1,))), True
    return quantize_weight(dequantize(pair), axis), False


def broadcast_parameters(pair: QdqPair, numbers: NDArray[Any] | None) -> NDArray[Any]:
    """Scales or zero points in a shape that broadcasts over the tensor."""
    flat = np.zeros(1, np.float32) if numbers is None else numbers.ravel()
    if flat.size == 1:
        return flat.reshape(())
    if pair.axis is None or pair.source.shape is None:
        return flat
    return flat.reshape([-1 if i == pair.axis else 1 for i in range(len(pair.source.shape))])
