"""The threshold of every calibrator for every value of every sample.

The largest magnitude is looked up in the values that ONNX Runtime hands out, and so is the percentile; the entropy
searches are compared with another implementation of what was published, on a few values of each sample. What ``mse``
chooses was read by eyes; its search is compared with arithmetic elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import published
import rtlab
import scenes
from rtlab.core.variant import Calibrator, Precision
from rtlab.quantize.calibrators import Search

METHODS = ("minmax", "entropy", "entropy2", "percentile", "mse")
SAMPLES = 32
#: How many values of a sample the slow search is done for.
SOUGHT = 2


def magnitudes(model: Any, data: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Of each value all magnitudes that the data give it."""
    proto = model.proto()
    given = {i.name for i in proto.graph.input}
    proto.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in given | {*model.outputs}
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: dict[str, list[np.ndarray]] = {n: [] for n in names}
    for batch in data.batches(model):
        feed = {k: np.asarray(v) for k, v in batch.items()}
        asked = [n for n in names if n not in feed]
        for name, array in {
            **feed,
            **dict(zip(asked, session.run(asked, feed) if asked else [], strict=True)),
        }.items():
            if name in found:
                found[name].append(np.abs(array.astype(np.float64)).ravel())
    return {n: np.concatenate(parts) for n, parts in found.items()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in scenes.SMALL])
def test_thresholds_of_a_sample_are_those_of_its_values(name: str, golden: Any) -> None:
    """A scale that is wrong by a factor of two costs an INT8 model a bit everywhere."""
    sample = rtlab.samples.load(name)
    if sample.calibration is None:
        pytest.skip("it comes without data")
    data = sample.calibration.take(SAMPLES)
    study = rtlab.Study(sample.model, data=data, stride=1)
    ranges = study.ranges()
    study.add("int8", precision="int8", calibrator="minmax", backend="onnxruntime")
    study.run(compare=False)
    quantized = [n for n in study["int8"].prepared.scales if n in ranges.values]
    if not quantized:
        pytest.skip("it is quantized already")
    known = magnitudes(sample.model, data, quantized)
    lines = []
    for position, value in enumerate(quantized):
        seen, right = ranges.values[value], known[value]
        search = Search(seen, Precision.INT8)
        amax = {m: search.amax(Calibrator.of(m)) for m in METHODS}
        assert right.size == seen.count, value
        assert right.max() == pytest.approx(amax["minmax"], rel=1e-6), value
        assert study["int8"].prepared.scales[value].scale == pytest.approx(right.max() / 127, rel=1e-6), value
        # A bin of the histogram is 1/128 of its lower edge wide.
        share = np.quantile(right, 0.9999, method="inverted_cdf")
        assert share == pytest.approx(amax["percentile"], rel=0.02), value
        if position < SOUGHT:
            for method, zeros in (("entropy", True), ("entropy2", False)):
                divergences = published.divergences(published.histogram(right, 2048, zeros=zeros), 128)
                at = round(amax[method] / right.max() * 2048) - 128
                # Where the minimum is flat candidates change places; what is reached is what counts.
                reached = divergences[max(at - 1, 0) : at + 2].min()
                assert reached <= divergences.min() * 1.05 + 1e-12, (value, method)
        auto = search.choice()
        lines.append(
            f"{value}: {'  '.join(f'{m} {amax[m]:.4g}' for m in METHODS)}  auto: {auto.calibrator.method.value}"
        )
    golden(f"scales/{name}.txt", {f"# {SAMPLES} samples": lines}, within=0.01)
