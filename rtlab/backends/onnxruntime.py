"""ONNX Runtime: real layers, real times, real tensors, on the CPU wherever Python runs, or on another processor."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx

from rtlab.backends import exposed, placement, providers, watch
from rtlab.backends.attending import Attendant
from rtlab.backends.files import optimized
from rtlab.backends.heeding import heeding
from rtlab.backends.providers import CPU, PREFIX, Provider
from rtlab.core.data import Batch
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Limits, Progress
from rtlab.core.trace import Outputs, Processor, Profile
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, RtlabError, RunError, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Operators whose neighbours ONNX Runtime fuses into integer kernels that round otherwise.
_QUANTIZING = {"QuantizeLinear", "DequantizeLinear"}
_CPU = Target("cpu")
#: Types whose kernels the CPU lacks.
_CPU_LACKS = {Precision.BF16, Precision.FP4}
#: Prefix of ONNX Runtime's settings for the weights of a model that it writes.
_OPTIMIZED = "session.optimized_model_external_initializers"
#: Left out while a model is folded to a file: what it names by itself, it names so again when it reads that file at a
#: higher level, and then refuses two constants of one name (1.31, on a transformer).
_ONCE = ("MatMulAddFusion",)
#: Sessions kept for streaming; a comparison reads two engines in turn.
_KEPT = 4
#: What a session is made of, for as long as it is made.
Source = Callable[[], contextlib.AbstractContextManager[bytes | str]]
#: How notes of an engine begin that tell how to open it again.
_LEVEL, _TOLD = "optimization level ", "provider options "


class OnnxRuntime:
    """Builds (its optimized graph is the engine), profiles, and yields every intermediate tensor."""

    def __init__(self, provider: Provider = CPU, *, threads: int | None = None) -> None:
        self.provider = provider
        self.name = "onnxruntime" if provider == CPU else PREFIX + provider.short
        self.threads = threads or _cores()
        self._sessions: collections.OrderedDict[tuple[int, tuple[str, ...]], tuple[Engine, Any]] = (
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
        )

    @property
    def source(self) -> str:
        """What to write beside a number: name, version, provider; of the CPU's own also the threads."""
        if self.provider != CPU:
            return f"ONNX Runtime {providers.version()} {self.provider.name}"
        threads = f"{self.threads} thread" + ("s" if self.threads != 1 else "")
        return f"ONNX Runtime {providers.version()} CPU, {threads}"

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
        attendant = Attendant(doing, progress, request.limits, failure=BuildError)
        notes: tuple[str, ...] = ()
        if self.provider == CPU:
            runnable: bytes | Model = model
            attendant.do(lambda _: exposed.prepare(model), _nothing)
            started = time.perf_counter()
            layers = self._optimized(request, model, level, attendant)
        else:
            here = self.availability()
            if not here.ok:
                raise Unavailable(f"{doing}: {here.reason}")
            runnable, started = heeding(model, _named(model)), time.perf_counter()
            layers, level, notes = self._placed(request, runnable, level, attendant)
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
        )

    def _optimized(
        self, request: BuildRequest, runnable: bytes | Model, level: str, attendant: Attendant
    ) -> tuple[Layer, ...]:
        """Layers of the graph that ONNX Runtime writes after optimizing it."""
        with tempfile.TemporaryDirectory(prefix="rtlab-") as folder:
            saved = Path(folder) / "optimized.onnx"
            options = self._options(level)
            options.optimized_model_filepath = str(saved)
            told = self._told(request)
            self._session(
                functools.partial(exposed.opened, runnable), options, attendant, told, request.variant.target
            )
            proto = onnx.load(str(saved), load_external_data=False)
        return optimized.read(proto, request.model.name, set(request.model.values))[0]

    def _placed(
        self, request: BuildRequest, data: bytes, level: str, attendant: Attendant
    ) -> tuple[tuple[Layer, ...], str, tuple[str, ...]]:
        """Layers with their provider, the level that they are made at, and notes."""
        told, title = self._told(request), self.provider.title
        options = self._options("basic")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = self._session(
            functools.partial(exposed.opened, data), options, attendant, told, request.variant.target
        )
        parts = placement.parts(session)
        mine = [part for part in parts if part.provider == self.provider.name]
        if not mine:
            raise BuildError(
                f"{attendant.doing}: {self.provider.name} takes none of the model's {len(request.model.top)} nodes, so "
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
                layers = self._optimized(request, data, level, attendant)
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
        return _device() if target.name == "cpu" else providers.device(self.provider, target)

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
        attendant = self._attendant("profile", progress, limit_s)
        progress.phase(f"Timing on {self._place(engine.target)}", 2 * runs)
        source = functools.partial(exposed.opened, _runnable(engine))
        feed, options = dict(inputs), _run_options()
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            plain = self._reopened(engine, source, attendant)
            profiled = self._reopened(engine, source, attendant, profile=Path(folder) / "profile")
            left = None if seconds is None else seconds - (time.monotonic() - started)

            def timed(relay: Progress) -> watch.Times:
                works = [functools.partial(_run, one, None, feed, options) for one in (plain, profiled)]
                return watch.alternate(works, relay, runs, warmup, seconds=left)

            times = attendant.do(timed, functools.partial(_terminate, options))
            events = json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8"))
        total, whole = times.taken
        samples, notes = self._samples(engine, events, times.warmups[1])
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

    def _samples(
        self, engine: Engine, events: Sequence[Mapping[str, Any]], warmup: int
    ) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
        """Milliseconds of the layers, and what is to be said of them."""
        provider = self.provider
        if provider == CPU:
            return optimized.samples(events, engine.layers, warmup), []
        notes = []
        if engine.target.name != "cpu":
            notes.append("Inferences include copying inputs to the device and outputs from it")
        if not provider.waits and os.environ.get(provider.blocking) != "1":
            remedy = (
                f"; for them, set {provider.blocking}=1 before Python starts" if provider.blocking else ""
            )
            notes.append(
                f"Layers have no times: on {provider.title}, the profiler tells when work was handed over{remedy}"
            )
            return {}, notes
        found, more = placement.samples(events, engine.layers, provider.name, provider.title, warmup)
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
        key, attendant = (id(engine), tuple(names)), self._attendant("run", progress, limit_s)
        # Another thread may end what is kept at any time, so it is taken out while it is used.
        _, session = self._sessions.pop(key, (engine, None))
        if session is None:
            source = functools.partial(exposed.opened, _runnable(engine), names)
            session = self._reopened(engine, source, attendant, level="basic")
        wanted = list(names) or [o.name for o in session.get_outputs()]
        options, feed = _run_options(), dict(inputs)
        self._sessions[key] = (engine, session)
        while len(self._sessions) > _KEPT:
            self._sessions.popitem(last=False)

        def stop() -> None:
            # What does not end soon must not be kept, nor used again meanwhile.
            self._sessions.pop(key, None)
            _terminate(options)

        found = attendant.do(lambda _: _run(session, wanted, feed, options), stop)
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
        quantized = any(n.op in _QUANTIZING for n in model.nodes)
        attendant = self._attendant("run", progress, limit_s)
        with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
            written = functools.partial(exposed.outside, model, wanted)
            folded = Path(folder) / "folded.onnx"
            # In one step, ONNX Runtime holds the weights as they are, folded, and in blocks, all at once.
            options = self._options("basic")
            options.optimized_model_filepath = str(folded)
            options.add_session_config_entry(f"{_OPTIMIZED}_file_name", "folded.weights")
            options.add_session_config_entry(f"{_OPTIMIZED}_min_size_in_bytes", str(exposed.EXTERNAL))
            _free_memory()
            self._session(written, options, attendant, without=_ONCE)
            _free_memory()
            kept = [self._folded(folded, written, "basic" if quantized else "all", attendant)]
            _free_memory()

            def read(batch: Batch) -> Outputs:
                session, told = kept[0], _run_options()
                return self._attendant("run", progress, limit_s).do(
                    lambda _: _read(session, wanted, batch, told), functools.partial(_terminate, told)
                )

            try:
                yield read
            finally:
                # The weights are read from the folder, which not every system can remove before.
                kept.clear()

    def _folded(self, folded: Path, written: Source, level: str, attendant: Attendant) -> Any:
        """A session on the folded model; where ONNX Runtime refuses what it wrote, on the model as it is."""

        def at() -> contextlib.AbstractContextManager[bytes | str]:
            return contextlib.nullcontext(str(folded))

        for source in (at, written):
            options = self._options(level)
            # A plan of memory for all values at once is of no use when most are handed out.
            options.enable_mem_pattern = False
            with contextlib.nullcontext() if source is written else contextlib.suppress(BuildError):
                return self._session(source, options, attendant)
        raise AssertionError(attendant.doing)

    def release(self, engine: Engine) -> None:
        """Forget the sessions of an engine, which hold its weights."""
        for key in [k for k, (kept, _) in tuple(self._sessions.items()) if kept is engine]:
            self._sessions.pop(key, None)

    def _attendant(self, verb: str, progress: Progress | None, limit_s: float | None) -> Attendant:
        limits = Limits() if limit_s is None else Limits(seconds=limit_s)
        return Attendant(f'Backend "{self.name}" cannot {verb}', progress, limits)

    def _options(self, level: str) -> Any:
        import onnxruntime as ort

        options = ort.SessionOptions()
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_BASIC if level == "basic" else levels.ORT_ENABLE_ALL
        )
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        return options

    def _reopened(
        self,
        engine: Engine,
        source: Source,
        attendant: Attendant,
        *,
        level: str = "",
        profile: Path | None = None,
    ) -> Any:
        """A session with an engine's settings, at its own level or another one."""
        options = self._options(level or _told_by(engine, _LEVEL, "all"))
        # Threads that wait for more work would take the processor from the session that runs in turn.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        told: dict[str, str] = json.loads(_told_by(engine, _TOLD, "{}"))
        return self._session(source, options, attendant, told, engine.target)

    def _session(
        self,
        source: Source,
        options: Any,
        attendant: Attendant,
        told: Mapping[str, str] | None = None,
        target: Target = _CPU,
        *,
        without: Sequence[str] = (),
    ) -> Any:
        def made(_: Progress) -> Any:
            # Weights are written in this thread too, which takes a while where there are many.
            with source() as data:
                return providers.session(data, options, self.provider, told or {}, target, without=without)

        try:
            return attendant.do(
                made,
                functools.partial(options.set_load_cancellation_flag, True),  # noqa: FBT003 - it has no name
            )
        except RtlabError:
            raise
        except Exception as error:
            advice = (
                "Check that every operator has a CPU kernel for its types."
                if self.provider == CPU
                else f"Check the options and the driver of {self.provider.title}, and the types of the operators."
            )
            raise BuildError(
                f"{attendant.doing}: ONNX Runtime refuses the model: {_first_line(error)} {advice}",
                details=str(error),
            ) from error


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


