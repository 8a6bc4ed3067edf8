"""How near the estimates of ``roofline`` come to engines with the time of each layer.

``RTLAB_RECORDED=FOLDER python tests/roofs.py`` fits what kernels reach to the recorded engines, and to those of all
GPUs but one: it prints the constants that ``Efficiency`` and ``LEAVE_ONE_OUT`` hold.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.stats import spearmanr

import engines
from rtlab.analyses.roofline.estimate import (
    GPU_EFFICIENCY,
    Efficiency,
    EstimateAccuracy,
    estimate_microseconds,
)
from rtlab.core.peaks import Peaks, resolve_peaks
from rtlab.relation.layerwork import LayerWork, layer_works
from rtlab.relation.relate import relate

#: What kernels reach as fitted to the engines of all GPUs but one, by the one that was left out.
LEAVE_ONE_OUT: Mapping[str, Efficiency] = {
    "RTX 3060 Laptop": Efficiency(4.7, 1.2, 0.8, 0.22, 0.63, 0.9, 0.14),
    "TITAN RTX": Efficiency(4.8, 1.3, 0.85, 0.22, 0.67, 0.91, 0.095),
    "A100 80GB PCIe": Efficiency(4.4, 1.5, 0.87, 0.49, 0.94, 0.86, 0.079),
    "RTX 3090": Efficiency(4.4, 1.3, 0.88, 0.24, 0.61, 0.9, 0.12),
}
Rows = list[tuple[LayerWork, Peaks, float]]


def profiled(home: Path) -> list[Path]:
    folders = sorted(home.iterdir())
    return [f for f in folders if "profile" in engines.files(f) and f.name not in engines.NAMES_ONLY]


def judged_layers(folder: Path) -> tuple[dict[str, LayerWork], Peaks, dict[str, float]]:
    engine, times = engines.read(folder)
    assert times is not None
    model = engines.structure(folder)
    works = layer_works(engine, relate(model, model, engine), model)
    measured = {t.layer: t.median for t in times.layers if t.median > 0 and not works[t.layer].still}
    return works, resolve_peaks(engine.device), measured


def compare_estimates(
    engine: str, gpu: str, estimated: Mapping[str, float], measured: Mapping[str, float]
) -> EstimateAccuracy:
    """Compare times by layer id in one unit; layers without an estimate or that took no time are left out."""
    both = [(e, measured[i]) for i, e in estimated.items() if e > 0 and measured.get(i, 0.0) > 0]
    if not both:
        return EstimateAccuracy(engine, gpu, 0, float("nan"), float("nan"), float("nan"))
    estimates, measurements = (np.array(column) for column in zip(*both, strict=True))
    factors = np.maximum(estimates / measurements, measurements / estimates)
    return EstimateAccuracy(
        engine=engine,
        gpu=gpu,
        layers=len(both),
        factor=float(np.median(factors)),
        rank=float(spearmanr(estimates, measurements).statistic),
        total=float(estimates.sum() / measurements.sum()),
    )


def distance(efficiency: Efficiency, rows: Rows) -> float:
    estimated = np.array([estimate_microseconds(w, g, efficiency) for w, g, _ in rows])
    measured = np.array([t for _, _, t in rows])
    ranks = max(0.0, 0.84 - spearmanr(estimated, measured).statistic)
    total = abs(np.log(estimated.sum() / measured.sum()))
    return float(np.abs(np.log(estimated / measured)).mean() + ranks + 0.3 * total)


def fitted(groups: list[Rows], steps: int = 180) -> Efficiency:
    """What kernels reach on some engines; shares stay below 0.95."""

    def loss(logs: np.ndarray) -> float:
        reached = np.exp(logs)
        if reached[2:6].max() > 0.95:
            return 1e3
        return float(np.mean([distance(Efficiency(*reached), rows) for rows in groups]))

    start = np.log(dataclasses.astuple(GPU_EFFICIENCY))
    best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": steps})
    return Efficiency(*(float(f"{v:.2g}") for v in np.exp(best.x)))


def main(home: Path) -> None:
    groups: defaultdict[str, list[Rows]] = defaultdict(list)
    for folder in profiled(home):
        works, gpu, measured = judged_layers(folder)
        groups[gpu.name].append([(works[i], gpu, 1e3 * t) for i, t in measured.items()])
    for name in ("", *groups):
        others = [rows for other, group in groups.items() if other != name for rows in group]
        sys.stdout.write(f"{f'without {name}' if name else 'all'}: {fitted(others)!r}\n")


if __name__ == "__main__":
    main(Path(os.environ["RTLAB_RECORDED"]) / "engines")
