"""What a study holds at one moment, for whoever reads several things of it while others change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rtlab.analyses.batches.sweeps import Sweep
from rtlab.analyses.bisection import Bisection
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.channels import ChannelErrors
from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.repair import AccuracyRepair
from rtlab.analyses.sensitivity import Asks, By, LossName, Sensitivity
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.advice import Advice
from rtlab.analyses.why.fused_layer import FusedLayer
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.peaks import Peaks
from rtlab.core.task import Task
from rtlab.core.variant import Variant
from rtlab.errors import RtlabError
from rtlab.formulations.trial import TunedModel


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """A study as it was: nothing of it changes any more.

    ``variants`` were planned, ``facts`` are of those that were built or read, ``failures`` say why one could not be,
    and ``sweeps`` what was timed at several batch sizes, each by the name of the variant; ``forms`` are those of
    recurrent nodes that were timed here, by node. ``tuned`` and ``calibration`` are None before there is any,
    ``processors`` those that engines are judged by beside those of the table. ``user_data`` are the samples that
    somebody gave, None where random ones are drawn when they are needed, and ``data`` those or the random ones, None
    before any were needed. ``chosen`` are the numbers of the samples that errors,
    scores and ``task`` are of; empty where these are all. ``verdicts`` and ``advice`` say why nodes are not one step,
    ``fusion_explanations`` why those of a step are, ``sensitivities`` who is guilty of its error, ``diagnoses`` where
    the accuracy went, ``channels`` which channels of a value lost it, and ``repairs`` what gives it back, by variant;
    ``bisections`` say what changed from one to another.
    """

    model: Model
    variants: Mapping[str, Variant]
    facts: Mapping[str, VariantResult]
    failures: Mapping[str, RtlabError]
    sweeps: Mapping[str, Sweep]
    tuned: TunedModel | None = None
    processors: tuple[Peaks, ...] = ()
    calibration: Calibration | None = None
    user_data: CalibrationData | None = None
    data: CalibrationData | None = None
    task: Task | None = None
    chosen: tuple[int, ...] = ()
    verdicts: Mapping[str, Mapping[tuple[str, str], Verdict]] = dataclasses.field(default_factory=dict)
    fusion_explanations: Mapping[str, Mapping[str, FusedLayer]] = dataclasses.field(default_factory=dict)
    advice: Mapping[str, Advice] = dataclasses.field(default_factory=dict)
    sensitivities: Mapping[str, Mapping[tuple[Asks, By, LossName], Sensitivity]] = dataclasses.field(
        default_factory=dict
    )
    diagnoses: Mapping[str, AccuracyDiagnosis] = dataclasses.field(default_factory=dict)
    channels: Mapping[str, Mapping[str, ChannelErrors]] = dataclasses.field(default_factory=dict)
    repairs: Mapping[str, AccuracyRepair] = dataclasses.field(default_factory=dict)
    bisections: Mapping[tuple[str, str], Bisection] = dataclasses.field(default_factory=dict)
