"""The stages of a variant after it is compiled: timed, compared, scored.

Each stage goes on where it stopped before, within a budget of seconds, and keeps a partial result when it is cancelled,
timed out, or fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab import backends
from rtlab.analyses.accuracy import Comparison, compare_values, list_comparable_values
from rtlab.backends.reference import get_evaluator, get_runner
from rtlab.backends.workers.inference import free_memory
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.engine import Engine
from rtlab.core.external_data import LARGE_WEIGHTS
from rtlab.core.facts import SCORED, Errors, Score, VariantResult
from rtlab.core.progress import Deadline, Silent, check
from rtlab.core.protocols import BuildRequest, Progress, Runner
from rtlab.core.stage import Stage, StageStatus, Why
from rtlab.core.task import Predictions
from rtlab.core.variant import Precision
from rtlab.errors import BackendError, Cancelled, RtlabError, wrap_error
from rtlab.experiments.running import batch_size, fixed_batch, open_engine, run_samples, value_bytes
from rtlab.quantize import existing_qdq, rewrites
from rtlab.quantize.isolated_error import (
    IsolatedErrorModel,
    build_isolated_error_model,
    replace_stored_weights,
)
from rtlab.study.job import Job

if TYPE_CHECKING:
    from rtlab.core.arrays import Batch
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.trace import Profile

#: Inferences that every layer is timed in, and samples that values are compared on, where the time suffices.
_RUNS, _COMPARED = 30, 32
#: The part of the time left that each stage may take.
_PARTS = {Stage.TIMED: 1 / 3, Stage.COMPARED: 2 / 3, Stage.SCORED: 1.0}
#: Bytes of values of one sample that are read at once; more are read in several passes.
_READ_BYTES = 256 << 20
#: Takes a profile, perhaps several times while so many seconds remain as the second function returns.
Take = Callable[[Callable[[], "Profile"], Callable[[], float]], "Profile"]
#: Takes a batch, None after the last one, with its number of samples.
Compare = Callable[["Batch | None", int], None]
#: Returns the context of a timing, with what takes it; None where it is simply taken.
Slot = Callable[[], contextlib.AbstractContextManager["Take | None"]]
_AGAIN: dict[Why, str] = {
    "cancelled": "it was cancelled",
    "not asked": "the variant was only compiled",
    "budget": "timed out",
}


def plan_stages(job: Job, result: VariantResult, why: Why = "") -> VariantResult:
    """A compiled result with the status of each later stage: under way, or missing for a reason."""
    stages = dict(result.stages)
    for stage in _PARTS:
        status = stages.get(stage)
        # A stage that is done for a first answer goes on where all samples count.
        if status is not None and (
            status.state == "none"
            or (status.state == "done" and not (job.all_samples and status.done < status.available_count))
        ):
            continue
        if (skip_reason := _skip_reason(job, result, stage)) is not None:
            stages[stage] = StageStatus(stage, "none", "nothing to do", skip_reason)
        elif why:
            stages[stage] = _incomplete_status(stage, status, why)
        else:
            before = status or StageStatus(stage, "waiting")
            stages[stage] = StageStatus(
                stage, "waiting", done=before.done, available_count=before.available_count
            )
    return dataclasses.replace(result, stages=stages)


def _skip_reason(job: Job, result: VariantResult, stage: Stage) -> str | None:
    """Why a stage has nothing to find out; None where it has."""
    if stage is Stage.TIMED and result.engine.maker.predicts:
        return "not timed: the engine is predicted by rules, and nothing was built"
    if job.runner is None and not _runs_on_builder(result):
        return "nothing here can run the model"
    if stage is Stage.COMPARED and is_reference(result):
        precision = str(result.variant.precision)
        if precision == Precision.FP32:
            return "other variants are compared with this one"
        return f"nothing to compare: {precision} changes nothing here, so that its values are the model's own"
    if stage is Stage.SCORED and job.task is None:
        return "no score: the study has no task with labels"
    return None


def is_reference(result: VariantResult) -> bool:
    """Whether a variant's values are those of the model itself in fp32 on the CPU, so that comparing tells nothing."""
    itself = result.prepared.emulated is result.source and not existing_qdq.has_rounding_pairs(result.source)
    return itself and not _runs_on_builder(result)


def _runs_on_builder(result: VariantResult) -> bool:
    """Whether the engine is run by what built it, on its own processor."""
    engine = result.engine
    return backends.get(engine.backend).capabilities().runs_itself(engine)


