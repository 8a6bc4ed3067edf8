"""The calibrators: one function each, from an observed range to a threshold.

A function takes a ``Range`` and its parameters, and returns *amax*, the magnitude of the largest quantized number in
the value's unit; larger magnitudes saturate. ``calibrator`` enters it in ``METHODS``, from which names, choices and the
glossary follow. It is called where ``Range.amax`` is above 0 and returns that at most; a 0 counts as ``Range.amax``.
Zeros, and what lies below the first bin, are not in ``Range.counts``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rtlab.core.moments import Moments
from rtlab.core.precision import NumberFormat, Precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.ranges import Range

#: TensorRT's own calibrators, as the header of a calibration cache names them.
TENSORRT_CALIBRATORS = ("EntropyCalibration2", "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration")
#: Bins and levels of the entropy search, and thresholds that ``mse`` tries.
_BINS, _LEVELS, _CANDIDATES = 2048, 128, 128
#: Candidates that the entropy search rates in one step, so that its tables stay in the processor's cache.
_CANDIDATE_BATCH = 256
#: Divergences, in nats, that differ by no more than the rounding of their sums are equal.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Method:
    """A calibrator.

    Attributes:
        name: How it is written.
        summary: What it does in few words, for a menu.
        meaning: The glossary's sentence; empty where that of another one covers it.
        search: From a range to its threshold; None for ``auto``, which takes another one's.
        parameters: Default, least and greatest value of each; the first may be written without its name.
        in_auto: Whether ``auto`` may take its threshold.
        tensorrt: Which of ``TENSORRT_CALIBRATORS`` follows the same rule; empty where none does.
        spellings: Other words for it.
    """

    name: str
    summary: str
    meaning: str = ""
    search: Callable[..., float] | None = None
    parameters: Mapping[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)
    in_auto: bool = False
    tensorrt: str = ""
    spellings: tuple[str, ...] = ()


#: All calibrators by name, in the order in which they are listed.
METHODS: dict[str, Method] = {"auto": Method("auto", "for each tensor the one with the least error")}
_Search = TypeVar("_Search", bound=Callable[..., float])


def calibrator(
    summary: str,
    meaning: str,
    *,
    in_auto: bool = True,
    tensorrt: str = "",
    spellings: tuple[str, ...] = (),
    **bounds: tuple[float, float],
) -> Callable[[_Search], _Search]:
    """Enter a function in ``METHODS`` under its name; arguments are the attributes of ``Method``.

    It takes a range, and by name its parameters, whose least and greatest values are ``bounds``, and where it has such
    a parameter ``stored``: how the quantized numbers are stored.
    """

    def register(search: _Search) -> _Search:
        name, signature = search.__name__, inspect.signature(search).parameters
        parameters = {key: (signature[key].default, *ends) for key, ends in bounds.items()}
        METHODS[name] = Method(name, summary, meaning, search, parameters, in_auto, tensorrt, spellings)
        return search

    return register


@calibrator(
    "the largest value, nothing is clipped",
    "The calibrator that takes the largest magnitude seen as amax: nothing is clipped.",
    tensorrt="MinMaxCalibration",
)
def minmax(value_range: Range) -> float:
    """The largest magnitude; nothing saturates."""
    return value_range.amax


@calibrator(
    "the least KL divergence, zeros left out",
    "A calibrator that puts amax where the quantized histogram tells least apart from the whole one "
    "(Kullback-Leibler divergence); entropy2 is TensorRT's newer form.",
    tensorrt="EntropyCalibration",
    spellings=("entropy2",),
)
def entropy(value_range: Range) -> float:
    """Least KL divergence where the first bin, in which all zeros lie, takes the count of the second.

    As in NVIDIA's ``pytorch_quantization.calib.histogram``; TensorRT's own code is closed. With zeros counted, half of
    a ReLU's output would be in one bin and push the threshold far down.
    """
    histogram = resample_linear(value_range, _BINS)
    histogram[0] = histogram[1]
    return _minimize_divergence(value_range, histogram)


@calibrator("the least KL divergence, TensorRT's newer form", "", tensorrt="EntropyCalibration2")
def entropy2(value_range: Range) -> float:
    """Least KL divergence over the nonzero magnitudes.

    Zeros are exact at any scale; small magnitudes keep their count, which is the one difference from ``entropy``.
    """
    return _minimize_divergence(value_range, resample_linear(value_range, _BINS))


@calibrator(
    "a share of the numbers is clipped",
    "The calibrator that clips a given share of the numbers, such as the largest 0.1 %.",
    tensorrt="LegacyCalibration",
    p=(50.0, 100.0),
)
def percentile(value_range: Range, *, p: float = 99.99) -> float:
    """The magnitude that ``p`` percent of all elements do not exceed."""
    below = value_range.zeros + value_range.small + np.concatenate([[0], np.cumsum(value_range.counts)])
    rank = p / 100 * value_range.count
    i = int(np.searchsorted(below, rank))
    if i == 0:  # nearly all elements are zero, which any scale represents
        return value_range.amax
    edges = value_range.edges
    fraction = (rank - below[i - 1]) / (below[i] - below[i - 1])
    return min(float(edges[i - 1] + fraction * (edges[i] - edges[i - 1])), value_range.amax)


@calibrator(
    "the least squared error", "The calibrator that chooses the amax with the least mean squared error."
)
def mse(value_range: Range, *, stored: NumberFormat = Precision.INT8.stored) -> float:
    """The threshold with the least mean square error on the grid, among equal steps up to the maximum."""
    if not value_range.counts.any():  # nothing but subnormals
        return value_range.amax
    thresholds = value_range.amax * np.arange(1, _CANDIDATES + 1) / _CANDIDATES
    return float(thresholds[np.argmin(Moments.of(value_range).compute_noise(thresholds, stored))])


def compute_kl_divergence(histogram: NDArray[np.float64], *, levels: int = 128) -> NDArray[np.float64]:
    """KL divergence of clipping a histogram of magnitudes after its first ``i`` bins, for every ``i >= levels``.

    The reference P is the first ``i`` bins with everything beyond added to the last; the candidate Q is the same bins
    without that, merged into ``levels`` levels and spread evenly over the filled bins of each level (Migacz, GTC 2017,
    S7310). It is infinite where the last bin is empty and something lies beyond, and where nothing is kept.

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
        start = _compute_level_starts(bins, levels, first)
        level = np.diff(mass.take(start))
        height = np.maximum(np.diff(number.take(start)), 1.0)
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


