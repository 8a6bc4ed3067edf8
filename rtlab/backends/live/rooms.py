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
class Lying:
    """An array in a room."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Rooms:
    """The parent's side: rooms of one child, which inherits their numbers."""

    def __init__(self) -> None:
        self.numbers = _made()
        self._free = list(self.numbers)
        self._maps: dict[int, mmap.mmap] = {}
        weakref.finalize(self, _close, self.numbers)

    def take(self) -> int | None:
        """A room for the next answer; None where there is none."""
        return self._free.pop() if self._free else None

    def arrays(self, room: int | None, answer: Sequence[Any]) -> list[Any]:
        """An answer with the arrays that lie in a room, which is free again when nobody has one of them any more."""
        if room is None or not any(isinstance(a, Lying) for a in answer):
            self.back(room)
            return list(answer)
        size = os.fstat(room).st_size
        if room not in self._maps or len(self._maps[room]) != size:
            self._maps[room] = mmap.mmap(room, size)
        lent = (ctypes.c_char * size).from_buffer(self._maps[room])
        weakref.finalize(lent, self._free.append, room).atexit = False
        return [_view(lent, a) if isinstance(a, Lying) else a for a in answer]

    def back(self, room: int | None) -> None:
        """A room that no answer lies in."""
        if room is not None:
            self._free.append(room)

    def clear(self) -> None:
        """Give the memory of rooms back that nobody uses."""
        # Nobody else may take one meanwhile.
        taken = [self._free.pop() for _ in range(len(self._free))]
        for room in taken:
            self._maps.pop(room, None)
            os.ftruncate(room, 0)
        self._free += taken


def _made() -> tuple[int, ...]:
    if sys.platform != "linux":
        return ()
    try:
        return tuple(os.memfd_create(f"rtlab-{i}") for i in range(_ROOMS))
    except OSError:
        return ()


def _close(numbers: Sequence[int]) -> None:
    # What is mapped stays so for as long as somebody has an array in it.
    for number in numbers:
        os.close(number)


def _view(lent: Any, lying: Lying) -> NDArray[Any]:
    count = int(np.prod(lying.shape, dtype=np.int64))
    return np.frombuffer(lent, lying.dtype, count, lying.offset).reshape(lying.shape)


def leave(room: int | None, answer: Sequence[Any]) -> list[Any]:
    """The child's side: an answer whose arrays lie in a room, where they are large together."""
    fit = [isinstance(a, np.ndarray) and a.size and not a.dtype.hasobject for a in answer]
    if room is None or sum(a.nbytes for a, fits in zip(answer, fit, strict=True) if fits) < _LARGE:
        return list(answer)
    left: list[Any] = []
    offset = 0
    for array, fits in zip(answer, fit, strict=True):
        if fits:
            _write(room, np.ascontiguousarray(array).reshape(-1).view(np.uint8), offset)
            left.append(Lying(offset, array.dtype, array.shape))
            offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
        else:
            left.append(array)
    return left


def _write(room: int, data: NDArray[np.uint8], offset: int) -> None:
    """Write all of it, which the system may do in parts."""
    done = 0
    while done < len(data):
        done += os.pwrite(room, data[done:].data, offset + done)
