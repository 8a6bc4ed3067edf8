"""Studies on a machine with a GPU: the whole way through a backend whose driver is a stand-in."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from fake_gpu import VERSIONS, Here, needs_api
from rtlab import Study, backends
from rtlab.core.data import CalibrationData
from rtlab.errors import ReadError, RunError, Unavailable
from rtlab.testing import tiny_model

pytestmark = needs_api


@pytest.fixture(params=VERSIONS)
def release(request, monkeypatch):
    """Backends register by name; this one stands in for the GPU's as a plug-in would."""
    monkeypatch.setitem(backends.registry(), "tensorrt", Here(request.param))
    return request.param


@pytest.fixture
def study(release) -> Study:
    model = tiny_model()
    return Study(model, data=CalibrationData.random(model, samples=4, seed=1))


def test_an_engine_that_runs_on_a_gpu_shows_its_own_times_and_its_own_errors(study) -> None:
    # What is not named is built for the GPU that is here.
    assert "sm86" == str(study.add("fp16", backend="tensorrt").target)
    study.run()
    result = study["fp16"]
    assert ("GPU", "Fake GPU") == (result.timing.processor, result.engine.device)
    assert result.measured is result.engine
    assert "TensorRT on Fake GPU" in result.accuracy.source
    shown = {v.value for v in result.accuracy.values}
    assert set(study.model.outputs) <= shown <= {t.name for y in result.engine.layers for t in y.outputs}
    assert result.timing.ratio is not None


def test_an_engine_is_saved_opened_again_and_counted(study, tmp_path) -> None:
    study.add("fp32", backend="tensorrt", target="sm86")
    study.run(compare=False)
    path = study.save_build("fp32", tmp_path / "tiny.engine", kind="engine")
    assert study["fp32"].engine.plan == path.read_bytes()
    again = study.read("again", plan=path)
    assert [y.name for y in study["fp32"].engine.layers] == [y.name for y in again.engine.layers]
    assert again.accuracy.worst(1)[0].sqnr > 60
    counted = study.tuning.throughput("again", streams=2, seconds=0.2)
    assert (2, "GPU") == (counted.streams, again.timing.processor)
    assert counted.inferences > 0
    batch = next(study.data.batches(study.model, 1))
    session = onnxruntime.InferenceSession(study.model.bytes(), providers=["CPUExecutionProvider"])
    found = backends.get("tensorrt").outputs(again.engine, batch, ())[study.model.outputs[0]]
    np.testing.assert_allclose(session.run(None, dict(batch))[0], found, rtol=1e-4, atol=1e-4)


def test_an_engine_of_another_machine_is_refused(study, tmp_path) -> None:
    path = tmp_path / "no.engine"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises((Unavailable, RunError, ReadError), match=r"no\.engine"):
        study.read("x", plan=path)
    assert "x" not in study.state.variants


def test_without_a_gpu_opening_says_how_to_export(tmp_path) -> None:
    study = Study(tiny_model())
    with pytest.raises(Unavailable, match="exportLayerInfo"):
        study.read("x", plan=tmp_path / "model.engine")
    study.add("fp32", target="cpu")
    study.run(compare=False)
    with pytest.raises(RunError):
        study.save_build("fp32", tmp_path / "x.engine", kind="engine")
    with pytest.raises(Unavailable):
        study.tuning.throughput("fp32")
