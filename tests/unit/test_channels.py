"""Errors channel by channel, beside a computation in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import nets
import rtlab
from rtlab import Study
from rtlab.core.scale import Scale
from rtlab.errors import Cancelled
from rtlab.samples import load
from stopping import Stopping


@pytest.fixture(scope="module")
def study() -> Study:
    sample = load("digits_outlier")
    made = Study(sample.model, data=sample.calibration.take(80))
    made.add("int8", calibrator="minmax", backend="onnxruntime")
    made.run(budget_s=20)
    return made


def computed(model: rtlab.Model, name: str, feed: dict[str, np.ndarray]) -> np.ndarray:
    proto = model.proto()
    del proto.graph.output[:]
    proto.graph.output.add().name = name
    return nets.run(proto.SerializeToString(), feed)[0].astype(np.float64)


def test_what_lies_beyond_a_threshold_is_counted_by_channel(study: Study) -> None:
    value = next(v for v in study["int8"].prepared.scales if v in study.model.producers)
    scales = dict(study["int8"].prepared.scales) | {value: Scale(0.5)}
    study.add("clipped", precision="int8", scales=scales, backend="onnxruntime")
    told = study.accuracy.channels("clipped", value)
    x = computed(study.model, value, dict(next(study.data.batches(study.model, 80))))
    rows = np.moveaxis(x, told.axis, 0).reshape(len(told.channels), -1)
    assert told.threshold == 0.5
    beyond = (np.abs(rows) > 0.5).mean(axis=1).tolist()
    assert [r.saturated for r in told.channels] == pytest.approx(beyond, abs=1e-4)
    study.remove("clipped")


def test_what_was_measured_before_a_cancel_is_kept(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtlab.experiments.observation.batch_size", lambda *_: 16)
    node = study.model.top[-1].id
    assert 16 == study.accuracy.channels("int8", node, progress=Stopping(1)).samples
    with pytest.raises(Cancelled):
        study.accuracy.channels("int8", node, progress=Stopping())


def test_of_a_sequence_the_features_are_channels() -> None:
    sample = load("sentences")
    made = Study(sample.model, data=sample.calibration.take(16))
    made.add("int8", calibrator="minmax", backend="onnxruntime")
    node = next(n for n in sample.model.top if n.op == "MatMul")
    assert made.accuracy.channels("int8", node.id).axis == -1
