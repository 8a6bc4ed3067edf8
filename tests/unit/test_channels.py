"""Errors channel by channel, beside a computation in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nets
import rtlab
from rtlab import Study
from rtlab.core.progress import Silent
from rtlab.core.scale import Scale
from rtlab.errors import Cancelled
from rtlab.samples import load


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


def test_each_channel_has_its_own_errors(study: Study) -> None:
    node = next(n for n in study.model.top if n.op == "Conv" and n.attributes.get("group", 1) > 1)
    value = node.outputs[0]
    told = study.channels("int8", node.id)
    ready = study["int8"].prepared
    feed = dict(next(study.data.batches(study.model, 80)))
    x, y = (computed(m, value, feed) for m in (study.model, ready.emulation))
    assert (told.samples, told.axis, len(told.channels)) == (80, 1, x.shape[1])
    for row in told.channels:
        one, two = x[:, row.channel], y[:, row.channel]
        assert row.amax == pytest.approx(np.abs(one).max(), rel=1e-4)
        assert row.max_abs == pytest.approx(np.abs(one - two).max(), rel=1e-3)
        assert row.rmse == pytest.approx(np.sqrt(((one - two) ** 2).mean()), rel=1e-3)
        assert row.sqnr == pytest.approx(10 * np.log10((one**2).sum() / ((one - two) ** 2).sum()), abs=0.02)
    # Together they are the error of the value, whose own error the comparison tells too.
    study.measure("int8")
    whole = study["int8"].accuracy.of(node.id)
    assert whole.rmse == pytest.approx(math.sqrt(np.mean([r.rmse**2 for r in told.channels])), rel=1e-3)
    signal = [r.rmse**2 * 10 ** (r.sqnr / 10) for r in told.channels]
    own = sum(s / 10 ** (r.own_sqnr / 10) for s, r in zip(signal, told.channels, strict=True))
    assert whole.own_sqnr == pytest.approx(10 * math.log10(sum(signal) / own), abs=0.05)
    assert max(r.amax for r in told.channels) > 3 * np.median([r.amax for r in told.channels])


def test_what_lies_beyond_a_threshold_is_counted_by_channel(study: Study) -> None:
    value = next(v for v in study["int8"].prepared.scales if v in study.model.producers)
    scales = dict(study["int8"].prepared.scales) | {value: Scale(0.5)}
    study.add("clipped", precision="int8", scales=scales, backend="onnxruntime")
    told = study.channels("clipped", value)
    x = computed(study.model, value, dict(next(study.data.batches(study.model, 80))))
    rows = np.moveaxis(x, told.axis, 0).reshape(len(told.channels), -1)
    assert told.threshold == 0.5
    beyond = (np.abs(rows) > 0.5).mean(axis=1).tolist()
    assert [r.saturated for r in told.channels] == pytest.approx(beyond, abs=1e-4)
    study.remove("clipped")


def test_what_was_measured_before_a_cancel_is_kept(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    class Once(Silent):
        def advance(self, steps: int = 1) -> None:
            self.cancel()

    monkeypatch.setattr("rtlab.experiments.channels.batch_size", lambda *_: 16)
    node = study.model.top[-1].id
    assert 16 == study.channels("int8", node, progress=Once()).samples
    stopped = Silent()
    stopped.cancel()
    with pytest.raises(Cancelled):
        study.channels("int8", node, progress=stopped)


def test_of_a_sequence_the_features_are_channels() -> None:
    sample = load("sentences")
    made = Study(sample.model, data=sample.calibration.take(16))
    made.add("int8", calibrator="minmax", backend="onnxruntime")
    node = next(n for n in sample.model.top if n.op == "MatMul")
    assert made.channels("int8", node.id).axis == -1
