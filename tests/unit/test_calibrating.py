"""Observing a study's activations, ranking calibrators, pruning, caches, and what leaves a study."""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing

import numpy as np
import onnx
import pytest
from onnx import helper

from nets import graph
from rtlab import CalibrationData, Calibrator, Study, Task, samples
from rtlab.analyses.calibration.calibrated import summarize_calibration
from rtlab.core.model import Model
from rtlab.core.variant import CALIBRATORS
from rtlab.errors import CalibrationError, Cancelled
from rtlab.quantize import findings
from rtlab.testing import tiny_model
from shelf import expose
from stopping import Stopping


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def data(model):
    return CalibrationData.random(model, samples=40)


@pytest.fixture(scope="module")
def whole(model, data):
    """What one pass sees."""
    return Study(model, data=data).calibration.observe()


def pool(kind: str) -> concurrent.futures.Executor:
    if kind == "threads":
        return concurrent.futures.ThreadPoolExecutor(3)
    return concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.slow(but="3-threads")
@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_any_number_of_workers_sees_the_same(model, data, whole, kind, parts) -> None:
    with pool(kind) as workers:
        found = Study(model, data=data).calibration.observe(executor=workers, parts=parts)
    assert whole.samples == found.samples
    assert whole.frame().equals(found.frame())


class Slices(CalibrationData):
    """Small batches, so that there is something to stop between."""

    def batches(self, model, size=None, *, skip=0):
        return super().batches(model, min(size or 4, 4), skip=skip)


def test_a_stopped_pass_keeps_what_was_seen_and_goes_on(model, data, whole) -> None:
    study = Study(model, data=Slices(data.arrays, data.source))
    with pytest.raises(Cancelled):
        study.calibration.observe(progress=Stopping(3))
    assert 0 < study.state.calibration.samples < 40
    again = study.calibration.observe()
    assert 40 == again.samples
    assert whole.frame().equals(again.frame())


def test_a_variant_that_saw_a_part_of_the_data_says_how_to_calibrate_it_on_the_rest(
    data, monkeypatch
) -> None:
    monkeypatch.setattr("rtlab.study.runner.BUDGET_S", 1e-6)
    study = Study(tiny_model(), data=Slices(data.arrays, data.source))
    study.add("int8", target="cpu")
    study.run(budget_s=1e-6)
    assert any("on 4 of 40 " in n for n in study["int8"].prepared.notes)
    first = study["int8"].prepared.scales
    found = study.calibration.recalibrate("int8", budget_s=0)
    assert found is study["int8"]
    assert not [n for n in found.prepared.notes if "calibrated on" in n]
    whole = Study(tiny_model(), data=data)
    whole.add("int8", target="cpu")
    assert whole.run(compare=False)["int8"].prepared.scales == found.prepared.scales != first
    assert found is study.calibration.recalibrate("int8"), "nothing more was observed"


def test_samples_that_come_later_are_in_the_scales_of_a_variant_that_is_calibrated_again(model, data) -> None:
    study = Study(model, data=data)
    study.add("int8", target="cpu", calibrator="minmax")
    before = study.run(compare=False)["int8"].prepared.scales
    name = next(iter(data.arrays))
    study.calibration.observe(CalibrationData({name: 10 * data.arrays[name]}))
    assert before is study.run(compare=False)["int8"].prepared.scales
    assert 10 * before[name].amax == pytest.approx(
        study.calibration.recalibrate("int8").prepared.scales[name].amax
    )


def test_more_samples_count_as_if_they_had_been_there_at_first(model, data, whole) -> None:
    first, rest = data.take(15), CalibrationData({k: v[15:] for k, v in data.arrays.items()}, "the rest")
    study = Study(model, data=first)
    study.calibration.observe()
    found = study.calibration.observe(rest)
    assert whole.samples == found.samples
    assert whole.frame().equals(found.frame())
    assert "the rest" in found.source


def test_data_that_fails_half_way_names_the_sample_and_what_was_seen_stays(model, data) -> None:

    def broken():
        for i in range(3):
            yield {"x": data.arrays["x"][i : i + 1]}
        raise OSError("the disk is gone")

    study = Study(model, data=broken)
    with pytest.raises(CalibrationError, match=r"sample 3\b.*the disk is gone"):
        study.calibration.observe()
    assert 3 == study.state.calibration.samples


