"""What a variant's engine takes and computes, found out in stages: timed, compared, scored.

Each stage goes on where it stopped before, within a budget of seconds, and keeps what it has when it is cancelled, when
its time is over, or when it fails. The engine that was compiled stands whatever becomes of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from rtlab import backends
from rtlab.backends.live.inference import free_memory
from rtlab.backends.reference import evaluator, reference, runner_of
from rtlab.core.engine import Engine
from rtlab.core.facts import SCORED, Facts, Score
from rtlab.core.progress import Deadline, Silent, check
from rtlab.core.protocols import BuildRequest, Progress, Runner
from rtlab.core.stage import Budget, Stage, Standing, Why, Within
from rtlab.core.task import Predictions
from rtlab.core.variant import Precision
from rtlab.errors import BackendError, Cancelled, RtlabError, told
from rtlab.experiments.sizing import batch_size, fixed_batch, value_bytes
from rtlab.quantize import own, rewrites
from rtlab.quantize.shadow import Shadowed, shadowed
from rtlab.quantize.stored import dequantized
from rtlab.questions.accuracy import errors as _accuracy
from rtlab.questions.accuracy.errors import Comparison
from rtlab.relation.work import works
from rtlab.session.job import Job

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.trace import Outputs, Profile

#: Inferences that every layer is timed in, and samples that values are compared on, where the time suffices.
_RUNS, _COMPARED = 30, 32
#: The part of the time left that each stage may take.
_PARTS = {Stage.TIMED: 1 / 3, Stage.COMPARED: 2 / 3, Stage.SCORED: 1.0}
#: Bytes of values of one sample that are read at once; more are read in several passes, the largest layers first.
_READ_BYTES = 256 << 20
_AGAIN: dict[Why, str] = {
    "cancelled": "it was cancelled",
    "not asked": "the variant was only compiled",
    "budget": "the time was over",
}


def planned(job: Job, result: Facts, why: Why = "") -> Facts:
    """A compiled result with the standing of each later stage: under way, or missing for a reason."""
    stages = dict(result.stages)
    for stage in _PARTS:
        known = stages.get(stage)
        if known is not None and known.state in {"done", "none"} and not _further(job, known):
            continue
        if (never := _never(job, result, stage)) is not None:
            stages[stage] = Standing(stage, "none", "nothing to do", never)
        elif why:
            stages[stage] = _missing(stage, known, why)
        else:
            begun = known.done if known else 0
            stages[stage] = Standing(stage, "waiting", done=begun, known=known.known if known else 0)
    return dataclasses.replace(result, stages=stages)


def _further(job: Job, known: Standing) -> bool:
    """Whether a stage that is done for a first answer goes on."""
    return job.whole and known.state == "done" and known.done < known.known


def _never(job: Job, result: Facts, stage: Stage) -> str | None:
    """Why a stage has nothing to find out; None where it has."""
    if stage is Stage.TIMED and result.engine.maker.predicts:
        return "not timed: the engine is predicted by rules, and nothing was built"
    if job.runner is None and not _ran_itself(result):
        return "nothing here can run the model"
    if stage is Stage.COMPARED and is_reference(result):
        precision = str(result.variant.precision)
        if precision == Precision.FP32:
            return "other variants are compared with this one"
        return f"nothing to compare: {precision} changes nothing here, so that its values are the model's own"
    if stage is Stage.SCORED and job.task is None:
        return "no score: the study has no task with labels"
    return None


def is_reference(result: Facts) -> bool:
    """Whether a variant's values are those of the model itself in fp32 on the CPU, so that comparing tells nothing."""
    itself = result.prepared.emulated is result.source and not own.rounds(result.source)
    return itself and not _ran_itself(result)


def _ran_itself(result: Facts) -> bool:
    """Whether the engine is run by what built it, on its own processor."""
    engine = result.engine
    return backends.get(engine.backend).capabilities().runs_itself(engine)


def _missing(stage: Stage, known: Standing | None, why: Why, words: str = "") -> Standing:
    """A stage that ended before its end, with what it has."""
    done, wanted, unit = (known.done, known.wanted, known.unit) if known else (0, 0, "")
    if known is not None and 0 < wanted <= done:
        return dataclasses.replace(known, state="done")
    every = known.known if known else 0
    # Of all that there are, as the standing itself tells.
    basis = f" on {done} of {max(wanted, every)} {unit}" if done and wanted else ""
    state = "partial" if done else "missing"
    said = f"{stage}{basis}" if done else f"not {stage}"
    text = f"{said}: {words or _AGAIN[why]}"
    return Standing(stage, state, why, text, done, wanted, unit, every)  # type: ignore[arg-type]


