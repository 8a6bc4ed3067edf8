"""What the two TensorRT backends do with an engine once it exists, from the parent's side.

Each engine has a child process that keeps it on the GPU, so that streaming many batches loads it once. ``release`` ends
the process; so does any failure, because a CUDA error stays with its process.
"""

from __future__ import annotations

import collections
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.backends import makers
from rtlab.backends.files import inspector
from rtlab.backends.live import child, driver, loaded
from rtlab.backends.live.lane import EnginePort
from rtlab.backends.live.order import OpenOrder
from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.files import write
from rtlab.core.inputs import read_input
from rtlab.core.options import Shapes
from rtlab.core.phrases import quoted
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
_KEPT = 2


class EngineRunner:
    """The half of a TensorRT backend that runs engines; it sets ``name``, ``binding``, ``product`` and ``maker``.

    ``cuda`` and ``libraries`` name the modules that reach the CUDA runtime and the driver.
    """

    name: str
    binding: str
    product: str
    maker = makers.TENSORRT
    cuda = "polygraphy.cuda"
    libraries = "ctypes"
    limits = Limits()
    #: Folders that go before others on the path of its children: that of a release beside the environment's own.
    path: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._sessions: collections.OrderedDict[int, tuple[Engine, child.ChildProcess]] = (
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

    @property
    def device_words(self) -> str:
        """That GPU in words."""
        here = self.device
        return f"{here.name}, sm{here.sm}, driver for CUDA {here.cuda}" if here else ""

    def _able(self, targets: Sequence[Target], *, runs: bool, forces: bool = False) -> Capabilities:
        """What both products can do, for targets. The compiler itself refuses types that it lacks."""
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
            device=self.device_words,
            maker=self.maker,
        )

    @property
    def source(self) -> str:
        """What to write beside a number: product and GPU."""
        here = self.device
        return f"{self.product} on {here.name}" if here else self.product

    def describe(self, plan: bytes, progress: Progress, *, doing: str) -> loaded.EngineFacts:
        """Load a plan in a child process and return what the engine tells of itself.

        Raises:
            ReadError: the bytes are no plan of this compiler.
            Unavailable: version or GPU do not match, or there is no driver.
            RunError: TensorRT fails on it.
            Cancelled: ``progress`` asked to stop.
        """
        session = child.ChildProcess(self.limits, work=child.RUNNING, path=self.path)
        try:
            found: loaded.EngineFacts = session.call(
                loaded.open_plan,
                self._order(plan, doing),
                progress=progress,
                doing=doing,
            )
            return found
        finally:
            session.close()

    def open_plan(self, plan: str | Path | bytes, progress: Progress | None = None) -> Engine:
        """Open a serialized engine: a file, or its bytes.

        Layers come from the inspector, so they have details only where the plan was built with detailed verbosity.

        Raises:
            ReadError: the file is missing, or no plan of this compiler.
            Unavailable: version or GPU do not match the plan's, or there is no driver; the message names both.
            RunError: TensorRT fails on it.
        """
        where = "the plan" if isinstance(plan, bytes) else f'"{Path(plan).name}"'
        doing = f'Backend "{self.name}" cannot open {where}'
        if not isinstance(plan, bytes):
            try:
                plan = read_input(plan)
            except OSError as error:
                raise ReadError(f"{doing}: {error.strerror or error}. Check the path.") from error
        return self.engine(plan, self.describe(plan, progress or Silent(), doing=doing), doing=doing)

    def engine(self, plan: bytes, facts: loaded.EngineFacts, *, doing: str) -> Engine:
        """The noun for an opened plan: layers, inputs, outputs, totals, and notes on what was not told."""
        try:
            # The inspector writes control characters into strings as they are.
            document = json.loads(facts.layers, strict=False)
        except ValueError as error:
            raise RunError(
                f"{doing}: the inspector's text is no JSON ({error}). Build the engine with detailed profiling "
                "verbosity, and report the text in the details.",
                details=facts.layers,
            ) from error
        inspected = inspector.parse(document, "the inspector's text")
        here = self.device
        streams = f"{facts.aux_streams} auxiliary streams" if facts.aux_streams else ""
        edges = {port.name: Tensor(port.name, port.dtype, port.shape) for port in facts.ports}
        return Engine(
            backend=self.name,
            version=facts.version,
            target=Target(f"sm{here.sm}" if here else "unknown"),
            layers=inspected.layers,
            inputs=inspected.inputs or tuple(edges[p.name] for p in facts.ports if p.reads),
            outputs=inspected.outputs or tuple(edges[p.name] for p in facts.ports if not p.reads),
            totals={"activation": facts.memory}
            | ({} if facts.weights is None else {"weights": facts.weights}),
            log=facts.log,
            notes=(*inspected.notes, *filter(None, [streams])),
            plan=plan,
            device=here.name if here else "",
            profiles=_profiles(facts.ports),
            maker=self.maker,
        )

    def save(self, engine: Engine, path: str | Path) -> None:
        """Write an engine's plan to a file, which ``open_plan`` reads again.

        Raises:
            RunError: the engine has no plan.
            RtlabError: the file cannot be written.
        """
        write(path, _plan(engine, f'Backend "{self.name}" cannot save'), what="the engine")

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
        """Time whole inferences, then each layer, on the GPU.

        ``note`` tells clocks and temperature before and after, the latency while layers were timed, and rows that
        belong to no layer. A budget of ``seconds`` counts from when the engine is on the GPU; what it does not suffice
        for is left out, down to one inference of each kind.

        Raises:
            RunError: the inputs do not fit the engine, TensorRT fails, or it takes longer than ``limit_s`` seconds.
            Unavailable: version or GPU are not the engine's.
            Cancelled: ``progress`` asked to stop.
        """
        doing = f'Backend "{self.name}" cannot profile'
        wanted = _feed(inputs), runs, warmup, seconds
        timed: loaded.EngineTimes = self._call(
            engine, loaded.profile, wanted, progress, doing, limit_s=limit_s
        )
        samples, notes = joined(timed.layers, engine.layers)
        profiled = float(np.median(timed.profiled)) if len(timed.profiled) else 0.0
        note = [
            f"clocks and temperature before: {timed.before}; after: {timed.after}",
            f"median latency while layers are timed {profiled:.4g} ms",
            *notes,
        ]
        return Profile(
            source=f"{self.product} {engine.version}",
            device=self.device.name if self.device else engine.device,
            samples=samples,
            total=timed.total,
            warmup=timed.warmup,
            taken=datetime.datetime.now(datetime.timezone.utc),
            note="; ".join(note),
            processor="GPU",
            runs=len(timed.profiled),
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

        Raises:
            RunError: the inputs do not fit, a value does not exist in the engine, TensorRT fails, or it takes longer
                than ``limit_s`` seconds.
            Unavailable: version or GPU are not the engine's.
            Cancelled: ``progress`` asked to stop.
        """
        doing = f'Backend "{self.name}" cannot run'
        wanted = _feed(inputs), tuple(names)
        # Its phases are those of one batch among many.
        silent = _Quiet(progress or Silent())
        found: Outputs = self._call(engine, loaded.outputs, wanted, silent, doing, limit_s=limit_s)
        return found

    def unfused(
        self, engine: Engine, inputs: Batch, progress: Progress, *, limit_s: float | None = None
    ) -> tuple[str, ...]:
        """Names of the inner values that ``outputs`` can tell: those that fusion left, as far as TensorRT shows them.

        Raises:
            RunError: the inputs do not fit, or TensorRT fails.
            Unavailable: version or GPU are not the engine's.
        """
        doing = f'Backend "{self.name}" cannot run'
        found: tuple[str, ...] = self._call(
            engine, loaded.unfused, _feed(inputs), progress, doing, limit_s=limit_s
        )
        return found

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
        """Count inferences of one batch over ``streams`` streams and contexts for some seconds.

        Raises:
            RunError: as in ``profile``, or a number makes no sense.
            Cancelled: ``progress`` asked to stop.
        """
        doing = f'Backend "{self.name}" cannot measure throughput'
        if streams < 1 or not 0 < seconds < self.limits.seconds:
            wrong = f"{streams} streams" if streams < 1 else f"{seconds:g} seconds"
            raise RunError(
                f"{doing}: {wrong} cannot be measured. Choose at least one stream, and a time up to "
                f"{self.limits.seconds:g} s."
            )
        counted: loaded.Counted = self._call(
            engine, loaded.throughput, (_feed(inputs), streams, seconds, warmup), progress, doing
        )
        return Throughput(
            source=f"{self.product} {engine.version}",
            device=self.device.name if self.device else engine.device,
            streams=streams,
            batch=max((a.shape[0] for a in inputs.values() if a.ndim), default=1),
            inferences=counted.inferences,
            seconds=counted.seconds,
            taken=datetime.datetime.now(datetime.timezone.utc),
            note=f"clocks and temperature before: {counted.before}; after: {counted.after}",
        )

    def release(self, engine: Engine) -> None:
        """End the process that keeps an engine."""
        kept = self._sessions.pop(id(engine), None)
        if kept is not None:
            kept[1].close()

    def _order(self, plan: bytes, doing: str) -> OpenOrder:
        return OpenOrder(self.binding, self.product, plan, doing, self.device, self.cuda, self.libraries)

    def _call(
        self,
        engine: Engine,
        function: Callable[[P, Any], R],
        payload: P,
        progress: Progress,
        doing: str,
        *,
        limit_s: float | None = None,
    ) -> Any:
        try:
            session = self._session(engine, progress, doing)
            return session.call(
                function,
                payload,
                progress=progress,
                doing=doing,
                seconds=limit_s,
            )
        except BaseException:
            self.release(engine)
            raise

    def _session(self, engine: Engine, progress: Progress, doing: str) -> child.ChildProcess:
        kept = self._sessions.get(id(engine))
        if kept is not None and kept[1].alive:
            self._sessions.move_to_end(id(engine))
            return kept[1]
        plan = _plan(engine, doing)
        self.release(engine)
        while len(self._sessions) >= _KEPT:
            _, (_, oldest) = self._sessions.popitem(last=False)
            oldest.close()
        session = child.ChildProcess(self.limits, work=child.RUNNING, path=self.path)
        # The engine is kept too, so that its id stays its own.
        self._sessions[id(engine)] = engine, session
        session.call(loaded.open_plan, self._order(plan, doing), progress=progress, doing=doing)
        return session


class _Quiet:
    """Progress that is asked whether to stop, and not told of anything."""

    def __init__(self, progress: Progress) -> None:
        self.stopped = progress.stopped

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""

    def advance(self, steps: int = 1) -> None:
        """Report steps."""


def joined(
    times: Mapping[tuple[str, int], NDArray[np.float64]], layers: Sequence[Layer]
) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Times by layer id, joined by name, and notes on what does not join.

    Layers of one name take their times in order; where one layer reports several times in an inference, as in a loop,
    these are summed.
    """
    by_name: dict[str, list[str]] = {}
    for layer in layers:
        by_name.setdefault(layer.name, []).append(layer.id)
    samples: dict[str, NDArray[np.float64]] = {}
    strange: dict[str, float] = {}
    for (name, place), values in times.items():
        ids = by_name.get(name) or by_name.get(inspector.bare(name)[0])
        if not ids:
            strange[name] = strange.get(name, 0.0) + float(np.median(values))
            continue
        key = ids[min(place, len(ids) - 1)]
        samples[key] = samples[key] + values if key in samples else values
    notes = []
    if strange:
        listed = quoted(list(strange)[:3])
        notes.append(f"{len(strange)} timed names are no layers ({sum(strange.values()):.3g} ms): {listed}")
    silent = [layer.name for layer in layers if layer.id not in samples]
    if silent:
        listed = quoted(silent[:3])
        notes.append(f"{len(silent)} layers report no time: {listed}")
    return samples, notes


def _profiles(ports: Sequence[EnginePort]) -> tuple[tuple[tuple[str, Shapes], ...], ...]:
    """Bounds of each dynamic input by optimization profile; empty where all shapes are fixed."""
    dynamic = [port for port in ports if port.dynamic and port.ranges]
    return tuple(
        tuple((port.name, port.ranges[i]) for port in dynamic)
        for i in range(max((len(port.ranges) for port in dynamic), default=0))
    )


def _plan(engine: Engine, doing: str) -> bytes:
    if engine.plan is None:
        raise RunError(
            f"{doing}: the engine holds no plan to run. Build it again with keep_plan=True, or open one from a file."
        )
    return engine.plan


def _feed(inputs: Batch) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(value) for name, value in inputs.items()}
