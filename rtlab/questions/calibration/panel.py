"""What calibration observed, every calibrator's thresholds on it, and how they rank on the task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtlab.core.ranges import Ranges
from rtlab.core.value import shape_text
from rtlab.core.variant import CALIBRATORS, Calibrator
from rtlab.documents.contract import CalibratedValue, Calibration, Rank, Threshold
from rtlab.quantize import display, thresholds
from rtlab.quantize.placement import plan
from rtlab.quantize.ranges import stride_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtlab.core.facts import Ranked
    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.questions.calibration.seen import Calibration as Observed


def calibration(
    model: Model, task: Task | None, observed: Observed, used: Iterable[Calibrator] = ()
) -> Calibration:
    """The payload of the Calibration tab; values come in graph order.

    ``used`` are calibrators of variants, whose thresholds are shown beside those with default parameters.
    """
    others = tuple(c for c in dict.fromkeys(used) if c not in CALIBRATORS)
    readers = {v: dict.fromkeys(node for node, _ in edges) for v, edges in plan(model).activations.items()}
    source = observed.ranking[0].source if observed.ranking else ""
    count = observed.ranking[0].samples if observed.ranking else 0
    return Calibration(
        samples=observed.samples,
        wanted=observed.wanted
        if observed.wanted is not None
        else observed.samples
        if observed.complete
        else 0,
        source=observed.source + _parts(model, observed.ranges),
        values=[
            _value(model, observed, name, [i for n in nodes for i in model.where(n)], others)
            for name, nodes in readers.items()
            if name in observed.ranges.values
        ],
        task=task.name if task is not None else "",
        unit=task.unit if task is not None else "",
        ranking=[_rank(r) for r in observed.ranking],
        measured=f"measured, {source}, {count} samples" if source else "",
    )


def _parts(model: Model, ranges: Ranges) -> str:
    """Of how many values the histograms hold a part of the elements."""
    large = sum(_in_part(model, ranges, name) for name in ranges.values)
    return f", {large} large map{'s' if large > 1 else ''} counted in part" if large else ""


def _in_part(model: Model, ranges: Ranges, value: str) -> bool:
    shape = (model.values[value].shape if value in model.values else None) or ()
    return stride_of(tuple(d if isinstance(d, int) else 1 for d in shape), ranges.stride) > 1


def _value(
    model: Model, observed: Observed, name: str, readers: list[str], others: tuple[Calibrator, ...]
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
        counts=[float(c) for c in counts],
        thresholds=[
            Threshold(
                calibrator=str(t.calibrator),
                amax=t.amax,
                clipped=t.clipped,
                sqnr=t.sqnr if math.isfinite(t.sqnr) else None,
                chosen=str(t.choice.calibrator) if t.choice else "",
                why=t.choice.why if t.choice else "",
                doubt=t.doubt,
            )
            for t in (*observed.values[name], *(thresholds(seen, others) if others else ()))
        ],
    )


def _rank(ranked: Ranked) -> Rank:
    note = "equal to fp32" if ranked.sqnr == math.inf else "" if math.isfinite(ranked.sqnr) else "not finite"
    return Rank(
        calibrator=str(ranked.calibrator),
        precision=str(ranked.precision),
        score=ranked.score.value if ranked.score else None,
        delta=ranked.delta,
        sqnr=ranked.sqnr if math.isfinite(ranked.sqnr) else None,
        note=note,
    )