@functools.lru_cache(maxsize=64)
def _compute_level_starts(bins: int, levels: int, first: int) -> NDArray[np.intp]:
    """The first bin of each level and the end, for ``_CANDIDATE_BATCH`` candidates: ``(.., levels + 1)``."""
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
    # The last bin ends at the maximum although its logarithmic bin reaches further; "small" is in the first.
    at[0], at[-1] = 0.0, below[-1]
    result: NDArray[np.float64] = np.diff(np.rint(at))
    lone = np.flatnonzero(alone)
    middles = (edges[lone] + edges[lone + 1]) / 2
    into = np.minimum((middles / value_range.amax * bins).astype(np.intp), bins - 1)
    result += np.bincount(into, counts[lone], bins)
    return result


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm, with 0 for 0: an empty bin contributes nothing."""
    return np.log(x, out=np.zeros_like(x), where=x > 0)


def _minimize_divergence(value_range: Range, histogram: NDArray[np.float64]) -> float:
    if not histogram.any():  # nothing outside the first bin
        return value_range.amax
    divergences = compute_kl_divergence(histogram, levels=_LEVELS)
    # Of equal candidates the largest, as in NVIDIA's search; equal means to the rounding of the sums.
    best = _LEVELS + int(np.flatnonzero(divergences <= divergences.min() + _ROUNDING)[-1])
    # The upper edge of the last kept bin, so that keeping all bins is exactly minmax.
    return value_range.amax * best / len(histogram)
