"""``study.calibration``: from activations to scales, and the Q/DQ pairs that express them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from rtlab import quantize
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.calibration.pairs import PairUse, trace_pairs
from rtlab.analyses.diagnosis.causes import propose_cure
from rtlab.analyses.fusion import map_nodes
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import BUDGET_S, Budget, WorkContext, parse_budget
from rtlab.core.data import CalibrationData
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent
from rtlab.core.protocols import Progress
from rtlab.core.scale import Scale
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.errors import CalibrationError, VariantError, boundary, guard_methods
from rtlab.experiments.placement import LOSS, repair_placement
from rtlab.experiments.ranking import CalibratorRanking
from rtlab.quantize import existing_qdq, findings, scales
from rtlab.quantize import sparsity as _sparsity
from rtlab.quantize.sparsity import SparseWeight
from rtlab.study.job import compile_variant
from rtlab.study.observations import observe_values, with_ranking
from rtlab.study.planning import add_variant
from rtlab.study.progress import report_progress
from rtlab.study.result import Result, make_result
from rtlab.study.runner import StudyRunner

if TYPE_CHECKING:
    from rtlab.analyses.inspection.tensors import TensorStats


@guard_methods
class StudyCalibration:
    """From activations to scales, and the Q/DQ pairs that express them."""

    def __init__(self, runner: StudyRunner) -> None:
        self._runner, self._observations, self._holder = runner, runner.observations, runner.holder

    @boundary("observe the samples")
    def observe(
        self,
        more: Any = None,
        *,
        executor: Executor | None = None,
        parts: int = 4,
        progress: Progress | None = None,
    ) -> Calibration:
        """Gather activation ranges for every calibrator, or add those of more samples.

        Variants that are built keep their scales; ``recalibrate`` builds one with the new ones.

        Args:
            more: More data, whatever ``CalibrationData.of`` takes; the study's own by default.
            executor: Any ``concurrent.futures.Executor``, whose workers observe a part each.
            parts: Into how many parts the data is cut for an executor.
            progress: Where to report; the host's reporter by default.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite, or the data does not fit the model.
            Cancelled: the work was stopped; without an executor, what was seen is kept.

        >>> study.calibration.observe()
        <Calibration of 4 values on 8 samples>
        """
        extra = None if more is None else CalibrationData.of(more, model=self._holder.state.model)
        if extra is not None:
            extra.check(self._holder.state.model)
        observer, data = self._observations.observer, self._holder.data
        with report_progress(progress) as reporter, self._observations.publishing():
            if extra is None:
                observer.ranges(data, reporter, executor, parts)
            else:
                observer.observe_more(extra, reporter, executor, parts)
        self._holder.update(lambda state: with_ranking(state, ()))
        return self._require_calibration()

    @boundary("calibrate the variant")
    def recalibrate(
        self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None
    ) -> Result:
        """Observe the samples that a variant was not calibrated on yet, and build it again with the scales of all.

        Where nothing was observed since it was built, or this is cancelled while it observes, the variant stays. The
        next call goes on from what was seen. ``budget_s`` limits the measuring of the built variant, as in
        ``Study.run``; observing is not limited.

        Raises:
            VariantError: the variant is not built here, or takes no scales from data.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped.

        >>> study.calibration.recalibrate("int8").ranges.samples
        8
        """
        result, seconds = self._holder.result(name), parse_budget(budget_s)
        if result.recorded or result.variant.calibrator is None:
            why = "its precision needs no scales of activations"
            if result.recorded:
                why = "it was read from files of another machine"
            elif name in self._holder.state.scales:
                why = "its scales were given"
            raise VariantError(
                f'Cannot calibrate "{name}": {why}. Add a variant with precision="int8" and a calibrator.'
            )
        with report_progress(progress) as reporter:
            ranges = self._observations.observer_of(result.variant).ranges(self._holder.data, reporter)
            seen = 0 if result.ranges is None else result.ranges.samples
            if self._holder.state.is_outdated(name) or seen != ranges.samples:
                budget = Budget(seconds)
                job = self._runner.job(name, reporter, budget=budget)
                self._runner.run_stages(job, compile_variant(job, reporter), reporter, budget)
        return make_result(self._holder.result(name))

    @boundary("rank the calibrators")
    def rank(
        self,
        calibrators: Sequence[str | Calibrator] = CALIBRATORS,
        *,
        precision: str | Precision = Precision.INT8,
        progress: Progress | None = None,
    ) -> Calibration:
        """Prepare the model with each calibrator and measure it on the task, or on the outputs without a task.

        Raises:
            VariantError: a calibrator is unknown, or the precision has no activations to scale.
            Unavailable: nothing here can run the model.
            Cancelled: the work was stopped; what was measured is kept.

        >>> study.calibration.rank(["minmax", "mse"]).ranking[0].score.unit
        '%'
        """
        several = isinstance(calibrators, Iterable) and not isinstance(calibrators, str)
        parsed_calibrators = [Calibrator.of(c) for c in (calibrators if several else [calibrators])]  # type: ignore[arg-type]
        if not parsed_calibrators:
            raise VariantError(f"Cannot rank no calibrators: choose some of {quote_names(CALIBRATORS)}.")
        target_precision = Variant.of(precision).precision
        if not target_precision.needs_calibrator:
            raise VariantError(
                f'Cannot rank calibrators for "{target_precision}": it scales no activations. Choose "int8" or "fp8".'
            )
        with report_progress(progress) as reporter:
            experiment = CalibratorRanking(
                self._holder.state.model,
                self._observations.ranges(reporter),
                self._holder.data,
                self._observations.ensure_labels(reporter),
                target_precision,
                parsed_calibrators,
            )
            self._runner.search(experiment, WorkContext(get_evaluator(), reporter), with_ranking)
        return self._require_calibration()

    def scales(
        self, calibrator: str | Calibrator = Calibrator.AUTO, *, progress: Progress | None = None
    ) -> Mapping[str, Scale]:
        """The scale that a calibrator gives each value, from all samples; what was not observed yet is observed.

        Raises:
            VariantError: there is no such calibrator.
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped; what was seen is kept.

        >>> sorted(study.calibration.scales("minmax"))
        ['act', 'flat', 'sum', 'x']
        """
        parsed_calibrator = Calibrator.of(calibrator)
        with report_progress(progress) as reporter:
            return quantize.scales(self._observations.ranges(reporter), parsed_calibrator)

    def prepare(self, name: str, *, progress: Progress | None = None, **choice: Any) -> Prepared:
        """The ONNX model that expresses a variant's precision, without building it.

        Args:
            name: A variant that was added; or with ``choice`` one that ``Study.run`` builds only when it is named, and
                which no backend here needs to be able to build. ``Study.export`` writes it.
            progress: Where to report; the host's reporter by default.
            choice: What ``Study.add`` takes.

        Raises:
            VariantError: the combination cannot exist.
            CalibrationError: the activations cannot be observed.

        >>> len(study.calibration.prepare("int8").model.top)
        22
        """
        return self._runner.prepare(name, progress=progress, **choice)

    def fix_qdq(
        self,
        chosen: Iterable[Finding | str] | None = None,
        *,
        max_loss: float = LOSS,
        progress: Progress | None = None,
    ) -> Model:
        """The model with findings repaired, all that can be by default.

        Where a pair is missing whose scale follows from no other pair, the study's data calibrates it, with ``auto``.
        Every repair is run on the data, on random samples without any, and undone where a part of an output loses more
        than ``max_loss`` decibels: the notes of the model, and the finding, say so.

        Raises:
            VariantError: a given finding is not one of the model's, or rtlab cannot repair it.
            Cancelled: the work was stopped.

        >>> study.calibration.fix_qdq()
        <Model tiny: 10 nodes, opset 17>
        """
        scales_by_value: dict[str, float] = {}

        def scale_of(value: str) -> float:
            if value not in scales_by_value:
                names = dict.fromkeys((*findings.missing(self._holder.state.model), value))
                value_names = [n for n in names if n in self._holder.state.model.values]
                ranges = observe_values(self._holder.state.model, value_names, self._holder.data, reporter)
                scales_by_value.update({n: s.scale for n, s in scales(ranges, Calibrator.AUTO).items()})
            if value not in scales_by_value:
                raise VariantError(
                    f'Cannot calibrate "{value}": the model computes no such value before it is repaired. '
                    "Repair the other findings first, and this one in the repaired model."
                )
            return scales_by_value[value]

        with report_progress(progress) as reporter:
            rig = WorkContext(get_evaluator(), reporter)
            repaired_model = repair_placement(
                self._holder.state.model, chosen, scale_of, lambda: self._holder.data, rig, max_loss=max_loss
            )
        self._holder.state.model.declined.update(repaired_model.declined)
        return repaired_model

    def transform(self, variant: str, cause: str | None = None, *, as_: str | None = None) -> str:
        """Plan a variant with another choice against a cause, for ``Study.run``; returns its name.

        Args:
            variant: A variant that was diagnosed.
            cause: The id of a finding of ``study.accuracy.diagnose``; by default the first that a choice helps against.
            as_: The name of the new one; by default the other's name with what is changed.

        Raises:
            VariantError: there is no such variant or finding, or no choice of a variant helps against it.

        >>> diagnosis = study.accuracy.diagnose("int8")
        >>> name = study.calibration.transform("int8") if diagnosis.findings else "int8"
        """
        base_variant = self._holder.variant(variant, "transform")
        diagnosis = self._holder.state.diagnoses.get(variant)
        if diagnosis is None:
            raise VariantError(
                f'Cannot transform "{variant}": it is not diagnosed. Run '
                f"study.accuracy.diagnose({variant!r}) first."
            )
        findings = [f for f in diagnosis.findings if cause in {None, f.id}]
        if cause is not None and not findings:
            raise VariantError(
                f'Cannot transform "{cause}" of "{variant}": its diagnosis has no such finding. '
                f"See study.accuracy.diagnose({variant!r}).findings."
            )
        quantized_nodes = existing_qdq.find_quantized_nodes(self._holder.state.model)
        cures = (propose_cure(f, variant, base_variant, quantized_nodes) for f in findings)
        cure = next((c for c in cures if c is not None), None)
        if cure is None:
            advice = findings[0].fix if findings else "Nothing unusual was found."
            raise VariantError(
                f'Cannot transform "{variant}" by another choice of its own: none helps here. {advice}'
            )
        name = as_ or cure.title
        add_variant(self._holder, name, **cure.choice)
        return name

    def pairs(self, name: str) -> tuple[PairUse, ...]:
        """What became of each Q/DQ pair of the model itself in a variant's engine: absorbed, or a layer of its own.

        Raises:
            VariantError: the variant is not built.

        >>> study.calibration.pairs("int8")
        ()
        """
        result = self._holder.result(name)
        return trace_pairs(self._holder.state.model, map_nodes(result), result.engine)

    def activations(self, node: str, *, progress: Progress | None = None) -> tuple[TensorStats, ...]:
        """Statistics of what a node of the main graph writes, in fp32.

        What calibration observed is taken from there; the rest is measured on a few samples.

        Raises:
            ModelError: there is no such node.
            RunError: it stands in a body or a function, or nothing here can run the model.
            Cancelled: the work was stopped.

        >>> [stats.name for stats in study.calibration.activations("stem/Conv")]
        ['stem']
        """
        return self._observations.observer.activations(node, self._holder.data, progress or Silent())

    def weights(self, node: str) -> tuple[TensorStats, ...]:
        """Statistics of the constants that a node reads.

        Raises:
            ModelError: there is no such node, or its weights cannot be read any more.

        >>> [stats.name for stats in study.calibration.weights("stem/Conv")]
        ['stem_w']
        """
        return self._observations.observer.weights(node)

    def sparse_weights(self) -> tuple[SparseWeight, ...]:
        """Weights that could be 2:4 sparse, how sparse they are, and which cannot be pruned and why.

        >>> study.calibration.sparse_weights()[0].node
        'stem/Conv'
        """
        return _sparsity.find(self._holder.state.model)

    def _require_calibration(self) -> Calibration:
        calibration = self._holder.state.calibration
        if calibration is None:
            raise CalibrationError("Nothing was observed yet. Call study.calibration.observe().")
        return calibration
