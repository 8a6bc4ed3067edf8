"""What calibration observed, every calibrator's thresholds on it, and how they rank on the task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.panel_context import PanelContext
from rtlab.core.facts import Ranked
from rtlab.core.phrases import pluralize
from rtlab.core.ranges import Ranges
from rtlab.core.schema import FieldMeta, Origin
from rtlab.core.value import shape_text
from rtlab.core.variant import CALIBRATORS, Calibrator
from rtlab.errors import CalibrationError
from rtlab.quantize import display, thresholds
from rtlab.quantize.placement import plan
from rtlab.quantize.ranges import choose_stride
from rtlab.quantize.thresholds import Threshold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtlab.analyses.calibration.observed_ranges import Calibration
    from rtlab.core.model import Model
    from rtlab.core.task import Task


@dataclasses.dataclass(frozen=True)
class CalibratedValue:
    """What calibration saw of one value, which the nodes ``readers`` quantize.

    ``counts`` are magnitudes over equal bins from 0 to ``upper``, exact zeros in the first; ``zeros`` is their share.
    ``origin`` of counts and shares is measured, or estimated where a part of a large map's elements stands for all.
    """

    value: Annotated[str, FieldMeta("Value")]
    node: Annotated[str, FieldMeta(links="nodes")]
    readers: Annotated[tuple[str, ...], FieldMeta("Read by", links="nodes")]
    shape: Annotated[str, FieldMeta("Shape")]
    count: Annotated[int, FieldMeta("Elements")]
    zeros: Annotated[float, FieldMeta("Zeros", "%", "{self.origin}")]
    origin: Origin
    upper: float
    counts: tuple[float, ...]
    thresholds: tuple[Threshold, ...]


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """All that is known of the activations: observed on ``samples`` samples of ``source``.

    ``wanted`` is how many samples there are; fewer were seen after a cancel, and 0 says that more are left, nobody
    knows how many. ``ranking`` has the best first, and is empty before it was asked for; ``measured`` says on what and
    with which runner it was measured.
    """

    samples: Annotated[int, FieldMeta("Samples")]
    wanted: int
    source: Annotated[str, FieldMeta("Source")]
    values: Annotated[tuple[CalibratedValue, ...], FieldMeta("Values")]
    task: Annotated[str, FieldMeta("Task")]
    unit: str
    ranking: Annotated[tuple[Ranked, ...], FieldMeta("Calibrators, the best first")]
    measured: Annotated[str, FieldMeta("Ranking")]


def summarize_calibration(
    model: Model, task: Task | None, calibration: Calibration, variant_calibrators: Iterable[Calibrator] = ()
) -> Calibrated:
    """What the Calibration tab shows; values come in graph order.

    ``variant_calibrators`` are calibrators of variants, whose thresholds are shown beside those with default
    parameters.
    """
    others = tuple(c for c in dict.fromkeys(variant_calibrators) if c not in CALIBRATORS)
    readers = {v: dict.fromkeys(node for node, _ in edges) for v, edges in plan(model).activations.items()}
    first = next(iter(calibration.ranking), None)
    total_samples = calibration.samples if calibration.complete else 0
    large = sum(_is_subsampled(model, calibration.ranges, name) for name in calibration.ranges.values)
    partial = f", {pluralize(large, 'large map')} counted in part" if large else ""
    return Calibrated(
        samples=calibration.samples,
        wanted=total_samples if calibration.wanted is None else calibration.wanted,
        source=calibration.source + partial,
        values=tuple(
            _build_value(model, calibration, name, tuple(i for n in nodes for i in model.where(n)), others)
            for name, nodes in readers.items()
            if name in calibration.ranges.values
        ),
        task=task.name if task is not None else "",
        unit=(task.unit or "") if task is not None else "",
        ranking=calibration.ranking,
        measured=f"measured, {first.source}, {first.samples} samples" if first and first.source else "",
    )


def _is_subsampled(model: Model, ranges: Ranges, value: str) -> bool:
    shape = (model.values[value].shape if value in model.values else None) or ()
    return choose_stride(tuple(d if isinstance(d, int) else 1 for d in shape), ranges.stride) > 1


def _build_value(
    model: Model,
    calibration: Calibration,
    name: str,
    readers: tuple[str, ...],
    others: tuple[Calibrator, ...],
) -> CalibratedValue:
    value_range = calibration.ranges.values[name]
    edges, counts = display(calibration.ranges, name)
    producer = model.producers.get(name)
    return CalibratedValue(
        value=name,
        node=next(iter(model.where(producer.id)), "") if producer is not None else "",
        readers=readers,
        shape=shape_text(model.values[name].shape) if name in model.values else "",
        count=value_range.count,
        zeros=value_range.zeros / value_range.count if value_range.count else 0.0,
        origin="estimated" if _is_subsampled(model, calibration.ranges, name) else "measured",
        upper=float(edges[-1]),
        counts=tuple(counts.tolist()),
        thresholds=(*calibration.values[name], *(thresholds(value_range, others) if others else ())),
    )


def analyze_calibration(context: PanelContext) -> Calibrated:
    """What calibration has seen.

    Raises:
        CalibrationError: nothing was observed.
    """
    study = context.study
    if study.calibration is None:
        raise CalibrationError(
            f'Cannot show the ranges of "{study.model.name}": nothing was observed. Run '
            "study.calibration.observe() first."
        )
    used = [v.calibrator for v in study.variants.values() if v.calibrator is not None]
    return summarize_calibration(study.model, study.task, study.calibration, used)
