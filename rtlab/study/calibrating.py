"""What is known of a model's activations, and which calibrator serves the task best."""

from __future__ import annotations

import dataclasses
import functools
import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.data import Predictions
from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant
from rtlab.quantize import Ranges, prepare
from rtlab.quantize.thresholds import Threshold, thresholds
from rtlab.study.job import SCORED, Score, runner_of
from rtlab.study.sizing import batch_size, fixed_batch

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData, Task

#: Samples that outputs are compared on where there is no task.
_COMPARED = 32


@dataclasses.dataclass(frozen=True)
class Ranked:
    """One calibrator on the task, measured on the CPU.

    ``sqnr`` is that of the model's first output in decibel, over ``samples`` samples; ``score`` is None without a
    task, ``delta`` its difference from fp32 in the same unit.
    """

    calibrator: Calibrator
    precision: Precision
    score: Score | None
    delta: float | None
    sqnr: float
    samples: int
    source: str

    def __repr__(self) -> str:
        score = f"{self.score.value:.2f} {self.score.unit}, " if self.score else ""
        delta = f"{self.delta:+.2f} to fp32, " if self.delta is not None else ""
        return f"<Ranked {self.calibrator}: {score}{delta}output {_decibel(self.sqnr)}>"


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Observed activations of a model, and every calibrator's view of them.

    ``wanted`` is how many samples the data has (None when it does not tell); fewer were seen when the work was
    stopped, and ``complete`` says whether all were. ``ranking`` has the best first, and is empty before ``Study.rank``.
    """

    ranges: Ranges
    wanted: int | None
    source: str
    ranking: tuple[Ranked, ...] = ()
    complete: bool = True

    def __repr__(self) -> str:
        of = f" of {self.wanted}" if self.wanted is not None and self.samples < self.wanted else ""
        best = f", best {self.ranking[0].calibrator}" if self.ranking else ""
        return f"<Calibration of {len(self.ranges.values)} values on {self.samples}{of} samples{best}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(v)}</td>{''.join(_cell(t, found) for t in found)}</tr>"
            for v, found in self.values.items()
        )
        head = "".join(f"<th>{c}</th>" for c in CALIBRATORS)
        return (
            f"{html.escape(repr(self)[1:-1])}{self._ranked()}<table><tr><th>value</th>{head}</tr>{rows}</table>"
            "<small>threshold, and below it the SQNR, ○ estimated from the histogram; the best of a row is bold; "
            "⚠ clips more than is healthy</small>"
        )

    def _ranked(self) -> str:
        """The ranking as a table."""
        if not self.ranking:
            return ""
        rows = "".join(
            f"<tr><td>{r.calibrator}</td><td>{f'● {r.score.value:.2f} {r.score.unit}' if r.score else '—'}</td>"
            f"<td>{f'{r.delta:+.2f}'.replace('-', '−') if r.delta is not None else '—'}</td>"
            f"<td>● {_decibel(r.sqnr)}</td></tr>"
            for r in self.ranking
        )
        one = self.ranking[0]
        task = html.escape(one.score.name) if one.score else "task"
        told = html.escape(f"measured, {one.source}, {one.samples} samples")
        return (
            f"<table><tr><th>calibrator</th><th>{task}</th><th>to fp32</th><th>output SQNR</th></tr>{rows}</table>"
            f"<small>{told}</small>"
        )

    @property
    def samples(self) -> int:
        """How many samples were seen."""
        return self.ranges.samples

    @functools.cached_property
    def values(self) -> Mapping[str, tuple[Threshold, ...]]:
        """Thresholds by value, one for each calibrator with default parameters; ``auto`` says which it took."""
        seen = self.ranges.values  # noqa: PD011 - no data frame but a mapping
        return {name: thresholds(one) for name, one in seen.items()}

    def frame(self) -> pd.DataFrame:
        """One row for each value and calibrator: ``amax``, ``clipped`` (a share), ``sqnr`` (dB, estimated).

        ``chosen`` is the method that ``auto`` took and ``why`` its reason; ``doubt`` says where a threshold clips more
        than is healthy. All three are empty elsewhere.
        """
        import pandas as pd

        table: pd.DataFrame = pd.DataFrame(
            [
                {
                    "value": v,
                    "calibrator": str(t.calibrator),
                    "amax": t.amax,
                    "clipped": t.clipped,
                    "sqnr": t.sqnr,
                    "chosen": str(t.choice.calibrator) if t.choice else "",
                    "why": t.choice.why if t.choice else "",
                    "doubt": t.doubt,
                }
                for v, found in self.values.items()
                for t in found
            ]
        )
        return table


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
    runner = runner_of("onnxruntime")
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


def _cell(one: Threshold, row: Sequence[Threshold]) -> str:
    mark = f" {one.choice.calibrator}" if one.choice else " ⚠" if one.doubt else ""
    text = f"{one.amax:.4g}{mark}<br><small>○ {_decibel(one.sqnr)}</small>"
    best = one.sqnr == max(t.sqnr for t in row)
    told = one.doubt or (one.choice.why if one.choice else "")
    return f'<td title="{html.escape(told)}">{f"<b>{text}</b>" if best else text}</td>'


def _decibel(value: float) -> str:
    return f"{value:.1f} dB" if math.isfinite(value) else "equal" if value > 0 else "—"
