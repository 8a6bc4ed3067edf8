"""Every answer about six samples in three precisions, two small models, and eight engines from files."""

from __future__ import annotations

from typing import Any

import pytest

import answers
import scenes

#: What rests on runs of ONNX Runtime: on another processor sums come in another order, and a rounding may flip.
RUN = {
    "accuracy": 1e-2, "samples": 1e-2, "score": 1e-4, "calibration": 1e-4, "scales": 1e-4, "findings": 1e-3,
}  # fmt: skip


@scenes.subjects
@pytest.mark.parametrize("question", answers.ASKED)
def test_answers_are_those_of_the_file(subject: str, question: str, golden: Any) -> None:
    found = scenes.sections(subject, answers.ASKED[question])
    golden(f"answers/{subject}/{question}.json", found, rel=RUN.get(question, 1e-6))
