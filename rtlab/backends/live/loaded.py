"""What is done with an engine on the GPU. These functions run in a child process, which keeps one engine open.

``open_plan`` comes first; the others work on the engine that it left. Memory, streams and copies are those of
``polygraphy.cuda``. Every function takes what ``child`` sends and a report of progress.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends import vendor
from rtlab.backends.live import inner, listening, refusals
from rtlab.backends.live.lane import EnginePort, Lane, OpenEngine, ports
from rtlab.backends.live.order import OpenOrder
from rtlab.backends.live.sensors import Sensors, sensors
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Severities from ILogger up to ERROR; the others only fill the log.
_ERROR = 1
#: Parts of a budget by whose end inferences are no longer untimed, and no longer timed as a whole.
_WARMING, _WHOLE = 0.1, 0.5


@dataclasses.dataclass(frozen=True)
class EngineFacts:
    """What an open engine tells of itself, all *reported* by TensorRT.

    ``layers`` is the inspector's JSON text with the shapes of profile 0 set; ``memory`` the bytes of device memory
    for activations of one context, ``weights`` those of all weights, None where untold; ``aux_streams`` the streams
    beside the main one.
    """

    version: str
    name: str
    layers: str
    ports: tuple[EnginePort, ...]
    profiles: int
    aux_streams: int
    memory: int
    weights: int | None
    verbosity: str
    log: str


@dataclasses.dataclass(frozen=True)
class EngineTimes:
    """Times in milliseconds: ``total`` of whole inferences without and ``profiled`` with timing of layers.

    ``layers`` maps a name and its place among equal names within one inference to an array of shape ``(runs,)``;
    ``warmup`` is how many inferences were made before, untimed.
    """

    layers: Mapping[tuple[str, int], NDArray[np.float64]]
    total: NDArray[np.float64]
    profiled: NDArray[np.float64]
    warmup: int
    before: Sensors
    after: Sensors


@dataclasses.dataclass(frozen=True)
class Counted:
    """How many inferences were finished in how many seconds."""

    inferences: int
    seconds: float
    before: Sensors
    after: Sensors


_open: list[OpenEngine] = []


def open_plan(order: OpenOrder, report: Any) -> EngineFacts:
    """Deserialize a plan, keep the engine, and tell what it is.

    Raises:
        ReadError: the bytes are no plan of this compiler.
        Unavailable: version or GPU are not those of the plan, or there is no driver.
        RunError: anything else that TensorRT refuses.
    """
    close_plan(None, report)
    report.phase("Loading the engine")
    find_runtime()
    trt = vendor.binding(order.binding)
    lines: list[str] = []
    log: list[str] = []

    def hear(severity: Any, message: str) -> None:
        log.append(message)
        if int(severity) <= _ERROR:
            lines.append(message)

    logger = listening.message_logger(trt, hear)
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(order.plan)
    compiler = f"{order.product} {trt.__version__}"
    if engine is None:
        # The newest releases tell of another version in an informal line only.
        told = [line for line in log if "current runtime" in line]
        raise refusals.refused(order.doing, [*lines, *told], compiler, order.device)
    cuda = vendor.cuda(order.cuda)
    with refusals.translated(order.doing, lines):
        kept = OpenEngine(order, trt, cuda, runtime, engine, logger, lines, _bus(cuda))
    # Facts are asked for before the engine counts as open, so that a failure leaves nothing behind.
    facts = _describe(kept, log)
    _open.append(kept)
    return facts


def close_plan(_: object, report: Any) -> None:  # noqa: ARG001 - the signature of a child's function
    """Let go of the engine, and with it of its memory on the GPU."""
    _open.clear()


def _describe(kept: OpenEngine, log: list[str]) -> EngineFacts:
    trt, engine = kept.trt, kept.engine
    found = ports(trt, engine)
    inspector = engine.create_engine_inspector()
    context = engine.create_execution_context()
    if context is None:
        raise kept.failed("no execution context could be made")
    for port in found:
        # Formats and dimensions are told only once all shapes are known.
        if port.reads and port.dynamic:
            context.set_input_shape(port.name, port.ranges[0][1])
    inspector.execution_context = context
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    # The first releases of TensorRT 10 do not tell it.
    weights = None
    if hasattr(engine, "get_engine_stat"):
        weights = engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)
    return EngineFacts(
        version=trt.__version__,
        name=engine.name,
        layers=text,
        ports=found,
        profiles=engine.num_optimization_profiles,
        aux_streams=engine.num_aux_streams,
        memory=engine.device_memory_size_v2,
        weights=weights,
        verbosity=engine.profiling_verbosity.name.lower(),
        log="\n".join(log),
    )


def outputs(wanted: tuple[Mapping[str, NDArray[Any]], Sequence[str]], report: Any) -> dict[str, NDArray[Any]]:
    """Run one batch and return the named tensors, or the engine's outputs where none are named.

    Raises:
        RunError: an input does not fit the engine, a name is not in it, or the run fails.
    """
    feed, names = wanted
    kept = _kept()
    report.phase("Running on the GPU", 1)
    with refusals.translated(kept.order.doing, kept.lines), Lane(kept) as lane:
        lane.feed(feed)
        known = {port.name for port in lane.ports}
        hidden = [n for n in dict.fromkeys(names) if n not in known]
        listener = inner.listen(kept, lane.context, hidden) if hidden else None
        lane.run()
        lane.stream.synchronize()
        values = lane.results()
        if listener is not None:
            # A name that no tensor of the engine has is told with those that it has.
            values |= inner.heard(kept, listener, hidden, sorted(values))
    report.advance()
    return (
        {n: values[n] for n in names}
        if names
        else {p.name: values[p.name] for p in lane.ports if not p.reads}
    )


def unfused(feed: Mapping[str, NDArray[Any]], report: Any) -> tuple[str, ...]:
    """Names of the inner tensors that the engine shows during one inference; empty where it shows none."""
    kept = _kept()
    report.phase("Asking for inner tensors", 1)
    with refusals.translated(kept.order.doing, kept.lines), Lane(kept) as lane:
        context = lane.context
        if not hasattr(context, "unfused_tensors_debug_state"):
            return ()
        lane.feed(feed)
        listener = inner.listen(kept, context, [])
        context.unfused_tensors_debug_state = True
        lane.run()
        lane.stream.synchronize()
    report.advance()
    return tuple(listener.names)


def profile(wanted: tuple[Mapping[str, NDArray[Any]], int, int, float | None], report: Any) -> EngineTimes:
    """Time whole inferences, then inferences whose layers are timed, ``runs`` each after ``warmup`` untimed ones.

    Whole inferences are timed on the host, from the call to the end of the stream, without copying inputs or outputs.
    In a budget of seconds there are fewer of each, but at least one; the first half is for whole inferences.
    """
    feed, runs, warmup, seconds = wanted
    kept = _kept()
    before = sensors(kept.order.libraries, kept.bus)
    begun = time.perf_counter()

    def over(part: float) -> bool:
        return seconds is not None and time.perf_counter() - begun > part * seconds

    report.phase("Timing on the GPU", 2 * runs)
    with refusals.translated(kept.order.doing, kept.lines), Lane(kept) as lane:
        lane.feed(feed)
        warm = 0
        while warm < warmup and not (warm and over(_WARMING)):
            _latency(lane)
            warm += 1
        total: list[float] = []
        while len(total) < runs and not (total and over(_WHOLE)):
            total.append(_latency(lane))
            report.advance()
        context = lane.context
        profiler = _profiler(kept.trt)
        # From here on TensorRT times every layer: a profiler cannot be taken away again.
        context.profiler = profiler
        context.enqueue_emits_profile = False
        profiled: list[float] = []
        layers: dict[tuple[str, int], NDArray[np.float64]] = {}
        for i in range(-min(warmup, 1), runs):
            if profiled and over(1.0):
                break
            profiler.rows.clear()
            taken = _latency(lane)
            if not context.report_to_profiler():
                raise kept.failed("the times of layers were not reported")
            if i < 0:
                continue
            profiled.append(taken)
            seen: dict[str, int] = {}
            for name, milliseconds in profiler.rows:
                key = name, seen.get(name, 0)
                seen[name] = key[1] + 1
                layers.setdefault(key, np.zeros(runs))[i] = milliseconds
            report.advance()
    layers = {key: found[: len(profiled)] for key, found in layers.items()}
    after = sensors(kept.order.libraries, kept.bus)
    return EngineTimes(layers, np.array(total), np.array(profiled), warm, before, after)


def _latency(lane: Lane) -> float:
    """Milliseconds of one inference."""
    started = time.perf_counter()
    lane.run()
    lane.stream.synchronize()
    return (time.perf_counter() - started) * 1e3


def throughput(wanted: tuple[Mapping[str, NDArray[Any]], int, float, int], report: Any) -> Counted:
    """Count inferences over ``streams`` streams, each with a context and memory of its own, for some seconds.

    Inputs are copied once, before the clock starts. A stream gets its next inference when its last one is done.
    """
    feed, streams, seconds, warmup = wanted
    kept = _kept()
    before = sensors(kept.order.libraries, kept.bus)
    report.phase(f"Counting inferences on {streams} streams")
    with refusals.translated(kept.order.doing, kept.lines), contextlib.ExitStack() as stack:
        lanes = [stack.enter_context(Lane(kept)) for _ in range(streams)]
        for lane in lanes:
            lane.feed(feed)
        for _ in range(max(1, warmup)):
            for lane in lanes:
                lane.run()
        for lane in lanes:
            lane.stream.synchronize()
        started = time.perf_counter()
        for lane in lanes:
            lane.run()
        done, ended = 0, started
        while ended - started < seconds:
            for lane in lanes:
                lane.stream.synchronize()
                done += 1
                lane.run()
            report.advance(len(lanes))
            ended = time.perf_counter()
        # What is under way still counts, and so does its time.
        for lane in lanes:
            lane.stream.synchronize()
            done += 1
        ended = time.perf_counter()
    return Counted(done, ended - started, before, sensors(kept.order.libraries, kept.bus))


def _kept() -> OpenEngine:
    if not _open:
        raise RunError("Cannot run: no engine is open in this process. Open one first.")
    kept = _open[-1]
    kept.lines.clear()
    return kept


def _profiler(trt: Any) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc,name-defined,unused-ignore]
        """Keeps name and milliseconds of every layer of one inference, in the order of the report."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.rows: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.rows.append((layer_name, ms))

    return Profiler()


def _bus(cuda: Any) -> str:
    """PCI address of the GPU in use."""
    text = ctypes.create_string_buffer(32)
    found = cuda.wrapper().handle.cudaDeviceGetPCIBusId(text, ctypes.c_int(len(text)), ctypes.c_int(0))
    return text.value.decode("ascii", "replace") if found == 0 else ""


def find_runtime() -> None:
    """Let Polygraphy find the CUDA runtime that TensorRT's packages bring, wherever their release puts it."""
    name = "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH"
    folders = [
        str(found.parent)
        for entry in sys.path
        if entry
        for pattern in (
            "nvidia/*/lib/libcudart.so*",
            "nvidia/*/bin/cudart64_*.dll",
            "nvidia/*/bin/*/cudart64_*.dll",
        )
        for found in Path(entry).glob(pattern)
    ]
    if folders:
        os.environ[name] = os.pathsep.join(dict.fromkeys([*filter(None, [os.environ.get(name)]), *folders]))
