"""From an observed range to a threshold: one function per method, all from the same histogram.

Every function takes a ``Range`` and returns *amax*, the magnitude that the largest quantized number stands for,
in the value's unit. Larger magnitudes saturate.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.scale import CalibratorChoice, Scale
from rtlab.core.variant import FIXED, Calibrator, Method, Precision
from rtlab.errors import CalibrationError
from rtlab.quantize.noise import Moments, make_magnitude_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.ranges import Range, Ranges

#: Linear bins over [0, amax] and quantization levels of the entropy search (Migacz, GTC 2017, S7310).
ENTROPY_BINS = int(Calibrator.ENTROPY["bins"])
ENTROPY_LEVELS = int(Calibrator.ENTROPY["levels"])
#: Candidates that the entropy search rates in one step, so that its tables stay in the processor's cache, and
#: the size of a search up to which the table of its levels is kept.
_CANDIDATE_BATCH, _MAX_CACHED_STARTS = 256, 1 << 19
#: What ``auto`` accepts: the share of elements that a threshold clips, and how many decibels its SQNR is below the
#: best.
MAX_CLIPPED, MAX_SQNR_LOSS = 3e-4, 4.0
#: What a threshold may clip, and lose against minmax in decibels, before one has to doubt it: on trained networks whose
#: INT8 is good entropy2 clips at most 0.29 % of a value and loses at most 7.7 dB; where it collapses, 10 to 100 % and
#: 37 dB. A clipped share that costs less than a decibel is no harm: levels of a picture close to the largest.
HEALTHY_CLIPPED, HEALTHY_SQNR_LOSS, _MIN_SQNR_LOSS = 3e-3, 8.0, 1.0
#: An SQNR of more decibels says no more, see ``rtlab.quantize.noise``; and a difference of fewer is not worth a word.
MAX_SQNR, _MIN_REPORTED_LOSS = 65.0, 0.05
#: Shares from here on are told to three digits.
_TENTH = 0.1
#: Divergences, in nats, that differ by no more than the rounding of their sums are equal.
_ROUNDING = 1e-12


def scales(
    ranges: Ranges, calibrator: Calibrator, *, precision: Precision = Precision.INT8
) -> Mapping[str, Scale]:
    """A scale for every observed value.

    A value that was zero throughout gets the threshold 1, which represents zero exactly, and a note.

    Raises:
        CalibrationError: a value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    return {
        name: scale(name, value_range, calibrator, precision) for name, value_range in ranges.values.items()
    }