def measured(job: Job, result: Facts, progress: Progress, budget: Budget) -> Iterator[Facts]:
    """The result after each stage that was not done yet.

    What a stage has when it is cancelled or fails comes too, before the error.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    work = _Measuring(job, planned(job, result), progress, budget)
    try:
        yield from work.stages()
    finally:
        work.close()


def broken(result: Facts, error: RtlabError) -> Facts:
    """A compiled result whose stages under way ended with an error outside them, such as a worker that died."""
    stages = {
        k: _missing(k, s, "failed", str(error)) if s.state == "waiting" else s
        for k, s in result.stages.items()
    }
    return dataclasses.replace(result, stages=stages)


def last(job: Job, result: Facts, budget: Budget, progress: Progress | None = None) -> Facts:
    """The result after all stages; an executor's process may find it out, and reports nothing."""
    for found in measured(job, result, progress or Silent(), budget):
        result = found
    return result


class _Measuring:
    """One variant under measurement."""

    def __init__(self, job: Job, result: Facts, progress: Progress, budget: Budget) -> None:
        self.job, self.result, self.progress, self.budget = job, result, progress, budget
        self._itself = _ran_itself(result)
        #: What computes in the place of an engine that is not run by its own backend.
        self._stand_in = None if self._itself else evaluator()
        self.runner: Runner = self._stand_in or runner_of(result.engine.backend)
        self._computing: Engine | None = None

    def stages(self) -> Iterator[Facts]:
        works = {Stage.TIMED: self._time, Stage.COMPARED: self._compare, Stage.SCORED: self._score}
        for stage, work in works.items():
            if self.result.stages[stage].state != "waiting":
                continue
            try:
                with self.budget.share(self.progress, _PARTS[stage]) as within:
                    work(within)
            except Cancelled:
                if not self.progress.stopped():
                    # The time was over in the middle of a run.
                    self._settle(stage)
                else:
                    over = isinstance(self.progress, Deadline) and self.progress.late
                    self.result = planned(self.job, self.result, "budget" if over else "cancelled")
                    yield self.result
                    raise
            except Exception as error:  # noqa: BLE001 - whatever it is, what is known of the engine stays
                self._failed(stage, error)
            yield self.result

    def close(self) -> None:
        """Forget the sessions, which hold the weights."""
        if self._computing is not None:
            self.runner.release(self._computing)

    def _stand(self, stage: Stage, done: int, wanted: int, unit: str, known: int = 0) -> None:
        """Note how far a stage came by now; it is still under way."""
        standing = Standing(stage, "waiting", done=done, wanted=wanted, unit=unit, known=known)
        self.result = dataclasses.replace(self.result, stages={**self.result.stages, stage: standing})

    def _settle(self, stage: Stage) -> None:
        """A stage has ended: done, or stopped by the budget."""
        known = self.result.stages[stage]
        over = known.done < known.wanted or not known.done
        standing = _missing(stage, known, "budget") if over else dataclasses.replace(known, state="done")
        self.result = dataclasses.replace(self.result, stages={**self.result.stages, stage: standing})

    def _failed(self, stage: Stage, error: Exception) -> None:
        known = self.result.stages[stage]
        details = error.details if isinstance(error, RtlabError) else ""
        if stage is Stage.TIMED and "NOT_IMPLEMENTED" in details:
            # The emulation still tells the errors.
            text = "not timed: ONNX Runtime has no CPU kernels for some of its types"
            standing = Standing(stage, "none", "nothing to do", text)
        else:
            standing = _missing(stage, known, "failed", str(told(error, f'measure "{self.job.name}"')))
        self.result = dataclasses.replace(self.result, stages={**self.result.stages, stage: standing})

    # --- times ----------------------------------------------------------------------------------------------------

    def _time(self, within: Within) -> None:
        job, result = self.job, self.result
        engine = result.measured or result.engine
        if self._stand_in is not None and engine.backend != self._stand_in.name:
            request = BuildRequest(result.prepared.model, job.variant, job.limits)
            engine = self._stand_in.build(request, self.progress)
        known, wanted = result.profile, _RUNS
        left = wanted - (0 if known is None else _runs(known))
        # It keeps to its time by itself, and has something to tell at the end of it.
        seconds = within.left if self.budget.bounded else None
        batch = next(self._data.batches(result.prepared.model, 1))
        profile = self.runner.profile(
            engine, batch, self.progress, runs=max(1, left), seconds=seconds, limit_s=job.limits.seconds
        )
        if known is not None:
            profile = known.merged(profile)
        self.result = dataclasses.replace(result, measured=engine, profile=profile)
        self._stand(Stage.TIMED, _runs(profile), wanted, "runs")
        self._settle(Stage.TIMED)
        if is_reference(self.result) and self.result.errors is None:
            self._look_for_nan(engine, within)

    def _look_for_nan(self, engine: Engine, within: Within) -> None:
        """Measure the values of fp32 itself where an output has NaN, so that the first node that writes it is known.

        Such a variant is compared with nothing else, and would show nothing.
        """
        model = self.result.source
        names = _accuracy.comparable(model, model)
        outputs = tuple(o for o in model.outputs if o in names)
        data, limit = self._data.take(max(_COMPARED, fixed_batch(model))), self.job.limits.seconds
        for batch in data.batches(model, 1) if outputs else ():
            found = self.runner.outputs(engine, batch, outputs, progress=within, limit_s=limit)
            if any(np.isnan(found[o]).any() for o in outputs):
                break
        else:
            return
        reader, comparison = evaluator(), Comparison(model, names)
        plain = reference(model, within)
        try:
            for group in _groups(names, value_bytes(model, names, data, reader), model):
                for batch in data.batches(model, batch_size(model, group, data, reader)):
                    values = reader.outputs(plain, batch, group, progress=within, limit_s=limit)
                    comparison.add(values, values, data.samples_in(model, batch))
        finally:
            reader.release(plain)
            errors = comparison.errors(f"{self.runner.source}, {data.source}", synthetic=data.synthetic)
            self.result = dataclasses.replace(self.result, errors=errors)

    # --- values ---------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> CalibrationData:
        assert self.job.data is not None  # noqa: S101 - only what compiles goes without
        return self.job.data

    def _engine(self, within: Within) -> Engine:
        """What computes the variant's values: the engine itself, or its emulation on the CPU."""
        if self._stand_in is None:
            return self.result.engine
        if self._computing is None:
            # Not within the budget: what is half made cannot be gone on with.
            emulation = dequantized(self.result.prepared.emulate(self.progress), self.result.source.by_id)
            # It took three times as much to make, while the engines that are compared are still to come.
            free_memory()
            request = BuildRequest(emulation, self.job.variant, level="basic")
            self._computing = self._stand_in.build(request, within)
        return self._computing

    def _compare(self, within: Within) -> None:
        job, engine = self.job, self._engine(within)
        ready = self.result.prepared
        model = ready.reference or job.model
        # Its own pairs round as well: what they do is told against the model without them.
        variant = ready.model if self._itself else ready.emulate(self.progress)
        model, _ = own.apart(model, variant)
        names = _accuracy.comparable(model, variant)
        if self._itself:
            batch = next(self._data.batches(self.result.prepared.model, 1))
            made = {*self.runner.unfused(engine, batch, within), *self.result.prepared.model.outputs}
            names = tuple(n for n in names if n in made)
        if not names:
            never = Standing(
                Stage.COMPARED, "none", "nothing to do", "no value of the model is left to be compared"
            )
            self.result = dataclasses.replace(
                self.result, stages={**self.result.stages, Stage.COMPARED: never}
            )
            return
        every = job.task.data if job.task else self._data
        data = every if job.whole else every.take(max(_COMPARED, fixed_batch(model)))
        begun = self.result.errors
        limits = {v: s.amax for v, s in ready.scales.items()}
        comparison = Comparison(model, names, begun, limits)
        # What was compared before without shadows goes on without.
        shadow = self._shadow(names) if comparison.shadowed else None
        wanted, known = len(data), every.count or 0
        reader = evaluator()
        plain, shadow = _opened(model, shadow, within)
        comparison.shadowed = shadow is not None
        within.phase("Comparing values", wanted)
        limit = job.limits.seconds
        # What one batch tells is summed while the next is computed.
        summing = ThreadPoolExecutor(1)
        summed: Future[None] = summing.submit(lambda: None)
        try:
            for group in _groups(names, value_bytes(model, names, data, reader), model):
                summed.result()
                size = 1 if self._itself else batch_size(model, group, data, reader)
                for batch in data.batches(model, size, skip=comparison.samples_of(group)):
                    check(within, "comparing values")
                    count = data.samples_in(model, batch)
                    asked = (*group, *_scalars(shadow, group))
                    before = reader.outputs(plain, batch, asked, progress=within, limit_s=limit)
                    after = self.runner.outputs(engine, batch, group, progress=within, limit_s=limit)
                    summed.result()
                    summed = summing.submit(_add, comparison, shadow, before, after, count)
                    within.advance(count)
            summed.result()
        finally:
            summing.shutdown()
            reader.release(plain)
            self.runner.release(engine)
            errors = comparison.errors(f"{self.runner.source}, {data.source}", synthetic=data.synthetic)
            if errors.counted:
                self.result = dataclasses.replace(self.result, errors=errors)
                self._stand(Stage.COMPARED, comparison.samples_of(names), wanted, "samples", known)
        self._settle(Stage.COMPARED)

    def _shadow(self, names: Sequence[str]) -> Shadowed | None:
        """The reference beside what each node makes; None where that is not to be had."""
        ready = self.result.prepared
        if self._itself:
            return None
        # Nodes in another form may write other values than the source's.
        source = ready.reference or rewrites.rewritten(self.job.model, self.job.variant.rewrites)
        made = shadowed(*own.apart(source, ready.emulate(self.progress)))
        return made if made is not None and made.model.values.keys() >= {*names} else None

    def _score(self, within: Within) -> None:
        job, engine, task = self.job, self._engine(within), self.job.task
        if task is None:
            return
        data = task.data if job.whole else task.data.take(max(SCORED, fixed_batch(job.model)))
        known, asked = self.result.score, task.wanted(job.model)
        held = Predictions() if known is None else known.held.copy()
        done = held.samples
        values = tuple(o for n in job.model.top for o in n.outputs if o)
        size = 1 if self._itself else batch_size(job.model, values, data, self._stand_in)
        within.phase("Scoring the task", len(data) - done)
        limit = job.limits.seconds
        try:
            for batch in data.batches(job.model, size, skip=done):
                check(within, "scoring the task")
                count = data.samples_in(job.model, batch)
                held.add(self.runner.outputs(engine, batch, asked, progress=within, limit_s=limit), count)
                within.advance(count)
        finally:
            if held.samples > done:
                score = Score.of(task, held, str(self.runner.source))
                self.result = dataclasses.replace(self.result, score=score)
                self._stand(Stage.SCORED, held.samples, len(data), "samples", task.data.count or 0)
        self._settle(Stage.SCORED)


