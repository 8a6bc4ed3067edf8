"""What a study finds out by building and running many times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from rtlab.backends.bench import OrtBench
from rtlab.backends.reference import evaluator, runner_of, stand_in
from rtlab.core.facts import Facts, Ranked
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import quoted
from rtlab.core.protocols import Progress
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Rewrite, RewriteKind, Variant
from rtlab.errors import VariantError, boundary
from rtlab.experiments.experiment import Allowance, Experiment, Rig, carry_out
from rtlab.experiments.forms import RecurrentForms
from rtlab.experiments.peaks import CpuPeaks
from rtlab.experiments.race import Bench
from rtlab.experiments.ranking import CalibratorRanking
from rtlab.experiments.sweep import BATCHES, BatchSweep
from rtlab.experiments.tactics import LayerTactics
from rtlab.experiments.tuning import CpuTuning
from rtlab.experiments.why import (
    WhyApart,
    WhyTogether,
    asked_of,
    neighbours,
    reported,
    ruled,
    step_of,
    unaskable,
)
from rtlab.experiments.why.advising import Adviser, Advising
from rtlab.experiments.why.oracle import forget
from rtlab.formulations.recurrent import Timed, recurrent
from rtlab.formulations.trial import Tuned
from rtlab.quantize.rewrites import possible
from rtlab.questions.batches.sweeps import Sweep
from rtlab.questions.calibration.seen import Calibration
from rtlab.questions.variants.variations import given
from rtlab.questions.why import Verdict
from rtlab.questions.why.advice import Advice
from rtlab.questions.why.joined import Joined
from rtlab.session import forcing, records
from rtlab.session.observations import Observations
from rtlab.session.watching import watching

R = TypeVar("R")
Tool = TypeVar("Tool")
Record = TypeVar("Record")


class Searches(Observations[R]):
    """The experiments of a study: each is handed what builds and runs here, and what it finds is kept as it comes."""

    def _search(
        self, experiment: Experiment[Tool, Record], rig: Rig[Tool], keep: Callable[[Record], None]
    ) -> Record:
        try:
            return carry_out(experiment, rig, keep)
        finally:
            self._changed()

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
        sweep = BatchSweep.of(self.facts_of(name), self.data, batches, stand_in())

        def keep(found: Sweep) -> None:
            self._change(lambda kept: kept.swept(name, found))

        with watching(progress) as watched:
            return self._search(sweep, Rig(runner_of(sweep.engine.backend), watched), keep)

    @boundary("tune the model")
    def tune(
        self,
        *,
        budget_s: float = 60.0,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        **more: Any,
    ) -> Tuned:
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
        with watching(progress) as watched:
            rig: Rig[Bench] = Rig(OrtBench(watched), watched, Allowance(seconds=budget_s))
            return self._search(CpuTuning(self.model, batch, cache=cache, **more), rig, self._keep_tuned)

    def _keep_tuned(self, found: Tuned) -> None:
        self.tuned = found

    def tactics(self, name: str, *, progress: Progress | None = None) -> tuple[LayerTactics, ...]:
        """What the builder timed for each layer of a variant, and what its timing cache holds.

        What was listed before a cancel is kept: see ``listed``.

        Raises:
            VariantError: the variant is not built, or no log tells of tactics.
            ReadError: the timing cache cannot be read.
            Cancelled: the work was stopped.
        """
        result = self.facts_of(name)
        listing, tuner = forcing.listing(result, self.facts.values())

        def keep(found: tuple[LayerTactics, ...]) -> None:
            self._change(lambda kept: kept.tabled(name, found))

        with watching(progress) as watched:
            found = self._search(listing, Rig(tuner, watched), keep)
        if not found:
            raise forcing.silent(result)
        return found

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
        copy = forcing.copy_path(result, as_, cache, self.variants)
        forcing.check(result, tactics)
        with watching(progress) as watched:
            table = self.tactics(name, progress=watched)
            made = forcing.force(result, tactics, table, copy, watched)
        return self._plan(as_, made, self._kept.scales.get(name))

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
        given: list[Any] = list(calibrators) if several else [calibrators]
        if not given:
            raise VariantError(f"Cannot rank no calibrators: choose some of {quoted(CALIBRATORS)}.")
        chosen = [Calibrator.of(c) for c in given]
        asked = Variant.of(precision).precision
        if not asked.needs_calibrator:
            raise VariantError(
                f'Cannot rank calibrators for "{asked}": it scales no activations. Choose "int8" or "fp8".'
            )
        with watching(progress) as watched:
            experiment = CalibratorRanking(
                self.model, self.ranges(watched), self.data, self._answered(watched), asked, chosen
            )
            self._search(experiment, Rig(evaluator(), watched), self._keep_ranking)
        return self._calibration()

    def _keep_ranking(self, found: tuple[Ranked, ...]) -> None:
        self._ranking = found

    @overload
    def why(
        self, node: str, other: str, *, variant: str, builds: int = 60, seconds: float = 60.0,
        again: bool = False, progress: Progress | None = None,
    ) -> Verdict: ...  # fmt: skip

    @overload
    def why(
        self, node: str, other: None = None, *, variant: str, builds: int = 60, seconds: float = 60.0,
        again: bool = False, progress: Progress | None = None,
    ) -> Joined: ...  # fmt: skip

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
    ) -> Verdict | Joined:
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
            return self._step(facts, node, Allowance(seconds, builds), again=again, progress=progress)
        first, second = neighbours(self.model, node, other)
        keep = functools.partial(self._keep_verdict, variant)
        reason = unaskable(facts)
        if reason or facts.engine.maker.predicts:
            found = reported(facts, first, second, reason) if reason else ruled(facts, first, second)
            keep(found)
            self._changed()
            return found
        builder = asked_of(facts)
        if again:
            forget(builder)
        elif (before := records.recall(facts, first, second)) is not None:
            keep(before)
            self._changed()
            return before
        experiment = WhyApart(facts.prepared.model, facts.engine, facts.variant, first, second)
        with watching(progress) as watched:
            found = self._search(experiment, Rig(builder, watched, Allowance(seconds, builds)), keep)
        records.keep(facts, found)
        return found

    def _step(
        self, facts: Facts, node: str, allowed: Allowance, *, again: bool, progress: Progress | None
    ) -> Joined:
        """Why the nodes of a step are one, as it was found before, or by experiment."""
        step = WhyTogether(facts.prepared.model, facts.engine, facts.variant, step_of(facts, node))
        builder, keep = asked_of(facts), functools.partial(self._keep_joined, facts.name)
        if again:
            forget(builder)
        elif (before := records.recall_step(facts, step.layer, step.nodes)) is not None:
            keep(before)
            self._changed()
            return before
        with watching(progress) as watched:
            found = self._search(step, Rig(builder, watched, allowed), keep)
        records.keep(facts, found)
        return found

    def _keep_verdict(self, variant: str, found: Verdict) -> None:
        self._change(lambda kept: kept.judged(variant, found))

    def _keep_joined(self, variant: str, found: Joined) -> None:
        self._change(lambda kept: kept.joined_as(variant, found))

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
        able = stand_in() is not None
        batch = next(self.data.batches(self.model, 1))

        def keep(found: Advice) -> None:
            self._change(lambda kept: kept.advised(variant, found))

        with watching(progress) as watched:
            adviser = Adviser(
                asked_of(facts),
                evaluator() if able else None,
                batch,
                functools.partial(records.recall, facts),
                functools.partial(records.keep, facts),
            )
            return self._search(
                Advising(facts, facts.ranges), Rig(adviser, watched, Allowance(seconds)), keep
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
        known = self._known(variant, "remedy")
        advice = self._kept.advice.get(variant)
        every = advice.every.rewrites if advice is not None and advice.every is not None else ()
        chosen = every if rewrites is None else rewrites
        if not chosen:
            raise VariantError(
                f'Cannot remedy "{variant}": no remedy is known that keeps the outputs and pays. Ask with '
                f"study.advise({variant!r}), or give rewrites=..., such as those of study.why(...).rewrites."
            )
        name = as_ or f"{variant} rewritten"
        self.add(name, **{**given(known), "rewrites": [*known.rewrites, *chosen]})
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
        found = possible(self.model, (node.id for node in self.model.top))
        return tuple(rewrite for rewrite in found if not kinds or rewrite.kind in kinds)

    def measure_peaks(self, *, progress: Progress | None = None) -> Peaks:
        """Measure what this CPU reaches, so that times of the CPU can be judged by it; takes about two seconds.

        Raises:
            BackendError: ONNX Runtime does not work here.
            Cancelled: the work was stopped.
        """
        with watching(progress) as watched:
            return self._search(CpuPeaks(), Rig(evaluator(), watched), self._keep_peaks)

    def _keep_peaks(self, found: Peaks) -> None:
        self.processors = [found, *(p for p in self.processors if p.name != found.name)]

    def time_forms(self, node: str, *, progress: Progress | None = None) -> tuple[Timed, ...]:
        """Time the forms of a recurrent node on this CPU: step by step, with its gates merged, with its input hoisted.

        Stopped before the end, it gives what was timed until then.

        Args:
            node: The recurrent node.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: the node is no recurrence that can be written out, or there is none of this name.
            BackendError: ONNX Runtime does not work here.
            Cancelled: stopped before each form was timed once.
        """
        forms = RecurrentForms(recurrent(self.model, node))

        def keep(found: tuple[Timed, ...]) -> None:
            self._change(lambda kept: kept.timed(node, found))

        with watching(progress) as watched:
            rig: Rig[Bench] = Rig(OrtBench(watched), watched)
            return self._search(forms, rig, keep)
