"""What calibration observed, every calibrator's thresholds on it, and how they rank on the task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.core.facts import Ranked
from rtlab.core.ranges import Ranges
from rtlab.core.schema import Meaning, Origin
from rtlab.core.value import shape_text
from rtlab.core.variant import CALIBRATORS, Calibrator
from rtlab.quantize import display, thresholds
from rtlab.quantize.placement import plan
from rtlab.quantize.ranges import stride_of
from rtlab.quantize.thresholds import Threshold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.questions.calibration.seen import Calibration


@dataclasses.dataclass(frozen=True)
class CalibratedValue:
    """What calibration saw of one value, which the nodes ``readers`` quantize.

    ``counts`` are magnitudes over equal bins from 0 to ``upper``, exact zeros in the first; ``zeros`` is their share.
    ``origin`` of counts and shares is measured, or estimated where a part of a large map's elements stands for all.
    """

    value: Annotated[str, Meaning("Value")]
    node: Annotated[str, Meaning(links="nodes")]
    readers: Annotated[tuple[str, ...], Meaning("Read by", links="nodes")]
    shape: Annotated[str, Meaning("Shape")]
    count: Annotated[int, Meaning("Elements")]
    zeros: Annotated[float, Meaning("Zeros", "%", "{self.origin}")]
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

    samples: Annotated[int, Meaning("Samples")]
    wanted: int
    source: Annotated[str, Meaning("Source")]
    values: Annotated[tuple[CalibratedValue, ...], Meaning("Values")]
    task: Annotated[str, Meaning("Task")]
    unit: str
    ranking: Annotated[tuple[Ranked, ...], Meaning("Calibrators, the best first")]
    measured: Annotated[str, Meaning("Ranking")]


def calibration(
    model: Model, task: Task | None, observed: Calibration, used: Iterable[Calibrator] = ()
) -> Calibrated:
    """What the Calibration tab shows; values come in graph order.

    ``used`` are calibrators of variants, whose thresholds are shown beside those with default parameters.
    """
    others = tuple(c for c in dict.fromkeys(used) if c not in CALIBRATORS)
    readers = {v: dict.fromkeys(node for node, _ in edges) for v, edges in plan(model).activations.items()}
    first = next(iter(observed.ranking), None)
    known = observed.samples if observed.complete else 0
    return Calibrated(
        samples=observed.samples,
        wanted=known if observed.wanted is None else observed.wanted,
        source=observed.source + _parts(model, observed.ranges),
        values=tuple(
            _value(model, observed, name, tuple(i for n in nodes for i in model.where(n)), others)
            for name, nodes in readers.items()
            if name in observed.ranges.values
        ),
        task=task.name if task is not None else "",
        unit=(task.unit or "") if task is not None else "",
        ranking=observed.ranking,
        measured=f"measured, {first.source}, {first.samples} samples" if first and first.source else "",
    )


def _parts(model: Model, ranges: Ranges) -> str:
    """Of how many values the histograms hold a part of the elements."""
    large = sum(_in_part(model, ranges, name) for name in ranges.values)
    return f", {large} large map{'s' if large > 1 else ''} counted in part" if large else ""


def _in_part(model: Model, ranges: Ranges, value: str) -> bool:
    shape = (model.values[value].shape if value in model.values else None) or ()
    return stride_of(tuple(d if isinstance(d, int) else 1 for d in shape), ranges.stride) > 1


def _value(
    model: Model, observed: Calibration, name: str, readers: tuple[str, ...], others: tuple[Calibrator, ...]
) -> CalibratedValue:
    seen = observed.ranges.values[name]
    edges, counts = display(observed.ranges, name)
    producer = model.producers.get(name)
    return CalibratedValue(
        value=name,
        node=next(iter(model.where(producer.id)), "") if producer is not None else "",
        readers=readers,
        shape=shape_text(model.values[name].shape) if name in model.values else "",
        count=seen.count,
        zeros=seen.zeros / seen.count if seen.count else 0.0,
        origin="estimated" if _in_part(model, observed.ranges, name) else "measured",
        upper=float(edges[-1]),
        counts=tuple(counts.tolist()),
        thresholds=(*observed.values[name], *(thresholds(seen, others) if others else ())),
    )
