"""``study.accuracy``: how much accuracy a variant loses, where, why, and how to get it back."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtlab.analyses import accuracy, roofline
from rtlab.analyses.accuracy import list_comparable_values
from rtlab.analyses.channels import ChannelErrors
from rtlab.analyses.check import ROUNDS, CheckResult, build_record, check_variant, record
from rtlab.analyses.check.record import CheckLimits, CheckName, CheckRecord
from rtlab.analyses.diagnosis import AccuracyDiagnosis, find_undefined
from rtlab.analyses.findings import list_findings
from rtlab.analyses.repair import AccuracyRepair
from rtlab.analyses.sensitivity import ASKS, BY, Asks, By, Sensitivity
from rtlab.analyses.study_state import COMPARED_STAGES
from rtlab.backends.reference import get_evaluator, get_runner
from rtlab.core import files
from rtlab.core.budget import BUDGET_S, Budget, WorkContext, parse_budget
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Score, VariantResult
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import Progress
from rtlab.core.quantizer import parse_quantizer
from rtlab.core.stage import Stage
from rtlab.core.task import Task
from rtlab.core.variant import Precision, Rewrite, Variant
from rtlab.errors import CalibrationError, ReadError, VariantError, boundary, guard_methods
from rtlab.experiments.diagnosing import DiagnosisSearch
from rtlab.experiments.observation import ChannelSearch, channel_axis
from rtlab.experiments.repairing import RUNS, RepairSearch, RepairTools
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.experiments.why import find_builder
from rtlab.quantize import existing_qdq, rewrites
from rtlab.study.job import prepare_model
from rtlab.study.planning import add_variant
from rtlab.study.progress import report_progress
from rtlab.study.runner import StudyRunner
from rtlab.study.selection import select_samples
from rtlab.study.stages import plan_stages

#: Quantizers that a diagnosis looks into.
_PLACES = 8
#: Least effect of such a quantizer: in nats or energies of the outputs (27 dB), and as a part of the largest effect,
#: which grows with the square of an error: a fiftieth is a seventh of the error.
_LEAST, _SHARE = 2e-3, 0.02


@guard_methods
class StudyAccuracy:
    """How much accuracy variants lose, where, why, and how to get it back."""

    def __init__(self, runner: StudyRunner) -> None:
        self._runner, self._observations, self._holder = runner, runner.observations, runner.holder

    @boundary("score the variant")
    def score(self, variant: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> Score:
        """The task's metric of a variant on held-out samples; it is built and measured where it is not yet.

        Raises:
            VariantError: there is no such variant.
            CalibrationError: the study has no task, or the variant no score.
            Cancelled: the work was stopped.

        >>> study.accuracy.score("fp32").name
        'top-1 against fp32'
        """
        self._holder.variant(variant, "score")
        if self._holder.state.task is None:
            raise CalibrationError(
                f'Cannot score "{variant}": the study has no task. Give one, '
                "Study(model, task=rtlab.Task(data, labels))."
            )
        if self._needs_build(variant):
            self._runner.run([variant], budget_s=budget_s, progress=progress)
        elif self._holder.result(variant).score is None:
            self._runner.measure(variant, budget_s=budget_s, progress=progress)
        result = self._holder.result(variant)
        if result.score is None:
            status = result.stages.get(Stage.SCORED)
            raise CalibrationError(
                f'Cannot score "{variant}": {status.text if status else "it was read from files"}.'
            )
        return result.score

    @boundary("measure sensitivity")
    def sensitivity(
        self,
        variant: str,
        *,
        asks: Asks = "only",
        by: By = "node",
        labels: Any = None,
        verify: int | None = 8,
        budget_s: float = BUDGET_S,
        again: bool = False,
        progress: Progress | None = None,
    ) -> Sensitivity:
        """Which nodes, or which quantizers, cause a variant's error, those with the largest effect first.

        Effects are differences of the outputs' divergence from those of fp32, measured on the CPU: in nats where the
        task counts classes or the outputs are probabilities, else the squared error over the energy. Where the score
        fell, the first that surely cost score stand first. ``reliability`` says how far a ranking on other samples
        would be the same; at 32, 128 and 512 samples, drawn by chance, the search ends where it is 0.95, or when the
        budget is used up. A later call goes on from the effects of an earlier one, also of one that was cancelled. The
        variant need not be built. Q/DQ pairs of the model itself count, too: effects are differences to the model
        without its pairs.

        Args:
            variant: Its name.
            asks: ``only``, the divergence where nothing else is quantized; or ``released``, what is won back where it
                alone is not.
            by: ``node``, with all that it rounds; or ``quantizer``: an input, a weight, an output.
            labels: The class of each sample, by which top-1 is counted in place of the task's score.
            verify: How many of the first places are run, so that the first of the ranking are measured; None runs all,
                and estimates nothing.
            budget_s: How long it may take.
            again: Whether to forget the effects of earlier calls.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, nothing of it rounds, or a choice is none.
            ModelError: the model has no floating-point outputs.
            CalibrationError: there are fewer labels than samples, or they are no classes.
            RunError: the model itself gives NaN or infinity.
            Cancelled: stopped before there was an effect.

        >>> study.accuracy.sensitivity("int8", verify=None).ranking[0].node in study.model.by_id
        True
        """
        planned_variant = self._holder.variant(variant, "measure sensitivity")
        for name, choice, allowed_choices in (("asks", asks, ASKS), ("by", by, BY)):
            if choice not in allowed_choices:
                raise VariantError(
                    f'Cannot measure sensitivity with {name}="{choice}": there is no such choice. Choose '
                    f"{quote_names(allowed_choices)}."
                )
        task = self._holder.task_of(planned_variant, self._holder.state.task)
        data = self._holder.data_of(planned_variant) if task is None else task.data
        if labels is not None:
            task = Task(data, np.asarray(labels))
            if data.count not in {None, len(task.labels)}:
                raise CalibrationError(
                    f"Cannot count labels: there are {len(task.labels)} labels for {data.count} samples of "
                    f"{data.source}. Give one for each."
                )
        key = (asks, by)
        before = self._holder.state.sensitivities.get(variant, {}).get(key)
        effects = before.effects if before is not None and not again else None
        if effects is not None and not (effects.data is data and _have_same_labels(effects.task, task)):
            effects = None
        with report_progress(progress) as reporter:
            ready = self._runner.prepare(variant, progress=reporter)
            source, emulation = self._comparison_models(ready, planned_variant, reporter)
            search = SensitivitySearch(
                variant, source, emulation, data, asks, by, task, verify, begun=effects,
            )  # fmt: skip
            return self._runner.search(
                search,
                WorkContext(get_evaluator(), reporter, Budget(budget_s)),
                lambda state, sensitivity: state.with_entries(sensitivities={variant: {key: sensitivity}}),
            )

    @boundary("look for what costs accuracy")
    def diagnose(self, variant: str, *, progress: Progress | None = None) -> AccuracyDiagnosis:
        """Why a variant loses accuracy: the quantizers that cost most, and what is unusual about the numbers there.

        They are those of ``sensitivity``, which is measured first where it is not yet. Where fp32 itself gives NaN, the
        result is the first node that does. A partial result is kept where this is cancelled.

        Raises:
            VariantError: there is no such variant, it was read from files, or nothing of it rounds.
            Unavailable: nothing here can run the model.
            Cancelled: stopped before there was a result.

        >>> study.accuracy.diagnose("int8").variant
        'int8'
        """
        planned_variant = self._holder.variant(variant, "diagnose")
        facts = self._get_own_result(variant, "diagnose", "diagnose")
        errors = accuracy.compute_accuracy(facts) if facts is not None else None
        source, task = self._holder.state.get_model(planned_variant), self._holder.state.task
        task = self._holder.task_of(planned_variant, task)
        if errors is not None and (undefined := find_undefined(errors, source)) is not None:
            # Beside a reference that has no value no quantizer has an effect.
            diagnosis = AccuracyDiagnosis(
                variant, (undefined,), undefined.nodes, (), errors.samples, errors.source
            )
            self._holder.update(lambda state: state.with_diagnosis(variant, diagnosis))
            return diagnosis
        with report_progress(progress) as reporter:
            ready = facts.prepared if facts is not None else self._runner.prepare(variant, progress=reporter)
            model, _ = self._comparison_models(ready, planned_variant, reporter)
            sensitivity = self.sensitivity(variant, by="quantizer", progress=reporter)
            largest = max((row.best_effect for row in sensitivity.ranking), default=0.0)
            least = max(_LEAST, _SHARE * largest) if math.isfinite(largest) else _LEAST
            worst = [row for row in sensitivity.ranking if not row.best_effect < least][:_PLACES]
            calibration_samples = (
                self._runner.ranges(planned_variant, reporter, None).samples
                if planned_variant.calibrator is not None
                else 0
            )
            experiment = DiagnosisSearch(
                variant,
                model,
                ready,
                planned_variant,
                tuple(parse_quantizer(model.by_id[row.node], row.quantizer) for row in worst),
                self._holder.data_of(planned_variant),
                task.data if task is not None else None,
                calibration_samples,
                existing_qdq.ExistingQuantization.of(
                    rewrites.apply_rewrites(source, planned_variant.rewrites)
                ),
            )
            return self._runner.search(
                experiment,
                WorkContext(get_evaluator(), reporter),
                lambda state, diagnosis: state.with_diagnosis(variant, diagnosis),
            )

    @boundary("measure the channels")
    def channels(self, variant: str, value: str, *, progress: Progress | None = None) -> ChannelErrors:
        """The errors of each channel of one value, on all samples of the task, or of the study without one.

        ``value`` is a value of the model, or the id of a node for the first that it writes.

        Raises:
            VariantError: there is no such variant or value, or the variant was read from files.
            RunError: the value is of another size in the variant.
            Cancelled: stopped before anything was measured; what was is kept.

        >>> study.accuracy.channels("int8", "stem/Conv").value
        'stem'
        """
        planned_variant = self._holder.variant(variant, "measure the channels of")
        task = self._holder.task_of(planned_variant, self._holder.state.task)
        facts = self._get_own_result(variant, "measure the channels of", "ask")
        with report_progress(progress) as reporter:
            ready = facts.prepared if facts is not None else self._runner.prepare(variant, progress=reporter)
            source, emulation = self._comparison_models(ready, planned_variant, reporter)
            name = source.by_id[value].outputs[0] if value in source.by_id else value
            if name not in list_comparable_values(source, emulation):
                raise VariantError(
                    f'Cannot measure the channels of "{value}": it is no value of numbers with a fraction that '
                    f'"{variant}" has too. Name one that study["{variant}"].accuracy lists.'
                )
            readers = [n for n in source.top if name in n.inputs]
            scale = ready.scales.get(name)
            search = ChannelSearch(
                variant,
                source,
                emulation,
                name,
                channel_axis(readers[0] if readers else source.producers[name], name, source),
                None if scale is None else scale.amax,
                self._holder.data_of(planned_variant) if task is None else task.data,
            )
            return self._runner.search(
                search,
                WorkContext(get_evaluator(), reporter),
                lambda state, channel_errors: state.with_channel_errors(variant, channel_errors),
            )

    @boundary("repair the variant")
    def repair(
        self,
        variant: str,
        max_drop: float = 0.5,
        *,
        runs: int = RUNS,
        budget_s: float = 10 * BUDGET_S,
        as_: str | None = None,
        progress: Progress | None = None,
    ) -> AccuracyRepair:
        """Look for the cheapest change after which a variant is within reach of fp32, and plan it as a variant.

        Other scales come first, which cost no time, then a higher precision for as few nodes as suffice, where the
        samples show that nothing less does. The choice is made on every second sample of the task, and the scores
        are those of the others. A cancel, or the end of the budget, returns the best until then. ``run`` builds the
        variant that is planned, which has the other's name with ``repaired``.

        Args:
            variant: A built variant.
            max_drop: How far its score may stay behind that of fp32, in the unit of the score.
            runs: How many variants may be run on samples.
            budget_s: Seconds that it may take, approximately.
            as_: The name of the repaired variant.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built, or was read from files of another machine.
            CalibrationError: the study has no task, so that there is no score.
            Cancelled: stopped before there was a result.

        >>> study.accuracy.repair("int8", max_drop=100).changes
        ()
        """
        facts = self._holder.result(variant)
        task = self._holder.task_of(facts.variant, self._holder.state.task)
        if task is None:
            raise CalibrationError(
                f'Cannot repair "{variant}": the study has no task, so that no score decides. Give '
                "one, Study(model, task=rtlab.Task(data, labels)); without labels those of fp32 count."
            )
        with report_progress(progress) as reporter:
            task = self._observations.ensure_labels(reporter) or task
            diagnosis = self._holder.state.diagnoses.get(variant) or self.diagnose(variant, progress=reporter)
            ranking = self.sensitivity(variant, progress=reporter).ranking
            source = self._holder.state.get_model(facts.variant)
            experiment = RepairSearch(
                facts,
                task,
                diagnosis.findings,
                _list_pinnable_nodes(facts, [row.node for row in ranking]),
                max_drop,
                runs,
                existing_qdq.separate_existing_qdq(source, source)[0],
                existing_qdq.find_quantized_nodes(source),
            )
            prepare = functools.partial(self._prepare_variant, facts)
            tool = RepairTools(prepare, get_evaluator(), find_builder(facts))
            repair = self._runner.search(
                experiment,
                WorkContext(tool, reporter, Budget(budget_s)),
                lambda state, repair: state.with_entries(repairs={variant: repair}),
            )
        if repair.changes:
            add_variant(self._holder, as_ or repair.repaired, **repair.choice)
        return repair

    @boundary("choose samples")
    def use_samples(
        self,
        samples: Iterable[int] | None = None,
        *,
        data: Any = None,
        budget_s: float = BUDGET_S,
        progress: Progress | None = None,
    ) -> None:
        """Compare and score every variant on some samples alone, such as those that flipped; None takes all again.

        Errors and scores are of these samples then, also of variants that are built meanwhile; times, scales and ranges
        stay those of all data. Results on all samples come back without being measured anew.

        Args:
            samples: Numbers from 0, those of the task's data, or of the study's where there is no task.
            data: Other samples for calibration and comparison from now on, whatever ``CalibrationData.of`` takes.
                ``Study.run`` builds variants anew whose errors or scales rest on random input.
            budget_s: Seconds that each variant may take.
            progress: Where to report; the host's reporter by default.

        Raises:
            CalibrationError: there is no such sample, the data is a stream, which is read from front to back, or
                ``data`` cannot be read or does not fit the model.
            Cancelled: the work was stopped. The choice holds; ``Study.run`` goes on with what is missing.

        >>> study.accuracy.use_samples([0, 3])
        >>> study.state.selected_samples
        (0, 3)
        >>> study.accuracy.use_samples()
        """
        seconds = parse_budget(budget_s)
        if data is not None:
            calibration_data = CalibrationData.of(data, model=self._holder.state.model)
            calibration_data.check(self._holder.state.model)
            self._observations.replace_data(calibration_data)
            self._holder.notify()
            if samples is None:
                return
        with report_progress(progress) as reporter:
            self._observations.ensure_labels(reporter)
        selection = (
            None if samples is None else select_samples(self._holder.state.task, self._holder.data, samples)
        )
        self._holder.publish(lambda state: state.with_selection(selection))
        with report_progress(progress) as reporter:
            for name, facts in self._holder.state.results.items():
                if not facts.recorded and any(
                    facts.stages[s].state == "waiting" for s in COMPARED_STAGES if s in facts.stages
                ):
                    job = self._runner.job(name, reporter)
                    # Cancelled before its turn, it can be gone on with.
                    self._runner.keep(job, plan_stages(job, facts, "cancelled"))
            for name, facts in self._holder.state.results.items():
                if not facts.recorded and any(s.why == "cancelled" for s in facts.stages.values()):
                    full_job = dataclasses.replace(self._runner.job(name, reporter), all_samples=True)
                    self._runner.run_stages(full_job, facts, reporter, Budget(seconds))

    @boundary("check the variant")
    def check(
        self,
        variant: str,
        *,
        max_drop: float | None = None,
        max_latency_regression: float | None = None,
        against: str | Path | CheckRecord | None = None,
        fail_on: CheckName | Sequence[CheckName] = (),
        sure: bool = False,
        save: str | Path | None = None,
        budget_s: float = BUDGET_S,
        progress: Progress | None = None,
    ) -> CheckResult:
        """Whether a variant keeps its limits: its score beside fp32, and all else beside an earlier check.

        It is built, timed and scored where it is not yet; so is fp32 where the study has a task and no such variant.
        Times are compared with times of their kind: one that was measured on another processor, or estimated, is not
        checked, and the result says so.

        Args:
            variant: Its name.
            max_drop: How far its score may be worse than that of fp32, in the unit of the score.
            max_latency_regression: How much slower it may be than before, in percent. A difference within what the
                times vary by is not called a regression.
            against: A file that an earlier check saved, or what it holds.
            fail_on: What may not be worse than before at all: "fusion", "precision", "findings".
            sure: Whether the whole interval of the drop has to be within ``max_drop``, and not the drop alone.
            save: Where to write what was found, for a later check; not written where a limit is broken.
            budget_s: Seconds that measuring each variant may take.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, a limit is none, or the earlier check is of another model.
            ReadError: there is no such file, or it is no record of a check.
            Cancelled: the work was stopped.

        >>> study.accuracy.check("int8", max_drop=100, budget_s=1).broken
        ()
        """
        planned_variant = self._holder.variant(variant, "check")
        several: Sequence[CheckName] = (fail_on,) if isinstance(fail_on, str) else fail_on
        limits = CheckLimits(max_drop, max_latency_regression, tuple(several), sure)
        # Before anything is built: most who mistype a name do it here.
        earlier_record = read_check_record(against) if isinstance(against, (str, Path)) else against
        seconds = parse_budget(budget_s)
        with report_progress(progress) as reporter:
            if self._needs_build(variant):
                self._runner.run([variant], budget_s=seconds, progress=reporter)
            facts, fp32 = self._holder.result(variant), None
            if not facts.recorded and is_plain(self._holder.state.model, planned_variant):
                fp32 = facts
            elif not facts.recorded and self._holder.state.task is not None:
                fp32 = score_reference(self._runner, facts, seconds, reporter)
            rounds = time_rounds(facts, self._holder.data_of(facts.variant), seconds, reporter)
        facts = self._holder.result(variant)
        engines = [e for e in (facts.engine, facts.measured) if e is not None]
        versions = {"rtlab": importlib.metadata.version("rtlab")}
        versions |= {e.compiler: e.version for e in engines if e.version}
        current_record = build_record(facts, list_findings(facts), rounds, versions)
        check_result = check_variant(facts, fp32, current_record, earlier_record, limits)
        if save is not None and not check_result.broken:
            text, model = current_record.text().encode(), self._holder.state.model
            files.write(save, text, what="the record of a check", model=model)
        return check_result

    def _needs_build(self, variant: str) -> bool:
        return variant not in self._holder.state.results or self._holder.state.is_outdated(variant)

    def _comparison_models(
        self, ready: Prepared, planned_variant: Variant, progress: Progress
    ) -> tuple[Model, Model]:
        """The reference and the emulation of a variant, both without the model's own pairs, which round as well."""
        source = ready.reference
        if source is None:
            model = self._holder.state.get_model(planned_variant)
            source = rewrites.apply_rewrites(model, planned_variant.rewrites)
        return existing_qdq.separate_existing_qdq(source, ready.emulate(progress))

    def _get_own_result(self, variant: str, action: str, retry: str) -> VariantResult | None:
        """The result of a variant that was built here; None where it is not built.

        Raises:
            VariantError: it was read from files.
        """
        facts = self._holder.state.results.get(variant)
        if facts is not None and facts.recorded:
            raise VariantError(
                f'Cannot {action} "{variant}": its engine was read from files of another machine, whose values are not '
                f"known. Add a variant of the same precision, and {retry} that."
            )
        return facts

    def _prepare_variant(self, facts: VariantResult, variant: Variant, progress: Progress) -> Prepared:
        """What another choice makes of the model that a variant is of."""
        ranges = self._runner.ranges(variant, progress, None) if variant.calibrator else None
        scales = self._holder.state.scales.get(facts.name) if variant.scales else None
        job = self._runner.job(facts.name, progress, build=False)
        peaks = self._observations.peaks_of(variant, progress)
        job = dataclasses.replace(job, variant=variant, ranges=ranges, scales=scales, peaks=peaks)
        return prepare_model(
            dataclasses.replace(job, inputs=self._runner.inputs(job, progress, None)), progress
        )


