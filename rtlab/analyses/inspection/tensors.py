"""The distribution of the numbers of one tensor: of a weight, or of an activation on real samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.core.schema import Origin
from rtlab.core.value import shape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Equal bins of a histogram.
BINS = 64
#: A larger tensor is sampled; this many elements are then looked at.
_LARGEST, _SAMPLED = 50_000_000, 1 << 22
#: Elements that are converted to float64 at a time.
_CHUNK = 1 << 20


TensorKind = Literal["weight", "activation"]


@dataclasses.dataclass(frozen=True)
class TensorStats:
    """What is known of the numbers of one tensor, in the tensor's own unit.

    ``count`` finite numbers were looked at; ``std`` is the population's standard deviation, ``zeros`` the share of
    exact zeros from 0 to 1. ``counts`` are over ``BINS`` equal bins from ``lower`` to ``upper``. ``source`` says what
    was looked at, and what was left out.
    """

    name: str
    kind: TensorKind
    dtype: str
    shape: str
    origin: Origin
    source: str
    count: int
    minimum: float
    maximum: float
    mean: float
    std: float
    zeros: float
    lower: float
    upper: float
    counts: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The tensors of one node, or in words why there are none."""

    node: str
    tensors: tuple[TensorStats, ...] = ()
    note: str = ""


def compute_stats(
    arrays: Sequence[NDArray[Any]],
    *,
    name: str,
    kind: TensorKind,
    dtype: str,
    shape: Sequence[int | str | None] | None,
    source: str,
) -> TensorStats | None:
    """Statistics of arrays of numbers taken together; None where they hold no finite number.

    Of more than 50 million elements every n-th is taken, and ``source`` says so.
    """
    total = sum(a.size for a in arrays)
    if total > _LARGEST:
        # An odd step meets no power of two of the tensor's sizes.
        step = math.ceil(total / _SAMPLED) | 1
        arrays = [a.reshape(-1)[::step] for a in arrays]
        source = f"{source}; {sum(a.size for a in arrays):,} of {total:,} elements"
    count, zeros, low, high, sum_ = 0, 0, math.inf, -math.inf, 0.0
    for part in filter(len, _iter_parts(arrays)):
        count += part.size
        zeros += part.size - int(np.count_nonzero(part))
        low, high = min(low, float(part.min())), max(high, float(part.max()))
        sum_ += float(part.sum())
    if not count:
        return None
    mean = sum_ / count
    # One number alone gets bins around it, as NumPy has them.
    lower, upper = (low, high) if high > low else (low - 0.5, high + 0.5)
    if not upper > lower:
        lower, upper = low - abs(low) / 2, high + abs(high) / 2
    counts, squares = np.zeros(BINS, np.int64), 0.0
    for part in _iter_parts(arrays):
        counts += np.histogram(part, BINS, (lower, upper))[0]
        squares += float(np.square(part - mean).sum())
    if left_out := sum(a.size for a in arrays) - count:
        source = f"{source}; {left_out:,} are not finite and left out"
    return TensorStats(
        name, kind, dtype, shape_text(shape), "measured", source, count, low, high, mean, math.sqrt(squares / count),
        zeros / count, lower, upper, tuple(float(c) for c in counts),
    )  # fmt: skip


def summarize_magnitudes(
    name: str,
    *,
    dtype: str,
    shape: Sequence[int | str | None] | None,
    source: str,
    minimum: float,
    maximum: float,
    zeros: int,
    fine: tuple[NDArray[np.float64], NDArray[np.int64]],
    coarse: tuple[NDArray[np.float64], NDArray[np.float64]],
    small: int = 0,
) -> TensorStats:
    """Statistics of an activation of which a calibration kept the magnitudes.

    Mean, deviation and histogram are of the magnitudes; where no value is negative, these are the values.

    Args:
        name: Of the value.
        dtype: Its type.
        shape: Its shape.
        source: What it was observed on.
        minimum: The smallest value, exact.
        maximum: The largest value, exact.
        zeros: How many are exactly zero.
        fine: Edges, shape ``(n + 1,)``, and counts, shape ``(n,)``, for mean and deviation.
        coarse: Edges and counts of ``BINS`` equal bins, for the picture.
        small: How many are not zero and below the first edge.
    """
    edges, counts = fine
    count = int(counts.sum()) + zeros + small
    middles = (edges[:-1] + edges[1:]) / 2
    mean = float((middles * counts).sum()) / max(1, count)
    square = float((middles**2 * counts).sum()) / max(1, count)
    if minimum < 0:
        source = f"{source}; mean, deviation and histogram are of the magnitudes"
    return TensorStats(
        name, "activation", dtype, shape_text(shape), "measured", source, count, minimum, maximum, mean,
        math.sqrt(max(0.0, square - mean**2)), zeros / max(1, count), float(coarse[0][0]), float(coarse[0][-1]),
        tuple(float(c) for c in coarse[1]),
    )  # fmt: skip


def _iter_parts(arrays: Iterable[NDArray[Any]]) -> Iterable[NDArray[np.float64]]:
    for array in arrays:
        flat = array.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK].astype(np.float64)
            yield part[np.isfinite(part)]
