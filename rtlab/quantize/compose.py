"""From a source and a variant to a typed graph and its emulation, by the passes of every precision in a row."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rtlab.core.model import Model
from rtlab.core.phrases import list_first, pluralize
from rtlab.core.prepared import Emulation, Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, VariantError
from rtlab.quantize import fp16_passes, fp16_plan, passes, placement, tf32, weights
from rtlab.quantize.assign import assign, resolve_calibrators
from rtlab.quantize.edit import Edit
from rtlab.quantize.fp16_plan import describe_skipped_nodes
from rtlab.quantize.narrow import HalfConstants
from rtlab.quantize.rewrite import QUANTIZED, insert_pairs, share_scales
from rtlab.quantize.thresholds import compute_scale
from rtlab.quantize.weight_correction import WeightCorrector

if TYPE_CHECKING:
    from rtlab.core.layer_inputs import LayerInputs
    from rtlab.core.node import Node
    from rtlab.core.protocols import Progress
    from rtlab.quantize.passes import Pass

#: First opset with everything that a TF32 emulation inserts.
_TF32_OPSET = 9
#: Operators that move or choose numbers and so work on quantized ones.
_MOVES = placement.POOLS | placement.VIEWS | {"Concat"}
_FLOATS = {"fp16", "bf16", "fp32", "fp64"}
#: Weights that are in four bits before the passes that store them run.
_FourBitWeights: TypeAlias = Mapping[Precision, weights.FourBitWeights]
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
) -> Prepared:
    """Express a variant's precisions in the graph. The given model is never changed.

    Args:
        model: The source.
        variant: Its precision and its pins decide, for INT8 and FP8 also its calibrator and its granularity of
            weights. What a node has no form for stays FP32, or FP16 or BF16 where that is the variant's own.
        ranges: Observed ranges of ``quantizable(model)``, which INT8 and FP8 need.
        scales: Given thresholds by value instead of ranges, from a calibration cache for example. The readers of
            a value without one stay as they are, with a note.
        inputs: What products read, which reconstruction and bias correction need; without, they are left out with a
            note. Treatments before them are of ``rtlab.quantize.apply_transforms``.
        progress: Asked between the passes whether to stop: those over large weights take seconds.

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
    return _Preparation(model, variant, requested_precisions, inputs, progress or Silent()).run(
        ranges, scales
    )


#: What ONNX Runtime does to such a graph by default (seen in 1.32), and what is written in its place.
_FP8_RELU_NOTE = (
    "{relus} in a graph that quantizes to FP8, and ONNX Runtime drops such from level EXTENDED on: what is exported "
    "has Max with 0 in the place of Relu"
)


def find_fp8_relus(model: Model) -> tuple[str, ...]:
    """Ids of the Relus of a graph that quantizes to FP8: a pool between the two keeps none of them."""
    quantizes = any(n.op == "QuantizeLinear" and model.values[n.outputs[0]].dtype == "fp8" for n in model.top)
    return tuple(n.id for n in model.top if n.op == "Relu") if quantizes else ()


