"""Activation ranges of a model, observed in one streaming pass."""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtlab.core.progress import check
from rtlab.core.ranges import BINS, LOWEST_TOP, MANTISSA_BITS, OCTAVES, Range, Ranges, add_shifted
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.arrays import Batch
    from rtlab.core.protocols import Progress
    from rtlab.core.trace import Outputs

_SHIFT = 23 - MANTISSA_BITS
#: What ``Collector`` uses by default. Counting every element makes calibrating MobileNetV2 take 5.8 times as long as
#: running it instead of 2.8, ResNet-50 1.9 instead of 1.3; reading a part moves the thresholds of four to eight
#: samples by 0 to 2 % (median; nine in ten by less than 11 %).
STRIDE = 4
#: What large maps have at least: axes (samples, channels, rows, columns), and elements in the last three. Smaller ones
#: cost little and have few elements to spare.
_MAP_AXES, _MAPS = 4, 1 << 15
#: How many elements of a sample are enough, and how many of each channel are needed.
_COUNTED, _PER_MAP = 20_000, 8
#: Elements per step, so that all scratch stays in the processor's cache.
_CHUNK = 1 << 16
#: Elements below the histogram, often half of an activation, are spread over this many counters: additions to one
#: counter would wait for each other.
_LANES = 64
_LANE = (np.arange(_CHUNK) % _LANES).astype(np.int32)


