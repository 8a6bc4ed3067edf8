"""What gives a variant's accuracy back: other scales first, higher precision last, and as little of it as will do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtlab import questions
from rtlab.core.facts import SCORED, Facts, Score
from rtlab.core.phrases import many
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, BuildRequest, Evaluator, Progress
from rtlab.core.task import Predictions, Task
from rtlab.core.treatment import TreatmentKind
from rtlab.core.uncertainty import paired
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.errors import BuildError, CalibrationError, Unavailable, VariantError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.sizing import batch_size
from rtlab.questions.diagnosis.cures import SCALED, Cure, anew, cure, kept_high, mends, scales_apart
from rtlab.questions.repair import AccuracyRepair, RepairChange, RepairPoint, Verified
from rtlab.questions.score.words import difference_words
from rtlab.questions.variants.variations import given

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model

_DOING = "looking for a repair"
#: Variants that are run on samples, at most.
RUNS = 12
#: The part of what a score may stay behind at which no other scale is tried: halves of the samples differ.
_COMFORTABLE = 0.5
_EIGHT, _FOUR = frozenset({Precision.INT8, Precision.FP8}), frozenset({Precision.INT4, Precision.FP4})
#: What is tried where channels share scales, and where weights are coarse, in this order.
_TREATMENTS: Mapping[TreatmentKind, frozenset[Precision]] = {
    "equalize": _EIGHT, "smooth": _EIGHT, "reconstruct": _FOUR, "correct": _EIGHT | _FOUR,
}  # fmt: skip
_SAID: Mapping[TreatmentKind, str] = {
    "equalize": "Channels equalized", "smooth": "Channels smoothed", "reconstruct": "Weights reconstructed",
    "correct": "Biases corrected",
}  # fmt: skip
#: Nodes that are kept high at first, and how their number grows while it is not enough.
_FIRST, _GROWTH = 1, 2


@dataclasses.dataclass(frozen=True)
class Repairer:
    """What a repair is looked for with: what expresses a variant in the graph, what runs it, and what compiles it.

    ``builder`` is None where nothing here compiles for the variant's GPU. An ``executor``'s workers do ``work``,
    ``predicted`` with what runs variants there, on a part of the samples each, ``parts`` of them.
    """

    prepare: Callable[[Variant, Progress], Prepared]
    evaluator: Evaluator
    builder: Builder | None = None
    executor: Executor | None = None
    work: Callable[[Model, CalibrationData, tuple[str, ...], int], Predictions] | None = None
    parts: int = 1


@dataclasses.dataclass(frozen=True)
class Repairing:
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
        own: Nodes that the model itself quantizes.
    """

    facts: Facts
    task: Task
    findings: tuple[Finding, ...]
    guilty: tuple[str, ...]
    max_drop: float
    runs: int = RUNS
    begun: Verified | None = None
    reference: Model | None = None
    own: tuple[str, ...] = ()
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Repairer]) -> Iterator[AccuracyRepair]:
        """What is known after each variant that was run."""
        return _Repairing(self, rig).records()


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A variant to try: the arguments of ``Study.add``, and what leads to it."""

    variant: Variant
    changes: tuple[RepairChange, ...]
    kept_high: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        return "; ".join(c.what for c in self.changes)


class _Repairing:
    """The working state of one search."""

    def __init__(self, asked: Repairing, rig: Rig[Repairer]) -> None:
        self.asked, self.rig = asked, rig
        self.began = time.monotonic()
        self.halves = _halves(asked.task, asked.facts.source)
        self.points: list[RepairPoint] = []
        #: Every candidate that was run, with its score on the first half, the best first.
        self.tried: list[tuple[_Candidate, Score]] = []
        self.taken: set[Variant] = {asked.facts.variant}
        begun = asked.begun if asked.begun is not None and asked.begun.task is asked.task else None
        self.scores = dict(begun.scores) if begun is not None else {}
        self.milliseconds = dict(begun.milliseconds) if begun is not None else {}

    def records(self) -> Iterator[AccuracyRepair]:
        asked, rig = self.asked, self.rig
        rig.phase("Looking for a repair", asked.runs + 3)
        self.plain = [self._score(None, half) for half in (0, 1)]
        rig.advance()
        own = _Candidate(asked.facts.variant, ())
        self.before = self._score(own.variant, 0)
        self.points.append(self._point("as it is", own, self.before))
        rig.advance()
        near = self._near(self.before)
        yield self._record(own, self.before, last=near)
        if near:
            return
        for wave in (self._mended, self._scales, self._treated, self._regions, self._high):
            for candidate in wave():
                if rig.over or len(self.tried) >= asked.runs:
                    break
                score = self._try(candidate)
                if score is None:
                    continue
                yield self._record(*self._best())
            if self._found():
                break
        rig.advance()
        yield self._record(*self._best(), last=True)

    # --- what may be tried ------------------------------------------------------------------------------------------

    def _mended(self) -> Iterator[_Candidate]:
        """What the model itself has quantized: pairs put right, then scales found anew; none of it costs time."""
        base, own = self.asked.facts.variant, self.asked.own
        if wrong := mends(self.asked.findings):
            variant = Variant.of(**{**given(base), "rewrites": [*base.rewrites, *wrong]})
            yield from self._new(variant, f"{many(len(wrong), 'pair')} of Q/DQ put right")
            if self._comfortable():
                return
        scaled = (f.nodes[0] for f in self.asked.findings if f.rule in SCALED and f.nodes[0] in own)
        for nodes in (tuple(dict.fromkeys(scaled)), own):
            for calibrator in (Calibrator.AUTO, Calibrator.PERCENTILE) if nodes else ():
                variant = Variant.of(**anew(given(base), nodes, calibrator))
                yield from self._new(variant, f"Quantized anew, with scales of {calibrator}", nodes)
                if self._comfortable():
                    return

    def _scales(self) -> Iterator[_Candidate]:
        """Other calibrators, and scales by channel; none of it costs time."""
        base, own = self.asked.facts.variant, self.asked.own
        for finding in self.asked.findings:
            # No calibrator reaches what the model itself has quantized.
            change = cure(finding, "", base) if finding.nodes[0] not in own else None
            if change is not None and not self._costs(change, base):
                yield from self._new(Variant.of(**change.choice), change.label, finding.nodes)
                if self._comfortable():
                    return
        if base.calibrator is None or not self.asked.facts.prepared.scales:
            return
        # Where one scale is wrong and the others are right, what changes them all may be no gain.
        apart = scales_apart(self.asked.findings, base)
        if apart:
            choice = {**given(base), "calibrators": {**dict(base.calibrators), **apart}}
            which = ", ".join(dict.fromkeys(map(str, apart.values())))
            nodes = tuple(dict.fromkeys(f.nodes[0] for f in self.asked.findings if f.value in apart))
            what = f"Another scale for {many(len(apart), 'value')}: {which}"
            yield from self._new(Variant.of(**choice), what, nodes)
            if self._comfortable():
                return
        for calibrator in CALIBRATORS:
            choice = {**given(base), "calibrator": calibrator}
            yield from self._new(Variant.of(**choice), f"Another scale: {calibrator}")
            if self._comfortable():
                return

    def _comfortable(self) -> bool:
        """Whether no other scale need be tried."""
        return self._near(self._best()[1], _COMFORTABLE)

    def _treated(self) -> Iterator[_Candidate]:
        """Treatments of the best so far, one after the other and each beside those that helped; none costs time."""
        used = self.asked.facts.variant.precisions
        kinds = [k for k, precisions in _TREATMENTS.items() if used & precisions]
        for kind in kinds:
            base, before = self._base()
            if kind in {t.kind for t in base.treatments}:
                continue
            variant = Variant.of(**{**given(base), "treatments": [*base.treatments, kind]})
            if variant not in self.taken:
                self.taken.add(variant)
                yield _Candidate(variant, (*before, RepairChange(_SAID[kind])))
            if self._found():
                return

    def _regions(self) -> Iterator[_Candidate]:
        """Regions and nodes that a cause asks to be kept in FP32, on the same condition as ``_high``."""
        if self._enough(self._best()[1]):
            return
        base, before = self._base()
        pinned: dict[str, None] = {}
        for finding in self.asked.findings:
            change = cure(finding, "", base, self.asked.own)
            if change is None or not self._costs(change, base):
                continue
            pinned |= dict.fromkeys(finding.nodes)
            yield from self._pinned(base, before, tuple(pinned))
            if self._found():
                return

    def _high(self) -> Iterator[_Candidate]:
        """The most guilty nodes in FP32, twice as many each time, then as few as suffice.

        That costs time, so nothing is kept high where the samples cannot tell what costs none from fp32.
        """
        if self._enough(self._best()[1]):
            return
        base, before = self._base()
        order = [n for n in self.asked.guilty if n in self.asked.facts.source.by_id]
        count, failed = _FIRST, 0
        while order and failed < len(order):
            count = min(count, len(order))
            yield from self._pinned(base, before, tuple(order[:count]))
            if self._found():
                break
            failed, count = count, count * _GROWTH
        low, high = failed, count
        # The last step took as many again as were needed at the most.
        while self._found() and high - low > 1:
            middle = (low + high) // 2
            yield from self._pinned(base, before, tuple(order[:middle]))
            found = next((s for c, s in self.tried if len(c.kept_high) == middle), None)
            low, high = (low, middle) if found is not None and self._near(found) else (middle, high)
            if found is None:
                return

    def _base(self) -> tuple[Variant, tuple[RepairChange, ...]]:
        """The best variant so far without a node kept high, from which pins go on."""
        free = [(c, s) for c, s in self.tried if not c.kept_high]
        better = [(c, s) for c, s in free if s.better > self.before.better]
        if not better:
            return self.asked.facts.variant, ()
        best = max(better, key=lambda t: t[1].better)[0]
        return best.variant, best.changes

    def _pinned(
        self, base: Variant, before: tuple[RepairChange, ...], nodes: tuple[str, ...]
    ) -> Iterator[_Candidate]:
        variant = Variant.of(**kept_high(given(base), nodes, self.asked.own))
        change = RepairChange(f"{many(len(nodes), 'node')} kept in FP32", nodes)
        if variant not in self.taken:
            self.taken.add(variant)
            yield _Candidate(variant, (*before, change), nodes)

    def _new(self, variant: Variant, what: str, nodes: tuple[str, ...] = ()) -> Iterator[_Candidate]:
        if variant not in self.taken:
            self.taken.add(variant)
            yield _Candidate(variant, (RepairChange(what, nodes),))

    def _costs(self, change: Cure, base: Variant) -> bool:
        """Whether a change computes nodes in a higher precision, which takes time."""
        pins, own = dict(base.pins), self.asked.own
        return any(
            pins.get(node, base.precision) != precision
            for node, precision in change.choice["precision"].items()
            if node != "*" and not (node in own and precision is Precision.INT8)
        )

    def _found(self) -> bool:
        """Whether something that was tried is near enough to fp32."""
        return any(self._near(score) for _, score in self.tried)

    # --- running ----------------------------------------------------------------------------------------------------

    def _try(self, candidate: _Candidate) -> Score | None:
        try:
            score = self._score(candidate.variant, 0)
        except VariantError:
            return None
        self.tried.append((candidate, score))
        self.points.append(self._point(candidate.what, candidate, score))
        self.rig.advance()
        return score

    def _ready(self, variant: Variant) -> Prepared:
        return self.rig.tool.prepare(variant, self.rig)

    def _score(self, variant: Variant | None, half: int) -> Score:
        """The score of a variant, or of fp32, on one half of the samples; it is run once."""
        key = variant, half
        if key not in self.scores:
            source, task, tool = self.asked.facts.source, self.halves[half], self.rig.tool
            plain = self.asked.reference or source
            model = plain if variant is None else self._ready(variant).emulate(self.rig)
            values = tuple(o for n in source.top for o in n.outputs if o)
            size = batch_size(source, values, task.data, tool.evaluator)
            wanted = tuple(task.wanted(source))
            if tool.executor is None:
                held = predicted(model, task.data, wanted, size, runner=tool.evaluator, rig=self.rig)
            else:
                held = self._spread(tool.executor, model, task.data, wanted, size)
            runner = str(tool.evaluator.source)
            try:
                self.scores[key] = Score.of(task, held, runner)
            except CalibrationError:
                # What has no answers is the first to be repaired; an fp32 that has none is not.
                if variant is None or held.finite:
                    raise
                self.scores[key] = Score.worst(task, held, runner)
        return self.scores[key]

    def _spread(
        self, executor: Executor, model: Model, data: CalibrationData, wanted: tuple[str, ...], size: int
    ) -> Predictions:
        """Outputs for all samples, of a part of them from each of an executor's workers."""
        work, parts = self.rig.tool.work, max(1, min(self.rig.tool.parts, data.count or 1))
        assert work is not None  # noqa: S101 - handed in with the executor
        shares = [data.part(i, parts, model=model) for i in range(parts)]
        futures = [executor.submit(work, model, share, wanted, size) for share in shares]
        held = Predictions()
        try:
            for future in futures:
                held.extend(self.rig.awaited(future, _DOING))
                self.rig.count(runs=1)
        finally:
            for future in futures:
                future.cancel()
        return held

    def _time(self, candidate: _Candidate) -> float | None:
        if candidate.variant not in self.milliseconds and not self.rig.late:
            self.milliseconds[candidate.variant] = self._estimated(candidate)
        return self.milliseconds.get(candidate.variant)

    def _estimated(self, candidate: _Candidate) -> float | None:
        """Milliseconds that the variant's GPU is estimated to take; None where nothing builds for it here."""
        builder, facts = self.rig.tool.builder, self.asked.facts
        if builder is None:
            return None
        ready = self._ready(candidate.variant)
        try:
            engine = builder.build(BuildRequest(ready.model, candidate.variant, several=True), Silent())
        except (BuildError, VariantError, Unavailable):
            return None
        made = dataclasses.replace(
            facts, variant=candidate.variant, prepared=Prepared(ready.model, ready.model), engine=engine
        )
        found = questions.roofline.estimate(made)
        return None if found is None else found.estimated

    # --- what is told -----------------------------------------------------------------------------------------------

    def _near(self, score: Score, part: float = 1.0) -> bool:
        """Whether a score of the first half is as near to fp32 as was asked for, or within a part of that."""
        return self.plain[0].better - score.better <= part * self.asked.max_drop

    def _enough(self, score: Score, half: int = 0) -> bool:
        """Whether a score is near enough to fp32, or as near as the samples can tell."""
        plain = self.plain[half]
        if plain.better - score.better <= self.asked.max_drop:
            return True
        found = (
            paired(plain.tally, score.tally) if plain.tally is not None and score.tally is not None else None
        )
        return found is not None and found.interval is not None and not found.sure

    def _best(self) -> tuple[_Candidate, Score]:
        """What is taken if nothing else is found: of what is near enough the cheapest, else the best score of all."""
        own = (_Candidate(self.asked.facts.variant, ()), self.before)
        good = [t for t in self.tried if self._near(t[1])]
        if good:
            return min(good, key=lambda t: (len(t[0].kept_high), -t[1].better))
        return max([own, *self.tried], key=lambda t: (t[1].better, -len(t[0].kept_high)))

    def _point(self, what: str, candidate: _Candidate, score: Score) -> RepairPoint:
        drop = self.plain[0].better - score.better
        return RepairPoint(
            what, score.value, drop, len(candidate.kept_high), self._time(candidate), self._enough(score)
        )

    def _record(self, candidate: _Candidate, score: Score, *, last: bool = False) -> AccuracyRepair:
        """The answer if the search ended here; the other half speaks in the end, when nothing is chosen any more."""
        asked, own = self.asked, _Candidate(self.asked.facts.variant, ())
        if score.better <= self.before.better:
            candidate, score = own, self.before
        plain, before = self.plain[int(last)], self.before
        if last:
            before = self._score(own.variant, 1)
            score = self._score(candidate.variant, 1)
        found = (
            paired(plain.tally, score.tally) if plain.tally is not None and score.tally is not None else None
        )
        return AccuracyRepair(
            asked.facts.name,
            f"{asked.facts.name} repaired",
            asked.task.name,
            asked.task.unit or "",
            asked.max_drop,
            plain.value,
            before.value,
            score.value,
            "no interval is known" if found is None else difference_words(found, score, "fp32"),
            candidate.changes,
            candidate.kept_high,
            self._enough(score, int(last)),
            len(self.tried),
            self.plain[0].samples,
            plain.samples if last else 0,
            tuple(self.points),
            time.monotonic() - self.began,
            f"{self.rig.tool.evaluator.source}, {asked.task.data.source}",
            given(candidate.variant),
            Verified(asked.task, dict(self.scores), dict(self.milliseconds)),
        )


