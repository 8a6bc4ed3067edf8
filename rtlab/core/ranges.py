"""Observed ranges of a model's activations: histograms that add up exactly.

The histogram's bins come from the top bits of the float32: 1,024 bins per power of two, for the sixteen powers of two
below the largest magnitude. Such bins need no range beforehand and add up exactly, so neither the order of the samples
nor the size of a batch changes a count.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bits of the mantissa that tell bins apart: 1,024 bins per octave are never wider than 1/1,024 of the magnitude.
MANTISSA_BITS = 10
#: Powers of two that are resolved; what lies further below the largest magnitude is one count, ``small``.
OCTAVES = 16
BINS = OCTAVES << MANTISSA_BITS
#: Below this exponent field the first bin would start beneath zero.
LOWEST_TOP = OCTAVES
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True, eq=False)
class Range:
    """The observed range of one value.

    ``min`` and ``max`` are exact. Of ``count`` elements ``zeros`` are exactly zero and ``small`` are nonzero but below
    the histogram; ``counts`` are the other magnitudes, an int64 array of shape ``(BINS,)`` with the edges ``edges``.
    ``top`` is the exponent field of the largest magnitude. A sampled element counts as several.
    """

    min: float
    max: float
    count: int
    zeros: int
    small: int
    top: int
    counts: NDArray[np.int64]

    @property
    def amax(self) -> float:
        """The largest magnitude, exact."""
        return max(-self.min, self.max, 0.0)

    @property
    def edges(self) -> NDArray[np.float64]:
        """Bin edges in the value's unit, shape ``(BINS + 1,)``; bin i holds ``edges[i] <= x < edges[i + 1]``."""
        # One bin past the largest finite float is infinity, which has no place on an axis.
        edges: NDArray[np.float64] = np.minimum(_unit_edges() * 2.0 ** (self.top - 126), _LARGEST)
        return edges

    def merge(self, other: Range) -> Range:
        """Both observations together: associative, commutative, and exact."""
        top = max(self.top, other.top)
        counts = np.zeros(BINS, np.int64)
        small = self.small + other.small
        for part in (self, other):
            small += add_shifted(counts, part.counts, (top - part.top) << MANTISSA_BITS)
        return Range(
            min=min(self.min, other.min),
            max=max(self.max, other.max),
            count=self.count + other.count,
            zeros=self.zeros + other.zeros,
            small=small,
            top=top,
            counts=counts,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Ranges:
    """Observed ranges by value name, over ``samples`` samples.

    With ``stride`` 1 the histograms have every element, otherwise at most one of so many of large maps, see
    ``Collector``; ``min`` and ``max`` are of all elements.
    """

    values: Mapping[str, Range]
    samples: int = 0
    stride: int = 1

    def __repr__(self) -> str:
        return f"<Ranges of {len(self.values)} values over {self.samples} samples>"

    def merge(self, other: Ranges) -> Ranges:
        """Both observations together; a value that only one of them knows is kept."""
        mine, theirs = self.values, other.values
        both = {name: mine[name].merge(theirs[name]) for name in mine if name in theirs}
        return Ranges(
            {**mine, **theirs, **both}, self.samples + other.samples, max(self.stride, other.stride)
        )


@functools.cache
def _unit_edges() -> NDArray[np.float64]:
    """Bin edges when the last one is 1, shape ``(BINS + 1,)``."""
    octave = np.arange(BINS + 1) >> MANTISSA_BITS
    bin_index = np.arange(BINS + 1) & ((1 << MANTISSA_BITS) - 1)
    edges: NDArray[np.float64] = np.ldexp(1.0 + bin_index / (1 << MANTISSA_BITS), octave - OCTAVES)
    edges.flags.writeable = False
    return edges


def add_shifted(into: NDArray[np.int64], counts: NDArray[np.int64], shift: int) -> int:
    """Add a histogram whose top is ``shift`` bins lower; returns what falls below the first bin."""
    if shift >= BINS:
        return int(counts.sum())
    into[: BINS - shift] += counts[shift:]
    return int(counts[:shift].sum())
