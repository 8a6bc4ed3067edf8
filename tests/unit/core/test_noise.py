"""Samples that are drawn when they are read: the numbers of one call, and no more of them than somebody reads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rtlab.core.noise import drawn

SHAPES = {
    "a": ((7, 3, 5), np.dtype("float32")),
    "i": ((9, 11), np.dtype("int64")),
    "b": ((5, 2), np.dtype("bool")),
    "h": ((4, 300, 900), np.dtype("float16")),
}


def at_once(seed: int):
    """What NumPy draws, one whole array after the other."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(size) if dtype.kind == "f" else rng.integers(0, 2, size)).astype(dtype)
        for name, (size, dtype) in SHAPES.items()
    }


@pytest.mark.parametrize("names", [[*SHAPES], [*reversed(SHAPES)]], ids=["in order", "the last first"])
def test_the_numbers_are_those_of_one_call_in_whatever_order_they_are_read(names) -> None:
    """A seed means the same samples, however they are cut."""
    expected, found = at_once(3), drawn(SHAPES, 3)
    for i in (2, 0, 3):
        for name in names:
            np.testing.assert_array_equal(expected[name][i], found[name][i])
            np.testing.assert_array_equal(expected[name][i : i + 2], found[name][i : i + 2])
            np.testing.assert_array_equal(expected[name][1:][:2], found[name].part(1, 99).part(0, 2))
        found = pickle.loads(pickle.dumps(found))
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name])
        np.testing.assert_array_equal(array[::-2], found[name][::-2])
        np.testing.assert_array_equal(array[-1], found[name][-1])
