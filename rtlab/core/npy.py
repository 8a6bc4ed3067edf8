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


class NpyFile:
    """The array of an ``.npy`` file, of which parts can be read.

    NumPy would map the file, and the system ends a process that reads a mapped file which somebody has cut short.

    Raises:
        OSError, ValueError: it cannot be read, or holds no array that can be read piece by piece.
    """

    is_finite = is_portable = False

    def __init__(self, path: Path) -> None:
        self._path, self._loaded = path, fingerprint_file(path)
        # Its head alone is read through this map, and what it says is held against the size of the file.
        open_input(path).close()
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not mapped.flags.c_contiguous or not mapped.ndim:
            raise ValueError("its samples do not lie one after the other")
        self.shape: tuple[int, ...] = mapped.shape
        self.dtype: np.dtype[Any] = mapped.dtype
        self._start: int = mapped.offset

    def read(self, rows: range) -> NDArray[Any]:
        """Read these samples; raises ``CalibrationError`` where the file is gone, or was changed."""
        count = math.prod(self.shape[1:])
        offset = self._start + rows.start * count * self.dtype.itemsize
        error_prefix = f'Cannot read samples from "{self._path}"'
        try:
            samples: NDArray[Any] = np.fromfile(
                self._path, self.dtype, count=len(rows) * count, offset=offset
            )
        except OSError as error:
            raise CalibrationError(
                f"{error_prefix}: {error.strerror or error}. Put the file back, and give it to the study again, "
                "study.accuracy.use_samples(data=path).",
                details=repr(error),
            ) from error
        # It may have been written in the middle of being read.
        if fingerprint_file(self._path) != self._loaded or samples.size != len(rows) * count:
            raise CalibrationError(
                f"{error_prefix}: it was written since it was opened, and samples of both would mix. Give it to the "
                "study again, study.accuracy.use_samples(data=path)."
            )
        return samples.reshape(len(rows), *self.shape[1:])


def load_array(path: Path) -> Any:
    """The array of an ``.npy``: piece by piece where its samples lie one after the other, else all of it."""
    try:
        return LazyArray(NpyFile(path))
    except ValueError:
        with open_arrays(path) as array:
            return array
