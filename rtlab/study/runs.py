"""Work on the variants of a study: built, timed, compared and scored, here or in an executor."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, TypeVar

from rtlab import backends
from rtlab.backends.capabilities import require_capability, suggest_backends
from rtlab.backends.reference import get_stand_in
from rtlab.backends.selection import builder_for
from rtlab.backends.workers.session_child import prestart_child
from rtlab.core.facts import VariantResult
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.prepared import Prepared
from rtlab.core.progress import check
from rtlab.core.protocols import Counter, Progress
from rtlab.core.ranges import Ranges
from rtlab.core.stage import BUDGET_S, Budget, parse_budget
from rtlab.core.trace import Throughput
from rtlab.core.variant import Variant
from rtlab.errors import (
    Cancelled,
    RtlabError,
    Unavailable,
    VariantError,
    boundary,
    check_memory_limit,
    wrap_error,
)
from rtlab.study.job import Job, compile_variant, prepare_model
from rtlab.study.measuring import mark_failed, measure_all_stages, measure_stages, plan_stages
from rtlab.study.observations import Observations
from rtlab.study.planning import resolve
from rtlab.study.progress import report_progress
from rtlab.study.variants import check_variant_name

if TYPE_CHECKING:
    from typing_extensions import Self


R = TypeVar("R")
#: The part of a budget that calibration may take, so that the engine is not kept waiting.
_CALIBRATING = 1 / 3
#: Seconds after which work in an executor looks whether somebody wants it to stop.
_TICK_S = 0.1


class Runs(Observations[R]):
    """The jobs of a study."""

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
    ) -> Self:
        """Build, time, compare and score what is not built yet, or rests on random input although data came since.

        What was cancelled before goes on. Results come in stages (``Result.stages``): what is compiled is there, and
        views show it, while the rest is measured. A cancel or an error leaves the stages before it standing.

        Args:
            names: Variants to run; all that were added by default.
            executor: Any ``concurrent.futures.Executor``; one variant at a time here by default.
            progress: Where to report; the host's reporter by default.
            compare: Whether to run the variants for times, errors and score, or only to build them.
            budget_s: Seconds that each variant may take on this machine beyond compiling: calibration, times, errors
                and score rest on fewer samples and runs where they would take longer, and say so; ``measure`` goes on
                from there. 0 only builds; ``math.inf`` measures all there is.
            again: Build what is built once more. Until the new engine is there, and where none comes, the old one
                stands.

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
        state = self._state
        requested_names = requested_names or [n for n in state.variants if n not in state.unbuilt]
        for name in requested_names:
            self._require_variant(name, "run")
            if again and name in state.facts and state.facts[name].recorded:
                raise VariantError(
                    f'Cannot build "{name}" again: it was read from files of another machine. Call study.read again.'
                )
        # By name the engine where only what was cancelled is to go on.
        todo: dict[str, VariantResult | None] = {
            n: None for n in requested_names if again or n not in state.facts or self.outdated(n)
        }
        if seconds:
            todo |= {
                n: state.facts[n] for n in requested_names if n not in todo and _was_cancelled(state.facts[n])
            }
        if seconds and todo and executor is None and not self.views:
            # Its process starts while the first variant is compiled; where somebody waits for the picture, after that.
            prestart_child()
        errors: list[RtlabError] = []
        with report_progress(progress) as reporter:
            if executor is None:
                for name, engine in todo.items():
                    with self._capture_failure(name, errors, engine):
                        budget = Budget(seconds)
                        job = self._job(name, reporter, budget=None if engine else budget)
                        self._run_stages(job, engine or compile_variant(job, reporter), reporter, budget)
            else:
                errors += self._run_in_executor(todo, executor, reporter, seconds)
        # Where an engine was there before, it still is.
        self._update_state(lambda state: state.without_failures(*todo))
        if errors:
            raise errors[0]
        return self

    @boundary("measure the variant")
    def measure(self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> R:
        """Go on measuring a built variant where it stopped: more runs, more samples, and what failed, once more.

        Values are compared on all samples then, where a first answer takes 32.

        Args:
            name: A variant that ``run`` built.
            budget_s: Seconds that it may take; ``math.inf`` for all there is.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built here, or the budget is no number of seconds.
            Cancelled: the work was stopped; what was measured is kept.
        """
        result, seconds = self.facts_of(name), parse_budget(budget_s)
        if self.outdated(name):
            # What was found on random input is no beginning for what real samples tell.
            self.run([name], budget_s=seconds, progress=progress)
            return self._handle(self.facts_of(name))
        if result.recorded:
            raise VariantError(
                f'Cannot measure "{name}": it was read from files of another machine. Its times are in those files; '
                "add a variant of the same precision to measure one here."
            )
        with report_progress(progress) as reporter:
            full_job = dataclasses.replace(self._job(name, reporter), all_samples=True)
            self._run_stages(full_job, result, reporter, Budget(seconds))
        return self._handle(self.facts_of(name))

    @boundary("calibrate the variant")
    def calibrate(self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> R:
        """Observe the samples that a variant was not calibrated on yet, and build it again with the scales of all.

        Where nothing was observed since it was built, it stays. So it does when this is cancelled while it observes;
        what was seen is kept, and the next call goes on from there.

        Args:
            name: A variant with a calibrator that ``run`` built.
            budget_s: Seconds that measuring may take once it is built, as in ``run``; observing takes what it takes.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built here, or takes no scales from data.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped.
        """
        result, seconds = self.facts_of(name), parse_budget(budget_s)
        if result.recorded or result.variant.calibrator is None:
            why = (
                "it was read from files of another machine"
                if result.recorded
                else "its scales were given"
                if name in self._state.scales
                else "its precision needs no scales of activations"
            )
            raise VariantError(
                f'Cannot calibrate "{name}": {why}. Add a variant with precision="int8" and a calibrator.'
            )
        with report_progress(progress) as reporter:
            ranges = self._observer_of(result.variant).ranges(self.data, reporter)
            if self.outdated(name) or result.ranges is None or result.ranges.samples != ranges.samples:
                budget = Budget(seconds)
                job = self._job(name, reporter, budget=budget)
                self._run_stages(job, compile_variant(job, reporter), reporter, budget)
        return self._handle(self.facts_of(name))

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
        if choice or name not in self.variants:
            variant_and_scales = resolve(
                self.model, name, choice.pop("precision", None), scales=choice.pop("scales", None), **choice
            )
            if not self._state.has_variant(name, *variant_and_scales):
                self._plan(name, *variant_and_scales, build=False)
        if (facts := self.facts.get(name)) is not None:
            return facts.prepared
        with report_progress(progress) as reporter:
            return prepare_model(self._job(name, reporter, build=False), reporter)

    def throughput(
        self, name: str, *, streams: int = 2, seconds: float = 2.0, progress: Progress | None = None
    ) -> Throughput:
        """Inferences per second of a variant's engine on its GPU, with several streams and contexts.

        Raises:
            VariantError: the variant is not built.
            Unavailable: its backend runs no engines here.
            RunError: the engine cannot be run.
        """
        result = self.facts_of(name)
        engine = result.engine
        backend = backends.get(engine.backend)
        capabilities = backend.capabilities()
        if not (capabilities.counts and backend.availability().ok and capabilities.runs_itself(engine)):
            raise Unavailable(
                f'Cannot measure the throughput of "{name}": backend "{engine.backend}" keeps no engine on a '
                f"GPU here. Build it where a GPU is, with {suggest_backends(lambda c: c.counts)}."
            )
        counter: Counter = require_capability(engine.backend, "counts", "measure throughput")
        batch = next(self.data.batches(result.prepared.model, 1))
        with report_progress(progress) as reporter:
            return counter.throughput(engine, batch, reporter, streams=streams, seconds=seconds)

    def _run_stages(self, job: Job, result: VariantResult, progress: Progress, budget: Budget) -> None:
        """Keep a compiled variant, and each stage as it is done."""
        if not budget.seconds:
            self._keep(job, plan_stages(job, result, "not asked"))
            return
        pending_result = plan_stages(job, result)
        self._keep(job, pending_result)
        try:
            full = dataclasses.replace(
                job, data=self._comparison_data, task=self._prepare_scoring_task(progress)
            )
        except RtlabError as error:
            # There is nothing to measure on; the engine stands all the same.
            self._keep(job, mark_failed(pending_result, error))
            return
        for stage_result in measure_stages(full, result, progress, budget):
            self._keep(job, stage_result)

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
                job, data=self._comparison_data, task=self._prepare_scoring_task(progress)
            )
            pending[executor.submit(measure_all_stages, full, facts, Budget(seconds))] = job, facts

        for name, built_facts in todo.items():
            with self._capture_failure(name, errors, built_facts):
                if built_facts is not None:
                    measure(self._job(name, progress), built_facts)
                    continue
                job = self._job(name, progress, budget=Budget(seconds))
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
                        self._keep(job, result)
                        compiled_facts = result if engine is None and seconds else None
                    if compiled_facts is not None:
                        with self._capture_failure(job.name, errors, compiled_facts):
                            measure(job, compiled_facts)
        finally:
            for future, (job, engine) in pending.items():
                future.cancel()
                if engine is not None:
                    with contextlib.suppress(VariantError):
                        self._keep(job, plan_stages(job, engine, "cancelled"))
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
        before = self.variants.get(name)
        try:
            yield
        except (Cancelled, futures.CancelledError, TypeError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
            words = wrap_error(error, f'{"build" if facts is None else "measure"} "{name}"')
            with self._lock:
                state = self._state
                is_current = before is not None and before == state.variants.get(name)
                if is_current and facts is not None:
                    self._state = state.with_facts(mark_failed(state.facts.get(name, facts), words))
                elif is_current:
                    self._state = state.with_failure(name, words)
            if facts is None or not is_current:
                errors.append(words)
            self._notify_views()

    def _keep(self, job: Job, result: VariantResult) -> None:
        """Keep what was found of a variant, unless that is none of the study's any more.

        Raises:
            VariantError: it was removed, or planned anew, since its work began.
        """
        with self._lock:
            is_current = self._state.is_current(job)
            if is_current:
                self._state = self._state.with_facts(result)
        if not is_current:
            raise _stale_variant_error(job.name, was_replanned=job.name in self.variants)
        self._notify_views()

    def _job(self, name: str, progress: Progress, *, build: bool = True, budget: Budget | None = None) -> Job:
        state = self._state
        if name not in state.variants:
            raise _stale_variant_error(name)
        variant = state.variants[name]
        builder = variant.backend or (builder_for(None, variant.target, model=self.model) if build else "")
        implicit = variant.options is not None and variant.options.implicit
        facts = state.facts.get(name)
        if facts is not None and budget is None:
            ranges = facts.ranges
        else:
            ranges = self._ranges(variant, progress, budget) if variant.calibrator else None
        job = Job(
            name=name,
            variant=variant,
            model=self.model,
            # Random samples of a large model take as long to make as it takes to compile.
            data=self.data if implicit else None,
            task=self._selected_task,
            ranges=ranges,
            scales=state.scales.get(name),
            limits=self.limits,
            builder=builder,
            runner=get_stand_in(),
            requested_samples=(self.data.count or 0) if ranges is not None else 0,
            random_ranges=ranges is not None and self._observer_of(variant).synthetic(self.data),
            peaks=self._peaks_of(variant, progress),
        )
        needs_inputs = facts is None or budget is not None
        return dataclasses.replace(job, inputs=self._inputs(job, progress, budget)) if needs_inputs else job

    def _inputs(self, job: Job, progress: Progress, budget: Budget | None) -> LayerInputs | None:
        """What products read, for the treatments of weights and biases that a variant has."""
        kinds = {t.kind for t in job.variant.treatments}
        if kinds.isdisjoint({"reconstruct", "correct"}):
            return None
        observer, ready = self._observer_of(job.variant, progress), prepare_model(job, progress)
        if budget is None:
            return observer.inputs(job.variant, ready, self.data, progress)
        calibration_budget = budget if budget.seconds else Budget(BUDGET_S)
        with calibration_budget.share(progress, _CALIBRATING) as deadline:
            try:
                return observer.inputs(job.variant, ready, self.data, deadline)
            except Cancelled:
                if deadline.is_cancelled:
                    raise
                return None

    def _ranges(self, variant: Variant, progress: Progress, budget: Budget | None) -> Ranges:
        """What a variant is calibrated with: all samples, or those that a part of its budget suffices for."""
        observer = self._observer_of(variant, progress)
        if budget is None:
            return observer.ranges(self.data, progress)
        # To only compile takes scales too.
        calibration_budget = budget if budget.seconds else Budget(BUDGET_S)
        with calibration_budget.share(progress, _CALIBRATING) as deadline:
            try:
                return observer.ranges(self.data, deadline)
            except Cancelled:
                ranges = observer.observed_ranges
                if deadline.is_cancelled or ranges is None:
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
