"""What gives a variant's accuracy back: other scales first, higher precision last, and as little of it as will do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.diagnosis.causes import (
    SCALED,
    Cure,
    choose_calibrators,
    list_pair_rewrites,
    pin_to_fp32,
    propose_cure,
    requantize,
)
from rtlab.analyses.repair import AccuracyRepair, RepairChange, RepairPoint
from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.score import format_difference
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.bootstrap import compare_paired
from rtlab.core.budget import WorkContext
from rtlab.core.facts import SCORED, Score, VariantResult
from rtlab.core.phrases import pluralize
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, BuildRequest, Evaluator, Progress
from rtlab.core.ptq_transform import PtqTransformKind
from rtlab.core.task import Task
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.errors import BuildError, CalibrationError, Unavailable, VariantError
from rtlab.experiments.running import predict

if TYPE_CHECKING:
    from rtlab.core.bootstrap import PairedDifference
    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
#: Variants that are run on samples, at most.
RUNS = 12
#: The part of what a score may stay behind at which no other scale is tried: halves of the samples differ.
_COMFORTABLE = 0.5
_EIGHT, _FOUR = (
    frozenset(p for p in Precision if p.stored.scaled in kinds)
    for kinds in ({"activations"}, {"weights", "blocks"})
)
#: What is tried where channels share scales, and where weights are coarse, in this order.
_TREATMENTS: Mapping[PtqTransformKind, frozenset[Precision]] = {
    "equalize": _EIGHT, "smooth": _EIGHT, "reconstruct": _FOUR, "correct": _EIGHT | _FOUR,
}  # fmt: skip
_DESCRIPTIONS: Mapping[PtqTransformKind, str] = {
    "equalize": "Channels equalized", "smooth": "Channels smoothed", "reconstruct": "Weights reconstructed",
    "correct": "Biases corrected",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class RepairTools:
    """What a repair is searched with: what expresses a variant in the graph, what runs it, and what compiles it.

    ``builder`` is None where nothing here compiles for the variant's GPU.
    """

    prepare: Callable[[Variant, Progress], Prepared]
    evaluator: Evaluator
    builder: Builder | None


@dataclasses.dataclass(frozen=True)
class RepairSearch:
    """Look for the cheapest change of a variant after which its score is within reach of fp32.

    Changes that cost no time come first: the model's own pairs repaired or quantized anew, other calibrators, scales by
    channel, and transforms. Then nodes are kept in FP32: regions that leave FP16, then those with the largest effects.
    Every second sample of the task decides; the scores are those of the others.

    ``findings`` are causes of the loss, the gravest first, ``guilty`` nodes, those with the largest effects first. The
    score may be ``max_drop`` below that of ``reference``, in its unit; at most ``runs`` variants are run on samples.
    ``qdq_nodes`` are nodes that the model itself quantizes.
    """

    facts: VariantResult
    task: Task
    findings: tuple[Finding, ...]
    guilty: tuple[str, ...]
    max_drop: float
    runs: int
    reference: Model
    qdq_nodes: tuple[str, ...]
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[RepairTools]) -> Iterator[AccuracyRepair]:
        """The result after each variant that was run."""
        return _RepairState(self, context).iter_records()


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A variant to try, and what leads to it."""

    variant: Variant
    changes: tuple[RepairChange, ...] = ()
    fp32_nodes: tuple[str, ...] = ()