def _incomplete_status(stage: Stage, status: StageStatus | None, why: Why, words: str = "") -> StageStatus:
    """A stage that ended early, with its partial result."""
    status = status or StageStatus(stage, "missing")
    done, target = status.done, status.target_count
    if 0 < target <= done:
        return dataclasses.replace(status, state="done")
    basis = f" on {done} of {max(target, status.available_count)} {status.unit}" if done and target else ""
    text = f"{f'{stage}{basis}' if done else f'not {stage}'}: {words or _AGAIN[why]}"
    return dataclasses.replace(status, state="partial" if done else "missing", why=why, text=text)


def measure_stages(
    job: Job, result: VariantResult, progress: Progress, budget: Budget, slot: Slot = contextlib.nullcontext
) -> Iterator[VariantResult]:
    """The result after each stage that was not done yet, also after one that is cancelled or fails.

    ``slot`` returns the context in which the variant is timed, such as one in which nothing else is.

    Raises:
        Cancelled: the work was stopped.
    """
    work = _Measuring(job, plan_stages(job, result), progress, budget, slot)
    try:
        yield from work.stages()
    finally:
        work.close()


def mark_failed(result: VariantResult, error: RtlabError) -> VariantResult:
    """A compiled result whose stages under way ended with an error outside them, such as a worker that died."""
    waiting = {k: s for k, s in result.stages.items() if s.state == "waiting"}
    failed = {k: _incomplete_status(k, s, "failed", str(error)) for k, s in waiting.items()}
    return dataclasses.replace(result, stages={**result.stages, **failed})


def measure_all_stages(
    job: Job, result: VariantResult, budget: Budget, progress: Progress | None = None
) -> VariantResult:
    """The result after all stages; an executor's process runs this, and reports nothing."""
    for stage_result in measure_stages(job, result, progress or Silent(), budget):
        result = stage_result
    return result


