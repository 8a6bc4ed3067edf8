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

    ``factor`` is the median over ``layers`` of the larger time by the smaller, ``share_below_2x`` the share of layers
    that are off by a factor of 2 at most, ``rank`` Spearman's correlation, ``total`` the sum of the estimates by that
    of the measured times.
    """

    engine: str
    gpu: str
    layers: int
    factor: float
    share_below_2x: float
    rank: float
    total: float


#: Engines of which TensorRT's files hold every layer's time. ``Efficiency`` was fitted to all of them.
RECORDED: tuple[EstimateAccuracy, ...] = (
    EstimateAccuracy("fuzzy-alexnet-rtx3060laptop-fp16", "RTX 3060 Laptop", 13, 1.21, 1.00, 0.96, 1.17),
    EstimateAccuracy("fuzzy-mobilenet_v2-rtx3060laptop-fp16", "RTX 3060 Laptop", 55, 1.08, 1.00, 0.87, 1.07),
    EstimateAccuracy("trex-mobilenet-qat-2022-04", "TITAN RTX", 83, 1.13, 1.00, 0.89, 0.91),
    EstimateAccuracy("trex-mobilenetv2-titanrtx-int8-qat", "TITAN RTX", 72, 1.07, 0.99, 0.87, 1.07),
    EstimateAccuracy("trex-mobilenetv2-titanrtx-int8-qat-residuals", "TITAN RTX", 57, 1.08, 0.98, 0.82, 1.04),
    EstimateAccuracy("trex-resnet18-pytorch-a100-fp16", "A100 80GB PCIe", 25, 1.13, 0.96, 0.85, 0.90),
    EstimateAccuracy("trex-resnet18-pytorch-a100-fp32", "A100 80GB PCIe", 24, 1.09, 1.00, 0.87, 0.95),
    EstimateAccuracy("trex-resnet18-pytorch-a100-int8-qat", "A100 80GB PCIe", 35, 1.31, 0.91, 0.93, 0.78),
    EstimateAccuracy("trex-resnet18-pytorch-a100-int8-qat-residual", "A100 80GB PCIe", 25, 1.25, 0.92, 0.96, 0.71),
    EstimateAccuracy("trex-resnet50-tf-rtx3090-fp32", "RTX 3090", 72, 1.21, 0.99, 0.88, 1.19),
    EstimateAccuracy("trex-resnet50-tf-rtx3090-int8-qat", "RTX 3090", 62, 1.18, 1.00, 0.84, 1.12),
)  # fmt: skip
#: The same engines, each estimated by what was fitted to those of other GPUs (``tests/roofs.py``): the error to expect
#: on a GPU that nobody has recorded.
CROSS_VALIDATED: tuple[EstimateAccuracy, ...] = (
    EstimateAccuracy("fuzzy-alexnet-rtx3060laptop-fp16", "RTX 3060 Laptop", 13, 1.27, 1.00, 0.96, 1.22),
    EstimateAccuracy("fuzzy-mobilenet_v2-rtx3060laptop-fp16", "RTX 3060 Laptop", 55, 1.09, 1.00, 0.86, 1.11),
    EstimateAccuracy("trex-mobilenet-qat-2022-04", "TITAN RTX", 83, 1.08, 1.00, 0.90, 0.94),
    EstimateAccuracy("trex-mobilenetv2-titanrtx-int8-qat", "TITAN RTX", 72, 1.12, 0.99, 0.87, 1.11),
    EstimateAccuracy("trex-mobilenetv2-titanrtx-int8-qat-residuals", "TITAN RTX", 57, 1.11, 0.98, 0.82, 1.07),
    EstimateAccuracy("trex-resnet18-pytorch-a100-fp16", "A100 80GB PCIe", 25, 1.35, 0.92, 0.92, 0.69),
    EstimateAccuracy("trex-resnet18-pytorch-a100-fp32", "A100 80GB PCIe", 24, 1.34, 1.00, 0.90, 0.80),
    EstimateAccuracy("trex-resnet18-pytorch-a100-int8-qat", "A100 80GB PCIe", 35, 1.51, 0.91, 0.94, 0.68),
    EstimateAccuracy("trex-resnet18-pytorch-a100-int8-qat-residual", "A100 80GB PCIe", 25, 1.51, 0.88, 0.95, 0.55),
    EstimateAccuracy("trex-resnet50-tf-rtx3090-fp32", "RTX 3090", 72, 1.24, 0.99, 0.87, 1.24),
    EstimateAccuracy("trex-resnet50-tf-rtx3090-int8-qat", "RTX 3090", 62, 1.21, 1.00, 0.81, 1.16),
)  # fmt: skip


def describe_estimate_error(gpu: str = "") -> str:
    """What to say beside an estimate: the error on recorded engines of this GPU, or on GPUs that were held out."""
    same_gpu = [j for j in RECORDED if j.gpu == gpu]
    rows, where = (
        (same_gpu, f"of {gpu}")
        if same_gpu
        else (list(CROSS_VALIDATED), "on GPUs that were left out of the fit")
    )
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
