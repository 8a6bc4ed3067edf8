"""What gives a variant's accuracy back: other scales first, higher precision last, and as little of it as will do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.diagnosis.remedies import (
    SCALED,
    Cure,
    choose_calibrators,
    list_pair_rewrites,
    pin_to_fp32,
    propose_cure,
    requantize,
)
from rtlab.analyses.repair import AccuracyRepair, RepairChange, RepairPoint, Verified
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
from rtlab.core.task import Predictions, Task
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.errors import BuildError, CalibrationError, Unavailable, VariantError
from rtlab.experiments.running import predict
from rtlab.experiments.sizing import batch_size

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model

_ACTIVITY = "looking for a repair"
#: Variants that are run on samples, at most.
RUNS = 12
#: The part of what a score may stay behind at which no other scale is tried: halves of the samples differ.
_COMFORTABLE = 0.5
_EIGHT, _FOUR = (
    frozenset(p for p in Precision if p.stored.scaled == kind) for kind in ("activations", "weights")
)
#: What is tried where channels share scales, and where weights are coarse, in this order.
_TREATMENTS: Mapping[PtqTransformKind, frozenset[Precision]] = {
    "equalize": _EIGHT, "smooth": _EIGHT, "reconstruct": _FOUR, "correct": _EIGHT | _FOUR,
}  # fmt: skip
_DESCRIPTIONS: Mapping[PtqTransformKind, str] = {
    "equalize": "Channels equalized", "smooth": "Channels smoothed", "reconstruct": "Weights reconstructed",
    "correct": "Biases corrected",
}  # fmt: skip
#: Nodes that are kept high at first, and how their number grows while it is not enough.
_FIRST, _GROWTH = 1, 2


@dataclasses.dataclass(frozen=True)
class RepairTools:
    """What a repair is looked for with: what expresses a variant in the graph, what runs it, and what compiles it.

    ``builder`` is None where nothing here compiles for the variant's GPU. An ``executor``'s workers do ``work``,
    ``predict`` with what runs variants there, on a part of the samples each, ``parts`` of them.
    """

    prepare: Callable[[Variant, Progress], Prepared]
    evaluator: Evaluator
    builder: Builder | None = None
    executor: Executor | None = None
    work: Callable[[Model, CalibrationData, tuple[str, ...], int], Predictions] | None = None
    parts: int = 1


@dataclasses.dataclass(frozen=True)
class RepairSearch:
    """Look for the cheapest change of a variant after which its score is within reach of fp32.

    Changes that cost no time come first: pairs of the model's own put right or quantized anew, another calibrator, the
    one that the causes ask for before all others, scales by channel, and treatments. Then nodes are kept in FP32:
    regions that leave FP16, then the most guilty, twice as many each time, and of the last step as few as suffice. The
    choice is made on every second sample of the task, and the scores are those of the others.

    Attributes:
        facts: The variant.
        task: What accuracy is counted by.
        findings: Causes of the loss, the gravest first.
        guilty: Nodes by what they cost, the most guilty first.
        max_drop: How far the score may stay behind fp32, in its unit.
        runs: How many variants may be run on samples.
        begun: What an earlier search measured, which is not run again where the task is the same.
        reference: What fp32 is; the variant's source without one.
        qdq_nodes: Nodes that the model itself quantizes.
    """

    facts: VariantResult
    task: Task
    findings: tuple[Finding, ...]
    guilty: tuple[str, ...]
    max_drop: float
    runs: int = RUNS
    begun: Verified | None = None
    reference: Model | None = None
    qdq_nodes: tuple[str, ...] = ()
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[RepairTools]) -> Iterator[AccuracyRepair]:
        """What is known after each variant that was run."""
        return _RepairState(self, context).iter_records()


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A variant to try: the arguments of ``Study.add``, and what leads to it."""

    variant: Variant
    changes: tuple[RepairChange, ...]
    fp32_nodes: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        return "; ".join(c.what for c in self.changes)


