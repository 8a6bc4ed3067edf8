"""Why the guilty places of a variant lose accuracy: their values are watched, and the rules read what was seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.diagnosis.causes import find_causes, find_regions, find_too_large_values
from rtlab.analyses.diagnosis.quantizer_site import ActivationStats, QuantizerSite
from rtlab.core.budget import WorkContext
from rtlab.core.protocols import Evaluator
from rtlab.core.quantizer import Quantizer
from rtlab.experiments.observation import channel_axis, collect_activation_stats, measure_peaks
from rtlab.quantize.existing_qdq import ExistingQuantization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.prepared import Prepared
    from rtlab.core.variant import Variant

_ACTIVITY = "looking for the causes"
#: Samples that values are watched on: enough to tell one of fifty that does not belong.
_MAX_SAMPLES = 256
_FLOATS = frozenset({"fp32", "fp16", "bf16", "fp64"})


class _WatchStats(NamedTuple):
    """Values on the samples of the calibration and on others, and where they do not fit FP16."""

    calibrated: Mapping[str, ActivationStats]
    fresh: Mapping[str, ActivationStats]
    regions: Sequence[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class DiagnosisSearch:
    """Look into the places of a variant that cost most.

    Attributes:
        name: The variant's.
        model: The reference.
        prepared: What the variant makes of it.
        variant: The variant.
        guilty: Where it loses, the most guilty first.
        data: What it was calibrated on.
        fresh: What accuracy was measured on, None where that is the same.
        calibrated_on: The number of samples that its thresholds rest on, 0 where they were given.
        existing_qdq: What the model itself has quantized, where ``model`` is the one without.
    """

    name: str
    model: Model
    prepared: Prepared
    variant: Variant
    guilty: tuple[Quantizer, ...]
    data: CalibrationData
    fresh: CalibrationData | None = None
    calibrated_on: int = 0
    existing_qdq: ExistingQuantization = dataclasses.field(default_factory=ExistingQuantization)
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[AccuracyDiagnosis]:
        """What is known once values were watched: on what was calibrated with, then on the other samples."""
        model, runner = self.model, context.tool
        calibration_data = self.data.take(_MAX_SAMPLES)
        context.phase(
            "Looking for causes",
            len(calibration_data) + (0 if self.fresh is None else min(len(self.fresh), _MAX_SAMPLES)),
        )
        large: Mapping[str, float] = {}
        guilty = self.guilty
        halves = {n for n, p in self.prepared.precisions.items() if p.is_half}
        if halves:
            large = measure_peaks(
                model, _list_float_values(model, halves), self.fresh or calibration_data, runner, context
            )
            guilty = (*_find_overflows(model, large, halves), *guilty)
        values = _select_values(model, guilty)
        calibration_stats = (
            collect_activation_stats(model, values, calibration_data, runner, context) if values else {}
        )
        groups = find_regions(model, large)
        source = f"{runner.source}, {calibration_data.source}"
        yield self._diagnose(
            guilty, _WatchStats(calibration_stats, calibration_stats, groups), len(calibration_data), source
        )
        if self.fresh is not None and values:
            context.check(_ACTIVITY)
            other = self.fresh.take(_MAX_SAMPLES)
            fresh = collect_activation_stats(model, values, other, runner, context)
            source = f"{runner.source}, {other.source}"
            yield self._diagnose(guilty, _WatchStats(calibration_stats, fresh, groups), len(other), source)

    def _diagnose(
        self, guilty: Sequence[Quantizer], stats: _WatchStats, samples: int, source: str
    ) -> AccuracyDiagnosis:
        findings: dict[str, Finding] = {}
        examined_nodes: dict[str, None] = {}
        silent: dict[str, None] = {}
        for quantizer in guilty:
            place = self._make_suspect(quantizer, stats)
            quantizer_findings = (*self._iter_qdq_findings(quantizer), *find_causes(place))
            findings.update({f.id: f for f in quantizer_findings if not _is_duplicate(f, findings.values())})
            examined_nodes[quantizer.node] = None
            if not quantizer_findings:
                silent[quantizer.node] = None
        # What rounds for nothing does so, too, where it costs less than other places.
        findings.update({f.id: f for f in self.existing_qdq.findings if not f.exact and f.id not in findings})
        explained_nodes = {n for f in findings.values() for n in f.nodes}
        return AccuracyDiagnosis(
            self.name,
            tuple(findings.values()),
            tuple(examined_nodes),
            tuple(n for n in silent if n not in explained_nodes),
            samples,
            source,
        )

    def _iter_qdq_findings(self, quantizer: Quantizer) -> Iterator[Finding]:
        """What is wrong with where the model itself rounds here."""
        for finding in self.existing_qdq.iter_issues(quantizer.id):
            nodes = tuple(dict.fromkeys((quantizer.node, *finding.nodes)))
            yield dataclasses.replace(finding, nodes=nodes, value=quantizer.value)

    def _make_suspect(self, quantizer: Quantizer, stats: _WatchStats) -> QuantizerSite:
        value, node = quantizer.value, self.model.by_id[quantizer.node]
        scale = self.prepared.scales.get(value) if quantizer.part != "weight" else None
        weight = _get_weight(self.model, node, quantizer) if quantizer.part == "weight" else None
        precision = self.prepared.precisions.get(node.id, self.variant.precision)
        granularity: Literal["channel", "tensor"] = (
            "tensor" if self.variant.weights == "tensor" else "channel"
        )
        amax = scale.amax if scale is not None else None
        if (qdq_pair := self.existing_qdq.pairs.get(quantizer.id)) is not None:
            precision, granularity = qdq_pair.precision, "channel" if qdq_pair.channels else "tensor"
            amax = qdq_pair.amax if quantizer.part != "weight" else None
        return QuantizerSite(
            node,
            quantizer,
            precision,
            amax,
            stats.calibrated.get(value),
            stats.fresh.get(value),
            self.calibrated_on,
            weight,
            granularity,
            next((g for g in stats.regions if node.id in g), ()),
        )


def _is_duplicate(finding: Finding, before: Collection[Finding]) -> bool:
    """Whether the same is told already of the same region, or of the same value at another reader."""
    return any(
        f.rule == finding.rule and (set(f.nodes) == set(finding.nodes) or f.evidence == finding.evidence)
        for f in before
    )


def _list_float_values(model: Model, nodes: set[str]) -> tuple[str, ...]:
    """The floating values that these nodes read and write."""
    names = dict.fromkeys(
        v for n in model.top if n.id in nodes for v in (*n.inputs, *n.outputs) if v and v not in model.known
    )
    return tuple(v for v in names if v in model.values and model.values[v].dtype in _FLOATS)


def _find_overflows(model: Model, peaks: Mapping[str, float], nodes: set[str]) -> list[Quantizer]:
    """What is written in FP16 and does not fit, in graph order."""
    large = find_too_large_values(peaks)
    return [
        Quantizer(n.id, "output", i, o)
        for n in model.top
        if n.id in nodes
        for i, o in enumerate(n.outputs)
        if o in large
    ]


def _select_values(model: Model, guilty: Sequence[Quantizer]) -> Mapping[str, int | None]:
    """What is to be watched, with the axis of its channels."""
    axes: dict[str, int | None] = {}
    for quantizer in guilty:
        if quantizer.part == "weight":
            continue
        node = model.by_id[quantizer.node]
        value = quantizer.value
        is_activation = value in model.values and value not in model.known
        if is_activation and model.values[value].dtype in _FLOATS:
            axes.setdefault(value, channel_axis(node, value, model))
    return axes


def _get_weight(model: Model, node: Node, quantizer: Quantizer) -> NDArray[np.float32] | None:
    """A constant with its output channels along the first axis, None where it has none."""
    if quantizer.value not in model.known:
        return None
    array = np.asarray(model.known[quantizer.value].numpy())
    if array.dtype.kind != "f" or array.ndim < 2:
        return None
    if node.op == "ConvTranspose" or (node.op == "Gemm" and not node.attributes.get("transB", 0)):
        array = np.moveaxis(array, 1, 0)
    elif node.op == "MatMul":
        array = np.moveaxis(array, -1, 0)
    return array.astype(np.float32)
