"""Why the guilty places of a variant lose accuracy: their values are watched, and the rules read what was seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.diagnosis.causes import (
    ActivationStats,
    QuantizerSite,
    find_causes,
    find_regions,
    find_too_large_values,
)
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


@dataclasses.dataclass(frozen=True)
class DiagnosisSearch:
    """Find the causes of a variant's error at ``guilty``, its quantizers with the largest effects.

    ``model`` is the reference, ``data`` what the variant was calibrated on, ``fresh`` what accuracy was measured on,
    None where that is the same. ``calibrated_on`` is the number of samples that its thresholds rest on, 0 for explicit
    ones; ``existing_qdq`` what the model itself has quantized, where ``model`` is the one without.
    """

    name: str
    model: Model
    prepared: Prepared
    variant: Variant
    guilty: tuple[Quantizer, ...]
    data: CalibrationData
    fresh: CalibrationData | None
    calibrated_on: int
    existing_qdq: ExistingQuantization
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[AccuracyDiagnosis]:
        """The diagnosis on the samples of the calibration, then on the others."""
        model, runner = self.model, context.tool
        data = self.data.take(_MAX_SAMPLES)
        fresh = None if self.fresh is None else self.fresh.take(_MAX_SAMPLES)
        context.phase("Looking for causes", len(data) + (0 if fresh is None else len(fresh)))
        large: Mapping[str, float] = {}
        guilty = self.guilty
        halves = {n for n, p in self.prepared.precisions.items() if p.is_half}
        if halves:
            floats = _list_float_values(model, halves)
            large = measure_peaks(model, floats, self.fresh or data, runner, context)
            large = self._drop_saturated(large, self.fresh or data, context)
            guilty = (*_find_overflows(model, large, halves), *guilty)
        values = _select_values(model, guilty)
        stats = collect_activation_stats(model, values, data, runner, context) if values else {}
        regions = find_regions(model, large)
        sites = [self._make_site(q, stats, stats, regions) for q in guilty]
        yield self._diagnose(sites, data, runner.source)
        if fresh is not None and values:
            context.check(_ACTIVITY)
            fresh_stats = collect_activation_stats(model, values, fresh, runner, context)
            sites = [self._make_site(q, stats, fresh_stats, regions) for q in guilty]
            yield self._diagnose(sites, fresh, runner.source)

    def _drop_saturated(
        self, peaks: Mapping[str, float], data: CalibrationData, context: WorkContext[Evaluator]
    ) -> Mapping[str, float]:
        """The peaks without those that the variant's constants keep finite, as it does with a mask of -3.4e38."""
        large = find_too_large_values(peaks)
        if not large:
            return peaks
        emulation = self.prepared.emulate(context)
        names = [v for v in large if v in emulation.values]
        variant_peaks = measure_peaks(emulation, names, data, context.tool, context, finite=False)
        return {
            v: p for v, p in peaks.items() if not np.isfinite(variant_peaks.get(v, np.inf)) or v not in large
        }

    def _diagnose(
        self, sites: Sequence[QuantizerSite], data: CalibrationData, source: str
    ) -> AccuracyDiagnosis:
        findings: dict[str, Finding] = {}
        silent: dict[str, None] = {}
        for site in sites:
            quantizer_findings = (*self._iter_qdq_findings(site.quantizer), *find_causes(site))
            findings.update({f.id: f for f in quantizer_findings if not _is_duplicate(f, findings.values())})
            if not quantizer_findings:
                silent[site.node.id] = None
        # Pairs that round for nothing are findings where they cost less than others, too.
        findings.update({f.id: f for f in self.existing_qdq.findings if not f.exact and f.id not in findings})
        explained_nodes = {n for f in findings.values() for n in f.nodes}
        return AccuracyDiagnosis(
            self.name,
            tuple(findings.values()),
            tuple(dict.fromkeys(s.node.id for s in sites)),
            tuple(n for n in silent if n not in explained_nodes),
            len(data),
            f"{source}, {data.source}",
        )

    def _iter_qdq_findings(self, quantizer: Quantizer) -> Iterator[Finding]:
        """What is wrong with where the model itself rounds here."""
        for finding in self.existing_qdq.iter_issues(quantizer.id):
            nodes = tuple(dict.fromkeys((quantizer.node, *finding.nodes)))
            yield dataclasses.replace(finding, nodes=nodes, value=quantizer.value)

    def _make_site(
        self,
        quantizer: Quantizer,
        calibrated: Mapping[str, ActivationStats],
        fresh: Mapping[str, ActivationStats],
        regions: Sequence[tuple[str, ...]],
    ) -> QuantizerSite:
        value, node, is_weight = quantizer.value, self.model.by_id[quantizer.node], quantizer.part == "weight"
        scale = None if is_weight else self.prepared.scales.get(value)
        precision = self.prepared.precisions.get(node.id, self.variant.precision)
        is_per_tensor = self.variant.weights == "tensor"
        amax = scale.amax if scale is not None else None
        if (qdq_pair := self.existing_qdq.pairs.get(quantizer.id)) is not None:
            precision, is_per_tensor = qdq_pair.precision, not qdq_pair.channels
            amax = None if is_weight else qdq_pair.amax
        return QuantizerSite(
            node,
            quantizer,
            precision,
            amax,
            calibrated.get(value),
            fresh.get(value),
            self.calibrated_on,
            _get_weight(self.model, node, quantizer) if is_weight else None,
            "tensor" if is_per_tensor else "channel",
            next((g for g in regions if node.id in g), ()),
        )


def _is_duplicate(finding: Finding, before: Collection[Finding]) -> bool:
    """Whether there is such a finding of the same region, or of the same value at another reader."""
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
    """The values to observe, with the axis of their channels."""
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