def _have_same_labels(one: Task | None, other: Task | None) -> bool:
    """Whether samples are counted alike."""
    if one is None or other is None:
        return one is other
    return (one.reference and other.reference) or np.array_equal(one.labels, other.labels)


#: Inferences of a round at the least.
_RUNS = 10


def is_plain(model: Model, variant: Variant) -> bool:
    """Whether a variant rounds nothing; in fp32 a model's own pairs still do."""
    has_release = any(r.kind == "release" for r in variant.rewrites)
    return {*variant.precisions} == {Precision.FP32} and (
        has_release or not existing_qdq.has_rounding_pairs(model)
    )


def _list_pinnable_nodes(facts: VariantResult, nodes: Iterable[str]) -> tuple[str, ...]:
    """Nodes of the source, in order: those that a preparation has put several in the place of stand for these."""
    reference = facts.prepared.reference
    table = {} if reference is None else reference.by_id
    origins = {n.id: n.origin for n in table.values() if n.origin in table}
    return tuple(dict.fromkeys(origins.get(n, n) for n in nodes))


def score_reference(
    runner: StudyRunner, facts: VariantResult, seconds: float, progress: Progress
) -> VariantResult:
    """The variant that a score is compared with, built and scored."""
    variant, state = facts.variant, runner.holder.state
    reference_names = [
        n for n, v in state.variants.items()
        if is_plain(state.model, v) and not (n in state.results and state.results[n].recorded)
    ]  # fmt: skip
    scored_names = [n for n in reference_names if n in state.results and state.results[n].score is not None]
    name = next(iter((*scored_names, *reference_names)), "")
    if not name:
        name = next(n for n in ("fp32", "fp32 of the check") if n not in state.variants)
        rounds = existing_qdq.has_rounding_pairs(state.model)
        released_nodes = existing_qdq.find_quantized_nodes(state.model) if rounds else ()
        add_variant(
            runner.holder, name, precision="fp32", target=variant.target, backend=variant.backend,
            rewrites=[Rewrite("release", node) for node in released_nodes],
        )  # fmt: skip
    if not scored_names:
        runner.run([name], budget_s=seconds, progress=progress)
    return runner.holder.result(name)


