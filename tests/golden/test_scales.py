"""The threshold of every calibrator for every value of every sample.

The largest magnitude is looked up in the values that ONNX Runtime hands out, and so is the percentile; the entropy
searches are compared with another implementation of what was published, on a few values of each sample. What ``mse``
chooses was read by eyes; its search is compared with arithmetic elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
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
#: An SQNR above this counts as this one, in decibel; and how near to a limit of ``auto`` decides nothing.
HEARD, SLACK = 65.0, 0.03
_ROW = re.compile(
    r"(?P<value>.*): minmax (?P<minmax>\S+)  entropy (?P<entropy>\S+)  entropy2 (?P<entropy2>\S+)  "
    r"percentile (?P<percentile>\S+)  mse (?P<mse>\S+)  auto: (?P<auto>\w+)",
    flags=re.DOTALL,
)


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


def error(right: np.ndarray, amax: float) -> float:
    """Mean squared error of magnitudes in 127 equal steps up to a threshold."""
    step = amax / 127
    return float(np.mean((np.minimum(np.rint(right / step), 127) * step - right) ** 2))


def auto(right: np.ndarray, amax: Mapping[str, float]) -> set[str]:
    """What ``auto`` may choose: the smallest threshold that clips at most 3 in 10,000 within 4 dB of the best.

    Minmax where there is none. What lies within 1/128 of a threshold, the width of a bin, may count as clipped or not,
    and where one passes or fails by a hair, either is right.
    """
    power = float(np.mean(right**2))
    sqnr = {m: min(10 * np.log10(power / max(error(right, a), 1e-300)), HEARD) for m, a in amax.items()}

    def passing(edge: float, slack: float) -> set[str]:
        return {
            m
            for m, a in amax.items()
            if np.mean(right > a * edge) <= 3e-4 * slack and max(sqnr.values()) - sqnr[m] <= 4 * slack
        }

    surely, perhaps = passing(1.0, 1 - SLACK), passing(1 + 1 / 128, 1 + SLACK)
    least = min((amax[m] for m in surely), default=np.inf)
    return {m for m in perhaps if amax[m] <= least} | (set() if surely else {"minmax"})


def as_good(known: Mapping[str, np.ndarray], kept: str, now: str) -> bool:
    """Whether a row of the table is right for the values of this processor too.

    Their last bits move elements between bins, and where a search has several minima of nearly one depth it ends in
    another: its own measure says then whether the kept threshold is as good, and the rule of ``auto`` what follows.
    """
    was, found = _ROW.fullmatch(kept), _ROW.fullmatch(now)
    if was is None or found is None or was["value"] != found["value"] or was["value"] not in known:
        return False
    right = known[was["value"]]
    old, new = ({m: float(row[m]) for m in METHODS} for row in (was, found))
    for method in METHODS:
        if old[method] == pytest.approx(new[method], rel=0.01):
            continue
        if method in {"entropy", "entropy2"}:
            depths = published.divergences(published.histogram(right, 2048, zeros=method == "entropy"), 128)
            at = round(old[method] / right.max() * 2048) - 128
            if depths[max(at - 1, 0) : at + 2].min() > depths.min() * 1.05 + 1e-12:
                return False
        elif method != "mse" or error(right, old[method]) > 1.01 * error(right, new[method]):
            return False
    return was["auto"] in auto(right, old)


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
        chosen = search.choice().calibrator.method.value
        assert chosen in auto(right, amax), value
        lines.append(f"{value}: {'  '.join(f'{m} {amax[m]:.4g}' for m in METHODS)}  auto: {chosen}")
    table = {f"# {SAMPLES} samples": lines}
    golden(f"scales/{name}.txt", table, within=0.01, as_good=functools.partial(as_good, known))
