"""How far a score may lie from that of all samples of its kind: 95 % intervals, and tests between two variants."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rtlab.core.metrics import Link, Tally, linked
from rtlab.core.schema import Meaning

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Below it nothing is concluded.
FEWEST = 8
#: How sure an interval is, and the normal quantile that belongs to it.
_LEVEL, _Z = 0.95, 1.959963984540054
_RESAMPLES, _SEED, _BATCH = 2000, 0, 250


@dataclasses.dataclass(frozen=True)
class Interval:
    """A 95 % interval, in the unit of what it is of; ``method`` says how it was found."""

    low: Annotated[float, Meaning("From", origin="estimated")]
    high: Annotated[float, Meaning("To", origin="estimated")]
    method: Annotated[str, Meaning("Method")]


@dataclasses.dataclass(frozen=True)
class Paired:
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
        found = self.interval
        return found is not None and self.samples >= FEWEST and (found.low > 0 or found.high < 0)


def wilson(hits: int, samples: int) -> Interval:
    """Wilson's score interval for a share of hits (Wilson 1927), in percent, without continuity correction."""
    from scipy import stats

    found = stats.binomtest(hits, samples).proportion_ci(_LEVEL, method="wilson")
    return Interval(100.0 * float(found.low), 100.0 * float(found.high), "Wilson")


def mcnemar(lost: int, won: int) -> float:
    """McNemar's test in its exact form: the two-sided binomial test of ``lost`` among those that differ; 1 for none."""
    from scipy import stats

    return float(stats.binomtest(lost, lost + won).pvalue) if lost + won else 1.0


def paired_shares(lost: int, won: int, samples: int) -> Interval:
    """Interval of the difference of two paired shares in percent, the second minus the first.

    The adjusted Wald interval of Bonett and Price (2012): with one sample more in each of the two cells that differ,
    p = (won + 1) / (n + 2) and q = (lost + 1) / (n + 2), it is p - q ± z sqrt((p + q - (p - q)²) / (n + 2)).
    """
    p, q = (won + 1) / (samples + 2), (lost + 1) / (samples + 2)
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


def paired(first: Tally, second: Tally) -> Paired | None:
    """The second score minus the first, on the samples that both were counted on; None where they are not the same.

    Where one of them was stopped earlier, the first samples are compared that both have.
    """
    if first.amounts is None or second.amounts is None or first.weights is None or second.weights is None:
        return _redrawn(first, second)
    count = min(len(first.amounts), len(second.amounts))
    a, b = first.amounts[:count], second.amounts[:count]
    v, w = first.weights[:count], second.weights[:count]
    if not (count and v.sum() and w.sum()):
        return None
    if first.hits and second.hits:
        lost, won = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
        difference = 100.0 * (won - lost) / count
        if second.picked:
            return Paired(difference, None, count, lost, won)
        return Paired(difference, paired_shares(lost, won, count), count, lost, won, mcnemar(lost, won))
    difference = linked(second.link, b.sum() / w.sum()) - linked(first.link, a.sum() / v.sum())
    found = None if second.picked else _bootstrap(second.link, b, w, a, v)
    return Paired(float(difference), found, count)


def _redrawn(first: Tally, second: Tally) -> Paired | None:
    """What two metrics say of the same draws."""
    difference = second.value - first.value
    if first.resampled is None or second.resampled is None:
        return None
    count = min(len(first.resampled), len(second.resampled))
    found = _percentiles(second.resampled[:count] - first.resampled[:count])
    return Paired(difference, found, max(FEWEST, count))


def _percentiles(drawn: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(drawn, (50 * (1 - _LEVEL), 50 * (1 + _LEVEL)))
    return Interval(float(low), float(high), f"bootstrap, percentiles of {len(drawn)} draws")


def _bootstrap(link: Link, *given: NDArray[np.float64]) -> Interval | None:
    """BCa bootstrap (Efron 1987) of a score, or of the difference to a second one, over samples drawn anew.

    ``given`` are amounts and weights, and those of the score that is taken away.
    """
    from scipy import stats

    def score(*drawn: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                linked(link, a.sum(axis=axis) / w.sum(axis=axis))
                for a, w in zip(drawn[::2], drawn[1::2], strict=True)
            ]
        found: NDArray[np.float64] = parts[0] if len(parts) == 1 else parts[0] - parts[1]
        return found

    if len(given[0]) < 2:
        return None
    whole = float(score(*given))
    if not math.isfinite(whole):
        return None
    if all(_steady(a, w) for a, w in zip(given[::2], given[1::2], strict=True)):
        return Interval(whole, whole, "bootstrap, all samples alike")
    for method, title in (("BCa", "BCa bootstrap"), ("percentile", "percentile bootstrap")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                given,
                score,
                paired=True,
                vectorized=True,
                n_resamples=_RESAMPLES,
                batch=_BATCH,
                confidence_level=_LEVEL,
                method=method,
                random_state=np.random.default_rng(_SEED),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return Interval(float(found.low), float(found.high), f"{title}, {_RESAMPLES} draws")
    return None


def _steady(amounts: NDArray[np.float64], weights: NDArray[np.float64]) -> bool:
    """Whether every draw gives the same."""
    return bool(np.ptp(amounts) == 0 and np.ptp(weights) == 0)
