"""Who is guilty of each sample's error, by runs of the model: the truth that estimates are judged by."""

from __future__ import annotations

import pytest

import rtlab
from rtlab.backends.reference import evaluator
from rtlab.experiments.experiment import Rig, carry_out
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.questions.sensitivity import Sensitivity, spearman

#: Samples of the truth, which is measured on all of them whatever its reliability.
SAMPLES = 64


def ranking(name: str, verify: int | None) -> Sensitivity:
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration)
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    emulation = study.prepare("int8").emulation
    data = sample.calibration.take(SAMPLES)
    return carry_out(
        SensitivitySearch("int8", sample.model, emulation, data, verify=verify, reach=2), Rig(evaluator())
    )


@pytest.mark.parametrize("name", ["digits_outlier", "digits_mobilenet", "digits_vit"])
def test_the_guilty_of_a_sample(name: str, golden) -> None:
    """Places with a hundredth of the largest effect or more, in the order of the graph; the rest is noise."""
    truth, guess = ranking(name, None), ranking(name, 0)
    effects = dict(zip(truth.effects.places, truth.effects.measured.mean(axis=1), strict=True))
    most = max(effects.values())
    lines = [f"{node} {effect:.3e}" for node, effect in effects.items() if effect >= 0.01 * most]
    golden(
        f"sensitivity/{name}.txt",
        {"# int8 · only this one quantized": [*lines, f"reliability {truth.reliability:.2f}"]},
        within=0.3,
    )
    assert spearman(guess.effects.known.mean(axis=1), truth.effects.known.mean(axis=1)) >= 0.9
    first = [g.node for g in truth.ranking[:5]]
    assert len({*first} & {g.node for g in guess.ranking[:8]}) >= 4
