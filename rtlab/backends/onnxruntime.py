"""ONNX Runtime on the CPU: real layers, real times, real tensors, wherever Python runs."""

from __future__ import annotations

import collections
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.backends.files import optimized
from rtlab.core.data import Batch
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Operators whose neighbours ONNX Runtime fuses into integer kernels that round otherwise.
_QUANTIZING = {"QuantizeLinear", "DequantizeLinear"}
#: Prefix of ONNX Runtime's settings for the weights of a model that it writes.
_OPTIMIZED = "session.optimized_model_external_initializers"
#: Bytes from which a weight lies outside the model that a session reads.
_EXTERNAL = 1024
#: Sessions kept for streaming; a comparison reads two engines in turn.
_KEPT = 4


class OnnxRuntime:
    """Builds (its optimized graph is the engine), profiles, and yields every intermediate tensor."""

    name = "onnxruntime"

    def __init__(self, *, threads: int | None = None) -> None:
        self.threads = threads or _cores()
        self._sessions: collections.OrderedDict[tuple[int, tuple[str, ...]], tuple[Engine, Any]] = (
            collections.OrderedDict()
        )

    def availability(self) -> Availability:
        """Look for the package without importing it."""
        if importlib.util.find_spec("onnxruntime") is None:
            return Availability(
                ok=False, reason='package "onnxruntime" is not installed. Run pip install onnxruntime.'
            )
        return Availability(ok=True, version=_version())

    def capabilities(self) -> Capabilities:
        """The CPU runs INT8 for real; other types run in FP32 kernels, so their tensors come from an emulation.

        BF16 and FP4 are missing: for most BF16 operators, and for dequantizing FP4, there is no kernel at all.
        """
        return Capabilities(
            targets=(Target("cpu"),),
            precisions=tuple(p for p in Precision if p not in {Precision.BF16, Precision.FP4}),
            builds=True,
            runs=True,
        )

    @property
    def source(self) -> str:
        """What to write beside a number: name, version, device, threads."""
        threads = f"{self.threads} thread" + ("s" if self.threads != 1 else "")
        return f"ONNX Runtime {_version()} CPU, {threads}"

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Optimize the model at ``request.level``; the layers are the nodes of the optimized graph.

        Raises:
            BuildError: ONNX Runtime refuses the model.
        """
        progress.phase("Optimizing for the CPU")
        model = request.model
        data = model.bytes()
        # Beyond BASIC, ONNX Runtime 1.31 fuses an FP8 product into an INT8 kernel, which then refuses its type.
        level = "basic" if Precision.FP8 in request.variant.precisions else request.level
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="rtlab-") as folder:
            saved = Path(folder) / "optimized.onnx"
            options = self._options(level)
            options.optimized_model_filepath = str(saved)
            self._session(data, options, f'Backend "{self.name}" cannot build "{request.variant.name}"')
            seconds = time.perf_counter() - started
            proto = onnx.load(str(saved), load_external_data=False)
        layers = optimized.read(proto, model.name, set(model.values))[0]
        check(progress, "the build")
        return Engine(
            backend=self.name,
            version=_version(),
            target=Target("cpu"),
            layers=layers,
            inputs=optimized.tensors(model.values, model.inputs),
            outputs=optimized.tensors(model.values, model.outputs),
            seconds=seconds,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(f"optimization level {level}",),
            runnable=data,
        )

    def profile(
        self, engine: Engine, inputs: Batch, progress: Progress, *, runs: int = 30, warmup: int = 5
    ) -> Profile:
        """Time every layer of the engine's optimized graph.

        Whole inferences are timed first, in a session without instrumentation; layers in a second one. Runs are
        bounded by ten seconds, so that a large model does not hold the notebook; the number done is in the result.

        Raises:
            RunError: ONNX Runtime fails on the inputs.
            Cancelled: ``progress`` asked to stop.
        """
        level = next((n.rsplit(" ", 1)[1] for n in engine.notes if n.startswith("optimization level")), "all")
        doing = 'Backend "onnxruntime" cannot profile'
        feed = dict(inputs)
        progress.phase("Timing on the CPU", 2 * runs)
        plain = self._session(_runnable(engine), self._options(level), doing)
        total = self._time(plain, feed, progress, runs, warmup)
        with tempfile.TemporaryDirectory(prefix="rtlab-") as folder:
            options = self._options(level)
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder) / "profile")
            session = self._session(_runnable(engine), options, doing)
            try:
                self._time(session, feed, progress, runs, warmup)
            finally:
                written = session.end_profiling()
            events = json.loads(Path(written).read_text(encoding="utf-8"))
        return Profile(
            source=self.source,
            device=_device(),
            samples=optimized.samples(events, engine.layers, warmup),
            total=total,
            warmup=warmup,
            taken=datetime.datetime.now(datetime.timezone.utc),
        )

    def outputs(self, engine: Engine, inputs: Batch, names: Sequence[str] = ()) -> Outputs:
        """Run one batch at level BASIC, where quantized numerics do not depend on fusion.

        Args:
            engine: One that this backend built.
            inputs: One batch.
            names: Values of the model to return; its outputs by default.

        Raises:
            RunError: a name is unknown, or ONNX Runtime fails on the inputs.
        """
        key = (id(engine), tuple(names))
        # Another thread may end what is kept at any time, so it is taken out while it is used.
        _, session = self._sessions.pop(key, (engine, None))
        if session is None:
            data = _expose(_runnable(engine), names)
            session = self._session(data, self._options("basic"), 'Backend "onnxruntime" cannot run')
        self._sessions[key] = (engine, session)
        while len(self._sessions) > _KEPT:
            self._sessions.popitem(last=False)
        wanted = list(names) or [o.name for o in session.get_outputs()]
        return dict(zip(wanted, _run(session, wanted, dict(inputs)), strict=True))

    @contextlib.contextmanager
    def reading(self, model: Model, names: Sequence[str]) -> Iterator[Callable[[Batch], Outputs]]:
        """A session that returns values of a model, batch by batch, in the least time and memory.

        Unlike ``outputs`` it needs no engine, and lets ONNX Runtime fuse and lay out as it likes, so that values may
        differ in the last bits of a float; with Q/DQ pairs, where fusion changes more than that, it does not.

        Args:
            model: The model, of any size.
            names: Values to return; inputs of the model are left out, since the caller has them.

        Raises:
            RunError: a name is unknown; or, from the function given, ONNX Runtime fails on the inputs.
            BuildError: ONNX Runtime refuses the model.
        """
        wanted = [n for n in dict.fromkeys(names) if n not in model.inputs]
        if not wanted:
            # Asked for no value, ONNX Runtime would return every output.
            yield lambda _: {}
            return
        quantized = any(n.op in _QUANTIZING for n in model.nodes)
        doing = 'Backend "onnxruntime" cannot run'
        with tempfile.TemporaryDirectory(prefix="rtlab-") as folder:
            written, folded = (Path(folder) / name for name in ("model.onnx", "folded.onnx"))
            _write(model, wanted, written)
            # In one step, ONNX Runtime holds the weights as they are, folded, and in blocks, all at once.
            options = self._options("basic")
            options.optimized_model_filepath = str(folded)
            options.add_session_config_entry(f"{_OPTIMIZED}_file_name", "folded.weights")
            options.add_session_config_entry(f"{_OPTIMIZED}_min_size_in_bytes", str(_EXTERNAL))
            _free_memory()
            self._session(str(written), options, doing)
            _free_memory()
            options = self._options("basic" if quantized else "all")
            # A plan of memory for all values at once is of no use when most are handed out.
            options.enable_mem_pattern = False
            kept = [self._session(str(folded), options, doing)]
            _free_memory()
            try:
                yield lambda batch: _read(kept[0], wanted, batch)
            finally:
                # The weights are read from the folder, which not every system can remove before.
                kept.clear()

    def release(self, engine: Engine) -> None:
        """Forget the sessions of an engine, which hold its weights."""
        for key in [k for k, (kept, _) in tuple(self._sessions.items()) if kept is engine]:
            self._sessions.pop(key, None)

    def _time(
        self, session: Any, feed: dict[str, Any], progress: Progress, runs: int, warmup: int
    ) -> NDArray[np.float64]:
        taken: list[float] = []
        end = time.monotonic() + 10.0
        for i in range(warmup + runs):
            check(progress, "timing on the CPU")
            started = time.perf_counter()
            _run(session, None, feed)
            if i >= warmup:
                taken.append((time.perf_counter() - started) * 1e3)
                progress.advance()
                if time.monotonic() > end and len(taken) >= 3:
                    break
        return np.asarray(taken)

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

    def _session(self, data: bytes | str, options: Any, doing: str) -> Any:
        import onnxruntime as ort

        try:
            return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise BuildError(
                f"{doing}: ONNX Runtime refuses the model: {_first_line(error)} "
                "Check that every operator has a CPU kernel for its types.",
                details=str(error),
            ) from error


def _run(session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[NDArray[Any]]:
    with _running():
        result: list[NDArray[Any]] = session.run(names, feed)
    return result


def _read(session: Any, names: list[str], batch: Batch) -> dict[str, NDArray[Any]]:
    """Run without copying what comes out."""
    import onnxruntime as ort

    feed = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}
    with _running():
        return dict(zip(names, map(_array, session.run_with_ort_values(names, feed)), strict=True))


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
    return text if text.endswith(".") else f"{text}."


def _runnable(engine: Engine) -> bytes:
    if engine.runnable is None:
        raise RunError(
            f'Backend "onnxruntime" cannot run an engine of backend "{engine.backend}": it holds no ONNX graph. '
            'Build the variant with backend="onnxruntime".'
        )
    return engine.runnable


def _expose(data: bytes, names: Sequence[str]) -> bytes:
    """The model with the named values as additional graph outputs."""
    proto = onnx.load_from_string(data)
    have = {o.name for o in proto.graph.output}
    made = {o for n in proto.graph.node for o in n.output} | {i.name for i in proto.graph.input}
    made |= {i.name for i in proto.graph.initializer}
    for name in names:
        if name not in made:
            raise _unknown(name)
        if name not in have:
            have.add(name)
            proto.graph.output.add(name=name)
    return bytes(proto.SerializeToString())


def _write(model: Model, names: Sequence[str], path: Path) -> None:
    """Write a model with the named values as outputs, and its weights in a file beside it.

    A session reads such weights without the copies that it makes of those inside a model.
    """
    made = {o for n in model.top for o in n.outputs} | set(model.inputs) | set(model.ir.graph.initializers)
    for name in names:
        if name not in made:
            raise _unknown(name)
    # The clone shares the tensors of the model, which stays as it is.
    copy = model.ir.clone()
    large = [
        v
        for v in copy.graph.initializers.values()
        if (t := v.const_value) is not None and t.nbytes >= _EXTERNAL and t.dtype != ir.DataType.STRING
    ]
    outside = ir.external_data.convert_tensors_to_external(
        [v.const_value for v in large if v.const_value is not None], path.parent, "weights"
    )
    for value, tensor in zip(large, outside, strict=True):
        value.const_value = tensor
    proto = ir.to_proto(copy)
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in have)
    path.write_bytes(proto.SerializeToString())


def _free_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it; else a process seems to need it still."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _unknown(name: str) -> RunError:
    return RunError(f'Cannot read value "{name}": the model has no value of this name. See model.values.')


def _version() -> str:
    return importlib.metadata.version("onnxruntime")


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
