"""From a source and a variant to a typed graph and its emulation, by the passes of every precision in a row."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.prepared import Emulation, Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, VariantError
from rtlab.quantize import half, half_plan, passes, placement, tf32, weights
from rtlab.quantize.assign import assign, calibrators
from rtlab.quantize.calibrators import scale as calibrated
from rtlab.quantize.edit import Edit
from rtlab.quantize.half_plan import stays
from rtlab.quantize.mending import Mending
from rtlab.quantize.narrow import HALVES, Narrowing
from rtlab.quantize.rewrite import QUANTIZED, Pairs, share

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
_Made: TypeAlias = Mapping[Precision, Mapping[tuple[str, weights.ScaleLayout], weights.Stored]]
_STORED = {
    "int8": Precision.INT8,
    "uint8": Precision.INT8,
    "fp8": Precision.FP8,
    "int4": Precision.INT4,
    "uint4": Precision.INT4,
    "fp4": Precision.FP4,
}


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
            note. Treatments before them are of ``rtlab.quantize.treating``.
        progress: Asked between the passes whether to stop: those over large weights take seconds.

    Raises:
        Cancelled: the user asked to stop.
        CalibrationError: INT8 or FP8 with neither ranges nor scales, without the range of some value, or with a
            scale that is zero or not finite.
        ModelError: a weight holds NaN or infinity.
        VariantError: a pin fits no node, or the model's opset cannot be raised as far as a precision needs.
    """
    asked = assign(model, variant)
    if set(asked.values()) <= {Precision.FP32}:
        return Prepared(model, model, precisions=_computed(model, model, {}))
    return _Preparation(model, variant, asked, inputs, progress or Silent()).run(ranges, scales)


#: What ONNX Runtime does to such a graph by default (seen in 1.32), and what is written in its place.
_EXPOSED = (
    "{relus} in a graph that quantizes to FP8, and ONNX Runtime drops such from level EXTENDED on: what is exported "
    "has Max with 0 in the place of Relu"
)


def exposed_relus(model: Model) -> tuple[str, ...]:
    """Ids of the Relus of a graph that quantizes to FP8: a pool between the two keeps none of them."""
    quantizes = any(n.op == "QuantizeLinear" and model.values[n.outputs[0]].dtype == "fp8" for n in model.top)
    return tuple(n.id for n in model.top if n.op == "Relu") if quantizes else ()