def predicted(
    model: Model,
    data: CalibrationData,
    wanted: tuple[str, ...],
    size: int,
    *,
    runner: Evaluator,
    rig: Rig[Any] | None = None,
) -> Predictions:
    """What a model gives for samples, ``size`` of them at a time; a worker, without a rig, reports nothing."""
    engine = runner.build(BuildRequest(model, Variant(), level="basic"), Silent())
    held = Predictions()
    try:
        for batch in data.batches(model, size):
            if rig is not None:
                rig.check(_DOING)
                rig.count(runs=1)
            outputs = runner.outputs(engine, batch, wanted, progress=rig or Silent())
            held.add(outputs, data.samples_in(model, batch))
    finally:
        runner.release(engine)
    return held


def _halves(task: Task, model: Model) -> tuple[Task, Task]:
    """Every second sample of a task, and the others; the first and the second half where they cannot be picked.

    Raises:
        CalibrationError: there are fewer than two samples, or not as many labels.
    """
    data: CalibrationData = task.data.take(SCORED)
    count = len(data)
    labels = task.labels[:count]
    if count < 2:
        raise CalibrationError(
            f"Cannot look for a repair on {many(count, 'sample')}: one half of them chooses, and the other tells what "
            "came of it. Give a task at least two, and eight or more to conclude anything."
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
