"""Work on the variants of a study: they are prepared, built, timed, compared and scored, here or in an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from rtlab.analyses.study_state import StudyState
from rtlab.backends.reference import get_stand_in
from rtlab.backends.selection import builder_for
from rtlab.core.budget import BUDGET_S, Budget, WorkContext, parse_budget
from rtlab.core.external_data import LARGE_WEIGHTS
from rtlab.core.facts import VariantResult
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Deadline, check
from rtlab.core.protocols import Progress
from rtlab.core.ranges import Ranges
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RtlabError, VariantError, check_memory_limit, wrap_error
from rtlab.experiments.experiment import Experiment, run_experiment
from rtlab.study.job import Job, compile_variant, prepare_model
from rtlab.study.observations import Observations
from rtlab.study.planning import resolve
from rtlab.study.progress import report_progress
from rtlab.study.stages import Slot, mark_failed, measure_all_stages, measure_stages, plan_stages
from rtlab.study.state_holder import StateHolder, check_variant_name

Tool = TypeVar("Tool")
Record = TypeVar("Record")
_LOG = logging.getLogger(__name__)
#: The part of a budget that calibration may take, so that the engine comes soon.
_CALIBRATING = 1 / 3
#: The same of a command's whole time where weights are so large that preparing and building take most of it.
_CALIBRATING_LARGE = 1 / 8
#: Seconds between looks at whether work in an executor is cancelled.
_TICK_S = 0.1


class StudyRunner:
    """Prepares, builds and measures the variants of a study, stage by stage."""

    def __init__(self, holder: StateHolder, observations: Observations) -> None:
        self.holder, self.observations = holder, observations
        #: The context in which variants are timed here.
        self.timing_slot: Slot = contextlib.nullcontext

    def run(
        self,
        names: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        progress: Progress | None = None,
        compare: bool = True,
        budget_s: float = BUDGET_S,
        again: bool = False,
    ) -> None:
        """Build, time, compare and score variants: see ``Study.run``, which has the same arguments and errors."""
        check_memory_limit("run the study")
        seconds = parse_budget(budget_s) if compare else 0.0
        state = self.holder.state
        requested_names = [names] if isinstance(names, str) else list(names or ())
        requested_names = requested_names or [n for n in state.variants if n not in state.unbuilt]
        for name in requested_names:
            self.holder.variant(name, "run")
            if again and name in state.results and state.results[name].recorded:
                raise VariantError(
                    f'Cannot build "{name}" again: it was read from files of another machine. Call study.read again.'
                )
        # By name the result where only what was cancelled is to go on.
        todo: dict[str, VariantResult | None] = {
            n: None for n in requested_names if again or n not in state.results or state.is_outdated(n)
        }
        for name in requested_names if seconds else ():
            if name not in todo and any(s.why == "cancelled" for s in state.results[name].stages.values()):
                todo[name] = state.results[name]
        errors: list[RtlabError] = []
        with report_progress(progress) as reporter:
            if executor is None:
                for name, engine in todo.items():
                    with self._capture_failure(name, errors, engine):
                        budget = Budget(seconds)
                        job = self.job(name, reporter, budget=None if engine else budget)
                        self.run_stages(job, engine or compile_variant(job, reporter), reporter, budget)
            else:
                errors += self._run_in_executor(todo, executor, reporter, seconds)
        # Where an engine was there before, it still is.
        self.holder.update(lambda state: state.without_failures(*todo))
        if errors:
            raise errors[0]

    def measure(
        self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None
    ) -> VariantResult:
        """Go on measuring a built variant: see ``Study.measure``, which has the same arguments and errors."""
        result, seconds = self.holder.result(name), parse_budget(budget_s)
        if self.holder.state.is_outdated(name):
            # What was measured on random input does not go on with real samples.
            self.run([name], budget_s=seconds, progress=progress)
            return self.holder.result(name)
        if result.recorded:
            raise VariantError(
                f'Cannot measure "{name}": it was read from files of another machine. Its times are in those files; '
                "add a variant of the same precision to measure one here."
            )
        with report_progress(progress) as reporter:
            full_job = dataclasses.replace(self.job(name, reporter), all_samples=True)
            self.run_stages(full_job, result, reporter, Budget(seconds))
        return self.holder.result(name)

    def prepare(self, name: str, *, progress: Progress | None = None, **choice: Any) -> Prepared:
        """The ONNX model that expresses a variant's precision: see ``StudyCalibration.prepare``."""
        check_variant_name(name)
        if choice or name not in self.holder.state.variants:
            variant_and_scales = resolve(self.holder.state.model, name, **choice)
            if not self.holder.state.has_variant(name, *variant_and_scales):
                self.holder.plan(name, *variant_and_scales, build=False)
        if (facts := self.holder.state.results.get(name)) is not None:
            return facts.prepared
        with report_progress(progress) as reporter:
            return prepare_model(self.job(name, reporter, build=False), reporter)

    def search(
        self,
        experiment: Experiment[Tool, Record],
        context: WorkContext[Tool],
        change: Callable[[StudyState, Record], StudyState],
    ) -> Record:
        """Run an experiment; each record puts another state in place, and views are told at the end."""
        try:
            return run_experiment(
                experiment, context, lambda record: self.holder.update(lambda state: change(state, record))
            )
        finally:
            self.holder.notify()

    def run_stages(self, job: Job, result: VariantResult, progress: Progress, budget: Budget) -> None:
        """Keep a compiled variant, and each stage as it is done."""
        if not budget.seconds:
            self.keep(job, plan_stages(job, result, "not asked"))
            return
        pending_result = plan_stages(job, result)
        self.keep(job, pending_result)
        try:
            full = self._make_full_job(job, progress)
        except RtlabError as error:
            # There is nothing to measure on; the engine stays.
            self.keep(job, mark_failed(pending_result, error))
            return
        for stage_result in measure_stages(full, result, progress, budget, self.timing_slot):
            self.keep(job, stage_result)

    def _make_full_job(self, job: Job, progress: Progress) -> Job:
        """A job with what its variant is measured on."""
        holder, variant = self.holder, job.variant
        selected = self.observations.selected_data
        return dataclasses.replace(
            job,
            data=holder.data_of(variant, selected),
            task=holder.task_of(variant, self.observations.scoring_task(progress)),
        )

    def _run_in_executor(
        self, todo: Mapping[str, VariantResult | None], executor: Executor, progress: Progress, seconds: float
    ) -> list[RtlabError]:
        """Compile in an executor's workers, then measure in them; each variant is kept as it comes."""
        errors: list[RtlabError] = []
        pending: dict[Future[VariantResult], tuple[Job, VariantResult | None]] = {}

        def submit(job: Job, facts: VariantResult | None) -> None:
            with self._capture_failure(job.name, errors, facts):
                if facts is None:
                    future = executor.submit(compile_variant, job)
                else:
                    full = self._make_full_job(job, progress)
                    future = executor.submit(measure_all_stages, full, facts, Budget(seconds))
                pending[future] = job, facts

        for name, facts in todo.items():
            with self._capture_failure(name, errors, facts):
                submit(self.job(name, progress, budget=None if facts else Budget(seconds)), facts)
        try:
            while pending:
                done, _ = futures.wait(pending, timeout=_TICK_S, return_when=futures.FIRST_COMPLETED)
                check(progress, "the study")
                for future in done:
                    job, facts = pending.pop(future)
                    with self._capture_failure(job.name, errors, facts):
                        result = future.result()
                        if facts is None:
                            result = plan_stages(job, result, "" if seconds else "not asked")
                        self.keep(job, result)
                        if facts is None and seconds:
                            submit(job, result)
        finally:
            for future, (job, facts) in pending.items():
                future.cancel()
                if facts is not None:
                    with contextlib.suppress(VariantError):
                        self.keep(job, plan_stages(job, facts, "cancelled"))
        return errors

    @contextlib.contextmanager
    def _capture_failure(
        self, name: str, errors: list[RtlabError], facts: VariantResult | None = None
    ) -> Iterator[None]:
        """Note the failure of one variant, so that the others are tried.

        ``errors`` gets the error of one that has no engine, or that was removed meanwhile. ``facts`` is the engine of
        one that is being measured: it stays, and its stages say what is missing.
        """
        before = self.holder.state.variants.get(name)
        try:
            yield
        except (Cancelled, futures.CancelledError, TypeError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
            words = wrap_error(error, f'{"build" if facts is None else "measure"} "{name}"')
            _LOG.warning("%s", words)
            is_current = before is not None and before == self.holder.state.variants.get(name)
            if is_current and facts is not None:
                failed = mark_failed(self.holder.state.results.get(name, facts), words)
                self.holder.update(lambda state: state.with_result(failed))
            elif is_current:
                self.holder.update(lambda state: state.with_entries(failures={name: words}))
            if facts is None or not is_current:
                errors.append(words)
            self.holder.notify()

    def keep(self, job: Job, result: VariantResult) -> None:
        """Keep what was found of a variant, unless that is none of the study's any more.

        Raises:
            VariantError: it was removed, or planned anew, since its work began.
        """

        def keep(state: StudyState) -> StudyState:
            if not state.has_variant(job.name, job.variant, job.scales):
                raise _stale_variant_error(job.name)
            return state.with_result(result)

        before = self.holder.state.results.get(job.name)
        self.holder.publish(keep)
        for stage, status in result.stages.items():
            if status.state != "waiting" and (before is None or before.stages.get(stage) != status):
                level = logging.WARNING if status.why == "failed" else logging.INFO
                _LOG.log(
                    level, '"%s": %s', job.name, status.text or f"{status.stage}, {status.basis}".rstrip(", ")
                )

    def job(self, name: str, progress: Progress, *, build: bool = True, budget: Budget | None = None) -> Job:
        """What a variant's work needs; ``budget`` says that it is built anew, and calibrated within a part of it.

        Raises:
            VariantError: the variant was removed.
        """
        state = self.holder.state
        if name not in state.variants:
            raise _stale_variant_error(name)
        variant = state.variants[name]
        builder = variant.backend or (
            builder_for(None, variant.target, model=self.holder.state.model) if build else ""
        )
        facts = state.results.get(name)
        if facts is not None and budget is None:
            ranges = facts.ranges
        else:
            ranges = self.ranges(variant, progress, budget) if variant.calibrator else None
        job = Job(
            name=name,
            variant=variant,
            model=state.get_model(variant),
            # Random samples of a large model take as long to make as it takes to compile.
            data=None,
            task=self.holder.task_of(variant, state.scored_task),
            ranges=ranges,
            scales=state.scales.get(name),
            limits=state.limits,
            builder=builder,
            runner=get_stand_in(),
            requested_samples=(self.holder.data.count or 0) if ranges is not None else 0,
            random_ranges=ranges is not None
            and self.observations.observer_of(variant).synthetic(self.holder.data),
            peaks=self.observations.peaks_of(variant, progress),
        )
        needs_inputs = facts is None or budget is not None
        return dataclasses.replace(job, inputs=self.inputs(job, progress, budget)) if needs_inputs else job

    def inputs(self, job: Job, progress: Progress, budget: Budget | None) -> LayerInputs | None:
        """What products read, for the transforms of weights and biases that a variant has."""
        if {t.kind for t in job.variant.treatments}.isdisjoint({"reconstruct", "correct"}):
            return None
        # At the sizes of the study's samples.
        base = dataclasses.replace(job, model=self.holder.state.model)
        observer, ready = self.observations.observer_of(job.variant, progress), prepare_model(base, progress)
        with self._share(budget, progress) as deadline:
            return observer.inputs(job.variant, ready, self.holder.data, deadline)

    def ranges(self, variant: Variant, progress: Progress, budget: Budget | None) -> Ranges:
        """What a variant is calibrated with: all samples, or those that a part of its budget suffices for."""
        observer = self.observations.observer_of(variant, progress)
        with self.observations.publishing(), self._share(budget, progress) as deadline:
            try:
                return observer.ranges(self.holder.data, deadline)
            except Cancelled:
                ranges = observer.observed_ranges
                if deadline.is_cancelled() or ranges is None:
                    raise
                return ranges

    def _share(
        self, budget: Budget | None, progress: Progress
    ) -> contextlib.AbstractContextManager[WorkContext[None]]:
        """The part of a budget that calibration may take; no limit without one."""
        if budget is None:
            return contextlib.nullcontext(WorkContext(None, progress))
        is_large = isinstance(progress, Deadline) and self.holder.state.model.weight_bytes >= LARGE_WEIGHTS
        part = _CALIBRATING_LARGE if is_large else _CALIBRATING
        # To only compile takes scales too, and nothing is compiled without those of one sample.
        return (budget if budget.seconds else Budget(BUDGET_S)).share(progress, part, ends=False)


def _stale_variant_error(name: str) -> VariantError:
    return VariantError(
        f'Cannot keep what was found of variant "{name}": it was removed, or planned anew, while it was built or '
        "measured. Run study.run() for the new one, or add it again with study.add."
    )
