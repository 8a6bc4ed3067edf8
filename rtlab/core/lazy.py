"""Arrays whose numbers are made when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ArraySource(Protocol):
    """What makes the samples of a ``LazyArray``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of each."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    def read(self, rows: range) -> NDArray[Any]:
        """Make these samples; step 1."""


class LazyArray:
    """An array of ``CalibrationData`` whose samples ``source`` makes when they are read; all finite.

    ``rows`` are its samples of those of ``source``, all by default. Other attributes of an array make all samples.
    """

    def __init__(self, source: ArraySource, rows: range | None = None) -> None:
        self.source = source
        self.rows = range(source.shape[0]) if rows is None else rows

    def __repr__(self) -> str:
        return f"<{type(self.source).__name__} {self.shape} {self.dtype}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of each."""
        return (len(self.rows), *self.source.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.source.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, first: int, last: int) -> LazyArray:
        """Samples from one up to another, not made yet."""
        return LazyArray(self.source, self.rows[first:last])

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Make all samples; errors are those of the source."""
        samples = self.source.read(self.rows)
        if copy:
            return np.array(samples, dtype)
        return samples if dtype is None else samples.astype(dtype, copy=False)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the array."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __getitem__(self, key: Any) -> Any:
        """NumPy's indexing; a sample or a slice of samples makes those alone."""
        if isinstance(key, slice) and key.step in {None, 1}:
            return np.asarray(self.part(*key.indices(len(self))[:2]))
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            row = range(len(self))[key]
            return np.asarray(self.part(row, row + 1))[0]
        return np.asarray(self)[key]
