"""The CPU's own roofs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import WorkContext
from rtlab.errors import Cancelled
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.peaks import CpuPeaks
from stopping import Stopping


@pytest.mark.slow
def test_the_cpu_has_roofs_that_are_measured() -> None:
    found = run_experiment(CpuPeaks(128, 1 << 16), WorkContext(get_evaluator()))
    assert ("measured", {"fp32", "int8"}) == (found.origin, set(found.cores))
    for rate in (found.bandwidth, *found.cores.values()):
        # A thousand and a million times what is usual would be a unit mistaken.
        assert 1e7 < rate < 1e14


def test_rates_are_the_work_of_the_fastest_run_of_the_node_that_took_longest() -> None:
    """By hand: a runner that takes 2 ms at best for the node, and next to nothing for a copy before it."""
    told: list[object] = []
    samples = {"copy": np.array([0.01, 0.02, 0.01]), "node": np.array([3.0, 2.0, 50.0])}

    class Runner:
        source = "ONNX Runtime 0"

        def build(self, request: object, progress: object) -> object:
            return SimpleNamespace(layers=(SimpleNamespace(id="copy"), SimpleNamespace(id="node")))

        def profile(self, engine: object, inputs: object, progress: object, **runs: int) -> object:
            told.append(progress)
            return SimpleNamespace(samples=samples)

        def release(self, engine: object) -> None:
            told.append("released")

    rig = WorkContext(Runner())
    found = run_experiment(CpuPeaks(10, 1000), rig)
    # A multiply-accumulate is two operations; every number of four bytes is read and written.
    assert {"fp32": 2 * 10**3 / 2e-3, "int8": 2 * 10**3 / 2e-3} == pytest.approx(found.cores)
    assert 2 * 4 * 1000 / 2e-3 == pytest.approx(found.bandwidth)
    assert [rig, "released"] * 3 == told
    assert (3, 3 * 7) == (rig.builds, rig.runs)


def test_measuring_can_be_stopped() -> None:
    with pytest.raises(Cancelled):
        run_experiment(CpuPeaks(128, 1 << 16), WorkContext(get_evaluator(), Stopping()))
