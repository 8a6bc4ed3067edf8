"""Rules on how tensors are quantized: scales, zero points, axes, and parameters that should not be quantized."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.quantize import qdq
from rtlab.quantize.placement import WEIGHTED
from rtlab.quantize.qdq import INT8, QdqPair, QuantizedGraph
from rtlab.quantize.requantize import QdqEditor, quantize_symmetric
from rtlab.quantize.rule import Diagnosis, diagnose

#: First opset in which a dequantization has one scale per channel.
MIN_OPSET = 13
_LARGEST = float(np.finfo(np.float32).max)


class Encoding:
    """The rules over one state of a graph, in the order in which they are repaired."""

    def __init__(self, reading: QuantizedGraph, opset: int) -> None:
        self.graph, self.opset, self.reading = reading.graph, opset, reading
        self.constants, self.cover = reading.constants, reading.cover

    def iter_diagnoses(self) -> Iterator[Diagnosis]:
        """All findings of these rules."""
        yield from self._check_scale_value()
        yield from self._check_dynamic_scale()
        yield from self._check_parameter()
        yield from self._check_zero_point()
        yield from self._check_scale_shape()
        yield from self._check_channel_scale()
        yield from self._check_channel_axis()

    def iter_mismatches(self) -> Iterator[Diagnosis]:
        """Pairs with another number of scales or zero points than their tensor has channels."""
        for pair in self.reading.pairs.values():
            if reason := pair.shape_mismatch:
                yield diagnose(
                    "scale-axis",
                    pair,
                    f'"{pair.source.name}" is quantized with {reason}.',
                    cost="TensorRT refuses the model, and ONNX does not say what it means.",
                    fix="Export the model again, with one scale and one zero point for each channel of the axis.",
                    evidence="ONNX has one scale for the tensor, or one for each element along axis.",
                )

    def _check_scale_value(self) -> Iterator[Diagnosis]:
        for pair in self.reading.pairs.values():
            if pair.scale is None or not (bad := pair.scale[~qdq.are_scales(pair.scale)]).size:
                continue
            yield diagnose(
                "scale-value",
                pair,
                f'Scale "{_get_name(pair.dq.inputs[1])}" of "{pair.source.name}" is {bad[0]:g}, which is no scale.',
                cost="TensorRT-RTX 1.7 builds without a word, and the values are lost."
                if np.isinf(bad[0])
                else "TensorRT refuses the model.",
                fix="Calibrate this tensor again, or train on and export again.",
                evidence="A scale is a positive, finite number: q = round(x / scale).",
            )

    def _check_dynamic_scale(self) -> Iterator[Diagnosis]:
        for pair in self.reading.pairs.values():
            value = pair.dq.inputs[1] if len(pair.dq.inputs) > 1 else None
            if pair.scale is None and value is not None and value not in self.constants:
                yield diagnose(
                    "dynamic-scale",
                    pair,
                    f'The scale of "{pair.source.name}" is computed at run time.',
                    cost="TensorRT needs scales when it builds; the compiler of TensorRT-RTX 1.7 crashes on this one.",
                    fix="Quantize statically: calibrate the model and export it with constant scales.",
                    evidence="TensorRT's QuantizeLinear takes its scale as a build-time constant.",
                )

    def _check_parameter(self) -> Iterator[Diagnosis]:
        for pair in self.reading.weights:
            if not self._belongs_in_fp32(pair):
                continue
            readers = [n for n, _ in self.reading.readers(pair.out) if n is not None]
            reader = f' of "{readers[0].name}"' if readers else ""
            is_int32 = pair.dtype == ir.DataType.INT32
            yield diagnose(
                "parameter",
                pair,
                f'"{pair.source.name}"{reader} is a {"bias" if is_int32 else "parameter"} stored as {pair.dtype.name}.',
                cost="TensorRT refuses a DequantizeLinear of INT32 and does not build."
                if is_int32
                else "TensorRT-RTX 1.7 dequantizes it at every inference; no kernel multiplies by it in INT8.",
                fix="Store the FP32 numbers that it stands for.",
                evidence="Only weights of products are INT8 in a kernel: biases and what scales and shifts are FP32. "
                "TensorRT's DequantizeLinear reads INT8, INT4, FP8 and FP4.",
                apply=partial(QdqEditor.dequantize_weight, pair=pair),
                exact=True,
                more_nodes=tuple(n.name for n in readers),
            )

    def _belongs_in_fp32(self, pair: QdqPair) -> bool:
        """Whether a stored tensor is no weight of a product and is better off in FP32."""
        if pair.scale is None or qdq.get_constant_tensor(pair.source) is None:
            return False
        if pair.dtype == ir.DataType.INT32:
            return True
        readers = self.reading.readers(pair.out)
        return (
            pair.dtype in INT8
            and bool(readers)
            and all(
                n is not None
                and n.domain in ONNX_DOMAINS
                and (n.op_type in qdq.FUSIBLE | qdq.NORMS or (n.op_type in WEIGHTED and i == 2))
                for n, i in readers
            )
        )

    def _check_zero_point(self) -> Iterator[Diagnosis]:
        visited: set[ir.Node] = set()
        # What is computed from constants is quantized at build time, but by the same nodes.
        computed_weights = (p for p in self.reading.weights if qdq.get_constant_tensor(p.source) is None)
        for pair in (*self.reading.activations, *computed_weights):
            if pair.is_symmetric or pair.scale is None or pair.q is None or not pair.is_usable:
                continue
            if pair.axis is not None or pair.q in visited:
                continue
            visited.add(pair.q)
            zero = int(pair.zero.ravel()[0])
            low, high = pair.bounds
            exact = (low, zero) == (0, 128)
            largest = float(pair.scale.max())
            scale = largest if exact else min(largest * max(zero - low, high - zero) / 127, _LARGEST)
            relu = pair.rectifies and not qdq.is_nonnegative(pair.source)
            fix = f"Use INT8 with zero point 0 and scale {scale:.6g}, which covers the range in coarser steps"
            yield diagnose(
                "zero-point",
                pair,
                f'"{pair.source.name}" is quantized to {pair.dtype.name} with zero point {zero}.',
                cost="TensorRT refuses a zero point other than 0 and does not build."
                if zero
                else "TensorRT-RTX 1.7 lists INT8 here, which ends at 127 and not at 255, without a word.",
                fix="Use INT8 with zero point 0: the same steps, shifted by 128."
                if exact
                else f"{fix}, behind a Relu that does what the pair did below zero."
                if relu
                else f"{fix}.",
                evidence="TensorRT quantizes symmetrically: INT8 and zero point 0.",
                apply=partial(QdqEditor.rescale, pair=pair, scale=scale),
                exact=exact,
            )
        for pair in self.reading.weights:
            if pair.is_symmetric or not pair.is_usable or self._belongs_in_fp32(pair):
                continue
            if qdq.get_constant_tensor(pair.source) is None:
                continue
            weight, exact = quantize_symmetric(pair, pair.axis)
            yield diagnose(
                "zero-point",
                pair,
                f'Weight "{pair.source.name}" is stored as {pair.dtype.name}'
                f"{' with a zero point other than 0' if pair.dtype == ir.DataType.INT8 else ''}.",
                cost="TensorRT refuses it and does not build.",
                fix="Store it as INT8 with zero point 0: the same steps, shifted."
                if exact
                else "Store it as INT8 with zero point 0, quantized anew over a symmetric range.",
                evidence="TensorRT quantizes symmetrically: INT8 and zero point 0.",
                apply=partial(QdqEditor.store, pair=pair, weight=weight, axis=pair.axis),
                exact=exact,
            )

    def _check_scale_shape(self) -> Iterator[Diagnosis]:
        visited: set[ir.Node] = set()
        for pair in (*self.reading.activations, *self.reading.weights):
            nodes = [n for n in (pair.q, pair.dq) if n is not None]
            shapes = [s.shape for n in nodes if (s := qdq.get_constant(n.inputs[1])) is not None]
            if (
                (1,) not in shapes
                or nodes[0] in visited
                or self._belongs_in_fp32(pair)
                or _has_one_channel(pair)
            ):
                continue
            visited.add(nodes[0])
            yield diagnose(
                "scale-shape",
                pair,
                f'The scale of "{pair.source.name}" has the shape (1,) and is no scalar.',
                cost="Documented for ONNX, where one dimension means one scale per channel; TensorRT-RTX 1.7 showed no "
                "difference for a weight."
                if pair.is_constant
                else "TensorRT-RTX 1.7 takes it as one per channel and runs what reads it in FP32, without a word.",
                fix="Store the scale and the zero point as scalars.",
                evidence="ONNX: a scale of one dimension is per channel. TensorRT quantizes activations per tensor.",
                apply=partial(QdqEditor.flatten, pair=pair),
                exact=True,
            )

    def _check_channel_scale(self) -> Iterator[Diagnosis]:
        for pair in self.reading.activations:
            if pair.axis is None or pair.scale is None or pair.q is None or not pair.is_usable:
                continue
            scale = float(pair.scale.max())
            yield diagnose(
                "channel-scale",
                pair,
                f'"{pair.source.name}" is quantized with {pair.scale.size} scales, one per channel.',
                cost="TensorRT-RTX 1.7 runs what reads it in FP32, with one more layer.",
                fix=f"Use one scale for the tensor, the largest: {scale:.6g}.",
                evidence="TensorRT quantizes activations per tensor; only weights have a scale per channel.",
                apply=partial(QdqEditor.rescale, pair=pair, scale=scale),
            )

    def _check_channel_axis(self) -> Iterator[Diagnosis]:
        for node, slot in self.reading.weighted_nodes:
            pairs = self.reading.get_pairs(node.inputs[slot]) if slot is not None else ()
            if slot is None or len(pairs) != 1:
                continue
            pair, axis = pairs[0], qdq.find_channel_axis(node, slot)
            if (
                not (pair.is_constant and pair.is_usable)
                or pair.opaque
                or pair.axis is None
                or axis is None
                or pair.axis == axis
            ):
                continue
            possible = self.opset >= MIN_OPSET and qdq.get_constant_tensor(pair.source) is not None
            yield diagnose(
                "channel-axis",
                pair,
                f'Weight "{pair.source.name}" of "{node.name}" has its scales on axis {pair.axis}; its output '
                f"channels are axis {axis}.",
                cost="TensorRT-RTX 1.7 multiplies in FP32.",
                fix=f"Quantize the weight anew, per channel of axis {axis}.",
                evidence="A scale leaves the sum of a product only where it belongs to an output channel.",
                apply=partial(QdqEditor.store, pair=pair, weight=quantize_symmetric(pair, axis)[0], axis=axis)
                if possible
                else None,
                more_nodes=(node.name,),
            )


def _has_one_channel(pair: QdqPair) -> bool:
    """Whether a weight has one channel, so that one scale in one dimension is right."""
    if not pair.is_constant:
        return False
    axis = attribute.as_int() if (attribute := pair.dq.attributes.get("axis")) is not None else 1
    sizes = pair.source.shape
    return sizes is None or (-len(sizes) <= axis < len(sizes) and sizes[axis] == 1)


def _get_name(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""
