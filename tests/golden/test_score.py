"""How sure a score is, and which samples flipped: digits_outlier in INT8 with its worst and its best calibrator.

ONNX Runtime runs the model and what stands for the variant here once more; hits are counted of the arrays, Wilson's
interval by its formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest

import rtlab


def right(model: Any, sample: Any) -> np.ndarray:
    """Which samples a model has right."""
    session = onnxruntime.InferenceSession(
        model.proto().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(list(model.outputs[:1]), dict(sample.task.data.arrays))
    return logits.argmax(axis=1) == sample.task.labels


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """In percent."""
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return tuple(100 * (middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))


@pytest.mark.parametrize("calibrator", ["minmax", "percentile"])
def test_a_drop_and_the_samples_that_flipped(calibrator: str, golden: Any) -> None:
    """242 of 899 samples are lost by minmax, and none by another scale."""
    sample = rtlab.samples.load("digits_outlier")
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.add("int8", precision="int8", calibrator=calibrator, backend="onnxruntime", target="cpu")
    study.run(budget_s=60)
    told = study.ask("score", variant="int8", baseline="fp32").noun
    before, after = right(sample.model, sample), right(study["int8"].prepared.emulation, sample)

    assert wilson(after.mean(), len(after)) == pytest.approx(
        (told.interval.low, told.interval.high), abs=1e-3
    )
    assert 100 * (after.mean() - before.mean()) == pytest.approx(told.difference)
    lost, won = np.flatnonzero(before & ~after).tolist(), np.flatnonzero(~before & after).tolist()
    assert lost == [f.sample for f in told.flipped if f.flip == "lost"]
    assert won == [f.sample for f in told.flipped if f.flip == "won"]
    words = [told.told, told.compared, told.flips, told.verdict]
    rows = [f"{f.sample} {f.flip}: {f.label}, {f.before} became {f.after}" for f in told.flipped]
    golden(f"score/digits_outlier-{calibrator}.txt", {"# words": words, "# flipped": rows})