def test_the_calibrators_are_ranked_by_the_task(model, data) -> None:
    labels = np.arange(40) % 4
    study = Study(model, data=data, task=Task(CalibrationData.random(model, samples=40, seed=3), labels))
    ranking = study.calibration.rank(["minmax", "percentile(90)", "mse"]).ranking
    scores = [r.score.value for r in ranking]
    assert {"minmax", "percentile(90)", "mse"} == {str(r.calibrator) for r in ranking}
    assert sorted(scores, reverse=True) == scores
    assert {40} == {r.samples for r in ranking}
    built = Study(model, data=data, task=study.task)
    for one in ranking:
        built.add(str(one.calibrator), precision="int8", calibrator=one.calibrator, target="cpu")
    built.run(budget_s=math.inf)
    assert {str(r.calibrator): r.score.value for r in ranking} == {n: built[n].score.value for n in built}


def test_ranking_and_score_give_the_metric_every_output() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv"),
        helper.make_node("Relu", ["h"], ["up"], "first"),
        helper.make_node("Neg", ["h"], ["down"], "second"),
    ]
    weights = {"w": np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)}
    ends = [(n, 1, ["N", 4, 5, 5]) for n in ("up", "down")]
    net = graph(nodes, [("x", 1, ["N", 3, 5, 5])], ends, weights)
    data = CalibrationData.random(net, samples=8)

    def metric(outputs, labels):
        return -float(np.abs(outputs["up"] - np.maximum(-outputs["down"], 0)).sum()) + len(labels)

    study = Study(net, data=data, task=Task(data, np.zeros(8), metric=metric))
    study.add("fp32", target="cpu")
    # Both heads show the same convolution, quantized or not.
    scored = [study.calibration.rank(["minmax"]).ranking[0].score, study.run(budget_s=math.inf)["fp32"].score]
    assert [(8.0, 8)] * 2 == [(s.value, s.samples) for s in scored]


def test_changing_the_calibrator_runs_no_inference(model, data) -> None:
    asked = []

    class Counted(CalibrationData):
        def batches(self, model, size=None, *, skip=0):
            asked.append(size)
            return super().batches(model, size, skip=skip)

    study = Study(model, data=Counted(data.arrays, data.source))
    study.calibration.prepare("one", precision="int8", calibrator="minmax")
    once = len(asked)
    for calibrator in ("entropy", "entropy2", "percentile(99)", "mse"):
        study.calibration.prepare(calibrator, precision="int8", calibrator=calibrator)
    assert once == len(asked)
    amax = {n: study.calibration.prepare(n).scales for n in study}
    assert all(amax["one"][v].amax >= s.amax for found in amax.values() for v, s in found.items())


def test_a_cache_becomes_explicit_pairs_and_back(model, data, tmp_path) -> None:
    study = Study(model, data=data)
    study.calibration.prepare("minmax", precision="int8", calibrator="minmax")
    done = study.export("minmax", tmp_path / "out.onnx", cache=tmp_path / "out.cache")
    study.calibration.prepare("from cache", precision="int8", scales=done.cache)
    assert Calibrator.MINMAX == study.state.variants["minmax"].calibrator
    cached = study.state.variants["from cache"]
    assert (None, "out.cache") == (cached.calibrator, cached.scales)
    one, two = study.calibration.prepare("minmax"), study.calibration.prepare("from cache")
    assert {v: s.scale for v, s in one.scales.items()} == {v: s.scale for v, s in two.scales.items()}
    assert one.model.digest == two.model.digest


def test_values_without_a_scale_stay_fp32_and_pruned_weights_are_calibrated_anew(model, data) -> None:
    """Scales of the dense model would be those of other activations."""
    study = Study(model, data=data)
    full = study.calibration.prepare("full", precision="int8", calibrator="minmax")
    part = study.calibration.prepare("part", precision="int8", scales=dict(list(full.scales.items())[1:]))
    assert len(part.precisions) < len(full.precisions)
    assert any("scale" in note for note in part.notes)
    pruned = study.calibration.prepare("pruned", precision="int8", calibrator="minmax", sparsity=True).scales
    assert full.scales.keys() == pruned.keys()
    assert any(full.scales[v].amax != pruned[v].amax for v in pruned)


