"""One variant's work, from a model to an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab import backends
from rtlab.analyses.fusion import relate_engine
from rtlab.backends.capabilities import require_capability
from rtlab.core.data import CalibrationData
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.model import Model
from rtlab.core.phrases import list_first
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, BuildRequest, Limits, Opener, Progress
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.stage import Stage, StageStatus
from rtlab.core.task import Task
from rtlab.core.variant import Precision, Variant
from rtlab.errors import BuildError, Cancelled
from rtlab.quantize import apply_transforms, assign, prepare
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.study.remedies import add_remedies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Types narrower than FP32.
_NARROW = {"fp16", "bf16", "int8", "fp8"}


@dataclasses.dataclass(frozen=True)
class Job:
    """What one variant's work needs; it can be pickled.

    ``data`` may be left out where the variant is only compiled. ``requested_samples`` is how many samples calibration
    takes without a budget; ``random_ranges`` says that they were random input. ``plan`` is a serialized engine to open
    in place of a build. ``runner`` is the stand-in where the builder does not run its engine itself. ``inputs`` are for
    transforms of weights and biases, ``peaks`` for smoothing. ``all_samples`` says that values are compared on all
    samples, and not on as many as a first result takes.
    """

    name: str
    variant: Variant
    model: Model
    data: CalibrationData | None
    task: Task | None
    ranges: Ranges | None
    scales: Mapping[str, Scale] | None
    limits: Limits
    builder: str
    runner: str | None
    requested_samples: int = 0
    plan: str = ""
    random_ranges: bool = False
    inputs: LayerInputs | None = None
    peaks: Mapping[str, NDArray[np.float64]] | None = None
    all_samples: bool = False


def compile_variant(job: Job, progress: Progress | None = None) -> VariantResult:
    """The first stage: a variant prepared, built and related to its model; an executor's process may run it."""
    progress = progress or Silent()
    progress.phase(f"Preparing {job.variant.name}")
    ready = prepare_model(job, progress)
    if job.ranges is not None and job.ranges.samples < job.requested_samples:
        note = (
            f"calibrated on {job.ranges.samples} of {job.requested_samples} samples, in the time that the budget left: "
            f'study.calibration.recalibrate("{job.name}") goes on with the others and builds it again (in the '
            "Explorer: More in the Calibration tab, then Build again; on the command line: a larger --budget)"
        )
        ready = dataclasses.replace(ready, notes=(note, *ready.notes))
    if job.plan:
        opener: Opener = require_capability(job.builder, "opens", f'open "{job.plan}"')
        engine = opener.open_plan(job.plan)
    else:
        builder: Builder = require_capability(job.builder, "builds", "build")
        keep_plan = backends.get(job.builder).capabilities().runs
        request = BuildRequest(ready.model, job.variant, job.limits, keep_plan=keep_plan)
        try:
            engine = builder.build(request, progress)
        except BuildError as error:

            def build(model: Model) -> None:
                progress.phase(f"Trying {job.variant.name} with operators written out")
                builder.build(dataclasses.replace(request, model=model, keep_plan=False), progress)

            raise add_remedies(error, job.name, job.model, ready.model, build) from error
        except Cancelled as error:
            error.notes = ready.notes
            raise
    if engine.backend != job.builder:
        raise BuildError(
            f'Cannot use what backend "{job.builder}" built: its engine says that backend "{engine.backend}" made it. '
            f'Build it as Engine(backend="{job.builder}", ...).'
        )
    # Related here, beside the build, and not in the thread that draws.
    if narrowed_note := _describe_narrowed_pins(job, engine, relate_engine(engine, job.model, ready.model)):
        engine = dataclasses.replace(engine, notes=(*engine.notes, narrowed_note))
    return VariantResult(
        job.name, job.variant, job.model, ready, engine,
        ranges=job.ranges, random_scales=job.random_ranges and bool(ready.scales),
        stages={Stage.COMPILED: StageStatus(Stage.COMPILED, "done")},
    )  # fmt: skip


def _describe_narrowed_pins(job: Job, engine: Engine, mapping: NodeMapping) -> str:
    """Which nodes pinned to fp32 are compiled in less: TensorRT-RTX 1.7 folds the casts around a kernel away."""
    if not any(p is Precision.FP32 for _, p in job.variant.pins):
        return ""
    layers = {layer.id: layer for layer in engine.layers}
    titles = []
    for node, precision in assign(job.model, job.variant).items():
        mine = [layers[i] for i in mapping.layers(node)] if precision is Precision.FP32 else []
        types = {t.dtype for layer in mine for t in (*layer.inputs, *layer.outputs, *layer.constants)}
        if types & _NARROW and "fp32" not in types:
            titles.append(job.model.by_id[node].title)
    if not titles:
        return ""
    return (
        "pinned to fp32 but compiled in less, since all that a kernel reads and writes is narrower: "
        f"{list_first(titles)}"
    )


def prepare_model(job: Job, progress: Progress | None = None) -> Prepared:
    """The model with its weights pruned, if asked for, and then in its precision; its notes before the others."""
    if job.plan:
        return Prepared(job.model, job.model, notes=job.model.notes)
    model, notes = apply_transforms.apply_transforms(job.model, job.variant, job.peaks)
    maker = backends.get(job.builder).capabilities().maker if job.builder else None
    ready = prepare(
        model, job.variant, job.ranges, job.scales, inputs=job.inputs, progress=progress, maker=maker
    )
    moves_scale = any(t.kind in apply_transforms.MOVES for t in job.variant.treatments)
    reference = ready.reference or (model if moves_scale else None)
    return dataclasses.replace(ready, notes=(*job.model.notes, *notes, *ready.notes), reference=reference)