def scale(name: str, value_range: Range, calibrator: Calibrator, precision: Precision) -> Scale:
    """The scale of one value.

    Raises:
        CalibrationError: the value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    return ThresholdSearch(value_range, precision).compute_scale(name, calibrator)


class ThresholdSearch:
    """Thresholds of one value, each of them sought once however many calibrators ask for it."""

    def __init__(self, value_range: Range, precision: Precision = Precision.INT8) -> None:
        self.value_range, self.precision = value_range, precision
        self._thresholds: dict[Calibrator, float] = {}

    @functools.cached_property
    def moments(self) -> Moments:
        """What the noise at any threshold follows from."""
        return Moments.of(self.value_range)

    def compute_scale(self, name: str, calibrator: Calibrator) -> Scale:
        """The scale of the value, which messages call ``name``.

        Raises:
            CalibrationError: the value was observed without a single element.
            VariantError: activations have no scale in this precision.
        """
        largest = float(make_magnitude_grid(self.precision)[-1])
        if self.value_range.count == 0:
            raise CalibrationError(
                f'Cannot calibrate value "{name}": it had no elements in any batch. '
                "Give data that reaches this part of the model."
            )
        if self.value_range.amax == 0:
            note = (
                f'value "{name}" was zero in all {self.value_range.count} elements: any scale represents it'
            )
            return Scale(1.0, note, largest)
        choice = self.choose_calibrator() if calibrator.method is Method.AUTO else None
        amax = self.compute_amax(choice.calibrator if choice else calibrator)
        return Scale(amax, "", largest, choice, self.describe_clipping(amax))

    def compute_amax(self, calibrator: Calibrator) -> float:
        """The threshold of a method of its own, which ``auto`` is not."""
        if calibrator not in self._thresholds:
            threshold = self._compute_threshold(calibrator)
            # A threshold can only be zero where nearly everything was; the largest magnitude then is the only fact
            # left.
            self._thresholds[calibrator] = threshold if threshold > 0 else self.value_range.amax
        return self._thresholds[calibrator]

    def choose_calibrator(self) -> CalibratorChoice:
        """Which of the fixed methods' thresholds ``auto`` takes: the smallest one that loses little.

        One passes that clips at most 3 elements in 10,000 and whose SQNR is at most 4 dB below the best of them. Of
        those the smallest has the finest steps. The rule was found by measuring. Rounding meets every element of every
        sample, clipping a few of a few, so trained networks keep more of their output below the threshold of the best
        SQNR: 2 to 3 dB more on four of eight. With 6 dB in place of 4 they keep more still; but clipped values,
        unlike rounded ones, do not cancel in a mean, and random networks then lose up to 12 dB. In a floating-point
        type the steps grow with the magnitude, and there is nothing to win.
        """
        if self.precision is not Precision.INT8:
            return CalibratorChoice(
                Calibrator.MINMAX,
                f"the steps of {self.precision} grow with the magnitude: clipping wins nothing",
            )
        amax = np.array([self.compute_amax(c) for c in FIXED])
        clipped, sqnr = (
            self.moments.compute_clipped_share(amax),
            np.minimum(self.moments.compute_sqnr(amax, self.precision), MAX_SQNR),
        )
        loss = sqnr.max() - sqnr
        passes = (clipped <= MAX_CLIPPED) & (loss <= MAX_SQNR_LOSS)
        # The first of equal thresholds, so that what clips nothing is called minmax.
        at = min(np.flatnonzero(passes), key=lambda i: amax[i], default=0)
        best = FIXED[int(sqnr.argmax())]
        details = [f"clips {_format_percent(clipped[at])}" if clipped[at] else "clips nothing"]
        if best != FIXED[at] and loss[at] >= _MIN_REPORTED_LOSS:
            details.append(f"{loss[at]:.1f} dB below {best}")
        rejections: dict[str, list[str]] = {}
        for i in np.flatnonzero((amax < amax[at]) & ~passes):
            reason = (
                f"clip {_format_percent(clipped[i])}"
                if clipped[i] > MAX_CLIPPED
                else f"lose {loss[i]:.1f} dB"
            )
            rejections.setdefault(reason, []).append(str(FIXED[i]))
        words = f"the smallest threshold that loses little ({', '.join(details)})"
        if rejections:
            words += "; refused: " + ", ".join(
                f"{', '.join(n)} ({reason})" for reason, n in rejections.items()
            )
        return CalibratorChoice(FIXED[at], words)

    def describe_clipping(self, amax: float) -> str:
        """What is wrong with a threshold that clips more than is healthy, against keeping everything; else empty."""
        if amax >= self.value_range.amax:
            return ""
        both = np.array([amax, self.value_range.amax])
        sqnr = np.minimum(self.moments.compute_sqnr(both, self.precision), MAX_SQNR)
        clipped, loss = float(self.moments.compute_clipped_share(both)[0]), float(sqnr[1] - sqnr[0])
        if loss > HEALTHY_SQNR_LOSS or (clipped > HEALTHY_CLIPPED and loss > _MIN_SQNR_LOSS):
            return f"clips {_format_percent(clipped)} of the elements and loses {loss:.1f} dB against minmax"
        return ""

    def _compute_threshold(self, calibrator: Calibrator) -> float:
        value_range, method = self.value_range, calibrator.method
        if method is Method.MINMAX:
            return minmax(value_range)
        if method is Method.PERCENTILE:
            return percentile(value_range, p=calibrator["p"])
        if method is Method.MSE:
            candidate_count = int(calibrator["candidates"])
            return mse(
                value_range, candidates=candidate_count, precision=self.precision, moments=self.moments
            )
        search = entropy if method is Method.ENTROPY else entropy2
        return search(value_range, bins=int(calibrator["bins"]), levels=int(calibrator["levels"]))


def _format_percent(share: float) -> str:
    return f"{100 * share:.{2 if share < _TENTH else 3}g} %"


def minmax(value_range: Range) -> float:
    """The largest magnitude; nothing saturates."""
    return value_range.amax


def entropy(value_range: Range, *, bins: int = ENTROPY_BINS, levels: int = ENTROPY_LEVELS) -> float:
    """Least KL divergence where the first bin, in which all zeros lie, takes the count of the second.

    So does the search that NVIDIA published (``pytorch_quantization.calib.histogram``); TensorRT's own is closed. With
    zeros counted as they are, half of a ReLU's output would stand in one bin and push the threshold far down.
    """
    histogram = resample_linear(value_range, bins)
    histogram[0] = histogram[1]
    return _minimize_divergence(value_range, histogram, levels)


def entropy2(value_range: Range, *, bins: int = ENTROPY_BINS, levels: int = ENTROPY_LEVELS) -> float:
    """Least KL divergence over the nonzero magnitudes.

    Zero is represented exactly at any scale, so the half of an activation that a ReLU cut off must not decide
    where the other half is clipped; small magnitudes keep their count, which is the one difference from ``entropy``.
    """
    return _minimize_divergence(value_range, resample_linear(value_range, bins), levels)


def percentile(value_range: Range, *, p: float = Calibrator.PERCENTILE["p"]) -> float:
    """The magnitude that ``p`` percent of all elements do not exceed."""
    below = value_range.zeros + value_range.small + np.concatenate([[0], np.cumsum(value_range.counts)])
    rank = p / 100 * value_range.count
    i = int(np.searchsorted(below, rank))
    if i == 0:  # nearly all elements are zero, which any scale represents
        return value_range.amax
    edges = value_range.edges
    fraction = (rank - below[i - 1]) / (below[i] - below[i - 1])
    return min(float(edges[i - 1] + fraction * (edges[i] - edges[i - 1])), value_range.amax)


def mse(
    value_range: Range,
    *,
    candidates: int = int(Calibrator.MSE["candidates"]),
    precision: Precision = Precision.INT8,
    moments: Moments | None = None,
) -> float:
    """The threshold with the least mean square error on the precision's grid, among equal steps up to the maximum."""
    if not value_range.counts.any():  # nothing but subnormals
        return value_range.amax
    thresholds = value_range.amax * np.arange(1, candidates + 1) / candidates
    return float(
        thresholds[np.argmin((moments or Moments.of(value_range)).compute_noise(thresholds, precision))]
    )


