"""Rankings of the guilty, as they are given, beside runs of the model with every place turned, on other samples.

A truth counts where its own reliability is 0.9 or more; it takes more samples until it is. Pictures of digits are
shifted for that, by two pixels at most, on both sides.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

import rtlab
from rtlab.analyses.sensitivity import Asks, Sensitivity, spearman
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.sensitivity import SensitivitySearch
from tests.planted_faults import healthy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conftest import Care

#: Samples that a ranking is made of, those that a truth begins with, and those that it may take.
MINE, LEAST, MOST = 2048, 512, 8192
#: The reliability of a truth that counts, and what part of the largest effect is one that could be told from noise.
TOLD, EFFECT = 0.9, 0.01
#: What is trained on pictures or sentences and loses something, with its precision; the default calibrator ruins none.
SAMPLES = {
    "digits_inception": "int8", "digits_mobilenet": "int8", "digits_vit": "int8", "digits_outlier": "int8",
    "digits_dark": "int8", "digits_light": "int8", "sentences": "int8", "fp16_overflow": "fp16",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Judged:
    """A ranking beside its truth."""

    name: str
    reliability: float
    samples: int
    agreement: float
    #: How many of the true first five stand among the first eight, of how many that can be told from noise.
    first: tuple[int, int]


def looked(
    model: Model, emulation: Model, data: CalibrationData, asks: Asks, **choice: object
) -> Sensitivity:
    search = SensitivitySearch("v", model, emulation, data, asks=asks, **choice)  # type: ignore[arg-type]
    return run_experiment(search, WorkContext(get_evaluator(), budget=Budget(300)))


def true(model: Model, emulation: Model, data: CalibrationData, asks: Asks) -> Sensitivity:
    found, most = None, min(LEAST, data.count or LEAST)
    while found is None or ((found.reliability or 0) < TOLD and most < (data.count or 0)):
        most = most if found is None else min(2 * most, data.count or most)
        begun = None if found is None else dataclasses.replace(found.effects, data=None)
        found = looked(model, emulation, data.take(most), asks, verify=None, reach=2, begun=begun)
    return found


def judged(
    name: str, model: Model, mine: CalibrationData, others: CalibrationData, asks: Asks, **choice: str
) -> Judged:
    study = rtlab.Study(model, data=mine)
    study.add("v", backend="onnxruntime", **choice)
    emulation = study.calibration.prepare("v").emulation
    truth, given = true(model, emulation, others, asks), looked(model, emulation, mine, asks)
    effects = {g.node: g.best_effect for g in truth.ranking}
    rank = {g.node: -g.rank for g in given.ranking}
    agreement = spearman(np.array([*effects.values()]), np.array([rank[n] for n in effects]))
    least = EFFECT * max(effects.values())
    first = {g.node for g in truth.ranking[:5] if g.best_effect >= least}
    hit = len(first & {g.node for g in given.ranking[:8]})
    return Judged(name, truth.reliability or 0, truth.effects.samples, agreement, (hit, len(first)))


def shifted(data: CalibrationData, model: Model, count: int) -> CalibrationData:
    batches = list(data.batches(model, 64))
    arrays = {k: np.concatenate([np.asarray(b[k]) for b in batches]) for k in batches[0]}
    steps = [(y, x) for y in range(-2, 3) for x in range(-2, 3)] if "image" in arrays else [(0, 0)]
    rng = np.random.default_rng(0)

    def more(array: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.concatenate([np.roll(array, step, (2, 3)) if any(step) else array for step in steps])

    grown = {k: more(a) for k, a in arrays.items()}
    order = rng.permutation(len(next(iter(grown.values()))))[:count]
    return CalibrationData({k: a[order] for k, a in grown.items()}, f"{data.source}, shifted")


def of_nets(asks: Asks, seeds: range) -> list[Judged]:
    found = []
    for seed in seeds:
        model, mine, others = healthy(seed, MOST)
        choice = {"precision": "int8", "calibrator": "minmax"}
        fresh = CalibrationData({"x": others}, "others")
        found.append(judged(f"net {seed}", model, mine.take(MINE), fresh, asks, **choice))
    return found


def of_samples(asks: Asks, names: list[str]) -> list[Judged]:
    found = []
    for name in names:
        sample = rtlab.samples.load(name)
        model, task = sample.model, sample.task
        choice = {"precision": SAMPLES[name]} | ({"calibrator": "minmax"} if SAMPLES[name] == "int8" else {})
        mine, others = shifted(sample.calibration, model, MINE), shifted(task.data, model, MOST)
        found.append(judged(name, model, mine, others, asks, **choice))
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("asks", "median", "tenth"), [("only", 0.95, 0.9), ("released", 0.8, None)])
def test_rankings_are_those_of_the_truth(asks: Asks, median: float, tenth: float | None, care: Care) -> None:
    """Every trained sample and fifty random networks, with the settings that a user begins with."""
    names = care.size([*SAMPLES], ["digits_outlier"])
    found = [*of_samples(asks, names), *of_nets(asks, range(care.size(50, 3)))]
    told = [one for one in found if one.reliability >= TOLD]
    agreements = np.array([one.agreement for one in told])
    assert len(told) >= 0.9 * len(found), found
    assert np.median(agreements) >= median, told
    if tenth is not None:
        assert np.quantile(agreements, 0.1) >= tenth, told
        assert all(one.first[0] == one.first[1] for one in told), told
