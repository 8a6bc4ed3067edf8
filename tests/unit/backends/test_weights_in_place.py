"""Sessions of the largest weights, which read them where they lie: what they compute, and when they may not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import rtlab
from large_decoders import write_decoder
from rtlab.backends import onnxruntime, providers
from rtlab.backends.workers.process import BUILDING, Bounds
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.variant import Variant
from rtlab.errors import ModelError

BATCH = {"ids": np.arange(8, dtype=np.int64)[None] % 64}
VALUE = "layer0/add1.y"

pytestmark = pytest.mark.skipif(
    providers.parse_release() < (1, 32), reason="earlier releases of ONNX Runtime get a copy"
)


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """A decoder whose weights are as many as those that stay where they are."""
    file = tmp_path / "decoder.onnx"
    write_decoder(file, layers=1, hidden=64, vocabulary=64)
    monkeypatch.setattr(onnxruntime, "_LARGEST", 1)
    monkeypatch.setattr(onnxruntime, "LARGE", 1 << 15)
    return file


def read_value(model: rtlab.Model) -> np.ndarray:
    with onnxruntime.OnnxRuntime().reading(model, [VALUE]) as read:
        return np.array(read(BATCH)[VALUE])


@pytest.mark.slow
def test_what_is_read_in_place_is_what_a_copy_gives_and_nothing_is_copied(path, monkeypatch) -> None:
    model, backend = rtlab.load(path), onnxruntime.OnnxRuntime()
    assert str(path.parent) == onnxruntime.find_weights_folder(model)
    value = read_value(model)
    engine = backend.build(BuildRequest(model, Variant(), level="basic"), Silent())
    output = backend.outputs(engine, BATCH, [VALUE])[VALUE]
    profile = backend.profile(engine, BATCH, Silent(), runs=2)
    assert onnxruntime._get_model_files(model)._folder is None
    assert profile.total.size >= 2
    assert engine.layers
    monkeypatch.setattr(onnxruntime, "_LARGEST", 1 << 30)
    copied = read_value(rtlab.load(path))
    np.testing.assert_allclose(value, copied, rtol=1e-5)
    np.testing.assert_allclose(output, copied, rtol=1e-5)


@pytest.mark.slow
def test_weights_that_are_written_between_two_runs_give_no_numbers(path) -> None:
    model, backend = rtlab.load(path), onnxruntime.OnnxRuntime()
    engine = backend.build(BuildRequest(model, Variant(), level="basic"), Silent())
    backend.outputs(engine, BATCH, [VALUE])
    weights = path.with_name(f"{path.name}.data")
    weights.write_bytes(bytes(weights.stat().st_size))
    os.utime(weights, ns=(1, 1))
    with pytest.raises(
        ModelError, match=r'Cannot run the model: ".*decoder\.onnx\.data", .* was written since'
    ):
        backend.outputs(engine, BATCH, [VALUE])


def test_what_is_small_or_inside_the_graph_is_copied(path, monkeypatch) -> None:
    """All weights are in one file, or, of a model that was changed, in memory."""
    model = rtlab.load(path)
    assert str(path.parent) == onnxruntime.find_weights_folder(model)
    inside = rtlab.load(onnx.load(path).SerializeToString())
    assert "" == onnxruntime.find_weights_folder(inside)
    assert "" == onnxruntime.find_weights_folder(inside.bytes())
    monkeypatch.setattr(onnxruntime, "_LARGEST", 1 << 30)
    assert "" == onnxruntime.find_weights_folder(model)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 1.1), (np.float16, 2.5)])
def test_a_session_takes_by_its_types(tmp_path, monkeypatch, dtype, most: float) -> None:
    """1.1 times four bytes in FP32; five bytes of two in FP16. Constants of the graph are few."""
    file = tmp_path / "decoder.onnx"
    write_decoder(file, layers=1, hidden=64, vocabulary=640, dtype=dtype)
    factors = []
    monkeypatch.setattr(Bounds, "require_memory", lambda self, weights, factor: factors.append(factor) or "")
    onnxruntime._require_memory(rtlab.load(file), Bounds("x", BUILDING, Limits(), Silent()))
    assert [pytest.approx(most, rel=0.01)] == factors
