"""Work on the variants of a study: built, timed, compared and scored, here or in an executor."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, TypeVar

from rtlab import backends
from rtlab.backends.choosing import builder_for
from rtlab.backends.live.apart import warm
from rtlab.backends.reference import stand_in
from rtlab.backends.roles import advice, role
from rtlab.core.facts import Facts
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.prepared import Prepared
from rtlab.core.progress import check
from rtlab.core.protocols import Counter, Progress
from rtlab.core.ranges import Ranges
from rtlab.core.stage import BUDGET_S, Budget, budget_of
from rtlab.core.trace import Throughput
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RtlabError, Unavailable, VariantError, boundary, see_room, told
from rtlab.session.job import Job, compiled, prepared
from rtlab.session.measuring import broken, last, measured, planned
from rtlab.session.observations import Observations
from rtlab.session.planning import resolve
from rtlab.session.variants import called
from rtlab.session.watching import watching

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
        see_room("run the study")
        seconds = budget_of(budget_s) if compare else 0.0
        several = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
        wanted: list[Any] = [] if names is None else list(names) if several else [names]
        kept = self._kept
        wanted = wanted or [n for n in kept.variants if n not in kept.unbuilt]
        for name in wanted:
            self._known(name, "run")
            if again and name in kept.facts and kept.facts[name].recorded:
                raise VariantError(
                    f'Cannot build "{name}" again: it was read from files of another machine. Call study.read again.'
                )
        # By name the engine where only what was cancelled is to go on.
        todo: dict[str, Facts | None] = {
            n: None for n in wanted if again or n not in kept.facts or self.outdated(n)
        }
        if seconds:
            todo |= {n: kept.facts[n] for n in wanted if n not in todo and _cancelled(kept.facts[n])}
        if seconds and todo and executor is None and not self.views:
            # Its process starts while the first variant is compiled; where somebody waits for the picture, after that.
            warm()
        failed: list[RtlabError] = []
        with watching(progress) as watched:
            if executor is None:
                for name, engine in todo.items():
                    with self._noting(name, failed, engine):
                        budget = Budget(seconds)
                        job = self._job(name, watched, budget=None if engine else budget)
                        self._follow(job, engine or compiled(job, watched), watched, budget)
            else:
                failed += self._spread(todo, executor, watched, seconds)
        # Where an engine was there before, it still is.
        self._change(lambda kept: kept.settled(*todo))
        if failed:
            raise failed[0]
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
        result, seconds = self.facts_of(name), budget_of(budget_s)
        if self.outdated(name):
            # What was found on random input is no beginning for what real samples tell.
            self.run([name], budget_s=seconds, progress=progress)
            return self._handle(self.facts_of(name))
        if result.recorded:
            raise VariantError(
                f'Cannot measure "{name}": it was read from files of another machine. Its times are in those files; '
                "add a variant of the same precision to measure one here."
            )
        with watching(progress) as watched:
            whole = dataclasses.replace(self._job(name, watched), whole=True)
            self._follow(whole, result, watched, Budget(seconds))
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
        result, seconds = self.facts_of(name), budget_of(budget_s)
        if result.recorded or result.variant.calibrator is None:
            why = (
                "it was read from files of another machine"
                if result.recorded
                else "its scales were given"
                if name in self._kept.scales
                else "its precision needs no scales of activations"
            )
            raise VariantError(
                f'Cannot calibrate "{name}": {why}. Add a variant with precision="int8" and a calibrator.'
            )
        with watching(progress) as watched:
            seen = self._observer_of(result.variant).ranges(self.data, watched)
            if self.outdated(name) or result.ranges is None or result.ranges.samples != seen.samples:
                budget = Budget(seconds)
                job = self._job(name, watched, budget=budget)
                self._follow(job, compiled(job, watched), watched, budget)
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
        called(name)
        if choice or name not in self.variants:
            planned = resolve(
                self.model, name, choice.pop("precision", None), scales=choice.pop("scales", None), **choice
            )
            if not self._kept.same(name, *planned):
                self._plan(name, *planned, build=False)
        if (built := self.facts.get(name)) is not None:
            return built.prepared
        with watching(progress) as watched:
            return prepared(self._job(name, watched, build=False), watched)

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
        capable = backend.capabilities()
        if not (capable.counts and backend.availability().ok and capable.runs_itself(engine)):
            raise Unavailable(
                f'Cannot measure the throughput of "{name}": backend "{engine.backend}" keeps no engine on a '
                f"GPU here. Build it where a GPU is, with {advice(lambda c: c.counts)}."
            )
        counter: Counter = role(engine.backend, "counts", "measure throughput")
        batch = next(self.data.batches(result.prepared.model, 1))
        with watching(progress) as watched:
            return counter.throughput(engine, batch, watched, streams=streams, seconds=seconds)

    def _follow(self, job: Job, result: Facts, progress: Progress, budget: Budget) -> None:
        """Keep a compiled variant, and each stage as it is done."""
        if not budget.seconds:
            self._keep(job, planned(job, result, "not asked"))
            return
        waiting = planned(job, result)
        self._keep(job, waiting)
        try:
            full = dataclasses.replace(job, data=self._compared_on, task=self._scoring(progress))
        except RtlabError as error:
            # There is nothing to measure on; the engine stands all the same.
            self._keep(job, broken(waiting, error))
            return
        for found in measured(full, result, progress, budget):
            self._keep(job, found)

    def _spread(
        self,
        todo: Mapping[str, Facts | None],
        executor: Executor,
        progress: Progress,
        seconds: float,
    ) -> list[RtlabError]:
        """Compile in an executor's workers, then measure in them; each variant is kept as it comes.

        Returns:
            What failed.
        """
        failed: list[RtlabError] = []
        pending: dict[Future[Facts], tuple[Job, Facts | None]] = {}

        def measure(job: Job, found: Facts) -> None:
            full = dataclasses.replace(job, data=self._compared_on, task=self._scoring(progress))
            pending[executor.submit(last, full, found, Budget(seconds))] = job, found

        for name, found in todo.items():
            with self._noting(name, failed, found):
                if found is not None:
                    measure(self._job(name, progress), found)
                    continue
                job = self._job(name, progress, budget=Budget(seconds))
                pending[executor.submit(compiled, job)] = job, None
        try:
            while pending:
                done, _ = futures.wait(pending, timeout=_TICK_S, return_when=futures.FIRST_COMPLETED)
                check(progress, "the study")
                for future in done:
                    job, engine = pending.pop(future)
                    made: Facts | None = None
                    with self._noting(job.name, failed, engine):
                        result = future.result()
                        if engine is None:
                            result = planned(job, result, "" if seconds else "not asked")
                        self._keep(job, result)
                        made = result if engine is None and seconds else None
                    if made is not None:
                        with self._noting(job.name, failed, made):
                            measure(job, made)
        finally:
            for future, (job, engine) in pending.items():
                future.cancel()
                if engine is not None:
                    with contextlib.suppress(VariantError):
                        self._keep(job, planned(job, engine, "cancelled"))
        return failed

    @contextlib.contextmanager
    def _noting(self, name: str, failed: list[RtlabError], built: Facts | None = None) -> Iterator[None]:
        """Note the failure of one variant, so that the others are tried.

        Args:
            name: The variant.
            failed: Gets the error of one that has no engine, or that was removed meanwhile.
            built: Its engine where that is being measured: it stands, and says what is missing.
        """
        before = self.variants.get(name)
        try:
            yield
        except (Cancelled, futures.CancelledError, TypeError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
            words = told(error, f'{"build" if built is None else "measure"} "{name}"')
            with self._lock:
                kept = self._kept
                stays = before is not None and before == kept.variants.get(name)
                if stays and built is not None:
                    self._kept = kept.built(broken(kept.facts.get(name, built), words))
                elif stays:
                    self._kept = kept.failed(name, words)
            if built is None or not stays:
                failed.append(words)
            self._changed()

    def _keep(self, job: Job, result: Facts) -> None:
        """Keep what was found of a variant, unless that is none of the study's any more.

        Raises:
            VariantError: it was removed, or planned anew, since its work began.
        """
        with self._lock:
            wanted = self._kept.wants(job)
            if wanted:
                self._kept = self._kept.built(result)
        if not wanted:
            raise _gone(job.name, planned=job.name in self.variants)
        self._changed()

    def _job(self, name: str, progress: Progress, *, build: bool = True, budget: Budget | None = None) -> Job:
        kept = self._kept
        if name not in kept.variants:
            raise _gone(name)
        variant = kept.variants[name]
        builder = variant.backend or (builder_for(None, variant.target, model=self.model) if build else "")
        implicit = variant.options is not None and variant.options.implicit
        built = kept.facts.get(name)
        if built is not None and budget is None:
            ranges = built.ranges
        else:
            ranges = self._ranges(variant, progress, budget) if variant.calibrator else None
        job = Job(
            name=name,
            variant=variant,
            model=self.model,
            # Random samples of a large model take as long to make as it takes to compile.
            data=self.data if implicit else None,
            task=self._scored_by,
            ranges=ranges,
            scales=kept.scales.get(name),
            limits=self.limits,
            builder=builder,
            runner=stand_in(),
            wanted=(self.data.count or 0) if ranges is not None else 0,
            random_ranges=ranges is not None and self._observer_of(variant).synthetic(self.data),
            peaks=self._peaks_of(variant, progress),
        )
        fresh = built is None or budget is not None
        return dataclasses.replace(job, inputs=self._inputs(job, progress, budget)) if fresh else job

    def _inputs(self, job: Job, progress: Progress, budget: Budget | None) -> LayerInputs | None:
        """What products read, for the treatments of weights and biases that a variant has."""
        kinds = {t.kind for t in job.variant.treatments}
        if kinds.isdisjoint({"reconstruct", "correct"}):
            return None
        observer, ready = self._observer_of(job.variant, progress), prepared(job, progress)
        if budget is None:
            return observer.inputs(job.variant, ready, self.data, progress)
        shared = budget if budget.seconds else Budget(BUDGET_S)
        with shared.share(progress, _CALIBRATING) as within:
            try:
                return observer.inputs(job.variant, ready, self.data, within)
            except Cancelled:
                if within.cancelled:
                    raise
                return None

    def _ranges(self, variant: Variant, progress: Progress, budget: Budget | None) -> Ranges:
        """What a variant is calibrated with: all samples, or those that a part of its budget suffices for."""
        observer = self._observer_of(variant, progress)
        if budget is None:
            return observer.ranges(self.data, progress)
        # To only compile takes scales too.
        shared = budget if budget.seconds else Budget(BUDGET_S)
        with shared.share(progress, _CALIBRATING) as within:
            try:
                return observer.ranges(self.data, within)
            except Cancelled:
                seen = observer.seen
                if within.cancelled or seen is None:
                    raise
                return seen


def _cancelled(result: Facts) -> bool:
    return any(s.why == "cancelled" for s in result.stages.values())


def _gone(name: str, *, planned: bool = False) -> VariantError:
    found = "planned anew" if planned else "removed"
    return VariantError(
        f'Cannot keep what was found of variant "{name}": it was {found} while it was built or measured. '
        + ("Run study.run() for the new one." if planned else "Add it again with study.add.")
    )
