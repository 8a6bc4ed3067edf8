"""What bounds each layer of an engine on a processor, how far it is from there, and how long it may take.

The roofline (Williams, Waterman, Patterson 2009): a layer takes at least its operations by the peak rate of the units
that do them, and at least the bytes it moves by the memory's bandwidth. *Attainable* is the longer of the two with the
launch of a kernel, from peaks alone. *Estimated* is nearer to what kernels do: ``Efficiency`` says what they reach.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.peaks import TABLE, Peaks, resolve_peaks
from rtlab.errors import VariantError
from rtlab.relation.layerwork import LayerWork, Product, batch_of, layer_works
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.work import count_parameters

#: What a layer waits for most.
Bound = Literal["compute", "memory", "launch", "unknown"]

#: The share of an engine below which an estimate of the whole is withheld.
ENOUGH = 0.95

#: Numbers of the summed dimension that a block takes in one step.
_STEP = 32
#: Tiles among which the best is taken where no kernel's name tells one.
_TILES = (
    *((rows, 128) for rows in (256, 192, 128, 96)),
    *((rows, 64) for rows in (192, 128, 96, 64)),
    *((rows, 32) for rows in (64, 32)),
)


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """What real kernels reach, beside published peaks.

    Times are in microseconds, the others shares of a peak. ``launch`` is what the smallest kernel takes under a
    profiler, ``setup`` what a kernel takes that first loads a table or the first tiles. ``memory`` is the share of the
    bandwidth, ``scattered`` that where the layout of a few channels changes. ``matrix`` and ``cores`` are the shares
    of the matrix units and of the ordinary ones that a large tile reaches; ``step`` is the latency of one step along
    the summed dimension, below which no block gets however little it computes.

    The numbers were fitted to the engines of ``RECORDED``; ``CROSS_VALIDATED`` tells how near the
    estimates come on a GPU that was left out of the fit.
    """

    launch: float = 4.5
    setup: float = 1.3
    memory: float = 0.84
    scattered: float = 0.24
    matrix: float = 0.67
    cores: float = 0.89
    step: float = 0.12


#: Of a GPU.
GPU_EFFICIENCY = Efficiency()
#: Of a processor whose peaks were measured: they are what its kernels reach, and a call costs little.
MEASURED_EFFICIENCY = Efficiency(
    launch=1.0, setup=0.0, memory=1.0, scattered=1.0, matrix=1.0, cores=1.0, step=0.0
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One layer under the roofs. Times are in milliseconds, ``read`` and ``written`` in bytes; None where not known.

    ``precision`` is the one whose peak bounds it, ``units`` says whose. ``measured`` is the layer's time, where there
    is one.
    """

    layer: str
    macs: int | None
    flops: int | None
    read: int | None
    written: int | None
    precision: str
    units: Literal["matrix", "cores", ""]
    bound: Bound
    attainable: float | None
    estimated: float | None
    measured: float | None = None
    note: str = ""

    @property
    def moved(self) -> int | None:
        """Bytes read and written."""
        return None if self.read is None or self.written is None else self.read + self.written

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return self.flops / self.moved if self.flops is not None and self.moved else None

    @property
    def distance(self) -> float | None:
        """The measured time by the attainable one; None where either is missing or zero."""
        return self.measured / self.attainable if self.measured and self.attainable else None

    @property
    def rate(self) -> float | None:
        """Operations per second: as measured, else as estimated."""
        time = self.measured or self.estimated
        return self.flops / time * 1e3 if self.flops and time else None


@dataclasses.dataclass(frozen=True)
class EstimateCoverage:
    """How many of an engine's layers have both operations and bytes, and which share of all bytes those move.

    Below 95 % of either there is no sum: what is left out may be what costs most.
    """

    layers: int
    all_layers: int
    moved: float

    def __str__(self) -> str:
        layers, share = f"{self.layers} of {self.all_layers} layers", math.floor(100 * self.moved)
        return f"{layers} are counted, which move {share} % of the known bytes"

    @property
    def enough(self) -> bool:
        """Whether a sum says something of the whole."""
        return not self.all_layers or min(self.layers / self.all_layers, self.moved) >= ENOUGH