class _RepairState:
    """The working state of one search."""

    def __init__(self, search: RepairSearch, context: WorkContext[RepairTools]) -> None:
        self.search, self.context = search, context
        self.began = time.monotonic()
        self.halves = _split_task(search.task, search.facts.source)
        self.points: list[RepairPoint] = []
        #: Every candidate that was run, with its score on the first half, the best first.
        self.scored_candidates: list[tuple[_Candidate, Score]] = []
        self.tried_variants: set[Variant] = {search.facts.variant}
        begun = search.begun if search.begun is not None and search.begun.task is search.task else None
        self.scores = dict(begun.scores) if begun is not None else {}
        self.milliseconds = dict(begun.milliseconds) if begun is not None else {}

    def iter_records(self) -> Iterator[AccuracyRepair]:
        search, context = self.search, self.context
        context.phase("Looking for a repair", search.runs + 3)
        self.plain = [self._score(None, half) for half in (0, 1)]
        context.advance()
        baseline = _Candidate(search.facts.variant, ())
        self.before = self._score(baseline.variant, 0)
        self.points.append(self._make_point("as it is", baseline, self.before))
        context.advance()
        near = self._is_near(self.before)
        yield self._make_record(baseline, self.before, last=near)
        if near:
            return
        for wave in (
            self._propose_qdq_fixes,
            self._scales,
            self._propose_transforms,
            self._propose_regions,
            self._propose_fp32_nodes,
        ):
            for candidate in wave():
                if context.is_exhausted or len(self.scored_candidates) >= search.runs:
                    break
                score = self._try(candidate)
                if score is None:
                    continue
                yield self._make_record(*self._select_best())
            if self._is_solved():
                break
        context.advance()
        yield self._make_record(*self._select_best(), last=True)

    # --- what may be tried ------------------------------------------------------------------------------------------

    def _propose_qdq_fixes(self) -> Iterator[_Candidate]:
        """What the model itself has quantized: pairs put right, then scales found anew; none of it costs time."""
        base, qdq_nodes = self.search.facts.variant, self.search.qdq_nodes
        if wrong := list_pair_rewrites(self.search.findings):
            variant = Variant.of(**{**get_add_arguments(base), "rewrites": [*base.rewrites, *wrong]})
            yield from self._propose(variant, f"{pluralize(len(wrong), 'pair')} of Q/DQ put right")
            if self._has_margin():
                return
        scaled_nodes = (
            f.nodes[0] for f in self.search.findings if f.rule in SCALED and f.nodes[0] in qdq_nodes
        )
        for nodes in (tuple(dict.fromkeys(scaled_nodes)), qdq_nodes):
            for calibrator in (Calibrator.AUTO, Calibrator.PERCENTILE) if nodes else ():
                variant = Variant.of(**requantize(get_add_arguments(base), nodes, calibrator))
                yield from self._propose(variant, f"Quantized anew, with scales of {calibrator}", nodes)
                if self._has_margin():
                    return

    def _scales(self) -> Iterator[_Candidate]:
        """Other calibrators, and scales by channel; none of it costs time."""
        base, qdq_nodes = self.search.facts.variant, self.search.qdq_nodes
        for finding in self.search.findings:
            # No calibrator reaches what the model itself has quantized.
            change = propose_cure(finding, "", base) if finding.nodes[0] not in qdq_nodes else None
            if change is not None and not self._costs_time(change, base):
                yield from self._propose(Variant.of(**change.choice), change.label, finding.nodes)
                if self._has_margin():
                    return
        if base.calibrator is None or not self.search.facts.prepared.scales:
            return
        # Where one scale is wrong and the others are right, what changes them all may be no gain.
        value_calibrators = choose_calibrators(self.search.findings, base)
        if value_calibrators:
            choice = {
                **get_add_arguments(base),
                "calibrators": {**dict(base.calibrators), **value_calibrators},
            }
            which = ", ".join(dict.fromkeys(map(str, value_calibrators.values())))
            nodes = tuple(
                dict.fromkeys(f.nodes[0] for f in self.search.findings if f.value in value_calibrators)
            )
            what = f"Another scale for {pluralize(len(value_calibrators), 'value')}: {which}"
            yield from self._propose(Variant.of(**choice), what, nodes)
            if self._has_margin():
                return
        for calibrator in CALIBRATORS:
            choice = {**get_add_arguments(base), "calibrator": calibrator}
            yield from self._propose(Variant.of(**choice), f"Another scale: {calibrator}")
            if self._has_margin():
                return

    def _has_margin(self) -> bool:
        """Whether no other scale need be tried."""
        return self._is_near(self._select_best()[1], _COMFORTABLE)

    def _propose_transforms(self) -> Iterator[_Candidate]:
        """Treatments of the best so far, one after the other and each beside those that helped; none costs time."""
        used_precisions = self.search.facts.variant.precisions
        kinds = [k for k, precisions in _TREATMENTS.items() if used_precisions & precisions]
        for kind in kinds:
            base, before = self._select_base()
            if kind in {t.kind for t in base.treatments}:
                continue
            variant = Variant.of(**{**get_add_arguments(base), "treatments": [*base.treatments, kind]})
            if variant not in self.tried_variants:
                self.tried_variants.add(variant)
                yield _Candidate(variant, (*before, RepairChange(_DESCRIPTIONS[kind])))
            if self._is_solved():
                return

    def _propose_regions(self) -> Iterator[_Candidate]:
        """Regions and nodes that a cause asks to be kept in FP32, on the same condition as ``_propose_fp32_nodes``."""
        if self._is_sufficient(self._select_best()[1]):
            return
        base, before = self._select_base()
        pinned_nodes: dict[str, None] = {}
        for finding in self.search.findings:
            change = propose_cure(finding, "", base, self.search.qdq_nodes)
            if change is None or not self._costs_time(change, base):
                continue
            pinned_nodes |= dict.fromkeys(finding.nodes)
            yield from self._propose_pinned(base, before, tuple(pinned_nodes))
            if self._is_solved():
                return

    def _propose_fp32_nodes(self) -> Iterator[_Candidate]:
        """The most guilty nodes in FP32, twice as many each time, then as few as suffice.

        That costs time, so nothing is kept high where the samples cannot tell what costs none from fp32.
        """
        if self._is_sufficient(self._select_best()[1]):
            return
        base, before = self._select_base()
        order = [n for n in self.search.guilty if n in self.search.facts.source.by_id]
        count, failed_count = _FIRST, 0
        while order and failed_count < len(order):
            count = min(count, len(order))
            yield from self._propose_pinned(base, before, tuple(order[:count]))
            if self._is_solved():
                break
            failed_count, count = count, count * _GROWTH
        low, high = failed_count, count
        # The last step took as many again as were needed at the most.
        while self._is_solved() and high - low > 1:
            middle = (low + high) // 2
            yield from self._propose_pinned(base, before, tuple(order[:middle]))
            score = next((s for c, s in self.scored_candidates if len(c.fp32_nodes) == middle), None)
            low, high = (low, middle) if score is not None and self._is_near(score) else (middle, high)
            if score is None:
                return

    def _select_base(self) -> tuple[Variant, tuple[RepairChange, ...]]:
        """The best variant so far without a node kept high, from which pins go on."""
        free = [(c, s) for c, s in self.scored_candidates if not c.fp32_nodes]
        better = [(c, s) for c, s in free if s.better > self.before.better]
        if not better:
            return self.search.facts.variant, ()
        best = max(better, key=lambda t: t[1].better)[0]
        return best.variant, best.changes

    def _propose_pinned(
        self, base: Variant, before: tuple[RepairChange, ...], nodes: tuple[str, ...]
    ) -> Iterator[_Candidate]:
        variant = Variant.of(**pin_to_fp32(get_add_arguments(base), nodes, self.search.qdq_nodes))
        change = RepairChange(f"{pluralize(len(nodes), 'node')} kept in FP32", nodes)
        if variant not in self.tried_variants:
            self.tried_variants.add(variant)
            yield _Candidate(variant, (*before, change), nodes)

    def _propose(self, variant: Variant, what: str, nodes: tuple[str, ...] = ()) -> Iterator[_Candidate]:
        if variant not in self.tried_variants:
            self.tried_variants.add(variant)
            yield _Candidate(variant, (RepairChange(what, nodes),))

    def _costs_time(self, change: Cure, base: Variant) -> bool:
        """Whether a change computes nodes in a higher precision, which takes time."""
        pins, qdq_nodes = dict(base.pins), self.search.qdq_nodes
        return any(
            pins.get(node, base.precision) != precision
            for node, precision in change.choice["precision"].items()
            if node != "*" and not (node in qdq_nodes and precision is Precision.INT8)
        )

    def _is_solved(self) -> bool:
        """Whether something that was tried is near enough to fp32."""
        return any(self._is_near(score) for _, score in self.scored_candidates)

    # --- running ----------------------------------------------------------------------------------------------------

    def _try(self, candidate: _Candidate) -> Score | None:
        try:
            score = self._score(candidate.variant, 0)
        except VariantError:
            return None
        self.scored_candidates.append((candidate, score))
        self.points.append(self._make_point(candidate.what, candidate, score))
        self.context.advance()
        return score

    def _prepare(self, variant: Variant) -> Prepared:
        return self.context.tool.prepare(variant, self.context)

    def _score(self, variant: Variant | None, half: int) -> Score:
        """The score of a variant, or of fp32, on one half of the samples; it is run once."""
        key = variant, half
        if key not in self.scores:
            source, task, tool = self.search.facts.source, self.halves[half], self.context.tool
            plain = self.search.reference or source
            model = plain if variant is None else self._prepare(variant).emulate(self.context)
            values = tuple(o for n in source.top for o in n.outputs if o)
            size = batch_size(source, values, task.data, tool.evaluator)
            output_names = tuple(task.wanted(source))
            if tool.executor is None:
                predictions = predict(
                    model,
                    task.data,
                    output_names,
                    size,
                    runner=tool.evaluator,
                    context=self.context,
                )
            else:
                predictions = self._predict_parallel(tool.executor, model, task.data, output_names, size)
            runner = str(tool.evaluator.source)
            try:
                self.scores[key] = Score.of(task, predictions, runner)
            except CalibrationError:
                # What has no answers is the first to be repaired; an fp32 that has none is not.
                if variant is None or predictions.finite:
                    raise
                self.scores[key] = Score.worst(task, predictions, runner)
        return self.scores[key]

    def _predict_parallel(
        self,
        executor: Executor,
        model: Model,
        data: CalibrationData,
        output_names: tuple[str, ...],
        size: int,
    ) -> Predictions:
        """Outputs for all samples, of a part of them from each of an executor's workers."""
        work, parts = self.context.tool.work, max(1, min(self.context.tool.parts, data.count or 1))
        assert work is not None  # noqa: S101 - handed in with the executor
        shares = [data.part(i, parts, model=model) for i in range(parts)]
        futures = [executor.submit(work, model, share, output_names, size) for share in shares]
        predictions = Predictions()
        try:
            for future in futures:
                predictions.extend(self.context.wait_for(future, _ACTIVITY))
                self.context.count(runs=1)
        finally:
            for future in futures:
                future.cancel()
        return predictions

    def _get_time(self, candidate: _Candidate) -> float | None:
        if candidate.variant not in self.milliseconds and not self.context.is_timed_out:
            self.milliseconds[candidate.variant] = self._estimate_time(candidate)
        return self.milliseconds.get(candidate.variant)

    def _estimate_time(self, candidate: _Candidate) -> float | None:
        """Milliseconds that the variant's GPU is estimated to take; None where nothing builds for it here."""
        builder, facts = self.context.tool.builder, self.search.facts
        if builder is None:
            return None
        ready = self._prepare(candidate.variant)
        try:
            engine = builder.build(BuildRequest(ready.model, candidate.variant, several=True), Silent())
        except (BuildError, VariantError, Unavailable):
            return None
        variant_facts = dataclasses.replace(
            facts, variant=candidate.variant, prepared=Prepared(ready.model, ready.model), engine=engine
        )
        roofline = estimate_timing(variant_facts)
        return None if roofline is None else roofline.estimated

    # --- what is told -----------------------------------------------------------------------------------------------

    def _is_near(self, score: Score, part: float = 1.0) -> bool:
        """Whether a score of the first half is as near to fp32 as was asked for, or within a part of that."""
        return self.plain[0].better - score.better <= part * self.search.max_drop

    def _is_sufficient(self, score: Score, half: int = 0) -> bool:
        """Whether a score is near enough to fp32, or as near as the samples can tell."""
        plain = self.plain[half]
        if plain.better - score.better <= self.search.max_drop:
            return True
        comparison = (
            compare_paired(plain.tally, score.tally)
            if plain.tally is not None and score.tally is not None
            else None
        )
        return comparison is not None and comparison.interval is not None and not comparison.sure

    def _select_best(self) -> tuple[_Candidate, Score]:
        """What is taken if nothing else is found: of what is near enough the cheapest, else the best score of all."""
        baseline = (_Candidate(self.search.facts.variant, ()), self.before)
        good = [t for t in self.scored_candidates if self._is_near(t[1])]
        if good:
            return min(good, key=lambda t: (len(t[0].fp32_nodes), -t[1].better))
        return max([baseline, *self.scored_candidates], key=lambda t: (t[1].better, -len(t[0].fp32_nodes)))

    def _make_point(self, what: str, candidate: _Candidate, score: Score) -> RepairPoint:
        drop = self.plain[0].better - score.better
        return RepairPoint(
            what,
            score.value,
            drop,
            len(candidate.fp32_nodes),
            self._get_time(candidate),
            self._is_sufficient(score),
        )

    def _make_record(self, candidate: _Candidate, score: Score, *, last: bool = False) -> AccuracyRepair:
        """The answer if the search ended here; the other half speaks in the end, when nothing is chosen any more."""
        search, baseline = self.search, _Candidate(self.search.facts.variant, ())
        if score.better <= self.before.better:
            candidate, score = baseline, self.before
        plain, before = self.plain[int(last)], self.before
        if last:
            before = self._score(baseline.variant, 1)
            score = self._score(candidate.variant, 1)
        comparison = (
            compare_paired(plain.tally, score.tally)
            if plain.tally is not None and score.tally is not None
            else None
        )
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
            Verified(search.task, dict(self.scores), dict(self.milliseconds)),
        )


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
    plain = all(isinstance(a, np.ndarray) for a in data.arrays.values()) and data.arrays
    if plain and all(len(a) == count for a in data.arrays.values()):
        return tuple(  # type: ignore[return-value]
            dataclasses.replace(
                task,
                data=dataclasses.replace(data, arrays={k: a[i::2] for k, a in data.arrays.items()}),
                labels=labels[i::2],
            )
            for i in (0, 1)
        )
    first = data.take(count // 2)
    second = data.part(1, 2, model=model)
    middle = count - len(second)
    return (
        dataclasses.replace(task, data=first, labels=labels[: len(first)]),
        dataclasses.replace(task, data=second, labels=labels[middle:]),
    )