@pytest.mark.slow
def test_the_file_that_was_read_stays_as_it_was(model, data, tmp_path) -> None:
    """A peer rewrote its input file in one run; here nothing that a study does writes to it."""
    path = tmp_path / "net.onnx"
    path.write_bytes(model.bytes())
    path.chmod(0o644)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    study = Study(path, data=data)
    study.calibration.rank(["minmax", "mse"])
    for precision in ("tf32", "fp16", "bf16", "int8", "fp8", "int4"):
        study.calibration.prepare(precision, sparsity=True)
        study.export(precision, tmp_path / f"{precision}.onnx")
    study.calibration.fix_qdq()
    study.add("int8 here", precision="int8", target="cpu")
    study.run()
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)


@pytest.mark.slow
def test_a_missing_pair_is_put_in_with_the_scale_that_calibration_finds() -> None:
    sample = samples.load("digits_qat_misplaced")
    study = Study(sample.model, data=sample.calibration, task=sample.task)
    (lacking,) = (f for f in study.findings() if f.rule == "residual")
    assert lacking.fixable
    assert not next(f for f in findings.check(sample.model) if f.rule == "residual").fixable
    fixed = study.calibration.fix_qdq([lacking])
    made = [n for n in fixed.top if n.op == "QuantizeLinear" and n.id not in sample.model.by_id]
    assert [lacking.nodes[0]] == [n.origin for n in made]
    value, batches = made[0].inputs[0], sample.calibration.batches(sample.model, 64)
    session = expose(sample.model, [value])
    largest = max(float(np.abs(session.run([value], b)[0]).max()) for b in batches)
    scale = float(fixed.constants(made[0].id)[made[0].inputs[1]].numpy())
    assert 0 < scale <= largest / 127 * (1 + 1e-6)
    assert () == Study(study.calibration.fix_qdq(), data=sample.calibration).findings()


def _product(*more: onnx.NodeProto) -> Model:
    """One Gemm on the model's input, or a graph without any product."""
    nodes = [*more] or [helper.make_node("Gemm", ["x", "w"], ["y"], name="gemm")]
    weights = {} if more else {"w": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}
    return graph(nodes, [("x", 1, ["N", 8])], [("y", 1, ["N", 8 if more else 4])], weights)


def test_a_model_of_which_only_the_input_is_quantized_is_calibrated() -> None:
    """Its one activation comes from the data, so the runner is asked for no value at all."""
    study = Study(_product())
    study.add("int8", calibrator="minmax", target="cpu")
    study.run()
    largest = float(np.abs(study.data.arrays["x"]).max())
    assert {"x": largest} == {v: s.amax for v, s in study["int8"].prepared.scales.items()}
    assert len(CALIBRATORS) == len(study.calibration.rank().ranking)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_qat", "no product"])
def test_int8_of_a_model_with_nothing_left_to_quantize_leaves_it_and_says_so(name) -> None:
    nothing = helper.make_node("Relu", ["x"], ["y"])
    study = Study(samples.load(name).model if name == "digits_qat" else _product(nothing))
    study.add("int8", target="cpu")
    study.run()
    assert "unchanged" in study["int8"].prepared.notes[0]
    assert 0 == len(study.calibration.observe().values)


def test_calibrators_are_ranked_on_samples_of_different_lengths() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((2, n, 32)).astype(np.float32) for n in (3, 5, 24)]
    study = Study(samples.load("dynamic_shapes").model, data=batches)
    assert {6} == {r.samples for r in study.calibration.rank().ranking}
    assert all(20 < r.sqnr < 60 for r in study.state.calibration.ranking)


@pytest.mark.slow
def test_shares_of_a_map_that_was_counted_in_part_are_estimates() -> None:
    sample = samples.load("mobilenet_v2", samples=1)
    for stride, origins in ((4, {"measured", "estimated"}), (1, {"measured"})):
        study = Study(sample.model, data=sample.calibration, stride=stride)
        told = summarize_calibration(study.model, None, study.calibration.observe())
        assert origins == {v.origin for v in told.values}
        assert ("in part" in told.source) == (stride > 1)


def test_after_stopped_workers_each_sample_counts_once(model, data, whole) -> None:
    study = Study(model, data=data)
    with pool("threads") as workers:
        with pytest.raises(Cancelled):
            study.calibration.observe(executor=workers, parts=4, progress=Stopping(2))
        again = study.calibration.observe(executor=workers, parts=4)
    assert again.complete
    assert 40 == again.samples
    assert whole.frame().equals(again.frame())


def test_a_study_that_several_threads_observe_counts_each_sample_once(model, data, whole) -> None:
    study = Study(model, data=data)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: study.calibration.observe(), range(4)))
    assert whole.samples == study.state.calibration.samples
    assert whole.frame().equals(study.state.calibration.frame())