class _Preparation:
    """Holds both graphs while the passes go over them."""

    def __init__(
        self,
        model: Model,
        variant: Variant,
        asked: Mapping[str, Precision],
        inputs: LayerInputs | None,
        progress: Progress,
    ) -> None:
        self.source, self.variant, self.asked = model, variant, asked
        self._progress = progress
        self._mending = Mending(model, variant, inputs, self._check)
        # What a node falls back to for which there is no quantized form.
        self.rest = variant.precision if variant.precision in HALVES else Precision.FP32
        #: What the passes so far were applied to, and what they make the graph.
        self._edit: Edit | None = None
        self._made = model
        #: None while it is the typed graph itself.
        self.emulation: Model | Emulation | None = None
        self.scales: dict[str, Scale] = {}
        self.notes: list[str] = []
        #: What the source has quantized itself; that stays as it is.
        self.already = {n.id: p for n in model.top if (p := _read(n, model)) is not None}
        #: Whether given scales lack a value that nodes would be quantized with.
        self.unscaled = False
        self._first: dict[Precision, placement.QuantizationPlan] = {}
        #: What each node got; the last pass sees from it what is left to do.
        self.given: dict[str, Precision] = {}

    def run(self, ranges: Ranges | None, scales: Mapping[str, Scale] | None) -> Prepared:
        self._raise_opset()
        for precision in QUANTIZED:
            self._quantize(precision, ranges, scales)
        self._doubt()
        self._bodies()
        self._narrow()
        self._tf32()
        typed = self._finished()
        changed = typed is not self.source or self.emulation is not None
        if self.already and any(p is not Precision.FP32 for n, p in self.asked.items() if n in self.already):
            count = "1 node is" if len(self.already) == 1 else f"{len(self.already)} nodes are"
            self.notes.insert(0, f"{count} quantized in the source already and stay so")
        if not self.given:
            names = sorted({p.upper() for p in self.asked.values() if p is not Precision.FP32})
            nothing = f"no {'further ' if self.already else ''}node has {_a(' or '.join(names))} form here"
            if self.unscaled:
                nothing = "no node is quantized, for want of scales"
            self.notes.insert(0, nothing + ("" if changed else ": the model is unchanged"))
        if exposed := len(exposed_relus(typed)):
            self.notes.append(_EXPOSED.format(relus=many(exposed, "Relu stands", "Relus stand")))
        precisions = _computed(self.source, typed, self.given)
        return Prepared(typed, self.emulation or typed, self.scales, tuple(self.notes), precisions)

    @property
    def _typed(self) -> Model:
        """The graph as it stands now, to plan by."""
        return self._made if self._edit is None else self._edit.model

    def _finished(self) -> Model:
        """The graph as a model of its own, which later passes leave as it is."""
        if self._edit is not None:
            self._made, self._edit = self._edit.finish(), None
        return self._made

    def _apply(self, one: Pass) -> None:
        if self._edit is None:
            self._edit = Edit(self._made, later=self._made is not self.source)
        passes.apply(one, self._edit, self._check)
        self.notes += one.notes

    def _nodes(self, precision: Precision) -> frozenset[str]:
        return frozenset(n for n, p in self.asked.items() if p is precision)

    def _raise_opset(self) -> None:
        """Convert once, to the highest opset that a precision in use needs, before anything is inserted."""
        needs = {Precision.FP32: 0}
        if self._nodes(Precision.TF32):
            needs[Precision.TF32] = _TF32_OPSET
        for precision in (Precision.INT8, Precision.FP8):
            if self._placed(self._nodes(precision), precision).activations:
                needs[precision] = QUANTIZED[precision].opset
        for precision in (Precision.INT4, Precision.FP4):
            if weights.plan(self.source, self._nodes(precision), precision).weights:
                needs[precision] = weights.OPSETS[precision]
        wanted = half_plan.opset_for(
            self.source, [n for n, p in self._halves().items() if p is Precision.BF16]
        )
        most = max(needs, key=lambda p: needs[p])
        if wanted > max(needs[most], self.source.opset):
            try:
                self._convert(wanted, Precision.BF16)
            except VariantError:
                # Fewer nodes in BF16 are no reason to refuse; each of them is noted.
                self.notes.append(
                    f"the ONNX converter cannot raise opset {self.source.opset} to {wanted}, which has more BF16"
                )
            else:
                return
        if needs[most] > self.source.opset:
            self._convert(needs[most], most)

    def _placed(self, nodes: frozenset[str], precision: Precision) -> placement.QuantizationPlan:
        """What of the graph as it stands is quantized; the source is asked once."""
        if self._typed is not self.source:
            return placement.plan(self._typed, nodes, precision)
        if precision not in self._first:
            self._first[precision] = placement.plan(self.source, nodes, precision)
        return self._first[precision]

    def _convert(self, opset: int, why: Precision) -> None:
        self._apply(passes.Raise(opset, f'in "{why}"'))

    def _quantize(
        self, precision: Precision, ranges: Ranges | None, scales: Mapping[str, Scale] | None
    ) -> None:
        nodes = self._nodes(precision)
        plan = self._placed(nodes, precision)
        if scales is not None:
            plan = self._with_scale(plan, nodes, precision, scales)
            chosen = {v: scales[v] for v in plan.activations}
        elif plan.activations:
            chosen = dict(self._calibrate(plan, precision, ranges))
        self._keep(plan.kept, nodes - plan.nodes, precision)
        if not plan.activations:
            return
        shared = share(plan, chosen)
        for value, scale in shared.items():
            # Where a value is quantized both ways, its INT8 scale is the one that decides accuracy.
            self.scales.setdefault(value, dataclasses.replace(scale, largest=QUANTIZED[precision].largest))
        told = tuple(scale.note for scale in shared.values() if scale.note)
        rebuild = self._mending.rebuild
        self._apply(Pairs(plan, chosen, precision, self.variant.weights, self._check, told, rebuild))
        self.given.update(dict.fromkeys(plan.nodes, precision))

    def _with_scale(
        self,
        plan: placement.QuantizationPlan,
        nodes: Collection[str],
        precision: Precision,
        scales: Mapping[str, Scale],
    ) -> placement.QuantizationPlan:
        """The plan without the nodes that read a value which has no scale."""
        unknown: dict[str, None] = {}
        left = frozenset(nodes)
        while missing := [v for v in plan.activations if v not in scales]:
            unknown.update(dict.fromkeys(missing))
            left -= {node for v in missing for node, _ in plan.activations[v]}
            plan = placement.plan(self._typed, left, precision)
        if unknown:
            self.unscaled = True
            count = "1 value has" if len(unknown) == 1 else f"{len(unknown)} values have"
            first = ", ".join([*unknown][:3]) + (", ..." if len(unknown) > 3 else "")
            whose = self.variant.scales or "the given scales"
            stay = f"what reads {'it' if len(unknown) == 1 else 'them'} stays {self.rest}"
            self.notes.append(f"{count} no scale in {whose}: {stay} ({first})")
        return plan

    def _calibrate(
        self, plan: placement.QuantizationPlan, precision: Precision, ranges: Ranges | None
    ) -> Mapping[str, Scale]:
        doing = f'Cannot prepare model "{self.source.name}" in "{precision}":'
        wanted = plan.activations
        if ranges is None or self.variant.calibrator is None:
            raise CalibrationError(
                f"{doing} the scales of {len(wanted)} activations need observed ranges. "
                "Give calibration data, for example Study(model, data=CalibrationData.random(model))."
            )
        missing = [v for v in wanted if v not in ranges.values]
        if missing:
            raise CalibrationError(
                f'{doing} value "{missing[0]}" and {len(missing) - 1} more were not observed. '
                "Collect every value of rtlab.quantize.quantizable(model)."
            )
        usual = self.variant.calibrator
        own = calibrators(self._typed, self.variant, wanted)
        if own:
            told = (f"{c} for {many(n, 'value')}" for c, n in Counter(map(str, own.values())).items())
            self.notes.append(f"calibrated apart: {', '.join(told)} of {len(wanted)}; {usual} for the others")
        return {v: calibrated(v, ranges.values[v], own.get(v, usual), precision) for v in wanted}

    def _doubt(self) -> None:
        """Note thresholds that clip more than is healthy, in one line."""
        worst = [(v, s.doubt) for v, s in self.scales.items() if s.doubt]
        if worst:
            value, why = worst[0]
            count = f"{len(worst)} of {len(self.scales)} thresholds {'clips' if len(worst) == 1 else 'clip'}"
            self.notes.append(
                f'{count} more than is healthy, first that of "{value}", which {why}: '
                'the calibrator "auto" takes others'
            )

    def _keep(
        self, kept: Mapping[str, Iterable[str]], without: Collection[str], precision: Precision
    ) -> None:
        """Note what has no form in a precision: products, and whatever was pinned by hand."""
        left = {why: [n for n in nodes if n not in self.already] for why, nodes in kept.items()}
        told = {n for nodes in kept.values() for n in nodes}
        if precision is not self.variant.precision:
            left[f"no {precision.upper()} form"] = [
                n for n in self.asked if n in without and n not in told | self.already.keys()
            ]
        # What the source computes in FP16, say, stays in that.
        wide = {why: [n for n in nodes if self._type(n) == "fp32"] for why, nodes in left.items()}
        other = {why: [n for n in nodes if self._type(n) != "fp32"] for why, nodes in left.items()}
        self.notes += stays({why: nodes for why, nodes in wide.items() if nodes}, str(self.rest))
        self.notes += stays({why: nodes for why, nodes in other.items() if nodes}, "as exported")

    def _type(self, node: str) -> str:
        """The type of what a node of the main graph writes; FP32 where that is unknown."""
        written = [self.source.values[o] for o in self.source.by_id[node].outputs if o in self.source.values]
        floats = [v.dtype for v in written if v.dtype in _FLOATS]
        return floats[0] if floats else "fp32"

    def _bodies(self) -> None:
        """Note the products that no quantization reaches."""
        asked = self.variant.precision
        inner = [n.id for n in self.source.nodes if n.scope and n.op in placement.WEIGHTED]
        if inner and (asked in QUANTIZED or asked in weights.OPSETS):
            self.notes += stays({"it stands in a body or a function": inner}, "as exported")

    def _narrow(self) -> None:
        """Weights in four bits, then everything in sixteen; the second pass makes both meet."""
        plans = {}
        for precision in weights.OPSETS:
            nodes = self._nodes(precision)
            plan = weights.plan(self._typed, nodes, precision)
            self._keep(plan.kept, nodes - plan.nodes, precision)
            if plan.weights:
                plans[precision] = plan
        made = {p: self._mending.stored(self._typed, plan, p) for p, plan in plans.items()}
        if (correction := self._mending.correction(self._typed, made, plans)) is not None:
            self._apply(correction)
        self.notes += self._mending.notes
        types = {n: p for n, p in self._halves().items() if n not in self.given}
        self._check()
        seen = Narrowing(self._typed.known, self._check)
        decided = half_plan.plan(self._typed, types, seen=seen)
        notes = (*half_plan.saturates(self._typed, decided, seen), *stays(decided.kept))
        if plans or decided.nodes:
            self._part(plans, made, half.Narrow(decided, seen, notes))
        else:
            self.notes += notes
        self.given.update(decided.nodes)
        self.given.update({n: p for p, plan in plans.items() for n in plan.nodes})

    def _part(self, plans: Mapping[Precision, weights.FourBitPlan], made: _Made, narrow: half.Narrow) -> None:
        """Apply what the typed graph and its emulation express in different ways."""
        decided, seen = narrow.plan, narrow.seen
        wide = self._finished()
        if plans:
            stands = [weights.Dequantize(plan, p, decided.nodes, made=made[p]) for p, plan in plans.items()]
            self.emulation = emulated = passes.run(wide, stands, later=wide is not self.source)
            for precision, plan in plans.items():
                self._apply(weights.Store(plan, precision, made=made[precision]))
        self.notes += narrow.notes
        if not decided.nodes:
            return
        narrow = dataclasses.replace(narrow, notes=())
        # Both models are the one that was planned for unless weights of four bits were written to each.
        planned, seen_wide = decided, seen
        if plans:
            seen_wide = Narrowing(emulated.known, self._check)
            planned = half_plan.plan(emulated, decided.nodes, seen=seen_wide)
            narrow = self._four(plans, decided)
        else:
            emulated = wide
        lost, total = half_plan.underflow(emulated, planned, seen_wide)
        if lost:
            self.notes.append(
                f"{lost:,} of {total:,} constants are too small for their 16 bits and become zero"
            )
        self._apply(narrow)
        self._check()
        self.emulation = Emulation(
            functools.partial(_rounded, emulated, planned, emulated is not self.source)
        )
        if Precision.FP16 in decided.nodes.values():
            self.notes.append("FP16 accumulation is not emulated: sums inside an operator are FP32 here")

    def _four(
        self, plans: Mapping[Precision, weights.FourBitPlan], decided: half_plan.HalfPlan
    ) -> half.Narrow:
        """What is narrowed where weights are stored in four bits: what dequantizes INT4 does so in 16 bits."""
        typed, halves, made = self._typed, dict(decided.nodes), list[str]()
        for precision, plan in plans.items():
            added = dict.fromkeys(typed.producers[typed.by_id[n].inputs[1]].id for n in plan.nodes)
            made += added
            if precision is Precision.INT4:
                halves.update({n: self.rest for n in added if typed.by_id[n].origin in decided.nodes})
        seen = Narrowing(typed.known, self._check)
        return half.Narrow(half_plan.plan(typed, halves, made, seen=seen), seen)

    def _check(self) -> None:
        check(self._progress, "preparing the model")

    def _halves(self) -> Mapping[str, Precision]:
        """Nodes that compute in 16 bits unless they get a quantized form."""
        types = {n: p if p in HALVES else self.rest for n, p in self.asked.items() if p is not Precision.FP32}
        return {n: p for n, p in types.items() if p in HALVES}

    def _tf32(self) -> None:
        if self.variant.precision is not Precision.TF32:
            return
        pinned = [n for n in tf32.products(self.source) if self.asked[n] is Precision.FP32]
        if pinned:
            self.notes += stays({"one switch sets it for the whole engine": pinned}, "tf32")
        model = self.emulation or self._finished()
        model = model.model(self._progress) if isinstance(model, Emulation) else model
        nodes = [
            n
            for n in tf32.products(model)
            if n in self.asked and self.given.get(n, self.already.get(n)) in {None, *weights.OPSETS}
        ]
        if nodes:
            self.emulation = Emulation(functools.partial(_split, model, nodes, model is not self.source))
            self.given.update((n, Precision.TF32) for n in nodes if n not in self.given)


