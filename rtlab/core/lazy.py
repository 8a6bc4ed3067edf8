"""Arrays whose numbers are made when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ArraySource(Protocol):
    """What makes the samples of a ``LazyArray``."""

    #: Whether its numbers are finite, whatever they are.
    is_finite: bool
    #: Whether another machine can make them too; otherwise an array is pickled with its numbers.
    is_portable: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of each."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    def read(self, rows: range) -> NDArray[Any]:
        """Make these samples; step 1."""


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """What has the shape, the type and the slices of an array, so that it can stand among those of ``CalibrationData``.

    ``rows`` are its samples of those of ``source``, all by default. Whatever else is asked of an array makes all of its
    numbers.
    """

    def __init__(self, source: ArraySource, rows: range | None = None) -> None:
        self.source = source
        self.rows = range(source.shape[0]) if rows is None else rows

    def __reduce__(self) -> tuple[object, ...]:
        if not self.source.is_portable:
            return np.asarray, (np.asarray(self),)
        return LazyArray, (self.source, self.rows)

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
        """What arrays have besides."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with it as with the array."""
        arrays = (np.asarray(i) if isinstance(i, LazyArray) else i for i in inputs)
        return getattr(ufunc, method)(*arrays, **options)

    def __getitem__(self, key: Any) -> Any:
        """Some of the numbers, as NumPy's indices name them; no more are made than a slice of samples needs."""
        if isinstance(key, slice) and key.step in {None, 1}:
            return np.asarray(self.part(*key.indices(len(self))[:2]))
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            row = range(len(self))[key]
            return np.asarray(self.part(row, row + 1))[0]
        return np.asarray(self)[key]
