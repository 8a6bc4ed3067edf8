"""How far a score may lie from that of all samples of its kind: 95 % intervals, and tests between two variants."""

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

#: Below it nothing is concluded.
FEWEST = 8
#: How the words for a difference end that shows nothing: by its interval, or for want of samples.
INCLUDES_ZERO, TOO_FEW = "the confidence interval includes zero", "too few to conclude anything"
#: How sure an interval is, and the normal quantile that belongs to it.
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
    """The interval of a score; None where the metric tells nothing of single samples, or they were picked, or one."""
    if tally.picked:
        return None
    if tally.amounts is None or tally.weights is None:
        return None if tally.resampled is None else _percentiles(tally.resampled)
    if tally.hits:
        return wilson(int(tally.amounts.sum()), len(tally.amounts))
    return _bootstrap(tally.link, tally.amounts, tally.weights)


def compare_paired(first: Tally, second: Tally) -> PairedDifference | None:
    """The second score minus the first, on the first samples that both were counted on; None where there are none."""
    if first.amounts is None or second.amounts is None or first.weights is None or second.weights is None:
        return _compare_resampled(first, second)
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


def _compare_resampled(first: Tally, second: Tally) -> PairedDifference | None:
    """What two metrics say of the same draws."""
    difference = second.value - first.value
    if first.resampled is None or second.resampled is None:
        return None
    count = min(len(first.resampled), len(second.resampled))
    bounds = _percentiles(second.resampled[:count] - first.resampled[:count])
    return PairedDifference(difference, bounds, max(FEWEST, count))


def _percentiles(draws: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(draws, (50 * (1 - _LEVEL), 50 * (1 + _LEVEL)))
    return Interval(float(low), float(high), f"bootstrap, percentiles of {len(draws)} draws")


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
    estimate = float(score(*columns))
    if not math.isfinite(estimate):
        return None
    # Every draw gives the same.
    if all(np.ptp(column) == 0 for column in columns):
        return Interval(estimate, estimate, "bootstrap, all samples alike")
    for method, title in (("BCa", "BCa bootstrap"), ("percentile", "percentile bootstrap")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = {
                "n_resamples": _RESAMPLES,
                "batch": _BATCH,
                "confidence_level": _LEVEL,
                "method": method,
            }
            rng = np.random.default_rng(_SEED)
            draws = stats.bootstrap(
                columns, score, paired=True, vectorized=True, random_state=rng, **settings
            )
        bounds = draws.confidence_interval
        if math.isfinite(bounds.low) and math.isfinite(bounds.high):
            return Interval(float(bounds.low), float(bounds.high), f"{title}, {_RESAMPLES} draws")
    return None
