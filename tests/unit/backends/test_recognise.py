"""Which file is which, by its content: every recorded file, and those that other tools write."""

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

# Recordings live beside the checkout, not in it.
RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
CORPUS = Path(__file__).parents[2] / "corpus"
ABSENT = pytest.mark.skipif(not RECORDED.is_dir(), reason="no ../shared/recorded beside the checkout")
#: What the recordings' own README says of their names.
NAMES = {
    "engine.graph.json": "layers",
    "profile.json": "ort_profile",
    "optimized.onnx": "ort_model",
    "digits_inception-fp16-sm80.log": "layers",
    "digits_inception-int8-sm89.log": "layers",
    "digits_vit-fp8-sm120.log": "layers",
    "resnet18_trt_engine_info.json": "layers",
    "EngineInspector.log": "layers",
    "engine.profile.json": "profile",
    "Profiler.log": "profile",
    "engine.timing.json": "times",
    "engine.metadata.json": "metadata",
    "engine.build.metadata.json": "metadata",
    "engine.profile.metadata.json": "metadata",
    "model.structure-only.onnx": "model",
    "cuDLA-yolov5s-qat2ptq.TRT-8600.cache": "cache",
    "detr-layer-info.json": "layers",
    "detr-profile.json": "profile",
    "i3583-inspector-text-trt91.log": "layers",
    "i3842-profile-table-trt10.log": "profile",
    "trtexec-profile-table-trt10.16.log": "profile",
    "profile-table.log": "profile",
    "inspector-piece.log": "layers",
}


def put(folder: Path, content: bytes | str | object, name: str = "file") -> Path:
    path = folder / name
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("home", [CORPUS, pytest.param(RECORDED, marks=ABSENT)], ids=["corpus", "recorded"])
def test_every_recorded_file_is_recognised_under_a_name_that_tells_nothing(home, tmp_path) -> None:
    """People rename files; the README's table of names is the oracle."""
    files = [p for p in home.rglob("*") if p.is_file() and p.suffix not in {".md", ".py", ".pyc"}]
    expected = {p: NAMES.get(p.name, "log") for p in files}
    for number, path in enumerate(files):
        (tmp_path / str(number)).symlink_to(path)
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
    ("content", "told"),
    [
        (b"", "it is empty"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x93NUMPY\1\0", "NumPy"),
        (b"PK\x03\x04", "directory is damaged"),
        ("# Notes\n", r"# Notes"),
        ({"other": 1}, "tells no kind"),
        (bytes(range(256)), "tells no kind"),
    ],
)
def test_what_is_none_of_them_is_refused_with_what_it_looks_like(tmp_path, content, told) -> None:
    """And with what rtlab reads."""
    with pytest.raises(ReadError) as refused:
        recognise.kind(put(tmp_path, content, "strange.bin"))
    assert '"strange.bin"' in str(refused.value)
    assert told in str(refused.value)
    assert "byte 0" in str(refused.value)


def test_folders_pipes_and_missing_files_are_refused(tmp_path) -> None:
    """Reading a pipe would never end."""
    os.mkfifo(tmp_path / "pipe")
    for path, told in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a pipe"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(ReadError, match=told):
            recognise.kind(path)


def test_a_zip_of_something_else_is_no_archive(tmp_path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("photo.jpg", b"x")
    with pytest.raises(ReadError, match="a zip file"):
        recognise.kind(tmp_path / "photos.zip")


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


def test_what_is_of_no_known_kind_is_quoted_by_its_first_sixteen_bytes(tmp_path) -> None:
    path = put(tmp_path, "Shall I compare thee to a summer's day?", "sonnet.txt")
    with pytest.raises(ReadError) as refused:
        recognise.kind(path)
    assert "byte 0: it begins with b'Shall I compare ', which tells no kind; " in str(refused.value)