def compute_kl_divergence(
    histogram: NDArray[np.float64], *, levels: int = ENTROPY_LEVELS
) -> NDArray[np.float64]:
    """KL divergence of clipping a histogram of magnitudes after its first ``i`` bins, for every ``i >= levels``.

    For each candidate, the reference P is the first ``i`` bins with everything beyond added to the last of
    them; the candidate Q is the same bins without that, merged into ``levels`` levels and spread again evenly
    over those bins of each level that were not empty (Migacz, GTC 2017, S7310). Where the last bin is empty
    and something lies beyond, Q rules out what P has seen, and the divergence is infinite: the search never clips
    within a gap. So it is where nothing is kept; there the code that NVIDIA published divides zero by zero.

    Args:
        histogram: Counts, shape ``(bins,)``.
        levels: Number of quantization levels.

    Returns:
        Divergence in nats, shape ``(bins - levels + 1,)``; entry k belongs to ``i = levels + k``.
    """
    bins = len(histogram)
    size = np.arange(levels, bins + 1)
    total = float(histogram.sum())
    nonempty = histogram > 0
    mass = np.concatenate([[0.0], np.cumsum(histogram)])
    number = np.concatenate([[0.0], np.cumsum(nonempty)])
    inlier_mass = mass[size]
    outlier_mass = total - inlier_mass
    impossible = ((outlier_mass > 0) & ~nonempty[size - 1]) | (inlier_mass == 0)
    # sum P log Q, a level at a time, since all its filled bins share one Q: first without what all Q are
    # divided by, and without what lies beyond
    cross = np.empty(len(size))
    for first in range(0, len(size), _CANDIDATE_BATCH):
        part = slice(first, first + _CANDIDATE_BATCH)
        start = _get_level_starts(bins, levels, first)
        at = mass.take(start)
        level = at[:, 1:] - at[:, :-1]
        at = number.take(start)
        height = np.maximum(at[:, 1:] - at[:, :-1], 1.0)
        np.divide(level, height, out=height)
        height[height == 0] = 1.0  # an empty level contributes nothing
        log = np.log(height, out=height)
        cross[part] = np.einsum("ij,ij->i", level, log) + outlier_mass[part] * log[:, -1]
    cross -= total * np.log(np.maximum(inlier_mass, 1.0))
    # sum P log P, from running sums; only the last bin differs between candidates
    inner = np.concatenate([[0.0], np.cumsum(histogram * _log(histogram))])[size - 1]
    last = histogram[size - 1] + outlier_mass
    p_log_p = inner + last * _log(last) - total * np.log(total)
    result: NDArray[np.float64] = np.where(impossible, np.inf, (p_log_p - cross) / total)
    return result