def _rounded(model: Model, plan: half_plan.HalfPlan, later: bool, check: Callable[[], object]) -> Model:  # noqa: FBT001
    return passes.run(model, [half.Round(plan, Narrowing(model.known, check))], later=later)


def _split(model: Model, nodes: Collection[str], later: bool, check: Callable[[], object]) -> Model:  # noqa: FBT001
    return passes.run(model, [tf32.Truncate(nodes, check)], later=later)


def _computed(source: Model, typed: Model, given: Mapping[str, Precision]) -> Mapping[str, Precision]:
    """What each node computes in: what is quantized as the typed graph says, 16 bits and TF32 as planned."""
    table: dict[str, Precision] = {}
    for node in source.top:
        read = _read(typed.by_id[node.id], typed)
        planned = given.get(node.id)
        found = read or (planned if planned not in QUANTIZED else None) or _held(node, source)
        if found is not None:
            table[node.id] = found
    return table


def _read(node: Node, typed: Model) -> Precision | None:
    """The quantized type that a node computes in, by what is stored in front of its dequantizations."""
    kinds = [_STORED.get(k) for k in _stored(node, typed)]
    if node.op in placement.WEIGHTED:
        first, second = kinds[:2]
        if first is None:
            return second if second in weights.OPSETS else None
        return first if first is second else None
    return kinds[0] if node.op in _MOVES and len(set(kinds)) == 1 else None


def _held(node: Node, source: Model) -> Precision | None:
    """The 16-bit type that the source itself gives a node's first output."""
    kinds = {str(p): p for p in HALVES}
    # An output that nobody wants has no name.
    return next((kinds[k] for v in node.outputs if v and (k := source.values[v].dtype) in kinds), None)


def _stored(node: Node, typed: Model) -> Iterator[str]:
    for value in node.inputs:
        maker = typed.producers.get(value)
        quantized = maker is not None and maker.op == "DequantizeLinear"
        yield typed.values[maker.inputs[0]].dtype if maker is not None and quantized else ""


def _a(noun: str) -> str:
    return f"{'a' if noun.startswith(('BF', 'TF')) else 'an'} {noun}"
