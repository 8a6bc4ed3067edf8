"""A treatment that makes a variant worse: what the Findings say of it, and when nothing must be said."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rtlab
from rtlab.analyses.findings.analysis import HARMFUL, add_comparative_findings, summarize_findings
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Score, VariantResult
from rtlab.core.finding import Finding
from rtlab.core.task import Predictions, Task
from rtlab.testing import tiny_model

SAMPLES = 900


@pytest.fixture(scope="module")
def built() -> dict[str, VariantResult]:
    """The same variant with no, one and two treatments, and others; compiled and not scored."""
    study = rtlab.Study(tiny_model())
    cpu = {"backend": "onnxruntime", "target": "cpu"}
    study.add("plain", precision="int8", calibrator="minmax", **cpu)
    study.add("mse", precision="int8", calibrator="mse", **cpu)
    study.add("equalized", precision="int8", calibrator="minmax", treatments=["equalize"], **cpu)
    study.add("both", precision="int8", calibrator="minmax", treatments=["equalize", "correct"], **cpu)
    return dict(study.run(budget_s=0).state.results)


def scored(facts: VariantResult, *wrong: range, metric: object = None, picked: bool = False) -> VariantResult:
    """A variant that has these of 900 samples wrong."""
    said = np.zeros(SAMPLES, int)
    for part in wrong:
        said[part] = 1
    task = Task(CalibrationData({"x": np.zeros((1, 1))}), np.zeros(SAMPLES, int), metric=metric)
    held = Predictions()
    held.add({"y": np.eye(2, dtype=np.float32)[said]}, SAMPLES)
    score = Score.of(task, held, "here")
    if picked and score.tally is not None:
        score = dataclasses.replace(score, tally=dataclasses.replace(score.tally, picked=True))
    return dataclasses.replace(facts, score=score)


def harm(facts: VariantResult, *others: VariantResult) -> list[Finding]:
    return [f for f in add_comparative_findings((), facts, [facts, *others]) if f.rule == HARMFUL]


def test_a_treatment_that_harms_is_told_with_both_numbers(built) -> None:
    """28 of 900 are wrong without it: 872 right, 96.89 %. With it 42: 858 right, 95.33 %.

    19 are lost and 5 won. Of 902, with one more in each cell (Bonett and Price): (6 - 20) / 902 = -1.552 %, and 1.96 *
    sqrt((26 / 902 - 0.01552²) / 902) = 1.103 %, which is 0.45 to 2.66 below. McNemar: twice the chance of 19 or more
    heads of 24 is 2 (42504 + 10626 + 2024 + 276 + 24 + 1) / 2^24 = 0.0066.
    """
    plain, treated = scored(built["plain"], range(28)), scored(built["equalized"], range(5, 47))
    (found,) = harm(treated, plain)
    assert "1.6 points below plain, 0.4 to 2.7, McNemar p = 0.0066" in found.cost
    assert "19 lost, 5 won." in found.evidence
    assert "harmful-treatment:equalize" == found.id
    # It stands before all else, in the page too; the untreated variant has nothing of the kind.
    other = dataclasses.replace(found, id="move", rule="move")
    assert (found, other) == add_comparative_findings([other], treated, [plain, treated])
    assert found == summarize_findings(tiny_model(), treated, [plain, treated]).items[0]
    assert not harm(plain, treated)


def test_nothing_is_said_where_the_samples_cannot_tell_or_nothing_compares(built) -> None:
    plain, treated = scored(built["plain"], range(28)), scored(built["equalized"], range(5, 47))
    assert not harm(scored(built["equalized"], range(29)), plain)
    assert not harm(scored(built["equalized"], range(5)), plain)
    assert not harm(scored(built["equalized"], range(5, 47), picked=True), plain)
    assert not harm(treated, scored(built["mse"], range(28)))
    assert not harm(treated, built["plain"])
    assert not harm(built["equalized"], plain)
    # The same treatments, and more of them, are no less treated.
    assert not harm(treated, scored(built["equalized"], range(28)))
    assert not harm(scored(built["plain"], range(90)), treated)
    assert not harm(treated)


def test_of_several_the_treatment_to_leave_out_is_that_of_the_best_other(built) -> None:
    both = scored(built["both"], range(90))
    plain, equalized = scored(built["plain"], range(28)), scored(built["equalized"], range(60))
    (found,) = harm(both, equalized, plain)
    assert found.id == "harmful-treatment:equalize, correct"
    (found,) = harm(both, plain, scored(built["equalized"], range(9)))
    assert "harmful-treatment:correct" == found.id


def test_more_of_a_metric_of_errors_is_worse(built) -> None:
    def wrong(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return (outputs.argmax(axis=1) != labels).astype(float)

    metric = rtlab.Metric("errors", each=wrong, higher=False)
    plain = scored(built["plain"], range(28), metric=metric)
    assert harm(scored(built["equalized"], range(90), metric=metric), plain)
    assert not harm(scored(built["equalized"], range(3), metric=metric), plain)
    both = scored(built["both"], range(200), metric=metric)
    equalized = scored(built["equalized"], range(90), metric=metric)
    assert "harmful-treatment:equalize, correct" == harm(both, plain, equalized)[0].id
