"""From a source and a variant to a typed graph and its emulation, by the passes of every precision in a row."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rtlab.core.attention import find_attentions, find_operators, has_attention, read_operator_sizes
from rtlab.core.compiler_info import Maker
from rtlab.core.model import Model
from rtlab.core.phrases import list_first, pluralize
from rtlab.core.precision import NVFP4_RANGE
from rtlab.core.prepared import Emulation, Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.trt_operators import is_dequantizer
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, VariantError
from rtlab.quantize import attention_products, fp16_passes, fp16_plan, guards, passes, placement, weights
from rtlab.quantize.assign import assign, resolve_calibrators
from rtlab.quantize.edit import Edit
from rtlab.quantize.fp16_plan import HalfConstants, describe_skipped_nodes
from rtlab.quantize.rewrite import QUANTIZED, insert_pairs, share_scales, validate_scales
from rtlab.quantize.thresholds import compute_scale
from rtlab.quantize.weight_correction import WeightCorrector

if TYPE_CHECKING:
    from rtlab.core.compiler_info import AttentionKernel
    from rtlab.core.layer_inputs import LayerInputs
    from rtlab.core.node import Node
    from rtlab.core.protocols import Progress
    from rtlab.quantize.passes import Pass

#: First opset with everything that a TF32 emulation inserts.
_TF32_OPSET = 9
#: Operators that move or choose numbers and so work on quantized ones.
_MOVES = placement.POOLS | placement.VIEWS | {"Concat"}
#: What ONNX Runtime 1.32 does by default.
_FP8_RELU_NOTE = (
    "{relus} in a graph that quantizes to FP8, and ONNX Runtime drops such from level EXTENDED on: what is exported "
    "has Max with 0 in the place of Relu"
)
_FP4_NOTE = "FP4 products run in float here: TensorRT multiplies in four bits, from Blackwell on"
_HALF_BASE_NOTE = (
    "the rest is fp16 but for sums of squares, since {maker} runs a whole attention in one kernel in 16 bits only"
    "{proof}; "
    'precision={{"*": "fp32", "op:MatMul": "{precision}"}} leaves it fp32'
)
_WRITTEN_NOTE = (
    "{attentions} written out as products and a softmax: between Q/DQ pairs {maker} makes one kernel of these in "
    "{precision}, and of the operator one in 16 bits"
)
#: Precisions by the types of what is stored.
_STORED = {kind: p for p in Precision if p.stored.scaled for kind in (str(p), f"u{p}")}


def prepare(
    model: Model,
    variant: Variant,
    ranges: Ranges | None = None,
    scales: Mapping[str, Scale] | None = None,
    *,
    inputs: LayerInputs | None = None,
    progress: Progress | None = None,
    maker: Maker | None = None,
) -> Prepared:
    """Express a variant's precisions in the graph.

    Args:
        model: The source.
        variant: Its precision, pins, calibrator and granularity of weights decide. Nodes without a form in a precision
            stay FP32, or FP16 or BF16 where that is the variant's own. Where a quantized type is, they are FP16 in a
            model with attention, if the compiler has one kernel for a whole attention in 16 bits only.
        ranges: Observed ranges of ``quantizable(model)``, which INT8 and FP8 need.
        scales: Thresholds by value instead of ranges; readers of a value without one stay as they are, with a note.
        inputs: Statistics of what products read, which GPTQ and bias correction need; without, they are left out.
        progress: Checked between the passes for a request to stop.
        maker: The compiler that it is for: what this computes in floating point only is not quantized, and attention
            only where one of its kernels takes it.

    Raises:
        Cancelled: the user asked to stop.
        CalibrationError: INT8 or FP8 with neither ranges nor scales, without the range of some value, or with a
            scale that is zero or not finite.
        ModelError: a weight holds NaN or infinity.
        VariantError: a pin fits no node, or the model's opset cannot be raised as far as a precision needs.
    """
    requested_precisions = assign(model, variant)
    if set(requested_precisions.values()) <= {Precision.FP32}:
        return Prepared(model, model, precisions=_collect_precisions(model, model, {}))
    preparation = _Preparation(
        model, variant, requested_precisions, inputs, progress or Silent(), maker=maker
    )
    return preparation.run(ranges, scales)


def find_fp8_relus(model: Model) -> tuple[str, ...]:
    """Ids of the Relus of a graph that quantizes to FP8: a pool between the two keeps none of them."""
    quantizes = any(
        n.op == "QuantizeLinear" and (model.values[n.outputs[0]].dtype or "").startswith(("fp8", "float8"))
        for n in model.top
    )
    return tuple(n.id for n in model.top if n.op == "Relu") if quantizes else ()


class _Preparation:
    """A typed graph and its emulation while the passes of a variant are applied."""

    def __init__(
        self,
        model: Model,
        variant: Variant,
        requested_precisions: Mapping[str, Precision],
        inputs: LayerInputs | None,
        progress: Progress,
        *,
        maker: Maker | None,
    ) -> None:
        #: The user's model, and what is quantized: with attention in products where a kernel takes it.
        self._original = self.source = model
        self.variant, self.requested_precisions = variant, requested_precisions
        self._progress, self._maker = progress, maker or Maker()
        self._corrector = WeightCorrector(model, variant, inputs, self._check)
        is_scaled = bool(variant.precision.stored.scaled)
        self._has_half_base = is_scaled and self._maker.half_attention and has_attention(model)
        # Nobody asked for FP16, so that nothing may overflow that has not before.
        self._variances = frozenset(fp16_plan.find_variances(model) if self._has_half_base else ())
        # The precision of a node that has no quantized form.
        self.fallback_precision = (
            variant.precision
            if variant.precision.is_half
            else (Precision.FP16 if self._has_half_base else Precision.FP32)
        )
        #: What the passes so far were applied to, and the graph under edit.
        self._model = model
        self._edit: Edit | None = None
        #: None while it is the typed graph itself.
        self.emulation: Model | Emulation | None = None
        self.scales: dict[str, Scale] = {}
        self.notes: list[str] = []
        #: Precisions of nodes that the source has quantized; they stay.
        self.source_precisions = {
            n.id: p for n in model.top if (p := _get_quantized_precision(n, model)) is not None
        }
        #: The precision that each node has got so far.
        self.assigned_precisions: dict[str, Precision] = {}
        self._written_attentions: list[attention_products.WrittenAttention] = []
        #: Attention operators that stay, with the reason, by precision.
        self._float_attentions: dict[Precision, dict[str, list[str]]] = {}

    def run(self, ranges: Ranges | None, scales: Mapping[str, Scale] | None) -> Prepared:
        self._write_out_attentions()
        if self._written_attentions:
            sources = {v: s for a in self._written_attentions for v, s in a.sources.items()}
            if scales is not None:
                scales = {**scales, **{v: scales[s] for v, s in sources.items() if s in scales}}
            if ranges is not None:
                values = {v: ranges.values[s] for v, s in sources.items() if s in ranges.values}
                ranges = dataclasses.replace(ranges, values={**ranges.values, **values})
        self._pass_guards_by()
        self._raise_opset()
        for precision in QUANTIZED:
            self._quantize(precision, ranges, scales)
        self._note_excess_clipping()
        self._note_subgraph_products()
        self._apply_narrow_types(ranges, scales)
        self._emulate_tf32()
        typed = self._finish_edit()
        requested = {n: p for n, p in self.requested_precisions.items() if p is not Precision.FP32}
        if not requested.keys().isdisjoint(self.source_precisions):
            count = pluralize(len(self.source_precisions), "node is", "nodes are")
            self.notes.insert(0, f"{count} quantized in the source already and stay so")
        if not self.assigned_precisions:
            names = " or ".join(sorted({p.upper() for p in requested.values()}))
            article = "a" if names.startswith(("BF", "TF")) else "an"
            node = "further node" if self.source_precisions else "node"
            end = ": the model is unchanged" if typed is self._original and self.emulation is None else ""
            self.notes.insert(0, f"no {node} has {article} {names} form here{end}")
        if relu_count := len(find_fp8_relus(typed)):
            relus = pluralize(relu_count, "Relu stands", "Relus stand")
            self.notes.append(_FP8_RELU_NOTE.format(relus=relus))
        if self._has_half_base:
            is_documented = self._maker.half_attention_is_documented
            proof = ", by its documentation (rtlab has seen no listing of it)" if is_documented else ""
            self.notes.insert(
                0,
                _HALF_BASE_NOTE.format(
                    maker=self._maker.title, proof=proof, precision=self.variant.precision
                ),
            )
        precisions = _collect_precisions(self._original, typed, self.assigned_precisions)
        reference = self.source if self._written_attentions else None
        return Prepared(typed, self.emulation or typed, self.scales, tuple(self.notes), precisions, reference)

    @property
    def _typed_model(self) -> Model:
        """The graph as it is now."""
        return self._model if self._edit is None else self._edit.model

    def _finish_edit(self) -> Model:
        """The graph as a model of its own, which later passes do not change."""
        self._model, self._edit = self._typed_model, None
        return self._model

    def _apply(self, graph_pass: Pass) -> None:
        if self._edit is None:
            # A rewritten source names the nodes of the user's model.
            keep_origins = (
                bool(self.variant.rewrites)
                or bool(self._written_attentions)
                or self._model is not self.source
            )
            self._edit = Edit(self._model, keep_origins=keep_origins)
        passes.apply(graph_pass, self._edit, self._check)
        self.notes += graph_pass.notes

    def _get_nodes(self, precision: Precision) -> frozenset[str]:
        nodes = frozenset(n for n, p in self.requested_precisions.items() if p is precision)
        return nodes - self._find_float_nodes(nodes) if precision in QUANTIZED else nodes

    def _find_float_nodes(self, nodes: Collection[str]) -> frozenset[str]:
        """Those of the nodes that the compiler computes in floating point only."""
        return frozenset(n for n in nodes if self.source.by_id[n].op in self._maker.float_ops)

    def _pass_guards_by(self) -> None:
        """Leave out guards that replace nothing, where a kernel takes the attention without."""
        idle = [
            attention
            for attention in find_attentions(self.source)
            if attention.sizes.is_guarded
            and guards.is_idle(self.source, attention)
            and any(
                dataclasses.replace(attention.sizes, is_guarded=False).find_kernel([k])
                and attention.nodes <= self._get_nodes(k.precision)
                for k in self._list_kernels()
            )
        ]
        if idle:
            self._apply(guards.pass_by(idle))

    def _raise_opset(self) -> None:
        """Convert once, to the highest opset that a precision in use needs, before anything is inserted."""
        needs = {Precision.FP32: self.source.opset}
        if self._get_nodes(Precision.TF32):
            needs[Precision.TF32] = _TF32_OPSET
        half_nodes = self._get_half_nodes()
        half_opset = fp16_plan.find_half_opset(self.source, half_nodes)
        for precision in QUANTIZED:
            plan = self._plan(self.source, self._get_nodes(precision), precision)
            if plan.activations:
                is_fp32 = all(self.source.values[v].dtype == "fp32" for v in plan.activations)
                least = 0 if is_fp32 else fp16_plan.SCALES_OPSET
                needs[precision] = max(precision.stored.opset, least)
            if not half_nodes.keys().isdisjoint(plan.nodes):
                half_opset = max(half_opset, fp16_plan.SCALES_OPSET)
        for precision in weights.WEIGHT_PRECISIONS:
            if weights.plan(self.source, self._get_nodes(precision), precision).weights:
                needs[precision] = precision.stored.opset
        highest = max(needs, key=lambda p: needs[p])
        if half_opset > needs[highest]:
            halves = " and ".join(sorted({p.upper() for p in half_nodes.values()}))
            try:
                self._apply(passes.raise_opset(half_opset, f'in "{halves.lower()}"'))
            except VariantError:
                # Fewer nodes in 16 bits are no reason to refuse; each of them is noted.
                self.notes.append(
                    f"the ONNX converter cannot raise opset {self.source.opset} to {half_opset}, "
                    f"which has more {halves}"
                )
        if needs[highest] > self._typed_model.opset:
            self._apply(passes.raise_opset(needs[highest], f'in "{highest}"'))

    def _quantize(
        self, precision: Precision, ranges: Ranges | None, scales: Mapping[str, Scale] | None
    ) -> None:
        nodes = self._get_nodes(precision)
        plan = self._plan(self._typed_model, nodes, precision)
        if scales is not None:
            plan = self._drop_unscaled_nodes(plan, nodes, precision, scales)
            chosen_scales: Mapping[str, Scale] = {
                v: scales[v] if v in scales else Scale(plan.thresholds[v]) for v in plan.activations
            }
        elif plan.activations:
            chosen_scales = self._calibrate(plan, precision, ranges)
        float_nodes = self._find_float_nodes(
            [n for n, p in self.requested_precisions.items() if p is precision]
        )
        skipped_nodes = dict(plan.skipped_nodes)
        for op in sorted({self.source.by_id[n].op for n in float_nodes}):
            reason = f"{self._maker.title} has no {precision.upper()} kernel for {op}"
            skipped_nodes[reason] = tuple(n.id for n in self.source.top if n.id in float_nodes and n.op == op)
        for reason, ids in self._float_attentions.get(precision, {}).items():
            skipped_nodes[reason] = (*skipped_nodes.get(reason, ()), *ids)
        self._note_skipped_nodes(skipped_nodes, (nodes | float_nodes) - plan.nodes, precision)
        if not plan.activations:
            return
        shared_scales = share_scales(plan, chosen_scales)
        for value, scale in shared_scales.items():
            # Where a value is quantized both ways, its INT8 scale decides accuracy.
            self.scales.setdefault(value, dataclasses.replace(scale, largest=precision.stored.largest))
        notes = tuple(scale.note for scale in shared_scales.values() if scale.note)
        granularity, rebuild = self.variant.weights, self._corrector.reconstruct_weight
        halves = self._get_half_nodes()
        pairs = insert_pairs(
            plan, chosen_scales, precision, granularity, self._check, rebuild=rebuild, halves=halves
        )
        self._apply(dataclasses.replace(pairs, notes=notes))
        self.assigned_precisions.update(dict.fromkeys(plan.nodes, precision))

    def _plan(self, model: Model, nodes: Collection[str], precision: Precision) -> placement.QuantizationPlan:
        """What is quantized of some nodes, in attention what the compiler has a kernel for."""
        plan = placement.plan(model, nodes, precision, self._list_kernels())
        # Probabilities are not observed in an operator, and none is above 1.
        known = {
            a.probabilities: 1.0 for a in self._written_attentions if a.probabilities in plan.activations
        }
        return dataclasses.replace(plan, thresholds={**plan.thresholds, **known})

    def _list_kernels(self) -> list[AttentionKernel]:
        """The compiler's kernels for attention, by what is around in this variant: FP32 will have the rest's type."""
        fallback = str(self.fallback_precision)
        return [
            dataclasses.replace(k, types=k.types - {"fp32"} | ({"fp32"} if fallback in k.types else set()))
            for k in self._maker.attention_kernels
        ]

    def _write_out_attentions(self) -> None:
        """Put products in the place of Attention where the compiler has a quantized kernel for these alone."""
        chosen: dict[str, Precision] = {}
        for node in find_operators(self.source):
            precision = self.requested_precisions[node.id]
            kernels = [k for k in self._list_kernels() if k.precision is precision]
            if not kernels:
                continue
            sizes = read_operator_sizes(self.source, node)
            misfit = sizes.explain_misfit(kernels)
            if why := misfit or attention_products.explain_unwritable(self.source, node):
                self._float_attentions.setdefault(precision, {}).setdefault(why, []).append(node.id)
            else:
                chosen[node.id] = precision
        if not chosen:
            return
        writing = attention_products.write_out([*chosen], self._written_attentions)
        keep_origins = bool(self.variant.rewrites)
        self.source = self._model = passes.run(self.source, [writing], keep_origins=keep_origins)
        self.requested_precisions = {
            **self.requested_precisions,
            **{n: p for a, p in zip(self._written_attentions, chosen.values(), strict=True) for n in a.nodes},
        }
        for precision in dict.fromkeys(chosen.values()):
            count = sum(p is precision for p in chosen.values())
            attentions = pluralize(count, "Attention is", "Attentions are")
            self.notes.append(
                _WRITTEN_NOTE.format(
                    attentions=attentions, maker=self._maker.title, precision=precision.upper()
                )
            )

    def _drop_unscaled_nodes(
        self,
        plan: placement.QuantizationPlan,
        nodes: frozenset[str],
        precision: Precision,
        scales: Mapping[str, Scale],
    ) -> placement.QuantizationPlan:
        """The plan without the nodes that read a value which has no scale."""
        unscaled_values: dict[str, None] = {}
        while missing_values := [v for v in plan.activations if v not in scales and v not in plan.thresholds]:
            unscaled_values.update(dict.fromkeys(missing_values))
            nodes -= {node for v in missing_values for node, _ in plan.activations[v]}
            plan = self._plan(self._typed_model, nodes, precision)
        if unscaled_values:
            self._note_unscaled_values([*unscaled_values])
        return plan

    def _note_unscaled_values(self, values: list[str]) -> None:
        count = pluralize(len(values), "value has", "values have")
        whose = self.variant.scales or "the given scales"
        self.notes.append(
            f"{count} no scale in {whose}: their readers stay {self.fallback_precision} ({list_first(values)})"
        )

    def _calibrate(
        self, plan: placement.QuantizationPlan, precision: Precision, ranges: Ranges | None
    ) -> Mapping[str, Scale]:
        message_prefix = f'Cannot prepare model "{self.source.name}" in "{precision}":'
        activations = plan.activations
        if ranges is None or self.variant.calibrator is None:
            raise CalibrationError(
                f"{message_prefix} the scales of {len(activations)} activations need observed ranges. "
                "Give calibration data, for example Study(model, data=CalibrationData.random(model))."
            )
        missing_values = [v for v in activations if v not in ranges.values and v not in plan.thresholds]
        if missing_values:
            raise CalibrationError(
                f'{message_prefix} value "{missing_values[0]}" and {len(missing_values) - 1} more were not observed. '
                "Collect every value of rtlab.quantize.quantizable(model)."
            )
        default_calibrator = self.variant.calibrator
        overrides = resolve_calibrators(self._typed_model, self.variant, activations)
        if overrides:
            counts = Counter(map(str, overrides.values())).items()
            phrases = ", ".join(f"{c} for {pluralize(n, 'value')}" for c, n in counts)
            self.notes.append(
                f"calibrated apart: {phrases} of {len(activations)}; {default_calibrator} for the others"
            )
        return {
            v: Scale(plan.thresholds[v])
            if v in plan.thresholds
            else compute_scale(v, ranges.values[v], overrides.get(v, default_calibrator), precision)
            for v in activations
        }

    def _note_excess_clipping(self) -> None:
        """Note thresholds that clip more than is healthy, in one line."""
        worst = [(v, s.doubt) for v, s in self.scales.items() if s.doubt]
        if worst:
            value, why = worst[0]
            count = f"{len(worst)} of {len(self.scales)} thresholds {'clips' if len(worst) == 1 else 'clip'}"
            self.notes.append(
                f'{count} more than is healthy, first that of "{value}", which {why}: '
                'the calibrator "auto" takes others'
            )

    def _note_skipped_nodes(
        self, skipped_nodes: Mapping[str, Iterable[str]], without: Collection[str], precision: Precision
    ) -> None:
        """Note what has no form in a precision: products, and whatever was pinned by hand."""
        remaining = {why: list(nodes) for why, nodes in skipped_nodes.items()}
        explained_nodes = {n for nodes in skipped_nodes.values() for n in nodes}
        if precision is not self.variant.precision:
            remaining[f"no {precision.upper()} form"] = [
                n for n in self._original.by_id if n in without and n not in explained_nodes
            ]
        # What the source computes in 16 bits stays so.
        wide, half = dict[str, list[str]](), dict[str, list[str]]()
        for why, nodes in remaining.items():
            for node in nodes:
                if node not in self.source_precisions:
                    is_wide = _get_half_precision(self.source.by_id[node], self.source) is None
                    (wide if is_wide else half).setdefault(why, []).append(node)
        self.notes += describe_skipped_nodes(wide, str(self.fallback_precision))
        self.notes += describe_skipped_nodes(half, "as exported")

    def _note_subgraph_products(self) -> None:
        """Note the products in bodies and functions, which are not quantized."""
        precision = self.variant.precision
        inner = [n.id for n in self.source.nodes if n.scope and n.op in placement.WEIGHTED]
        if inner and (precision in QUANTIZED or precision in weights.WEIGHT_PRECISIONS):
            self.notes += describe_skipped_nodes({"it stands in a body or a function": inner}, "as exported")

    def _scale_blocks(
        self, plan: weights.FourBitPlan, ranges: Ranges | None, scales: Mapping[str, Scale] | None
    ) -> tuple[weights.FourBitPlan, Mapping[str, Scale]]:
        """The scales of the activations of a plan in FP4, and the plan without nodes whose activation has none."""
        if scales is None:
            edges = {v: tuple((n, 0) for n in nodes) for v, nodes in plan.activations.items()}
            activations = placement.QuantizationPlan(edges, {}, (), {})
            chosen_scales = self._calibrate(activations, Precision.FP4, ranges) if edges else {}
        else:
            chosen_scales = scales
            if missing_values := [v for v in plan.activations if v not in scales]:
                self._note_unscaled_values(missing_values)
                unscaled_nodes = {n for v in missing_values for n in plan.activations[v]}
                plan = weights.plan(self._typed_model, plan.nodes - unscaled_nodes, Precision.FP4)
        block_scales = {
            v: dataclasses.replace(chosen_scales[v], largest=NVFP4_RANGE) for v in plan.activations
        }
        validate_scales(block_scales)
        for value, scale in block_scales.items():
            self.scales.setdefault(value, scale)
        self.notes += [scale.note for scale in block_scales.values() if scale.note]
        return plan, block_scales

    def _apply_narrow_types(self, ranges: Ranges | None, scales: Mapping[str, Scale] | None) -> None:
        """Weights in four bits, then values in sixteen, in the typed graph and in its emulation."""
        plans: dict[Precision, weights.FourBitPlan] = {}
        block_scales: Mapping[str, Scale] = {}
        for precision in weights.WEIGHT_PRECISIONS:
            nodes = self._get_nodes(precision)
            plan = weights.plan(self._typed_model, nodes, precision)
            self._note_skipped_nodes(plan.skipped_nodes, nodes - plan.nodes, precision)
            if precision is Precision.FP4:
                plan, block_scales = self._scale_blocks(plan, ranges, scales)
            if plan.weights:
                plans[precision] = plan
        if Precision.FP4 in plans and self.variant.target.sm is None:
            self.notes.append(_FP4_NOTE)
        stored = {p: self._corrector.quantize_four_bit(self._typed_model, q, p) for p, q in plans.items()}
        correction = self._corrector.build_correction(self._typed_model, stored, plans)
        if correction is not None:
            self._apply(correction)
        self.notes += self._corrector.notes
        types = self._get_half_types()
        constants = HalfConstants(self._typed_model.known, self._check)
        half_plan = fp16_plan.plan(self._typed_model, types, constants=constants)
        notes = (
            *fp16_plan.describe_saturation(self._typed_model, half_plan, constants),
            *describe_skipped_nodes(half_plan.skipped_nodes),
        )
        self.assigned_precisions.update(half_plan.nodes)
        self.assigned_precisions.update({n: p for p, plan in plans.items() for n in plan.nodes})
        emulation_model = self._finish_edit() if plans or half_plan.nodes else self._typed_model
        if plans:
            dequantize_passes = [
                weights.dequantize_weights(plan, p, half_plan.nodes, stored[p], block_scales)
                for p, plan in plans.items()
            ]
            keep_origins = emulation_model is not self._original
            self.emulation = emulation_model = passes.run(
                emulation_model, dequantize_passes, keep_origins=keep_origins
            )
            for precision, plan in plans.items():
                self._apply(weights.store_weights(plan, precision, stored[precision], block_scales))
        self.notes += notes
        if half_plan.nodes:
            self._apply_halves(emulation_model, half_plan, constants, plans)

    def _apply_halves(
        self,
        emulation_model: Model,
        half_plan: fp16_plan.HalfPlan,
        constants: HalfConstants,
        plans: Mapping[Precision, weights.FourBitPlan],
    ) -> None:
        """Values of 16 bits in the typed graph, and rounding in the emulation."""
        if plans:
            # Weights of four bits are written to each of the two.
            narrow = self._plan_half_with_four_bits(plans, half_plan)
            constants = HalfConstants(emulation_model.known, self._check)
            dequantizers = _list_dequantizers(emulation_model, plans)
            half_plan = fp16_plan.plan(emulation_model, half_plan.nodes, dequantizers, constants=constants)
        else:
            narrow = fp16_passes.narrow(half_plan, constants)
        underflow_count, total = fp16_plan.count_constant_underflows(emulation_model, half_plan, constants)
        if underflow_count:
            self.notes.append(
                f"{underflow_count:,} of {total:,} constants are too small for their 16 bits and become zero"
            )
        self._apply(narrow)
        rounding = functools.partial(_round_to_halves, emulation_model, half_plan)
        self.emulation = self._defer(emulation_model, rounding)
        if Precision.FP16 in half_plan.nodes.values():
            self.notes.append("FP16 accumulation is not emulated: sums inside an operator are FP32 here")

    def _plan_half_with_four_bits(
        self, plans: Mapping[Precision, weights.FourBitPlan], narrow_plan: fp16_plan.HalfPlan
    ) -> passes.Pass:
        """What is narrowed where weights are stored in four bits: INT4 is dequantized to 16 bits."""
        typed, halves = self._typed_model, dict(narrow_plan.nodes)
        dequantizers = _list_dequantizers(typed, plans)
        int4 = {Precision.INT4: plans[Precision.INT4]} if Precision.INT4 in plans else {}
        in_halves = [n for n in _list_dequantizers(typed, int4) if typed.by_id[n].origin in narrow_plan.nodes]
        halves.update(dict.fromkeys(in_halves, self.fallback_precision))
        constants = HalfConstants(typed.known, self._check)
        return fp16_passes.narrow(fp16_plan.plan(typed, halves, dequantizers, constants=constants), constants)

    def _defer(self, model: Model, make_pass: Callable[[Callable[[], object]], Pass]) -> Emulation:
        keep_origins = model is not self._original
        return Emulation(functools.partial(_emulate, model, make_pass, keep_origins=keep_origins))

    def _check(self) -> None:
        check(self._progress, "preparing the model")

    def _get_half_nodes(self) -> Mapping[str, Precision]:
        """Nodes that compute in 16 bits unless they get a quantized form."""
        types = {
            n: p if p.is_half else self.fallback_precision
            for n, p in self.requested_precisions.items()
            if p is not Precision.FP32 and (p.is_half or n not in self._variances)
        }
        return {n: p for n, p in types.items() if p.is_half}

    def _get_half_types(self) -> Mapping[str, Precision]:
        """What is computed in 16 bits beside: the same nodes, and the pairs in front of those that are quantized."""
        halves = self._get_half_nodes()
        pairs = [n for n in self._typed_model.top if n.op in fp16_plan.PAIR_OPS and n.origin != n.id]
        return {**halves, **{n.id: halves[n.origin] for n in pairs if n.origin in halves}}

    def _emulate_tf32(self) -> None:
        if self.variant.precision is not Precision.TF32:
            return
        products = fp16_passes.find_tf32_products(self.source)
        pinned_nodes = [n for n in products if self.requested_precisions[n] is Precision.FP32]
        if pinned_nodes:
            skipped = {"one switch sets it for the whole engine": pinned_nodes}
            self.notes += describe_skipped_nodes(skipped, "tf32")
        model = self.emulation or self._finish_edit()
        model = model.model(self._progress) if isinstance(model, Emulation) else model
        # INT4 is of weights alone; such products multiply in TF32.
        others = {**self.source_precisions, **self.assigned_precisions}
        nodes = [
            n
            for n in fp16_passes.find_tf32_products(model)
            if n in self.requested_precisions and others.get(n) in {None, Precision.INT4}
        ]
        if nodes:
            self.emulation = self._defer(model, functools.partial(fp16_passes.truncate, nodes))
            self.assigned_precisions = dict.fromkeys(nodes, Precision.TF32) | self.assigned_precisions


def _list_dequantizers(model: Model, plans: Mapping[Precision, weights.FourBitPlan]) -> tuple[str, ...]:
    """Ids of the nodes that dequantize what the nodes of some plans read."""
    makers = (
        model.producers.get(v) for p in plans.values() for n in p.nodes for v in model.by_id[n].inputs[:2]
    )
    return tuple(dict.fromkeys(m.id for m in makers if m is not None and m.op == "DequantizeLinear"))


def _emulate(
    model: Model,
    make_pass: Callable[[Callable[[], object]], Pass],
    check: Callable[[], object],
    *,
    keep_origins: bool,
) -> Model:
    return passes.run(model, [make_pass(check)], keep_origins=keep_origins)


def _round_to_halves(model: Model, plan: fp16_plan.HalfPlan, check: Callable[[], object]) -> Pass:
    return fp16_passes.round_values(plan, HalfConstants(model.known, check))


def _collect_precisions(
    source: Model, typed: Model, assigned_precisions: Mapping[str, Precision]
) -> Mapping[str, Precision]:
    """What each node computes in: what is quantized as the typed graph says, 16 bits and TF32 as planned."""
    table: dict[str, Precision] = {}
    for node in source.top:
        precision = _get_quantized_precision(typed.by_id[node.id], typed)
        if precision is None and assigned_precisions.get(node.id) not in QUANTIZED:
            precision = assigned_precisions.get(node.id)
        precision = precision or _get_half_precision(node, source)
        if precision is not None:
            table[node.id] = precision
    return table


def _get_quantized_precision(node: Node, typed: Model) -> Precision | None:
    """The quantized type that a node computes in, by what is stored in front of its dequantizations."""
    is_weighted = node.op in placement.WEIGHTED
    makers = [typed.find_dequantizer(v) if is_weighted else typed.producers.get(v) for v in node.inputs]
    kinds = [
        _STORED.get(typed.values[m.inputs[0]].dtype)
        if m and is_dequantizer(m.domain, m.op) and any(m.inputs[:1])
        else None
        for m in makers
    ]
    if node.op in placement.WEIGHTED:
        first, second = kinds[:2]
        if first is None:
            return second if second in weights.WEIGHT_PRECISIONS else None
        return first if first is second else None
    return kinds[0] if node.op in _MOVES and len(set(kinds)) == 1 else None


def _get_half_precision(node: Node, source: Model) -> Precision | None:
    """The 16-bit type of a node's first output in the source."""
    kinds = {str(p): p for p in Precision if p.is_half}
    # An output that is left out has no name.
    return next((kinds[k] for v in node.outputs if v and (k := source.values[v].dtype) in kinds), None)
