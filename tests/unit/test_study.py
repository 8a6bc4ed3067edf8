"""Study: variants, failures, and what is kept."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import pickle
import re

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import engines
from nets import graph
from rtlab import CalibrationData, Precision, Result, Study, Task, samples
from rtlab.analyses.variants.summary import summarize_variant
from rtlab.core.facts import Score
from rtlab.core.metrics import Tally
from rtlab.core.stage import Stage
from rtlab.errors import BuildError, CalibrationError, Cancelled, RunError, VariantError
from rtlab.testing import ReferenceBackend, tiny_model
from stopping import Stopping


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def on_cpu(model, **kwargs) -> Study:
    study = Study(model, data=CalibrationData.random(model, samples=16), **kwargs)
    study.add("fp32", target="cpu")
    study.add("int8", calibrator="minmax", target="cpu")
    return study


@pytest.fixture(scope="module")
def study(model):
    labels = np.arange(16) % 4
    return on_cpu(model, task=Task(CalibrationData.random(model, samples=16, seed=1), labels)).run(
        budget_s=math.inf
    )


def test_the_reference_is_scored_and_not_compared_with_itself(study) -> None:
    assert (None, "none") == (study["fp32"].accuracy, study["fp32"].stages[Stage.COMPARED].state)
    assert (16, False) == (study["fp32"].score.samples, study["fp32"].random_scales)


def test_what_rests_on_random_input_says_so(model) -> None:
    own = CalibrationData(CalibrationData.random(model, samples=8).arrays, source="photographs")
    found = {}
    for name, data in (("random", None), ("own", own), ("both", own)):
        study = Study(model, data=data)
        if name == "both":
            study.calibration.observe()
            study.calibration.observe(CalibrationData.random(model, samples=8, seed=1))
        study.add("int8", calibrator="minmax", target="cpu")
        found[name] = study.run()["int8"]
    assert [True, False, True] == [r.random_scales for r in found.values()]
    assert [True, False, False] == [r.accuracy.synthetic for r in found.values()]
    assert found["random"].accuracy.origin.endswith("32 samples, random input")
    assert found["own"].accuracy.origin.endswith("photographs, 8 samples")


def test_a_variant_that_was_built_is_not_built_again(study) -> None:
    before = study["int8"]
    assert before is study.run()["int8"]


@pytest.mark.parametrize("name", ["int3", "INT8", "float16", "nvfp4", "uint8", "bf8", "fp8-e5m2"])
def test_a_name_that_is_written_like_a_precision_and_is_none_is_refused(model, name) -> None:
    """It built fp32 under that name, and said nothing."""
    study = Study(model)
    with pytest.raises(VariantError, match=f'precision "{name}"'):
        study.add(name)
    assert {} == dict(study.state.variants)
    assert Precision.FP16 == study.add(name, precision="fp16").precision


def test_cancelling_keeps_what_is_finished(model) -> None:
    study = on_cpu(model).run("fp32")
    with pytest.raises(Cancelled):
        study.run(progress=Stopping())
    assert {"fp32"} == set(study)
    assert {"fp32", "int8"} == set(study.run())


def test_a_pattern_that_fits_no_node_is_refused_at_once(model) -> None:
    with pytest.raises(VariantError, match="/stme"):
        Study(model).add("mixed", precision={"*": "int8", "/stme/*": "fp16"}, target="cpu")
    with pytest.raises(VariantError, match="/stme"):
        Study(model).add("sparse", sparsity="/stme/*", target="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_any_executor_runs_a_study(model, study, kind: str) -> None:
    spawn, other = multiprocessing.get_context("spawn"), on_cpu(model, task=study.task)
    pools = concurrent.futures
    made = (
        pools.ThreadPoolExecutor(2) if kind == "threads" else pools.ProcessPoolExecutor(1, mp_context=spawn)
    )
    with made as pool:
        other.run(executor=pool, budget_s=math.inf)
    assert {"fp32", "int8"} == set(other)
    assert study["int8"].score == other["int8"].score
    assert study["int8"].accuracy.values == other["int8"].accuracy.values


def test_a_result_can_cross_processes(study) -> None:
    result = study["int8"]
    copy = pickle.loads(pickle.dumps(result))
    assert [p.layer for p in result.mapping.pairs] == [p.layer for p in copy.mapping.pairs]
    assert result.accuracy.values == copy.accuracy.values
    assert [n.id for n in result.prepared.model.nodes] == [n.id for n in copy.prepared.model.nodes]


def test_files_of_another_model_are_told(tmp_path, model) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": ["conv_of_another", "relu_of_another"]}), encoding="utf-8")
    read = Study(model).read("other", layers=path)
    assert any("same model" in n for n in read.engine.notes)
    assert {"unknown", "view", "folded"} >= {m.reason for m in read.mapping.missing}


def test_a_graph_with_a_fixed_batch_is_compared_and_scored_on_whole_batches() -> None:
    model = tiny_model(batch=40)
    data = CalibrationData.random(model, samples=80)
    study = Study(model, data=data, task=Task(data, np.arange(len(data)) % 4))
    study.add("int8", calibrator="minmax", target="cpu")
    result = study.run(budget_s=math.inf)["int8"]
    assert (40, len(data)) == (result.accuracy.samples, result.score.samples)


def test_nodes_without_names_have_their_times_too() -> None:
    proto = tiny_model().proto()
    for node in proto.graph.node:
        node.name = "same"
        del node.metadata_props[:]
    study = Study(proto)
    study.add("fp32", target="cpu")
    result = study.run()["fp32"]
    assert {layer.id for layer in result.engine.layers} == set(result.layer_times)


def test_observing_a_node_gives_the_numbers_of_the_model_itself() -> None:
    """ONNX's own evaluator is the oracle, on the same four samples."""
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=8))
    (found,) = study.calibration.activations("join/Add")
    proto = model.proto()
    proto.graph.output.add(name="sum")
    expected = ReferenceEvaluator(proto).run(["sum"], {"x": study.data.arrays["x"][:4]})[0]
    assert expected.size == found.count
    assert pytest.approx((expected.min(), expected.max()), rel=1e-4) == (found.minimum, found.maximum)
    assert pytest.approx((expected.mean(), expected.std()), rel=1e-4, abs=1e-6) == (found.mean, found.std)


