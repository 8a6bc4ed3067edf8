"""What is done with an engine on the GPU. These functions run in a child process, which keeps one engine open.

``open_plan`` comes first; the others work on the engine that it left. Every function takes a payload and a report.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends import vendor
from rtlab.backends.workers import refusals
from rtlab.backends.workers.compiler import message_logger
from rtlab.backends.workers.execution_context import (
    EnginePort,
    ExecutionContext,
    OpenEngine,
    OpenSpec,
    allocate_array,
    list_ports,
    unpack,
)
from rtlab.core.phrases import quote_names
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Severities from ILogger up to ERROR; the others only fill the log.
_ERROR = 1
#: Parts of a budget by whose end inferences are no longer untimed, and no longer timed as a whole.
_WARMUP_SHARE, _LATENCY_SHARE = 0.1, 0.5


@dataclasses.dataclass(frozen=True)
class EngineFacts:
    """What an open engine says of itself, all *reported* by TensorRT.

    ``layers`` is the inspector's JSON text with the shapes of profile 0 set; ``memory`` the bytes of device memory for
    activations of one context, ``weights`` those of all weights, by the key ``weights``, empty in the first releases of
    TensorRT 10; ``aux_streams`` the streams beside the main one.
    """

    version: str
    layers: str
    ports: tuple[EnginePort, ...]
    aux_streams: int
    memory: int
    weights: Mapping[str, int]
    log: str


@dataclasses.dataclass(frozen=True)
class EngineTimes:
    """Times in milliseconds: ``total`` of whole inferences without and ``profiled_total`` with timing of layers.

    ``layers`` maps a name and its place among equal names within one inference to an array of shape ``(runs,)``;
    ``warmup`` is how many inferences were made before, untimed.
    """

    layers: Mapping[tuple[str, int], NDArray[np.float64]]
    total: NDArray[np.float64]
    profiled_total: NDArray[np.float64]
    warmup: int


_open: list[OpenEngine] = []


def open_plan(spec: OpenSpec, report: Any) -> EngineFacts:
    """Deserialize a plan, keep the engine, and describe it.

    Raises:
        ReadError: the bytes are no plan of this compiler.
        Unavailable: version or GPU are not those of the plan, or there is no driver.
        RunError: anything else that TensorRT refuses.
    """
    close_plan(None, report)
    report.phase("Loading the engine")
    trt = vendor.binding(spec.binding)
    lines: list[str] = []
    log: list[str] = []

    def on_message(severity: Any, message: str) -> None:
        log.append(message)
        if int(severity) <= _ERROR:
            lines.append(message)

    logger = message_logger(trt, on_message)
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(spec.plan)
    compiler = f"{spec.product} {trt.__version__}"
    if engine is None:
        # The newest releases tell of another version in an informal line only.
        version_lines = [line for line in log if "current runtime" in line]
        raise refusals.create_open_error(spec.error_prefix, [*lines, *version_lines], compiler, spec.device)
    open_engine = OpenEngine(spec, trt, vendor.cuda(spec.cuda), runtime, engine, logger, lines)
    # Facts are asked for before the engine counts as open, so that a failure leaves nothing behind.
    facts = _describe(open_engine, log)
    _open.append(open_engine)
    return facts


def close_plan(_: object, report: Any) -> None:  # noqa: ARG001 - the signature of a child's function
    """Let go of the engine, and with it of its memory on the GPU."""
    _open.clear()


def _describe(open_engine: OpenEngine, log: list[str]) -> EngineFacts:
    trt, engine = open_engine.trt, open_engine.engine
    io_ports = list_ports(trt, engine)
    inspector = engine.create_engine_inspector()
    context = engine.create_execution_context()
    if context is None:
        raise open_engine.create_error("no execution context could be made")
    for port in io_ports:
        # Formats and dimensions are told only once all shapes are known.
        if port.is_input and port.is_dynamic:
            context.set_input_shape(port.name, port.ranges[0][1])
    inspector.execution_context = context
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    weights = {}
    if hasattr(engine, "get_engine_stat"):
        weights = {"weights": engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)}
    return EngineFacts(
        version=trt.__version__,
        layers=text,
        ports=io_ports,
        aux_streams=engine.num_aux_streams,
        memory=engine.device_memory_size_v2,
        weights=weights,
        log="\n".join(log),
    )


def outputs(
    payload: tuple[Mapping[str, NDArray[Any]], Sequence[str]], report: Any
) -> dict[str, NDArray[Any]]:
    """Run one batch and return the named tensors, or the engine's outputs where none are named.

    Raises:
        RunError: an input does not fit the engine, a name is not in it, or the run fails.
    """
    feed, names = payload
    open_engine = _get_open_engine()
    report.phase("Running on the GPU", 1)
    with _execute(open_engine) as execution:
        execution.feed(feed)
        port_names = {port.name for port in execution.ports}
        inner_names = [n for n in dict.fromkeys(names) if n not in port_names]
        if inner_names:
            listener = attach_debug_listener(open_engine, execution.context, inner_names)
        execution.run()
        execution.stream.synchronize()
        values = execution.copy_tensors()
        if inner_names:
            # A name that no tensor of the engine has is told with those that it has.
            values |= collect_debug_tensors(open_engine, listener, inner_names, sorted(values))
    report.advance()
    return {n: values[n] for n in names or [p.name for p in execution.ports if not p.is_input]}


def list_debug_tensors(feed: Mapping[str, NDArray[Any]], report: Any) -> tuple[str, ...]:
    """Names of the inner tensors that the engine shows during one inference; empty where it shows none."""
    open_engine = _get_open_engine()
    report.phase("Asking for inner tensors", 1)
    with _execute(open_engine) as execution:
        context = execution.context
        if not hasattr(context, "unfused_tensors_debug_state"):
            return ()
        execution.feed(feed)
        listener = attach_debug_listener(open_engine, context, [])
        context.unfused_tensors_debug_state = True
        execution.run()
        execution.stream.synchronize()
    report.advance()
    return tuple(listener.names)


def profile(payload: tuple[Mapping[str, NDArray[Any]], int, int, float | None], report: Any) -> EngineTimes:
    """Time whole inferences, then inferences whose layers are timed, ``runs`` each after ``warmup`` untimed ones.

    Whole inferences are timed on the host, from the call to the end of the stream, without copying inputs or outputs.
    In a budget of seconds there are fewer of each, but at least one; the first half is for whole inferences.
    """
    feed, runs, warmup, seconds = payload
    open_engine = _get_open_engine()
    start = time.perf_counter()

    def is_over(part: float) -> bool:
        return seconds is not None and time.perf_counter() - start > part * seconds

    report.phase("Timing on the GPU", 2 * runs)
    with _execute(open_engine) as execution:
        execution.feed(feed)
        warmup_runs = 0
        while warmup_runs < warmup and not (warmup_runs and is_over(_WARMUP_SHARE)):
            _measure_latency(execution)
            warmup_runs += 1
        total: list[float] = []
        while len(total) < runs and not (total and is_over(_LATENCY_SHARE)):
            total.append(_measure_latency(execution))
            report.advance()
        context = execution.context
        profiler = _create_profiler(open_engine.trt)
        # From here on TensorRT times every layer: a profiler cannot be taken away again.
        context.profiler = profiler
        context.enqueue_emits_profile = False
        profiled_ms: list[float] = []
        layers: dict[tuple[str, int], NDArray[np.float64]] = {}
        for i in range(-min(warmup, 1), runs):
            if profiled_ms and is_over(1.0):
                break
            profiler.rows.clear()
            latency = _measure_latency(execution)
            if not context.report_to_profiler():
                raise open_engine.create_error("the times of layers were not reported")
            if i < 0:
                continue
            profiled_ms.append(latency)
            occurrences: dict[str, int] = {}
            for name, milliseconds in profiler.rows:
                key = name, occurrences.get(name, 0)
                occurrences[name] = key[1] + 1
                layers.setdefault(key, np.zeros(runs))[i] = milliseconds
            report.advance()
    layers = {key: times[: len(profiled_ms)] for key, times in layers.items()}
    return EngineTimes(layers, np.array(total), np.array(profiled_ms), warmup_runs)


def _measure_latency(execution: ExecutionContext) -> float:
    """Milliseconds of one inference."""
    start = time.perf_counter()
    execution.run()
    execution.stream.synchronize()
    return (time.perf_counter() - start) * 1e3


def throughput(payload: tuple[Mapping[str, NDArray[Any]], int, float, int], report: Any) -> tuple[int, float]:
    """Finished inferences over ``streams`` streams, each with a context and memory of its own, and the seconds taken.

    Inputs are copied once, before the clock starts. A stream gets its next inference when its last one is done.
    """
    feed, streams, seconds, warmup = payload
    open_engine = _get_open_engine()
    report.phase(f"Counting inferences on {streams} streams")
    with contextlib.ExitStack() as stack:
        executions = [stack.enter_context(_execute(open_engine)) for _ in range(streams)]
        for execution in executions:
            execution.feed(feed)
        for _ in range(max(1, warmup)):
            for execution in executions:
                execution.run()
        for execution in executions:
            execution.stream.synchronize()
        start = time.perf_counter()
        for execution in executions:
            execution.run()
        finished, end = 0, start
        while end - start < seconds:
            for execution in executions:
                execution.stream.synchronize()
                finished += 1
                execution.run()
            report.advance(len(executions))
            end = time.perf_counter()
        # What is under way still counts, and so does its time.
        for execution in executions:
            execution.stream.synchronize()
            finished += 1
        end = time.perf_counter()
    return finished, end - start


def _get_open_engine() -> OpenEngine:
    if not _open:
        raise RunError("Cannot run: no engine is open in this process. Open one first.")
    open_engine = _open[-1]
    open_engine.lines.clear()
    return open_engine


@contextlib.contextmanager
def _execute(open_engine: OpenEngine) -> Iterator[ExecutionContext]:
    """An execution context, with errors of the CUDA wrapper as rtlab's."""
    with (
        refusals.translate_errors(open_engine.spec.error_prefix, open_engine.lines),
        ExecutionContext(open_engine) as execution,
    ):
        yield execution