@dataclasses.dataclass(frozen=True, eq=False)
class Roofline:
    """The layers of an engine under the roofs of a processor; ``batch`` samples in an inference.

    Steps that launch nothing have no point. ``parameters`` counts those of the model.
    """

    peaks: Peaks
    batch: int
    layers: tuple[Point, ...]
    parameters: int

    def __repr__(self) -> str:
        total = self.withheld or f"{self.estimated:.3g} ms, estimated"
        return f"<Roofline on {self.peaks.name}: {len(self.layers)} layers, {total}>"

    @functools.cached_property
    def by_layer(self) -> Mapping[str, Point]:
        """Points by layer id."""
        return {p.layer: p for p in self.layers}

    @property
    def flops(self) -> int:
        """Operations of all layers whose number is known."""
        return sum(p.flops or 0 for p in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all layers whose number is known."""
        return sum(p.macs or 0 for p in self.layers)

    @property
    def moved(self) -> int:
        """Bytes read and written by all layers whose sizes are known."""
        return sum(p.moved or 0 for p in self.layers)

    @functools.cached_property
    def coverage(self) -> EstimateCoverage:
        """How much of the engine the estimate rests on."""
        counted = [p for p in self.layers if p.flops is not None and p.moved is not None]
        moved = sum(p.moved or 0 for p in counted)
        share = moved / self.moved if self.moved else float(not self.layers)
        return EstimateCoverage(len(counted), len(self.layers), share)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Layers whose operations or bytes are not known."""
        return tuple(p.layer for p in self.layers if p.flops is None or p.moved is None)

    @property
    def attainable(self) -> float | None:
        """The sum over the layers in milliseconds; None where too little is ``coverage`` for one."""
        return sum(p.attainable or 0.0 for p in self.layers) if self.coverage.enough else None

    @property
    def estimated(self) -> float | None:
        """The sum over the layers in milliseconds; None where too little is ``coverage`` for one."""
        return sum(p.estimated or 0.0 for p in self.layers) if self.coverage.enough else None

    @property
    def withheld(self) -> str:
        """Why there is no sum, in words; empty where there is one."""
        if self.coverage.enough:
            return ""
        why = f"below {ENOUGH:.0%} what is left out may be what costs most"
        return f"No estimate of the whole is given: {self.coverage}, and {why}."

    def milliseconds(self, engine: Engine) -> dict[str, float]:
        """Estimated milliseconds by layer id; a layer whose work is not known is left out, a still one takes 0."""
        points = self.by_layer
        timed = {y.id: points[y.id].estimated if y.id in points else 0.0 for y in engine.layers}
        return {i: t for i, t in timed.items() if t is not None}

    def share(self, bound: Bound) -> float:
        """The part of the estimated time of the counted layers that has this bound, from 0 to 1."""
        total = sum(p.estimated or 0.0 for p in self.layers)
        return sum(p.estimated or 0.0 for p in self.layers if p.bound == bound) / total if total else 0.0


def compute_engine_roofline(
    engine: Engine,
    mapping: NodeMapping,
    model: Model,
    gpu: str | Peaks,
    times: Mapping[str, float] | None = None,
    *,
    batch: int | None = None,
) -> Roofline:
    """Every layer of an engine under the roofs of a processor.

    Args:
        engine: Whose layers are judged.
        mapping: Between ``model`` and the engine.
        model: The source model, or one without nodes where none is known.
        gpu: A name of the table, or peaks of one's own.
        times: Measured milliseconds by layer id.
        batch: Samples in an inference instead of the engine's own.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size, or the model's batch is fixed.
    """
    roofs = resolve_peaks(gpu)
    works = layer_works(engine, mapping, model, batch=batch)
    points = tuple(place_under_roofs(w, roofs, (times or {}).get(i)) for i, w in works.items() if not w.still)
    return Roofline(roofs, batch or batch_of(engine, model), points, count_parameters(model))


def get_efficiency(roofs: Peaks) -> Efficiency:
    """What kernels reach on a processor."""
    return MEASURED_EFFICIENCY if roofs.origin == "measured" else GPU_EFFICIENCY


def place_under_roofs(work: LayerWork, roofs: Peaks, measured: float | None = None) -> Point:
    """One layer under the roofs, with its measured milliseconds."""
    efficiency = get_efficiency(roofs)
    rate, precision = roofs.rate(work.precision, matrix=work.matrix)
    note = work.note
    if work.matrix and precision != work.precision and work.precision not in {"fp32", "tf32"}:
        note = f"{note} It has no rate of {work.precision}, so that of {precision} stands here.".strip()
    compute = None if work.flops is None else work.flops / rate * 1e6
    memory = None if work.moved is None else work.moved / roofs.bandwidth * 1e6
    bound: Bound = "unknown"
    attainable = estimated = None
    # What a layer moves alone says how long it takes at least; standing in for an estimate, it would make a convolution
    # whose work nobody counted look free.
    if memory is not None and compute is not None:
        longest = max(compute, memory)
        attainable = (longest + efficiency.launch) / 1e3
        estimated = estimate_microseconds(work, roofs, efficiency) / 1e3
        bound = "launch" if longest < efficiency.launch else "compute" if compute > memory else "memory"
    units: Literal["matrix", "cores"] = "matrix" if work.matrix and precision in roofs.tensor else "cores"
    return Point(
        work.layer, work.macs, work.flops, work.read, work.written, precision, units, bound, attainable, estimated,
        measured, note,
    )  # fmt: skip


def estimate_microseconds(work: LayerWork, roofs: Peaks, efficiency: Efficiency) -> float:
    """Microseconds that a layer may take: launch, set-up, and the longer of computing and moving."""
    rate, precision = roofs.rate(work.precision, matrix=work.matrix)
    share = efficiency.matrix if work.matrix and precision in roofs.tensor else efficiency.cores
    reached = efficiency.scattered if work.scattered else efficiency.memory
    moving = (work.moved or 0) / (roofs.bandwidth * reached) * 1e6
    product = work.product if work.product is not None and not work.product.thin else None
    if product is not None and roofs.origin != "measured":
        computing = _walk(product, rate * share, roofs.multiprocessors, efficiency.step)
    else:
        computing = (work.flops or 0) / (rate * share) * 1e6
    setup = efficiency.setup if product is not None or work.tabled else 0.0
    return efficiency.launch + setup + max(computing, moving)


def _walk(product: Product, rate: float, multiprocessors: int, step: float) -> float:
    """Microseconds for all blocks to walk along the summed dimension.

    Blocks come in waves of as many as there are multiprocessors, and the last wave is as long as a full one. A small
    tile loads more per operation, which costs it some of the peak: the fourth root of its reuse beside a tile of
    128×128.
    """
    steps = math.ceil(product.depth / _STEP)
    fastest = math.inf
    for rows, columns in (product.tile,) if product.tile else _TILES:
        blocks = math.ceil(product.rows / rows) * math.ceil(product.columns / columns) * product.groups
        waves = math.ceil(blocks / multiprocessors)
        reuse = min(1.0, 2 * rows * columns / (rows + columns) / 128) ** 0.25
        turn = waves * 2 * rows * columns * _STEP / (rate / multiprocessors * reuse) * 1e6
        fastest = min(fastest, steps * max(turn, step))
    return fastest


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
