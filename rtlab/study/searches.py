"""What a study finds out by building and running many times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from rtlab.analyses.batches.sweeps import Sweep
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.advice import Advice
from rtlab.analyses.why.fused_layer import FusedLayer
from rtlab.backends.bench import OrtBench
from rtlab.backends.reference import get_evaluator, get_runner, get_stand_in
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.facts import Ranked, VariantResult
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Progress
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Rewrite, RewriteKind, Variant
from rtlab.errors import VariantError, boundary
from rtlab.experiments.benchmark import BenchmarkRunner
from rtlab.experiments.experiment import Experiment, run_experiment
from rtlab.experiments.peaks import CpuPeaks
from rtlab.experiments.ranking import CalibratorRanking
from rtlab.experiments.sweep import BATCHES, BatchSweep
from rtlab.experiments.tactics import LayerTactics
from rtlab.experiments.tuning import CpuTuning
from rtlab.experiments.why import (
    FusionBlockerSearch,
    FusionSplitSearch,
    explain_by_rules,
    explain_unavailable,
    find_layer,
    get_builder,
    make_reported_verdict,
    neighbours,
)
from rtlab.experiments.why.advising import AdviceSearch, AdviceTools
from rtlab.experiments.why.oracle import forget
from rtlab.formulations.trial import TunedModel
from rtlab.quantize.rewrites import iter_possible_rewrites
from rtlab.study import forced_tactics, records
from rtlab.study.observations import Observations
from rtlab.study.progress import report_progress

R = TypeVar("R")
Tool = TypeVar("Tool")
Record = TypeVar("Record")


class Searches(Observations[R]):
    """The experiments of a study: each is handed what builds and runs here, and what it finds is kept as it comes."""

    def _search(
        self, experiment: Experiment[Tool, Record], rig: WorkContext[Tool], keep: Callable[[Record], None]
    ) -> Record:
        try:
            return run_experiment(experiment, rig, keep)
        finally:
            self._notify_views()

    @boundary("time the batch sizes")
    def sweep(
        self, name: str, batches: Sequence[int] = BATCHES, *, progress: Progress | None = None
    ) -> Sweep:
        """Time a variant at several batch sizes, on what ran it here. What was timed before a cancel is kept.

        Raises:
            VariantError: the variant is not built, did not run here, or has a fixed batch.
            RunError: not even the first batch can be run.
            Cancelled: the work was stopped.
        """
        sweep = BatchSweep.of(self.facts_of(name), self.data, batches, get_stand_in())

        def keep(measured_sweep: Sweep) -> None:
            self._update_state(lambda state: state.with_sweep(name, measured_sweep))

        with report_progress(progress) as reporter:
            return self._search(sweep, WorkContext(get_runner(sweep.engine.backend), reporter), keep)

    @boundary("tune the model")
    def tune(
        self,
        *,
        budget_s: float = 60.0,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        **more: Any,
    ) -> TunedModel:
        """Tune the model's convolutions and products on this CPU: see ``rtlab.experiments.tuning.CpuTuning``.

        Stopped before the end, it gives what was tuned until then.

        Args:
            budget_s: Seconds that it may take, approximately.
            cache: A file of times that were measured on this device before; written anew in the end.
            progress: Where to report; the host's reporter by default.
            more: ``candidates`` and ``threads``, as ``CpuTuning`` takes them.

        Raises:
            ModelError: no layer can be tuned.
            VariantError: a choice cannot be.
            ReadError: the cache is of another device.
            Cancelled: stopped before the first layer was tuned.
        """
        batch = next(self.data.batches(self.model, 1))
        with report_progress(progress) as reporter:
            rig: WorkContext[BenchmarkRunner] = WorkContext(
                OrtBench(reporter), reporter, Budget(seconds=budget_s)
            )
            return self._search(CpuTuning(self.model, batch, cache=cache, **more), rig, self._keep_tuning)

    def _keep_tuning(self, tuning: TunedModel) -> None:
        self.tuned = tuning

    def tactics(self, name: str, *, progress: Progress | None = None) -> tuple[LayerTactics, ...]:
        """What the builder timed for each layer of a variant, and what its timing cache holds.

        What was listed before a cancel is kept: see ``listed``.

        Raises:
            VariantError: the variant is not built, or no log tells of tactics.
            ReadError: the timing cache cannot be read.
            Cancelled: the work was stopped.
        """
        result = self.facts_of(name)
        listing, tuner = forced_tactics.listing(result, self.facts.values())

        def keep(table: tuple[LayerTactics, ...]) -> None:
            self._update_state(lambda state: state.with_tactics(name, table))

        with report_progress(progress) as reporter:
            table = self._search(listing, WorkContext(tuner, reporter), keep)
        if not table:
            raise forced_tactics.no_tactics_error(result)
        return table

    def force(
        self,
        name: str,
        tactics: Mapping[str, str | int],
        *,
        as_: str = "forced",
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Variant:
        """Plan a variant that is built with other tactics, for ``run`` and ``difference``.

        Args:
            name: A variant that was built with TensorRT and the options ``flags=["EDITABLE_TIMING_CACHE"]``
                and ``timing_cache``; that file is only read.
            tactics: By layer one that ``study.tactics`` lists: its id, or its kernel's name.
            as_: What the new variant is called.
            cache: Where the edited cache goes; beside the other by default.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant's timing cache cannot be edited, or a layer or tactic is unknown.
            ReadError: the timing cache cannot be read.
            RtlabError: the edited one cannot be written.
        """
        result = self.facts_of(name)
        copy = forced_tactics.copy_path(result, as_, cache, self.variants)
        forced_tactics.check(result, tactics)
        with report_progress(progress) as reporter:
            table = self.tactics(name, progress=reporter)
            forced_variant = forced_tactics.force(result, tactics, table, copy, reporter)
        return self._plan(as_, forced_variant, self._state.scales.get(name))

    @boundary("rank the calibrators")
    def rank(
        self,
        calibrators: Sequence[str | Calibrator] = CALIBRATORS,
        *,
        precision: str | Precision = Precision.INT8,
        progress: Progress | None = None,
    ) -> Calibration:
        """Prepare the model with each calibrator and measure it on the task, or on the outputs without a task.

        What was measured before a cancel is kept.

        Raises:
            VariantError: a calibrator is unknown, or the precision has no activations to scale.
            Unavailable: nothing here can run the model.
            Cancelled: the work was stopped.
        """
        several = isinstance(calibrators, Iterable) and not isinstance(calibrators, str)
        calibrator_list: list[Any] = list(calibrators) if several else [calibrators]
        if not calibrator_list:
            raise VariantError(f"Cannot rank no calibrators: choose some of {quote_names(CALIBRATORS)}.")
        parsed_calibrators = [Calibrator.of(c) for c in calibrator_list]
        target_precision = Variant.of(precision).precision
        if not target_precision.needs_calibrator:
            raise VariantError(
                f'Cannot rank calibrators for "{target_precision}": it scales no activations. Choose "int8" or "fp8".'
            )
        with report_progress(progress) as reporter:
            experiment = CalibratorRanking(
                self.model,
                self.ranges(reporter),
                self.data,
                self._ensure_labels(reporter),
                target_precision,
                parsed_calibrators,
            )
            self._search(experiment, WorkContext(get_evaluator(), reporter), self._keep_ranking)
        return self._require_calibration()

    def _keep_ranking(self, ranking: tuple[Ranked, ...]) -> None:
        self._ranking = ranking

    @overload
    def why(
        self, node: str, other: str, *, variant: str, builds: int = 60, seconds: float = 60.0,
        again: bool = False, progress: Progress | None = None,
    ) -> Verdict: ...  # fmt: skip

    @overload
    def why(
        self, node: str, other: None = None, *, variant: str, builds: int = 60, seconds: float = 60.0,
        again: bool = False, progress: Progress | None = None,
    ) -> FusedLayer: ...  # fmt: skip

    @boundary("ask why nodes are one step, or why not")
    def why(
        self,
        node: str,
        other: str | None = None,
        *,
        variant: str,
        builds: int = 60,
        seconds: float = 60.0,
        again: bool = False,
        progress: Progress | None = None,
    ) -> Verdict | FusedLayer:
        """Why two neighbouring nodes are not one step of a variant's engine, or why those of one step are one.

        The compiler of the variant is asked, by experiment. What was found before a cancel, or within the budget, is
        kept. Where it cannot be asked, as of an engine that was read from files, what these report of two nodes is
        told. A verdict on two nodes is kept in the user's cache too: asked once more of the same model, compiler and
        target, it is told at once, with the date on which it was found; and so is what was found of a step.

        Args:
            node: One of two neighbours; or without ``other`` a node, or a layer by its id, whose step is asked about.
            other: The other one.
            variant: A built variant.
            builds: How many parts may be built.
            seconds: How long it may take, but for a build that is at work by then.
            again: Whether to ask anew what was asked before.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: there is no such node, or they are no neighbours.
            VariantError: the variant is not built, the step does the work of one node alone, or its compiler cannot be
                asked about a step.
            Unavailable: its compiler is not installed here.
            Cancelled: stopped before anything was found.
        """
        facts = self.facts_of(variant)
        if other is None:
            return self._explain_layer(facts, node, Budget(seconds, builds), again=again, progress=progress)
        first, second = neighbours(self.model, node, other)
        keep = functools.partial(self._keep_verdict, variant)
        reason = explain_unavailable(facts)
        if reason or facts.engine.maker.predicts:
            verdict = (
                make_reported_verdict(facts, first, second, reason)
                if reason
                else explain_by_rules(facts, first, second)
            )
            keep(verdict)
            self._notify_views()
            return verdict
        builder = get_builder(facts)
        if again:
            forget(builder)
        elif (before := records.load_verdict(facts, first, second)) is not None:
            keep(before)
            self._notify_views()
            return before
        experiment = FusionBlockerSearch(facts.prepared.model, facts.engine, facts.variant, first, second)
        with report_progress(progress) as reporter:
            verdict = self._search(experiment, WorkContext(builder, reporter, Budget(seconds, builds)), keep)
        records.save_answer(facts, verdict)
        return verdict

    def _explain_layer(
        self,
        facts: VariantResult,
        node: str,
        allowance: Budget,
        *,
        again: bool,
        progress: Progress | None,
    ) -> FusedLayer:
        """Why the nodes of a step are one, as it was found before, or by experiment."""
        step = FusionSplitSearch(facts.prepared.model, facts.engine, facts.variant, find_layer(facts, node))
        builder, keep = get_builder(facts), functools.partial(self._keep_fusion_explanation, facts.name)
        if again:
            forget(builder)
        elif (before := records.load_fusion_explanation(facts, step.layer, step.nodes)) is not None:
            keep(before)
            self._notify_views()
            return before
        with report_progress(progress) as reporter:
            explanation = self._search(step, WorkContext(builder, reporter, allowance), keep)
        records.save_answer(facts, explanation)
        return explanation

    def _keep_verdict(self, variant: str, verdict: Verdict) -> None:
        self._update_state(lambda state: state.with_verdict(variant, verdict))

    def _keep_fusion_explanation(self, variant: str, explanation: FusedLayer) -> None:
        self._update_state(lambda state: state.with_fusion_explanation(variant, explanation))

    @boundary("advise on the fusions")
    def advise(self, variant: str, *, seconds: float = 60.0, progress: Progress | None = None) -> Advice:
        """Why fusions of a variant do not happen, cause by cause, and which remedies keep the outputs and pay.

        The pairs of neighbours that are not one step are asked about, the one with most at stake first; what may be
        written in another form is tried on the whole model. What was found before a cancel, or within the budget, is
        kept.

        Args:
            variant: A built variant.
            seconds: How long it may take, but for a build that is at work by then.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built, or was read from files of another machine.
            Unavailable: its compiler is not installed here.
            Cancelled: stopped before anything was found.
        """
        facts = self.facts_of(variant)
        has_runner = get_stand_in() is not None
        batch = next(self.data.batches(self.model, 1))

        def keep(advice: Advice) -> None:
            self._update_state(lambda state: state.with_advice(variant, advice))

        with report_progress(progress) as reporter:
            adviser = AdviceTools(
                get_builder(facts),
                get_evaluator() if has_runner else None,
                batch,
                functools.partial(records.load_verdict, facts),
                functools.partial(records.save_answer, facts),
            )
            return self._search(
                AdviceSearch(facts, facts.ranges),
                WorkContext(adviser, reporter, Budget(seconds)),
                keep,
            )

    def remedy(
        self, variant: str, rewrites: Sequence[str | Rewrite] | None = None, *, as_: str | None = None
    ) -> str:
        """Plan a variant with nodes in other forms, for ``run``; gives its name.

        Args:
            variant: The variant that it derives from.
            rewrites: What a verdict of ``why`` offers; by default all remedies of ``advise`` that keep the outputs and
                pay.
            as_: What it is called; by default the other's name with ``rewritten``.

        Raises:
            VariantError: there is no such variant, no advice that has a remedy, or a node lacks the form.
        """
        base_variant = self._require_variant(variant, "remedy")
        advice = self._state.advice.get(variant)
        every = advice.every.rewrites if advice is not None and advice.every is not None else ()
        selected_rewrites = every if rewrites is None else rewrites
        if not selected_rewrites:
            raise VariantError(
                f'Cannot remedy "{variant}": no remedy is known that keeps the outputs and pays. Ask with '
                f"study.advise({variant!r}), or give rewrites=..., such as those of study.why(...).rewrites."
            )
        name = as_ or f"{variant} rewritten"
        self.add(
            name,
            **{**get_add_arguments(base_variant), "rewrites": [*base_variant.rewrites, *selected_rewrites]},
        )
        return name

    def rewrites(self, *kinds: RewriteKind) -> tuple[Rewrite, ...]:
        """The forms that nodes of the model can be written in, in the graph's order, for ``add`` and ``remedy``.

        Args:
            kinds: Those wanted, such as ``merge``, which makes siblings one wider node; all by default.

        Raises:
            VariantError: there is no such kind.
        """
        for kind in kinds:
            if kind not in get_args(RewriteKind):
                raise VariantError(
                    f'Cannot look for nodes that can be written by "{kind}": there is no such form. '
                    f"Choose among {', '.join(get_args(RewriteKind))}."
                )
        possible_rewrites = iter_possible_rewrites(self.model, (node.id for node in self.model.top))
        return tuple(rewrite for rewrite in possible_rewrites if not kinds or rewrite.kind in kinds)

    def measure_peaks(self, *, progress: Progress | None = None) -> Peaks:
        """Measure what this CPU reaches, so that times of the CPU can be judged by it; takes about two seconds.

        Raises:
            BackendError: ONNX Runtime does not work here.
            Cancelled: the work was stopped.
        """
        with report_progress(progress) as reporter:
            return self._search(CpuPeaks(), WorkContext(get_evaluator(), reporter), self._keep_peaks)

    def _keep_peaks(self, peaks: Peaks) -> None:
        self.processors = [peaks, *(p for p in self.processors if p.name != peaks.name)]
