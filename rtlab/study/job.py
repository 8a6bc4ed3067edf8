"""One variant's work, from a model to numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab import backends
from rtlab.analysis import accuracy as _accuracy
from rtlab.analysis import breakdown
from rtlab.analysis import timing as _timing
from rtlab.analysis.breakdown import Slice, Transition
from rtlab.analysis.coverage import Coverage, coverage
from rtlab.analysis.dataflow import Dataflow
from rtlab.analysis.diff import Side
from rtlab.analysis.findings import findings
from rtlab.analysis.mapping import Mapping as NodeMapping
from rtlab.analysis.mapping import relate
from rtlab.analysis.plan import MemoryPlan, plan
from rtlab.analysis.recurrence import Fused, fused
from rtlab.analysis.reformats import Reformat, reformats
from rtlab.analysis.roofline import Roofline, estimates, roofline
from rtlab.analysis.schedule import Schedule, schedule, unit_durations
from rtlab.analysis.trust import usual
from rtlab.backends.files import reading
from rtlab.core.buildlog import BuildLog
from rtlab.core.data import CalibrationData, Predictions, Task
from rtlab.core.engine import Engine
from rtlab.core.finding import Finding
from rtlab.core.heap import growing
from rtlab.core.model import Model
from rtlab.core.peaks import Peaks
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, BuildRequest, Limits, Progress, Runner
from rtlab.core.ranges import Ranges
from rtlab.core.stage import Stage, Standing
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Variant
from rtlab.errors import RtlabError, Unavailable
from rtlab.quantize import Prepared, Scale, assign, prepare, sparsity
from rtlab.quantize.export import cache_of

if TYPE_CHECKING:
    from pandas import DataFrame

#: Samples that the task is scored on; they bound the waiting time.
SCORED = 2000
_NARROW = {"fp16", "bf16", "int8", "fp8"}


@dataclasses.dataclass(frozen=True)
class Score:
    """The task's metric for one variant, measured on ``samples`` held-out samples.

    ``held`` are the model's outputs on these samples, so that scoring can go on with others.
    """

    name: str
    value: float
    unit: str
    samples: int
    source: str
    held: Predictions = dataclasses.field(default_factory=Predictions, repr=False, compare=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """Everything known of one variant.

    ``source`` is the model that the study is of; ``engine`` is the picture, related to it by ``mapping``; ``measured``
    is the engine that ran here, related by ``measured_mapping``; ``ranges`` is what the calibrator saw, and
    ``random_scales`` says that it was random input. ``timing``, ``accuracy`` and ``score`` are None where they are not
    known; ``stages`` tells how far each came, and why one is missing. ``profile`` holds the samples behind ``timing``.
    ``recorded`` says that the engine was read from files of another machine; ``told`` is the build log that was among
    them, ``outputs`` the tensors.
    """

    name: str
    variant: Variant
    source: Model
    prepared: Prepared
    engine: Engine
    mapping: NodeMapping
    measured: Engine | None = None
    measured_mapping: NodeMapping | None = None
    timing: _timing.Timing | None = None
    accuracy: _accuracy.Accuracy | None = None
    score: Score | None = None
    ranges: Ranges | None = None
    random_scales: bool = False
    recorded: bool = False
    told: BuildLog | None = None
    outputs: Outputs | None = None
    profile: Profile | None = None
    stages: Mapping[Stage, Standing] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Result {self.name}: {len(self.prepared.model.top)} nodes, {len(self.engine.layers)} layers>"

    @functools.cached_property
    def layer_times(self) -> Mapping[str, _timing.Shared]:
        """Times on the layers of ``engine``, by layer id; empty where nothing was measured.

        An engine that ran itself shows its own times. Otherwise they are joined by the nodes of the prepared model,
        which both engines were built from: a layer that only quantizes the input of a convolution gets the time of
        that quantization, not of the convolution.
        """
        if self.timing is None or self.measured is None:
            return {}
        if self.measured is self.engine:
            return _timing.own(self.timing)
        built = self.prepared.model
        return _timing.on_layers(
            self.timing, relate(built, built, self.measured), relate(built, built, self.engine)
        )

    @functools.cached_property
    def log(self) -> BuildLog | None:
        """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log."""
        return reading.log(self.engine.log) if self.told is None and self.engine.log else self.told

    @property
    def missing(self) -> tuple[Standing, ...]:
        """Stages in which there is more to find out, which ``Study.measure`` does, with what is in the way."""
        return tuple(s for s in self.stages.values() if s.more)

    @property
    def own_times(self) -> _timing.Timing | None:
        """The times of the engine's own layers; None where they are those of another engine, or there are none."""
        return self.timing if self.measured is self.engine else None

    def roofline(self, gpu: str | Peaks | None = None, *, batch: int | None = None) -> Roofline:
        """Every layer under the roofs of a processor: what bounds it, how far from that it is, an estimate of its time.

        Args:
            gpu: A name of the table, or ``rtlab.Peaks`` of one's own; by default the engine's own GPU, or one of its
                target where it was only built.
            batch: Samples in an inference, where they are not the engine's own.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        chosen = gpu or self.engine.device or usual(self.engine)
        return roofline(self.engine, self.mapping, self.source, chosen, self._milliseconds, batch=batch)

    @functools.cached_property
    def estimate(self) -> Roofline | None:
        """The engine on the GPU that it was built for, estimated; None where there is no such GPU, or no sizes.

        It comes before what a CPU measured: the CPU runs other kernels, and emulates some precisions.
        """
        if self.engine.target.sm is None or (self.timing is not None and self.timing.processor == "GPU"):
            return None
        try:
            return roofline(self.engine, self.mapping, self.source, usual(self.engine))
        except RtlabError:
            return None

    def memory(self, *, batch: int | None = None, one_stream: bool = False) -> MemoryPlan:
        """Where the activations of the engine could lie in one piece of memory: an estimate from their lifetimes.

        Args:
            batch: Samples in an inference, where they are not the engine's own.
            one_stream: As if all layers ran one after the other.

        Raises:
            VariantError: the engine has no tensors, or a size is not known.
        """
        return plan(self.engine, self.prepared.model, batch=batch, one_stream=one_stream)

    def schedule(self, gpu: str | Peaks | None = None) -> Schedule:
        """When each layer runs on which stream, and who waits for whom.

        Args:
            gpu: Durations are estimated for it; by default the engine's own measured times, else every layer alike.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        if gpu is not None:
            return schedule(
                self.engine, estimates(self.engine, self.mapping, self.source, gpu), origin="estimated"
            )
        if self._milliseconds:
            return schedule(self.engine, self._milliseconds, origin="measured")
        return schedule(self.engine, unit_durations(self.engine), origin="")

    def recurrences(self) -> tuple[Fused, ...]:
        """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
        return fused(self.source, self.prepared.model, self.engine, self.mapping)

    @property
    def _milliseconds(self) -> Mapping[str, float]:
        """Measured times of the engine's own layers; empty where there are none."""
        return {t.layer: t.median for t in self.own_times.layers} if self.own_times else {}

    def side(self, gpu: str | Peaks | None = None) -> Side:
        """This variant in a comparison: the engine that was timed, else the one that was built.

        With a GPU it is the engine that was built, with times that are estimated for it.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        if gpu is not None:
            found = self.roofline(gpu)
            known = found.milliseconds(self.engine) if found.known.enough else {}
            return Side(
                self.name, self.engine, self.mapping, known, None, "estimated",
                "" if found.known.enough else found.withheld,
            )  # fmt: skip
        times = self.timing
        if self.measured is None or times is None:
            return Side(self.name, self.engine, self.mapping)
        known = {t.layer: t.median for t in times.layers}
        return Side(self.name, self.measured, self.measured_mapping, known, times.total)

    @functools.cached_property
    def coverage(self) -> Coverage:
        """How much of the engine the mapping explains."""
        return coverage(self.mapping, self.source, self.engine)

    @functools.cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth changing about the engine, the most costly first."""
        return findings(self.engine, self.mapping, self.source, self.own_times, self.log, flow=self._flow)

    @functools.cached_property
    @growing()
    def _flow(self) -> Dataflow:
        return Dataflow(self.engine)

    def kinds(self) -> tuple[Slice, ...]:
        """Layers and time by the compiler's kind of layer, the slowest first."""
        return breakdown.by_kind(self.engine, self.own_times)

    def precisions(self) -> tuple[Slice, ...]:
        """Layers and time by the narrowest type that a layer touches, the slowest first."""
        return breakdown.by_precision(self.engine, self.own_times)

    def transitions(self) -> tuple[Transition, ...]:
        """How many layers read one precision and write another, with their time."""
        return breakdown.transitions(self.engine, self.own_times)

    def reformats(self) -> tuple[Reformat, ...]:
        """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
        return reformats(self.engine, self.own_times, self._flow)

    def table(self) -> DataFrame:
        """One row per layer in order of execution: see ``rtlab.view.frame``."""
        from rtlab.view.frame import layers_frame

        return layers_frame(self, self.source)

    @property
    def unmapped(self) -> tuple[tuple[str, str], ...]:
        """Nodes without a layer with the reason, in graph order."""
        return tuple((m.node, m.reason) for m in self.mapping.missing)


@dataclasses.dataclass(frozen=True)
class Job:
    """What one variant's work needs; it can be pickled.

    ``data`` may be left out where the variant is only compiled. ``wanted`` is how many samples calibration would have
    seen in its own time; ``random_ranges`` says that what it saw was random input. ``plan`` is a serialized engine to
    open in place of a build.
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
    wanted: int = 0
    plan: str = ""
    random_ranges: bool = False