@pytest.mark.parametrize("kind", ["here", "threads"])
def test_data_that_cannot_be_calibrated_stops_one_variant_alone(kind: str) -> None:
    nodes = [helper.make_node("Log", ["x"], ["l"]), helper.make_node("Gemm", ["l", "w"], ["y"])]
    weights = {"w": np.eye(4, dtype=np.float32)}
    study = Study(graph(nodes, [("x", 1, ["N", 4])], [("y", 1, ["N", 4])], weights))
    for name in ("int8", "fp32"):
        study.add(name, target="cpu")
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        pytest.raises(CalibrationError, match=r'value "l": it holds NaN in sample 0'),
    ):
        study.run(executor=pool if kind == "threads" else None)
    assert ({"fp32"}, {"int8"}) == (set(study), set(study.state.failures))
    with pytest.raises(CalibrationError, match="NaN"):
        study["int8"]


def test_bad_data_is_refused_before_any_work(model) -> None:
    with pytest.raises(CalibrationError, match="wrong"):
        Study(model, data=CalibrationData({"wrong": np.zeros((4, 3, 8, 8), np.float32)}))


def test_build_never_returns_an_engine_from_elsewhere(model) -> None:
    study = Study(model, data=CalibrationData.random(model, samples=4))
    study.read("there", **engines.files("written-fp16"))
    read = study.state.variants["there"]
    assert ("fp16", "sm86") == (str(read.precision), str(read.target))
    explorer = study.explore()
    explorer.choice = {**explorer.choice, "precision": "fp16", "target": "sm86"}
    assert "there" != explorer._builds.plan_variant()


def test_a_node_inside_a_body_has_weights_and_no_outputs_to_read() -> None:
    sample = samples.load("control_flow")
    study = Study(sample.model, data=sample.calibration)
    inner = next(n for n in study.model.nodes if n.scope and n.op == "Conv")
    assert "weight" == study.calibration.weights(inner.id)[0].kind
    with pytest.raises(RunError):
        study.calibration.activations(inner.id)


def test_an_engine_has_times_of_its_own_where_it_ran_itself(study) -> None:
    """Those of a stand-in are joined by node, and are not the engine's own."""
    facts = study["fp32"].facts
    other = Result(dataclasses.replace(facts, engine=dataclasses.replace(facts.engine)))
    assert study["fp32"].own_times is study["fp32"].timing is not None
    assert other.timing is not None
    assert other.own_times is None
    assert other.layer_times


class Refusing(ReferenceBackend):
    name = "refusing"

    def build(self, request, progress):
        raise BuildError("Cannot build: this builder refuses. Choose another.")


