"""Times of whole inferences one by one: how they scatter, and what may lie behind those that stand apart.

What stands apart is found by Tukey's fences: more than 1.5 interquartile ranges beyond a quartile (J. W. Tukey,
Exploratory Data Analysis, 1977). Why it does is inferred from where it stands among the others, and is said so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from rtlab.core.schema import FieldMeta

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Why a sample may stand apart.
Reason = Literal["start", "burst", "single", "fast"]

#: Interquartile ranges beyond a quartile from which a sample stands apart.
_FENCE = 1.5
#: Samples in a row that are a burst.
_BURST = 3
#: Chance below which a trend is reported, and the part of the median that they must move.
_CHANCE, _MOVED = 0.001, 0.03
#: Fewer samples tell nothing of their distribution.
_FEWEST = 8

WORDS: dict[Reason, str] = {
    "start": "at the start: caches and clocks were not yet warm",
    "burst": "several in a row: something else ran, or the clock was lowered for a while",
    "single": "alone: an interruption by the system, most likely",
    "fast": "faster than the others: a moment of higher clocks",
}


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A sample that stands apart: its place in the order of measurement, milliseconds, and the inferred reason."""

    index: int
    time: float
    reason: Reason

    @property
    def number(self) -> Annotated[int, FieldMeta("Inference")]:
        """Its place, from 1."""
        return self.index + 1

    @property
    def took(self) -> Annotated[float, FieldMeta("Time", "ms", "measured")]:
        """Its time."""
        return self.time

    @property
    def words(self) -> Annotated[str, FieldMeta("Likely reason (inferred)")]:
        """The reason in words."""
        return WORDS[self.reason]


@dataclasses.dataclass(frozen=True)
class Spread:
    """How the times of whole inferences scatter; all times in milliseconds.

    ``drift`` is by how much the times rise from the first to the last sample as a part of the median (Theil and Sen's
    slope), 0 where chance explains it (Kendall's tau).
    """

    count: int
    least: float
    lower: float
    median: float
    upper: float
    most: float
    outliers: tuple[Outlier, ...]
    drift: float

    def sentences(self) -> tuple[str, ...]:
        """What is worth saying of these samples, in words."""
        notes = []
        if self.count < _FEWEST:
            notes.append(f"{self.count} samples are too few to tell how they scatter.")
        if self.drift:
            way = "rose" if self.drift > 0 else "fell"
            notes.append(
                f"The times {way} by {abs(self.drift):.0%} from the first sample to the last: the clocks changed, or "
                "the machine warmed up. Fix the clocks, or measure longer."
            )
        for reason, words in WORDS.items():
            if mine := [o.time for o in self.outliers if o.reason == reason]:
                worst = f"{max(mine):.4g} ms" if self.median >= 1 else f"{1e3 * max(mine):.4g} µs"
                verb = "stands" if len(mine) == 1 else "stand"
                notes.append(f"{len(mine)} of {self.count} {verb} apart {words} (inferred); up to {worst}.")
        return tuple(notes)


def compute_spread(samples: NDArray[np.float64]) -> Spread | None:
    """Describe times in milliseconds, shape ``(runs,)``, in the order of measurement; None of fewer than two."""
    if len(samples) < 2:
        return None
    least, lower, median, upper, most = np.percentile(samples, [0, 25, 50, 75, 100]).tolist()
    outliers = _outliers(samples, lower, upper) if len(samples) >= _FEWEST else ()
    drift = _drift(samples, median)
    return Spread(len(samples), least, lower, median, upper, most, outliers, drift)


def _outliers(samples: NDArray[np.float64], lower: float, upper: float) -> tuple[Outlier, ...]:
    reach = _FENCE * (upper - lower)
    slow = np.flatnonzero(samples > upper + reach)
    reasons: dict[int, Reason] = dict.fromkeys(np.flatnonzero(samples < lower - reach).tolist(), "fast")
    for run in np.split(slow, np.flatnonzero(np.diff(slow) > 1) + 1):
        first, *_ = run.tolist() or [-1]
        reason: Reason = "start" if first == 0 else "burst" if len(run) >= _BURST else "single"
        reasons |= dict.fromkeys(run.tolist(), reason)
    return tuple(Outlier(i, float(samples[i]), reasons[i]) for i in sorted(reasons))


def _drift(samples: NDArray[np.float64], median: float) -> float:
    if len(samples) < _FEWEST or not median:
        return 0.0
    # SciPy's statistics take half a second to import.
    from scipy import stats

    order = np.arange(len(samples))
    if not stats.kendalltau(order, samples).pvalue < _CHANCE:
        return 0.0
    # Ten thousand samples have fifty million slopes; a few hundred medians tell the same trend.
    parts = np.array_split(samples, min(len(samples), 256))
    middles = np.cumsum([len(p) for p in parts]) - [len(p) / 2 for p in parts]
    slope = float(stats.theilslopes([float(np.median(p)) for p in parts], middles).slope)
    moved = slope * len(samples) / median
    return moved if abs(moved) >= _MOVED else 0.0
