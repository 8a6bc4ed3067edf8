"""Activation ranges of a model, observed in one streaming pass.

The histogram's bins come from the top bits of the float32: 2,048 bins per power of two, for the sixteen
powers of two below the largest magnitude. Such bins need no range beforehand and add up exactly, so neither
the order of the samples nor the size of a batch changes a count.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.progress import check
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import Batch
    from rtlab.core.protocols import Progress
    from rtlab.core.trace import Outputs

#: Bits of the mantissa that tell bins apart: 2,048 bins per octave are never wider than 1/2,048 of the range.
_MANTISSA_BITS = 11
_SHIFT = 23 - _MANTISSA_BITS
#: Powers of two that are resolved; what lies further below the largest magnitude is one count, ``small``.
_OCTAVES = 16
BINS = _OCTAVES << _MANTISSA_BITS
#: Below this exponent field the first bin would start beneath zero.
_LOWEST_TOP = _OCTAVES
#: Elements per step, so that all scratch stays in the processor's cache.
_CHUNK = 1 << 16
#: Zeros are often half of an activation. Counting them all in one place would make each addition wait for the
#: last, so whatever lies below the histogram is spread over this many counters.
_LANES = 64
_LANE = (np.arange(_CHUNK) % _LANES).astype(np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Range:
    """What was seen of one value.

    ``min`` and ``max`` are exact. ``count`` elements were seen, of which ``zeros`` are exactly zero and
    ``small`` are nonzero but below the histogram. ``counts`` holds the other magnitudes, an int64 array of
    shape ``(BINS,)`` with the edges given by ``edges``; ``top`` is the exponent field of the largest
    magnitude.
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
        bits = np.arange(BINS + 1, dtype=np.int64) + _base(self.top)
        # One bin past the largest finite float is infinity, which has no place on an axis.
        bits = np.clip(bits << _SHIFT, 0, 0x7F7FFFFF)
        edges: NDArray[np.float64] = bits.astype(np.uint32).view(np.float32).astype(np.float64)
        return edges

    def merge(self, other: Range) -> Range:
        """Both observations together: associative, commutative, and exact."""
        top = max(self.top, other.top)
        counts = np.zeros(BINS, np.int64)
        small = self.small + other.small
        for part in (self, other):
            small += _add(counts, part.counts, (top - part.top) << _MANTISSA_BITS)
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
    """Observed ranges by value name."""

    values: Mapping[str, Range]

    def __repr__(self) -> str:
        return f"<Ranges of {len(self.values)} values>"

    def merge(self, other: Ranges) -> Ranges:
        """Both observations together; a value that only one of them knows is kept."""
        mine, theirs = self.values, other.values
        return Ranges(
            {
                name: mine[name].merge(theirs[name])
                if name in mine and name in theirs
                else (mine[name] if name in mine else theirs[name])
                for name in dict.fromkeys((*mine, *theirs))
            }
        )


def collect(
    values: Sequence[str],
    batches: Iterable[Batch],
    fetch: Callable[[Batch], Outputs],
    progress: Progress,
) -> Ranges:
    """Observe values over all batches, in one pass whose memory does not grow with their number.

    Args:
        values: Names of the values to observe, as ``rtlab.quantize.quantizable`` gives them.
        batches: The data, one batch at a time.
        fetch: Runs one batch and returns the values; those that are model inputs are read from the batch.
        progress: Advanced once per batch, and asked before each whether to stop. The caller opens the phase,
            since it knows how many batches there are.

    Raises:
        CalibrationError: there is no batch, a value is missing from what ``fetch`` returned, or a value holds
            NaN or infinity.
        Cancelled: the user stopped; nothing is kept.
    """
    watch = {name: _Observer(name) for name in values}
    seen = 0
    # NumPy and a runner both release the interpreter, so one batch is counted while the next one runs.
    with concurrent.futures.ThreadPoolExecutor(1, "rtlab-calibration") as worker:
        counting: concurrent.futures.Future[None] | None = None
        for batch in batches:
            check(progress, "calibrating")
            found = {**batch, **fetch(batch)}
            if counting is not None:
                counting.result()
            counting = worker.submit(_count, watch, found)
            seen += 1
            progress.advance()
        if counting is not None:
            counting.result()
    if not seen:
        raise CalibrationError(
            f"Cannot calibrate {len(watch)} values: the data holds no batch. Give at least one sample."
        )
    return Ranges({name: observer.result() for name, observer in watch.items()})


def _count(watch: Mapping[str, _Observer], found: Outputs) -> None:
    for name, observer in watch.items():
        if name not in found:
            raise CalibrationError(
                f'Cannot calibrate value "{name}": the runner returned {len(found)} values without it. '
                "Ask the runner for each of rtlab.quantize.quantizable(model)."
            )
        observer.add(found[name])


class _Observer:
    """Accumulates one value. Only whole numbers are added, so the order of the chunks cannot matter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._min, self._max = np.inf, -np.inf
        self._count = self._zeros = self._small = 0
        self._top = _LOWEST_TOP
        self._counts = np.zeros(BINS, np.int64)

    def add(self, array: NDArray[np.generic]) -> None:
        """Count every element."""
        flat = np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            self._chunk(flat[start : start + _CHUNK])

    def result(self) -> Range:
        """The range, zero where nothing was seen."""
        empty = self._count == 0
        return Range(
            # Adding zero turns -0.0, which depends on the order, into 0.0.
            min=0.0 if empty else self._min + 0.0,
            max=0.0 if empty else self._max + 0.0,
            count=self._count,
            zeros=self._zeros,
            small=self._small,
            top=self._top,
            counts=self._counts,
        )

    def _chunk(self, chunk: NDArray[np.float32]) -> None:
        low, high = float(chunk.min()), float(chunk.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            what = "NaN" if np.isnan(low) or np.isnan(high) else "infinity"
            raise CalibrationError(
                f'Cannot calibrate value "{self._name}": it holds {what} after {self._count} elements. '
                "Check the data and the model in FP32 first: its outputs must be finite."
            )
        index = chunk.view(np.int32)
        zeros = 0
        if low <= 0.0:
            index = index & 0x7FFFFFFF
            zeros = chunk.size - int(np.count_nonzero(index))
        index = index >> _SHIFT
        self._min, self._max = min(self._min, low), max(self._max, high)
        top = int(np.float32(max(-low, high)).view(np.int32)) >> 23
        if top > self._top:
            self._raise_top(top)
        # Bins of this chunk count down from the largest magnitude so far; the lanes stand below the first
        # bin.
        index -= _base(self._top) - _LANES
        np.maximum(index, _LANE[: chunk.size], out=index)
        histogram = np.bincount(index, minlength=BINS + _LANES)
        self._counts += histogram[_LANES:]
        self._count += chunk.size
        self._zeros += zeros
        self._small += int(histogram[:_LANES].sum()) - zeros

    def _raise_top(self, top: int) -> None:
        counts = np.zeros(BINS, np.int64)
        self._small += _add(counts, self._counts, (top - self._top) << _MANTISSA_BITS)
        self._top, self._counts = top, counts


def _base(top: int) -> int:
    """Top bits of the first bin when ``top`` is the exponent field of the last octave; may be negative."""
    return (top - _OCTAVES + 1) << _MANTISSA_BITS


def _add(into: NDArray[np.int64], counts: NDArray[np.int64], shift: int) -> int:
    """Add a histogram whose top is ``shift`` bins lower; returns what falls below the first bin."""
    if shift >= BINS:
        return int(counts.sum())
    into[: BINS - shift] += counts[shift:]
    return int(counts[:shift].sum())
