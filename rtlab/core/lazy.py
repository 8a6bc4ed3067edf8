"""Arrays whose numbers are made when they are asked for."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin, abc.ABC):
    """What has the shape, the type and the slices of an array, so that it can stand among those of ``CalibrationData``.

    Whatever else is asked of an array makes all of its numbers.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of each."""

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    @abc.abstractmethod
    def part(self, first: int, last: int) -> Self:
        """Samples from one up to another, not made yet."""

    @abc.abstractmethod
    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Make all samples."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

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