class _Measuring:
    """One variant under measurement."""

    def __init__(
        self, job: Job, result: VariantResult, progress: Progress, budget: Budget, slot: Slot
    ) -> None:
        self.job, self.result, self.progress, self.budget = job, result, progress, budget
        self._slot = slot
        self._take: Take | None = None
        self._on_builder = _runs_on_builder(result)
        #: What computes in the place of an engine that is not run by its own backend.
        self._stand_in = None if self._on_builder else get_evaluator()
        self.runner: Runner = self._stand_in or get_runner(result.engine.backend)
        self._emulation_model: Model | None = None
        self._emulation_engine: Engine | None = None

    def stages(self) -> Iterator[VariantResult]:
        works = {Stage.TIMED: self._time, Stage.COMPARED: self._compare, Stage.SCORED: self._score}
        for stage, work in works.items():
            if self.result.stages[stage].state != "waiting":
                continue
            try:
                # Timing keeps to its share by itself.
                ends_after_step = stage is not Stage.TIMED
                # To wait for it takes nothing of the budget.
                with (
                    contextlib.nullcontext() if ends_after_step else self._slot() as self._take,
                    self.budget.share(
                        self.progress, _PARTS[stage], ends_after_step=ends_after_step
                    ) as deadline,
                ):
                    work(deadline)
            except Cancelled:
                if not self.progress.stopped():
                    # Timed out in the middle of a run, or before one.
                    self._finish_stage(stage, deadline.activity)
                else:
                    over = isinstance(self.progress, Deadline) and self.progress.is_over
                    self.result = plan_stages(self.job, self.result, "budget" if over else "cancelled")
                    if over:
                        self._finish_stage(stage, deadline.activity)
                    yield self.result
                    raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine stays
                self._record_failure(stage, error)
            yield self.result

    def close(self) -> None:
        """Release the session, which has the weights."""
        if self._emulation_engine is not None:
            self.runner.release(self._emulation_engine)

    def _record_progress(self, stage: Stage, done: int, target: int, unit: str, available: int = 0) -> None:
        """Note how far a stage came by now; it is still under way."""
        self._set_status(StageStatus(stage, "waiting", "", "", done, target, unit, available))

    def _set_status(self, status: StageStatus) -> None:
        stages = {**self.result.stages, status.stage: status}
        self.result = dataclasses.replace(self.result, stages=stages)

    def _finish_stage(self, stage: Stage, activity: str = "") -> None:
        """Note that a stage is done, or stopped by the budget, where it has no result during some activity."""
        status = self.result.stages[stage]
        if status.done < status.target_count or not status.done:
            words = f'{_AGAIN["budget"]} in "{activity}"' if activity and not status.done else ""
            self._set_status(_incomplete_status(stage, status, "budget", words))
        else:
            self._set_status(dataclasses.replace(status, state="done"))

    def _record_failure(self, stage: Stage, error: Exception) -> None:
        status = self.result.stages[stage]
        details = error.details if isinstance(error, RtlabError) else ""
        if stage is Stage.TIMED and "NOT_IMPLEMENTED" in details:
            # The emulation still tells the errors.
            text = "not timed: ONNX Runtime has no CPU kernels for some of its types"
            self._set_status(StageStatus(stage, "none", "nothing to do", text))
        else:
            text = str(wrap_error(error, f'measure "{self.job.name}"'))
            self._set_status(_incomplete_status(stage, status, "failed", text))

    # --- times ----------------------------------------------------------------------------------------------------

    def _time(self, deadline: WorkContext[None]) -> None:
        job, result = self.job, self.result
        engine = result.measured or result.engine
        if self._stand_in is not None and engine.backend != self._stand_in.name:
            request = BuildRequest(result.prepared.model, job.variant, job.limits)
            engine = self._stand_in.build(request, deadline)
        before = result.profile
        inputs = next(self._data.batches(result.prepared.model, 1))

        def measure() -> Profile:
            return self.runner.profile(
                engine,
                inputs,
                deadline,
                runs=max(1, _RUNS - (0 if before is None else before.runs or 0)),
                seconds=deadline.remaining if self.budget.is_bounded else None,
                limit_s=job.limits.seconds,
            )

        profile = self._take(measure, lambda: deadline.remaining) if self._take else measure()
        if before is not None:
            profile = before.merged(profile)
        self.result = dataclasses.replace(result, measured=engine, profile=profile)
        self._record_progress(Stage.TIMED, _runs(profile), _RUNS, "runs")
        self._finish_stage(Stage.TIMED)
        if is_reference(self.result) and self.result.errors is None:
            self._look_for_nan(engine, deadline)

    def _look_for_nan(self, engine: Engine, deadline: WorkContext[None]) -> None:
        """Measure the values of fp32 itself where an output has NaN, so that the first node that writes it is known.

        Such a variant is compared with nothing else, and would show nothing.
        """
        model = self.result.source
        names = list_comparable_values(model, model)
        outputs = tuple(o for o in model.outputs if o in names)
        data, limit = self._data.take(max(_COMPARED, fixed_batch(model))), self.job.limits.seconds
        for batch in data.batches(model, 1) if outputs else ():
            output_arrays = self.runner.outputs(engine, batch, outputs, progress=deadline, limit_s=limit)
            if any(np.isnan(output_arrays[o]).any() for o in outputs):
                break
        else:
            return
        reader, received = get_evaluator(), list[Errors]()
        try:
            for group in _groups(names, value_bytes(model, names, data, reader)):
                take = functools.partial(
                    compare_values, Comparison(model, names, received[-1] if received else None), {}, ()
                )
                with reader.reducing(
                    [(model, group)], take, received.append, progress=deadline, limit_s=limit
                ) as compare:
                    for batch in data.batches(model, batch_size(model, group, data, reader)):
                        compare(batch, data.samples_in(model, batch))
                    compare(None, 0)
        finally:
            if received:
                self.result = dataclasses.replace(self.result, errors=self._add_origin(received[-1], data))

    # --- values ---------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> CalibrationData:
        assert self.job.data is not None  # noqa: S101 - only what compiles goes without
        return self.job.data

    def _emulation(self, deadline: WorkContext[None]) -> Model:
        """What the CPU computes in the place of an engine that is not run by its own backend."""
        if self._emulation_model is None:
            deadline.phase("Preparing what the CPU computes")
            self._emulation_model = replace_stored_weights(
                self.result.prepared.emulate(deadline), self.result.source.by_id
            )
            # It took three times as much memory to make, while the sessions that are compared are still to come.
            free_memory()
        return self._emulation_model

    def _engine(self, deadline: WorkContext[None]) -> Engine:
        """What computes the variant's values: the engine itself, or its emulation on the CPU."""
        if self._stand_in is None:
            return self.result.engine
        if self._emulation_engine is None:
            request = BuildRequest(self._emulation(deadline), self.job.variant, level="basic")
            self._emulation_engine = self._stand_in.build(request, deadline)
        return self._emulation_engine

    def _compare(self, deadline: WorkContext[None]) -> None:
        job, ready = self.job, self.result.prepared
        model = ready.reference or job.model
        # Its own pairs round as well: errors are those against the model without them.
        variant = ready.model if self._on_builder else ready.emulate(deadline)
        model, _ = existing_qdq.separate_existing_qdq(model, variant)
        names = tuple(n for n in list_comparable_values(model, variant) if n in job.model.values)
        if self._on_builder:
            batch = next(self._data.batches(self.result.prepared.model, 1))
            readable = {*self.runner.unfused(self.result.engine, batch, deadline), *ready.model.outputs}
            names = tuple(n for n in names if n in readable)
        if not names:
            text = "no value of the model is left to be compared"
            self._set_status(StageStatus(Stage.COMPARED, "none", "nothing to do", text))
            return
        every = job.task.data if job.task else self._data
        data = every if job.all_samples else every.take(max(_COMPARED, fixed_batch(model)))
        # A comparison that began without isolated errors goes on without.
        has_isolated_errors = self.result.errors is None or self.result.errors.isolated_errors is not None
        shadow = self._shadow(names) if has_isolated_errors else None
        limits = {v: s.amax for v, s in ready.scales.items()}
        target, available, reader = len(data), every.count or 0, get_evaluator()
        try:
            for group in _groups(names, value_bytes(model, names, data, reader)):
                size = 1 if self._on_builder else batch_size(model, group, data, reader)
                skip = _count_samples(self.result.errors, group)
                keep = functools.partial(self._keep_errors, group, data, deadline)
                work = _GroupComparison(
                    Comparison(model, names, self.result.errors, limits), model, group, keep, deadline
                )
                with contextlib.ExitStack() as stack:
                    if self._on_builder:
                        compare = self._open_engines(stack, work)
                    else:
                        compare, shadow = self._open_sessions(stack, work, shadow)
                    deadline.phase("Comparing values", target)
                    try:
                        for batch in data.batches(model, size, skip=skip):
                            check(deadline, "comparing values")
                            compare(batch, data.samples_in(model, batch))
                            if not deadline.remaining:
                                # What was computed is summed, and nothing else begins.
                                break
                    finally:
                        compare(None, 0)
        finally:
            if self.result.errors is not None:
                done = _count_samples(self.result.errors, names)
                self._record_progress(Stage.COMPARED, done, target, "samples", available)
        self._finish_stage(Stage.COMPARED)

    def _keep_errors(
        self, group: Sequence[str], data: CalibrationData, deadline: WorkContext[None], errors: Errors
    ) -> None:
        done = _count_samples(errors, group) - _count_samples(self.result.errors, group)
        self.result = dataclasses.replace(self.result, errors=self._add_origin(errors, data))
        deadline.advance(done)

    def _add_origin(self, errors: Errors, data: CalibrationData) -> Errors:
        source = f"{self.runner.source}, {data.source}"
        return dataclasses.replace(errors, source=source, synthetic=data.synthetic)

    def _open_engines(self, stack: contextlib.ExitStack, work: _GroupComparison) -> Compare:
        """Compare the engine, where it was built, with the reference on the CPU; each runs in its own process."""
        reader, engine, limit = get_evaluator(), self.result.engine, self.job.limits.seconds
        stack.callback(self.runner.release, engine)
        reference = stack.enter_context(open_engine(reader, work.model, work.deadline))
        runs = (functools.partial(reader.outputs, reference), functools.partial(self.runner.outputs, engine))
        work.comparison.has_isolated_errors = False

        def compare(batch: Batch | None, samples: int) -> None:
            if batch is not None:
                values = [r(batch, work.group, progress=work.deadline, limit_s=limit) for r in runs]
                work.keep(compare_values(work.comparison, {}, (), values, samples))

        return compare

    def _open_sessions(
        self, stack: contextlib.ExitStack, work: _GroupComparison, shadow: IsolatedErrorModel | None
    ) -> tuple[Compare, IsolatedErrorModel | None]:
        """Compare on the CPU with isolated errors, or without where these are beyond what runs here."""
        variant, group, comparison = self._emulation(work.deadline), work.group, work.comparison
        work.deadline.phase("Opening what is compared")

        def open_sessions(
            reference: tuple[Model, Sequence[str]],
            error_sums: Mapping[str, tuple[str, str, str]],
            parted: Iterable[str],
        ) -> Compare:
            take = functools.partial(compare_values, comparison, error_sums, parted)
            limit = self.job.limits.seconds
            reads = [reference, (variant, group)]
            return stack.enter_context(
                get_evaluator().reducing(reads, take, work.keep, progress=work.deadline, limit_s=limit)
            )

        if shadow is not None:
            error_sums = {v: shadow.error_sums[v].scalars for v in group if v in shadow.error_sums}
            names = (*group, *(n for scalars in error_sums.values() for n in scalars))
            with contextlib.suppress(BackendError):
                return open_sessions((shadow.model, names), error_sums, shadow.parted), shadow
        comparison.has_isolated_errors = False
        return open_sessions((work.model, group), {}, ()), None

    def _shadow(self, names: Sequence[str]) -> IsolatedErrorModel | None:
        """The reference with the error that each node makes by itself; None where there is no such graph."""
        ready = self.result.prepared
        # Within a budget there is no time for such a session, which has the weights twice.
        is_large = self.result.source.weight_bytes >= LARGE_WEIGHTS and self.budget.is_bounded
        if self._on_builder or is_large:
            return None
        # Nodes in another form may write other values than the source's.
        source = ready.reference or rewrites.apply_rewrites(self.job.model, self.job.variant.rewrites)
        shadow = build_isolated_error_model(
            *existing_qdq.separate_existing_qdq(source, ready.emulate(self.progress))
        )
        if shadow is None or not shadow.model.values.keys() >= {*names}:
            return None
        return dataclasses.replace(shadow, parted=_list_parted_values(self.job.model, source))

    def _score(self, deadline: WorkContext[None]) -> None:
        job, engine, task = self.job, self._engine(deadline), self.job.task
        if task is None:
            return
        data = task.data if job.all_samples else task.data.take(max(SCORED, fixed_batch(job.model)))
        previous_score, output_names = self.result.score, task.wanted(job.model)
        predictions = Predictions() if previous_score is None else previous_score.predictions.copy()
        done, target = predictions.samples, len(data)
        size = 1 if self._on_builder else batch_size(job.model, None, data, self._stand_in)
        deadline.phase("Scoring the task", target - done)
        limit = job.limits.seconds
        try:
            for batch in data.batches(job.model, size, skip=done, drop_last=False):
                check(deadline, "scoring the task")
                count = data.samples_in(job.model, batch)
                outputs = run_samples(
                    job.model, batch, count,
                    lambda b: self.runner.outputs(engine, b, output_names, progress=deadline, limit_s=limit),
                )  # fmt: skip
                if outputs is None:
                    target = predictions.samples
                    break
                predictions.add(outputs, count)
                deadline.advance(count)
        finally:
            if predictions.samples > done:
                score = Score.of(task, predictions, str(self.runner.source))
                self.result = dataclasses.replace(self.result, score=score)
                self._record_progress(
                    Stage.SCORED, predictions.samples, target, "samples", task.data.count or 0
                )
        self._finish_stage(Stage.SCORED)


