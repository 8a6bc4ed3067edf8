"""Which calibrator serves the task best."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rtlab.core.budget import WorkContext
from rtlab.core.facts import SCORED, Ranked, Score
from rtlab.core.model import Model
from rtlab.core.protocols import Evaluator
from rtlab.core.ranges import Ranges
from rtlab.core.slices import SliceSums
from rtlab.core.task import Predictions
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.experiments.running import batch_size, fixed_batch, open_engine
from rtlab.quantize import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.task import Task

#: Samples that outputs are compared on where there is no task.
_COMPARED = 32
_ACTIVITY = "ranking the calibrators"


@dataclasses.dataclass(frozen=True)
class CalibratorRanking:
    """Prepare a model with each calibrator and run it, the best first among those that were tried by then.

    With a task they are ordered by its score, then by the SQNR of the first output; without, by that SQNR alone.
    """

    model: Model
    ranges: Ranges
    data: CalibrationData
    task: Task | None = None
    precision: Precision = Precision.INT8
    calibrators: Sequence[Calibrator] = CALIBRATORS
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[tuple[Ranked, ...]]:
        """What is known after each calibrator."""
        context.phase("Ranking the calibrators", len(self.calibrators) + 1)
        plain, _, base = self._run(context, self.model)
        context.advance()
        ranking: list[Ranked] = []
        for calibrator in context.iterate(self.calibrators, _ACTIVITY):
            variant = Variant.of(self.precision, calibrator=calibrator)
            emulation = prepare(self.model, variant, self.ranges).emulation
            outputs, count, score = self._run(context, emulation)
            delta = score.value - base.value if score is not None and base is not None else None
            sqnr, source = _sqnr(plain, outputs), context.tool.source
            ranking.append(Ranked(calibrator, self.precision, score, delta, sqnr, count, source))
            context.advance()
            yield tuple(
                sorted(ranking, key=lambda r: (r.score.better if r.score else 0.0, r.sqnr), reverse=True)
            )

    def _run(
        self, context: WorkContext[Evaluator], variant: Model
    ) -> tuple[list[NDArray[Any]], int, Score | None]:
        """The first output of every batch, the number of samples, and the score where there is a task."""
        model, runner = self.model, context.tool
        output_names = model.outputs[:1] if self.task is None else self.task.wanted(model)
        most = max(_COMPARED if self.task is None else SCORED, fixed_batch(model))
        samples = (self.data if self.task is None else self.task.data).take(most)
        size = batch_size(model, None, samples, runner)
        # Built without progress, so that the phase on screen stays that of the ranking.
        context.count(builds=1)
        parts, predictions = [], Predictions()
        with open_engine(runner, variant) as engine:
            for batch in samples.batches(variant, size):
                context.check(_ACTIVITY)
                outputs = runner.outputs(engine, batch, output_names, progress=context)
                context.count(runs=1)
                parts.append(outputs[output_names[0]])
                predictions.add(outputs, samples.samples_in(variant, batch))
        score = None if self.task is None else Score.of(self.task, predictions, runner.source)
        return parts, predictions.samples, score


def _sqnr(reference: Sequence[NDArray[Any]], variant: Sequence[NDArray[Any]]) -> float:
    """The SQNR over all batches, which may differ in shape, of the part of an output that fares worst."""
    sums = SliceSums("")
    for x, y in zip(reference, variant, strict=True):
        sums.add(x, y, len(x) if x.ndim else 1)
    worst = sums.worst()
    return sums.sqnr if worst is None else min(sums.sqnr, worst.sqnr)
