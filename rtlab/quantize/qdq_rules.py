"""Rules on where pairs stand: where they part a kernel, where one is missing, and where two do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.quantize import qdq
from rtlab.quantize.encoding import MIN_OPSET
from rtlab.quantize.placement import WEIGHTED
from rtlab.quantize.qdq import INT8, QdqPair, QuantizedGraph
from rtlab.quantize.requantize import QdqEditor
from rtlab.quantize.rule import Diagnosis, diagnose

#: |f(x)| <= |x|, so the scale of what enters covers what comes out.
_BOUNDED = {"Relu", "LeakyRelu", "Clip", "Tanh", "HardSwish", "Gelu", "Swish", "Mish", "Elu"}


class PlacementRules:
    """The rules over one state of a graph, in the order in which they are repaired.

    ``planned`` are the inputs that rtlab itself would quantize in this model, were it not quantized yet. ``scale_of``
    calibrates a value by name; None where nobody can.
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
        """All findings of these rules."""
        yield from self._check_vector()
        yield from self._check_chain()
        yield from self._check_duplicate()
        yield from self._check_misplaced()
        yield from self._check_output()
        yield from self._check_residual()
        yield from self._check_missing_weight()
        yield from self._check_missing_activation()
        yield from self._check_concat()

    def _propagate_backward(self, node: ir.Node) -> None:
        """Note which inputs of a node profit from INT8, and which values go straight to a QuantizeLinear."""
        for out in node.outputs:
            readers = self.reading.readers(out)
            if any(n is None and at >= 0 for n, at in readers):
                # What a body does with a value is not looked into.
                self.int8_values.add(out)
            if readers and all(n is not None and self._feeds_quantize(n) for n, _ in readers):
                self.requantized_values.add(out)
        for position, value in enumerate(node.inputs):
            if value is not None and self._benefits_from_int8(node, position):
                self.int8_values.add(value)

    def _feeds_quantize(self, node: ir.Node) -> bool:
        """Whether a node quantizes its input, at once or behind views."""
        return node.op_type == "QuantizeLinear" or (
            node.op_type in qdq.VIEWS and node.outputs[0] in self.requantized_values
        )

    def _benefits_from_int8(self, node: ir.Node, position: int) -> bool:
        """Whether a compiler makes use of the quantized form here; operators not known are taken at their word."""
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
            yield diagnose(
                "vector",
                node.name or "",
                f'"{node.name}" multiplies by a vector and is quantized.',
                cost="TensorRT-RTX 1.7 runs three layers where FP32 needs one.",
                fix="Leave its activation and its weight in FP32.",
                evidence="A product with one row or column moves weights and computes little: INT8 gains nothing.",
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
            is_only_reader = len(self.reading.readers(first.out)) == 1
            same = first.has_same_parameters(second)
            if not same and (path or not is_only_reader):
                continue
            redundant_pairs = [first] if is_only_reader else self.reading.find_pairs_of(second.q)
            path_text = f' through "{path[0].name}"' if path else ""
            yield diagnose(
                "chain",
                second,
                f'"{first.id}" and "{second.id}" quantize the same tensor twice{path_text}'
                f"{'' if same else ' with different scales'}.",
                cost="Documented for TensorRT; TensorRT-RTX 1.7 showed no difference."
                if same
                else "It is rounded twice, within one layer of TensorRT-RTX 1.7.",
                fix="Keep one of the two pairs." if same else "Keep the pair that the consumer reads.",
                evidence="TensorRT erases a pair behind an equal pair: rounding twice to one scale is rounding once.",
                apply=partial(QdqEditor.remove_all, pairs=redundant_pairs),
                exact=same,
                more_nodes=first.nodes,
            )

    def _check_duplicate(self) -> Iterator[Diagnosis]:
        table: dict[ir.Value, dict[ir.Node, QdqPair]] = {}
        for pair in self.reading.activations:
            if pair.q is not None and pair.scale is not None:
                table.setdefault(pair.source, {}).setdefault(pair.q, pair)
        for source, pairs_by_node in table.items():
            pairs = list(pairs_by_node.values())
            if len(pairs) < 2 or any(p.dtype != pairs[0].dtype or p.axis is not None for p in pairs):
                continue
            same = all(p.has_same_parameters(pairs[0]) for p in pairs)
            if not same and not all(p.is_symmetric and p.dtype == ir.DataType.INT8 for p in pairs):
                continue
            scale = max(float(p.scale.max()) for p in pairs if p.scale is not None)
            redundant_pairs = [other for p in pairs[1:] for other in self.reading.find_pairs_of(p.q)]
            yield diagnose(
                "duplicate",
                pairs[0],
                f'"{source.name}" is quantized {len(pairs)} times, '
                f"{'each time with the same scale' if same else 'with different scales'}.",
                cost="Documented for TensorRT; TensorRT-RTX 1.7 merged them and showed no difference."
                if same
                else "The tensor is quantized and stored once per scale.",
                fix=f"Let all readers share one pair{'' if same else f' with the largest scale, {scale:.6g}'}.",
                evidence="TensorRT propagates one quantization that all readers of a tensor share.",
                apply=partial(
                    QdqEditor.share, pair=pairs[0], others=redundant_pairs, scale=None if same else scale
                ),
                exact=same,
                more_nodes=tuple(i for p in pairs[1:] for i in p.nodes),
            )

    def _check_misplaced(self) -> Iterator[Diagnosis]:
        for pair in self.reading.activations:
            readers = self._find_idle_readers(pair)
            if not readers or any(n.op_type in WEIGHTED or self._feeds_quantize(n) for n in readers):
                continue
            reader, maker, activation = (
                readers[0],
                self.reading.find_product(pair.source),
                self._find_target_activation(pair),
            )
            move = (
                f'Move it behind "{activation.name}", which is read quantized.'
                if activation is not None
                else ""
            )
            extra = (
                "what reads the activation runs in FP32, with one more layer."
                if activation is not None
                else "in TensorRT-RTX 1.7 its arithmetic runs in a layer that is there anyway."
            )
            apply = (
                partial(QdqEditor.move, pair=pair, activation=activation)
                if activation is not None
                else partial(QdqEditor.remove, pair=pair)
            )
            exact = activation is not None and activation.op_type == "Relu"
            sizes = all(n.op_type in qdq.SIZES for n in readers)
            if maker is not None and all(n.op_type in qdq.FUSIBLE | qdq.PASSES for n in readers):
                yield diagnose(
                    "before-activation",
                    pair,
                    f'"{pair.id}" stands between "{maker.name}" and "{reader.name}" ({reader.op_type}).',
                    cost=f'A lost fusion: "{reader.name}" cannot join the INT8 kernel, as it otherwise does in '
                    f"TensorRT-RTX 1.7 where the weight has one scale for all channels; {extra}",
                    fix=move or "Remove the pair.",
                    evidence=f"TensorRT fuses {maker.op_type} and {reader.op_type} only where nothing is between them.",
                    apply=apply,
                    exact=exact,
                    more_nodes=(maker.name, *(n.name for n in readers)),
                )
            elif any(n.op_type in qdq.NORMS | qdq.SIZES for n in readers):
                yield diagnose(
                    "no-int8-kernel",
                    pair,
                    f'"{pair.id}" quantizes for "{reader.name}" ({reader.op_type}), which runs in FP32.',
                    cost="Documented for TensorRT; TensorRT-RTX 1.7 showed no difference, for it knows the sizes."
                    if sizes
                    else "A quantization and its reversal for nothing; in TensorRT-RTX 1.7 they run in a layer that is "
                    "there anyway.",
                    fix="Remove the pair.",
                    evidence=f"TensorRT has no INT8 form of {reader.op_type} that pays.",
                    apply=partial(QdqEditor.remove, pair=pair),
                    exact=sizes,
                    more_nodes=tuple(n.name for n in readers),
                )
            else:
                source = pair.source.producer()
                yield diagnose(
                    "between",
                    pair,
                    f'"{pair.id}" stands between "{source.name if source is not None else pair.source.name}" and '
                    f'"{reader.name}" ({reader.op_type}), neither of which makes use of it.',
                    cost=f"A rounding for nothing; {extra}",
                    fix=move or "Remove the pair.",
                    evidence="TensorRT joins such operators into one kernel, in which a pair only rounds. By default "
                    "ONNX Runtime quantizes every output.",
                    apply=apply,
                    exact=exact,
                    more_nodes=tuple(n.name for n in readers),
                )

    def _find_target_activation(self, pair: QdqPair) -> ir.Node | None:
        """The activation behind which a pair belongs, because what reads it there would be quantized."""
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
                yield diagnose(
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
            for position in (0, 1) if node.op_type == "Add" and len(node.inputs) == 2 else ():
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
            axis, weight_tensor = qdq.find_channel_axis(node, slot), qdq.find_weight_tensor(value)
            good = weight_tensor is not None and bool(np.isfinite(weight_tensor.numpy()).all())
            possible = good and {p.dtype for p in pairs} <= INT8 and self.opset >= MIN_OPSET
            yield diagnose(
                "weight-missing",
                node.name or "",
                f'"{node.name}" reads a quantized activation and an FP32 weight.',
                cost="TensorRT-RTX 1.7 dequantizes the activation and multiplies in FP32.",
                fix=f"Quantize the weight per channel of axis {axis}."
                if possible and axis is not None
                else "Quantize the weight per output channel and export at opset 13 or later.",
                evidence="An INT8 kernel needs both factors in INT8.",
                apply=partial(QdqEditor.quantize, node=node, slot=slot, axis=axis)
                if possible and axis is not None
                else None,
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
            unquantized_positions = [i for i in (0, 1) if i != slot and node.inputs[i] not in self.cover]
            if (
                len(unquantized_positions) != 1
                or (value := node.inputs[unquantized_positions[0]]) is None
                or value in movable_outputs
            ):
                continue
            other = self.reading.get_pairs(node.inputs[1 - unquantized_positions[0]])
            if not other or any(p.opaque or p.dtype not in INT8 for p in other):
                continue
            yield self._diagnose_missing_pair(
                "activation-missing",
                node,
                unquantized_positions[0],
                f'"{node.name}" reads a quantized {"factor" if slot is None else "weight"} and "{value.name}" in FP32.',
                cost="TensorRT-RTX 1.7 dequantizes the other factor and multiplies in FP32.",
                evidence="An INT8 kernel needs both factors in INT8.",
            )

    def _diagnose_missing_pair(
        self, rule: str, node: ir.Node, position: int, title: str, *, cost: str, evidence: str
    ) -> Diagnosis:
        """A pair that is missing: there is a fix where its scale is known."""
        edge = self.reading.find_pair(node, position)
        value = node.inputs[position]
        apply: Callable[[QdqEditor], None] | None = None
        calibrates = ""
        fix = "Calibrate the model to learn the scale of this tensor, or quantize it in training and export again."
        if edge is not None:
            fix = f'Read it from "{edge[2].dq.name}", which quantizes the same tensor for another reader.'
            apply = partial(QdqEditor.reroute, node=edge[0], position=edge[1], value=edge[2].out)
        elif self.scale_of is not None and value is not None and value.dtype == ir.DataType.FLOAT:
            fix = "Quantize it with the scale that calibration finds."
            apply = partial(_insert_calibrated_pair, node=node, position=position, scale_of=self.scale_of)
            calibrates = value.name or ""
        return diagnose(
            rule,
            node.name or "",
            title,
            cost=cost,
            fix=fix,
            evidence=evidence,
            apply=apply,
            more_nodes=edge[2].nodes if edge is not None else (),
            calibrates=calibrates,
        )

    def _check_concat(self) -> Iterator[Diagnosis]:
        for node in self.graph:
            if node.op_type != "Concat" or not all(v in self.cover for v in node.inputs):
                continue
            out = node.outputs[0]
            pairs = [p for v in node.inputs for p in self.reading.get_pairs(v)]
            pairs += [p for p in self.reading.activations if p.source is out]
            if out not in self.int8_values | self.requantized_values or not all(
                _is_per_tensor_int8(p) for p in pairs
            ):
                continue
            scales = {float(p.scale.max()) for p in pairs if p.scale is not None}
            if len(scales) < 2:
                continue
            yield diagnose(
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


def _insert_calibrated_pair(
    editor: QdqEditor, node: ir.Node, position: int, scale_of: Callable[[str], float]
) -> None:
    value = node.inputs[position]
    if value is not None and value.name:
        editor.insert_pair(node, position, scale_of(value.name))


def _is_per_tensor_int8(pair: QdqPair) -> bool:
    """Whether a pair is an activation's, in INT8, with one scale."""
    return (
        not pair.is_constant
        and not pair.opaque
        and pair.is_symmetric
        and pair.dtype == ir.DataType.INT8
        and pair.scale is not None
        and pair.axis is None
    )
