"""Quantization noise of a value at a threshold, estimated from its histogram.

Elements of a bin count as its middle (the last one ends at the largest magnitude), elements below the histogram as half
of its first edge. A bin is at most 1/1,024 of its magnitude wide, so noise 65 dB below the signal is not resolved.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.precision import NumberFormat, Precision, compute_sqnr
from rtlab.core.ranges import BINS, MANTISSA_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.ranges import Range

#: Lower bits of a float64 within a bin.
_BITS_BELOW = 52 - MANTISSA_BITS


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Running sums over the bins of a range.

    Bin 0 is below the histogram. ``sums`` has shape ``(3, BINS + 2)``: column i has the number of elements in the first
    i bins, the sum of their magnitudes, and that of their squares.
    """

    value_range: Range
    middles: NDArray[np.float64]
    sums: NDArray[np.float64]

    @classmethod
    def of(cls, value_range: Range) -> Moments:
        """Add up a range."""
        edges = value_range.edges
        upper = np.minimum(edges[1:], max(value_range.amax, edges[0]))
        middles = np.concatenate([[edges[0] / 2], (edges[:-1] + np.maximum(upper, edges[:-1])) / 2])
        if not value_range.counts.any():  # nothing but subnormals
            middles[0] = min(middles[0], value_range.amax)
        counts = np.concatenate([[value_range.small], value_range.counts]).astype(np.float64)
        sums = np.zeros((3, BINS + 2))
        np.cumsum(counts, out=sums[0, 1:])
        np.cumsum(counts * middles, out=sums[1, 1:])
        np.cumsum(counts * middles * middles, out=sums[2, 1:])
        return cls(value_range, middles, sums)

    def compute_noise(
        self, amax: NDArray[np.float64], stored: NumberFormat = Precision.INT8.stored
    ) -> NDArray[np.float64]:
        """Sum of the squared errors of all elements at each threshold, shape and unit squared as ``amax``."""
        levels = stored.magnitudes * (amax[:, None] / stored.largest)
        ends = self._count_bins_below((levels[:, 1:] + levels[:, :-1]) / 2)
        first, last = np.zeros((len(amax), 1), np.intp), np.full((len(amax), 1), BINS + 1)
        ends = np.concatenate([first, ends, last], axis=1)
        count, linear, square = np.diff(self.sums.take(ends, axis=1), axis=2)
        # Each level is as far from what it stands for as sum (x - level)^2 says.
        errors = (square - 2 * levels * linear + levels * levels * count).sum(axis=1)
        # What is left of a difference of large sums may be less than nothing.
        floor = 1e-15 * self.sums[2, -1]
        result: NDArray[np.float64] = np.where(errors > floor, errors, 0.0)
        return result

    def compute_clipped_share(self, amax: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of all elements, zeros included, beyond each threshold; the bin that it lies in is divided."""
        value_range = self.value_range
        inside = np.interp(amax, value_range.edges, np.concatenate([[0], np.cumsum(value_range.counts)]))
        share: NDArray[np.float64] = 1 - (value_range.zeros + value_range.small + inside) / value_range.count
        return np.where(amax >= value_range.amax, 0.0, np.maximum(share, 0.0))

    def compute_sqnr(
        self, amax: NDArray[np.float64], stored: NumberFormat = Precision.INT8.stored
    ) -> NDArray[np.float64]:
        """Signal-to-noise ratio at each threshold in decibels, infinite where there is no noise."""
        signal = float(self.sums[2, -1])
        return np.array([compute_sqnr(signal, noise) for noise in self.compute_noise(amax, stored).tolist()])

    def _count_bins_below(self, bounds: NDArray[np.float64]) -> NDArray[np.intp]:
        """How many bins have their middle below each bound."""
        # The bin that a bound lies in is told by its top bits, which is a tenth of the time of a search.
        first = np.float64(self.value_range.edges[0]).view(np.int64) >> _BITS_BELOW
        at: NDArray[np.intp] = (bounds.view(np.int64) >> _BITS_BELOW) - first + 1
        at = np.clip(at, 0, BINS)
        at += self.middles.take(at) <= bounds
        return at
