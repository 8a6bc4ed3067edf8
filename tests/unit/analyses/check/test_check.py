"""The verdict of a check: by hand from scores, times and layers, and never between numbers of two kinds."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as Tree

import numpy as np
import pytest
from onnx import TensorProto, helper

import engines
import rtlab
from rtlab.analyses import check
from rtlab.analyses.check import record, report
from rtlab.analyses.check.record import CheckLimits, CheckRecord, RecordedScore
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Score, VariantResult
from rtlab.core.metrics import Tally
from rtlab.core.task import Predictions, Task
from rtlab.errors import ReadError, VariantError
from rtlab.testing import tiny_model

CLASSES = 4


@pytest.fixture(scope="module")
def study() -> rtlab.Study:
    made = rtlab.Study(tiny_model())
    for name in ("fp32", "int8"):
        made.add(name, precision=name, backend="onnxruntime", target="cpu")
    return made.run(budget_s=0)


@pytest.fixture(scope="module")
def now(study: rtlab.Study) -> CheckRecord:
    return check.build_record(study.state.results["int8"], (), (), {"rtlab": "1", "ONNX Runtime": "1.2"})


def scored(facts: VariantResult, hits: int, samples: int) -> VariantResult:
    """With that many samples of class 0 told as such, the first ones."""
    outputs = np.zeros((samples, CLASSES), np.float32)
    outputs[:hits, 0], outputs[hits:, 1] = 1, 1
    held = Predictions()
    held.add({"y": outputs}, samples)
    task = Task(CalibrationData({"x": np.zeros((samples, 1))}), np.zeros(samples, int))
    return dataclasses.replace(facts, score=Score.of(task, held, "here"))


def valued(facts: VariantResult, value: float, *, higher: bool = True) -> VariantResult:
    """With a score that tells nothing of single samples."""
    given = Score("own", value, "dB", 50, "here", higher, tally=Tally(value, higher=higher))
    return dataclasses.replace(facts, score=given)


@pytest.mark.parametrize(
    ("hits", "limit", "sure", "verdict", "doubted"),
    [
        # Of 400 samples fp32 has 400, so that 4 fewer are one point: p = 1/402, q = 5/402 with one more in each cell.
        (396, 1.0, False, "holds", True), (396, 0.9, False, "broken", True), (396, 1.0, True, "broken", True),
        # The adjusted interval of 4 lost: 4/402 ± 1.96 sqrt((6/402 - (4/402)²)/402) is -0.19 to 2.18.
        (396, 2.1, True, "broken", True), (396, 2.2, True, "holds", False),
        (300, 0.5, False, "broken", False), (400, 0.0, False, "holds", True),
    ],
)  # fmt: skip
def test_a_drop_is_judged_by_its_value_and_surely_by_its_interval(study, hits, limit, sure, verdict, doubted):
    fp32, facts = (
        scored(study.state.results["fp32"], 400, 400),
        scored(study.state.results["int8"], hits, 400),
    )
    found = check.check_accuracy(facts, fp32, CheckLimits(max_drop=limit, sure=sure))
    assert (verdict, doubted) == (found.verdict, "includes the limit" in found.reason), found
    assert found.value == pytest.approx((400 - hits) / 4)
    assert (verdict == "broken") == bool(found.remedy)


def test_few_samples_conclude_nothing_and_say_so(study) -> None:
    fp32, facts = scored(study.state.results["fp32"], 7, 7), scored(study.state.results["int8"], 6, 7)
    found = check.check_accuracy(facts, fp32, CheckLimits(max_drop=20.0))
    assert "holds" == found.verdict
    assert "broken" == check.check_accuracy(facts, fp32, CheckLimits(max_drop=20.0, sure=True)).verdict


@pytest.mark.parametrize(
    ("before", "after", "higher", "verdict"),
    [
        (30.0, 29.8, True, "holds"), (30.0, 29.0, True, "broken"), (30.0, 31.0, True, "holds"),
        # A mistake that grows is a drop, and one that shrinks is none.
        (1.0, 1.9, False, "broken"), (1.9, 1.0, False, "holds"),
        (30.0, np.nan, True, "broken"), (np.inf, 30.0, True, "broken"), (np.inf, np.inf, True, "holds"),
    ],
)  # fmt: skip
def test_what_is_worse_depends_on_the_metric(study, before, after, higher, verdict) -> None:
    fp32, facts = (
        valued(study.state.results[n], v, higher=higher) for n, v in (("fp32", before), ("int8", after))
    )
    found = check.check_accuracy(facts, fp32, CheckLimits(max_drop=0.5))
    assert verdict == found.verdict, found


def test_without_samples_a_limit_is_not_checked(study) -> None:
    found = check.check_accuracy(
        study.state.results["int8"], study.state.results["fp32"], CheckLimits(max_drop=0.5)
    )
    assert ("not checked", True) == (found.verdict, "--data D.npz" in found.remedy)


def test_a_score_is_told_beside_an_earlier_one_only_where_it_is_the_same(study) -> None:
    score = scored(study.state.results["int8"], 300, 400).score
    then = RecordedScore(score.name, 80.0, "%", True, 400, None, "there")
    assert ("told", -5.0) == ((row := check.check_score(then, score)).verdict, row.value)
    for other in (dataclasses.replace(then, samples=399), dataclasses.replace(then, name="top-5"), None):
        assert "not checked" == check.check_score(other, score).verdict


def timed(held: CheckRecord, middle: float, half: float | None = None, **given: object) -> CheckRecord:
    """A record with a time, and what it varied by on both sides."""
    low, high = (None, None) if half is None else (middle - half, middle + half)
    source = "ONNX Runtime 1.2.3 CPU, 2 threads"
    time = record.RecordedTime(middle, low, high, "", "measured", source, "one CPU")
    return dataclasses.replace(held, time=dataclasses.replace(time, **given))


@pytest.mark.parametrize(
    ("then", "half", "middle", "now_half", "verdict"),
    [
        (1.0, 0.01, 1.04, 0.01, "holds"), (1.0, 0.01, 1.06, 0.01, "broken"), (1.0, 0.01, 0.50, 0.01, "holds"),
        # 1.06 - 0.04 is below 1.0 + 0.03.
        (1.0, 0.03, 1.06, 0.04, "holds"), (1.0, 0.03, 1.50, 0.04, "broken"),
        # A single number from files: nothing tells what it varies by.
        (1.0, None, 1.06, None, "broken"), (1.0, None, 1.05, None, "holds"),
    ],
)  # fmt: skip
def test_a_regression_is_beyond_the_limit_and_what_times_vary_by(
    study, now, then, half, middle, now_half, verdict
):
    records = timed(now, middle, now_half), timed(now, then, half)
    found = check.check_latency(
        study.state.results["int8"], *records, None, CheckLimits(max_latency_regression=5.0)
    )
    assert verdict == found.verdict, found
    assert found.value == pytest.approx(100 * (middle / then - 1))


@pytest.mark.parametrize(
    "other",
    [{"origin": "estimated"}, {"place": "another CPU"}, {"source": "ONNX Runtime 1.2.3 CPU, 4 threads"},
     {"source": "trtexec"}],
)  # fmt: skip
def test_times_of_two_kinds_are_not_compared(study, now, other: dict[str, str]) -> None:
    facts, limits = study.state.results["int8"], CheckLimits(max_latency_regression=5.0)
    found = check.check_latency(facts, timed(now, 9.0), timed(now, 1.0, None, **other), None, limits)
    assert "not checked" == found.verdict, found.reason
    # An upgrade of what ran it is what a check is to notice.
    newer = timed(now, 1.0, None, source="ONNX Runtime 1.99.0 CPU, 2 threads")
    assert "broken" == check.check_latency(facts, timed(now, 9.0), newer, None, limits).verdict


def test_one_slow_round_of_nine_does_not_count(study) -> None:
    """By the sign test the median of nine lies between the second and the eighth in 1 - 2 · 10/512 = 96 % of cases."""
    timed_study = rtlab.Study(tiny_model())
    timed_study.add("fp32", backend="onnxruntime", target="cpu")
    facts = timed_study.run(budget_s=5)["fp32"].facts
    rounds = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 99.0]
    found = check.record_time(facts, rounds)
    assert (1.1, 1.4, 1.7) == (found.low, found.milliseconds, found.high)
    fewer = check.record_time(facts, rounds[-3:])
    assert (1.6, 1.7, 99.0) == (fewer.low, fewer.milliseconds, fewer.high)


def predicted(*shown: str, **choice: object) -> tuple[VariantResult, CheckRecord]:
    """What rules make of the small model, with some of its values among its outputs."""
    model = tiny_model()
    proto = model.proto()
    for name in shown:
        shape = model.values[name].shape
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    made = rtlab.Study(rtlab.load(proto))
    made.add("built", backend="classic", **choice)
    facts = made.run(budget_s=0)["built"].facts
    return facts, check.build_record(facts, made.findings("built"), (), {})


def test_what_is_fused_no_longer_is_named() -> None:
    then, (facts, now) = predicted()[1], predicted("normal")
    limits = CheckLimits(fail_on=("fusion", "precision"))
    found = check.check_variant(facts, None, now, then, limits)
    assert (("fusion",), ()) == (found.broken, found.unchecked)
    row = next(r for r in found.rows if r.check == "fusion")
    assert ("stem/Conv + stem/BatchNormalization + stem/Relu: 1 layer became 2",) == row.changes
    assert "predicted" == row.origin
    # The other way round it is better, and nothing is broken.
    assert check.check_variant(facts, None, then, now, limits).ok


def test_what_computes_in_a_wider_type_is_named() -> None:
    then = predicted(precision="fp16")[1]
    facts, now = predicted(precision={"*": "fp16", "left/Conv": "fp32"})
    limits = CheckLimits(fail_on=("precision",))
    found = check.check_variant(facts, None, now, then, limits)
    (row,) = (r for r in found.rows if r.check == "precision")
    # The casts around it are layers of their own, which compute nothing.
    assert ("left/Conv: fp16 became fp32",) == row.changes
    assert ("precision",) == found.broken
    assert check.check_variant(facts, None, then, now, limits).ok


def test_a_new_finding_is_named_and_an_old_one_is_not() -> None:
    _, held = predicted()
    then = dataclasses.replace(held, findings={"old": "Old.", "gone": "Gone."})
    now = dataclasses.replace(held, findings={"old": "Old.", "new": "New."})
    row = check.check_findings(then, now, ("findings",))
    assert ("broken", ("New.",), 1.0) == (row.verdict, row.changes, row.value)


def test_another_model_is_refused() -> None:
    facts, now = predicted()
    other = rtlab.Study(rtlab.samples.load("digits_outlier").model)
    other.add("built", backend="classic")
    strange = check.build_record(other.run(budget_s=0)["built"].facts, (), (), {})
    with pytest.raises(VariantError, match="different models"):
        check.check_variant(facts, None, now, strange, CheckLimits())


def test_nodes_that_an_exporter_named_anew_are_of_the_same_model() -> None:
    folder = engines.FOLDER / "written-fp16"
    facts = rtlab.read(**engines.files(folder), model=folder / "model.structure-only.onnx")["engine"].facts
    now = check.build_record(facts, (), (), {})
    anew = tuple(p._replace(node=f"node_{p.node}") for p in now.engine.pairs)
    then = dataclasses.replace(now, digest="", engine=dataclasses.replace(now.engine, pairs=anew))
    found = check.check_variant(facts, None, now, then, CheckLimits(fail_on=("fusion", "precision")))
    assert found.ok


def test_engines_of_two_compilers_or_targets_are_not_compared_layer_by_layer(study, now) -> None:
    facts, mine = predicted()
    limits = CheckLimits(fail_on=("fusion",))
    found = check.check_variant(facts, None, mine, now, limits)
    assert (("fusion",), False) == (found.unchecked, found.ok)
    elsewhere = dataclasses.replace(mine, engine=dataclasses.replace(mine.engine, target="sm89"))
    assert ("fusion",) == check.check_variant(facts, None, mine, elsewhere, limits).unchecked


def test_a_record_is_read_as_it_was_written(now) -> None:
    # Who names a class says from then on that it is of the package itself, where its fields' types have no names.
    assert rtlab.Layer.__module__ == "rtlab"
    again = record.read(now.text(), "b.json")
    for field in dataclasses.fields(CheckRecord):
        assert getattr(now, field.name) == getattr(again, field.name), field.name


def test_what_is_no_record_is_refused_in_words(now) -> None:
    changes = {'"schema": 1': '"schema": 2', '"target": "cpu"': '"target": "moon"', '"digest"': '"digets"'}
    changed = [now.text().replace(old, new) for old, new in changes.items()]
    for text in (now.text()[:3000], "", '{"layers": []}', "[1]", *changed):
        with pytest.raises(ReadError, match="Cannot check against"):
            record.read(text, "b.json")


@pytest.mark.parametrize(
    "given",
    [{"max_drop": -1.0}, {"max_drop": float("nan")}, {"max_latency_regression": float("inf")}, {"max_drop": "1"},
     {"fail_on": ("speed",)}, {"sure": True}],
)  # fmt: skip
def test_what_is_no_limit_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(VariantError):
        CheckLimits(**given)  # type: ignore[arg-type]


def test_every_reader_of_junit_can_read_it(study, now) -> None:
    """By the schema that Jenkins, GitLab and GitHub's actions share: counts, names, order of what is in a case."""
    fp32, facts = scored(study.state.results["fp32"], 400, 400), scored(study.state.results["int8"], 300, 400)
    odd = dataclasses.replace(now, model="a\x00b\x1b<&>\ud800")
    limits = CheckLimits(max_drop=0.5, max_latency_regression=5.0)
    found = check.check_variant(facts, fp32, odd, None, limits)
    root = Tree.fromstring(report.format_junit(found))
    (suite,) = root
    assert ("testsuites", "testsuite") == (root.tag, suite.tag)
    cases = suite.findall("testcase")
    assert [r.check for r in found.rows] == [c.get("name") for c in cases]
    for one in (root, suite):
        counts = [int(one.attrib[k]) for k in ("tests", "failures", "errors", "skipped")]
        assert [len(cases), 1, 0, 1] == counts
    for case in cases:
        assert case.get("classname")
        assert float(case.attrib["time"]) >= 0
        assert [c.tag for c in case] in (["system-out"], ["skipped", "system-out"], ["failure", "system-out"])
    (failure,) = suite.iter("failure")
    assert "25" in failure.attrib["message"]
    assert 1 == len([*Tree.fromstring(report.format_junit_error("m", "int8", "Cannot.\x00")).iter("error")])


def test_a_name_steers_no_table_in_markdown(study, now) -> None:
    odd = dataclasses.replace(now, model="a|b\n# c <script>")
    text = report.format_markdown(
        check.check_variant(study.state.results["int8"], None, odd, None, CheckLimits())
    )
    assert "<script>" not in text.replace("\\<", "")
    assert 5 == text.splitlines()[2].count("|") - 1
    assert text.startswith("### a\\|b \\# c")
