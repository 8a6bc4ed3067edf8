"""Which calibrator serves the task best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.reference import evaluator
from rtlab.core.facts import SCORED, Ranked, Score
from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.ranges import Ranges
from rtlab.core.task import Predictions
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.task import Task

#: Samples that outputs are compared on where there is no task.
_COMPARED = 32


def rank(
    model: Model,
    ranges: Ranges,
    data: CalibrationData,
    task: Task | None,
    progress: Progress,
    *,
    precision: Precision = Precision.INT8,
    calibrators: Sequence[Calibrator] = CALIBRATORS,
) -> tuple[Ranked, ...]:
    """Prepare the model with each calibrator and run it; the best first.

    With a task they are ordered by its score, then by the SQNR of the first output; without, by that SQNR alone.

    Raises:
        Unavailable: nothing here can run the model.
        Cancelled: the work was stopped.
    """
    runner = evaluator()
    samples = task.data if task is not None else data
    samples = samples.take(max(SCORED if task is not None else _COMPARED, fixed_batch(model)))
    size = batch_size(model, tuple(o for n in model.top for o in n.outputs if o), samples)

    wanted = task.wanted(model) if task is not None else model.outputs[:1]

    def run(variant: Model) -> tuple[list[NDArray[Any]], Predictions]:
        """The first output of every batch, and all that the metric needs."""
        # Built in silence, so that the one phase on screen stays that of the ranking.
        engine = runner.build(BuildRequest(variant, Variant(), level="basic"), Silent())
        parts, held = [], Predictions()
        try:
            for batch in samples.batches(variant, size):
                check(progress, "ranking the calibrators")
                outputs = runner.outputs(engine, batch, wanted, progress=progress)
                parts.append(outputs[wanted[0]])
                held.add(outputs, samples.samples_in(variant, batch))
        finally:
            runner.release(engine)
        return parts, held

    progress.phase("Ranking the calibrators", len(calibrators) + 1)
    plain, held = run(model)
    count = held.samples
    progress.advance()
    base = _score(task, held, runner.source)
    found = []
    for calibrator in calibrators:
        variant = Variant.of(precision, calibrator=calibrator)
        got, held = run(prepare(model, variant, ranges).emulation)
        score = _score(task, held, runner.source)
        delta = score.value - base.value if score is not None and base is not None else None
        found.append(Ranked(calibrator, precision, score, delta, _sqnr(plain, got), count, runner.source))
        progress.advance()
    return tuple(sorted(found, key=lambda r: (r.score.value if r.score else 0.0, r.sqnr), reverse=True))


def _score(task: Task | None, held: Predictions, source: str) -> Score | None:
    if task is None:
        return None
    return Score(task.name, task.score(held.joined(), held.samples), task.unit, held.samples, source)


def _sqnr(reference: Sequence[NDArray[Any]], variant: Sequence[NDArray[Any]]) -> float:
    """The SQNR over all batches, which may differ in shape."""
    signal = noise = 0.0
    for before, after in zip(reference, variant, strict=True):
        x, y = np.asarray(before, np.float64), np.asarray(after, np.float64)
        signal += float((x**2).sum())
        noise += float(((x - y) ** 2).sum())
    if not math.isfinite(noise):
        return -math.inf
    return math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
