"""What a ranking of the guilty costs beside plain inference of the same samples, and how long the first takes."""

from __future__ import annotations

import time

import numpy as np
import onnxruntime
import pytest

import rtlab
from rtlab import Study
from rtlab.backends.reference import get_evaluator
from rtlab.experiments.sensitivity.estimate import build_estimator
from rtlab.experiments.sensitivity.loss import list_float_outputs


def busy(session: onnxruntime.InferenceSession, names: list[str] | None, feed: dict, runs: int) -> float:
    """The least processor seconds of a run."""
    session.run(names, feed)
    taken = []
    for _ in range(runs):
        began = time.process_time()
        session.run(names, feed)
        taken.append(time.process_time() - began)
    return min(taken)


def opened(content: bytes | str, level: str) -> onnxruntime.InferenceSession:
    """A model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# On a quiet machine 10, 5 and 4 are reached with one probe.
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("mobilenet_v2", 12.0),
        pytest.param("resnet50", 8.0, marks=pytest.mark.whole),
        pytest.param("bert", 8.0, marks=pytest.mark.whole),
    ],
)
def test_all_places_are_estimated_in_a_few_plain_inferences(name: str, bound: float, care) -> None:
    """One forward part, one backward part, and every product of gradient and error within the graph."""
    sample = rtlab.samples.load(name, samples=4)
    study = Study(sample.model, data=sample.calibration)
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    names = list_float_outputs(sample.model)
    graph = build_estimator(sample.model, study.calibration.prepare("int8").emulation, names, 1, "only")
    assert graph is not None
    assert {} == dict(graph.stopped)
    batch = next(sample.calibration.batches(sample.model, 1))
    plain = opened(sample.model.bytes(), "ORT_ENABLE_ALL")
    outputs = plain.run(list(names), dict(batch))
    feed = {**batch, **{s: np.ones_like(z) for s, z in zip(graph.seeds[0], outputs, strict=True)}}
    whole = busy(opened(graph.model.bytes(), "ORT_ENABLE_BASIC"), list(graph.products), feed, care.size(5, 1))
    ratio = whole / busy(plain, None, dict(batch), care.size(5, 1))
    assert ratio <= care.most(bound)


@pytest.mark.parametrize(
    ("name", "seconds"), [("digits_outlier", 10.0), pytest.param("resnet50", 60.0, marks=pytest.mark.whole)]
)
def test_the_first_list_comes_soon(name: str, seconds: float, care) -> None:
    """Calibration, graphs, sessions, estimates and eight verified places are all in it."""
    sample = rtlab.samples.load(name, **({"samples": 8} if name == "resnet50" else {}))
    study = Study(sample.model, data=sample.calibration, task=sample.task)
    get_evaluator()
    began = time.monotonic()
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    found = study.accuracy.sensitivity("int8", budget_s=seconds / 2)
    assert found.ranking
    assert any(g.verified is not None for g in found.ranking)
    assert time.monotonic() - began <= care.most(seconds)
