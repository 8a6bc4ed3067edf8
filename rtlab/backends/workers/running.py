"""What the two TensorRT backends do with an engine once it exists, from the parent's side.

Each engine has a child process that keeps it on the GPU, so that streaming many batches loads it once. ``release`` ends
the process; so does any failure, because a CUDA error stays with its process.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.backends import compiler_info
from rtlab.backends.readers import inspector
from rtlab.backends.workers import driver, loaded, process
from rtlab.backends.workers.execution_context import EnginePort, OpenSpec
from rtlab.backends.workers.process import RUNNING, Bounds
from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.files import write
from rtlab.core.inputs import read_input
from rtlab.core.options import Shapes
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent
from rtlab.core.protocols import Capabilities, Limits, Progress
from rtlab.core.trace import Outputs, Profile, Throughput
from rtlab.core.variant import Precision, Target
from rtlab.errors import ReadError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

P = TypeVar("P")
R = TypeVar("R")

#: Engines kept on the GPU; a comparison reads two in turn.
_MAX_OPEN_ENGINES = 2


class EngineRunner:
    """The half of a TensorRT backend that runs engines; it sets ``name``, ``binding``, ``product`` and ``maker``.

    ``cuda`` is the module that reaches the CUDA runtime.
    """

    name: str
    binding: str
    product: str
    maker = compiler_info.TENSORRT
    cuda = "polygraphy.cuda"
    limits = Limits()
    #: Folders that go first on the path of its children: that of a release beside the environment's own.
    path: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._sessions: collections.OrderedDict[int, tuple[Engine, process.ChildProcess]] = (
            collections.OrderedDict()
        )

    @property
    def device(self) -> driver.Device | None:
        """The GPU that engines run on."""
        return driver.device()

    @property
    def local(self) -> Target | None:
        """That GPU as a target."""
        return Target(f"sm{self.device.sm}") if self.device else None

    def _create_capabilities(
        self, targets: Sequence[Target], *, runs: bool, forces: bool = False
    ) -> Capabilities:
        """What both products can do, for targets. The compiler itself refuses types that it lacks."""
        gpu = self.device
        return Capabilities(
            targets=tuple(targets),
            precisions=tuple(Precision),
            builds=True,
            runs=runs,
            options=True,
            opens=True,
            counts=True,
            forces=forces,
            local=self.local,
            device=f"{gpu.name}, sm{gpu.sm}, driver for CUDA {gpu.cuda}" if gpu else "",
            maker=self.maker,
        )

    @property
    def source(self) -> str:
        """What to write beside a number: product and GPU."""
        gpu = self.device
        return f"{self.product} on {gpu.name}" if gpu else self.product

    def describe(self, plan: bytes, progress: Progress, *, error_prefix: str) -> loaded.EngineFacts:
        """What an engine says of itself, loaded in a child process; errors are those of ``open_plan``."""
        child, facts = self._load(plan, progress, error_prefix)
        child.close()
        return facts

    def _load(
        self, plan: bytes, progress: Progress, error_prefix: str
    ) -> tuple[process.ChildProcess, loaded.EngineFacts]:
        """A child process with the engine of a plan."""
        child = process.ChildProcess(self.limits.stack, path=self.path)
        spec = OpenSpec(self.binding, self.product, plan, error_prefix, self.device, self.cuda)
        bounds = Bounds(error_prefix, RUNNING, self.limits, progress)
        try:
            return child, child.call(loaded.open_plan, spec, bounds)
        except BaseException:
            child.close()
            raise

    def open_plan(self, plan: str | Path | bytes, progress: Progress | None = None) -> Engine:
        """Open a serialized engine: a file, or its bytes.

        Layers come from the inspector, so they have details only where the plan was built with detailed verbosity.

        Raises:
            ReadError: the file is missing, or no plan of this compiler.
            Unavailable: version or GPU do not match the plan's, or there is no driver; the message names both.
            RunError: TensorRT fails on it.
        """
        where = "the plan" if isinstance(plan, bytes) else f'"{Path(plan).name}"'
        error_prefix = f'Backend "{self.name}" cannot open {where}'
        if not isinstance(plan, bytes):
            try:
                plan = read_input(plan)
            except OSError as error:
                raise ReadError(f"{error_prefix}: {error.strerror or error}. Check the path.") from error
        return self.engine(
            plan,
            self.describe(plan, progress or Silent(), error_prefix=error_prefix),
            error_prefix=error_prefix,
        )

    def engine(self, plan: bytes, facts: loaded.EngineFacts, *, error_prefix: str) -> Engine:
        """An opened plan as an ``Engine``."""
        try:
            # The inspector writes control characters into strings as they are.
            document = json.loads(facts.layers, strict=False)
        except ValueError as error:
            raise RunError(
                f"{error_prefix}: the inspector's text is no JSON ({error}). Build the engine with detailed profiling "
                "verbosity, and report the text in the details.",
                details=facts.layers,
            ) from error
        inspection = inspector.parse(document, "the inspector's text")
        gpu = self.device
        streams = [f"{facts.aux_streams} auxiliary streams"] if facts.aux_streams else []
        inputs, outputs = (
            tuple(Tensor(p.name, p.dtype, p.shape) for p in facts.ports if p.is_input == is_input)
            for is_input in (True, False)
        )
        return Engine(
            backend=self.name,
            version=facts.version,
            target=Target(f"sm{gpu.sm}" if gpu else "unknown"),
            layers=inspection.layers,
            inputs=inspection.inputs or inputs,
            outputs=inspection.outputs or outputs,
            totals={"activation": facts.memory, **facts.weights},
            log=facts.log,
            notes=(*inspection.notes, *streams),
            plan=plan,
            device=gpu.name if gpu else "",
            profiles=_collect_profiles(facts.ports),
            maker=self.maker,
        )

    def save(self, engine: Engine, path: str | Path) -> None:
        """Write an engine's plan to a file, which ``open_plan`` reads again; raises ``RunError`` where it has none."""
        write(path, _require_plan(engine, f'Backend "{self.name}" cannot save'), what="the engine")

    def profile(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        runs: int = 30,
        warmup: int = 5,
        seconds: float | None = None,
        limit_s: float | None = None,
    ) -> Profile:
        """Time whole inferences, then each layer, on the GPU; see ``Runner.profile``.

        ``note`` has the latency while layers were timed, and rows that belong to no layer. A budget of ``seconds``
        counts from when the engine is on the GPU. Raises ``Unavailable`` where version or GPU are not the engine's.
        """
        error_prefix = f'Backend "{self.name}" cannot profile'
        payload = _as_arrays(inputs), runs, warmup, seconds
        times = self._call(engine, loaded.profile, payload, progress, error_prefix, limit_s=limit_s)
        samples, notes = assign_times(times.layers, engine.layers)
        profiled_median = float(np.median(times.profiled_total)) if len(times.profiled_total) else 0.0
        return Profile(
            source=f"{self.product} {engine.version}",
            device=self.device.name if self.device else engine.device,
            samples=samples,
            total=times.total,
            warmup=times.warmup,
            taken=datetime.datetime.now(datetime.timezone.utc),
            note="; ".join((f"median latency while layers are timed {profiled_median:.4g} ms", *notes)),
            processor="GPU",
            runs=len(times.profiled_total),
        )

    def outputs(
        self,
        engine: Engine,
        inputs: Batch,
        names: Sequence[str] = (),
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outputs:
        """Run one batch and return the named values, or the engine's outputs where none are named.

        Inner values are tensors that fusion left, copied while they exist (debug tensors); the engine is not changed.
        Errors are those of ``profile``, and ``RunError`` where the engine has no such value.
        """
        error_prefix = f'Backend "{self.name}" cannot run'
        payload = _as_arrays(inputs), tuple(names)
        # Its phases are those of one batch among many.
        silent = Silent()
        silent.stopped = (progress or silent).stopped  # type: ignore[method-assign]
        return self._call(engine, loaded.outputs, payload, silent, error_prefix, limit_s=limit_s)

    def unfused(
        self, engine: Engine, inputs: Batch, progress: Progress, *, limit_s: float | None = None
    ) -> tuple[str, ...]:
        """Names of the inner values that ``outputs`` can tell: those that fusion left, where TensorRT shows them."""
        error_prefix = f'Backend "{self.name}" cannot run'
        payload = _as_arrays(inputs)
        return self._call(engine, loaded.list_debug_tensors, payload, progress, error_prefix, limit_s=limit_s)

    def throughput(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        streams: int = 2,
        seconds: float = 2.0,
        warmup: int = 5,
    ) -> Throughput:
        """Count inferences of one batch over ``streams`` streams and contexts for some seconds."""
        error_prefix = f'Backend "{self.name}" cannot measure throughput'
        if streams < 1 or not 0 < seconds < self.limits.seconds:
            refused_setting = f"{streams} streams" if streams < 1 else f"{seconds:g} seconds"
            raise RunError(
                f"{error_prefix}: {refused_setting} cannot be measured. Choose at least one stream, and a time up to "
                f"{self.limits.seconds:g} s."
            )
        payload = _as_arrays(inputs), streams, seconds, warmup
        finished, taken_s = self._call(engine, loaded.throughput, payload, progress, error_prefix)
        return Throughput(
            source=f"{self.product} {engine.version}",
            device=self.device.name if self.device else engine.device,
            streams=streams,
            batch=max((a.shape[0] for a in inputs.values() if a.ndim), default=1),
            inferences=finished,
            seconds=taken_s,
            taken=datetime.datetime.now(datetime.timezone.utc),
        )

    def release(self, engine: Engine) -> None:
        """End the process that keeps an engine."""
        if (entry := self._sessions.pop(id(engine), None)) is not None:
            entry[1].close()

    def _call(
        self,
        engine: Engine,
        function: Callable[[P, Any], R],
        payload: P,
        progress: Progress,
        error_prefix: str,
        *,
        limit_s: float | None = None,
    ) -> R:
        limits = self.limits if limit_s is None else dataclasses.replace(self.limits, seconds=limit_s)
        try:
            child = self._open_child(engine, progress, error_prefix)
            return child.call(function, payload, Bounds(error_prefix, RUNNING, limits, progress))
        except BaseException:
            self.release(engine)
            raise

    def _open_child(self, engine: Engine, progress: Progress, error_prefix: str) -> process.ChildProcess:
        entry = self._sessions.get(id(engine))
        if entry is not None and entry[1].alive:
            self._sessions.move_to_end(id(engine))
            return entry[1]
        plan = _require_plan(engine, error_prefix)
        self.release(engine)
        while len(self._sessions) >= _MAX_OPEN_ENGINES:
            _, (_, oldest) = self._sessions.popitem(last=False)
            oldest.close()
        child, _ = self._load(plan, progress, error_prefix)
        # The engine is kept too, so that its id stays its own.
        self._sessions[id(engine)] = engine, child
        return child


def assign_times(
    times: Mapping[tuple[str, int], NDArray[np.float64]], layers: Sequence[Layer]
) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Times by layer id, joined by name, and a note on those that do not join.

    Layers of one name take their times in order; where one layer reports several times in an inference, as in a loop,
    these are summed.
    """
    by_name: dict[str, list[str]] = {}
    for layer in layers:
        by_name.setdefault(layer.name, []).append(layer.id)
    samples: dict[str, NDArray[np.float64]] = {}
    unmatched_times: dict[str, float] = {}
    for (name, place), values in times.items():
        ids = by_name.get(name) or by_name.get(inspector.split_profile(name)[0])
        if not ids:
            unmatched_times[name] = unmatched_times.get(name, 0.0) + float(np.median(values))
            continue
        key = ids[min(place, len(ids) - 1)]
        samples[key] = samples[key] + values if key in samples else values
    notes = []
    if unmatched_times:
        quoted_names = quote_names(list(unmatched_times)[:3])
        notes.append(
            f"{len(unmatched_times)} timed names are no layers ({sum(unmatched_times.values()):.3g} ms): {quoted_names}"
        )
    return samples, notes


def _collect_profiles(ports: Sequence[EnginePort]) -> tuple[tuple[tuple[str, Shapes], ...], ...]:
    """Bounds of each dynamic input by optimization profile; empty where all shapes are fixed."""
    dynamic = [port for port in ports if port.is_dynamic and port.ranges]
    return tuple(
        tuple((port.name, port.ranges[i]) for port in dynamic)
        for i in range(max((len(port.ranges) for port in dynamic), default=0))
    )


def _require_plan(engine: Engine, error_prefix: str) -> bytes:
    if engine.plan is None:
        raise RunError(
            f"{error_prefix}: the engine holds no plan to run. Build it again with keep_plan=True, or open one from a "
            "file."
        )
    return engine.plan


def _as_arrays(inputs: Batch) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(value) for name, value in inputs.items()}
