"""Which file is which, by its content: every file of the corpus, and those that other tools write."""

from __future__ import annotations

import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import onnxruntime
import pytest

from rtlab.backends.files import recognise
from rtlab.errors import ReadError
from rtlab.testing import tiny_model

CORPUS = Path(__file__).parents[2] / "corpus"
#: What README.md of the corpus says of its names; all others are logs.
NAMES = {
    "engine.graph.json": "layers",
    "engine.profile.json": "profile",
    "engine.timing.json": "times",
    "engine.profile.metadata.json": "metadata",
    "model.structure-only.onnx": "model",
    "profile.json": "ort_profile",
    "optimized.onnx": "ort_model",
    "profile-table.log": "profile",
    **dict.fromkeys(
        ("digits_inception-fp16-sm80.log", "digits_inception-int8-sm89.log", "digits_vit-fp8-sm120.log",
         "inspector-piece.log"), "layers",
    ),
}  # fmt: skip


def put(folder: Path, content: bytes | str | object, name: str = "file") -> Path:
    path = folder / name
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_every_file_of_the_corpus_is_recognised_under_a_name_that_tells_nothing(tmp_path) -> None:
    files = [p for p in CORPUS.rglob("*") if p.is_file() and p.suffix not in {".md", ".py", ".pyc"}]
    for number, path in enumerate(files):
        (tmp_path / str(number)).symlink_to(path)
    expected = {p: NAMES.get(p.name, "log") for p in files}
    assert expected == {p: recognise.kind(tmp_path / str(i)) for i, p in enumerate(files)}


def test_a_model_that_onnx_runtime_wrote_is_told_from_one_that_it_read(tmp_path) -> None:
    """ONNX Runtime itself is the oracle."""
    plain = put(tmp_path, tiny_model().bytes(), "plain")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized")
    onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    assert ["model", "ort_model"] == [recognise.kind(plain), recognise.kind(tmp_path / "optimized")]


def test_a_model_is_recognised_without_reading_its_weights(tmp_path) -> None:
    """A graph of 256 MiB, all hole."""
    size = 1 << 28
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        # ir_version, the length of a graph, and behind it an opset.
        file.write(b"\x08\x08\x3a" + bytes([0x80] * 4 + [size >> 28]))
        file.seek(size, os.SEEK_CUR)
        file.write(b"\x42\x02\x10\x11")
    tracemalloc.start()
    assert "model" == recognise.kind(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "a folder"), ("pipe", "a pipe"), ("none", "No such file"), ("p.zip", "a zip file")],
)
def test_folders_pipes_missing_files_and_other_zips_are_refused(tmp_path, name, words) -> None:
    """Reading a pipe would never end."""
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("photo.jpg", b"x")
    with pytest.raises(ReadError, match=words):
        recognise.kind(tmp_path / name)


def test_two_files_of_one_kind_are_refused_with_both_names(tmp_path) -> None:
    """Nobody can say which of them is meant."""
    one, two = (put(tmp_path, ["a"], name) for name in ("one.json", "two.json"))
    with pytest.raises(ReadError, match=r'one\.json".*two\.json".*layers='):
        recognise.sort([one, two])
