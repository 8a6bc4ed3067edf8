"""Everything that a study holds of its variants, at one moment: what analyses read, and what a change replaces."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from rtlab.analyses.accuracy import describe_random_inputs
from rtlab.core.protocols import Limits
from rtlab.core.stage import Stage, StageStatus

if TYPE_CHECKING:
    from rtlab.analyses.batches import Sweep
    from rtlab.analyses.bisection import Bisection
    from rtlab.analyses.build.tactics import LayerTactics
    from rtlab.analyses.calibration.observed_ranges import Calibration
    from rtlab.analyses.channels import ChannelErrors
    from rtlab.analyses.diagnosis import AccuracyDiagnosis
    from rtlab.analyses.repair import AccuracyRepair
    from rtlab.analyses.sensitivity import Asks, By, Sensitivity
    from rtlab.analyses.why import FusedLayer, Verdict
    from rtlab.analyses.why.advice import Advice
    from rtlab.core.data import CalibrationData
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model
    from rtlab.core.peaks import Peaks
    from rtlab.core.scale import Scale
    from rtlab.core.task import Task
    from rtlab.core.variant import Variant
    from rtlab.errors import RtlabError
    from rtlab.formulations.trial import TunedModel

K = TypeVar("K")
T = TypeVar("T")
#: The stages that rest on the samples which values are compared and scored on.
COMPARED_STAGES = (Stage.COMPARED, Stage.SCORED)
#: Tables by the name of a variant that say something of one engine of it.
_OF_ENGINE = (
    "verdicts",
    "fusion_explanations",
    "advice",
    "sensitivities",
    "diagnoses",
    "channels",
    "repairs",
)
_OF_VARIANT = (
    *_OF_ENGINE,
    "variants",
    "results",
    "failures",
    "scales",
    "sweeps",
    "tactics",
    "all_sample_results",
)


def _table() -> Any:
    return dataclasses.field(default_factory=lambda: MappingProxyType({}))


@dataclasses.dataclass(frozen=True, eq=False)
class SampleSelection:
    """Some of the samples, by number, that variants are compared and scored on: their data, and the task with it."""

    samples: tuple[int, ...]
    data: CalibrationData
    task: Task | None


@dataclasses.dataclass(frozen=True, eq=False)
class StudyState:
    """A study at one moment, immutable. Tables are by the name of a variant where nothing else is said.

    Attributes:
        data: Samples for calibration and comparison, the user's or random ones; None before any were needed.
        task: Held-out samples with labels.
        scales: Scales that were given in place of a calibrator.
        unbuilt: Variants that were planned to be prepared only.
        sweeps: Times at several batch sizes.
        tactics: The tactics of each layer, as they were listed last.
        processors: Processors to judge engines by, beside those of the table.
        verdicts: Why two nodes are, or are not, one layer, by variant and pair of nodes.
        fusion_explanations: Why the nodes of a layer are one, by variant and layer.
        sensitivities: What causes a variant's error, by variant, question and unit.
        channels: Errors of channels, by variant and value, in the order in which they were measured.
        bisections: What changed from one variant to another, by the names of both.
        selection: The samples that errors and scores are of; None where these are all.
        all_sample_results: Results on all samples, which are set aside while there is a ``selection``.
        saved: When it was saved, of a study that was opened from a file.
    """

    model: Model
    data: CalibrationData | None = None
    task: Task | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    variants: Mapping[str, Variant] = _table()
    results: Mapping[str, VariantResult] = _table()
    failures: Mapping[str, RtlabError] = _table()
    scales: Mapping[str, Mapping[str, Scale]] = _table()
    unbuilt: frozenset[str] = frozenset()
    sweeps: Mapping[str, Sweep] = _table()
    tactics: Mapping[str, tuple[LayerTactics, ...]] = _table()
    tuned: TunedModel | None = None
    processors: tuple[Peaks, ...] = ()
    calibration: Calibration | None = None
    verdicts: Mapping[str, Mapping[tuple[str, str], Verdict]] = _table()
    fusion_explanations: Mapping[str, Mapping[str, FusedLayer]] = _table()
    advice: Mapping[str, Advice] = _table()
    sensitivities: Mapping[str, Mapping[tuple[Asks, By], Sensitivity]] = _table()
    diagnoses: Mapping[str, AccuracyDiagnosis] = _table()
    channels: Mapping[str, Mapping[str, ChannelErrors]] = _table()
    repairs: Mapping[str, AccuracyRepair] = _table()
    bisections: Mapping[tuple[str, str], Bisection] = _table()
    selection: SampleSelection | None = None
    all_sample_results: Mapping[str, VariantResult] = _table()
    saved: datetime.datetime | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # Read-only views of tables cannot be pickled.
        return _restore, ({f.name: _thaw(getattr(self, f.name)) for f in dataclasses.fields(self)},)

    def get_model(self, variant: Variant) -> Model:
        """The model at the sizes of a variant; the study's own where it has none of its own."""
        return self.model.resized(dict(variant.sizes)) if variant.sizes else self.model

    @property
    def user_data(self) -> CalibrationData | None:
        """The user's samples; None where random ones stand in for them."""
        return None if self.data is None or self.data.synthetic else self.data

    @property
    def scored_task(self) -> Task | None:
        """The task, with the samples that are selected."""
        return self.task if self.selection is None else self.selection.task

    @property
    def selected_samples(self) -> tuple[int, ...]:
        """The selected samples by number; empty where all count."""
        return () if self.selection is None else self.selection.samples

    def is_outdated(self, name: str) -> bool:
        """Whether a built variant rests on random input although the study has other data by now."""
        result = self.results.get(name)
        if result is None or result.recorded or self.user_data is None:
            return False
        # At sizes of its own a variant may run on random input although there is data.
        return result.random_scales if result.variant.sizes else bool(describe_random_inputs(result))

    def with_variant(
        self, name: str, variant: Variant, explicit_scales: Mapping[str, Scale] | None, *, build: bool = True
    ) -> StudyState:
        """With a variant that is to be built; what there is of another one of its name goes."""
        base = self if self.has_variant(name, variant, explicit_scales) else self.without_variant(name)
        unbuilt = base.unbuilt - {name} if build else base.unbuilt | {name}
        scales = _without(base.scales, name)
        if explicit_scales is not None:
            scales = _with(scales, name, explicit_scales)
        variants = _with(self.variants, name, variant)
        return dataclasses.replace(base, variants=variants, scales=scales, unbuilt=unbuilt)

    def has_variant(self, name: str, variant: Variant, explicit_scales: Mapping[str, Scale] | None) -> bool:
        """Whether this variant, with these scales, is the one of this name."""
        return self.variants.get(name) == variant and self.scales.get(name) == explicit_scales

    def with_result(self, result: VariantResult) -> StudyState:
        """With the result of a variant, which is no failure any more."""
        name, previous = result.name, self.results.get(result.name)
        # What was found out about one engine does not hold for another.
        cleared: dict[str, Any] = {}
        if previous is not None and previous.engine is not result.engine:
            cleared = {t: _without(getattr(self, t), name) for t in _OF_ENGINE}
            cleared["bisections"] = self._bisections_without(name)
        return dataclasses.replace(
            self,
            results=_with(self.results, name, result),
            failures=_without(self.failures, name),
            **cleared,
        )

    def with_entries(self, **entries: Mapping[Any, Any]) -> StudyState:
        """With entries of tables, by the name of the table: ``with_entries(sweeps={"int8": sweep})``.

        A table in a table, such as that of a variant's verdicts, is extended by those that are given.
        """
        tables: dict[str, Any] = {n: _extended(getattr(self, n), added) for n, added in entries.items()}
        return dataclasses.replace(self, **tables)

    def with_advice(self, name: str, advice: Advice) -> StudyState:
        """With what keeps the fusions of a variant from happening, and the verdicts that it rests on."""
        verdicts = {(v.first, v.second): v for v in advice.verdicts}
        return self.with_entries(advice={name: advice}, verdicts={name: verdicts})

    def with_diagnosis(self, name: str, diagnosis: AccuracyDiagnosis) -> StudyState:
        """With why a variant loses accuracy, which its sensitivities say too."""
        rankings = {k: diagnosis.add_causes(s) for k, s in self.sensitivities.get(name, {}).items()}
        explained = {name: rankings} if rankings else {}
        return self.with_entries(diagnoses={name: diagnosis}, sensitivities=explained)

    def with_channel_errors(self, name: str, channel_errors: ChannelErrors) -> StudyState:
        """With the errors of the channels of one value, which stand last."""
        others = _without(self.channels.get(name, {}), channel_errors.value)
        mine = _with(others, channel_errors.value, channel_errors)
        return dataclasses.replace(self, channels=_with(self.channels, name, mine))

    def _bisections_without(self, name: str) -> Mapping[tuple[str, str], Bisection]:
        """What changed between variants of other names."""
        return MappingProxyType({k: v for k, v in self.bisections.items() if name not in k})

    def without_failures(self, *names: str) -> StudyState:
        """Without the failures of variants that have an engine."""
        built = self.results.keys() & set(names)
        return dataclasses.replace(self, failures=_without(self.failures, *built))

    def without_variant(self, name: str) -> StudyState:
        """Without a variant and all there is of it."""
        rest: dict[str, Any] = {t: _without(getattr(self, t), name) for t in _OF_VARIANT}
        return dataclasses.replace(
            self, **rest, bisections=self._bisections_without(name), unbuilt=self.unbuilt - {name}
        )

    def with_selection(self, selection: SampleSelection | None) -> StudyState:
        """With other samples selected: what is known of all of them comes back, or is set aside."""
        full_results = dict(self.results if self.selection is None else self.all_sample_results)
        results = {
            n: _switch_samples(r, None if selection else full_results.get(n)) for n, r in self.results.items()
        }
        return dataclasses.replace(
            self,
            selection=selection,
            results=MappingProxyType(results),
            all_sample_results=MappingProxyType({} if selection is None else full_results),
        )


