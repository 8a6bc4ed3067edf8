"""The stages of a variant: shown as they come, kept whatever follows, measured on demand, within a budget."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from nets import graph
from rtlab import CalibrationData, Study, Task
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.model import Model
from rtlab.core.prepared import Emulation
from rtlab.core.progress import Silent, check
from rtlab.core.stage import Stage
from rtlab.errors import Cancelled, VariantError
from rtlab.study import stages
from rtlab.testing import tiny_model
from stopping import Stopping

#: What the reporter is told when each stage begins.
PHASES = {Stage.TIMED: "Timing", Stage.COMPARED: "Comparing", Stage.SCORED: "Scoring"}
SAMPLES = 24


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def planned(model, **task) -> Study:
    """An int8 variant that has all stages, on the CPU."""
    data = CalibrationData.random(model, samples=SAMPLES)
    study = Study(model, data=data, task=Task(data, np.arange(SAMPLES) % 4, **task))
    study.add("int8", calibrator="minmax", target="cpu")
    return study


class StoppingAt(Silent):
    """Cancels as soon as a stage begins."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._word = PHASES[stage]

    def phase(self, name: str, total: int | None = None) -> None:
        if name.startswith(self._word):
            self.cancel()


class Noting:
    """A view that notes which stages a variant has whenever it is told of news."""

    def __init__(self, study: Study) -> None:
        self.seen: list[dict[str, str]] = []
        self._study = study

    def changed(self) -> None:
        self.seen.append({str(k): s.state for k, s in self._study["int8"].stages.items()})


def states(study: Study) -> list[str]:
    return [s.state for s in study["int8"].stages.values()]


def test_each_stage_is_published_when_it_is_done(model) -> None:
    study = planned(model)
    view = Noting(study)
    study.views.add(view)
    study.run()
    assert [["done"] * n + ["waiting"] * (4 - n) for n in (1, 2, 3, 4)] == [[*s.values()] for s in view.seen]


@pytest.mark.parametrize("stage", list(PHASES))
def test_a_cancelled_stage_leaves_the_earlier_ones_and_goes_on_when_it_is_run_again(model, stage) -> None:
    study = planned(model)
    with pytest.raises(Cancelled):
        study.run(progress=StoppingAt(stage))
    result, order = study["int8"], list(Stage)
    assert {"done"} == {result.stages[s].state for s in order[: order.index(stage)]}
    assert {"missing"} == {result.stages[s].state for s in order[order.index(stage) :]}
    engine = result.engine
    study.run()
    assert ["done"] * 4 == states(study)
    assert study["int8"].engine is engine


