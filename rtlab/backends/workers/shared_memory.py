"""Memory that a parent and its child share, in which the child leaves large arrays: a pipe takes as long as a run.

The parent lends a room for one answer; the arrays of that answer lie in it, and it is free again with the last of them.
Where the system has no such memory, and when every room is taken, arrays come through the pipe.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Rooms of a child: a comparison holds the answers of two, and calibration counts one while the next is computed.
_ROOMS = 4
#: Bytes from which an answer is worth a room, and what an array in it is aligned to.
_LARGE, _ALIGNED = 1 << 20, 64


@dataclasses.dataclass(frozen=True)
class SharedArrayRef:
    """An array in a room."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class SharedMemoryPool:
    """The parent's side: rooms of one child, which inherits their numbers."""

    def __init__(self) -> None:
        self.fds = _create_memfds()
        self._free = list(self.fds)
        self._maps: dict[int, mmap.mmap] = {}
        weakref.finalize(self, _close, self.fds)

    def acquire(self) -> int | None:
        """A room for the next answer; None where there is none."""
        return self._free.pop() if self._free else None

    def read_arrays(self, fd: int | None, answer: Sequence[Any]) -> list[Any]:
        """An answer with the arrays that lie in a room, which is free again when nobody has one of them any more."""
        if fd is None or not any(isinstance(a, SharedArrayRef) for a in answer):
            self.release(fd)
            return list(answer)
        size = os.fstat(fd).st_size
        if fd not in self._maps or len(self._maps[fd]) != size:
            self._maps[fd] = mmap.mmap(fd, size)
        buffer = (ctypes.c_char * size).from_buffer(self._maps[fd])
        weakref.finalize(buffer, self._free.append, fd).atexit = False
        return [_view(buffer, a) if isinstance(a, SharedArrayRef) else a for a in answer]

    def release(self, fd: int | None) -> None:
        """A room that no answer lies in."""
        if fd is not None:
            self._free.append(fd)

    def clear(self) -> None:
        """Give the memory of rooms back that nobody uses."""
        # Nobody else may take one meanwhile.
        free_fds = [self._free.pop() for _ in range(len(self._free))]
        for fd in free_fds:
            self._maps.pop(fd, None)
            os.ftruncate(fd, 0)
        self._free += free_fds


def _create_memfds() -> tuple[int, ...]:
    if sys.platform != "linux":
        return ()
    try:
        return tuple(os.memfd_create(f"rtlab-{i}") for i in range(_ROOMS))
    except OSError:
        return ()


def _close(fds: Sequence[int]) -> None:
    # What is mapped stays so for as long as somebody has an array in it.
    for fd in fds:
        os.close(fd)


def _view(buffer: Any, ref: SharedArrayRef) -> NDArray[Any]:
    count = int(np.prod(ref.shape, dtype=np.int64))
    return np.frombuffer(buffer, ref.dtype, count, ref.offset).reshape(ref.shape)


def store_arrays(fd: int | None, answer: Sequence[Any]) -> list[Any]:
    """The child's side: an answer whose arrays lie in a room, where they are large together."""
    fit = [isinstance(a, np.ndarray) and a.size and not a.dtype.hasobject for a in answer]
    if fd is None or sum(a.nbytes for a, fits in zip(answer, fit, strict=True) if fits) < _LARGE:
        return list(answer)
    entries: list[Any] = []
    offset = 0
    for array, fits in zip(answer, fit, strict=True):
        if fits:
            _write(fd, np.ascontiguousarray(array).reshape(-1).view(np.uint8), offset)
            entries.append(SharedArrayRef(offset, array.dtype, array.shape))
            offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
        else:
            entries.append(array)
    return entries


def _write(fd: int, data: NDArray[np.uint8], offset: int) -> None:
    """Write all of it, which the system may do in parts."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:].data, offset + done)
