"""What was seen of one value, sample by sample and channel by channel."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.memo import Memoizable
from rtlab.core.moments import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.ranges import Range
    from rtlab.core.variant import Precision


@dataclasses.dataclass(frozen=True, eq=False)
class ActivationStats(Memoizable):
    """One value in the reference, over some samples.

    ``histogram`` holds every element. ``peaks`` is the largest magnitude of each channel in each sample, a float64
    array of shape ``(samples, channels)``; one channel stands for all where the value has none. ``squares`` is the mean
    square of each channel, shape ``(channels,)``. Where a batch holds several samples that lie in one tensor in another
    way, ``peaks`` has a row for each batch.
    """

    value: str
    histogram: Range
    peaks: NDArray[np.float64]
    squares: NDArray[np.float64]

    @property
    def amax(self) -> float:
        """The largest magnitude."""
        return self.histogram.amax

    @property
    def rms(self) -> float:
        """The root of the mean square of all elements."""
        return float(np.sqrt(self.squares.mean())) if self.squares.size else 0.0

    @functools.cached_property
    def samples(self) -> NDArray[np.float64]:
        """The largest magnitude in each sample, shape ``(samples,)``."""
        sample_peaks: NDArray[np.float64] = self.peaks.max(axis=1, initial=0.0)
        return sample_peaks

    @functools.cached_property
    def channels(self) -> NDArray[np.float64]:
        """The largest magnitude in each channel, shape ``(channels,)``."""
        channel_peaks: NDArray[np.float64] = self.peaks.max(axis=0, initial=0.0)
        return channel_peaks

    @functools.cached_property
    def moments(self) -> Moments:
        """Sums over the histogram, from which the noise at any threshold follows."""
        return Moments.of(self.histogram)

    def compute_noise(self, amax: float, precision: Precision) -> float:
        """The mean squared error of rounding to the grid of a precision with this threshold."""
        squared_error = self.moments.compute_noise(np.array([amax]), precision.stored)
        return float(squared_error[0]) / max(self.histogram.count, 1)

    def compute_clipped_share(self, amax: float) -> float:
        """The share of all elements beyond a threshold."""
        return float(self.moments.compute_clipped_share(np.array([amax]))[0]) if self.histogram.count else 0.0