def _thaw(value: Any) -> Any:
    """Tables as dictionaries."""
    return {k: _thaw(v) for k, v in value.items()} if isinstance(value, MappingProxyType) else value


def _restore(fields: Mapping[str, Any]) -> StudyState:
    return StudyState(**{k: freeze(v) for k, v in fields.items()})


def freeze(table: Any) -> Any:
    """Dictionaries as read-only tables."""
    return MappingProxyType({k: freeze(v) for k, v in table.items()}) if isinstance(table, dict) else table


def _switch_samples(result: VariantResult, full_result: VariantResult | None) -> VariantResult:
    """Without what rests on other samples; or with what is known of all, where that is of the same engine."""
    if result.recorded:
        return result
    if full_result is not None and full_result.engine is result.engine:
        full_stages = {s: full_result.stages[s] for s in COMPARED_STAGES if s in full_result.stages}
        return dataclasses.replace(
            result,
            errors=full_result.errors,
            score=full_result.score,
            stages={**result.stages, **full_stages},
        )
    # A stage with nothing to find out stays so.
    stages = {
        s: StageStatus(s, "waiting") if s in COMPARED_STAGES and w.state != "none" else w
        for s, w in result.stages.items()
    }
    return dataclasses.replace(result, errors=None, score=None, stages=stages)


def _extended(table: Mapping[Any, Any], entries: Mapping[Any, Any]) -> Mapping[Any, Any]:
    added = {k: _extended(table.get(k, {}), v) if isinstance(v, Mapping) else v for k, v in entries.items()}
    return MappingProxyType({**table, **added})


def _with(table: Mapping[K, T], key: K, value: T) -> Mapping[K, T]:
    return MappingProxyType({**table, key: value})


def _without(table: Mapping[str, T], *keys: str) -> Mapping[str, T]:
    return MappingProxyType({k: v for k, v in table.items() if k not in keys})
