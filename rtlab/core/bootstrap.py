"""Uncertainty of scores: 95 % intervals, and tests between two variants."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rtlab.core.metrics import Link, Tally, apply_link
from rtlab.core.schema import FieldMeta

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Samples below which nothing is concluded.
FEWEST = 8
#: How the words for a difference end that shows nothing: by its interval, or for want of samples.
INCLUDES_ZERO, TOO_FEW = "the confidence interval includes zero", "too few to conclude anything"
#: Confidence of intervals, and its normal quantile.
_LEVEL, _Z = 0.95, 1.959963984540054
_RESAMPLES, _SEED, _BATCH = 2000, 0, 250


@dataclasses.dataclass(frozen=True)
class Interval:
    """A 95 % interval, in the unit of what it is of; ``method`` says how it was found."""

    low: Annotated[float, FieldMeta("From", origin="estimated")]
    high: Annotated[float, FieldMeta("To", origin="estimated")]
    method: Annotated[str, FieldMeta("Method")]


@dataclasses.dataclass(frozen=True)
class PairedDifference:
    """Two variants on the same samples: the second one's score minus the first one's.

    ``lost`` samples are hits of the first alone, ``won`` of the second alone, and ``p`` is McNemar's exact p value,
    the chance of so uneven a split of them where both are equally good; all None where samples are no hits or misses.
    Samples that were picked have no interval and no p.
    """

    difference: float
    interval: Interval | None
    samples: int
    lost: int | None = None
    won: int | None = None
    p: float | None = None

    @property
    def sure(self) -> bool:
        """Whether the samples can tell the two apart: enough of them, and an interval without zero."""
        bounds = self.interval
        return bounds is not None and self.samples >= FEWEST and (bounds.low > 0 or bounds.high < 0)


def wilson(hits: int, samples: int) -> Interval:
    """Wilson's score interval for a share of hits (Wilson 1927), in percent, without continuity correction."""
    from scipy import stats

    bounds = stats.binomtest(hits, samples).proportion_ci(_LEVEL, method="wilson")
    return Interval(100.0 * float(bounds.low), 100.0 * float(bounds.high), "Wilson")


def mcnemar(first_only: int, second_only: int) -> float:
    """Exact McNemar test: two-sided binomial p-value of ``first_only`` among those that differ; 1 for none."""
    from scipy import stats

    differing = first_only + second_only
    return float(stats.binomtest(first_only, differing).pvalue) if differing else 1.0


def paired_shares(first_only: int, second_only: int, samples: int) -> Interval:
    """Interval of the difference of two paired shares in percent, the second minus the first.

    The adjusted Wald interval of Bonett and Price (2012): with one sample more in each of the two cells that differ,
    p = (won + 1) / (n + 2) and q = (lost + 1) / (n + 2), it is p - q ± z sqrt((p + q - (p - q)²) / (n + 2)).
    """
    p, q = (second_only + 1) / (samples + 2), (first_only + 1) / (samples + 2)
    middle, half = p - q, _Z * math.sqrt((p + q - (p - q) ** 2) / (samples + 2))
    return Interval(
        100.0 * max(-1.0, middle - half), 100.0 * min(1.0, middle + half), "Bonett-Price, paired shares"
    )


def interval(tally: Tally) -> Interval | None:
    """The interval of a score; None where there are no values of single samples, or they were picked, or one."""
    if tally.picked or tally.amounts is None or tally.weights is None:
        return None
    if tally.hits:
        return wilson(int(tally.amounts.sum()), len(tally.amounts))
    return _bootstrap(tally.link, tally.amounts, tally.weights)


def compare_paired(first: Tally, second: Tally) -> PairedDifference | None:
    """The second score minus the first, on the first samples that both were counted on; None where there are none."""
    if first.amounts is None or second.amounts is None or first.weights is None or second.weights is None:
        return PairedDifference(second.value - first.value, None, 0)
    count = min(len(first.amounts), len(second.amounts))
    a, b = first.amounts[:count], second.amounts[:count]
    v, w = first.weights[:count], second.weights[:count]
    if not (count and v.sum() and w.sum()):
        return None
    if first.hits and second.hits:
        first_only, second_only = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
        difference = 100.0 * (second_only - first_only) / count
        bounds = None if second.picked else paired_shares(first_only, second_only, count)
        p = None if second.picked else mcnemar(first_only, second_only)
        return PairedDifference(difference, bounds, count, first_only, second_only, p)
    difference = apply_link(second.link, b.sum() / w.sum()) - apply_link(first.link, a.sum() / v.sum())
    bounds = None if second.picked else _bootstrap(second.link, b, w, a, v)
    return PairedDifference(float(difference), bounds, count)


def _bootstrap(link: Link, *columns: NDArray[np.float64]) -> Interval | None:
    """BCa bootstrap (Efron 1987) of a score, or of a difference; ``columns`` are amounts and weights of one or two."""
    from scipy import stats

    def score(*resamples: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                apply_link(link, a.sum(axis=axis) / w.sum(axis=axis))
                for a, w in zip(resamples[::2], resamples[1::2], strict=True)
            ]
        scores: NDArray[np.float64] = parts[0] if len(parts) == 1 else parts[0] - parts[1]
        return scores

    if len(columns[0]) < 2:
        return None
    if not math.isfinite(float(score(*columns))):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = stats.bootstrap(
            columns,
            score,
            paired=True,
            vectorized=True,
            n_resamples=_RESAMPLES,
            batch=_BATCH,
            confidence_level=_LEVEL,
            method="BCa",
            random_state=np.random.default_rng(_SEED),
        )
    (low, high), title = draws.confidence_interval, "BCa"
    if not (math.isfinite(low) and math.isfinite(high)):
        # Such as of draws that are all equal.
        low, high = np.percentile(draws.bootstrap_distribution, (50 * (1 - _LEVEL), 50 * (1 + _LEVEL)))
        title = "percentile"
    return Interval(float(low), float(high), f"{title} bootstrap, {_RESAMPLES} draws")