def test_a_frame_has_a_row_for_each_variant_planned_failed_or_built(model) -> None:
    labels = np.arange(16) % 4
    data = CalibrationData.random(model, samples=16)
    study = Study(model, data=data, task=Task(CalibrationData.random(model, samples=16, seed=1), labels))
    study.add("fp32", target="cpu")
    study.add("int8", calibrator="minmax", target="cpu")
    study.add("broken", precision="fp32", target="cpu", backend=Refusing())
    study.add("later", precision={"*": "int8", "head/*": "fp32"}, target="cpu")
    with pytest.raises(BuildError):
        study.run(["fp32", "int8", "broken"], budget_s=math.inf)
    frame = study.frame()

    assert ["fp32", "int8", "broken", "later"] == list(frame.index)
    assert ["fp32", "int8"] == study._ipython_key_completions_()
    assert ["built", "built", "failed", "planned"] == frame["status"].tolist()
    assert ["fp32", "int8", "fp32", "mixed"] == frame["precision"].tolist()
    assert ["", "minmax", "", "auto"] == frame["calibrator"].tolist()
    assert [len(study[name].engine.layers) for name in study] == frame["layers"].dropna().tolist()
    assert "this builder refuses" in frame.loc["broken", "error"]
    # Of what was not measured there is no number, and never a 0.
    assert (
        frame.loc[["broken", "later"], ["nodes", "layers", "time_ms", "output_sqnr", "score"]]
        .isna()
        .all(axis=None)
    )
    assert [16, 16] == frame["scored"].dropna().tolist()
    assert math.isnan(frame.loc["fp32", "score_delta"])
    assert study["int8"].timing.total == frame.loc["int8", "time_ms"]
    # The output's SQNR by NumPy, from outputs on the task's samples of the model and of what emulates int8.
    batch = next(study.task.data.batches(model, 16))
    plain, rounded = (run(m, batch) for m in (model, study["int8"].prepared.emulated))
    sqnr = 10 * math.log10((plain**2).sum() / ((plain - rounded) ** 2).sum())
    parts = [part.sqnr for part in study["int8"].accuracy.parts]
    assert pytest.approx(min(sqnr, *parts, math.inf), abs=0.05) == frame.loc["int8", "output_sqnr"]
    assert {"time_ms": "ms", "estimate_ms": "ms", "output_sqnr": "dB"} == frame.attrs["units"]
    assert ("measured", "reported") == (frame.attrs["origins"]["time_ms"], frame.attrs["origins"]["layers"])


def test_a_difference_of_scores_is_that_to_the_reference(study) -> None:
    scores = [Score("top-1 accuracy", value, "%", 16, "by hand") for value in (90.0, 70.5)]
    fp32, int8 = (
        dataclasses.replace(study[name].facts, score=score)
        for name, score in zip(("fp32", "int8"), scores, strict=True)
    )
    assert (70.5, -19.5, "%") == (
        (row := summarize_variant(int8, reference=fp32)).score, row.score_delta, row.unit,
    )  # fmt: skip
    assert None is summarize_variant(fp32, reference=fp32).score_delta
    # Six hits of six are no gain on 15 hits of 16: fp32 has all of these six right, too.
    hits = np.ones(16)
    hits[9] = 0
    tallies = Tally(93.75, hits, np.ones(16), "share"), Tally(100.0, np.ones(6), np.ones(6), "share")
    few = [
        dataclasses.replace(facts, score=Score("top-1 accuracy", value, "%", count, "by hand", tally=tally))
        for facts, value, count, tally in zip((fp32, int8), (93.75, 100.0), (16, 6), tallies, strict=True)
    ]
    assert 0.0 == summarize_variant(few[1], reference=few[0]).score_delta
    # Without them, scores of other numbers of samples are not subtracted.
    bare = [dataclasses.replace(f, score=dataclasses.replace(f.score, tally=None)) for f in few]
    assert None is summarize_variant(bare[1], reference=bare[0]).score_delta


def run(model, batch):
    """The first output in float64, without ONNX Runtime's optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {name: batch[name] for name in model.inputs})[0], np.float64)


def test_a_frame_of_a_question_needs_a_variant_and_that_of_all_needs_none(study) -> None:
    assert len(study["int8"].engine.layers) == len(study.frame("table", variant="int8"))
    with pytest.raises(
        VariantError, match=r'Cannot answer "table": no variant is named\. Choose one: "fp32", "int8"'
    ):
        study.frame("table")
    with pytest.raises(
        VariantError, match="Cannot make the table: a variant or a setting comes without a question"
    ):
        study.frame(variant="int8")


def test_a_notebook_completes_names_of_results_and_shows_one_as_a_table(study) -> None:
    assert ["fp32", "int8"] == study._ipython_key_completions_() == list(study.keys())
    shown = study["int8"]._repr_html_()
    cells = dict(zip(re.findall("<th>(.*?)</th>", shown), re.findall("<td>(.*?)</td>", shown), strict=True))
    assert ("int8", "minmax", str(len(study["int8"].engine.layers))) == (
        cells["Precision"], cells["Calibrator"], cells["Layers, reported"],
    )  # fmt: skip
    assert "ONNX Runtime" in shown.partition("<small>")[2]
    assert "<b>tiny · int8</b>" in shown
