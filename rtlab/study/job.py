"""One variant's work, from a model to numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rtlab import backends
from rtlab.analysis import accuracy as _accuracy
from rtlab.analysis import timing as _timing
from rtlab.analysis.mapping import Mapping as NodeMapping
from rtlab.analysis.mapping import relate
from rtlab.core.data import CalibrationData, Task
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Builder, BuildRequest, Limits, Progress, Runner
from rtlab.core.variant import Precision, Variant
from rtlab.errors import BuildError, Cancelled, RtlabError, RunError, Unavailable
from rtlab.quantize import Prepared, Scale, assign, prepare, sparsity
from rtlab.quantize.ranges import Ranges

#: Samples that values are compared on, and that the task is scored on; both bound the waiting time.
_COMPARED = 32
SCORED = 2000
#: Bytes of intermediate values that one batch may take.
_BATCH_BYTES = 64 << 20
_MOST_BATCH = 64
_NARROW = {"fp16", "bf16", "int8", "fp8"}
#: What ONNX Runtime's CPU kernels compute in; of other precisions it runs FP32 kernels between conversions.
_NATIVE = {Precision.FP32, Precision.INT8}


@dataclasses.dataclass(frozen=True)
class Score:
    """The task's metric for one variant, measured on ``samples`` held-out samples."""

    name: str
    value: float
    unit: str
    samples: int
    source: str


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """Everything known of one variant.

    ``engine`` is the picture, related to the source model by ``mapping``; ``measured`` is the engine that ran here,
    related by ``measured_mapping``; ``ranges`` is what the calibrator saw. ``timing``, ``accuracy`` and ``score`` are
    None where nothing could run. ``recorded`` says that the engine was read from files of another machine.
    """

    name: str
    variant: Variant
    prepared: Prepared
    engine: Engine
    mapping: NodeMapping
    measured: Engine | None = None
    measured_mapping: NodeMapping | None = None
    timing: _timing.Timing | None = None
    accuracy: _accuracy.Accuracy | None = None
    score: Score | None = None
    ranges: Ranges | None = None
    recorded: bool = False

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

    @property
    def unmapped(self) -> tuple[tuple[str, str], ...]:
        """Nodes without a layer with the reason, in graph order."""
        return tuple((m.node, m.reason) for m in self.mapping.missing)


@dataclasses.dataclass(frozen=True)
class Job:
    """What one variant's work needs; it can be pickled."""

    name: str
    variant: Variant
    model: Model
    data: CalibrationData
    task: Task | None
    ranges: Ranges | None
    scales: Mapping[str, Scale] | None
    limits: Limits
    builder: str
    runner: str | None
    compare: bool


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


