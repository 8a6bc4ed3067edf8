"""ONNX Runtime at work, in a child of ``session_child`` or in this process: sessions made, kept, run, timed."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from rtlab.backends import providers, vendor
from rtlab.backends.placement import Partition, list_partitions
from rtlab.backends.providers import CPU, PREFIX, Provider
from rtlab.backends.readers import optimized
from rtlab.backends.readers.optimized import NodeRuns
from rtlab.backends.workers.process import Bounds
from rtlab.core.progress import check
from rtlab.core.protocols import Progress
from rtlab.core.trace import Outputs
from rtlab.core.variant import Target
from rtlab.errors import BuildError, RtlabError, RunError, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
#: The number of a session that is kept, and names of its values.
_Read = tuple[int, Sequence[str]]

#: Inferences go on to so many, or until they took so many milliseconds: a histogram needs more than a median does.
_MOST, _BRIEF = 300, 500.0
#: Milliseconds after which timing ends, whatever was asked for, and the fewest inferences by then.
_BOUND, _FEWEST = 10_000.0, 3
#: Part of its time that the first may warm up for.
_WARMING = 0.1
#: Turns that each of several takes, so that all of them see the same load of the machine.
_TURNS = 3


class Times(NamedTuple):
    """Of each work that was timed: milliseconds of its runs, shape ``(runs,)``; untimed runs of the first."""

    milliseconds: tuple[NDArray[np.float64], ...]
    warmup: int


def alternate(
    works: Sequence[Callable[[], float]],
    progress: Progress,
    runs: int,
    warmup: int,
    *,
    seconds: float | None = None,
    most: int = _MOST,
) -> Times:
    """Milliseconds of ``runs`` runs of each work, in turns, as it returns them itself.

    The first has ``warmup`` untimed runs, but for no more than a tenth of its time, and goes on where runs are brief,
    up to ``most`` within half a second. After ten seconds of its own each ends, but not before its third run; in a
    budget of ``seconds``, after its part of that, but not before its first.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    end = math.inf if seconds is None else time.perf_counter() + max(0.0, seconds)
    fewest = _FEWEST if seconds is None else 1
    times: list[list[float]] = [[] for _ in works]
    spent = [0.0] * len(works)

    def compute_bound() -> float:
        return min(_BOUND, 1e3 * max(0.0, end - time.perf_counter()) / len(works))

    def run(number: int) -> float:
        check(progress, "timing")
        start = time.perf_counter()
        milliseconds = works[number]()
        spent[number] += (time.perf_counter() - start) * 1e3
        return milliseconds

    def is_done(number: int) -> bool:
        # In a budget, a run is not begun that would end after it.
        ahead = times[number][-1] if times[number] and seconds is not None else 0.0
        count = len(times[number])
        return count >= runs or (count >= fewest and spent[number] + ahead > bound)

    bound, warmed = compute_bound(), 0
    while warmed < warmup and spent[0] <= _WARMING * bound:
        run(0)
        warmed += 1
    bound, spent[0] = compute_bound(), 0.0
    while not all(map(is_done, range(len(works)))):
        for number in range(len(works)):
            for _ in range(-(-runs // _TURNS)):
                if not is_done(number):
                    times[number].append(run(number))
                    progress.advance()
    while len(times[0]) < most and spent[0] < min(_BRIEF, bound):
        times[0].append(run(0))
    return Times(tuple(map(np.asarray, times)), warmed)


#: Settings of a session: its threads do not wait for more work, beside another one that runs in turn, or not even
#: between two nodes, beside NumPy at work; it records which provider takes which node; and weights stay in their file,
#: in place of copies in the order that kernels read.
STOP_SPINNING = ("session.force_spinning_stop", "1")
NEVER_SPIN = ("session.intra_op.allow_spinning", "0")
RECORD_PLACEMENT = ("session.record_ep_graph_assignment_info", "1")
KEEP_WEIGHTS_MAPPED = ("session.disable_prepacking", "1")
#: The optimizer that writes a bias beside quantized weights as integers of 32 bits, by the product of the scales of
#: input and weights. Where that is tiny (one channel of dead weights is enough) they saturate, and the bias is lost.
NARROWING = "WeightBiasQuantization"
#: First release whose profiler writes names as JSON does.
_ESCAPING = (1, 31)
_SESSIONS: dict[int, Any] = {}
_REDUCTIONS: dict[int, _Reduction] = {}
_SESSION_IDS = itertools.count()


@dataclasses.dataclass(frozen=True)
class SessionSpec:
    """What a session is made of: a model, as bytes or by the path of its file, and ONNX Runtime's settings.

    ``error_prefix`` begins errors. ``saved`` is where the optimized graph is written, ``profile`` what the name of the
    profiler's file begins with; empty for neither. ``planned``: whether memory is planned for all values at once.
    ``without`` are optimizers that are left out. ``folder`` is where the files lie that a model as bytes refers to.
    """

    data: bytes | str = dataclasses.field(repr=False)
    error_prefix: str
    threads: int
    level: Literal["basic", "all"] = "all"
    provider: Provider = CPU
    provider_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    target: Target = CPU.targets[0]
    entries: tuple[tuple[str, str], ...] = ()
    saved: str = ""
    profile: str = ""
    planned: bool = True
    without: tuple[str, ...] = ()
    folder: str = ""

    @property
    def is_large(self) -> bool:
        """Whether weights lie in a file, as those of large models do."""
        return bool(self.folder) or isinstance(self.data, str)


class Publisher(Protocol):
    """The reporter of a call that also sends results, even after the call."""

    def publish(self, key: int, result: object) -> None:
        """Send a result to the receiver of a key."""


class _Reduction:
    """Calls a function with the values of sessions, on a thread of its own while the next batch is computed."""

    def __init__(self, reads: Sequence[_Read], function: Callable[[Sequence[Outputs], int], Any]) -> None:
        self._reads, self._function = reads, function
        self._pool = futures.ThreadPoolExecutor(1)
        self._pending: futures.Future[None] | None = None

    def take(self, batch: Mapping[str, NDArray[Any]] | None, samples: int, report: Publisher) -> None:
        """Compute a batch, where there is one, and wait until the one before is reduced."""
        values = None
        if batch is not None:
            values = [read(_SESSIONS[number], names, batch) for number, names in self._reads]
        before, self._pending = self._pending, None
        if before is not None:
            before.result()
        if values is not None:
            self._pending = self._pool.submit(self._publish, values, samples, report)

    def _publish(self, values: Sequence[Outputs], samples: int, report: Publisher) -> None:
        report.publish(self._reads[0][0], self._function(values, samples))


def preload() -> None:
    """Import what every call needs, before the first comes."""
    vendor.onnxruntime()


def optimize(spec: SessionSpec, report: Progress) -> tuple[Partition, ...]:  # noqa: ARG001 - every call gets one
    """Make a session, which writes its graph where that is set; which provider takes what, where that is recorded.

    Raises:
        BuildError: ONNX Runtime refuses the model.
        Unavailable: the provider cannot start.
    """
    ort_session = create_session(spec)
    partitions = list_partitions(ort_session) if RECORD_PLACEMENT in spec.entries else ()
    del ort_session
    if spec.is_large:
        # Of a large model, it took much; the next session is still to come.
        free_memory()
    return partitions


def open_session(spec: SessionSpec, report: Progress) -> tuple[int, tuple[str, ...]]:  # noqa: ARG001
    """Make a session and keep it: its number, and the names of its outputs. Errors are those of ``optimize``."""
    ort_session, number = create_session(spec), next(_SESSION_IDS)
    _SESSIONS[number] = ort_session
    if spec.is_large:
        # Of a large model, it took much to make.
        free_memory()
    return number, tuple(o.name for o in ort_session.get_outputs())


def close_sessions(numbers: Iterable[int], report: Progress) -> None:  # noqa: ARG001
    """End sessions that were kept."""
    for number in numbers:
        _SESSIONS.pop(number, None)
        _REDUCTIONS.pop(number, None)


def trim_memory(payload: None, report: Progress) -> None:  # noqa: ARG001
    """Give memory back before a while without work."""
    free_memory()


def run(payload: tuple[int, list[str], Mapping[str, NDArray[Any]]], report: Progress) -> list[Any]:  # noqa: ARG001
    """What a session that was kept computes of a batch, of each name."""
    number, names, feed = payload
    arrays: list[Any] = _run(_SESSIONS[number], names, dict(feed))
    return arrays


def start_reduction(
    payload: tuple[Sequence[_Read], Callable[[Sequence[Outputs], int], Any]],
    report: Progress,  # noqa: ARG001
) -> None:
    """Register a function that takes values of sessions, until the first of these ends."""
    reads, function = payload
    _REDUCTIONS[reads[0][0]] = _Reduction(reads, function)


def reduce(payload: tuple[int, Mapping[str, NDArray[Any]] | None, int], report: Publisher) -> None:
    """Run a batch of so many samples, None after the last one; its result is published by the end of the next call.

    Raises:
        RunError: ONNX Runtime fails on the batch.
    """
    number, batch, samples = payload
    _REDUCTIONS[number].take(batch, samples, report)


def time_sessions(
    payload: tuple[SessionSpec, SessionSpec, Mapping[str, NDArray[Any]], int, int, float | None, int, bool],
    report: Progress,
) -> tuple[Times, Mapping[str, NodeRuns]]:
    """Time a session without the profiler and one with it, in turns; the times, and what the profiler recorded.

    The payload has both sessions, the batch, how many runs of each, the untimed ones before them, a budget in seconds,
    which counts from now, how many runs the profiler may keep at a time, and whether there is memory for both sessions.
    Where there is not, and the budget ends before a second session would be open, the second has no runs.

    Raises:
        RunError: ONNX Runtime fails on the batch.
    """
    plain_spec, profiled_spec, batch, runs, warmup, seconds, max_profiled_runs, side_by_side = payload
    start = time.monotonic()

    def remaining() -> float | None:
        return None if seconds is None else seconds - (time.monotonic() - start)

    plain = create_session(plain_spec)
    opening = time.monotonic() - start
    works = [lambda: _measure_run(plain, batch)]
    if max_profiled_runs < runs or not side_by_side:
        # Two sessions of a large model take too much memory side by side.
        budget = remaining()
        first = alternate(works, report, runs, warmup, seconds=None if budget is None else budget / 2)
        works.clear()
        del plain
        free_memory()
        budget = remaining()
        if not side_by_side and budget is not None and budget < opening:
            return Times((*first.milliseconds, np.zeros(0)), first.warmup), {}
        profiled = _ProfiledSession(profiled_spec, batch, max_profiled_runs)
        second = alternate((profiled.run,), report, runs, 0, seconds=remaining(), most=0)
        times = Times((*first.milliseconds, *second.milliseconds), first.warmup)
    else:
        profiled = _ProfiledSession(profiled_spec, batch, max_profiled_runs)
        times = alternate((*works, profiled.run), report, runs, warmup, seconds=remaining())
    profiled.end()
    return times, profiled.kernels


def _measure_run(session: Any, batch: Mapping[str, NDArray[Any]]) -> float:
    """Milliseconds of a run."""
    start = time.perf_counter()
    _run(session, None, dict(batch))
    return (time.perf_counter() - start) * 1e3


class _ProfiledSession:
    """A session with the profiler, which is made anew after so many runs; the first run of each is not recorded.

    The profiler keeps about three kilobytes of each kernel that ran, until its session ends, and can neither be emptied
    before nor begin again (ONNX Runtime 1.31).
    """

    def __init__(self, spec: SessionSpec, batch: Mapping[str, NDArray[Any]], max_runs: int) -> None:
        self._spec, self._batch, self._max_runs = spec, batch, max_runs
        self._session: Any = None
        self._runs = 0
        self.kernels: dict[str, NodeRuns] = {}

    def run(self) -> float:
        """Milliseconds of a run."""
        if self._session is None:
            self._session, self._runs = create_session(self._spec), 1
            _measure_run(self._session, self._batch)
        milliseconds = _measure_run(self._session, self._batch)
        self._runs += 1
        if self._runs >= self._max_runs:
            self.end()
        return milliseconds

    def end(self) -> None:
        """End the session, and add what its profiler recorded to ``kernels``."""
        if self._session is None:
            return
        file = Path(self._session.end_profiling())
        self._session = None
        try:
            events = optimized.read_events(file, names_escaped=providers.parse_release() >= _ESCAPING)
            for name, kernel in optimized.collect_kernel_times(events).items():
                del kernel.milliseconds[:1]
                self.kernels.setdefault(name, kernel)
                if self.kernels[name] is not kernel:
                    self.kernels[name].milliseconds.extend(kernel.milliseconds)
        finally:
            file.unlink(missing_ok=True)
        free_memory()


def create_session_options(spec: SessionSpec) -> Any:
    """ONNX Runtime's settings of a session."""
    ort = vendor.onnxruntime()
    options, levels = ort.SessionOptions(), ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_BASIC if spec.level == "basic" else levels.ORT_ENABLE_ALL
    )
    options.intra_op_num_threads = spec.threads
    options.log_severity_level = 4
    options.enable_mem_pattern = spec.planned
    for name, value in spec.entries:
        options.add_session_config_entry(name, value)
    if spec.folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", spec.folder)
    if spec.saved:
        options.optimized_model_filepath = spec.saved
    if spec.profile:
        options.enable_profiling = True
        options.profile_file_prefix = spec.profile
    return options


def create_session(spec: SessionSpec, options: Any = None) -> Any:
    """A session in this process, with the CPU for what its provider leaves; ``options`` are those of the order.

    Raises:
        BuildError: ONNX Runtime refuses the model.
        Unavailable: the provider cannot start.
    """
    try:
        return _create_session(spec, create_session_options(spec) if options is None else options)
    except RtlabError:
        raise
    except Exception as error:
        if "serialization failed" in str(error):
            raise BuildError(
                f"{spec.error_prefix}: ONNX Runtime cannot write the graph that it made: the disk is full, or a file "
                "may not grow so large here (ulimit -f). Free some space, name a folder with more of it in TMPDIR, or "
                "raise the limit.",
                details=str(error),
            ) from error
        advice = "Check that every operator has a CPU kernel for its types."
        if spec.provider != CPU:
            advice = (
                f"Check the options and the driver of {spec.provider.title}, and the types of the operators."
            )
        raise BuildError(
            f"{spec.error_prefix}: ONNX Runtime refuses the model: {_first_line(error)} {advice}",
            details=str(error),
        ) from error


def _create_session(spec: SessionSpec, options: Any) -> Any:
    ort, provider, backend = vendor.onnxruntime(), spec.provider, f'Backend "{PREFIX}{spec.provider.short}"'
    provider_list: list[Any] | None = None
    if provider.name in providers.built_in():
        own = [] if provider.name == CPU.name else [(provider.name, dict(spec.provider_options))]
        provider_list = [*own, CPU.name]
    else:
        # Each process registers them once.
        providers.plug_ins()
        devices = {d.device.type.name.lower(): d for d in reversed(providers.list_devices(provider.name))}
        if str(spec.target) not in devices:
            raise Unavailable(
                f'{backend} cannot run on target "{spec.target}": its plug-in finds no such device here (it finds: '
                f"{', '.join(sorted(devices)) or 'none'}). Choose one of these as target=..., or "
                'backend="onnxruntime".'
            )
        options.add_provider_for_devices([devices[str(spec.target)]], dict(spec.provider_options))
    # With a fallback, ONNX Runtime prints what is wrong, and goes on without the provider.
    ort_session = ort.InferenceSession(
        spec.data,
        options,
        providers=provider_list,
        enable_fallback=0,
        # Numbers count at level BASIC.
        disabled_optimizers=[*([NARROWING] if spec.level == "basic" else []), *spec.without],
    )
    active_providers = ort_session.get_providers()
    if provider.name not in active_providers:
        raise Unavailable(
            f'{backend} cannot start {provider.name} for target "{spec.target}": ONNX Runtime goes on with '
            f"{', '.join(active_providers)} alone. Check the device, its driver and the options of {provider.title}, "
            'or choose backend="onnxruntime".'
        )
    return ort_session


def _run(session: Any, names: list[str] | None, feed: dict[str, Any]) -> Any:
    with translate_errors():
        return session.run(names, feed)


def read(
    session: Any, names: Sequence[str], batch: Mapping[str, NDArray[Any]], options: Any = None
) -> Outputs:
    """What a session in this process computes of a batch, without copying what comes out.

    Raises:
        RunError: ONNX Runtime fails on it.
    """
    ort = vendor.onnxruntime()
    feed = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}
    with translate_errors():
        ort_values = session.run_with_ort_values(list(names), feed, options)
        return dict(zip(names, map(_array, ort_values), strict=True))