def test_in_no_time_every_stage_measures_something_and_says_on_how_much(model, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.study.stages.batch_size", lambda *given: 4)
    study = planned(model)
    study.run(budget_s=1e-9)
    result = study["int8"]
    assert ["done", "partial", "partial", "partial"] == states(study)
    assert (4, 4) == (result.accuracy.samples, result.score.samples)
    for stage in (Stage.COMPARED, Stage.SCORED):
        assert f" on 4 of {SAMPLES} samples: " in result.stages[stage].text
    assert 0 < result.timing.runs == result.stages[Stage.TIMED].done < 30
    # Thirty runs are wanted, however many of them an earlier measurement has.
    assert 30 == study.measure("int8", budget_s=math.inf).timing.runs


@pytest.mark.slow
def test_measuring_in_instalments_gives_the_numbers_of_measuring_at_once(model, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.study.stages.batch_size", lambda *given: 4)
    whole, parts = planned(model), planned(model)
    whole.run(budget_s=math.inf)
    parts.run(budget_s=1e-9)
    measured = 1
    while any(s.more for s in list(parts["int8"].stages.values())[2:]):
        parts.measure("int8", budget_s=1e-9)
        measured += 1
        assert measured <= SAMPLES
    assert whole["int8"].accuracy.values == parts["int8"].accuracy.values
    assert SAMPLES == parts["int8"].accuracy.samples == parts["int8"].score.samples
    assert whole["int8"].score == parts["int8"].score
    assert parts["int8"].timing.runs >= measured


@pytest.mark.slow
def test_a_first_answer_compares_some_samples_and_measuring_goes_on_to_all(model, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.study.stages.batch_size", lambda *_: 8)
    data = CalibrationData.random(model, samples=70, seed=1)
    study = Study(model, data=data)
    study.add("int8", calibrator="minmax", target="cpu")
    first = study.run()["int8"]
    assert (32, "32 of 70 samples") == (first.accuracy.samples, first.stages[Stage.COMPARED].basis)
    assert first.stages[Stage.COMPARED].state == "done"

    with pytest.raises(Cancelled):
        study.measure("int8", progress=Stopping(1))
    part = study["int8"].accuracy.samples
    assert 32 < part < 70
    assert study["int8"].stages[Stage.COMPARED].more
    whole = study.measure("int8")
    assert (70, "70 samples") == (whole.accuracy.samples, whole.stages[Stage.COMPARED].basis)


def test_to_only_compile_measures_nothing_until_it_is_asked_for(model, monkeypatch) -> None:
    study = planned(model)
    with monkeypatch.context() as patch:
        patch.setattr(Emulation, "model", lambda *_: pytest.fail("nobody compares"))
        study.run(budget_s=0)
        study.run()
    assert ["done", "missing", "missing", "missing"] == states(study)
    study.measure("int8")
    assert ["done"] * 4 == states(study)


def test_a_stage_that_fails_leaves_the_others_and_can_be_tried_again(model) -> None:
    broken = [True]

    def metric(outputs, labels):
        if broken[0]:
            raise KeyError("classes")
        return 7.0

    study = planned(model, metric=metric)
    study.run()
    assert ["done", "done", "done", "missing"] == states(study)
    assert "its metric raised KeyError" in study["int8"].stages[Stage.SCORED].text
    broken[0] = False
    study.measure("int8")
    assert 7.0 == study["int8"].score.value
    assert ["done"] * 4 == states(study)


def test_a_budget_is_a_number_of_seconds(model) -> None:
    study = planned(model)
    for given in (-1, "soon", None, math.nan):
        with pytest.raises(VariantError):
            study.run(budget_s=given)
    assert not study


def test_what_one_stage_leaves_of_the_budget_the_next_ones_have(monkeypatch) -> None:
    """Nine seconds: a third is 3; when 1 of them was used, half of the 8 that are left is 4."""
    now = [100.0]
    monkeypatch.setattr("rtlab.core.budget.time.monotonic", lambda: now[0])
    budget = Budget(9.0)
    with budget.share(Silent(), 1 / 3) as within:
        assert 3.0 == within.remaining
        now[0] += 1.0
    with budget.share(Silent(), 1 / 2) as within:
        assert 4.0 == within.remaining
        now[0] += 20.0
    assert 0.0 == budget.remaining


def test_a_deadline_counts_from_the_first_step_on_and_is_no_cancel(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rtlab.core.budget.time.monotonic", lambda: now[0])
    asked = Silent()
    within = WorkContext(None, asked, Budget(5.0), ends_after_step=True)
    now[0] = 6.0
    assert not within.stopped()
    within.advance()
    assert within.stopped()
    assert not within.is_cancelled()
    asked.cancel()
    assert within.is_cancelled()


@pytest.mark.slow
def test_groups_give_the_errors_of_one_pass(model, monkeypatch) -> None:
    whole, parts = planned(model), planned(model)
    whole.run()
    monkeypatch.setattr("rtlab.study.stages._READ_BYTES", 1)
    parts.run()
    found, wanted = ([v.sqnr for v in s["int8"].accuracy.values] for s in (parts, whole))
    # What else is read decides what ONNX Runtime fuses, and so the last bits.
    assert found == pytest.approx(wanted, abs=0.01)


def test_an_engine_stands_where_no_sample_can_be_drawn() -> None:
    """An input of 8 GiB is compiled; what would be measured on it says why it is not."""
    ends = [(n, 1, [1 << 31]) for n in "xy"]
    study = Study(graph([helper.make_node("Relu", ["x"], ["y"])], ends[:1], ends[1:], {}))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run()
    standing = study["fp32"].stages[Stage.TIMED]
    assert ("missing", "failed") == (standing.state, standing.why)
    assert ["Relu"] == [layer.kind for layer in study["fp32"].engine.layers]


def test_a_precision_that_changes_nothing_is_not_called_the_one_others_are_compared_with() -> None:
    """A model in FP64 has no weight that INT8 could be made of."""
    product, weights = helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": np.ones((8, 4), np.float64)}
    study = Study(graph([product], [("x", 11, [2, 8])], [("y", 11, [2, 4])], weights))
    study.add("fp32", target="cpu")
    study.add("int8", precision="int8", calibrator="minmax", target="cpu")
    study.run()
    told = [study[name].stages[Stage.COMPARED] for name in ("fp32", "int8")]
    assert ["none", "none"] == [standing.state for standing in told]
    assert told[0].text != told[1].text


def test_a_stage_without_a_result_ends_with_the_whole_budget_and_says_in_what(model, monkeypatch) -> None:
    """Nine seconds and five more: a session that never opens is waited for until then, by all stages together."""
    now = [0.0]
    study = planned(model)
    study.run(compare=False)

    def open_forever(_, deadline) -> None:
        deadline.phase("Opening what never opens")
        while now[0] < 1000:
            now[0] += 1.0
            check(deadline, "opening")

    for work in ("_time", "_compare", "_score"):
        monkeypatch.setattr(stages._Measuring, work, open_forever)
    monkeypatch.setattr("rtlab.core.budget.time.monotonic", lambda: now[0])
    study.measure("int8", budget_s=9.0)
    assert ["done", "missing", "missing", "missing"] == states(study)
    words = 'not timed: timed out in "Opening what never opens"'
    assert words == study["int8"].stages[Stage.TIMED].text
    # Each of the three looks once before it ends.
    assert 15.0 <= now[0] <= 17.0


def draw_pictures() -> dict[str, np.ndarray]:
    """Pictures of one colour each, which the network tells apart."""
    draw = np.random.default_rng(1)
    colors, noise = draw.standard_normal((SAMPLES, 3, 1, 1)), draw.standard_normal((SAMPLES, 3, 8, 8))
    return {"x": (3 * colors + 0.3 * noise).astype(np.float32)}


def run_directly(model: Model, samples: np.ndarray) -> np.ndarray:
    """The first output by ONNX Runtime alone."""
    session = onnxruntime.InferenceSession(model.bytes(), providers=["CPUExecutionProvider"])
    return session.run(None, {model.inputs[0]: samples})[0]


@pytest.mark.parametrize(("batch", "sizes"), [("N", {"N": 5}), (5, None), ("N", {"N": 64})])
def test_all_samples_are_scored_where_the_last_batch_is_not_full(batch, sizes) -> None:
    """Of 24 samples the answers of the network without a batch, every third label of which is another."""
    model, data = tiny_model(batch=batch), CalibrationData(draw_pictures(), "pictures")
    labels = run_directly(tiny_model(), data.arrays["x"]).argmax(axis=1)
    labels[1::3] = (labels[1::3] + 1) % 4
    study = Study(model, data=data, task=Task(data, labels))
    study.add("fp32", target="cpu", sizes=sizes)
    study.run(budget_s=math.inf)
    score = study["fp32"].score
    assert (SAMPLES, pytest.approx(100 * 16 / 24)) == (score.samples, score.value)
    assert "done" == study["fp32"].stages[Stage.SCORED].state


def test_without_rows_for_samples_the_full_batches_are_scored_and_counted() -> None:
    """A sum over a batch has the samples in it that would fill it up."""
    model = graph(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], [("x", 1, [5, 3])], [("y", 1, [])], {}
    )
    data = CalibrationData({"x": np.ones((SAMPLES, 3), np.float32)}, "ones")
    task = Task(data, np.zeros(SAMPLES), metric=lambda sums, _: float(np.sum(sums)), name="sum")
    study = Study(model, data=data, task=task)
    study.add("fp32", target="cpu")
    study.run(budget_s=math.inf)
    score = study["fp32"].score
    assert (20, 60.0) == (score.samples, score.value)
    assert "done" == study["fp32"].stages[Stage.SCORED].state


def test_without_labels_the_samples_count_that_a_fixed_batch_answers() -> None:
    model = tiny_model(batch=5)
    data = CalibrationData(draw_pictures(), "pictures")
    study = Study(model, data=data, task=Task(data))
    study.add("fp32", target="cpu")
    study.run(budget_s=math.inf)
    assert (20, 100.0) == (study["fp32"].score.samples, study["fp32"].score.value)
    assert 20 == len(study.task.labels) == len(study.task.data)