def time_rounds(
    facts: VariantResult, data: CalibrationData, seconds: float, progress: Progress
) -> tuple[float, ...]:
    """Medians of inferences in milliseconds, each of a session of its own; empty where no measured time counts.

    One session may be faster than the next by where its memory lies, which its own inferences do not show.
    """
    if facts.measured is None or facts.recorded or not seconds:
        return ()
    estimate = roofline.estimate_timing(facts)
    if estimate is not None and estimate.estimated is not None:
        return ()
    runner = get_runner(facts.measured.backend)
    batch = next(data.batches(facts.prepared.model, 1))
    each = seconds / ROUNDS if math.isfinite(seconds) else None
    medians = []
    for _ in range(ROUNDS):
        profile = runner.profile(facts.measured, batch, progress, runs=_RUNS, seconds=each)
        medians.append(float(np.median(profile.total)))
    return tuple(medians)


def read_check_record(path: str | Path) -> CheckRecord:
    """What an earlier check saved.

    Raises:
        ReadError: there is no such file, or it is no record of a check.
    """
    try:
        text = read_input(path)
    except OSError as error:
        raise ReadError(
            f'Cannot check against "{path}": {error.strerror or error}. Give a file that rtlab check --save wrote.'
        ) from error
    return record.read(text, str(path))
