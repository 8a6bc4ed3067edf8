"""Samples that are drawn when they are read: the numbers of one call, and no more of them than somebody reads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rtlab.core.data import CalibrationData
from rtlab.core.noise import Noise, drawn
from rtlab.testing import tiny_model

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


def test_it_computes_as_an_array_does() -> None:
    expected, found = at_once(0)["a"], drawn(SHAPES, 0)["a"]
    np.testing.assert_array_equal(2 * expected + expected, 2 * found + found)
    np.testing.assert_array_equal(np.maximum(expected, 0), np.maximum(found, 0))
    np.testing.assert_array_equal(expected.astype("int8"), found.astype("int8"))
    assert expected.std() == found.std()
    assert (7, 3, 5) == found.shape
    assert [(5, 3, 5), (0, 3, 5), (2, 3, 5)] == [found[2:].shape, found[9:].shape, found.part(5, 99).shape]
    with pytest.raises(IndexError):
        found[7]


def test_one_batch_draws_one_batch() -> None:
    """To time a model takes one sample; the other 63 kept Cancel waiting for seconds."""
    model = tiny_model()
    data = CalibrationData.random(model, samples=8_000)
    noise = data.arrays["x"]
    assert isinstance(noise, Noise)
    data.check(model)
    next(data.take(32).batches(model, 1))
    assert 1 == noise.drawn
    assert 3 == len(next(data.part(1, 2, model=model).batches(model, 3))["x"])
    assert 4_003 == noise.drawn
