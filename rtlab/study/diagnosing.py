"""Why a variant of a study loses accuracy, and variants that are rid of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from concurrent.futures import Executor
from typing import TypeVar

from rtlab.analyses import accuracy
from rtlab.analyses.accuracy.errors import list_comparable_values
from rtlab.analyses.channels import ChannelErrors
from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.diagnosis.remedies import propose_cure
from rtlab.analyses.diagnosis.undefined import find_undefined
from rtlab.analyses.repair import AccuracyRepair
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import BUDGET_S, Budget, WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import Builder, Progress
from rtlab.core.quantizer import Quantizer, parse_quantizer
from rtlab.core.task import Predictions
from rtlab.core.variant import Variant
from rtlab.errors import CalibrationError, Unavailable, VariantError, boundary
from rtlab.experiments.channels import ChannelSearch
from rtlab.experiments.diagnosing import DiagnosisSearch
from rtlab.experiments.observation import channel_axis
from rtlab.experiments.repairing import RUNS, RepairSearch, RepairTools
from rtlab.experiments.running import predict
from rtlab.experiments.why import get_builder
from rtlab.quantize import existing_qdq, rewrites
from rtlab.study.job import prepare_model
from rtlab.study.progress import report_progress
from rtlab.study.searches import Searches
from rtlab.study.sensitivities import Sensitivities

R = TypeVar("R")

#: Places that are looked into.
_PLACES = 8
#: What a place has to cost alone: a part of the energy of the outputs, 30 dB below it, and of what the variant loses.
_LEAST, _SHARE = 1e-3, 0.05


class Diagnoses(Sensitivities[R], Searches[R]):
    """Looks for causes."""

    @boundary("look for what costs accuracy")
    def diagnose(
        self, variant: str, *, places: int = _PLACES, progress: Progress | None = None
    ) -> AccuracyDiagnosis:
        """Why a variant loses accuracy: its guilty places, and what is unusual about the numbers there.

        Who is guilty is told by ``sensitivity``, which is asked first where nobody did yet. Where fp32 itself gives
        NaN, the first node that does is all there is to find. What was found before a cancel is kept.

        Args:
            variant: Its name; it need not be built.
            places: How many places are looked into.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, it was read from files, or nothing of it rounds.
            Unavailable: nothing here can run the model.
            Cancelled: stopped before anything was found.
        """
        planned_variant, facts = self._require_variant(variant, "diagnose"), self.facts.get(variant)
        if facts is not None and facts.recorded:
            raise VariantError(
                f'Cannot diagnose "{variant}": its engine was read from files of another machine, whose values are not '
                "known. Add a variant of the same precision, and diagnose that."
            )
        errors = accuracy.compute_accuracy(facts) if facts is not None else None
        undefined = find_undefined(errors, self.model) if errors is not None else None
        if errors is not None and undefined is not None:
            # Beside a reference that has no value no place is guilty.
            diagnosis = AccuracyDiagnosis(
                variant, (undefined,), undefined.nodes, (), errors.samples, errors.source
            )
            self._update_state(lambda state: state.with_diagnosis(variant, diagnosis))
            return diagnosis
        with report_progress(progress) as reporter:
            ready = facts.prepared if facts is not None else self.prepare(variant, progress=reporter)
            model, _ = self._comparison_models(ready, planned_variant, reporter)
            sensitive_quantizers = self._find_sensitive_quantizers(variant, model, places, reporter)
            calibration_samples = (
                self._ranges(planned_variant, reporter, None).samples
                if planned_variant.calibrator is not None
                else 0
            )
            task_data = self.task.data if self.task is not None else None
            rewritten_model = rewrites.apply_rewrites(self.model, planned_variant.rewrites)
            experiment = DiagnosisSearch(
                variant,
                model,
                ready,
                planned_variant,
                sensitive_quantizers,
                self.data,
                task_data,
                calibration_samples,
                existing_qdq.ExistingQuantization.of(rewritten_model),
            )

            def keep(diagnosis: AccuracyDiagnosis) -> None:
                self._update_state(lambda state: state.with_diagnosis(variant, diagnosis))

            return self._search(experiment, WorkContext(get_evaluator(), reporter), keep)

    @boundary("measure the channels")
    def channels(self, variant: str, value: str, *, progress: Progress | None = None) -> ChannelErrors:
        """The errors of each channel of one value, on all samples of the task, or of the study without one.

        Args:
            variant: Its name; it need not be built.
            value: A value of the model, or the id of a node for the first that it makes.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant or value, or the variant was read from files.
            RunError: the value is of another size in the variant.
            Cancelled: stopped before anything was measured; what was is kept.
        """
        planned_variant, facts = (
            self._require_variant(variant, "measure the channels of"),
            self.facts.get(variant),
        )
        if facts is not None and facts.recorded:
            raise VariantError(
                f'Cannot measure the channels of "{variant}": its engine was read from files of another machine, whose '
                "values are not known. Add a variant of the same precision, and ask that."
            )
        with report_progress(progress) as reporter:
            ready = facts.prepared if facts is not None else self.prepare(variant, progress=reporter)
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
                self.task.data if self.task is not None else self.data,
            )

            def keep(channel_errors: ChannelErrors) -> None:
                self._update_state(lambda state: state.with_channel_errors(variant, channel_errors))

            return self._search(search, WorkContext(get_evaluator(), reporter), keep)

    def _find_sensitive_quantizers(
        self, variant: str, model: Model, places: int, progress: Progress
    ) -> tuple[Quantizer, ...]:
        """The places that cost most, as far as they cost anything worth a word."""
        sensitivity = self.sensitivity(variant, by="quantizer", progress=progress)
        least = max(_LEAST, _SHARE * sensitivity.total) if math.isfinite(sensitivity.total) else _LEAST
        worst = [g for g in sensitivity.ranking if not g.best_effect < least][:places]
        return tuple(parse_quantizer(model.by_id[g.node], g.quantizer) for g in worst)

    def treat(self, variant: str, cause: str | None = None, *, as_: str | None = None) -> str:
        """Plan a variant that is rid of a cause, for ``run``; gives its name.

        Args:
            variant: A variant that was diagnosed.
            cause: The id of a finding of ``diagnose``; by default the first that a choice helps against.
            as_: What the new one is called; by default the other's name with what is changed.

        Raises:
            VariantError: there is no such variant or finding, or no choice of a variant helps against it.
        """
        base_variant, diagnosis = self._require_variant(variant, "treat"), self._state.diagnoses.get(variant)
        if diagnosis is None:
            raise VariantError(
                f'Cannot treat "{variant}": nobody looked for causes. Run study.diagnose({variant!r}) first.'
            )
        findings = [f for f in diagnosis.findings if cause in {None, f.id}]
        if cause is not None and not findings:
            raise VariantError(
                f'Cannot treat "{cause}" of "{variant}": its diagnosis has no such finding. '
                f"See study.diagnose({variant!r}).findings."
            )
        change = next(
            (
                t
                for f in findings
                if (
                    t := propose_cure(f, variant, base_variant, existing_qdq.find_quantized_nodes(self.model))
                )
                is not None
            ),
            None,
        )
        if change is None:
            advice = findings[0].fix if findings else "Nothing unusual was found."
            raise VariantError(
                f'Cannot treat "{variant}" by another choice of its own: none helps here. {advice}'
            )
        name = as_ or change.title
        self.add(name, **change.choice)
        return name

    @boundary("repair the variant")
    def repair(
        self,
        variant: str,
        max_drop: float = 0.5,
        *,
        runs: int = RUNS,
        budget_s: float = 10 * BUDGET_S,
        as_: str | None = None,
        again: bool = False,
        executor: Executor | None = None,
        parts: int = 8,
        progress: Progress | None = None,
    ) -> AccuracyRepair:
        """Look for the cheapest change after which a variant is within reach of fp32, and plan it as a variant.

        Other scales come first, which cost no time, then a higher precision for as few nodes as will do, where the
        samples can tell that nothing less does. The choice is made on every second sample of the task, and the scores
        are those of the others. What was found before a cancel, or within the budget, is kept, and asked once more it
        goes on from there. ``run`` builds the variant that is planned, which has the other's name with ``repaired``.

        Args:
            variant: A built variant.
            max_drop: How far its score may stay behind that of fp32, in the unit of the score.
            runs: How many variants may be run on samples.
            budget_s: Seconds that it may take, approximately.
            as_: What the repaired variant is called.
            again: Whether to forget what was measured before.
            executor: Any ``concurrent.futures.Executor``, whose workers run each variant on a part of the samples.
            parts: Into how many parts the samples are cut for an executor.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant is not built, or was read from files of another machine.
            CalibrationError: the study has no task, so that there is no score.
            Cancelled: stopped before anything was found.
        """
        facts, task = self.facts_of(variant), self.task
        if task is None:
            raise CalibrationError(
                f'Cannot repair "{variant}": the study has no task, so that nobody can say what is good enough. Give '
                "one, Study(model, task=rtlab.Task(data, labels)); without labels those of fp32 count."
            )
        with report_progress(progress) as reporter:
            task = self._ensure_labels(reporter) or task
            diagnosis = self._state.diagnoses.get(variant) or self.diagnose(variant, progress=reporter)
            ranking = self.sensitivity(
                variant, by="node", executor=executor, parts=parts, progress=reporter
            ).ranking
            before = self._state.repairs.get(variant)
            earlier_trials = None if before is None or again else before.verified
            sensitive_nodes = tuple(g.node for g in ranking)
            source = self.model
            plain, _ = existing_qdq.separate_existing_qdq(source, source)
            experiment = RepairSearch(
                facts,
                task,
                diagnosis.findings,
                sensitive_nodes,
                max_drop,
                runs,
                earlier_trials,
                plain,
                existing_qdq.find_quantized_nodes(source),
            )

            def keep(repair: AccuracyRepair) -> None:
                self._update_state(lambda state: state.with_repair(variant, repair))

            prepare = functools.partial(self._prepare_variant, facts)
            tool = RepairTools(
                prepare, get_evaluator(), self._compiler(facts), executor, _predict_outputs, parts
            )
            repair = self._search(experiment, WorkContext(tool, reporter, Budget(budget_s)), keep)
        if repair.changes:
            name = as_ or repair.repaired
            self.add(name, **repair.choice)
        return repair

    def _prepare_variant(self, facts: VariantResult, variant: Variant, progress: Progress) -> Prepared:
        """What another choice makes of the model that a variant is of."""
        ranges = self._ranges(variant, progress, None) if variant.calibrator else None
        scales = self._state.scales.get(facts.name) if variant.scales else None
        job = self._job(facts.name, progress, build=False)
        peaks = self._peaks_of(variant, progress)
        job = dataclasses.replace(job, variant=variant, ranges=ranges, scales=scales, peaks=peaks)
        return prepare_model(dataclasses.replace(job, inputs=self._inputs(job, progress, None)), progress)

    def _compiler(self, facts: VariantResult) -> Builder | None:
        """What compiles a variant for its GPU, so that times can be estimated; None where nothing here does."""
        with contextlib.suppress(VariantError, Unavailable):
            return get_builder(facts)
        return None


def _predict_outputs(
    model: Model, data: CalibrationData, output_names: tuple[str, ...], size: int
) -> Predictions:
    """What a worker runs."""
    return predict(model, data, output_names, size, runner=get_evaluator())