def runner_of(name: str) -> Any:
    """The backend of this name, which can run here.

    Raises:
        Unavailable: it cannot.
    """
    backend = backends.get(name)
    here = backend.availability()
    if not here.ok or not isinstance(backend, Runner):
        raise Unavailable(f'Backend "{name}" cannot run: {here.reason or "it does not run engines."}')
    return backend


def reference(model: Model, progress: Progress) -> Engine:
    """The model in fp32 for the CPU, every value of which can be read."""
    builder = cast("Builder", runner_of("onnxruntime"))
    return builder.build(BuildRequest(model, Variant.of("fp32"), level="basic"), progress)


def compiled(job: Job, progress: Progress | None = None) -> Result:
    """The first stage: a variant prepared, built and related to its model; an executor's process may run it."""
    progress = progress or Silent()
    progress.phase(f"Preparing {job.variant.name}")
    ready = prepared(job, progress)
    if job.ranges is not None and job.ranges.samples < job.wanted:
        seen = (
            f"calibrated on {job.ranges.samples} of {job.wanted} samples, in the time that the budget left: "
            f'study.calibrate("{job.name}") goes on with the others and builds it again (in the Explorer: More in the '
            "Calibration tab, then Build again; on the command line: a larger --budget)"
        )
        ready = dataclasses.replace(ready, notes=(seen, *ready.notes))
    builder = backends.get(job.builder)
    if not isinstance(builder, Builder):
        raise Unavailable(
            f'Backend "{job.builder}" cannot build: it only runs or reads. See rtlab.available().'
        )
    engine = _opened(job, builder) if job.plan else builder.build(_request(job, ready, builder), progress)
    mapping = relate(job.model, ready.model, engine)
    if narrowed := _narrowed(job, engine, mapping):
        engine = dataclasses.replace(engine, notes=(*engine.notes, narrowed))
    result = Result(
        job.name, job.variant, job.model, ready, engine, mapping,
        ranges=job.ranges, random_scales=job.random_ranges and job.ranges is not None,
    )  # fmt: skip
    return dataclasses.replace(result, stages={Stage.COMPILED: Standing(Stage.COMPILED, "done")})


