"""Rules on quantize and dequantize pairs: how tensors are quantized, and pairs that are misplaced or missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

import numpy as np
import onnx_ir as ir

from rtlab.core.finding import Finding
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.trt_operators import DOMAIN as TRT_DOMAIN
from rtlab.quantize import qdq
from rtlab.quantize.placement import WEIGHTED
from rtlab.quantize.qdq import INT8, QdqPair, QuantizedGraph
from rtlab.quantize.requantize import QdqEditor, quantize_symmetric

#: First opset in which a dequantization has one scale per channel.
MIN_OPSET = 13
_LARGEST = float(np.finfo(np.float32).max)
#: |f(x)| <= |x|, so the scale of the input covers the output.
_BOUNDED = {"Relu", "LeakyRelu", "Clip", "Tanh", "HardSwish", "Gelu", "Swish", "Mish", "Elu"}


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A finding and the change that repairs it, None where there is none.

    ``value_to_calibrate`` names the value whose scale the change needs, empty where it needs none.
    """

    finding: Finding
    apply: Callable[[QdqEditor], None] | None
    value_to_calibrate: str = ""


class QdqRules:
    """The rules over one state of a graph, in the order in which they are repaired.

    ``planned`` are the inputs that rtlab would quantize in this model, were it not quantized yet. ``scale_of``
    calibrates a value by name; None where that is not possible.
    """

    def __init__(
        self,
        reading: QuantizedGraph,
        opset: int,
        planned: AbstractSet[tuple[str, int]],
        scale_of: Callable[[str], float] | None = None,
    ) -> None:
        self.scale_of = scale_of
        self.graph, self.opset, self.reading, self.planned = reading.graph, opset, reading, planned
        self.constants, self.cover = reading.constants, reading.cover
        self.int8_values: set[ir.Value] = set()
        self.requantized_values: set[ir.Value] = set()
        for node in reversed(list(self.graph)):
            self._propagate_backward(node)

    def iter_diagnoses(self) -> Iterator[Diagnosis]:
        """All findings; pairs that do not fit their tensor come alone, because nothing is known of the others then."""
        if misfits := [*self._check_scale_axis()]:
            yield from misfits
            return
        yield from self._check_scale_value()
        yield from self._check_dynamic_scale()
        yield from self._check_parameter()
        yield from self._check_zero_point()
        yield from self._check_weight_zero_point()
        yield from self._check_scale_shape()
        yield from self._check_channel_scale()
        yield from self._check_vector()
        yield from self._check_chain()
        yield from self._check_duplicate()
        yield from self._check_misplaced()
        yield from self._check_output()
        yield from self._check_residual()
        yield from self._check_missing_weight()
        yield from self._check_missing_activation()
        yield from self._check_concat()

    # --- how tensors are quantized --------------------------------------------------------------------------

    def _check_scale_axis(self) -> Iterator[Diagnosis]:
        for pair in self.reading.pairs.values():
            if reason := pair.shape_mismatch:
                yield _diagnose(
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
            yield _diagnose(
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
            maker = pair.source.producer()
            if maker is not None and maker.domain == TRT_DOMAIN:
                # TensorRT's own operators compute scales.
                continue
            if pair.scale is None and pair.dq.inputs[1] not in self.constants:
                yield _diagnose(
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
            yield _diagnose(
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
        if pair.scale is None or not pair.is_stored:
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
        computed_weights = (p for p in self.reading.weights if not p.is_stored)
        for pair in (*self.reading.activations, *computed_weights):
            if pair.is_symmetric or pair.scale is None or pair.q is None or not pair.is_usable:
                continue
            if pair.axis is not None or pair.q in visited:
                continue
            visited.add(pair.q)
            zero, largest, (low, high) = int(pair.zero.ravel()[0]), float(pair.scale.max()), pair.bounds
            exact = (low, zero) == (0, 128)
            scale = largest if exact else min(largest * max(zero - low, high - zero) / 127, _LARGEST)
            relu = pair.rectifies and not qdq.is_nonnegative(pair.source)
            end = ", behind a Relu that does what the pair did below zero." if relu else "."
            yield _diagnose(
                "zero-point",
                pair,
                f'"{pair.source.name}" is quantized to {pair.dtype.name} with zero point {zero}.',
                cost="TensorRT refuses a zero point other than 0 and does not build."
                if zero
                else "TensorRT-RTX 1.7 lists INT8 here, which ends at 127 and not at 255, without a word.",
                fix="Use INT8 with zero point 0: the same steps, shifted by 128."
                if exact
                else f"Use INT8 with zero point 0 and scale {scale:.6g}, which covers the range in coarser steps{end}",
                evidence="TensorRT quantizes symmetrically: INT8 and zero point 0.",
                apply=partial(QdqEditor.rescale, pair=pair, scale=scale),
                exact=exact,
            )

    def _check_weight_zero_point(self) -> Iterator[Diagnosis]:
        for pair in self.reading.weights:
            if pair.is_symmetric or not pair.is_usable or not pair.is_stored or self._belongs_in_fp32(pair):
                continue
            weight, exact = quantize_symmetric(pair, pair.axis)
            yield _diagnose(
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
            if (1,) not in shapes or nodes[0] in visited:
                continue
            if self._belongs_in_fp32(pair) or _has_one_channel(pair):
                continue
            visited.add(nodes[0])
            yield _diagnose(
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
            yield _diagnose(
                "channel-scale",
                pair,
                f'"{pair.source.name}" is quantized with {pair.scale.size} scales, one per channel.',
                cost="TensorRT-RTX 1.7 runs what reads it in FP32, with one more layer.",
                fix=f"Use one scale for the tensor, the largest: {scale:.6g}.",
                evidence="TensorRT quantizes activations per tensor; only weights have a scale per channel.",
                apply=partial(QdqEditor.rescale, pair=pair, scale=scale),
            )

    # --- which values are read in INT8 ----------------------------------------------------------------------

    def _propagate_backward(self, node: ir.Node) -> None:
        """Note which inputs of a node profit from INT8, and which of its outputs only QuantizeLinears read."""
        for out in node.outputs:
            readers = self.reading.readers(out)
            if any(n is None and at >= 0 for n, at in readers):
                # A body reads it, which is not looked into.
                self.int8_values.add(out)
            if readers and all(n is not None and self._feeds_quantize(n) for n, _ in readers):
                self.requantized_values.add(out)
        for position, value in enumerate(node.inputs):
            if value is not None and self._benefits_from_int8(node, position):
                self.int8_values.add(value)

    def _feeds_quantize(self, node: ir.Node) -> bool:
        """Whether a node quantizes its input, at once or behind views."""
        is_view = node.op_type in qdq.VIEWS
        return node.op_type == "QuantizeLinear" or (is_view and node.outputs[0] in self.requantized_values)

    def _benefits_from_int8(self, node: ir.Node, position: int) -> bool:
        """Whether a compiler makes use of the quantized form here; unknown operators are assumed to."""
        op = node.op_type
        if node.domain not in ONNX_DOMAINS or (node.name or "", position) in self.planned:
            return True
        if op in {"QuantizeLinear", "DequantizeLinear"}:
            return False
        if op in WEIGHTED:
            return position < 2 and not qdq.is_vector_product(node)
        if op in qdq.PASSES:
            if position and op != "Concat":
                return False
            over = op in qdq.MAXIMA or op == "Concat"
            return any(v in self.int8_values or (over and v in self.requantized_values) for v in node.outputs)
        if op in qdq.POOLS or op == "Add":
            residual = any((node.name or "", i) in self.planned for i in range(2))
            both = all(v in self.cover for v in node.inputs if v is not None and v not in self.constants)
            return both and not residual and node.outputs[0] in self.requantized_values
        return op not in qdq.FUSIBLE | qdq.NORMS | qdq.SIZES

    def _find_idle_readers(self, pair: QdqPair) -> list[ir.Node]:
        """The nodes that read a pair, when none of them makes use of it; empty otherwise."""
        readers = self.reading.readers(pair.out)
        if any(n is None or self._benefits_from_int8(n, i) for n, i in readers):
            return []
        return [n for n, _ in readers if n is not None]

    # --- pairs that should not be there ---------------------------------------------------------------------

    def _check_vector(self) -> Iterator[Diagnosis]:
        for node, slot in self.reading.weighted_nodes:
            if slot is None or not qdq.is_vector_product(node):
                continue
            data, weights = 1 - slot, self.reading.get_pairs(node.inputs[slot])
            if not (activation_pairs := self.reading.get_pairs(node.inputs[data])):
                continue
            edge = self.reading.find_direct_pair(node, data)
            all_dequantizable = all(
                not p.opaque and p.is_constant and p.dtype in INT8 and p.scale is not None for p in weights
            )
            yield _diagnose(
                "vector",
                node.name or "",
                f'"{node.name}" multiplies by a vector and is quantized.',
                cost="TensorRT-RTX 1.7 runs three layers where FP32 needs one.",
                fix="Leave its activation and its weight in FP32.",
                evidence="A product with one column moves numbers and computes little: INT8 gains nothing.",
                apply=partial(QdqEditor.release, edge=edge, weights=weights)
                if edge is not None and all_dequantizable
                else None,
                more_nodes=tuple(i for p in (*activation_pairs, *weights) for i in p.nodes),
            )

    def _check_chain(self) -> Iterator[Diagnosis]:
        for second in self.reading.activations:
            path, value = list[ir.Node](), second.source
            while (maker := value.producer()) is not None and maker.op_type in qdq.VIEWS:
                if len(self.reading.readers(value)) != 1 or maker.inputs[0] is None:
                    break
                path.append(maker)
                value = maker.inputs[0]
            first = self.reading.pairs.get(value)
            if first is None or first.is_constant or first.opaque or second.q is None:
                continue
            if not first.has_same_parameters(second):
                continue
            is_only_reader = len(self.reading.readers(first.out)) == 1
            redundant_pairs = [first] if is_only_reader else self.reading.find_pairs_of(second.q)
            path_text = f' through "{path[0].name}"' if path else ""
            yield _diagnose(
                "chain",
                second,
                f'"{first.id}" and "{second.id}" quantize the same tensor twice{path_text}.',
                cost="Documented for TensorRT; TensorRT-RTX 1.7 showed no difference.",
                fix="Keep one of the two pairs.",
                evidence="TensorRT erases a pair behind an equal pair: rounding twice to one scale is rounding once.",
                apply=partial(QdqEditor.remove_all, pairs=redundant_pairs),
                exact=True,
                more_nodes=first.nodes,
            )

    def _check_duplicate(self) -> Iterator[Diagnosis]:
        table: dict[ir.Value, dict[ir.Node, QdqPair]] = {}
        for pair in self.reading.activations:
            if pair.q is not None and pair.scale is not None:
                table.setdefault(pair.source, {}).setdefault(pair.q, pair)
        for source, pairs_by_node in table.items():
            first, *others = pairs_by_node.values()
            if not others or first.axis is not None or not all(p.has_same_parameters(first) for p in others):
                continue
            redundant_pairs = [pair for p in others for pair in self.reading.find_pairs_of(p.q)]
            yield _diagnose(
                "duplicate",
                first,
                f'"{source.name}" is quantized {len(pairs_by_node)} times, each time with the same scale.',
                cost="Documented for TensorRT; TensorRT-RTX 1.7 merged them and showed no difference.",
                fix="Let all readers share one pair.",
                evidence="TensorRT propagates one quantization that all readers of a tensor share.",
                apply=partial(QdqEditor.remove_all, pairs=redundant_pairs, replacement=first.out),
                exact=True,
                more_nodes=tuple(i for p in others for i in p.nodes),
            )

    def _check_misplaced(self) -> Iterator[Diagnosis]:
        for pair in self.reading.activations:
            readers = self._find_idle_readers(pair)
            if not readers or any(n.op_type in WEIGHTED or self._feeds_quantize(n) for n in readers):
                continue
            reader, maker = readers[0], self.reading.find_product(pair.source)
            activation = self._find_target_activation(pair)
            fix, exact, apply = "Remove the pair.", False, partial(QdqEditor.remove, pair=pair)
            extra = "in TensorRT-RTX 1.7 its arithmetic runs in a layer that is there anyway."
            if activation is not None:
                fix = f'Move it behind "{activation.name}", which is read quantized.'
                extra = "what reads the activation runs in FP32, with one more layer."
                exact = activation.op_type == "Relu"
                apply = partial(QdqEditor.move, pair=pair, activation=activation)
            names = tuple(n.name for n in readers)
            if maker is not None and all(n.op_type in qdq.FUSIBLE | qdq.PASSES for n in readers):
                yield _diagnose(
                    "before-activation",
                    pair,
                    f'"{pair.id}" stands between "{maker.name}" and "{reader.name}" ({reader.op_type}).',
                    cost=f'A lost fusion: "{reader.name}" cannot join the INT8 kernel, as it otherwise does in '
                    f"TensorRT-RTX 1.7 where the weight has one scale for all channels; {extra}",
                    fix=fix,
                    evidence=f"TensorRT fuses {maker.op_type} and {reader.op_type} only where nothing is between them.",
                    apply=apply,
                    exact=exact,
                    more_nodes=(maker.name, *names),
                )
            elif any(n.op_type in qdq.NORMS | qdq.SIZES for n in readers):
                yield _diagnose(
                    "no-int8-kernel",
                    pair,
                    f'"{pair.id}" quantizes for "{reader.name}" ({reader.op_type}), which runs in FP32.',
                    cost="A quantization and its reversal for nothing; in TensorRT-RTX 1.7 they run in a layer that is "
                    "there anyway.",
                    fix="Remove the pair.",
                    evidence=f"TensorRT has no INT8 form of {reader.op_type} that pays.",
                    apply=partial(QdqEditor.remove, pair=pair),
                    more_nodes=names,
                )
            else:
                source = pair.source.producer()
                yield _diagnose(
                    "between",
                    pair,
                    f'"{pair.id}" stands between "{source.name if source is not None else pair.source.name}" and '
                    f'"{reader.name}" ({reader.op_type}), neither of which makes use of it.',
                    cost=f"A rounding for nothing; {extra}",
                    fix=fix,
                    evidence="TensorRT joins such operators into one kernel, in which a pair only rounds. By default "
                    "ONNX Runtime quantizes every output.",
                    apply=apply,
                    exact=exact,
                    more_nodes=names,
                )

    def _find_target_activation(self, pair: QdqPair) -> ir.Node | None:
        """The activation behind which a pair belongs, because its readers would be quantized."""
        readers = self.reading.readers(pair.out)
        if len(readers) != 1 or len(self.reading.find_pairs_of(pair.q)) != 1 or not pair.is_symmetric:
            return None
        node = readers[0][0]
        if node is None or node.op_type not in _BOUNDED:
            return None
        inside = all(n is not None for n, _ in self.reading.readers(node.outputs[0]))
        return node if inside and node.outputs[0] in self.int8_values else None

    def _check_output(self) -> Iterator[Diagnosis]:
        for pair in self.reading.activations:
            if pair.out.is_graph_output() and not pair.out.uses():
                yield _diagnose(
                    "output",
                    pair,
                    f'The model\'s output "{pair.out.name}" is quantized and dequantized again.',
                    cost="A rounding of the result for nothing; in TensorRT-RTX 1.7 it runs in a layer that is there "
                    "anyway.",
                    fix="Remove the pair.",
                    evidence="Nothing reads the quantized form of an FP32 output.",
                    apply=partial(QdqEditor.remove, pair=pair),
                )

    # --- pairs that are missing, or do not fit together -----------------------------------------------------

    def _check_residual(self) -> Iterator[Diagnosis]:
        for node in self.graph:
            for position in (0, 1) if node.op_type == "Add" else ():
                value = node.inputs[position]
                if (node.name or "", position) not in self.planned or value is None or value in self.cover:
                    continue
                maker = self.reading.find_product(node.inputs[1 - position])
                if maker is None or not all(v in self.cover for v in maker.inputs[:2]):
                    continue
                yield self._diagnose_missing_pair(
                    "residual",
                    node,
                    position,
                    f'"{node.name}" adds "{value.name}" in FP32 to what the quantized "{maker.name}" gives.',
                    cost="Documented for TensorRT, where the sum cannot join the INT8 kernel; TensorRT-RTX 1.7 runs as "
                    "many layers, and reads four bytes per number here instead of one.",
                    evidence="Of a residual sum the branch that is not the convolution's own is quantized, so that the "
                    "kernel adds it as INT8.",
                )

    def _check_missing_weight(self) -> Iterator[Diagnosis]:
        for node, slot in self.reading.weighted_nodes:
            if slot is None or qdq.is_vector_product(node):
                continue
            value, pairs = node.inputs[slot], self.reading.get_pairs(node.inputs[1 - slot])
            if value in self.cover or not pairs or value is None or value.dtype != ir.DataType.FLOAT:
                continue
            axis, tensor = qdq.find_channel_axis(node, slot), qdq.get_constant_tensor(value, qdq.VIEWS)
            is_finite = tensor is not None and bool(np.isfinite(tensor.numpy()).all())
            possible = is_finite and {p.dtype for p in pairs} <= INT8 and self.opset >= MIN_OPSET
            fix = "Quantize the weight per output channel and export at opset 13 or later."
            apply = None
            if possible and axis is not None:
                fix = f"Quantize the weight per channel of axis {axis}."
                apply = partial(QdqEditor.quantize, node=node, slot=slot, axis=axis)
            yield _diagnose(
                "weight-missing",
                node.name or "",
                f'"{node.name}" reads a quantized activation and an FP32 weight.',
                cost="TensorRT-RTX 1.7 dequantizes the activation and multiplies in FP32.",
                fix=fix,
                evidence="An INT8 kernel needs both factors in INT8.",
                apply=apply,
                more_nodes=tuple(i for p in pairs for i in p.nodes),
            )

    def _check_missing_activation(self) -> Iterator[Diagnosis]:
        movable_outputs = {
            b.outputs[0]
            for p in self.reading.activations
            if self._find_idle_readers(p) and (b := self._find_target_activation(p))
        }
        for node, slot in self.reading.weighted_nodes:
            if qdq.is_vector_product(node):
                continue
            positions = [i for i in (0, 1) if i != slot and node.inputs[i] not in self.cover]
            if len(positions) != 1:
                continue
            position, value = positions[0], node.inputs[positions[0]]
            other = self.reading.get_pairs(node.inputs[1 - position])
            if value is None or value in movable_outputs or not other:
                continue
            if any(p.opaque or p.dtype not in INT8 for p in other):
                continue
            yield self._diagnose_missing_pair(
                "activation-missing",
                node,
                position,
                f'"{node.name}" reads a quantized {"factor" if slot is None else "weight"} and "{value.name}" in FP32.',
                cost="TensorRT-RTX 1.7 dequantizes the other factor and multiplies in FP32.",
                evidence="An INT8 kernel needs both factors in INT8.",
            )

    def _diagnose_missing_pair(
        self, rule: str, node: ir.Node, position: int, title: str, *, cost: str, evidence: str
    ) -> Diagnosis:
        """A pair that is missing: there is a fix where its scale is known."""
        edge, value = self.reading.find_pair(node, position), node.inputs[position]
        apply: Callable[[QdqEditor], None] | None = None
        more_nodes, calibrates = tuple[str, ...](), ""
        fix = "Calibrate the model to learn the scale of this tensor, or quantize it in training and export again."
        if edge is not None:
            reader, at, pair = edge
            fix = f'Read it from "{pair.dq.name}", which quantizes the same tensor for another reader.'
            apply = partial(QdqEditor.reroute, node=reader, position=at, value=pair.out)
            more_nodes = pair.nodes
        elif self.scale_of is not None and value is not None and value.dtype == ir.DataType.FLOAT:
            fix, calibrates = "Quantize it with the scale that calibration finds.", value.name or ""
            apply = partial(_insert_calibrated_pair, node=node, position=position, scale_of=self.scale_of)
        return _diagnose(
            rule,
            node.name or "",
            title,
            cost=cost,
            fix=fix,
            evidence=evidence,
            apply=apply,
            more_nodes=more_nodes,
            calibrates=calibrates,
        )

    def _check_concat(self) -> Iterator[Diagnosis]:
        for node in self.graph:
            if node.op_type != "Concat" or not all(v in self.cover for v in node.inputs):
                continue
            out = node.outputs[0]
            pairs = [p for v in node.inputs for p in self.reading.get_pairs(v)]
            pairs += [p for p in self.reading.activations if p.source is out]
            if out not in self.int8_values | self.requantized_values:
                continue
            scales = {float(p.scale.max()) for p in pairs if p.scale is not None}
            if len(scales) < 2 or not all(_is_per_tensor_int8(p) for p in pairs):
                continue
            yield _diagnose(
                "concat",
                node.name or "",
                f'"{node.name}" joins tensors of {len(scales)} different scales.',
                cost="TensorRT-RTX 1.7 dequantizes the result and runs what reads it in FP32, with one more layer."
                if out in self.int8_values
                else "TensorRT quantizes the parts anew, TensorRT-RTX 1.7 within a layer that is there anyway.",
                fix=f"Share the largest scale, {max(scales):.6g}.",
                evidence="A concatenation of INT8 tensors copies bytes, which is right only on one scale.",
                apply=partial(QdqEditor.rescale_all, pairs=pairs, scale=max(scales)),
                more_nodes=tuple(i for p in pairs for i in p.nodes),
            )


def _diagnose(
    rule: str,
    subject: QdqPair | str,
    title: str,
    *,
    cost: str,
    fix: str,
    evidence: str,
    apply: Callable[[QdqEditor], None] | None = None,
    exact: bool = False,
    more_nodes: tuple[str | None, ...] = (),
    calibrates: str = "",
) -> Diagnosis:
    """A finding about one pair or one operator; ``more_nodes`` are further nodes that it concerns."""
    id_, nodes = (subject.id, subject.nodes) if isinstance(subject, QdqPair) else (subject, (subject,))
    named = tuple(n for n in dict.fromkeys((*nodes, *more_nodes)) if n)
    finding = Finding(f"{rule}:{id_}", rule, title, named, cost, fix, evidence, apply is not None, exact)
    return Diagnosis(finding, apply, calibrates)


def _insert_calibrated_pair(
    editor: QdqEditor, node: ir.Node, position: int, scale_of: Callable[[str], float]
) -> None:
    editor.insert_pair(node, position, scale_of(_get_name(node.inputs[position])))


def _is_per_tensor_int8(pair: QdqPair) -> bool:
    """Whether a pair is an activation's, in INT8, with one scale."""
    is_int8 = pair.is_symmetric and pair.dtype == ir.DataType.INT8 and pair.axis is None
    return is_int8 and not pair.is_constant and not pair.opaque and pair.scale is not None


def _has_one_channel(pair: QdqPair) -> bool:
    """Whether a weight has one channel, so that one scale in one dimension is right."""
    if not pair.is_constant:
        return False
    axis, sizes = qdq.get_axis(pair.dq), pair.source.shape
    return sizes is None or (-len(sizes) <= axis < len(sizes) and sizes[axis] == 1)


def _get_name(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""