def _create_profiler(trt: Any) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc,name-defined,unused-ignore]
        """Keeps name and milliseconds of every layer of one inference, in the order of the report."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.rows: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.rows.append((layer_name, ms))

    return Profiler()


# --- inner tensors: the binding calls with each during a run, and requested ones are copied then ----------------------


def attach_debug_listener(open_engine: OpenEngine, context: Any, names: list[str]) -> Any:
    """Ask for inner tensors: those marked at the build by name, the others as tensors that fusion left.

    Raises:
        RunError: this release has no such tensors.
    """
    engine = open_engine.engine
    marked_names = [n for n in names if engine.is_debug_tensor(n)]
    listener = _create_listener(open_engine, names)
    if not context.set_debug_listener(listener):
        raise open_engine.create_error("the listener for inner tensors was refused")
    for name in marked_names:
        context.set_tensor_debug_state(name, True)  # noqa: FBT003 - the binding's signature
    if len(marked_names) < len(names):
        if not hasattr(context, "unfused_tensors_debug_state"):
            missing = next(n for n in names if n not in marked_names)
            raise RunError(
                f'{open_engine.spec.error_prefix}: the value "{missing}" was not marked as a debug tensor at the '
                f"build, and {open_engine.spec.product} {open_engine.trt.__version__} shows no others. Take a newer "
                "release, or read the engine's outputs."
            )
        context.unfused_tensors_debug_state = True
    # What was logged about names that are not marked is no error of the run.
    open_engine.lines.clear()
    return listener


def _create_listener(open_engine: OpenEngine, names: list[str]) -> Any:
    trt, wrapper, kinds = open_engine.trt, open_engine.cuda.wrapper(), open_engine.cuda.MemcpyKind
    requested_names = frozenset(names)

    class Listener(trt.IDebugListener):  # type: ignore[misc,name-defined,unused-ignore]
        """Copies wanted tensors at the moment when they are whole; notes the names of all."""

        def __init__(self) -> None:
            trt.IDebugListener.__init__(self)
            self.values: dict[str, NDArray[Any]] = {}
            self.names: dict[str, None] = {}
            self.errors: list[str] = []

        def process_debug_tensor(  # noqa: PLR0917 - the binding's signature
            self, addr: Any, location: Any, kind: Any, shape: Any, name: str, stream: int
        ) -> bool:
            self.names[name] = None
            if name not in requested_names:
                return True
            try:
                host = allocate_array(kind.name, tuple(shape))
                if location == trt.TensorLocation.HOST:
                    ctypes.memmove(host.ctypes.data, _address(addr), host.nbytes)
                else:
                    wrapper.memcpy(
                        host.ctypes.data, _address(addr), host.nbytes, kinds.DeviceToHost, stream_ptr=stream
                    )
                    wrapper.stream_synchronize(stream)
                self.values[name] = unpack(host, kind.name, tuple(shape))
            except Exception as error:  # noqa: BLE001 - the binding would print and swallow it
                self.errors.append(f"{name}: {error}")
            return True

    return Listener()


def _address(pointer: Any) -> int:
    """A pointer as a number; the binding may wrap it into a capsule."""
    if isinstance(pointer, int):
        return pointer
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return get_pointer(pointer, None) or 0


def collect_debug_tensors(
    open_engine: OpenEngine, listener: Any, names: list[str], others: list[str]
) -> dict[str, NDArray[Any]]:
    """The tensors that a listener copied; ``others`` are the engine's edges, for messages.

    Raises:
        RunError: one could not be copied, or the engine has none of its name.
    """
    error_prefix = open_engine.spec.error_prefix
    if listener.errors:
        raise RunError(
            f"{error_prefix}: inner tensors could not be copied: {listener.errors[0]}. Ask for fewer at a time.",
            details="\n".join(listener.errors),
        )
    missing_names = [n for n in names if n not in listener.values]
    if missing_names:
        available_names = [*listener.names, *others]
        close_matches = difflib.get_close_matches(missing_names[0], available_names, n=5, cutoff=0.4)
        raise RunError(
            f'{error_prefix}: the engine shows no value "{missing_names[0]}": it was fused away, folded or renamed, or '
            "the engine was built without debug tensors. Build it again with rtlab, or choose one of "
            f"{quote_names(close_matches or available_names[:5])}.",
            details="\n".join(available_names),
        )
    return dict(listener.values)
