"""ONNX Runtime: real layers, real times, real tensors, on the CPU wherever Python runs, or on another processor."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx

from rtlab.backends import cpu, exposed, makers, placement, providers, streamed, watch
from rtlab.backends.attending import Attendant
from rtlab.backends.files import optimized
from rtlab.backends.files.optimized import NodeRuns
from rtlab.backends.live import apart
from rtlab.backends.live.apart import Errand, KeptSession
from rtlab.backends.live.inference import IN_TURN, PLACED, SessionOrder
from rtlab.backends.providers import CPU, PREFIX, Provider
from rtlab.core import scratch
from rtlab.core.arrays import Batch
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Limits, Progress
from rtlab.core.trace import Outputs, Processor, Profile
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, RunError, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CPU = Target("cpu")
#: Types whose kernels the CPU lacks.
_CPU_LACKS = {Precision.BF16, Precision.FP4}
#: Bytes that the profiler keeps of each run of a kernel (1.31, two threads), those that it may keep at a time, and the
#: fewest runs, one of them untimed.
_PROFILED_KERNEL, _PROFILED, _LEAST_KEPT = 3000, 32 << 20, 3
#: Sessions kept for streaming; a comparison reads two engines in turn.
_KEPT = 4
#: How notes of an engine begin that tell how to open it again.
_LEVEL, _TOLD = "optimization level ", "provider options "


class OnnxRuntime:
    """Builds (its optimized graph is the engine), profiles, and yields every intermediate tensor."""

    def __init__(self, provider: Provider = CPU, *, threads: int | None = None) -> None:
        self.provider = provider
        self.name = "onnxruntime" if provider == CPU else PREFIX + provider.short
        self.threads = threads or cpu.cores()
        self._sessions: collections.OrderedDict[tuple[int, tuple[str, ...]], tuple[Engine, KeptSession]] = (
            collections.OrderedDict()
        )

    def availability(self) -> Availability:
        """Look for the package without importing it, and for another provider than the CPU's with importing it."""
        if self.provider == CPU:
            version = providers.version()
            reason = "" if version else 'package "onnxruntime" is not installed. Run pip install onnxruntime.'
            return Availability(ok=not reason, version=version, reason=reason)
        reason = providers.missing(self.provider)
        return Availability(ok=not reason, version="" if reason else providers.version(), reason=reason)

    def capabilities(self) -> Capabilities:
        """The CPU runs INT8 for real; other types run in FP32 kernels, so their tensors come from an emulation.

        BF16 and FP4 are missing: for most BF16 operators, and for dequantizing FP4, there is no kernel at all. Other
        processors may have some for BF16. ``options`` are those of the provider.
        """
        lacking = {Precision.FP4} if any(d != "cpu" for d in self.provider.devices) else _CPU_LACKS
        return Capabilities(
            targets=self.provider.targets,
            precisions=tuple(p for p in Precision if p not in lacking),
            builds=True,
            runs=True,
            options=self.provider != CPU,
            times="layers" if self._waits else "inferences",
            emulates=self.provider == CPU,
            maker=makers.ONNX_RUNTIME,
        )

    @property
    def _waits(self) -> bool:
        """Whether the profiler tells how long a layer ran, and not only when it was handed over."""
        return self.provider.waits or os.environ.get(self.provider.blocking) == "1"

    @property
    def source(self) -> str:
        """What to write beside a number: name, version, provider; of the CPU's own also the threads."""
        if self.provider != CPU:
            return f"ONNX Runtime {providers.version()} {self.provider.name}"
        return f"ONNX Runtime {providers.version()} CPU, {many(self.threads, 'thread')}"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Optimize the model at ``request.level``; the layers are the nodes of the optimized graph.

        Where a provider compiles whole subgraphs, each of them is one layer, and so is each node that is left to the
        CPU; their attribute ``provider`` tells who runs them. The level is ``basic`` then.

        Raises:
            BuildError: ONNX Runtime refuses the model, or the provider takes none of its nodes.
            VariantError: an option is not one of the provider's, or chooses another device than the target's.
            Unavailable: the provider is missing or cannot start.
            Cancelled: ``progress`` asked to stop.
        """
        target = request.variant.target if self.provider != CPU else _CPU
        progress.phase(f"Optimizing for {self._place(target)}")
        model = request.model
        # Beyond BASIC, ONNX Runtime 1.31 fuses an FP8 product into an INT8 kernel, which then refuses its type.
        level = "basic" if Precision.FP8 in request.variant.precisions else request.level
        doing = f'Backend "{self.name}" cannot build "{request.variant.name}"'
        errand = Errand(doing, progress, request.limits, work=apart.BUILDING)
        notes: tuple[str, ...] = ()
        if self.provider == CPU:
            runnable: bytes | Model = model
            apart.warm()
            Attendant(doing, progress, request.limits, work=apart.BUILDING).do(
                lambda _: exposed.prepare(model), _nothing
            )
            started = time.perf_counter()
            layers = self._optimized(request, model, level, errand)
        else:
            here = self.availability()
            if not here.ok:
                raise Unavailable(f"{doing}: {here.reason}")
            runnable, started = _named(model), time.perf_counter()
            layers, level, notes = self._placed(request, runnable, level, errand)
        check(progress, "the build")
        return Engine(
            backend=self.name,
            version=providers.version(),
            target=target,
            layers=layers,
            inputs=optimized.tensors(model.values, model.inputs),
            outputs=optimized.tensors(model.values, model.outputs),
            detail="region" if any(len(y.origins) > 1 for y in layers) else "layer",
            seconds=time.perf_counter() - started,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(f"{_LEVEL}{level}", *notes),
            runnable=runnable,
            device="" if self.provider == CPU else self._device(target),
            maker=makers.ONNX_RUNTIME,
        )

    def _optimized(
        self, request: BuildRequest, runnable: bytes | Model, level: str, errand: Errand
    ) -> tuple[Layer, ...]:
        """Layers of the graph that ONNX Runtime writes after optimizing it."""
        with scratch.folder() as folder:
            saved = Path(folder) / "optimized.onnx"
            told, target = self._told(request), request.variant.target
            with exposed.opened(runnable) as data:
                errand.optimize(self._order(data, errand.doing, level, told, target, saved=str(saved)))
            proto = onnx.load(str(saved), load_external_data=False)
        return optimized.read(proto, request.model.name, request.model)[0]

    def _placed(
        self, request: BuildRequest, data: bytes, level: str, errand: Errand
    ) -> tuple[tuple[Layer, ...], str, tuple[str, ...]]:
        """Layers with their provider, the level that they are made at, and notes."""
        told, title = self._told(request), self.provider.title
        parts = errand.optimize(
            self._order(data, errand.doing, "basic", told, request.variant.target, entries=(PLACED,))
        )
        mine = [part for part in parts if part.provider == self.provider.name]
        if not mine:
            raise BuildError(
                f"{errand.doing}: {self.provider.name} takes none of the model's {len(request.model.top)} nodes, so "
                'that all would run on the CPU. Choose another precision, or backend="onnxruntime".'
            )
        notes = [placement.note(self.provider.name, title, parts)]
        tf32 = request.variant.precision is Precision.TF32
        notes += filter(None, [providers.arithmetic(self.provider, request.variant.target, told, tf32=tf32)])
        if told:
            notes.append(_TOLD + json.dumps(told))
        if all(len(part.nodes) == 1 for part in mine):
            # Nothing is compiled together, unless a subgraph has one node only; then the graph cannot be written.
            with contextlib.suppress(BuildError):
                layers = self._optimized(request, data, level, errand)
                return placement.marked(layers, request.model, parts), level, tuple(notes)
        # Nodes left to the CPU are fused at other levels, and then the profiler names them otherwise.
        return placement.regions(request.model, parts, self.provider.name, title), "basic", tuple(notes)

    def _told(self, request: BuildRequest) -> dict[str, str]:
        if self.provider == CPU:
            return {}
        variant = request.variant
        tf32 = variant.precision is Precision.TF32
        return providers.options(self.provider, variant.target, variant.options, tf32=tf32)

    def _place(self, target: Target) -> str:
        return "the CPU" if self.provider == CPU else f"{self.provider.title} ({str(target).upper()})"

    def _device(self, target: Target) -> str:
        return cpu.name() if target.name == "cpu" else providers.device(self.provider, target)

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
        """Time every layer of the engine's optimized graph.

        Whole inferences are timed in a session without instrumentation: ``runs``, and more of them within half a
        second. Layers are timed in a second one, ``runs`` times, in turns with the first. Each is bounded by ten
        seconds, so that a large model does not hold the notebook; the numbers done are in the result. Its note tells
        why the layers do not sum to the latency, where they do not.

        Args:
            engine: One that this backend built.
            inputs: One batch.
            progress: Advanced by each timed inference.
            runs: The least inferences that are timed, while there is time.
            warmup: Inferences before them that are not; fewer, but at least one, where they are long.
            seconds: A budget for all of it. What it does not suffice for is left out, down to one inference of each
                kind; ``Profile.merged`` adds more later.
            limit_s: Seconds after which it fails; by default those of ``Limits``.

        Raises:
            RunError: ONNX Runtime fails on the inputs, or the limit is passed.
            Cancelled: ``progress`` asked to stop.
        """
        started = time.monotonic()
        errand = self._errand("profile", progress, limit_s)
        progress.phase(f"Timing on {self._place(engine.target)}", 2 * runs)
        with (
            scratch.folder() as folder,
            exposed.opened(_runnable(engine)) as data,
        ):
            plain = self._reopened(engine, data, errand)
            profiled = dataclasses.replace(plain, profile=str(Path(folder) / "profile"))
            left = None if seconds is None else seconds - (time.monotonic() - started)
            times, told = errand.time(
                (plain, profiled),
                inputs,
                runs=runs,
                warmup=warmup,
                seconds=left,
                most=self._kept(engine, runs + warmup),
            )
        total, whole = times.taken
        samples, notes = self._samples(engine, told)
        return Profile(
            source=self.source,
            device=self._device(engine.target),
            samples=samples,
            total=total,
            warmup=times.warmups[0],
            taken=datetime.datetime.now(datetime.timezone.utc),
            note=". ".join((*notes, *watch.differences(total, whole, samples))),
            processor=cast("Processor", engine.target.name.upper()),
            runs=len(whole),
        )

    def _kept(self, engine: Engine, runs: int) -> int | None:
        """How many of so many runs the profiler may keep at a time; None for all of them."""
        if self.provider != CPU or not engine.layers:
            # Other processors may take minutes to make a session.
            return None
        # A session of large weights takes long to make too, and much memory anyway.
        most = max(_PROFILED, exposed.weight(_runnable(engine)))
        kept = max(_LEAST_KEPT, most // (_PROFILED_KERNEL * len(engine.layers)))
        return kept if kept < runs else None

    def _samples(
        self, engine: Engine, told: Mapping[str, NodeRuns]
    ) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
        """Milliseconds of the layers, and what is to be said of them."""
        provider = self.provider
        if provider == CPU:
            return optimized.samples(told, engine.layers), []
        notes = []
        if engine.target.name != "cpu":
            notes.append("Inferences include copying inputs to the device and outputs from it")
        if not self._waits:
            remedy = (
                f"; for them, set {provider.blocking}=1 before Python starts" if provider.blocking else ""
            )
            notes.append(
                f"Layers have no times: on {provider.title}, the profiler tells when work was handed over{remedy}"
            )
            return {}, notes
        found, more = placement.samples(told, engine.layers, provider.name, provider.title)
        return found, [*notes, more] if more else notes

    def outputs(
        self,
        engine: Engine,
        inputs: Batch,
        names: Sequence[str] = (),
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outputs:
        """Run one batch at level BASIC, where quantized numerics do not depend on fusion.

        Args:
            engine: One that this backend built.
            inputs: One batch.
            names: Values of the model to return; its outputs by default.
            progress: Asked whether to stop; never stopped by default.
            limit_s: Seconds after which it fails; by default those of ``Limits``.

        Raises:
            RunError: a name is unknown, ONNX Runtime fails on the inputs, or the limit is passed.
            Cancelled: ``progress`` asked to stop.
        """
        key, errand = (id(engine), tuple(names)), self._errand("run", progress, limit_s)
        # Another thread may end what is kept at any time, so it is taken out while it is used.
        _, session = self._sessions.pop(key, (engine, None))
        if session is None or not session.alive:
            self._attendant(progress, limit_s).do(lambda _: exposed.prepare(_runnable(engine)), _nothing)
            with exposed.opened(_runnable(engine), names) as data:
                session = errand.keep(self._reopened(engine, data, errand, level="basic"))
        wanted = list(names) or list(session.outputs)
        found = session.run(errand, wanted, inputs)
        self._sessions[key] = (engine, session)
        while len(self._sessions) > _KEPT:
            _, (_, oldest) = self._sessions.popitem(last=False)
            oldest.close()
        return dict(zip(wanted, found, strict=True))

    def unfused(
        self, engine: Engine, inputs: Batch, progress: Progress, *, limit_s: float | None = None
    ) -> tuple[str, ...]:
        """Values that can be read without changing what is computed.

        All of them, unless the outputs come out differently beside them: OpenVINO 2025 computes another network from a
        model with Q/DQ pairs whose values are all read. Then those between the layers, which are written anyway.

        Raises:
            RunError: ONNX Runtime fails on the inputs, or a run takes longer than ``limit_s`` seconds.
            Cancelled: ``progress`` asked to stop.
        """
        check(progress, "reading values")
        names = exposed.names(_runnable(engine))
        plain = self.outputs(engine, inputs, progress=progress, limit_s=limit_s)
        try:
            read = self.outputs(engine, inputs, names, progress=progress, limit_s=limit_s)
        except (BuildError, RunError):
            read = {}
        if all(name in read and _near(plain[name], read[name]) for name in plain):
            return names
        return tuple(t.name for layer in engine.layers for t in layer.outputs)

    @contextlib.contextmanager
    def reading(
        self,
        model: Model,
        names: Sequence[str],
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Callable[[Batch], Outputs]]:
        """A session that returns values of a model, batch by batch, in the least time and memory.

        Unlike ``outputs`` it needs no engine, and lets ONNX Runtime fuse and lay out as it likes, so that values may
        differ in the last bits of a float; with Q/DQ pairs, where fusion changes more than that, it does not.

        Args:
            model: The model, of any size.
            names: Values to return; inputs of the model are left out, since the caller has them.
            progress: Asked whether to stop; never stopped by default.
            limit_s: Seconds after which opening the session fails, and each batch; by default those of ``Limits``.

        Raises:
            RunError: a name is unknown; or, from the function given, ONNX Runtime fails on the inputs. Or the limit is
                passed.
            BuildError: ONNX Runtime refuses the model.
            Cancelled: ``progress`` asked to stop.
        """
        wanted = [n for n in dict.fromkeys(names) if n not in model.inputs]
        if not wanted:
            # Asked for no value, ONNX Runtime would return every output.
            yield lambda _: {}
            return
        order = functools.partial(self._order, "", f'Backend "{self.name}" cannot run')
        attendant = functools.partial(self._attendant, progress, limit_s)
        with streamed.reading(model, wanted, order, attendant) as read:
            yield read

    def release(self, engine: Engine) -> None:
        """Forget the sessions of an engine, which hold its weights."""
        for key in [k for k, (kept, _) in tuple(self._sessions.items()) if kept is engine]:
            _, session = self._sessions.pop(key, (engine, None))
            if session is not None:
                session.close()

    def _errand(self, verb: str, progress: Progress | None, limit_s: float | None) -> Errand:
        limits = Limits() if limit_s is None else Limits(seconds=limit_s)
        return Errand(f'Backend "{self.name}" cannot {verb}', progress, limits)

    def _attendant(self, progress: Progress | None, limit_s: float | None) -> Attendant:
        limits = Limits() if limit_s is None else Limits(seconds=limit_s)
        return Attendant(f'Backend "{self.name}" cannot run', progress, limits)

    def _order(
        self,
        data: bytes | str,
        doing: str,
        level: str,
        told: Mapping[str, str] | None = None,
        target: Target = _CPU,
        **more: Any,
    ) -> SessionOrder:
        return SessionOrder(
            data,
            doing,
            self.threads,
            level="basic" if level == "basic" else "all",
            provider=self.provider,
            told=told or {},
            target=target,
            **more,
        )

    def _reopened(
        self, engine: Engine, data: bytes | str, errand: Errand, *, level: str = ""
    ) -> SessionOrder:
        """A session with an engine's settings, at its own level or another one."""
        told: dict[str, str] = json.loads(_told_by(engine, _TOLD, "{}"))
        # Threads that wait for more work would take the processor from the session that runs in turn.
        entries = (IN_TURN,)
        level = level or _told_by(engine, _LEVEL, "all")
        return self._order(data, errand.doing, level, told, engine.target, entries=entries)


def _near(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays differ by rounding only."""
    if one.dtype.kind not in "fiu":
        return bool(np.array_equal(one, other))
    greatest = float(np.abs(one).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=0.0, atol=1e-3 * greatest, equal_nan=True))


def _told_by(engine: Engine, prefix: str, default: str) -> str:
    """What stands behind a prefix in the notes of an engine."""
    return next((n.removeprefix(prefix) for n in engine.notes if n.startswith(prefix)), default)


def _named(model: Model) -> bytes:
    """The model with ids as the names of its nodes, by which ONNX Runtime speaks of them."""
    proto = onnx.load_from_string(model.bytes())
    for node, given in zip(proto.graph.node, model.top, strict=True):
        node.name = given.id
    return bytes(proto.SerializeToString())


def _nothing() -> None:
    """What ends a call that cannot be told to end."""


def _runnable(engine: Engine) -> bytes | Model:
    if engine.runnable is None:
        raise RunError(
            f'Backend "onnxruntime" cannot run an engine of backend "{engine.backend}": it holds no ONNX graph. '
            'Build the variant with backend="onnxruntime".'
        )
    return engine.runnable