def _array(value: Any) -> Any:
    """A tensor as an array, in the same memory where NumPy knows its type and ONNX Runtime (after 1.24) offers it."""
    try:
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return value.numpy()


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise ``RunError`` where ONNX Runtime fails on the inputs of a run."""
    try:
        yield
    except Exception as error:
        raise RunError(
            f'Backend "onnxruntime" cannot run: {_first_line(error)} Check the inputs\' names, shapes and types.',
            details=str(error),
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    # Its own words follow the place in its source.
    text = re.sub(r"^/\S+:\d+ .*?\) (?=[A-Z])", "", text)
    return text if text.endswith(".") else f"{text}."


def free_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it and the process seems to need it still."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


#: Seconds between two looks at the clock and the user, those that a call has to end after its switch is set, and those
#: that Python waits at its end for calls at work.
_TICK, _GRACE, _LAST = 0.05, 0.5, 3.0

#: Calls that have not ended, and the switch of each: Python must not end under one, or it crashes.
_active: dict[futures.Future[Any], Callable[[], object]] = {}


def call_cancellable(work: Callable[[], T], stop: Callable[[], object], bounds: Bounds) -> T:
    """What ``work`` returns or raises, done on a thread of its own; ``stop`` ends it, from another thread.

    ONNX Runtime looks at its switch (``RunOptions.terminate``, or that of loading) between two nodes, inside of loops
    too, but never within one. So the caller watches clock, memory and user; where a node does not end soon, the caller
    goes on without it, and the thread ends with that node.

    Raises:
        Cancelled: the user asked to stop.
        BackendError: the time or the memory is over, of the kind of the work.
    """
    check(bounds.progress, bounds.activity)
    answer: futures.Future[T] = futures.Future()
    _active[answer] = stop
    threading.Thread(target=_run_work, args=(work, answer), name="rtlab-run", daemon=True).start()
    try:
        while not futures.wait([answer], _TICK).done:
            bounds.check()
    except BaseException:
        stop()
        # Its words would be those of an end that we asked for.
        futures.wait([answer], _GRACE)
        raise
    return answer.result()


def _run_work(work: Callable[[], T], answer: futures.Future[T]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
        answer.set_exception(error)
    finally:
        _active.pop(answer, None)


@atexit.register
def _end() -> None:
    """Let no call come back to an interpreter that is gone."""
    for stop in tuple(_active.values()):
        stop()
    futures.wait(tuple(_active), _LAST)


def open_cancellable_session(
    open_source: Callable[[], contextlib.AbstractContextManager[bytes | str]],
    spec: SessionSpec,
    bounds: Bounds,
) -> Any:
    """A session in this process on what ``open_source`` yields; errors as ``call_cancellable``."""
    options = create_session_options(spec)

    def create() -> Any:
        # Weights are written in this thread too, which takes a while where there are many.
        with open_source() as data:
            return create_session(dataclasses.replace(spec, data=data), options)

    stop = functools.partial(options.set_load_cancellation_flag, True)  # noqa: FBT003 - it has no name
    return call_cancellable(create, stop, bounds)