class _RepairState:
    """The working state of one search."""

    def __init__(self, search: RepairSearch, context: WorkContext[RepairTools]) -> None:
        self.search, self.context = search, context
        self.began = time.monotonic()
        self.halves = _split_task(search.task, search.facts.source)
        self.points: list[RepairPoint] = []
        #: Every candidate that was run, with its score on the first half.
        self.scored_candidates: list[tuple[_Candidate, Score]] = []
        self.baseline = _Candidate(search.facts.variant)
        self.scores: dict[tuple[Variant | None, int], Score] = {}

    def iter_records(self) -> Iterator[AccuracyRepair]:
        search, context = self.search, self.context
        context.phase("Looking for a repair", search.runs + 3)
        self.plain = [self._score(None, half) for half in (0, 1)]
        context.advance()
        self.before = self._score(search.facts.variant, 0)
        self._add_point("as it is", self.baseline, self.before)
        context.advance()
        near = self._is_near(self.before)
        yield self._make_record(self.baseline, self.before, last=near)
        if near:
            return
        tried_variants = {search.facts.variant}
        for propose, is_enough in (
            (self._propose_qdq_fixes, self._has_margin),
            (self._propose_scales, self._has_margin),
            (self._propose_transforms, self._is_solved),
            (self._propose_regions, self._is_solved),
            (self._propose_fp32_nodes, lambda: False),
        ):
            for candidate in propose():
                if context.is_exhausted or len(self.scored_candidates) >= search.runs:
                    break
                if candidate.variant in tried_variants:
                    continue
                tried_variants.add(candidate.variant)
                try:
                    score = self._score(candidate.variant, 0)
                except VariantError:
                    continue
                self.scored_candidates.append((candidate, score))
                self._add_point("; ".join(c.what for c in candidate.changes), candidate, score)
                context.advance()
                yield self._make_record(*self._select_best())
                if is_enough():
                    break
            if self._is_solved():
                break
        context.advance()
        yield self._make_record(*self._select_best(), last=True)

    # --- candidates -------------------------------------------------------------------------------------------------

    def _propose(self, what: str, nodes: tuple[str, ...] = (), **change: object) -> _Candidate:
        """The variant with another choice."""
        choice = {**get_add_arguments(self.search.facts.variant), **change}
        return _Candidate(Variant.of(**choice), (RepairChange(what, nodes),))

    def _propose_qdq_fixes(self) -> Iterator[_Candidate]:
        """What the model itself has quantized: pairs repaired, then new scales; none of it costs time."""
        base, qdq_nodes = self.search.facts.variant, self.search.qdq_nodes
        if wrong := list_pair_rewrites(self.search.findings):
            what = f"{pluralize(len(wrong), 'pair')} of Q/DQ put right"
            yield self._propose(what, rewrites=[*base.rewrites, *wrong])
        scaled_nodes = (
            f.nodes[0] for f in self.search.findings if f.rule in SCALED and f.nodes[0] in qdq_nodes
        )
        for nodes in (tuple(dict.fromkeys(scaled_nodes)), qdq_nodes):
            for calibrator in (Calibrator.AUTO, Calibrator.PERCENTILE) if nodes else ():
                choice = requantize(get_add_arguments(base), nodes, calibrator)
                yield self._propose(f"Quantized anew, with scales of {calibrator}", nodes, **choice)

    def _propose_scales(self) -> Iterator[_Candidate]:
        """Other calibrators, and scales by channel; none of it costs time."""
        base, qdq_nodes = self.search.facts.variant, self.search.qdq_nodes
        for finding in self.search.findings:
            # No calibrator reaches what the model itself has quantized.
            change = propose_cure(finding, "", base) if finding.nodes[0] not in qdq_nodes else None
            if change is not None and not self._costs_time(change, base):
                yield self._propose(change.label, finding.nodes, **change.choice)
        if base.calibrator is None or not self.search.facts.prepared.scales:
            return
        # Where one scale is wrong and the others are right, what changes them all may be no gain.
        value_calibrators = choose_calibrators(self.search.findings, base)
        if value_calibrators:
            which = ", ".join(dict.fromkeys(map(str, value_calibrators.values())))
            nodes = dict.fromkeys(f.nodes[0] for f in self.search.findings if f.value in value_calibrators)
            what = f"Another scale for {pluralize(len(value_calibrators), 'value')}: {which}"
            calibrators = {**dict(base.calibrators), **value_calibrators}
            yield self._propose(what, tuple(nodes), calibrators=calibrators)
        for calibrator in CALIBRATORS:
            yield self._propose(f"Another scale: {calibrator}", calibrator=calibrator)

    def _propose_transforms(self) -> Iterator[_Candidate]:
        """Transforms of the best so far, one after the other and each beside those that helped; none costs time."""
        for kind, precisions in _TREATMENTS.items():
            base, before = self._select_base()
            if self.search.facts.variant.precisions & precisions and kind not in {
                t.kind for t in base.treatments
            }:
                variant = Variant.of(**{**get_add_arguments(base), "treatments": [*base.treatments, kind]})
                yield _Candidate(variant, (*before, RepairChange(_DESCRIPTIONS[kind])))

    def _propose_regions(self) -> Iterator[_Candidate]:
        """Regions and nodes that a cause asks to be kept in FP32, on the same condition as ``_propose_fp32_nodes``."""
        if self._is_sufficient(self._select_best()[1]):
            return
        base, before = self._select_base()
        pinned_nodes: dict[str, None] = {}
        for finding in self.search.findings:
            change = propose_cure(finding, "", base, self.search.qdq_nodes)
            if change is not None and self._costs_time(change, base):
                pinned_nodes |= dict.fromkeys(finding.nodes)
                yield self._pin(base, before, tuple(pinned_nodes))

    def _propose_fp32_nodes(self) -> Iterator[_Candidate]:
        """The nodes with the largest effects in FP32, twice as many each time, then as few as suffice.

        That costs time, so nothing is kept high where the samples do not tell what costs none from fp32.
        """
        if self._is_sufficient(self._select_best()[1]):
            return
        base, before = self._select_base()
        order = [n for n in self.search.guilty if n in self.search.facts.source.by_id]
        low, high = 0, min(1, len(order))
        while low < high:
            yield self._pin(base, before, tuple(order[:high]))
            if self._is_solved():
                break
            low, high = high, min(2 * high, len(order))
        # The last step took as many again as were needed at the most.
        while self._is_solved() and high - low > 1:
            middle = (low + high) // 2
            yield self._pin(base, before, tuple(order[:middle]))
            score = next((s for c, s in self.scored_candidates if len(c.fp32_nodes) == middle), None)
            if score is None:
                return
            low, high = (low, middle) if self._is_near(score) else (middle, high)

    def _select_base(self) -> tuple[Variant, tuple[RepairChange, ...]]:
        """The best variant so far without a node kept high, from which pins go on."""
        better = [
            (c, s) for c, s in self.scored_candidates if not c.fp32_nodes and s.better > self.before.better
        ]
        best, _ = max(better, key=lambda t: t[1].better, default=(self.baseline, self.before))
        return best.variant, best.changes

    def _pin(self, base: Variant, before: tuple[RepairChange, ...], nodes: tuple[str, ...]) -> _Candidate:
        variant = Variant.of(**pin_to_fp32(get_add_arguments(base), nodes, self.search.qdq_nodes))
        change = RepairChange(f"{pluralize(len(nodes), 'node')} kept in FP32", nodes)
        return _Candidate(variant, (*before, change), nodes)

    def _costs_time(self, change: Cure, base: Variant) -> bool:
        """Whether a change computes nodes in a higher precision, which takes time."""
        pins, qdq_nodes = dict(base.pins), self.search.qdq_nodes
        return any(
            pins.get(node, base.precision) != precision
            for node, precision in change.choice["precision"].items()
            if node != "*" and not (node in qdq_nodes and precision is Precision.INT8)
        )

    # --- runs -------------------------------------------------------------------------------------------------------

    def _score(self, variant: Variant | None, half: int) -> Score:
        """The score of a variant, or of fp32, on one half of the samples; it is run once."""
        key = variant, half
        if key not in self.scores:
            source, task, tool = self.search.facts.source, self.halves[half], self.context.tool
            model = (
                self.search.reference
                if variant is None
                else tool.prepare(variant, self.context).emulate(self.context)
            )
            names = tuple(task.wanted(source))
            predictions = predict(
                model, task.data, names, source=source, context=self.context, runner=tool.evaluator
            )
            runner = str(tool.evaluator.source)
            try:
                self.scores[key] = Score.of(task, predictions, runner)
            except CalibrationError:
                # What has no answers is the first to be repaired; an fp32 that has none is not.
                if variant is None or predictions.finite:
                    raise
                self.scores[key] = Score.worst(task, predictions, runner)
        return self.scores[key]

    def _estimate_time(self, variant: Variant) -> float | None:
        """Milliseconds that the variant's GPU is estimated to take; None where nothing builds for it here."""
        tool, facts = self.context.tool, self.search.facts
        if tool.builder is None:
            return None
        model = tool.prepare(variant, self.context).model
        try:
            engine = tool.builder.build(BuildRequest(model, variant, several=True), Silent())
        except (BuildError, VariantError, Unavailable):
            return None
        roofline = estimate_timing(
            dataclasses.replace(facts, variant=variant, prepared=Prepared(model, model), engine=engine)
        )
        return None if roofline is None else roofline.estimated

    # --- results ----------------------------------------------------------------------------------------------------

    def _is_near(self, score: Score, part: float = 1.0) -> bool:
        """Whether a score of the first half is within ``max_drop`` of fp32, or within a part of that."""
        return self.plain[0].better - score.better <= part * self.search.max_drop

    def _is_solved(self) -> bool:
        """Whether a candidate is near enough to fp32."""
        return any(self._is_near(score) for _, score in self.scored_candidates)

    def _has_margin(self) -> bool:
        """Whether no other scale need be tried."""
        return self._is_near(self._select_best()[1], _COMFORTABLE)

    def _is_sufficient(self, score: Score, half: int = 0) -> bool:
        """Whether a score is near enough to fp32, or as near as the samples show."""
        plain = self.plain[half]
        if plain.better - score.better <= self.search.max_drop:
            return True
        comparison = _compare(plain, score)
        return comparison is not None and comparison.interval is not None and not comparison.sure

    def _select_best(self) -> tuple[_Candidate, Score]:
        """Of what is near enough the cheapest, else the best score of all."""
        good = [t for t in self.scored_candidates if self._is_near(t[1])]
        if good:
            return min(good, key=lambda t: (len(t[0].fp32_nodes), -t[1].better))
        every = [(self.baseline, self.before), *self.scored_candidates]
        return max(every, key=lambda t: (t[1].better, -len(t[0].fp32_nodes)))

    def _add_point(self, what: str, candidate: _Candidate, score: Score) -> None:
        drop, kept_high = self.plain[0].better - score.better, len(candidate.fp32_nodes)
        milliseconds = None if self.context.is_timed_out else self._estimate_time(candidate.variant)
        self.points.append(
            RepairPoint(what, score.value, drop, kept_high, milliseconds, self._is_sufficient(score))
        )

    def _make_record(self, candidate: _Candidate, score: Score, *, last: bool = False) -> AccuracyRepair:
        """The result if the search ended here; the other half is run in the end, when nothing is chosen any more."""
        search, before = self.search, self.before
        if score.better <= before.better:
            candidate, score = self.baseline, before
        plain = self.plain[int(last)]
        if last:
            before, score = (self._score(one.variant, 1) for one in (self.baseline, candidate))
        comparison = _compare(plain, score)
        return AccuracyRepair(
            search.facts.name,
            f"{search.facts.name} repaired",
            search.task.name,
            search.task.unit or "",
            search.max_drop,
            plain.value,
            before.value,
            score.value,
            "no interval is known" if comparison is None else format_difference(comparison, score, "fp32"),
            candidate.changes,
            candidate.fp32_nodes,
            self._is_sufficient(score, int(last)),
            len(self.scored_candidates),
            self.plain[0].samples,
            plain.samples if last else 0,
            tuple(self.points),
            time.monotonic() - self.began,
            f"{self.context.tool.evaluator.source}, {search.task.data.source}",
            get_add_arguments(candidate.variant),
        )


