"""An array in a file, read piece by piece."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.file_fingerprint import fingerprint_file
from rtlab.core.inputs import open_arrays, open_input
from rtlab.core.lazy import LazyArray
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NpyFile(LazyArray):
    """The array of an ``.npy`` file: a part of it is read when it is asked for.

    Pickled, it is the array. NumPy would map the file, and the system ends a process that reads a mapped file which
    somebody has cut short.

    Args:
        path: The file.

    Raises:
        OSError, ValueError: it cannot be read, or holds no array that can be read piece by piece.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._loaded = path, fingerprint_file(path)
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

    def part(self, first: int, last: int) -> NpyFile:
        """Samples from one up to another, not read yet."""
        subset = object.__new__(NpyFile)
        subset.__dict__.update(self.__dict__)
        subset._rows = self._rows[first:last]
        return subset

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Read all samples of this part.

        Raises:
            CalibrationError: the file is gone, or was changed.
        """
        samples = self._read()
        return samples if dtype is None else samples.astype(dtype, copy=False)

    def _read(self) -> NDArray[Any]:
        item = math.prod(self._shape[1:])
        error_prefix = f'Cannot read samples from "{self._path}"'
        try:
            samples: NDArray[Any] = np.fromfile(
                self._path,
                self._dtype,
                count=len(self._rows) * item,
                offset=self._start + self._rows.start * item * self._dtype.itemsize,
            )
        except OSError as error:
            raise CalibrationError(
                f"{error_prefix}: {error.strerror or error}. Put the file back, and give it to the study again, "
                "study.accuracy.use_samples(data=path).",
                details=repr(error),
            ) from error
        # It may have been written in the middle of being read.
        if fingerprint_file(self._path) != self._loaded or samples.size != len(self._rows) * item:
            raise CalibrationError(
                f"{error_prefix}: it was written since it was opened, and samples of both would mix. Give it to the "
                "study again, study.accuracy.use_samples(data=path)."
            )
        return samples.reshape(self.shape)


def load_array(path: Path) -> Any:
    """The array of an ``.npy``: piece by piece where its samples lie one after the other, else all of it."""
    try:
        return NpyFile(path)
    except ValueError:
        with open_arrays(path) as array:
            return array
