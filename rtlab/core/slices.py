"""Errors of a model's output by slice: indices of an axis whose numbers have like magnitudes.

With boxes from 0 to 640 and scores from 0 to 1 in one tensor, the whole still has 45 dB where every score is 0.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.precision import compute_sqnr

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Ratio of energies, 24 dB, between two kinds of numbers: four bits of a common INT8 scale.
_KIND_RATIO = 256.0
#: Elements of an index below which 24 dB may be chance: of 8 normal numbers the energy is so small once in 400 million.
_FEWEST = 8
#: Elements that are summed at once.
_PIECE = 1 << 16
#: Energies below this share of the largest are residues of rounding in FP32.
_RESIDUE = 1e-14


@dataclasses.dataclass(frozen=True)
class Slice:
    """Indices of one axis of an output whose numbers are of one kind, all of it without indices, and their error.

    ``sqnr`` is in decibel, negative infinite where some numbers are finite in one alone; ``zero`` is True where all are
    0 in the variant.
    """

    output: str
    axis: int
    indices: tuple[int, ...]
    sqnr: float
    zero: bool = False

    @property
    def where(self) -> str:
        """The slice in words, such as "channels 4 to 11 of output0"."""
        if not self.indices:
            return self.output
        first, last, count = self.indices[0], self.indices[-1], len(self.indices)
        if count == 1:
            numbers = f"{first}"
        elif last - first + 1 == count:
            numbers = f"{first} to {last}"
        else:
            numbers = ", ".join(map(str, self.indices[:3])) + (f" and {count - 3} more" if count > 3 else "")
        if self.axis == 1:
            return f"channel{'s' * (count > 1)} {numbers} of {self.output}"
        return f"{'index' if count == 1 else 'indices'} {numbers} of axis {self.axis} of {self.output}"

    @property
    def fault(self) -> str:
        """A sentence part where all numbers became 0; empty otherwise."""
        verb = "is" if len(self.indices) == 1 else "are"
        return f"{self.where} {verb} all 0" if self.zero else ""


class SliceSums:
    """Sums over the samples so far of one output, by axis and index.

    ``totals`` is a float64 array of the sums of x², (x - y)² and y² of the reference x and the variant y over elements
    that are finite in both, and of the number of elements that are finite in one alone; ``axes`` has the same of each
    index by axis, of shape ``(4, n)``, None before the first batch; ``elements`` is the number of elements. Axes whose
    length differs between batches are left out, and so are that of the samples and one along which probabilities sum
    to 1.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.totals = np.zeros(4)
        self.elements = 0
        self.axes: dict[int, NDArray[np.float64]] | None = None

    def copy(self) -> SliceSums:
        """An independent copy."""
        return copy.deepcopy(self)

    def add(self, reference: NDArray[Any], variant: NDArray[Any], samples: int) -> None:
        """Add a batch of so many samples; arrays of different shapes are ignored."""
        x, y = np.asarray(reference), np.asarray(variant)
        if x.shape != y.shape or not x.size:
            return
        first = 1 if x.ndim and len(x) == samples else 0
        # The sum of probabilities is 1 along their axis.
        axes = (
            a
            for a in range(first, x.ndim)
            if x.shape[a] > 1
            and not ((x >= 0).all() and np.allclose(x.sum(axis=a, dtype=np.float64), 1.0, atol=1e-2))
        )
        sums = {a: np.zeros((4, x.shape[a])) for a in axes}
        self.elements += x.size
        rows = x if first else x[None]
        others = y if first else y[None]
        # Some samples at a time: the squares of a batch would take several times its memory.
        step = max(1, _PIECE * len(rows) // rows.size)
        for begin in range(0, len(rows), step):
            for number, part in _iter_squares(rows[begin : begin + step], others[begin : begin + step]):
                self.totals[number] += part.sum()
                for axis, axis_sums in sums.items():
                    at = axis + 1 - first
                    axis_sums[number] += part.sum(axis=tuple(i for i in range(part.ndim) if i != at))
        if self.axes is None:
            self.axes = sums
            return
        self.axes = {a: s + sums[a] for a, s in self.axes.items() if a in sums and sums[a].shape == s.shape}

    @property
    def sqnr(self) -> float:
        """The SQNR of the whole output in decibel."""
        xx, ee, _, bad = self.totals.tolist()
        return -math.inf if bad else compute_sqnr(xx, ee)

    @property
    def _reliable_axes(self) -> list[tuple[int, NDArray[np.float64]]]:
        """Axes with enough elements of each index."""
        return [(a, s) for a, s in (self.axes or {}).items() if self.elements >= _FEWEST * s.shape[1]]

    def by_kind(self) -> Iterator[Slice]:
        """The whole output, then the indices of each kind by axis, where there are several."""
        yield Slice(self.output, 0, (), self.sqnr)
        for axis, sums in self._reliable_axes:
            groups = split_kinds(sums[0])
            if len(groups) > 1:
                yield from (self._slice(axis, sums, group) for group in groups)

    def worst(self) -> Slice | None:
        """The slice with the largest error; None without slices."""
        slices = [s for s in self.by_kind() if s.indices] + [*self._find_bad_indices()]
        return min(slices, key=lambda s: (s.sqnr, not s.zero, len(s.indices)), default=None)

    def _find_bad_indices(self) -> Iterator[Slice]:
        """Indices that became 0 beside others of their kind, and those that are not finite, where not all are."""
        for axis, sums in self._reliable_axes:
            xx, _, yy, bad = sums
            groups = split_kinds(xx)
            for group in groups:
                # Beside others of its kind, one that is 0 is no small number.
                large = xx[group] * _KIND_RATIO > xx[group].max()
                zero = group[(yy[group] == 0) & (bad[group] == 0) & large]
                if 0 < len(zero) < sum(map(len, groups)):
                    yield self._slice(axis, sums, zero)
            broken = np.flatnonzero(bad)
            if 0 < len(broken) < len(xx):
                yield self._slice(axis, sums, broken)

    def _slice(self, axis: int, sums: NDArray[np.float64], indices: NDArray[np.intp]) -> Slice:
        xx, ee, yy, bad = sums[:, indices].sum(axis=1).tolist()
        sqnr = -math.inf if bad else compute_sqnr(xx, ee)
        return Slice(self.output, axis, tuple(indices.tolist()), sqnr, zero=not bad and not yy)


def split_kinds(energy: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """The indices that carry signal, by magnitude; neighbours 24 dB apart are of two kinds."""
    order = np.argsort(-energy, kind="stable")
    ranked = energy[order]
    order = order[ranked > _RESIDUE * ranked.max(initial=0.0)]
    ranked = energy[order]
    cuts = np.flatnonzero(ranked[:-1] > _KIND_RATIO * ranked[1:]) + 1
    return [np.sort(part) for part in np.split(order, cuts)] if len(order) else []


def _iter_squares(x: NDArray[Any], y: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The summands of each row of ``SliceSums.axes``."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        same = finite | (x == y) | (np.isnan(x) & np.isnan(y))
        yield 3, (~same).astype(np.float64)
        x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
    yield 0, np.square(x)
    yield 1, np.square(x - y)
    yield 2, np.square(y)
