"""How far the estimates of ``roofline`` were from the times that real GPUs measured."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from rtlab.core.engine import Engine
from rtlab.core.peaks import TABLE, Peaks, resolve_peaks
from rtlab.errors import VariantError


@dataclasses.dataclass(frozen=True)
class EstimateAccuracy:
    """The estimates of one engine's layers beside its measured times.

    ``factor`` is the median over ``layers`` of the larger time by the smaller, ``rank`` Spearman's correlation,
    ``total`` the sum of the estimates by that of the measured times.
    """

    engine: str
    gpu: str
    layers: int
    factor: float
    rank: float
    total: float


#: Engines of which TensorRT's files hold every layer's time: factor, rank and total of estimates by what was fitted to
#: all of them, and by what was fitted to those of other GPUs (``tests/roofs.py``), as is to expect on any other GPU.
_ENGINES = (
    ("fuzzy-alexnet-rtx3060laptop-fp16", "RTX 3060 Laptop", 13, (1.21, 0.96, 1.17), (1.27, 0.96, 1.22)),
    ("fuzzy-mobilenet_v2-rtx3060laptop-fp16", "RTX 3060 Laptop", 55, (1.08, 0.87, 1.07), (1.09, 0.86, 1.11)),
    ("trex-mobilenet-qat-2022-04", "TITAN RTX", 83, (1.13, 0.89, 0.91), (1.08, 0.90, 0.94)),
    ("trex-mobilenetv2-titanrtx-int8-qat", "TITAN RTX", 72, (1.07, 0.87, 1.07), (1.12, 0.87, 1.11)),
    ("trex-mobilenetv2-titanrtx-int8-qat-residuals", "TITAN RTX", 57, (1.08, 0.82, 1.04), (1.11, 0.82, 1.07)),
    ("trex-resnet18-pytorch-a100-fp16", "A100 80GB PCIe", 25, (1.13, 0.85, 0.90), (1.35, 0.92, 0.69)),
    ("trex-resnet18-pytorch-a100-fp32", "A100 80GB PCIe", 24, (1.09, 0.87, 0.95), (1.34, 0.90, 0.80)),
    ("trex-resnet18-pytorch-a100-int8-qat", "A100 80GB PCIe", 35, (1.31, 0.93, 0.78), (1.51, 0.94, 0.68)),
    ("trex-resnet18-pytorch-a100-int8-qat-residual", "A100 80GB PCIe", 25, (1.25, 0.96, 0.71), (1.51, 0.95, 0.55)),
    ("trex-resnet50-tf-rtx3090-fp32", "RTX 3090", 72, (1.21, 0.88, 1.19), (1.24, 0.87, 1.24)),
    ("trex-resnet50-tf-rtx3090-int8-qat", "RTX 3090", 62, (1.18, 0.84, 1.12), (1.21, 0.81, 1.16)),
)  # fmt: skip
RECORDED = tuple(EstimateAccuracy(name, gpu, layers, *own) for name, gpu, layers, own, _ in _ENGINES)
CROSS_VALIDATED = tuple(
    EstimateAccuracy(name, gpu, layers, *other) for name, gpu, layers, _, other in _ENGINES
)


def describe_estimate_error(gpu: str = "") -> str:
    """What to say beside an estimate: the error on recorded engines of this GPU, or on GPUs that were held out."""
    rows, where = tuple(j for j in RECORDED if j.gpu == gpu), f"of {gpu}"
    if not rows:
        rows, where = CROSS_VALIDATED, "on GPUs that were left out of the fit"
    factors = [j.factor for j in rows]
    totals = [abs(j.total - 1) for j in rows]
    return (
        f"on {len(rows)} recorded engines {where}: a layer is off by a factor of {np.median(factors):.2f} "
        f"in the median, at worst {max(factors):.2f} for an engine; the sum by {100 * np.median(totals):.0f} %, "
        f"at worst {100 * max(totals):.0f} %"
    )


def pick_default_gpu(engine: Engine) -> Peaks:
    """The engine's own GPU, else one that it was built for: of these one that was recorded, for its error is known."""
    with contextlib.suppress(VariantError):
        return resolve_peaks(engine.device)
    target = engine.target.name
    same = [p for p in TABLE if target == f"sm{p.capability.replace('.', '')}"] or [resolve_peaks("RTX 3090")]
    recorded = {j.gpu for j in RECORDED}
    return min(same, key=lambda p: ("Laptop" in p.name, p.name not in recorded))
