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
    """People rename files."""
    files = [p for p in CORPUS.rglob("*") if p.is_file() and p.suffix not in {".md", ".py", ".pyc"}]
    for number, path in enumerate(files):
        (tmp_path / str(number)).symlink_to(path)
    expected = {p: NAMES.get(p.name, "log") for p in files}
    assert expected == {p: recognise.kind(tmp_path / str(i)) for i, p in enumerate(files)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"I/O Tensors": [], "Layers": [{"Name": "a"}]}, "layers"),
        ({"Bindings": ["x"], "Layers": ["a"]}, "layers"),
        (["a", "b"], "layers"),
        ('{"Layers": [{"Name": "cut', "layers"),
        ('[07/07/2026-06:09:15] [TRT] [W] words\n{"Layers": ["a"]}', "layers"),
        ([{"name": "a", "averageMs": 1}], "profile"),
        ([{"latencyMs": 1}], "times"),
        ([{"name": "y", "dimensions": "1", "values": [1]}], "output"),
        ([{"Name": "GPU", "ComputeCapability": [8, 0]}], "metadata"),
        ([{"cat": "Node", "ph": "X", "dur": 3, "name": "n"}], "ort_profile"),
        ({"lst": [], "polygraphy_class": "RunResults"}, "results"),
        ("TRT-100300-MinMaxCalibration\nx: 3c010204\n", "cache"),
        ("[V] [TRT] Registering tensor: x for ONNX tensor: x\n", "log"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v101601] # trtexec\n", "log"),
        (b"ftrt\0\0\0\0", "plan"),
        (b"vtrt\0\0\0\0", "plan"),
        (b"\x0b\0\0\0" + b'{"task": 1}' + b"ftrt", "plan"),
        (b"ptrtd\0\0\0", "timing_cache"),
    ],
)
def test_content_tells_the_kind(tmp_path, content, expected) -> None:
    """Whole or cut off, with lines of a log before it, in any order of keys."""
    assert expected == recognise.kind(put(tmp_path, content))


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_the_encoding_does_not_matter(tmp_path, code) -> None:
    """PowerShell writes UTF-16 when output is redirected."""
    assert "layers" == recognise.kind(put(tmp_path, '{"Layers": ["a"]}'.encode(code)))


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
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x93NUMPY\1\0", "NumPy"),
        (b"PK\x03\x04", "directory is damaged"),
        ("# Notes\n", r"# Notes"),
        ({"other": 1}, "tells no kind"),
        (bytes(range(256)), "tells no kind"),
        # By its first sixteen bytes.
        (
            "Shall I compare thee to a summer's day?",
            "it begins with b'Shall I compare ', which tells no kind",
        ),
    ],
)
def test_what_is_none_of_them_is_refused_with_what_it_looks_like(tmp_path, content, words) -> None:
    with pytest.raises(ReadError) as refused:
        recognise.kind(put(tmp_path, content, "strange.bin"))
    assert all(w in str(refused.value) for w in ('"strange.bin"', words, "byte 0"))


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


def test_files_are_sorted_by_kind_and_profile_metadata_go_before_build_metadata(tmp_path) -> None:
    """All files of a folder are dropped at once; trex writes up to three of metadata."""
    layers = put(tmp_path, {"Layers": ["a"]}, "1")
    build = put(tmp_path, {"model_options": {}, "build_options": {}}, "2")
    card = put(tmp_path, [{"Name": "GPU", "ComputeCapability": [8, 0]}], "3")
    run = put(tmp_path, {"performance_summary": {}, "device_information": {}}, "4")
    assert {"layers": layers, "metadata": run} == recognise.sort([build, layers, run, card])
    assert {"metadata": card} == recognise.sort([card, build])


def test_two_files_of_one_kind_are_refused_with_both_names(tmp_path) -> None:
    """Nobody can say which of them is meant."""
    one, two = (put(tmp_path, ["a"], name) for name in ("one.json", "two.json"))
    with pytest.raises(ReadError, match=r'one\.json".*two\.json".*layers='):
        recognise.sort([one, two])