def _run_options() -> Any:
    import onnxruntime as ort

    return ort.RunOptions()


def _terminate(options: Any) -> None:
    options.terminate = True


def _run(session: Any, names: list[str] | None, feed: dict[str, Any], options: Any) -> list[NDArray[Any]]:
    with _running():
        result: list[NDArray[Any]] = session.run(names, feed, options)
    return result


def _read(session: Any, names: list[str], batch: Batch, options: Any) -> dict[str, NDArray[Any]]:
    """Run without copying what comes out."""
    import onnxruntime as ort

    feed = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}
    with _running():
        return dict(zip(names, map(_array, session.run_with_ort_values(names, feed, options)), strict=True))


def _array(value: Any) -> NDArray[Any]:
    """A tensor as an array, in the same memory where NumPy knows its type and ONNX Runtime (after 1.24) offers it."""
    try:
        array: NDArray[Any] = np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        array = value.numpy()
    return array


@contextlib.contextmanager
def _running() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RunError(
            f'Backend "onnxruntime" cannot run: {_first_line(error)} Check the inputs\' names, shapes and types.',
            details=str(error),
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    # Its own words stand behind the place in its source.
    text = re.sub(r"^/\S+:\d+ .*?\) (?=[A-Z])", "", text)
    return text if text.endswith(".") else f"{text}."


def _runnable(engine: Engine) -> bytes | Model:
    if engine.runnable is None:
        raise RunError(
            f'Backend "onnxruntime" cannot run an engine of backend "{engine.backend}": it holds no ONNX graph. '
            'Build the variant with backend="onnxruntime".'
        )
    return engine.runnable


def _free_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it; else a process seems to need it still."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _cores() -> int:
    import psutil

    return int(psutil.cpu_count(logical=False) or os.cpu_count() or 1)


def _device() -> str:
    """The processor's name, as the operating system tells it."""
    import platform

    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
