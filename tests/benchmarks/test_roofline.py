"""What kernels reach, fitted to recorded engines with each GPU left out in turn; and what a roofline costs."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import defaultdict

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.optimize import minimize
from scipy.stats import spearmanr

from benchmarks.test_payload import engine_of
from recorded import present
from roofs import judged_layers, profiled
from rtlab import samples
from rtlab.core.peaks import Peaks
from rtlab.questions.roofline.estimate_error import WITHOUT
from rtlab.questions.roofline.roofs import GPU_EFFICIENCY, Efficiency, estimate, roofline
from rtlab.relation.layerwork import LayerWork
from rtlab.relation.relate import relate

Rows = list[tuple[LayerWork, Peaks, float]]


def distance(efficiency: Efficiency, rows: Rows) -> float:
    """Of the logarithms, with what the ranks and the sum are off."""
    told = np.array([estimate(w, g, efficiency) for w, g, _ in rows])
    seen = np.array([t for _, _, t in rows])
    ranks = max(0.0, 0.84 - spearmanr(told, seen).statistic)
    return float(np.abs(np.log(told / seen)).mean() + ranks + 0.3 * abs(np.log(told.sum() / seen.sum())))


def fitted(engines: list[Rows], steps: int) -> Efficiency:
    """What kernels reach on some engines; shares stay below 0.95."""

    def loss(logs: np.ndarray) -> float:
        reached = np.exp(logs)
        if reached[2:6].max() > 0.95:
            return 1e3
        return float(np.mean([distance(Efficiency(*reached), rows) for rows in engines]))

    start = np.log(dataclasses.astuple(GPU_EFFICIENCY))
    found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": steps})
    return Efficiency(*(float(f"{v:.2g}") for v in np.exp(found.x)))


@present
def test_efficiencies_fitted_without_a_gpu(benchmark: BenchmarkFixture, care) -> None:
    """The constants that ``Efficiency`` and ``trust.WITHOUT`` hold stand in the benchmark's extra information."""
    groups: defaultdict[str, list[Rows]] = defaultdict(list)
    for folder in profiled():
        works, gpu, measured = judged_layers(folder)
        groups[gpu.name].append([(works[i], gpu, 1e3 * t) for i, t in measured.items()])
    every = [rows for group in groups.values() for rows in group]
    steps = care.size(180, 2)
    found = benchmark.pedantic(fitted, (every, steps), rounds=1)
    benchmark.extra_info["all"] = repr(found)
    for name in groups:
        others = [rows for other, group in groups.items() if other != name for rows in group]
        benchmark.extra_info[f"without {name}"] = repr(fitted(others, steps))
    sys.stdout.write("\n" + "\n".join(f"{k}: {v}" for k, v in benchmark.extra_info.items()) + "\n")
    assert set(WITHOUT) == set(groups)


def test_a_roofline_of_a_large_engine_beside_relating_its_layers(benchmark: BenchmarkFixture, care) -> None:
    """Both walk all nodes and layers."""
    model = samples.transformer_stack(nodes=care.size(10_000, 2_000))
    engine = engine_of(model, np.random.default_rng(0))
    started = time.perf_counter()
    mapping = relate(model, model, engine)
    related = time.perf_counter() - started
    found = benchmark.pedantic(
        lambda: roofline(engine, mapping, model, "RTX 3090"), rounds=3, warmup_rounds=1
    )
    benchmark.extra_info |= {"layers": len(found.layers), "related_seconds": related}
    sys.stdout.write(f"\n{len(found.layers)} layers: related in {related:.2f} s, ")
    sys.stdout.write(f"under the roofs in {benchmark.stats.stats.median:.2f} s\n")
    assert found.layers
