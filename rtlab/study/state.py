"""What a study holds of its variants: one value, in whose place a change puts another.

Whoever reads it, in whatever thread, holds what there was at one moment: nothing of it is removed while it is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rtlab.analyses.batches.sweeps import Sweep
    from rtlab.analyses.bisection import Bisection
    from rtlab.analyses.channels import ChannelErrors
    from rtlab.analyses.diagnosis import AccuracyDiagnosis
    from rtlab.analyses.repair import AccuracyRepair
    from rtlab.analyses.sensitivity import Asks, By, LossName, Sensitivity
    from rtlab.analyses.why import Verdict
    from rtlab.analyses.why.advice import Advice
    from rtlab.analyses.why.fused_layer import FusedLayer
    from rtlab.core.data import CalibrationData
    from rtlab.core.facts import VariantResult
    from rtlab.core.scale import Scale
    from rtlab.core.task import Task
    from rtlab.core.variant import Variant
    from rtlab.errors import RtlabError
    from rtlab.experiments.tactics import LayerTactics
    from rtlab.study.job import Job

K = TypeVar("K")
T = TypeVar("T")


def _empty_mapping() -> Any:
    return MappingProxyType({})


@dataclasses.dataclass(frozen=True, eq=False)
class SampleSelection:
    """Some of the samples, by number, that variants are compared and scored on: their data, and the task with it."""

    samples: tuple[int, ...]
    data: CalibrationData
    task: Task | None


@dataclasses.dataclass(frozen=True)
class StudyState:
    """Tables by the name of a variant, and ``forms`` by node; each can only be read.

    ``verdicts`` are by the name of a variant, then by pair of nodes; ``fusion_explanations`` then by layer, and
    ``sensitivities`` by what was asked, of what, and on which loss, and ``channels`` by value; ``bisections`` are by
    the names of two variants.

    ``scales`` were given in place of a calibrator; ``unbuilt`` are variants that were planned to be prepared only.
    Where samples are ``selection``, ``all_sample_facts`` are the facts on all samples, which were set aside.
    """

    variants: Mapping[str, Variant] = dataclasses.field(default_factory=_empty_mapping)
    facts: Mapping[str, VariantResult] = dataclasses.field(default_factory=_empty_mapping)
    failures: Mapping[str, RtlabError] = dataclasses.field(default_factory=_empty_mapping)
    scales: Mapping[str, Mapping[str, Scale]] = dataclasses.field(default_factory=_empty_mapping)
    sweeps: Mapping[str, Sweep] = dataclasses.field(default_factory=_empty_mapping)
    tactics: Mapping[str, tuple[LayerTactics, ...]] = dataclasses.field(default_factory=_empty_mapping)
    verdicts: Mapping[str, Mapping[tuple[str, str], Verdict]] = dataclasses.field(
        default_factory=_empty_mapping
    )
    fusion_explanations: Mapping[str, Mapping[str, FusedLayer]] = dataclasses.field(
        default_factory=_empty_mapping
    )
    advice: Mapping[str, Advice] = dataclasses.field(default_factory=_empty_mapping)
    sensitivities: Mapping[str, Mapping[tuple[Asks, By, LossName], Sensitivity]] = dataclasses.field(
        default_factory=_empty_mapping
    )
    diagnoses: Mapping[str, AccuracyDiagnosis] = dataclasses.field(default_factory=_empty_mapping)
    channels: Mapping[str, Mapping[str, ChannelErrors]] = dataclasses.field(default_factory=_empty_mapping)
    repairs: Mapping[str, AccuracyRepair] = dataclasses.field(default_factory=_empty_mapping)
    bisections: Mapping[tuple[str, str], Bisection] = dataclasses.field(default_factory=_empty_mapping)
    unbuilt: frozenset[str] = frozenset()
    all_sample_facts: Mapping[str, VariantResult] = dataclasses.field(default_factory=_empty_mapping)
    selection: SampleSelection | None = None

    def with_variant(
        self, name: str, variant: Variant, explicit_scales: Mapping[str, Scale] | None, *, build: bool = True
    ) -> StudyState:
        """With a variant that is to be built; what there is of another one of its name goes."""
        base = self if self.has_variant(name, variant, explicit_scales) else self.without_variant(name)
        unbuilt = base.unbuilt - {name} if build else base.unbuilt | {name}
        variants = _with(self.variants, name, variant)
        scales = (
            _without(base.scales, name)
            if explicit_scales is None
            else _with(base.scales, name, explicit_scales)
        )
        return dataclasses.replace(base, variants=variants, scales=scales, unbuilt=unbuilt)

    def has_variant(self, name: str, variant: Variant, explicit_scales: Mapping[str, Scale] | None) -> bool:
        """Whether this variant, with these scales, is the one of this name."""
        return self.variants.get(name) == variant and self.scales.get(name) == explicit_scales

    def is_current(self, job: Job) -> bool:
        """Whether the variant that a job was made for is still the one of its name."""
        return self.has_variant(job.name, job.variant, job.scales)

    def with_facts(self, facts: VariantResult) -> StudyState:
        """With the facts of a variant, which is no failure any more."""
        name, previous_facts = facts.name, self.facts.get(facts.name)
        # What was found out about one engine does not hold for another.
        other = previous_facts is not None and previous_facts.engine is not facts.engine
        cleared_tables: dict[str, Any] = (
            {
                t: _without(getattr(self, t), name)
                for t in (
                    "verdicts",
                    "fusion_explanations",
                    "advice",
                    "sensitivities",
                    "diagnoses",
                    "channels",
                    "repairs",
                )
            }
            if other
            else {}
        )
        if other:
            cleared_tables["bisections"] = self._bisections_without(name)
        table, failures = _with(self.facts, name, facts), _without(self.failures, name)
        return dataclasses.replace(self, facts=table, failures=failures, **cleared_tables)

    def with_failure(self, name: str, error: RtlabError) -> StudyState:
        """With what a variant failed with."""
        return dataclasses.replace(self, failures=_with(self.failures, name, error))

    def with_sweep(self, name: str, sweep: Sweep) -> StudyState:
        """With what was timed at several batch sizes."""
        return dataclasses.replace(self, sweeps=_with(self.sweeps, name, sweep))

    def with_tactics(self, name: str, tactics: tuple[LayerTactics, ...]) -> StudyState:
        """With the tactics of a variant."""
        return dataclasses.replace(self, tactics=_with(self.tactics, name, tactics))

    def with_verdict(self, name: str, verdict: Verdict) -> StudyState:
        """With why two nodes are, or are not, one step of a variant's engine."""
        mine = _with(self.verdicts.get(name, {}), (verdict.first, verdict.second), verdict)
        return dataclasses.replace(self, verdicts=_with(self.verdicts, name, mine))

    def with_fusion_explanation(self, name: str, explanation: FusedLayer) -> StudyState:
        """With why the nodes of a step of a variant's engine are one."""
        mine = _with(self.fusion_explanations.get(name, {}), explanation.layer, explanation)
        return dataclasses.replace(self, fusion_explanations=_with(self.fusion_explanations, name, mine))

    def with_advice(self, name: str, advice: Advice) -> StudyState:
        """With what keeps the fusions of a variant from happening."""
        mine = MappingProxyType(
            {**self.verdicts.get(name, {}), **{(v.first, v.second): v for v in advice.verdicts}}
        )
        return dataclasses.replace(
            self, verdicts=_with(self.verdicts, name, mine), advice=_with(self.advice, name, advice)
        )

    def with_sensitivity(
        self, name: str, key: tuple[Asks, By, LossName], sensitivity: Sensitivity
    ) -> StudyState:
        """With who is guilty of a variant's error."""
        mine = _with(self.sensitivities.get(name, {}), key, sensitivity)
        return dataclasses.replace(self, sensitivities=_with(self.sensitivities, name, mine))

    def with_diagnosis(self, name: str, diagnosis: AccuracyDiagnosis) -> StudyState:
        """With why a variant loses accuracy, which its rankings of the guilty say too."""
        explained_rankings = {k: diagnosis.add_causes(s) for k, s in self.sensitivities.get(name, {}).items()}
        rankings = (
            _with(self.sensitivities, name, MappingProxyType(explained_rankings))
            if explained_rankings
            else self.sensitivities
        )
        return dataclasses.replace(
            self, diagnoses=_with(self.diagnoses, name, diagnosis), sensitivities=rankings
        )

    def with_channel_errors(self, name: str, channel_errors: ChannelErrors) -> StudyState:
        """With the errors of the channels of one value, which stand last."""
        mine = MappingProxyType(
            {
                **{k: v for k, v in self.channels.get(name, {}).items() if k != channel_errors.value},
                channel_errors.value: channel_errors,
            }
        )
        return dataclasses.replace(self, channels=_with(self.channels, name, mine))

    def with_repair(self, name: str, repair: AccuracyRepair) -> StudyState:
        """With what gives a variant's accuracy back."""
        return dataclasses.replace(self, repairs=_with(self.repairs, name, repair))

    def with_bisection(self, first: str, second: str, bisection: Bisection) -> StudyState:
        """With what changed from one variant to another."""
        return dataclasses.replace(self, bisections=_with(self.bisections, (first, second), bisection))

    def _bisections_without(self, name: str) -> Mapping[tuple[str, str], Bisection]:
        """What changed between variants of other names."""
        if not any(name in pair for pair in self.bisections):
            return self.bisections
        return MappingProxyType({k: v for k, v in self.bisections.items() if name not in k})

    def without_failures(self, *names: str) -> StudyState:
        """Without the failures of variants that have an engine."""
        built_names = self.facts.keys() & set(names)
        return dataclasses.replace(self, failures=_without(self.failures, *built_names))

    def without_variant(self, name: str) -> StudyState:
        """Without a variant and all there is of it."""
        tables = (
            "variants",
            "facts",
            "failures",
            "scales",
            "sweeps",
            "tactics",
            "verdicts",
            "fusion_explanations",
            "advice",
            "sensitivities",
            "all_sample_facts",
            "diagnoses",
            "channels",
            "repairs",
        )
        rest: dict[str, Any] = {t: _without(getattr(self, t), name) for t in tables}
        return dataclasses.replace(
            self, **rest, bisections=self._bisections_without(name), unbuilt=self.unbuilt - {name}
        )


def _with(table: Mapping[K, T], key: K, value: T) -> Mapping[K, T]:
    return MappingProxyType({**table, key: value})


def _without(table: Mapping[str, T], *keys: str) -> Mapping[str, T]:
    if not any(k in table for k in keys):
        return table
    return MappingProxyType({k: v for k, v in table.items() if k not in keys})