class Collector:
    """Observes values batch by batch; its memory does not grow with their number.

    Batches that ``run`` has counted stay, also where it is cancelled or the data fail, and ``run`` may be called again.

    Counting every element of a large convolutional network takes longer than computing it, so by default the
    histograms count a part of large maps, that is of values with four axes or more whose last three have at least
    32,768 elements: one of ``stride`` elements, or fewer, so that about 20,000 are counted of each sample, but at least
    about eight of each channel. The choice depends on the sizes of the last three axes alone, so that batches and their
    order do not matter. ``min`` and ``max`` see every element.
    """

    def __init__(self, values: Sequence[str], *, stride: int = STRIDE) -> None:
        """Observe nothing yet.

        Args:
            values: Names of the values to observe, as ``rtlab.quantize.quantizable`` gives them.
            stride: One of so many elements of a large map is counted, or fewer; 1 counts all.
        """
        self._observers = {name: _Observer() for name in values}
        self._stride = stride
        self._samples = self._batches = 0
        self._lock = threading.Lock()

    @property
    def samples(self) -> int:
        """Samples seen completely."""
        return self._samples

    @property
    def ranges(self) -> Ranges:
        """What was seen so far: a copy of its own, at any time and from any thread."""
        with self._lock:
            values = {name: observer.build_range() for name, observer in self._observers.items()}
            return Ranges(values, self._samples, self._stride)

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
            fetch: Runs one batch and returns the values that are no model inputs.
            progress: Advanced by the samples of each batch; a request to stop is checked before each. The caller
                opens the phase.
            samples_in: How many samples a batch holds; by default the length of its first array.

        Raises:
            CalibrationError: there is no batch, or a value holds NaN or infinity, whose batch is not counted.
            Cancelled: the user stopped.
        """
        # One batch is counted while the next one runs: NumPy and a runner both release the interpreter.
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
                    counting = worker.submit(self._add, {n: tensors[n] for n in self._observers}, count)
                    # Arrays are freed one by one as they are counted.
                    del tensors
                    progress.advance(count)
            finally:
                if counting is not None:
                    counting.result()
        if not self._batches:
            raise CalibrationError(
                f"Cannot calibrate {len(self._observers)} values: the data holds no batch. Give at least one sample."
            )

    def _add(self, tensors: dict[str, NDArray[np.generic]], samples: int) -> None:
        """Count one batch, all of it or nothing."""
        sampled: dict[str, _SampledBits] = {}
        for name in self._observers:
            array = np.ascontiguousarray(tensors.pop(name), dtype=np.float32)
            sampled[name] = _sample_bits(array, self._stride)
            if array.size and not np.isfinite([sampled[name].low, sampled[name].high]).all():
                raise _make_nonfinite_error(name, array, self._samples, samples)
        with self._lock:
            for name, observer in self._observers.items():
                observer.add(sampled.pop(name))
            self._samples += samples
            self._batches += 1


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
    """The extremes of one array, and its elements that are counted, as bits; each represents ``stride`` elements."""

    low: float
    high: float
    stride: int
    bits: NDArray[np.int32]


def _sample_bits(array: NDArray[np.float32], min_stride: int) -> _SampledBits:
    stride = choose_stride(array.shape, min_stride)
    bits = array.reshape(-1).view(np.int32)
    if stride > 1:
        # Picking begins anew with each sample, so that its place in the batch does not matter.
        bits = bits.reshape(-1, math.prod(array.shape[-_MAP_AXES + 1 :]))[:, ::stride].reshape(-1)
    return _SampledBits(float(array.min(initial=np.inf)), float(array.max(initial=-np.inf)), stride, bits)


def choose_stride(shape: tuple[int, ...], min_stride: int) -> int:
    """How many elements of a map of this shape one counted element represents."""
    if min_stride == 1 or len(shape) < _MAP_AXES:
        return 1
    size, one = math.prod(shape[-_MAP_AXES + 1 :]), math.prod(shape[-2:])
    if size < _MAPS or one < min_stride * _PER_MAP:
        return 1
    start = max(min_stride, min(size // _COUNTED, one // _PER_MAP))
    # A number that divides the length of a row would meet the same columns in every row.
    return next(k for k in itertools.count(start) if math.gcd(k, one) == 1)


class _Observer:
    """Accumulates one value. Only whole numbers are added, so the order of the chunks cannot matter."""

    def __init__(self) -> None:
        self._min, self._max = np.inf, -np.inf
        self._count = self._zeros = self._small = 0
        self._top = LOWEST_TOP
        self._counts = np.zeros(BINS, np.int64)
        #: Bits that wait to be counted, by how many elements each represents.
        self._pending_bits: dict[int, list[NDArray[np.int32]]] = {}

    def add(self, sampled_bits: _SampledBits) -> None:
        """Count the elements that were picked of one array; a few wait for more."""
        self._min, self._max = min(self._min, sampled_bits.low), max(self._max, sampled_bits.high)
        pending = self._pending_bits.setdefault(sampled_bits.stride, [])
        pending.append(sampled_bits.bits)
        if sum(b.size for b in pending) >= _CHUNK:
            self._count_pending()

    def _count_pending(self) -> None:
        top = int(np.float32(max(-self._min, self._max)).view(np.int32)) >> 23
        if top > self._top:
            self._raise_top(top)
        for stride, parts in self._pending_bits.items():
            bits = parts[0] if len(parts) == 1 else np.concatenate(parts)
            for start in range(0, bits.size, _CHUNK):
                self._count_chunk(bits[start : start + _CHUNK], stride)
        self._pending_bits.clear()

    def build_range(self) -> Range:
        """The range, zero where nothing was seen."""
        self._count_pending()
        empty = self._max < self._min
        return Range(
            # Adding zero turns -0.0, which depends on the order, into 0.0.
            min=0.0 if empty else self._min + 0.0,
            max=0.0 if empty else self._max + 0.0,
            count=self._count,
            zeros=self._zeros,
            small=self._small,
            top=self._top,
            counts=self._counts.copy(),
        )

    def _count_chunk(self, bits: NDArray[np.int32], stride: int) -> None:
        zeros, size = 0, bits.size
        if self._min <= 0.0:
            bits = bits & 0x7FFFFFFF
            zeros = size - int(np.count_nonzero(bits))
        index = bits >> _SHIFT
        # Bins count down from the largest magnitude so far; the lanes lie below the first bin.
        index -= _get_first_bin(self._top) - _LANES
        np.maximum(index, _LANE[:size], out=index)
        histogram = np.bincount(index, minlength=BINS + _LANES)
        self._counts += stride * histogram[_LANES:]
        self._count += size * stride
        self._zeros += zeros * stride
        self._small += (int(histogram[:_LANES].sum()) - zeros) * stride

    def _raise_top(self, top: int) -> None:
        counts, self._counts = self._counts, np.zeros(BINS, np.int64)
        self._small += add_shifted(self._counts, counts, (top - self._top) << MANTISSA_BITS)
        self._top = top


def _get_first_bin(top: int) -> int:
    """Top bits of the first bin when ``top`` is the exponent field of the last octave; may be negative."""
    return (top - OCTAVES + 1) << MANTISSA_BITS
