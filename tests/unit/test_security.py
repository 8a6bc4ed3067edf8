"""What SECURITY.md says, where no other test holds it; and that each of its sentences has a test that exists."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import rtlab
from rtlab.errors import RtlabError
from rtlab.testing import tiny_model

HERE = Path(__file__).parents[2]
ROWS = [
    line
    for line in (HERE / "SECURITY.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| what is true")
]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_sentence_names_tests_that_there_are(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[2])
    assert named
    for file, name in named:
        assert re.search(rf"\b{name}\b", (HERE / file).read_text("utf-8")), f"{file} has no {name}"


class Planted:
    """Makes a folder where a pickle of it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["npy", "npz", "pickle"])
def test_a_pickle_in_a_file_of_samples_is_not_loaded(tmp_path: Path, kind: str) -> None:
    sign, path = tmp_path / "executed", tmp_path / f"samples.{'npz' if kind == 'npz' else 'npy'}"
    samples = np.array([Planted(sign)], object)
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Planted(sign)))
    elif kind == "npz":
        np.savez(path, x=samples)
    else:
        np.save(path, samples)
    with pytest.raises(RtlabError):
        next(rtlab.Study(tiny_model(), data=path).data.batches(tiny_model(), 1))
    assert not sign.exists()


@pytest.mark.parametrize("place", ["../secret.bin", "{absolute}", "link.bin"])
def test_weights_outside_of_the_folder_of_a_model_are_not_read(tmp_path: Path, place: str) -> None:
    folder, secret = tmp_path / "models", tmp_path / "secret.bin"
    folder.mkdir()
    proto = onnx.load_from_string(tiny_model().bytes())
    weight = max(proto.graph.initializer, key=lambda t: len(t.raw_data))
    secret.write_bytes(weight.raw_data)
    (folder / "link.bin").symlink_to(secret)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", place.format(absolute=secret)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(RtlabError):
        rtlab.Study(path)
