"""Changing the quantize and dequantize pairs of a graph under edit: the strokes of which repairs are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ORIGIN
from rtlab.quantize.qdq import QdqPair, constant, nonnegative, root
from rtlab.quantize.rewrite import finite, quantize_weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.edit import Edit

#: Integers of a stored weight and its FP32 scales: what stands for it in the graph.
Stored = tuple["NDArray[np.int8]", "NDArray[np.float32]"]


class Hand:
    """The hand of a repair. Every method leaves a valid graph, save for the order of nodes (``Edit.settle``)."""

    def __init__(self, edit: Edit) -> None:
        self._edit, self.graph = edit, edit.graph

    # --- pairs ----------------------------------------------------------------------------------------------

    def remove(self, pair: QdqPair, stand: ir.Value | None = None) -> None:
        """Let everything that reads the pair read what enters it, or ``stand``."""
        if pair.dq.graph is None:
            return
        source = self.bare(pair) if stand is None else stand
        out = pair.out
        if out.is_graph_output():
            self._end(out, source)
        out.replace_all_uses_with(source)
        self._drop(pair.dq)

    def bare(self, pair: QdqPair) -> ir.Value:
        """What enters a pair; behind a Relu, where the pair itself cuts what is below zero."""
        # Not as it was read: an earlier repair may have changed what enters.
        source = _source(pair)
        if not pair.rectifies or nonnegative(source) or pair.q is None:
            return source
        return self.make("Relu", f"{pair.id}/Relu", [source], pair.q, like=source, origin=pair.id)

    def reroute(self, node: ir.Node, position: int, value: ir.Value) -> None:
        """Let one input of a node read another value; what nobody reads any more goes."""
        before = node.inputs[position]
        if node.graph is None or before is value:
            return
        node.replace_input_with(position, value)
        if before is not None and (maker := before.producer()) is not None:
            self._drop(maker)

    def remove_all(self, pairs: Iterable[QdqPair]) -> None:
        """Remove each of the pairs."""
        for pair in pairs:
            self.remove(pair)

    def share(self, pair: QdqPair, others: Iterable[QdqPair], scale: float | None) -> None:
        """Let what reads the other pairs read this one, with a new scale where one is given."""
        if scale is not None:
            self.rescale(pair, scale)
        for other in others:
            self.remove(other, pair.out)

    def release(self, edge: tuple[ir.Node, int, QdqPair], weights: Iterable[QdqPair]) -> None:
        """Let one input read what enters its pair, and store these weights in FP32."""
        node, position, pair = edge
        if node.graph is not None and pair.dq.graph is not None:
            self.reroute(node, position, self.bare(pair))
        for weight in weights:
            self.plain(weight)

    def rescale_all(self, pairs: Iterable[QdqPair], scale: float) -> None:
        """Give all of the pairs one scale."""
        for pair in dict.fromkeys(pairs):
            self.rescale(pair, scale)

    def move(self, pair: QdqPair, behind: ir.Node) -> None:
        """Put a pair behind the only node that reads it."""
        if pair.q is None or pair.dq.graph is None or behind.graph is None:
            return
        out = behind.outputs[0]
        readers = [use for use in out.uses() if use.node.graph is self.graph]
        position = next(i for i, v in enumerate(behind.inputs) if v is pair.out)
        behind.replace_input_with(position, _source(pair))
        self.graph.remove([pair.q, pair.dq])
        self.graph.insert_after(behind, [pair.q, pair.dq])
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
            pair.q.replace_input_with(0, self.bare(pair))
        size = self.constant(f"{pair.id}/scale", np.array(scale, _kind(pair)))
        zero = self.constant(f"{pair.id}/zero_point", np.zeros((), np.int8))
        for node in dict.fromkeys([pair.q or pair.dq, pair.dq, *nodes]):
            old = list(node.inputs[1:])
            node.resize_inputs(3)
            node.replace_input_with(1, size)
            node.replace_input_with(2, zero)
            for name in ("axis", "output_dtype"):
                node.attributes.pop(name, None)
            self._forget(old)
        if pair.q is not None:
            pair.q.outputs[0].type = ir.TensorType(ir.DataType.INT8)

    def flatten(self, pair: QdqPair) -> None:
        """Store the scale and the zero point of one element as scalars."""
        nodes = [pair.q, *(u.node for u in pair.q.outputs[0].uses())] if pair.q is not None else [pair.dq]
        for node in nodes:
            for i in (1, 2):
                value = node.inputs[i] if len(node.inputs) > i else None
                known = constant(value)
                if value is None or known is None or known.shape != (1,):
                    continue
                maker = value.producer()
                node.replace_input_with(i, self.constant(f"{value.name}/scalar", known.reshape(())))
                self._forget([value])
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
        pair.dq.replace_input_with(0, self.constant(f"{pair.dq.name}/int8", values))
        pair.dq.replace_input_with(1, self.constant(f"{pair.dq.name}/scale", scale.astype(_kind(pair))))
        pair.dq.replace_input_with(2, self._zeros(pair.dq.name, scale))
        pair.dq.attributes.pop("axis", None)
        if axis is not None:
            pair.dq.attributes["axis"] = ir.AttrInt64("axis", axis)
        if maker is not None:
            self._drop(maker)
        self._forget(old)

    def _zeros(self, name: str | None, scale: NDArray[Any]) -> ir.Value:
        """Zero points of a weight, which say that it is INT8: ONNX Runtime 1.23 forgets it before a Transpose."""
        return self.constant(f"{name}/zero_point", np.zeros(scale.shape, np.int8))

    def plain(self, pair: QdqPair) -> None:
        """Store a weight or a bias as the FP32 numbers that it is dequantized to."""
        if pair.dq.graph is not None:
            numbers = dequantized(pair).astype(_kind(pair))
            self.remove(pair, self.constant(f"{pair.dq.name}/float", numbers))

    def quantize(self, node: ir.Node, slot: int, axis: int) -> None:
        """Store the FP32 weight of a node as INT8 with one scale per channel; ``axis`` is the stored weight's."""
        reader, position = node, slot
        value = node.inputs[slot]
        while value is not None and (maker := value.producer()) is not None and maker.op_type != "Constant":
            reader, position, value = maker, 0, maker.inputs[0]
        known = constant(value)
        if value is None or known is None or node.graph is None:
            return
        weight = finite(np.asarray(known, np.float32), value.name or "", node.name or "")
        numbers, scale = quantize_weight(weight, axis)
        name = f"{node.name}/weight"
        inputs = [self.constant(f"{name}/int8", numbers), self.constant(f"{name}/scale", scale)]
        inputs.append(self._zeros(name, scale))
        floats = self.make(
            "DequantizeLinear",
            f"{name}/DequantizeLinear",
            inputs,
            reader,
            attributes=[ir.AttrInt64("axis", axis)],
            like=value,
            origin=node.name,
        )
        reader.replace_input_with(position, floats)
        self._forget([value])

    def insert(self, node: ir.Node, position: int, scale: float) -> None:
        """Quantize an activation for one reader, symmetrically with one scale."""
        value = node.inputs[position]
        if value is None or node.graph is None:
            return
        name = f"{node.name}/input{position or ''}"
        size = self.constant(f"{name}/scale", np.array(scale, np.float32))
        zero = self.constant(f"{name}/zero_point", np.zeros((), np.int8))
        q = self.make("QuantizeLinear", f"{name}/QuantizeLinear", [value, size, zero], node, like=value)
        q.type = ir.TensorType(ir.DataType.INT8)
        floats = self.make("DequantizeLinear", f"{name}/DequantizeLinear", [q, size, zero], node)
        node.replace_input_with(position, floats)

    # --- operators ------------------------------------------------------------------------------------------

    def make(
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
        """What a new node writes, put before another one that it stands for, unless it does for an ``origin``.

        ``like`` gives type and shape; without, what is dequantized has the type of its scale.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        made = ir.Node("", op, inputs, attributes, name=self._edit.node_name(name))
        made.metadata_props[ORIGIN] = before.name or "" if origin is None else origin
        out = made.outputs[0]
        out.name = self._edit.value_name(f"{made.name}/output")
        if like is not None:
            out.type, out.shape = like.type, like.shape
        elif op == "DequantizeLinear" and inputs[0] is not None and inputs[1] is not None:
            out.type, out.shape = inputs[1].type or ir.TensorType(ir.DataType.FLOAT), inputs[0].shape
        self.graph.insert_before(before, made)
        return out

    def take_over(self, node: ir.Node, value: ir.Value) -> None:
        """Let a value take the name and the readers of what a node writes; what only served the node goes."""
        out = node.outputs[0]
        name = out.name
        self._end_with(out, value)
        out.replace_all_uses_with(value)
        out.name, value.name = self._edit.value_name(f"{name}/before"), name
        self._drop(node, whole=True)

    def behind(
        self,
        node: ir.Node,
        out: ir.Value,
        op: str,
        parameters: Sequence[ir.Value | None],
        kind: ir.TypeProtocol | None,
    ) -> None:
        """Put a node behind what another one writes: it takes over the name and the readers, and has this type."""
        name = out.name or ""
        made = ir.Node("", op, [out, *parameters], name=self._edit.node_name(f"{node.name}/{op}"))
        made.metadata_props[ORIGIN] = node.name or ""
        self._end_with(out, made.outputs[0])
        out.replace_all_uses_with(made.outputs[0])
        made.replace_input_with(0, out)
        out.name = self._edit.value_name(f"{name}/floats")
        made.outputs[0].name, made.outputs[0].type, made.outputs[0].shape = name, kind, out.shape
        self.graph.insert_after(node, made)

    # --- the graph ------------------------------------------------------------------------------------------

    def _end(self, out: ir.Value, source: ir.Value) -> None:
        """Keep the name of a model's output when what it came from takes its place."""
        maker = source.producer()
        name = out.name
        if maker is None or source.is_graph_output() or maker.graph is not self.graph:
            keep = ir.Node("", "Identity", [source], name=self._edit.node_name(f"{name}/Identity"))
            keep.metadata_props[ORIGIN] = (out.producer() or keep).name or ""
            self.graph.append(keep)
            source = keep.outputs[0]
        out.name = self._edit.value_name(f"{name}/quantized")
        source.name, source.type, source.shape = name, out.type, out.shape
        self._end_with(out, source)

    def _end_with(self, out: ir.Value, value: ir.Value) -> None:
        """Let a value take the place of another among the model's outputs."""
        for i, end in enumerate(self.graph.outputs):
            if end is out:
                self.graph.outputs[i] = value

    def _drop(self, node: ir.Node, *, whole: bool = False) -> None:
        """Remove a node that nobody reads, and what only it read, as far as these serve quantization, or ``whole``."""
        stack = [node]
        while stack:
            node = stack.pop()
            used = any(v.uses() or v.is_graph_output() for v in node.outputs)
            if node.graph is not self.graph or used or not (whole or _serves(node)):
                continue
            read = [v for v in node.inputs if v is not None]
            self.graph.remove(node, safe=True)
            stack += [m for v in read if (m := v.producer()) is not None]
            self._forget(read)

    def _forget(self, values: Sequence[ir.Value | None]) -> None:
        for value in values:
            if value is not None and value.name in self.graph.initializers and not value.uses():
                if not value.is_graph_output() and not value.is_graph_input():
                    del self.graph.initializers[value.name or ""]
            elif (
                value is not None and (maker := value.producer()) is not None and maker.op_type == "Constant"
            ):
                self._drop(maker)

    def constant(self, name: str, numbers: NDArray[Any]) -> ir.Value:
        """A new initializer; its name is made unique."""
        return self._edit.constant(name, numbers)


def _serves(node: ir.Node) -> bool:
    """Whether a node is there for quantization: a part of a pair, or a constant on its way there."""
    pairs = {"QuantizeLinear", "DequantizeLinear", "Constant"}
    return node.op_type in pairs or root(node.outputs[0]) is not None


def _source(pair: QdqPair) -> ir.Value:
    """What enters a pair now."""
    value = pair.q.inputs[0] if pair.q is not None else pair.source
    return pair.source if value is None else value


def _kind(pair: QdqPair) -> np.dtype[Any]:
    """The type of a pair's scale, which is that of what it gives."""
    known = constant(pair.dq.inputs[1])
    return np.dtype(np.float32) if known is None else known.dtype


def integers(pair: QdqPair) -> NDArray[np.int32]:
    """What a weight's pair holds, less its zero point."""
    known = constant(pair.source)
    scale, zero = spread(pair, pair.scale), spread(pair, pair.zero).astype(np.int32)
    if known is None or scale is None:
        raise ValueError(pair.id)
    whole: NDArray[np.int32]
    if pair.q is None:
        whole = np.asarray(known).astype(np.int32) - zero
    else:
        rounded = np.rint(np.asarray(known, np.float32) / scale) + zero
        whole = np.clip(rounded, *pair.bounds).astype(np.int32) - zero
    return whole


def dequantized(pair: QdqPair) -> NDArray[np.float32]:
    """The FP32 numbers that a weight's pair gives."""
    numbers: NDArray[np.float32] = integers(pair).astype(np.float32) * spread(pair, pair.scale)
    return numbers


def stored(pair: QdqPair, axis: int | None) -> tuple[Stored, bool]:
    """A weight as INT8 with zero point 0, and whether it is exactly what it was.

    The same integers are kept where they fit. Otherwise it is quantized anew per channel of ``axis``, or with one
    scale where ``axis`` is None.
    """
    numbers = integers(pair)
    fits = numbers.size == 0 or (numbers.min() >= -128 and numbers.max() <= 127)
    if fits and axis == pair.axis and pair.scale is not None:
        return (numbers.astype(np.int8), pair.scale.reshape(() if axis is None else (-1,))), True
    weight = dequantized(pair)
    if axis is not None:
        return quantize_weight(weight, axis), False
    flat, scale = quantize_weight(weight.reshape(1, -1), 0)
    return (flat.reshape(weight.shape), scale.reshape(())), False


def spread(pair: QdqPair, numbers: NDArray[Any] | None) -> NDArray[Any]:
    """Scales or zero points in a shape that broadcasts over the tensor."""
    flat = np.zeros(1, np.float32) if numbers is None else numbers.ravel()
    if flat.size == 1 or pair.axis is None or pair.source.shape is None:
        return flat.reshape(()) if flat.size == 1 else flat
    return flat.reshape([-1 if i == pair.axis else 1 for i in range(len(pair.source.shape))])