def _request(job: Job, ready: Prepared, builder: Any) -> BuildRequest:
    """What is built; with what TensorRT's own calibrator reads, where the variant asks for it."""
    implicit = _implicit(job.variant)
    given = cache_of(job.variant, ready).encode().decode("ascii") if implicit and job.scales else ""
    return BuildRequest(
        ready.model,
        job.variant,
        job.limits,
        keep_plan=builder.capabilities().runs,
        data=job.data if implicit and not given else None,
        cache=given,
    )


def _implicit(variant: Variant) -> bool:
    return variant.options is not None and variant.options.implicit


def _opened(job: Job, backend: Any) -> Engine:
    """A serialized engine from a file.

    Raises:
        Unavailable: the backend opens none, or version or GPU do not match.
        ReadError: the file is no plan.
    """
    if not hasattr(backend, "open_plan"):
        raise Unavailable(
            f'Backend "{job.builder}" cannot open "{job.plan}": it loads no engines. Choose backend="tensorrt" where '
            "its GPU is; elsewhere export its layers there, and read them with study.read."
        )
    engine: Engine = backend.open_plan(job.plan)
    return engine


def _narrowed(job: Job, engine: Engine, mapping: NodeMapping) -> str:
    """Which nodes pinned to fp32 are compiled in less: TensorRT-RTX 1.7 folds the casts around a kernel away."""
    if not any(p is Precision.FP32 for _, p in job.variant.pins):
        return ""
    layers = {layer.id: layer for layer in engine.layers}
    found = []
    for node, precision in assign(job.model, job.variant).items():
        mine = [layers[i] for i in mapping.layers(node)] if precision is Precision.FP32 else []
        types = {t.dtype for layer in mine for t in (*layer.inputs, *layer.outputs, *layer.constants)}
        if types & _NARROW and "fp32" not in types:
            found.append(job.model.by_id[node].title)
    if not found:
        return ""
    listed = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    return (
        f"pinned to fp32 but compiled in less, since all that a kernel reads and writes is narrower: {listed}"
    )


def prepared(job: Job, progress: Progress | None = None) -> Prepared:
    """The model with its weights pruned, if asked for, and then in its precision; its notes before the others."""
    ready = _prepared(job, progress)
    return dataclasses.replace(ready, notes=(*job.model.notes, *ready.notes))


def _prepared(job: Job, progress: Progress | None) -> Prepared:
    if job.plan:
        return Prepared(job.model, job.model)
    if _implicit(job.variant):
        # TensorRT chooses what runs in INT8; the graph stays as it is, and explicit pairs stand in on the CPU.
        variant = dataclasses.replace(job.variant, options=None)
        ready = _prepared(dataclasses.replace(job, variant=variant), progress)
        note = "INT8 is TensorRT's own choice here; errors on the CPU are those of explicit Q/DQ pairs"
        return Prepared(job.model, ready.emulated, ready.scales, (note, *ready.notes))
    model, variant = job.model, job.variant
    if not variant.sparsity:
        return prepare(model, variant, job.ranges, job.scales, progress=progress)
    chosen = sparsity.matching(model, variant.sparsity)
    ready = prepare(sparsity.prune(model, chosen), variant, job.ranges, job.scales, progress=progress)
    count = f"{len(chosen)} node{'s' if len(chosen) != 1 else ''}"
    note = f"2:4 by magnitude in the weights of {count}"
    return dataclasses.replace(ready, notes=(note, *ready.notes))