def _opened(model: Model, shadow: Shadowed | None, within: Within) -> tuple[Engine, Shadowed | None]:
    """The reference with its shadows, or without where these are beyond what runs here."""
    if shadow is not None:
        with contextlib.suppress(BackendError):
            return reference(shadow.model, within), shadow
    return reference(model, within), None


def _scalars(shadow: Shadowed | None, group: Sequence[str]) -> tuple[str, ...]:
    """What shadows tell of values."""
    if shadow is None:
        return ()
    return tuple(n for v in group if v in shadow.own for n in shadow.own[v].scalars)


def _add(
    comparison: Comparison, shadow: Shadowed | None, found: Outputs, variant: Outputs, count: int
) -> None:
    comparison.add(found, variant, count)
    if shadow is None:
        return
    comparison.add_own(
        {
            v: (float(found[s.energy]), max(float(found[s.most]), -float(found[s.least])))
            for v, s in shadow.own.items()
            if s.energy in found
        }
    )


def _runs(profile: Profile) -> int:
    return len(profile.total) if profile.runs is None else profile.runs


def _groups(names: Sequence[str], nbytes: Mapping[str, int], model: Model) -> list[tuple[str, ...]]:
    """Values in groups that can be read at once; where there are several, the largest layers come first."""
    if sum(nbytes.values()) <= _READ_BYTES:
        return [tuple(names)]
    groups: list[list[str]] = [[]]
    room = _READ_BYTES
    steps = _operations(model)
    for name in sorted(names, key=lambda n: -steps.get(model.producers[n].id, 0)):
        if groups[-1] and nbytes[name] > room:
            groups.append([])
            room = _READ_BYTES
        groups[-1].append(name)
        room -= nbytes[name]
    return [tuple(g) for g in groups]


def _operations(model: Model) -> Mapping[str, int]:
    """FLOPs of each node; empty where they cannot be told."""
    try:
        return {node: work.flops or 0 for node, work in works(model).items()}
    except RtlabError:
        return {}
