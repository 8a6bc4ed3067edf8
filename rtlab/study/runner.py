"""Work on the variants of a study: they are prepared, built, timed, compared and scored, here or in an executor."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from rtlab.analyses.study_state import StudyState
from rtlab.backends.reference import get_stand_in
from rtlab.backends.selection import builder_for
from rtlab.backends.workers.session_child import prestart_child
from rtlab.core.budget import BUDGET_S, Budget, WorkContext, parse_budget
from rtlab.core.facts import VariantResult
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.prepared import Prepared
from rtlab.core.progress import check
from rtlab.core.protocols import Progress
from rtlab.core.ranges import Ranges
from rtlab.core.variant import Variant
from rtlab.errors import (
    Cancelled,
    RtlabError,
    VariantError,
    boundary,
    check_memory_limit,
    wrap_error,
)
from rtlab.experiments.experiment import Experiment, run_experiment
from rtlab.study.job import Job, compile_variant, prepare_model
from rtlab.study.observations import Observations
from rtlab.study.planning import resolve
from rtlab.study.progress import report_progress
from rtlab.study.stages import mark_failed, measure_all_stages, measure_stages, plan_stages
from rtlab.study.state_holder import StateHolder, check_variant_name

Tool = TypeVar("Tool")
Record = TypeVar("Record")
#: The part of a budget that calibration may take, so that the engine is not kept waiting.
_CALIBRATING = 1 / 3
#: Seconds after which work in an executor looks whether somebody wants it to stop.
_TICK_S = 0.1


class StudyRunner:
    """Prepares, builds and measures the variants of a study, stage by stage."""

    def __init__(self, holder: StateHolder, observations: Observations) -> None:
        self.holder, self.observations = holder, observations

    @property
    def state(self) -> StudyState:
        """The study at this moment."""
        return self.holder.state

    @boundary("run the study")
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
        """Build, time, compare and score variants: see ``Study.run``, which has the same arguments.

        Raises:
            VariantError: there is no variant of a name, or the budget is no number of seconds; or one that was read
                from files is to be built again.
            RtlabError: the first failure, after the others were tried. Finished variants stay.
            Cancelled: the work was stopped. Finished variants and stages stay.
        """
        check_memory_limit("run the study")
        seconds = parse_budget(budget_s) if compare else 0.0
        several = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
        requested_names: list[Any] = [] if names is None else list(names) if several else [names]
        state = self.state
        requested_names = requested_names or [n for n in state.variants if n not in state.unbuilt]
        for name in requested_names:
            self.holder.variant(name, "run")
            if again and name in state.results and state.results[name].recorded:
                raise VariantError(
                    f'Cannot build "{name}" again: it was read from files of another machine. Call study.read again.'
                )
        # By name the engine where only what was cancelled is to go on.
        todo: dict[str, VariantResult | None] = {
            n: None for n in requested_names if again or n not in state.results or state.is_outdated(n)
        }
        if seconds:
            todo |= {
                n: state.results[n]
                for n in requested_names
                if n not in todo and _was_cancelled(state.results[n])
            }
        if seconds and todo and executor is None and not self.holder.views:
            # Its process starts while the first variant is compiled; where somebody waits for the picture, after that.
            prestart_child()
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

    @boundary("measure the variant")
    def measure(
        self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None
    ) -> VariantResult:
        """Go on measuring a built variant where it stopped: see ``Study.measure``, which has the same arguments.

        Raises:
            VariantError: the variant is not built here, or the budget is no number of seconds.
            Cancelled: the work was stopped; what was measured is kept.
        """
        result, seconds = self.holder.result(name), parse_budget(budget_s)
        if self.state.is_outdated(name):
            # What was found on random input is no beginning for what real samples tell.
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
        """The ONNX model that expresses a variant's precision, without building it.

        Args:
            name: A variant that was added; or with ``choice`` one that ``run`` builds only when it is named, and
                which no backend here needs to be able to build. ``export`` writes it.
            progress: Where to report; the host's reporter by default.
            choice: What ``add`` takes.

        Raises:
            VariantError: the combination cannot exist.
            CalibrationError: the activations cannot be observed.
        """
        check_variant_name(name)
        if choice or name not in self.state.variants:
            variant_and_scales = resolve(
                self.state.model,
                name,
                choice.pop("precision", None),
                scales=choice.pop("scales", None),
                **choice,
            )
            if not self.state.has_variant(name, *variant_and_scales):
                self.holder.plan(name, *variant_and_scales, build=False)
        if (facts := self.state.results.get(name)) is not None:
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
            full = dataclasses.replace(
                job, data=self.observations.comparison_data, task=self.observations.scoring_task(progress)
            )
        except RtlabError as error:
            # There is nothing to measure on; the engine stands all the same.
            self.keep(job, mark_failed(pending_result, error))
            return
        for stage_result in measure_stages(full, result, progress, budget):
            self.keep(job, stage_result)

    def _run_in_executor(
        self,
        todo: Mapping[str, VariantResult | None],
        executor: Executor,
        progress: Progress,
        seconds: float,
    ) -> list[RtlabError]:
        """Compile in an executor's workers, then measure in them; each variant is kept as it comes.

        Returns:
            What failed.
        """
        errors: list[RtlabError] = []
        pending: dict[Future[VariantResult], tuple[Job, VariantResult | None]] = {}

        def measure(job: Job, facts: VariantResult) -> None:
            full = dataclasses.replace(
                job, data=self.observations.comparison_data, task=self.observations.scoring_task(progress)
            )
            pending[executor.submit(measure_all_stages, full, facts, Budget(seconds))] = job, facts

        for name, built_facts in todo.items():
            with self._capture_failure(name, errors, built_facts):
                if built_facts is not None:
                    measure(self.job(name, progress), built_facts)
                    continue
                job = self.job(name, progress, budget=Budget(seconds))
                pending[executor.submit(compile_variant, job)] = job, None
        try:
            while pending:
                done, _ = futures.wait(pending, timeout=_TICK_S, return_when=futures.FIRST_COMPLETED)
                check(progress, "the study")
                for future in done:
                    job, engine = pending.pop(future)
                    compiled_facts: VariantResult | None = None
                    with self._capture_failure(job.name, errors, engine):
                        result = future.result()
                        if engine is None:
                            result = plan_stages(job, result, "" if seconds else "not asked")
                        self.keep(job, result)
                        compiled_facts = result if engine is None and seconds else None
                    if compiled_facts is not None:
                        with self._capture_failure(job.name, errors, compiled_facts):
                            measure(job, compiled_facts)
        finally:
            for future, (job, engine) in pending.items():
                future.cancel()
                if engine is not None:
                    with contextlib.suppress(VariantError):
                        self.keep(job, plan_stages(job, engine, "cancelled"))
        return errors

    @contextlib.contextmanager
    def _capture_failure(
        self, name: str, errors: list[RtlabError], facts: VariantResult | None = None
    ) -> Iterator[None]:
        """Note the failure of one variant, so that the others are tried.

        Args:
            name: The variant.
            errors: Gets the error of one that has no engine, or that was removed meanwhile.
            facts: Its engine where that is being measured: it stands, and says what is missing.
        """
        before = self.state.variants.get(name)
        try:
            yield
        except (Cancelled, futures.CancelledError, TypeError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
            words = wrap_error(error, f'{"build" if facts is None else "measure"} "{name}"')
            is_current = before is not None and before == self.state.variants.get(name)
            if is_current and facts is not None:
                failed = mark_failed(self.state.results.get(name, facts), words)
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
                raise _stale_variant_error(job.name, was_replanned=job.name in state.variants)
            return state.with_result(result)

        self.holder.publish(keep)

    def job(self, name: str, progress: Progress, *, build: bool = True, budget: Budget | None = None) -> Job:
        """What a variant's work needs; ``budget`` says that it is built anew, and calibrated within a part of it.

        Raises:
            VariantError: the variant was removed.
        """
        state = self.state
        if name not in state.variants:
            raise _stale_variant_error(name)
        variant = state.variants[name]
        builder = variant.backend or (
            builder_for(None, variant.target, model=self.state.model) if build else ""
        )
        facts = state.results.get(name)
        if facts is not None and budget is None:
            ranges = facts.ranges
        else:
            ranges = self.ranges(variant, progress, budget) if variant.calibrator else None
        job = Job(
            name=name,
            variant=variant,
            model=self.state.model,
            # Random samples of a large model take as long to make as it takes to compile.
            data=None,
            task=state.scored_task,
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
        """What products read, for the treatments of weights and biases that a variant has."""
        kinds = {t.kind for t in job.variant.treatments}
        if kinds.isdisjoint({"reconstruct", "correct"}):
            return None
        observer, ready = self.observations.observer_of(job.variant, progress), prepare_model(job, progress)
        if budget is None:
            return observer.inputs(job.variant, ready, self.holder.data, progress)
        calibration_budget = budget if budget.seconds else Budget(BUDGET_S)
        with calibration_budget.share(progress, _CALIBRATING) as deadline:
            try:
                return observer.inputs(job.variant, ready, self.holder.data, deadline)
            except Cancelled:
                if deadline.is_cancelled():
                    raise
                return None

    def ranges(self, variant: Variant, progress: Progress, budget: Budget | None) -> Ranges:
        """What a variant is calibrated with: all samples, or those that a part of its budget suffices for."""
        observer = self.observations.observer_of(variant, progress)
        if budget is None:
            with self.observations.publishing():
                return observer.ranges(self.holder.data, progress)
        # To only compile takes scales too.
        calibration_budget = budget if budget.seconds else Budget(BUDGET_S)
        with self.observations.publishing(), calibration_budget.share(progress, _CALIBRATING) as deadline:
            try:
                return observer.ranges(self.holder.data, deadline)
            except Cancelled:
                ranges = observer.observed_ranges
                if deadline.is_cancelled() or ranges is None:
                    raise
                return ranges


def _was_cancelled(result: VariantResult) -> bool:
    return any(s.why == "cancelled" for s in result.stages.values())


def _stale_variant_error(name: str, *, was_replanned: bool = False) -> VariantError:
    change = "planned anew" if was_replanned else "removed"
    return VariantError(
        f'Cannot keep what was found of variant "{name}": it was {change} while it was built or measured. '
        + ("Run study.run() for the new one." if was_replanned else "Add it again with study.add.")
    )