@dataclasses.dataclass(frozen=True)
class _GroupComparison:
    """A group of values of the reference that is compared, and what keeps the errors after each batch."""

    comparison: Comparison
    model: Model
    group: Sequence[str]
    keep: Callable[[Errors], None]
    deadline: WorkContext[None]


def _list_parted_values(source: Model, reference: Model) -> frozenset[str]:
    """The outputs of nodes that a reference computes by several of other operators."""
    parted = (n for n in source.top if n.id in reference.by_id and reference.by_id[n.id].op != n.op)
    return frozenset(v for n in parted for v in n.outputs)


def _count_samples(errors: Errors | None, values: Sequence[str]) -> int:
    """How many samples all of these values saw."""
    return 0 if errors is None else min((errors.sample_counts.get(v, 0) for v in values), default=0)


def _runs(profile: Profile) -> int:
    return len(profile.total) if profile.runs is None else profile.runs


def _groups(names: Sequence[str], nbytes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Values in groups that can be read at once."""
    groups: list[list[str]] = [[]]
    room = _READ_BYTES
    for name in names:
        if groups[-1] and nbytes[name] > room:
            groups.append([])
            room = _READ_BYTES
        groups[-1].append(name)
        room -= nbytes[name]
    return [tuple(g) for g in groups]