def batch_size(model: Model, names: Sequence[str]) -> int:
    """Samples per batch that keep the intermediate values of one batch within bounds."""
    if not model.dynamic_batch:
        return 1
    elements = 0
    for name in names:
        shape = model.values[name].shape or ()
        elements += int(np.prod([d for d in shape[1:] if isinstance(d, int)], dtype=np.int64))
    return max(1, min(_MOST_BATCH, _BATCH_BYTES // max(1, 4 * elements)))


def fixed_batch(model: Model) -> int:
    """The batch that the graph itself demands; 1 where it is free."""
    return max((s[0] for s in map(model.input_shape, model.inputs) if s), default=1)


def work(job: Job, progress: Progress | None = None) -> Result:
    """One variant from model to numbers; runs in this process or in an executor's, which reports nothing."""
    progress = progress or Silent()
    progress.phase(f"Preparing {job.variant.name}")
    ready = prepared(job)
    builder = backends.get(job.builder)
    if not isinstance(builder, Builder):
        raise Unavailable(
            f'Backend "{job.builder}" cannot build: it only runs or reads. See rtlab.available().'
        )
    engine = builder.build(BuildRequest(ready.model, job.variant, job.limits), progress)
    mapping = relate(job.model, ready.model, engine)
    if narrowed := _narrowed(job, engine, mapping):
        engine = dataclasses.replace(engine, notes=(*engine.notes, narrowed))
    result = Result(job.name, job.variant, ready, engine, mapping, ranges=job.ranges)
    if not job.compare or job.runner is None:
        return result
    try:
        return _measure(job, result, progress)
    except Cancelled:
        raise
    except RtlabError as error:
        # What was compiled is worth showing even where it cannot run here.
        return dataclasses.replace(
            result, engine=dataclasses.replace(engine, notes=(*engine.notes, f"not measured: {error}"))
        )


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


def prepared(job: Job) -> Prepared:
    """The model with its weights pruned, if asked for, and then in its precision."""
    model, variant = job.model, job.variant
    if not variant.sparsity:
        return prepare(model, variant, job.ranges, job.scales)
    chosen = sparsity.matching(model, variant.sparsity)
    ready = prepare(sparsity.prune(model, chosen), variant, job.ranges, job.scales)
    count = f"{len(chosen)} node{'s' if len(chosen) != 1 else ''}"
    note = f"2:4 by magnitude in the weights of {count}"
    return dataclasses.replace(ready, notes=(note, *ready.notes))


def _measure(job: Job, result: Result, progress: Progress) -> Result:
    runner = runner_of(job.runner or "onnxruntime")
    prepared = result.prepared
    try:
        result = _time(job, result, runner, progress)
    except (BuildError, RunError) as error:
        # The CPU has no kernels for some types; the emulation still tells the errors.
        missing = "NOT_IMPLEMENTED" in error.details
        reason = "ONNX Runtime has no CPU kernels for some of its types" if missing else error
        note = f"not timed: {reason}"
        engine = dataclasses.replace(result.engine, notes=(*result.engine.notes, note))
        result = dataclasses.replace(result, engine=engine)
    emulated = runner.build(BuildRequest(prepared.emulation, job.variant, level="basic"), progress)
    try:
        errors = _compare(job, runner, emulated, prepared, progress)
        score = _score(job, runner, emulated, prepared, progress)
    finally:
        runner.release(emulated)
    return dataclasses.replace(result, accuracy=errors, score=score)


def _time(job: Job, result: Result, runner: Any, progress: Progress) -> Result:
    prepared, measured = result.prepared, result.engine
    if measured.backend != job.runner:
        measured = runner.build(BuildRequest(prepared.model, job.variant, job.limits), progress)
    batch = next(job.data.batches(prepared.model, 1))
    profile = runner.profile(measured, batch, progress)
    foreign = sorted(str(p) for p in job.variant.precisions - _NATIVE)
    note = (
        f"The CPU has no {' or '.join(foreign)} arithmetic: these are times of FP32 kernels"
        if foreign
        else ""
    )
    return dataclasses.replace(
        result,
        measured=measured,
        measured_mapping=relate(job.model, prepared.model, measured),
        timing=_timing.timing(profile, measured, note=note),
    )


def _compare(
    job: Job, runner: Any, emulated: Engine, prepared: Prepared, progress: Progress
) -> _accuracy.Accuracy:
    data = (job.task.data if job.task else job.data).take(max(_COMPARED, fixed_batch(job.model)))
    names = _accuracy.comparable(job.model, prepared.emulation)
    plain = reference(job.model, progress)
    size = batch_size(job.model, names)
    comparison = _accuracy.Comparison(job.model, names)
    progress.phase("Comparing values", len(data))
    try:
        for batch in data.batches(job.model, size):
            check(progress, "comparing values")
            count = data.samples_in(job.model, batch)
            before, after = runner.outputs(plain, batch, names), runner.outputs(emulated, batch, names)
            comparison.add(before, after, count)
            progress.advance(count)
    finally:
        runner.release(plain)
    return comparison.result(f"{runner.source}, {data.source}")


def _score(job: Job, runner: Any, emulated: Engine, prepared: Prepared, progress: Progress) -> Score | None:
    if job.task is None:
        return None
    data = job.task.data.take(max(SCORED, fixed_batch(job.model)))
    parts: list[Any] = []
    progress.phase("Scoring the task", len(data))
    size = batch_size(job.model, tuple(o for n in job.model.top for o in n.outputs if o))
    output = prepared.emulation.outputs[0]
    for batch in data.batches(prepared.emulation, size):
        check(progress, "scoring the task")
        parts.append(runner.outputs(emulated, batch, (output,))[output])
        progress.advance(len(parts[-1]))
    outputs = np.concatenate(parts)
    return Score(job.task.name, job.task.score(outputs), job.task.unit, len(outputs), runner.source)
