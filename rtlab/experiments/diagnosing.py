"""Why the guilty places of a variant lose accuracy: their values are watched, and the rules read what was seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from rtlab.core.protocols import Evaluator
from rtlab.core.quantizer import Quantizer
from rtlab.experiments.experiment import Rig
from rtlab.experiments.watching import channel_axis, peaks_of, watch
from rtlab.quantize.narrow import HALVES
from rtlab.quantize.own import Own
from rtlab.questions.diagnosis import AccuracyDiagnosis
from rtlab.questions.diagnosis.causes import causes
from rtlab.questions.diagnosis.half import regions, too_large
from rtlab.questions.diagnosis.suspect import Suspect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.prepared import Prepared
    from rtlab.core.variant import Variant
    from rtlab.questions.diagnosis.watched import Watched

_DOING = "looking for the causes"
#: Samples that values are watched on: enough to tell one of fifty that does not belong.
_WATCHED = 256
_FLOATS = frozenset({"fp32", "fp16", "bf16", "fp64"})


class _Watch(NamedTuple):
    """Values on the samples of the calibration and on others, and where they do not fit FP16."""

    calibrated: Mapping[str, Watched]
    fresh: Mapping[str, Watched]
    regions: Sequence[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Diagnosing:
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
        own: What the model itself has quantized, where ``model`` is the one without.
    """

    name: str
    model: Model
    prepared: Prepared
    variant: Variant
    guilty: tuple[Quantizer, ...]
    data: CalibrationData
    fresh: CalibrationData | None = None
    calibrated_on: int = 0
    own: Own = dataclasses.field(default_factory=Own)
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Evaluator]) -> Iterator[AccuracyDiagnosis]:
        """What is known once values were watched: on what was calibrated with, then on the other samples."""
        model, runner = self.model, rig.tool
        given = self.data.take(_WATCHED)
        rig.phase(
            "Looking for causes", len(given) + (0 if self.fresh is None else min(len(self.fresh), _WATCHED))
        )
        large: Mapping[str, float] = {}
        guilty = self.guilty
        halves = {n for n, p in self.prepared.precisions.items() if p in HALVES}
        if halves:
            large = peaks_of(model, _written(model, halves), self.fresh or given, runner, rig)
            guilty = (*_overflowing(model, large, halves), *guilty)
        values = _values(model, guilty)
        seen = watch(model, values, given, runner, rig) if values else {}
        groups = regions(model, large)
        source = f"{runner.source}, {given.source}"
        yield self._told(guilty, _Watch(seen, seen, groups), len(given), source)
        if self.fresh is not None and values:
            rig.check(_DOING)
            other = self.fresh.take(_WATCHED)
            fresh = watch(model, values, other, runner, rig)
            source = f"{runner.source}, {other.source}"
            yield self._told(guilty, _Watch(seen, fresh, groups), len(other), source)

    def _told(
        self, guilty: Sequence[Quantizer], seen: _Watch, samples: int, source: str
    ) -> AccuracyDiagnosis:
        found: dict[str, Finding] = {}
        looked: dict[str, None] = {}
        silent: dict[str, None] = {}
        for quantizer in guilty:
            place = self._place(quantizer, seen)
            told = (*self._wrong(quantizer), *causes(place))
            found.update({f.id: f for f in told if not _known(f, found.values())})
            looked[quantizer.node] = None
            if not told:
                silent[quantizer.node] = None
        # What rounds for nothing does so, too, where it costs less than other places.
        found.update({f.id: f for f in self.own.findings if not f.exact and f.id not in found})
        explained = {n for f in found.values() for n in f.nodes}
        return AccuracyDiagnosis(
            self.name,
            tuple(found.values()),
            tuple(looked),
            tuple(n for n in silent if n not in explained),
            samples,
            source,
        )

    def _wrong(self, quantizer: Quantizer) -> Iterator[Finding]:
        """What is wrong with where the model itself rounds here."""
        for finding in self.own.wrong(quantizer.id):
            nodes = tuple(dict.fromkeys((quantizer.node, *finding.nodes)))
            yield dataclasses.replace(finding, nodes=nodes, value=quantizer.value)

    def _place(self, quantizer: Quantizer, seen: _Watch) -> Suspect:
        value, node = quantizer.value, self.model.by_id[quantizer.node]
        scale = self.prepared.scales.get(value) if quantizer.part != "weight" else None
        weight = _weight(self.model, node, quantizer) if quantizer.part == "weight" else None
        precision = self.prepared.precisions.get(node.id, self.variant.precision)
        scaled: Literal["channel", "tensor"] = "tensor" if self.variant.weights == "tensor" else "channel"
        amax = scale.amax if scale is not None else None
        if (own := self.own.pairs.get(quantizer.id)) is not None:
            precision, scaled = own.precision, "channel" if own.channels else "tensor"
            amax = own.amax if quantizer.part != "weight" else None
        return Suspect(
            node,
            quantizer,
            precision,
            amax,
            seen.calibrated.get(value),
            seen.fresh.get(value),
            self.calibrated_on,
            weight,
            scaled,
            next((seen.fresh[v] for v in node.inputs if v != value and v in seen.fresh), None)
            if node.op == "Add"
            else None,
            next((g for g in seen.regions if node.id in g), ()),
        )


def _known(finding: Finding, before: Collection[Finding]) -> bool:
    """Whether the same is told already of the same region, or of the same value at another reader."""
    return any(
        f.rule == finding.rule and (set(f.nodes) == set(finding.nodes) or f.evidence == finding.evidence)
        for f in before
    )


def _written(model: Model, nodes: set[str]) -> tuple[str, ...]:
    """The floating values that these nodes read and write."""
    found = dict.fromkeys(
        v for n in model.top if n.id in nodes for v in (*n.inputs, *n.outputs) if v and v not in model.known
    )
    return tuple(v for v in found if v in model.values and model.values[v].dtype in _FLOATS)


def _overflowing(model: Model, peaks: Mapping[str, float], nodes: set[str]) -> list[Quantizer]:
    """What is written in FP16 and does not fit, in graph order."""
    large = too_large(peaks)
    return [
        Quantizer(n.id, "output", i, o)
        for n in model.top
        if n.id in nodes
        for i, o in enumerate(n.outputs)
        if o in large
    ]


def _values(model: Model, guilty: Sequence[Quantizer]) -> Mapping[str, int | None]:
    """What is to be watched, with the axis of its channels."""
    found: dict[str, int | None] = {}
    for quantizer in guilty:
        if quantizer.part == "weight":
            continue
        node = model.by_id[quantizer.node]
        beside = node.inputs if node.op == "Add" else ()
        for value in (quantizer.value, *beside):
            known = value in model.values and value not in model.known
            if known and model.values[value].dtype in _FLOATS:
                found.setdefault(value, channel_axis(node, value, model))
    return found


def _weight(model: Model, node: Node, quantizer: Quantizer) -> NDArray[np.float32] | None:
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
