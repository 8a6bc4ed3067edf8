"""An array in a file, read piece by piece."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.inputs import open_arrays, open_input
from rtlab.core.lazy import LazyArray
from rtlab.core.stamp import stamp
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rows(LazyArray):
    """The array of an ``.npy`` file: a part of it is read when it is asked for.

    Pickled, it is the array. NumPy would map the file, and the system ends a process that reads a mapped file which
    somebody has cut short.

    Args:
        path: The file.

    Raises:
        OSError, ValueError: it cannot be read, or holds no array that can be read piece by piece.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._loaded = path, stamp(path)
        # Its head alone is read through this map, and what it says is held against the size of the file.
        open_input(path).close()
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not mapped.flags.c_contiguous or not mapped.ndim:
            raise ValueError("its samples do not lie one after the other")
        self._shape: tuple[int, ...] = mapped.shape
        self._dtype: np.dtype[Any] = mapped.dtype
        self._start: int = mapped.offset
        self._rows = range(len(mapped))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of each."""
        return (len(self._rows), *self._shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self._dtype

    def __repr__(self) -> str:
        return f'<Rows {self.shape} {self.dtype} of "{self._path.name}">'

    def __reduce__(self) -> tuple[object, ...]:
        # Another machine has no such file.
        return np.asarray, (np.asarray(self),)

    def part(self, first: int, last: int) -> Rows:
        """Samples from one up to another, not read yet."""
        made = object.__new__(Rows)
        made.__dict__.update(self.__dict__)
        made._rows = self._rows[first:last]
        return made

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Read all samples of this part.

        Raises:
            CalibrationError: the file is gone, or was changed.
        """
        made = self._read()
        return made if dtype is None else made.astype(dtype, copy=False)

    def _read(self) -> NDArray[Any]:
        item = math.prod(self._shape[1:])
        doing = f'Cannot read samples from "{self._path}"'
        try:
            made: NDArray[Any] = np.fromfile(
                self._path,
                self._dtype,
                count=len(self._rows) * item,
                offset=self._start + self._rows.start * item * self._dtype.itemsize,
            )
        except OSError as error:
            raise CalibrationError(
                f"{doing}: {error.strerror or error}. Put the file back, and give it to the study again, "
                "study.use(path).",
                details=repr(error),
            ) from error
        # It may have been written in the middle of being read.
        if stamp(self._path) != self._loaded or made.size != len(self._rows) * item:
            raise CalibrationError(
                f"{doing}: it was written since it was opened, and samples of both would mix. Give it to the study "
                "again, study.use(path)."
            )
        return made.reshape(self.shape)


def array_of(path: Path) -> Any:
    """The array of an ``.npy``: piece by piece where its samples lie one after the other, else all of it."""
    try:
        return Rows(path)
    except ValueError:
        with open_arrays(path) as array:
            return array
