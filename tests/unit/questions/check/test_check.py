"""The verdict of a check: by hand from scores, times and layers, and never between numbers of two kinds."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as Tree

import numpy as np
import pytest
from onnx import TensorProto, helper

import engines
import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Facts, Score
from rtlab.core.metrics import Tally
from rtlab.core.task import Predictions, Task
from rtlab.errors import ReadError, VariantError
from rtlab.questions import check
from rtlab.questions.check import CheckResult, layers, record, scores, times, told
from rtlab.questions.check.record import CheckRecord, RecordedScore
from rtlab.questions.check.row import CheckLimits
from rtlab.relation.likeness import signatures
from rtlab.relation.mapping import Mapping
from rtlab.testing import tiny_model

CLASSES = 4


@pytest.fixture(scope="module")
def study() -> rtlab.Study:
    """Two variants, compiled and neither timed nor scored."""
    made = rtlab.Study(tiny_model())
    for name in ("fp32", "int8"):
        made.add(name, precision=name, backend="onnxruntime", target="cpu")
    return made.run(budget_s=0)


@pytest.fixture(scope="module")
def now(study: rtlab.Study) -> CheckRecord:
    return check.recorded(study.facts["int8"], (), (), {"rtlab": "1", "ONNX Runtime": "1.2"})


def task(samples: int, metric: object = None, **given: object) -> Task:
    data = CalibrationData.of({"x": np.zeros((samples, 3, 8, 8), np.float32)}, model=tiny_model())
    return Task(data, np.zeros(samples, int), metric, **given)  # type: ignore[arg-type]


def scored(facts: Facts, hits: int, samples: int) -> Facts:
    """With that many samples of class 0 told as such, the first ones."""
    outputs = np.zeros((samples, CLASSES), np.float32)
    outputs[:hits, 0], outputs[hits:, 1] = 1, 1
    held = Predictions()
    held.add({"y": outputs}, samples)
    return dataclasses.replace(facts, score=Score.of(task(samples), held, "here"))


def valued(facts: Facts, value: float, *, higher: bool = True) -> Facts:
    """With a score that tells nothing of single samples."""
    given = Score("own", value, "dB", 50, "here", higher, tally=Tally(value, higher=higher))
    return dataclasses.replace(facts, score=given)


@pytest.mark.parametrize(
    ("hits", "limit", "sure", "verdict", "doubted"),
    [
        # Of 400 samples fp32 has 400, so that 4 fewer are one point: p = 1/402, q = 5/402 with one more in each cell.
        (396, 1.0, False, "holds", True),
        (396, 0.9, False, "broken", True),
        (396, 1.0, True, "broken", True),
        # The adjusted interval of 4 lost: 4/402 ± 1.96 sqrt((6/402 - (4/402)²)/402) is -0.19 to 2.18.
        (396, 2.1, True, "broken", True),
        (396, 2.2, True, "holds", False),
        (300, 0.5, False, "broken", False),
        (400, 0.0, False, "holds", True),
    ],
)
def test_a_drop_is_judged_by_its_value_and_surely_by_its_interval(
    study, hits: int, limit: float, sure: bool, verdict: str, doubted: bool
) -> None:
    fp32, facts = scored(study.facts["fp32"], 400, 400), scored(study.facts["int8"], hits, 400)
    found = scores.accuracy(facts, fp32, CheckLimits(max_drop=limit, sure=sure))
    assert (verdict, doubted) == (found.verdict, "cannot tell whether" in found.reason), found
    assert found.value == pytest.approx((400 - hits) / 4)
    assert (verdict == "broken") == bool(found.remedy)


def test_few_samples_conclude_nothing_and_say_so(study) -> None:
    fp32, facts = scored(study.facts["fp32"], 7, 7), scored(study.facts["int8"], 6, 7)
    found = scores.accuracy(facts, fp32, CheckLimits(max_drop=20.0))
    assert "holds" == found.verdict
    assert "7 samples are too few to conclude anything; the verdict is that of its value" == found.reason
    assert "broken" == scores.accuracy(facts, fp32, CheckLimits(max_drop=20.0, sure=True)).verdict


@pytest.mark.parametrize(
    ("before", "after", "higher", "verdict"),
    [
        (30.0, 29.8, True, "holds"),
        (30.0, 29.0, True, "broken"),
        (30.0, 31.0, True, "holds"),
        # A mistake that grows is a drop, and one that shrinks is none.
        (1.0, 1.9, False, "broken"),
        (1.9, 1.0, False, "holds"),
        (30.0, float("nan"), True, "broken"),
        (float("inf"), 30.0, True, "broken"),
        (float("inf"), float("inf"), True, "holds"),
    ],
)
def test_what_is_worse_depends_on_the_metric_and_no_number_is_within_no_limit(
    study, before: float, after: float, higher: bool, verdict: str
) -> None:
    fp32, facts = (valued(study.facts[n], v, higher=higher) for n, v in (("fp32", before), ("int8", after)))
    found = scores.accuracy(facts, fp32, CheckLimits(max_drop=0.5))
    assert verdict == found.verdict, found


def test_without_samples_a_limit_is_not_checked(study) -> None:
    """Random input says nothing of accuracy; that nobody looked must not read as that it holds."""
    found = scores.accuracy(study.facts["int8"], study.facts["fp32"], CheckLimits(max_drop=0.5))
    assert ("not checked", True) == (found.verdict, "--data D.npz" in found.remedy)


def test_a_score_is_told_beside_an_earlier_one_only_where_it_is_the_same(study) -> None:
    score = scored(study.facts["int8"], 300, 400).score
    assert score is not None
    then = RecordedScore(score.name, 80.0, "%", True, 400, None, "there")
    assert ("told", -5.0) == ((row := scores.since(then, score)).verdict, row.value)
    for other, words in (
        (dataclasses.replace(then, samples=399), "counted on 399 samples then, and on 400 now"),
        (dataclasses.replace(then, name="top-5"), "it was top-5 then"),
        (None, "the earlier check has no score"),
    ):
        row = scores.since(other, score)
        assert ("not checked", True) == (row.verdict, words in row.reason)


def timed(held: CheckRecord, middle: float, half: float | None = None, **given: object) -> CheckRecord:
    """A record with a time, and what it varied by on both sides."""
    low, high = (None, None) if half is None else (middle - half, middle + half)
    time = record.RecordedTime(
        middle, low, high, "", "measured", "ONNX Runtime 1.2.3 CPU, 2 threads", "one CPU"
    )
    return dataclasses.replace(held, time=dataclasses.replace(time, **given))


@pytest.mark.parametrize(
    ("then", "then_half", "middle", "half", "verdict"),
    [
        (1.0, 0.01, 1.04, 0.01, "holds"),
        (1.0, 0.01, 1.06, 0.01, "broken"),
        # 1.06 - 0.04 is below 1.0 + 0.03.
        (1.0, 0.03, 1.06, 0.04, "holds"),
        (1.0, 0.03, 1.50, 0.04, "broken"),
        (1.0, 0.01, 0.50, 0.01, "holds"),
        # A single number from files: nothing tells what it varies by.
        (1.0, None, 1.06, None, "broken"),
        (1.0, None, 1.05, None, "holds"),
    ],
)
def test_a_time_is_a_regression_beyond_the_limit_and_what_it_varies_by(
    study, now, then: float, then_half: float | None, middle: float, half: float | None, verdict: str
) -> None:
    found = times.latency(
        study.facts["int8"], timed(now, middle, half), timed(now, then, then_half), None,
        CheckLimits(max_latency_regression=5.0),
    )  # fmt: skip
    assert verdict == found.verdict, found
    assert found.value == pytest.approx(100 * (middle / then - 1))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"origin": "estimated"}, "it was estimated then, and is measured now"),
        ({"place": "another CPU"}, "measured on another CPU then, and one CPU now"),
        ({"source": "ONNX Runtime 1.2.3 CPU, 4 threads"}, "4 threads then"),
        ({"source": "trtexec"}, "it was of trtexec then"),
    ],
)
def test_times_of_two_kinds_are_not_compared(study, now, other: dict[str, str], words: str) -> None:
    facts, limits = study.facts["int8"], CheckLimits(max_latency_regression=5.0)
    found = times.latency(facts, timed(now, 9.0), timed(now, 1.0, None, **other), None, limits)
    assert ("not checked", True) == (found.verdict, words in found.reason), found.reason
    assert "Save a new one" in found.remedy
    # An upgrade of what ran it is what a check is to notice.
    newer = timed(now, 1.0, None, source="ONNX Runtime 1.99.0 CPU, 2 threads")
    assert "broken" == times.latency(facts, timed(now, 9.0), newer, None, limits).verdict


def test_one_slow_round_of_nine_does_not_count(study) -> None:
    """By the sign test the median of nine lies between the second and the eighth in 1 - 2 · 10/512 = 96 % of cases."""
    timed_study = rtlab.Study(tiny_model())
    timed_study.add("fp32", backend="onnxruntime", target="cpu")
    facts = timed_study.run(budget_s=5)["fp32"].facts
    rounds = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 99.0]
    found = times.of(facts, rounds)
    assert found is not None
    assert (1.1, 1.4, 1.7) == (found.low, found.milliseconds, found.high)
    fewer = times.of(facts, rounds[-3:])
    assert fewer is not None
    assert (1.6, 1.7, 99.0) == (fewer.low, fewer.milliseconds, fewer.high)


def predicted(*shown: str, **choice: object) -> tuple[Facts, CheckRecord]:
    """What rules make of the small model, with some of its values among its outputs."""
    model = tiny_model()
    proto = model.proto()
    for name in shown:
        shape = model.values[name].shape
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    made = rtlab.Study(rtlab.load(proto))
    made.add("built", backend="classic", **choice)
    facts = made.run(budget_s=0)["built"].facts
    return facts, check.recorded(facts, made.findings("built"), (), {})


def test_what_is_fused_no_longer_is_named() -> None:
    """A value between convolution and activation that somebody wants to see keeps the two apart."""
    then, (facts, now) = predicted()[1], predicted("normal")
    limits = CheckLimits(fail_on=("fusion", "precision"))
    found = check.judged(facts, None, now, then, limits)
    assert (("fusion",), ()) == (found.broken, found.unchecked)
    row = next(r for r in found.rows if r.check == "fusion")
    assert ("stem/Conv + stem/BatchNormalization + stem/Relu: 1 layer became 2",) == row.changes
    assert "7 → 8 layers" in row.found
    assert "predicted" == row.origin
    assert any("has changed since" in note for note in found.notes)
    # The other way round it is better, and nothing is broken.
    assert check.judged(facts, None, then, now, limits).ok


def test_what_computes_in_a_wider_type_is_named() -> None:
    then, (facts, now) = (
        predicted(precision="fp16")[1],
        predicted(precision={"*": "fp16", "left/Conv": "fp32"}),
    )
    limits = CheckLimits(fail_on=("precision",))
    found = check.judged(facts, None, now, then, limits)
    (row,) = (r for r in found.rows if r.check == "precision")
    # The casts around it are layers of their own, which compute nothing.
    assert ("left/Conv: fp16 became fp32",) == row.changes
    assert ("precision",) == found.broken
    assert check.judged(facts, None, then, now, limits).ok


def test_a_new_finding_is_named_and_an_old_one_is_not() -> None:
    _, held = predicted()
    then = dataclasses.replace(held, findings={"old": "Old.", "gone": "Gone."})
    now = dataclasses.replace(held, findings={"old": "Old.", "new": "New."})
    row = layers.findings(then, now, ("findings",))
    assert ("broken", ("New.",), 1.0) == (row.verdict, row.changes, row.value)
    assert "2 findings, 1 new, 1 gone" == row.found


def test_another_model_is_refused() -> None:
    facts, now = predicted()
    other = rtlab.Study(rtlab.samples.load("digits_outlier").model)
    other.add("built", backend="classic")
    strange = check.recorded(other.run(budget_s=0)["built"].facts, (), (), {})
    with pytest.raises(VariantError, match=r"different models\. Save a new one of this model"):
        check.judged(facts, None, now, strange, CheckLimits())


def test_nodes_that_an_exporter_named_anew_are_of_the_same_model() -> None:
    """By kernels and shapes the layers of both stand side by side all the same."""
    folder = engines.FOLDER / "written-fp16"
    facts = rtlab.read(**engines.files(folder), model=folder / "model.structure-only.onnx")["engine"].facts
    now = check.recorded(facts, (), (), {})
    anew = tuple(p._replace(node=f"node_{p.node}") for p in now.engine.pairs)
    then = dataclasses.replace(now, digest="", engine=dataclasses.replace(now.engine, pairs=anew))
    found = check.judged(facts, None, now, then, CheckLimits(fail_on=("fusion", "precision")))
    assert found.ok


def test_engines_of_two_compilers_or_targets_are_not_compared_layer_by_layer(study, now) -> None:
    facts, mine = predicted()
    limits = CheckLimits(fail_on=("fusion",))
    found = check.judged(facts, None, mine, now, limits)
    assert (("fusion",), False) == (found.unchecked, found.ok)
    (row,) = (r for r in found.rows if r.check == "fusion")
    assert row.reason.startswith("it was compiled by ONNX Runtime then, and by ")
    elsewhere = dataclasses.replace(mine, engine=dataclasses.replace(mine.engine, target="sm89"))
    (row,) = (r for r in check.judged(facts, None, mine, elsewhere, limits).rows if r.check == "fusion")
    assert "it was compiled for sm89 then, and for sm86 now" == row.reason


def test_a_record_is_read_as_it_was_written(now) -> None:
    # Who names a class says from then on that it is of the package itself, where its fields' types have no names.
    assert rtlab.Layer.__module__ == "rtlab"
    again = record.read(now.text(), "b.json")
    for field in dataclasses.fields(CheckRecord):
        assert getattr(now, field.name) == getattr(again, field.name), field.name


def test_a_record_tells_as_much_of_a_kernel_as_the_engine() -> None:
    """By it layers of two engines stand side by side where their names do not tell."""
    folder = engines.FOLDER / "written-fp16"
    engine = engines.read(folder)[0]
    held = record.RecordedEngine.of(engine, Mapping((), ()))
    own, kept = signatures((engine, dataclasses.replace(engine, layers=held.layers)))
    assert own == kept
    assert any(s.kernel for s in own.values())


def test_what_is_no_record_is_refused_in_words(now) -> None:
    for text, words in (
        (now.text()[:3000], "it is no whole JSON"),
        ("", "it is no whole JSON"),
        ('{"layers": []}', "no record of a check"),
        ("[1]", "no record of a check"),
        (now.text().replace('"schema": 1', '"schema": 2'), "its schema is 2, and this rtlab reads 1"),
        (now.text().replace('"target": "cpu"', '"target": "moon"'), "it is damaged"),
        (now.text().replace('"digest"', '"digets"'), "it is damaged"),
    ):
        with pytest.raises(ReadError, match="Cannot check against") as refused:
            record.read(text, "b.json")
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"max_drop": -1.0},
        {"max_drop": float("nan")},
        {"max_latency_regression": float("inf")},
        {"max_drop": "1"},
        {"fail_on": ("speed",)},
        {"sure": True},
    ],
)
def test_what_is_no_limit_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(VariantError):
        CheckLimits(**given)  # type: ignore[arg-type]


def test_every_reader_of_junit_can_read_it(study, now) -> None:
    """By the schema that Jenkins, GitLab and GitHub's actions share: counts, names, order of what is in a case."""
    fp32, facts = scored(study.facts["fp32"], 400, 400), scored(study.facts["int8"], 300, 400)
    odd = dataclasses.replace(now, model="a\x00b\x1b<&>\ud800")
    found: CheckResult = check.judged(
        facts, fp32, odd, None, CheckLimits(max_drop=0.5, max_latency_regression=5.0)
    )
    root = Tree.fromstring(told.junit(found))
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
    for words in ("expected: at most 0.5 points worse", "found: 25", "what to do: "):
        assert words in (failure.text or "")
    (skipped,) = suite.iter("skipped")
    assert "only compiled" in skipped.attrib["message"]
    (error,) = Tree.fromstring(told.unfinished("m", "int8", "Cannot.\x00")).iter("error")
    assert "Cannot." in (error.text or "")


def test_a_name_steers_no_table_in_markdown(study, now) -> None:
    odd = dataclasses.replace(now, model="a|b\n# c <script>")
    text = told.markdown(check.judged(study.facts["int8"], None, odd, None, CheckLimits()))
    assert "<script>" not in text.replace("\\<", "")
    assert 5 == text.splitlines()[2].count("|") - 1
    assert text.startswith("### a\\|b \\# c")
