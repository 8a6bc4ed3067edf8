"""What a child sends: large arrays lie in a file, which goes when it is read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from rtlab.backends.workers.process import _pack, _unpack

RNG = np.random.default_rng(0)
ARRAYS = [
    RNG.random((300, 500)).T, RNG.random((7, 3)), np.zeros((0, 3)), np.array(2.5), RNG.random((9, 9))[::2, ::2],
    np.array(["a", None], object), np.arange(5).astype(ml_dtypes.bfloat16),
]  # fmt: skip


@pytest.fixture
def folder(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(os.name != "posix", reason="files are not shared elsewhere")
@pytest.mark.parametrize(("arrays", "large"), [(ARRAYS, True), (ARRAYS[1:], False), ([], False)])
def test_arrays_arrive_as_they_were_and_can_be_written(folder: Path, arrays: list, large: bool) -> None:
    data, path, sizes = _pack(("result", arrays))
    assert large == bool(path) == bool(sizes)
    assert large == bool([*folder.iterdir()])
    kind, found = _unpack(data, path, sizes)
    assert ("result", []) == (kind, [*folder.iterdir()])
    for expected, array in zip(arrays, found, strict=True):
        assert (expected.dtype, expected.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(expected, array)
        array[...] = array


def test_a_full_disk_leaves_it_to_the_pipe(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    data, path, sizes = _pack(("result", ARRAYS))
    assert ("", []) == (path, sizes)
    np.testing.assert_array_equal(ARRAYS[0], _unpack(data, path, sizes)[1][0])