def _compare(plain: Score, score: Score) -> PairedDifference | None:
    """The difference of two scores, sample by sample; None where they have no counts."""
    if plain.tally is None or score.tally is None:
        return None
    return compare_paired(plain.tally, score.tally)


def _split_task(task: Task, model: Model) -> tuple[Task, Task]:
    """Every second sample of a task, and the others; the first and the second half where they cannot be picked.

    Raises:
        CalibrationError: there are fewer than two samples, or not as many labels.
    """
    data: CalibrationData = task.data.take(SCORED)
    count = len(data)
    labels = task.labels[:count]
    if count < 2:
        raise CalibrationError(
            f"Cannot look for a repair on {pluralize(count, 'sample')}: one half of them chooses, and the other "
            "says what came of it. Give a task at least two, and eight or more to conclude anything."
        )
    if len(labels) < count:
        raise CalibrationError(
            f"Cannot look for a repair: there are {len(labels)} labels for {count} samples of {data.source}. Give one "
            "for each."
        )
    if data.arrays and all(isinstance(a, np.ndarray) and len(a) == count for a in data.arrays.values()):
        parts = [
            dataclasses.replace(data, arrays={k: a[i::2] for k, a in data.arrays.items()}) for i in (0, 1)
        ]
        part_labels = [labels[0::2], labels[1::2]]
    else:
        parts = [data.take(count // 2), data.part(1, 2, model=model)]
        part_labels = [labels[: len(parts[0])], labels[count - len(parts[1]) :]]
    one, two = (
        dataclasses.replace(task, data=part, labels=some)
        for part, some in zip(parts, part_labels, strict=True)
    )
    return one, two
