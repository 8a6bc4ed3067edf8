"""What a study holds of its variants: one value, in whose place a change puts another.

Whoever reads it, in whatever thread, holds what there was at one moment: nothing of it is removed while it is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.facts import Facts
    from rtlab.core.scale import Scale
    from rtlab.core.task import Task
    from rtlab.core.variant import Variant
    from rtlab.errors import RtlabError
    from rtlab.experiments.tactics import LayerTactics
    from rtlab.formulations.recurrent import Timed
    from rtlab.questions.batches.sweeps import Sweep
    from rtlab.questions.bisection import Bisection
    from rtlab.questions.channels import ChannelErrors
    from rtlab.questions.diagnosis import AccuracyDiagnosis
    from rtlab.questions.repair import AccuracyRepair
    from rtlab.questions.sensitivity import Asks, By, LossName, Sensitivity
    from rtlab.questions.why import Verdict
    from rtlab.questions.why.advice import Advice
    from rtlab.questions.why.joined import Joined
    from rtlab.session.job import Job

K = TypeVar("K")
T = TypeVar("T")


def _nothing() -> Any:
    return MappingProxyType({})


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """Some of the samples, by number, that variants are compared and scored on: their data, and the task with it."""

    samples: tuple[int, ...]
    data: CalibrationData
    task: Task | None


@dataclasses.dataclass(frozen=True)
class Contents:
    """Tables by the name of a variant, and ``forms`` by node; each can only be read.

    ``verdicts`` are by the name of a variant, then by pair of nodes; ``joined`` then by layer, and
    ``sensitivities`` by what was asked, of what, and on which loss, and ``channels`` by value; ``bisections`` are by
    the names of two variants.

    ``scales`` were given in place of a calibrator; ``unbuilt`` are variants that were planned to be prepared only.
    Where samples are ``chosen``, ``whole`` are the facts on all samples, which were set aside.
    """

    variants: Mapping[str, Variant] = dataclasses.field(default_factory=_nothing)
    facts: Mapping[str, Facts] = dataclasses.field(default_factory=_nothing)
    failures: Mapping[str, RtlabError] = dataclasses.field(default_factory=_nothing)
    scales: Mapping[str, Mapping[str, Scale]] = dataclasses.field(default_factory=_nothing)
    sweeps: Mapping[str, Sweep] = dataclasses.field(default_factory=_nothing)
    forms: Mapping[str, tuple[Timed, ...]] = dataclasses.field(default_factory=_nothing)
    tactics: Mapping[str, tuple[LayerTactics, ...]] = dataclasses.field(default_factory=_nothing)
    verdicts: Mapping[str, Mapping[tuple[str, str], Verdict]] = dataclasses.field(default_factory=_nothing)
    joined: Mapping[str, Mapping[str, Joined]] = dataclasses.field(default_factory=_nothing)
    advice: Mapping[str, Advice] = dataclasses.field(default_factory=_nothing)
    sensitivities: Mapping[str, Mapping[tuple[Asks, By, LossName], Sensitivity]] = dataclasses.field(
        default_factory=_nothing
    )
    diagnoses: Mapping[str, AccuracyDiagnosis] = dataclasses.field(default_factory=_nothing)
    channels: Mapping[str, Mapping[str, ChannelErrors]] = dataclasses.field(default_factory=_nothing)
    repairs: Mapping[str, AccuracyRepair] = dataclasses.field(default_factory=_nothing)
    bisections: Mapping[tuple[str, str], Bisection] = dataclasses.field(default_factory=_nothing)
    unbuilt: frozenset[str] = frozenset()
    whole: Mapping[str, Facts] = dataclasses.field(default_factory=_nothing)
    chosen: Chosen | None = None

    def planned(
        self, name: str, variant: Variant, given: Mapping[str, Scale] | None, *, build: bool = True
    ) -> Contents:
        """With a variant that is to be built; what there is of another one of its name goes."""
        kept = self if self.same(name, variant, given) else self.without(name)
        unbuilt = kept.unbuilt - {name} if build else kept.unbuilt | {name}
        variants = _with(self.variants, name, variant)
        scales = _without(kept.scales, name) if given is None else _with(kept.scales, name, given)
        return dataclasses.replace(kept, variants=variants, scales=scales, unbuilt=unbuilt)

    def same(self, name: str, variant: Variant, given: Mapping[str, Scale] | None) -> bool:
        """Whether this variant, with these scales, is the one of this name."""
        return self.variants.get(name) == variant and self.scales.get(name) == given

    def wants(self, job: Job) -> bool:
        """Whether the variant that a job was made for is still the one of its name."""
        return self.same(job.name, job.variant, job.scales)

    def built(self, facts: Facts) -> Contents:
        """With the facts of a variant, which is no failure any more."""
        name, was = facts.name, self.facts.get(facts.name)
        # What was found out about one engine does not hold for another.
        other = was is not None and was.engine is not facts.engine
        gone: dict[str, Any] = (
            {
                t: _without(getattr(self, t), name)
                for t in ("verdicts", "joined", "advice", "sensitivities", "diagnoses", "channels", "repairs")
            }
            if other
            else {}
        )
        if other:
            gone["bisections"] = self._apart(name)
        table, failures = _with(self.facts, name, facts), _without(self.failures, name)
        return dataclasses.replace(self, facts=table, failures=failures, **gone)

    def failed(self, name: str, error: RtlabError) -> Contents:
        """With what a variant failed with."""
        return dataclasses.replace(self, failures=_with(self.failures, name, error))

    def swept(self, name: str, found: Sweep) -> Contents:
        """With what was timed at several batch sizes."""
        return dataclasses.replace(self, sweeps=_with(self.sweeps, name, found))

    def tabled(self, name: str, found: tuple[LayerTactics, ...]) -> Contents:
        """With the tactics of a variant."""
        return dataclasses.replace(self, tactics=_with(self.tactics, name, found))

    def timed(self, node: str, found: tuple[Timed, ...]) -> Contents:
        """With the forms of a recurrent node."""
        return dataclasses.replace(self, forms=_with(self.forms, node, found))

    def judged(self, name: str, found: Verdict) -> Contents:
        """With why two nodes are, or are not, one step of a variant's engine."""
        mine = _with(self.verdicts.get(name, {}), (found.first, found.second), found)
        return dataclasses.replace(self, verdicts=_with(self.verdicts, name, mine))

    def joined_as(self, name: str, found: Joined) -> Contents:
        """With why the nodes of a step of a variant's engine are one."""
        mine = _with(self.joined.get(name, {}), found.layer, found)
        return dataclasses.replace(self, joined=_with(self.joined, name, mine))

    def advised(self, name: str, found: Advice) -> Contents:
        """With what keeps the fusions of a variant from happening."""
        mine = MappingProxyType(
            {**self.verdicts.get(name, {}), **{(v.first, v.second): v for v in found.verdicts}}
        )
        return dataclasses.replace(
            self, verdicts=_with(self.verdicts, name, mine), advice=_with(self.advice, name, found)
        )

    def sensed(self, name: str, key: tuple[Asks, By, LossName], found: Sensitivity) -> Contents:
        """With who is guilty of a variant's error."""
        mine = _with(self.sensitivities.get(name, {}), key, found)
        return dataclasses.replace(self, sensitivities=_with(self.sensitivities, name, mine))

    def diagnosed(self, name: str, found: AccuracyDiagnosis) -> Contents:
        """With why a variant loses accuracy, which its rankings of the guilty say too."""
        told = {k: found.explained(s) for k, s in self.sensitivities.get(name, {}).items()}
        rankings = _with(self.sensitivities, name, MappingProxyType(told)) if told else self.sensitivities
        return dataclasses.replace(self, diagnoses=_with(self.diagnoses, name, found), sensitivities=rankings)

    def channelled(self, name: str, found: ChannelErrors) -> Contents:
        """With the errors of the channels of one value, which stand last."""
        mine = MappingProxyType(
            {**{k: v for k, v in self.channels.get(name, {}).items() if k != found.value}, found.value: found}
        )
        return dataclasses.replace(self, channels=_with(self.channels, name, mine))

    def mended(self, name: str, found: AccuracyRepair) -> Contents:
        """With what gives a variant's accuracy back."""
        return dataclasses.replace(self, repairs=_with(self.repairs, name, found))

    def bisected(self, first: str, second: str, found: Bisection) -> Contents:
        """With what changed from one variant to another."""
        return dataclasses.replace(self, bisections=_with(self.bisections, (first, second), found))

    def _apart(self, name: str) -> Mapping[tuple[str, str], Bisection]:
        """What changed between variants of other names."""
        if not any(name in pair for pair in self.bisections):
            return self.bisections
        return MappingProxyType({k: v for k, v in self.bisections.items() if name not in k})

    def settled(self, *names: str) -> Contents:
        """Without the failures of variants that have an engine."""
        gone = self.facts.keys() & set(names)
        return dataclasses.replace(self, failures=_without(self.failures, *gone))

    def without(self, name: str) -> Contents:
        """Without a variant and all there is of it."""
        tables = (
            "variants",
            "facts",
            "failures",
            "scales",
            "sweeps",
            "tactics",
            "verdicts",
            "joined",
            "advice",
            "sensitivities",
            "whole",
            "diagnoses",
            "channels",
            "repairs",
        )
        rest: dict[str, Any] = {t: _without(getattr(self, t), name) for t in tables}
        return dataclasses.replace(self, **rest, bisections=self._apart(name), unbuilt=self.unbuilt - {name})


def _with(table: Mapping[K, T], key: K, value: T) -> Mapping[K, T]:
    return MappingProxyType({**table, key: value})


def _without(table: Mapping[str, T], *keys: str) -> Mapping[str, T]:
    if not any(k in table for k in keys):
        return table
    return MappingProxyType({k: v for k, v in table.items() if k not in keys})
