"""Activation ranges of a model, observed in one streaming pass."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtlab.core.progress import check
from rtlab.core.ranges import (
    BINS,
    LOWEST_TOP,
    MANTISSA_BITS,
    OCTAVES,
    Range,
    Ranges,
    add_shifted,
)
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.arrays import Batch
    from rtlab.core.protocols import Progress
    from rtlab.core.trace import Outputs

_SHIFT = 23 - MANTISSA_BITS
#: What ``Collector`` uses by default. Counting every element makes calibrating MobileNetV2 take 3.3 times as long as
#: running it instead of 2.4, ResNet-50 1.4 instead of 1.2; reading a part moves the thresholds of four to eight
#: samples by 0 to 2 % (median; nine in ten by less than 11 %).
STRIDE = 4
#: What large maps have at least: axes (samples, channels, rows, columns), and elements in the last three. Smaller ones
#: cost little and have few elements to spare.
_MAP_AXES, _MAPS = 4, 1 << 15
#: How many elements of a sample are enough, and how many of each channel are needed.
_COUNTED, _PER_MAP = 20_000, 8
#: The highest bit of a float32.
_SIGN = 1 << 31
#: Elements per step, so that all scratch stays in the processor's cache; positions in it are numbers of 16 bits.
_CHUNK = 1 << 16
#: Zeros are often half of an activation. Counting them all in one place would make each addition wait for the
#: last, so whatever lies below the histogram is spread over this many counters.
_LANES = 64
_LANE = (np.arange(_CHUNK) % _LANES).astype(np.int32)


class Collector:
    """Observes values batch by batch; its memory does not grow with their number.

    What ``run`` has seen completely stays, whether it ended, was cancelled, or the data failed, and ``run`` may
    be called again with more.

    Counting every element of a large convolutional network takes longer than computing it, so by default the
    histograms see a part of large maps, that is of values with four axes or more whose last three hold at least
    32,768 elements. Of such a value one of ``stride`` elements is counted and stands for that many; of a larger one,
    one of so many that about 20,000 are counted of each sample, but at least about eight of each channel. Which ones
    depends on nothing but the sizes of the last three axes, so that no batch and no order can matter (samples lie
    along none of them), and rows and columns are met evenly. ``min`` and ``max`` see every element.
    """

    def __init__(self, values: Sequence[str], *, stride: int = STRIDE) -> None:
        """Observe nothing yet.

        Args:
            values: Names of the values to observe, as ``rtlab.quantize.quantizable`` gives them.
            stride: How many elements of a large map one counted element stands for, at least; 1 counts all.
        """
        table = _Table()
        self._observers = {name: _Observer(table) for name in values}
        self._stride = stride
        self._samples = self._batches = 0
        #: The ranges after so many batches.
        self._copy: tuple[int, Ranges] | None = None
        self._lock = threading.Lock()

    @property
    def samples(self) -> int:
        """Samples seen completely."""
        return self._samples

    @property
    def ranges(self) -> Ranges:
        """What was seen so far, which later batches do not change; at any time and from any thread."""
        with self._lock:
            if self._copy is None or self._copy[0] != self._batches:
                values = {name: observer.build_range() for name, observer in self._observers.items()}
                self._copy = self._batches, Ranges(values, self._samples, self._stride)
            return self._copy[1]

    def run(
        self,
        batches: Iterable[Batch],
        fetch: Callable[[Batch], Outputs],
        progress: Progress,
        samples_in: Callable[[Batch], int] | None = None,
    ) -> None:
        """Observe all batches, in one pass.

        Args:
            batches: The data, one batch at a time. Shapes may differ from batch to batch.
            fetch: Runs one batch and returns the values; those that are model inputs are read from the batch.
            progress: Advanced by the samples of each batch, and asked before each whether to stop. The caller opens
                the phase, since it knows how many samples there are.
            samples_in: How many samples a batch holds; by default the length of its first array.

        Raises:
            CalibrationError: there is no batch, a value is missing from what ``fetch`` returned, or a value
                holds NaN or infinity. The batch where this is found is not counted at all.
            Cancelled: the user stopped.
        """
        # NumPy and a runner both release the interpreter, so one batch is counted while the next one runs.
        with concurrent.futures.ThreadPoolExecutor(1, "rtlab-calibration") as worker:
            counting: concurrent.futures.Future[None] | None = None
            try:
                for batch in batches:
                    check(progress, "calibrating")
                    tensors = {**batch, **fetch(batch)}
                    if counting is not None:
                        last, counting = counting, None
                        last.result()
                    count = samples_in(batch) if samples_in is not None else _count_samples(batch)
                    counting = worker.submit(self._add, self._select_observed(tensors), count)
                    # Arrays are let go one by one as they are counted, before the next batch has come far.
                    del tensors
                    progress.advance(count)
            finally:
                if counting is not None:
                    counting.result()
        if not self._batches:
            raise CalibrationError(
                f"Cannot calibrate {len(self._observers)} values: the data holds no batch. Give at least one sample."
            )

    def _select_observed(self, tensors: Outputs) -> dict[str, NDArray[np.generic]]:
        for name in self._observers:
            if name not in tensors:
                raise CalibrationError(
                    f'Cannot calibrate value "{name}": the runner returned {len(tensors)} values without it. '
                    "Ask the runner for each of rtlab.quantize.quantizable(model)."
                )
        return {name: tensors[name] for name in self._observers}

    def _add(self, tensors: dict[str, NDArray[np.generic]], samples: int) -> None:
        """Count one batch, all of it or nothing."""
        sampled_arrays = {name: self._sample_tensor(name, tensors, samples) for name in self._observers}
        with self._lock:
            for name, observer in self._observers.items():
                observer.add(sampled_arrays.pop(name))
            self._samples += samples
            self._batches += 1

    def _sample_tensor(
        self, name: str, tensors: dict[str, NDArray[np.generic]], samples: int
    ) -> _SampledBits:
        array = np.asarray(tensors.pop(name), dtype=np.float32)
        sampled_bits = _sample_bits(array, self._stride)
        if not sampled_bits.is_finite:
            raise _make_nonfinite_error(name, array, self._samples, samples)
        return sampled_bits


def _count_samples(batch: Batch) -> int:
    first = next(iter(batch.values()), None)
    return len(first) if first is not None and first.ndim else 1


def _make_nonfinite_error(
    name: str, array: NDArray[np.float32], before: int, samples: int
) -> CalibrationError:
    kind_text = "NaN" if np.isnan(array).any() else "infinity"
    at, count = int(np.argmin(np.isfinite(array).reshape(-1))), len(array) if array.ndim else 1
    if samples and count % samples == 0:
        location = f"sample {before + at // (array.size // samples)}"
    else:
        location = f"samples {before} to {before + samples - 1}"
    return CalibrationError(
        f'Cannot calibrate value "{name}": it holds {kind_text} in {location}. '
        "Check the data and the model in FP32 first: its outputs must be finite."
    )


class _SampledBits(NamedTuple):
    """What matters of one array: its extremes, and those elements that go into the histogram, as bits.

    Each of the elements stands for ``stride`` of the array.
    """

    low: float
    high: float
    stride: int
    bits: list[NDArray[np.int32]]

    @property
    def is_finite(self) -> bool:
        return not self.bits or bool(np.isfinite(self.low) and np.isfinite(self.high))


def _sample_bits(array: NDArray[np.float32], min_stride: int) -> _SampledBits:
    """Read an array once, a part at a time, so that no part is fetched from memory twice.

    The extremes come from the bits as whole numbers, which processors compare faster: positive floats have their
    order, and negative ones, with the sign as highest bit, stand above all positive ones, the farthest from zero
    last. So one comparison tells both ends of what a Relu wrote.
    """
    stride, shape = choose_stride(array.shape, min_stride), array.shape[-_MAP_AXES + 1 :]
    positions: tuple[NDArray[np.uint16], ...] = ()
    if _has_channels_last(array):
        positions = _find_positions(shape, stride) if stride > 1 else ()
        array = array.transpose(0, 2, 3, 1)
    bits = np.ascontiguousarray(array).reshape(-1).view(np.int32)
    # Picking begins anew with each sample, so that its place in the batch cannot matter.
    size = math.prod(shape) if stride > 1 else bits.size
    farthest, largest_bits, lowest = 0, -_SIGN, _SIGN
    parts: list[NDArray[np.int32]] = [bits] if stride == 1 and bits.size else []
    for sample in range(0, bits.size, max(size, 1)):
        for at in range(0, size, _CHUNK):
            part = bits[sample + at : sample + min(at + _CHUNK, size)]
            far = int(part.view(np.uint32).max())
            farthest = max(farthest, far)
            largest_bits = max(largest_bits, far if far < _SIGN else int(part.max()))
            if farthest < _SIGN and lowest > 0:
                lowest = min(lowest, int(part.min()))
            if positions:
                parts.append(part.take(positions[at // _CHUNK]))
            elif stride > 1:
                parts.append(part[-at % stride :: stride].copy())
    if not parts:
        return _SampledBits(np.inf, -np.inf, stride, parts)
    low = _bits_to_float(farthest if farthest >= _SIGN else lowest)
    high = _bits_to_float(largest_bits) if largest_bits >= 0 else float(array.max())
    return _SampledBits(low, high, stride, parts)


def _has_channels_last(array: NDArray[np.float32]) -> bool:
    """Whether a map lies in memory place by place, with all channels of each."""
    return (
        array.ndim == _MAP_AXES
        and not array.flags.c_contiguous
        and array.transpose(0, 2, 3, 1).flags.c_contiguous
    )


@functools.lru_cache(maxsize=64)
def _find_positions(shape: tuple[int, ...], stride: int) -> tuple[NDArray[np.uint16], ...]:
    """Where the elements lie that are picked of a sample with its channels last, from the start of each part read."""
    channel, place = np.divmod(np.arange(0, math.prod(shape), stride), math.prod(shape[1:]))
    positions = np.sort(place * shape[0] + channel)
    starts = np.arange(_CHUNK, math.prod(shape), _CHUNK)
    parts = np.split(positions, np.searchsorted(positions, starts))
    return tuple((part % _CHUNK).astype(np.uint16) for part in parts)


def _bits_to_float(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def choose_stride(shape: tuple[int, ...], min_stride: int) -> int:
    """How many elements of a map of this shape one counted element stands for."""
    if min_stride == 1 or len(shape) < _MAP_AXES:
        return 1
    size, one = math.prod(shape[-_MAP_AXES + 1 :]), math.prod(shape[-2:])
    if size < _MAPS or one < min_stride * _PER_MAP:
        return 1
    start = max(min_stride, min(size // _COUNTED, one // _PER_MAP))
    # A number that divides the length of a row would meet the same columns in every row.
    return next(k for k in itertools.count(start) if math.gcd(k, one) == 1)


class _Table:
    """The scratch of a histogram: the bins of a chunk's elements, and the product that counts them.

    A matrix with a one for each element, in the row of its bin, times one is the histogram. SciPy computes it in half
    of the time of ``numpy.bincount``, which first copies what it counts to 64 bits and looks for its extremes.
    """

    def __init__(self) -> None:
        from scipy import sparse

        ones, rows = np.ones(_CHUNK, np.int32), np.zeros(_CHUNK, np.int32)
        columns = np.array([0, _CHUNK], np.int32)
        self._matrix = sparse.csc_array((ones, rows, columns), shape=(_LANES + BINS, 1))
        self._one = ones[:1]
        #: Rows of the matrix, to be written in place.
        self.rows: NDArray[np.int32] = self._matrix.indices

    def count(self, size: int) -> NDArray[np.int32]:
        """How many of the first ``size`` elements are in each row, shape ``(_LANES + BINS,)``."""
        self._matrix.indptr[1] = size
        counts: NDArray[np.int32] = self._matrix @ self._one
        return counts


class _Observer:
    """Accumulates one value. Only whole numbers are added, so the order of the chunks cannot matter."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._min, self._max = np.inf, -np.inf
        self._count = self._zeros = self._small = 0
        self._top = LOWEST_TOP
        #: Counts, and bits that wait to be counted, by how many elements each stands for. A histogram takes as long
        #: to make and to add as many elements to count, so a few wait for more.
        self._counts: dict[int, NDArray[np.int64]] = {}
        self._pending_bits: dict[int, list[NDArray[np.int32]]] = {}

    def add(self, sampled_bits: _SampledBits) -> None:
        """Count what was picked of one array."""
        if not sampled_bits.bits:
            return
        self._min, self._max = min(self._min, sampled_bits.low), max(self._max, sampled_bits.high)
        pending = self._pending_bits.setdefault(sampled_bits.stride, [])
        pending += sampled_bits.bits
        if sum(b.size for b in pending) >= _CHUNK:
            self._count_pending()

    def _count_pending(self) -> None:
        top = int(np.float32(max(-self._min, self._max)).view(np.int32)) >> 23
        if top > self._top:
            self._raise_top(top)
        for stride, parts in self._pending_bits.items():
            if stride not in self._counts:
                self._counts[stride] = np.zeros(BINS, np.int64)
            filled = 0
            for part in parts:
                at = 0
                while at < part.size:
                    piece = part[at : at + _CHUNK - filled]
                    np.bitwise_and(piece, _SIGN - 1, out=self._table.rows[filled : filled + piece.size])
                    at, filled = at + piece.size, filled + piece.size
                    if filled == _CHUNK:
                        self._count_chunk(filled, stride)
                        filled = 0
            if filled:
                self._count_chunk(filled, stride)
        self._pending_bits.clear()

    def build_range(self) -> Range:
        """The range, zero where nothing was seen."""
        self._count_pending()
        empty = self._max < self._min
        counts = np.zeros(BINS, np.int64)
        for stride, part in self._counts.items():
            counts += stride * part
        return Range(
            # Adding zero turns -0.0, which depends on the order, into 0.0.
            min=0.0 if empty else self._min + 0.0,
            max=0.0 if empty else self._max + 0.0,
            count=self._count,
            zeros=self._zeros,
            small=self._small,
            top=self._top,
            counts=counts,
        )

    def _count_chunk(self, size: int, stride: int) -> None:
        """Count the magnitudes, as bits, that lie in the table's first ``size`` rows, which become their bins."""
        rows = self._table.rows[:size]
        zeros = size - int(np.count_nonzero(rows)) if self._min <= 0.0 else 0
        np.right_shift(rows, _SHIFT, out=rows)
        # Bins of this chunk count down from the largest magnitude so far; the lanes stand below the first
        # bin.
        rows -= _get_first_bin(self._top) - _LANES
        np.maximum(rows, _LANE[:size], out=rows)
        histogram = self._table.count(size)
        self._counts[stride] += histogram[_LANES:]
        self._count += size * stride
        self._zeros += zeros * stride
        self._small += (int(histogram[:_LANES].sum()) - zeros) * stride

    def _raise_top(self, top: int) -> None:
        for stride, counts in self._counts.items():
            self._counts[stride] = np.zeros(BINS, np.int64)
            below = add_shifted(self._counts[stride], counts, (top - self._top) << MANTISSA_BITS)
            self._small += below * stride
        self._top = top


def _get_first_bin(top: int) -> int:
    """Top bits of the first bin when ``top`` is the exponent field of the last octave; may be negative."""
    return (top - OCTAVES + 1) << MANTISSA_BITS