def _get_level_starts(bins: int, levels: int, first: int) -> NDArray[np.intp]:
    """The first bin of each level and the end, for ``_CANDIDATE_BATCH`` candidates: ``(.., levels + 1)``."""
    return (
        _get_cached_level_starts
        if bins * levels <= _MAX_CACHED_STARTS
        else _get_cached_level_starts.__wrapped__
    )(bins, levels, first)


@functools.lru_cache(maxsize=64)
def _get_cached_level_starts(bins: int, levels: int, first: int) -> NDArray[np.intp]:
    size = np.arange(levels, bins + 1)[first : first + _CANDIDATE_BATCH, None]
    # Bin b of i belongs to level floor(b * levels / i), so level j starts at bin ceil(j * i / levels).
    starts: NDArray[np.intp] = -(-np.arange(levels + 1) * size // levels)
    return starts


def resample_linear(value_range: Range, bins: int) -> NDArray[np.float64]:
    """Nonzero magnitudes in ``bins`` bins of equal width over [0, amax], resampled from the logarithmic ones.

    A logarithmic bin that straddles an edge is divided in proportion, with running sums rounded to whole
    counts, so that a lone element stays in one bin; the sum is exact. A logarithmic bin between two empty ones holds
    one value of a value that has few (the levels of a picture, a mask): it goes into the bin of its middle whole.
    """
    bin_edges = np.linspace(0.0, value_range.amax, bins + 1)
    edges, counts = value_range.edges, value_range.counts
    alone = counts > 0
    alone[1:] &= counts[:-1] == 0
    alone[:-1] &= counts[1:] == 0
    below = value_range.small + np.concatenate([[0], np.cumsum(np.where(alone, 0, counts))]).astype(
        np.float64
    )
    at = np.interp(bin_edges, edges, below)
    # The last bin ends at the maximum although its logarithmic bin reaches further; "small" lies in the
    # first.
    at[0], at[-1] = 0.0, below[-1]
    result: NDArray[np.float64] = np.diff(np.rint(at))
    lone = np.flatnonzero(alone)
    middles = (edges[lone] + edges[lone + 1]) / 2
    into = np.minimum((middles / value_range.amax * bins).astype(np.intp), bins - 1)
    result += np.bincount(into, counts[lone], bins)
    return result


def display(ranges: Ranges, value: str, bins: int = 64) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A value's magnitudes for a picture.

    Returns:
        Edges in the value's unit, shape ``(bins + 1,)``, and counts, shape ``(bins,)``; exact zeros are
        counted in the first bin. A value that was zero throughout has edges from 0 to 1.

    Raises:
        CalibrationError: the value was not observed.
    """
    value_range = ranges.values.get(value)
    if value_range is None:
        raise CalibrationError(
            f'Cannot show the magnitudes of "{value}": it is not among the {len(ranges.values)} observed values. '
            "Choose one of ranges.values."
        )
    if value_range.amax == 0:
        counts, edges = np.zeros(bins), np.linspace(0.0, 1.0, bins + 1)
    else:
        counts, edges = resample_linear(value_range, bins), np.linspace(0.0, value_range.amax, bins + 1)
    counts[0] += value_range.zeros
    return edges, counts


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm, with 0 for 0: an empty bin contributes nothing."""
    return np.log(x, out=np.zeros_like(x), where=x > 0)


def _minimize_divergence(value_range: Range, histogram: NDArray[np.float64], levels: int) -> float:
    if not histogram.any():  # nothing but what stood in the first bin
        return value_range.amax
    divergences = compute_kl_divergence(histogram, levels=levels)
    # Of equal candidates the largest, as in NVIDIA's search; equal means to the rounding of the sums.
    best = levels + int(np.flatnonzero(divergences <= divergences.min() + _ROUNDING)[-1])
    # The upper edge of the last kept bin, so that keeping all bins is exactly minmax.
    return value_range.amax * best / len(histogram)
