"""Arrays in memory that two processes share: what is read is what was written, for as long as anybody has it."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

from rtlab.backends.workers.shared_memory import SharedArrayRef, SharedMemoryPool, store_arrays

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="arrays come through the pipe elsewhere")


@pytest.fixture
def rooms():
    return SharedMemoryPool()


def answer(seed: int) -> list[object]:
    """Of all kinds: large and small, of many types, laid out otherwise, empty, text, a number, no array at all."""
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=(3, 400, 301)).astype(np.float32), rng.integers(-9, 9, (5, 7), np.int8),
        np.asfortranarray(rng.normal(size=(300, 500))), rng.normal(size=(2, 3)).astype(ml_dtypes.bfloat16),
        rng.random((64, 9)) > 0.5, np.zeros((0, 4), np.float16), np.array(["a", "bc"], object), np.array(7.5),
        [{"one": 1}],
    ]  # fmt: skip


def equal(expected, found) -> None:
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other


def test_what_lies_in_a_room_is_what_was_left_there(rooms) -> None:
    for scale in (1, 3, 2):
        expected = answer(scale)
        expected[0] = np.tile(expected[0], (1, scale, 1))
        room = rooms.acquire()
        left = store_arrays(room, expected)
        assert isinstance(left[0], SharedArrayRef)
        equal(expected, rooms.read_arrays(room, left))


def test_a_room_is_lent_again_only_when_nobody_has_an_array_in_it(rooms) -> None:
    held, expected = [], []
    for seed in range(len(rooms.fds)):
        room = rooms.acquire()
        expected.append(answer(seed)[0][0].T)
        held.append(rooms.read_arrays(room, store_arrays(room, answer(seed)))[0][0].T)
    assert rooms.acquire() is None
    equal(answer(9), rooms.read_arrays(None, store_arrays(None, answer(9))))
    rooms.clear()
    for one, other in zip(expected, held, strict=True):
        np.testing.assert_array_equal(one, other)
    del other
    held.pop()
    room = rooms.acquire()
    equal(answer(5), rooms.read_arrays(room, store_arrays(room, answer(5))))
    for one, other in zip(expected, held, strict=False):
        np.testing.assert_array_equal(one, other)