class _Preparation:
    """Holds both graphs while the passes go over them."""

    def __init__(
        self,
        model: Model,
        variant: Variant,
        requested_precisions: Mapping[str, Precision],
        inputs: LayerInputs | None,
        progress: Progress,
    ) -> None:
        self.source, self.variant, self.requested_precisions = model, variant, requested_precisions
        self._progress = progress
        self._corrector = WeightCorrector(model, variant, inputs, self._check)
        # What a node falls back to for which there is no quantized form.
        self.fallback_precision = variant.precision if variant.precision.is_half else Precision.FP32
        #: What the passes so far were applied to, and what they make the graph.
        self._edit: Edit | None = None
        self._model = model
        #: None while it is the typed graph itself.
        self.emulation: Model | Emulation | None = None
        self.scales: dict[str, Scale] = {}
        self.notes: list[str] = []
        #: What the source has quantized itself; that stays as it is.
        self.source_precisions = {
            n.id: p for n in model.top if (p := _get_quantized_precision(n, model)) is not None
        }
        #: Whether given scales lack a value that nodes would be quantized with.
        self.has_missing_scales = False
        self._source_plans: dict[Precision, placement.QuantizationPlan] = {}
        #: What each node got; the last pass sees from it what is left to do.
        self.assigned_precisions: dict[str, Precision] = {}

    def run(self, ranges: Ranges | None, scales: Mapping[str, Scale] | None) -> Prepared:
        self._raise_opset()
        for precision in QUANTIZED:
            self._quantize(precision, ranges, scales)
        self._note_excess_clipping()
        self._note_subgraph_products()
        self._apply_narrow_types()
        self._emulate_tf32()
        typed = self._finish_edit()
        changed = typed is not self.source or self.emulation is not None
        if self.source_precisions and any(
            p is not Precision.FP32
            for n, p in self.requested_precisions.items()
            if n in self.source_precisions
        ):
            count = pluralize(len(self.source_precisions), "node is", "nodes are")
            self.notes.insert(0, f"{count} quantized in the source already and stay so")
        if not self.assigned_precisions:
            names = sorted({p.upper() for p in self.requested_precisions.values() if p is not Precision.FP32})
            article = "a" if names[0].startswith(("BF", "TF")) else "an"
            nothing = (
                f"no {'further ' if self.source_precisions else ''}node "
                f"has {article} {' or '.join(names)} form here"
            )
            if self.has_missing_scales:
                nothing = "no node is quantized, for want of scales"
            self.notes.insert(0, nothing + ("" if changed else ": the model is unchanged"))
        if relu_count := len(find_fp8_relus(typed)):
            self.notes.append(
                _FP8_RELU_NOTE.format(relus=pluralize(relu_count, "Relu stands", "Relus stand"))
            )
        precisions = _collect_precisions(self.source, typed, self.assigned_precisions)
        return Prepared(typed, self.emulation or typed, self.scales, tuple(self.notes), precisions)

    @property
    def _typed_model(self) -> Model:
        """The graph as it stands now, to plan by."""
        return self._model if self._edit is None else self._edit.model

    def _finish_edit(self) -> Model:
        """The graph as a model of its own, which later passes leave as it is."""
        if self._edit is not None:
            self._model, self._edit = self._edit.finish(), None
        return self._model

    def _apply(self, graph_pass: Pass) -> None:
        if self._edit is None:
            self._edit = Edit(self._model, keep_origins=self._model is not self.source)
        passes.apply(graph_pass, self._edit, self._check)
        self.notes += graph_pass.notes

    def _get_nodes(self, precision: Precision) -> frozenset[str]:
        return frozenset(n for n, p in self.requested_precisions.items() if p is precision)

    def _raise_opset(self) -> None:
        """Convert once, to the highest opset that a precision in use needs, before anything is inserted."""
        needs = {Precision.FP32: 0}
        if self._get_nodes(Precision.TF32):
            needs[Precision.TF32] = _TF32_OPSET
        for precision in QUANTIZED:
            if self._plan_quantization(self._get_nodes(precision), precision).activations:
                needs[precision] = precision.stored.opset
        for precision in weights.WEIGHT_PRECISIONS:
            if weights.plan(self.source, self._get_nodes(precision), precision).weights:
                needs[precision] = precision.stored.opset
        bf16_opset = fp16_plan.find_bf16_opset(
            self.source, [n for n, p in self._get_half_nodes().items() if p is Precision.BF16]
        )
        highest = max(needs, key=lambda p: needs[p])
        if bf16_opset > max(needs[highest], self.source.opset):
            try:
                self._apply(passes.raise_opset(bf16_opset, 'in "bf16"'))
            except VariantError:
                # Fewer nodes in BF16 are no reason to refuse; each of them is noted.
                self.notes.append(
                    f"the ONNX converter cannot raise opset {self.source.opset} to {bf16_opset}, which has more BF16"
                )
            else:
                return
        if needs[highest] > self.source.opset:
            self._apply(passes.raise_opset(needs[highest], f'in "{highest}"'))

    def _plan_quantization(self, nodes: frozenset[str], precision: Precision) -> placement.QuantizationPlan:
        """What of the graph as it stands is quantized; the source is asked once."""
        if self._typed_model is not self.source:
            return placement.plan(self._typed_model, nodes, precision)
        if precision not in self._source_plans:
            self._source_plans[precision] = placement.plan(self.source, nodes, precision)
        return self._source_plans[precision]

    def _quantize(
        self, precision: Precision, ranges: Ranges | None, scales: Mapping[str, Scale] | None
    ) -> None:
        nodes = self._get_nodes(precision)
        plan = self._plan_quantization(nodes, precision)
        if scales is not None:
            plan = self._drop_unscaled_nodes(plan, nodes, precision, scales)
            chosen_scales = {v: scales[v] for v in plan.activations}
        elif plan.activations:
            chosen_scales = dict(self._calibrate(plan, precision, ranges))
        self._note_skipped_nodes(plan.skipped_nodes, nodes - plan.nodes, precision)
        if not plan.activations:
            return
        shared_scales = share_scales(plan, chosen_scales)
        for value, scale in shared_scales.items():
            # Where a value is quantized both ways, its INT8 scale is the one that decides accuracy.
            self.scales.setdefault(value, dataclasses.replace(scale, largest=precision.stored.largest))
        scale_notes = tuple(scale.note for scale in shared_scales.values() if scale.note)
        rebuild = self._corrector.reconstruct_weight
        pairs = insert_pairs(
            plan, chosen_scales, precision, self.variant.weights, self._check, rebuild=rebuild
        )
        self._apply(dataclasses.replace(pairs, notes=scale_notes))
        self.assigned_precisions.update(dict.fromkeys(plan.nodes, precision))

    def _drop_unscaled_nodes(
        self,
        plan: placement.QuantizationPlan,
        nodes: Collection[str],
        precision: Precision,
        scales: Mapping[str, Scale],
    ) -> placement.QuantizationPlan:
        """The plan without the nodes that read a value which has no scale."""
        unscaled_values: dict[str, None] = {}
        remaining = frozenset(nodes)
        while missing_values := [v for v in plan.activations if v not in scales]:
            unscaled_values.update(dict.fromkeys(missing_values))
            remaining -= {node for v in missing_values for node, _ in plan.activations[v]}
            plan = placement.plan(self._typed_model, remaining, precision)
        if unscaled_values:
            self.has_missing_scales = True
            count = pluralize(len(unscaled_values), "value has", "values have")
            whose = self.variant.scales or "the given scales"
            stay = (
                f"what reads {'it' if len(unscaled_values) == 1 else 'them'} stays {self.fallback_precision}"
            )
            self.notes.append(f"{count} no scale in {whose}: {stay} ({list_first([*unscaled_values])})")
        return plan

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
        missing_values = [v for v in activations if v not in ranges.values]
        if missing_values:
            raise CalibrationError(
                f'{message_prefix} value "{missing_values[0]}" and {len(missing_values) - 1} more were not observed. '
                "Collect every value of rtlab.quantize.quantizable(model)."
            )
        default_calibrator = self.variant.calibrator
        overrides = resolve_calibrators(self._typed_model, self.variant, activations)
        if overrides:
            phrases = (
                f"{c} for {pluralize(n, 'value')}" for c, n in Counter(map(str, overrides.values())).items()
            )
            self.notes.append(
                f"calibrated apart: {', '.join(phrases)} of {len(activations)}; {default_calibrator} for the others"
            )
        return {
            v: compute_scale(v, ranges.values[v], overrides.get(v, default_calibrator), precision)
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
                n for n in self.requested_precisions if n in without and n not in explained_nodes
            ]
        # What the source computes in FP16, say, stays in that.
        wide, other = dict[str, list[str]](), dict[str, list[str]]()
        for why, nodes in remaining.items():
            for node in nodes:
                if node not in self.source_precisions:
                    table = wide if self._get_output_dtype(node) == "fp32" else other
                    table.setdefault(why, []).append(node)
        self.notes += describe_skipped_nodes(wide, str(self.fallback_precision))
        self.notes += describe_skipped_nodes(other, "as exported")

    def _get_output_dtype(self, node: str) -> str:
        """The type of what a node of the main graph writes; FP32 where that is unknown."""
        values = self.source.values
        dtypes = (values[o].dtype for o in self.source.by_id[node].outputs if o in values)
        return next((dtype for dtype in dtypes if dtype in _FLOATS), "fp32")

    def _note_subgraph_products(self) -> None:
        """Note the products that no quantization reaches."""
        precision = self.variant.precision
        inner = [n.id for n in self.source.nodes if n.scope and n.op in placement.WEIGHTED]
        if inner and (precision in QUANTIZED or precision in weights.WEIGHT_PRECISIONS):
            self.notes += describe_skipped_nodes({"it stands in a body or a function": inner}, "as exported")

    def _apply_narrow_types(self) -> None:
        """Weights in four bits, then everything in sixteen; the second pass makes both meet."""
        plans = {}
        for precision in weights.WEIGHT_PRECISIONS:
            nodes = self._get_nodes(precision)
            plan = weights.plan(self._typed_model, nodes, precision)
            self._note_skipped_nodes(plan.skipped_nodes, nodes - plan.nodes, precision)
            if plan.weights:
                plans[precision] = plan
        four_bit_weights = {
            p: self._corrector.quantize_four_bit(self._typed_model, plan, p) for p, plan in plans.items()
        }
        if (
            correction := self._corrector.build_correction(self._typed_model, four_bit_weights, plans)
        ) is not None:
            self._apply(correction)
        self.notes += self._corrector.notes
        types = {n: p for n, p in self._get_half_nodes().items() if n not in self.assigned_precisions}
        self._check()
        constants = HalfConstants(self._typed_model.known, self._check)
        narrow_plan = fp16_plan.plan(self._typed_model, types, constants=constants)
        notes = (
            *fp16_plan.describe_saturation(self._typed_model, narrow_plan, constants),
            *describe_skipped_nodes(narrow_plan.skipped_nodes),
        )
        if plans or narrow_plan.nodes:
            self._apply_per_model(plans, four_bit_weights, narrow_plan, constants, notes)
        else:
            self.notes += notes
        self.assigned_precisions.update(narrow_plan.nodes)
        self.assigned_precisions.update({n: p for p, plan in plans.items() for n in plan.nodes})

    def _apply_per_model(
        self,
        plans: Mapping[Precision, weights.FourBitPlan],
        four_bit_weights: _FourBitWeights,
        narrow_plan: fp16_plan.HalfPlan,
        constants: HalfConstants,
        notes: tuple[str, ...],
    ) -> None:
        """Apply what the typed graph and its emulation express in different ways."""
        fp32_model = self._finish_edit()
        if plans:
            dequantize_passes = [
                weights.dequantize_weights(plan, p, narrow_plan.nodes, four_bit_weights[p])
                for p, plan in plans.items()
            ]
            self.emulation = emulation_model = passes.run(
                fp32_model, dequantize_passes, keep_origins=fp32_model is not self.source
            )
            for precision, plan in plans.items():
                self._apply(weights.store_weights(plan, precision, four_bit_weights[precision]))
        self.notes += notes
        if not narrow_plan.nodes:
            return
        narrow = fp16_passes.narrow(narrow_plan, constants)
        # Both models are the one that was planned for unless weights of four bits were written to each.
        emulation_plan, emulation_constants = narrow_plan, constants
        if plans:
            emulation_constants = HalfConstants(emulation_model.known, self._check)
            emulation_plan = fp16_plan.plan(emulation_model, narrow_plan.nodes, constants=emulation_constants)
            narrow = self._plan_half_with_four_bits(plans, narrow_plan)
        else:
            emulation_model = fp32_model
        underflow_count, total = fp16_plan.count_constant_underflows(
            emulation_model, emulation_plan, emulation_constants
        )
        if underflow_count:
            self.notes.append(
                f"{underflow_count:,} of {total:,} constants are too small for their 16 bits and become zero"
            )
        self._apply(narrow)
        self._check()
        rounding = functools.partial(_round_to_halves, emulation_model, emulation_plan)
        self.emulation = self._defer(emulation_model, rounding)
        if Precision.FP16 in narrow_plan.nodes.values():
            self.notes.append("FP16 accumulation is not emulated: sums inside an operator are FP32 here")

    def _plan_half_with_four_bits(
        self, plans: Mapping[Precision, weights.FourBitPlan], narrow_plan: fp16_plan.HalfPlan
    ) -> passes.Pass:
        """What is narrowed where weights are stored in four bits: what dequantizes INT4 does so in 16 bits."""
        typed, halves, dequantizers = self._typed_model, dict(narrow_plan.nodes), list[str]()
        for precision, plan in plans.items():
            dequantizer_ids = dict.fromkeys(typed.producers[typed.by_id[n].inputs[1]].id for n in plan.nodes)
            dequantizers += dequantizer_ids
            if precision is Precision.INT4:
                halves.update(
                    {
                        n: self.fallback_precision
                        for n in dequantizer_ids
                        if typed.by_id[n].origin in narrow_plan.nodes
                    }
                )
        constants = HalfConstants(typed.known, self._check)
        return fp16_passes.narrow(fp16_plan.plan(typed, halves, dequantizers, constants=constants), constants)

    def _defer(self, model: Model, make_pass: Callable[[Callable[[], object]], Pass]) -> Emulation:
        keep_origins = model is not self.source
        return Emulation(functools.partial(_emulate, model, make_pass, keep_origins=keep_origins))

    def _check(self) -> None:
        check(self._progress, "preparing the model")

    def _get_half_nodes(self) -> Mapping[str, Precision]:
        """Nodes that compute in 16 bits unless they get a quantized form."""
        types = {
            n: p if p.is_half else self.fallback_precision
            for n, p in self.requested_precisions.items()
            if p is not Precision.FP32
        }
        return {n: p for n, p in types.items() if p.is_half}

    def _emulate_tf32(self) -> None:
        if self.variant.precision is not Precision.TF32:
            return
        pinned_nodes = [
            n for n in tf32.find_tf32_products(self.source) if self.requested_precisions[n] is Precision.FP32
        ]
        if pinned_nodes:
            self.notes += describe_skipped_nodes(
                {"one switch sets it for the whole engine": pinned_nodes}, "tf32"
            )
        model = self.emulation or self._finish_edit()
        model = model.model(self._progress) if isinstance(model, Emulation) else model
        nodes = [
            n
            for n in tf32.find_tf32_products(model)
            if n in self.requested_precisions
            and self.assigned_precisions.get(n, self.source_precisions.get(n))
            in {None, *weights.WEIGHT_PRECISIONS}
        ]
        if nodes:
            self.emulation = self._defer(model, functools.partial(tf32.truncate, nodes))
            self.assigned_precisions.update(
                (n, Precision.TF32) for n in nodes if n not in self.assigned_precisions
            )


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
        quantized_precision = _get_quantized_precision(typed.by_id[node.id], typed)
        assigned_precision = assigned_precisions.get(node.id)
        precision = (
            quantized_precision
            or (assigned_precision if assigned_precision not in QUANTIZED else None)
            or _get_half_precision(node, source)
        )
        if precision is not None:
            table[node.id] = precision
    return table


def _get_quantized_precision(node: Node, typed: Model) -> Precision | None:
    """The quantized type that a node computes in, by what is stored in front of its dequantizations."""
    kinds = [_STORED.get(k) for k in _iter_stored_dtypes(node, typed)]
    if node.op in placement.WEIGHTED:
        first, second = kinds[:2]
        if first is None:
            return second if second in weights.WEIGHT_PRECISIONS else None
        return first if first is second else None
    return kinds[0] if node.op in _MOVES and len(set(kinds)) == 1 else None


def _get_half_precision(node: Node, source: Model) -> Precision | None:
    """The 16-bit type that the source itself gives a node's first output."""
    kinds = {str(p): p for p in Precision if p.is_half}
    # An output that nobody wants has no name.
    return next((kinds[k] for v in node.outputs if v and (k := source.values[v].dtype) in kinds), None)


def _iter_stored_dtypes(node: Node, typed: Model) -> Iterator[str]:
    for value in node.inputs:
        maker = typed.producers.get(value)
        quantized = maker is not None and maker.op == "DequantizeLinear"
        yield typed.values[maker.inputs[0]].dtype if maker is not None and quantized else ""
