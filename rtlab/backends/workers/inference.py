"""ONNX Runtime at work, on the child's side of ``session_child``: sessions that are made, kept, run and timed."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import functools
import itertools
import re
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.backends import interleaved_timing, providers, vendor
from rtlab.backends.placement import Partition, list_partitions
from rtlab.backends.providers import CPU, Provider
from rtlab.backends.readers import optimized
from rtlab.backends.readers.optimized import NodeRuns
from rtlab.backends.workers.shared_memory import store_arrays
from rtlab.core.protocols import Progress
from rtlab.core.trace import Outputs
from rtlab.core.variant import Target
from rtlab.errors import BuildError, RtlabError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Settings of a session: its threads do not wait for more work, beside another one that runs in turn; and it tells
#: which provider takes which node.
STOP_SPINNING = ("session.force_spinning_stop", "1")
RECORD_PLACEMENT = ("session.record_ep_graph_assignment_info", "1")
#: First release whose profiler writes names as JSON does.
_ESCAPING = (1, 31)
_CPU = Target("cpu")
_SESSIONS: dict[int, Any] = {}
_SESSION_IDS = itertools.count()


@dataclasses.dataclass(frozen=True)
class SessionSpec:
    """What a session is made of: a model, as bytes or by the path of its file, and ONNX Runtime's settings.

    ``error_prefix`` begins the words of an error. ``saved`` is where the optimized graph is written, ``profile`` what
    the name of the profiler's file begins with; empty for neither. ``planned`` says whether memory is planned for all
    values at once. ``without`` names optimizers that are left out.
    """

    data: bytes | str = dataclasses.field(repr=False)
    error_prefix: str
    threads: int
    level: Literal["basic", "all"] = "all"
    provider: Provider = CPU
    provider_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    target: Target = _CPU
    entries: tuple[tuple[str, str], ...] = ()
    saved: str = ""
    profile: str = ""
    planned: bool = True
    without: tuple[str, ...] = ()


def preload() -> None:
    """Import what every call needs, before the first comes."""
    vendor.onnxruntime()


def optimize(spec: SessionSpec, report: Progress) -> tuple[Partition, ...]:  # noqa: ARG001 - every call gets one
    """Make a session, which writes its graph where the order says so; which provider takes what, where it was asked."""
    ort_session = _create_session(spec)
    return list_partitions(ort_session) if RECORD_PLACEMENT in spec.entries else ()


def open_session(spec: SessionSpec, report: Progress) -> tuple[int, tuple[str, ...]]:  # noqa: ARG001
    """Make a session and keep it: its number, and the names of its outputs."""
    ort_session, number = _create_session(spec), next(_SESSION_IDS)
    _SESSIONS[number] = ort_session
    if isinstance(spec.data, str):
        # Of a large model, it took much to make.
        free_memory()
    return number, tuple(o.name for o in ort_session.get_outputs())


def close_sessions(numbers: Iterable[int], report: Progress) -> None:  # noqa: ARG001
    """End sessions that were kept."""
    for number in numbers:
        _SESSIONS.pop(number, None)


def trim_memory(payload: None, report: Progress) -> None:  # noqa: ARG001
    """Give memory back before a while without work."""
    free_memory()


def run(
    payload: tuple[int, Sequence[str], Mapping[str, NDArray[Any]], int | None],
    report: Progress,  # noqa: ARG001
) -> list[Any]:
    """What a session that was kept computes of a batch, of each name, in a room of that number."""
    number, names, feed, fd = payload
    return store_arrays(fd, _run(_SESSIONS[number], list(names), dict(feed)))


def time_sessions(
    payload: tuple[SessionSpec, SessionSpec, Mapping[str, NDArray[Any]], int, int, float | None, int | None],
    report: Progress,
) -> tuple[interleaved_timing.Times, Mapping[str, NodeRuns]]:
    """Time a session without instrumentation and one with it, in turns; the times, and what the profiler told.

    The last of the payload is how many runs the profiler may keep, the untimed one of each session among them; None for
    all.
    """
    plain_spec, profiled_spec, batch, runs, warmup, seconds, max_profiled_runs = payload
    start = clock.monotonic()
    pair = _SessionPair((plain_spec, profiled_spec), batch, max_profiled_runs)
    remaining = None if seconds is None else seconds - (clock.monotonic() - start)
    times = interleaved_timing.alternate(
        [functools.partial(pair.run, number) for number in (0, 1)],
        report,
        runs,
        warmup if max_profiled_runs is None else 0,
        seconds=remaining,
        prepare=pair.prepare,
    )
    return pair.collect_profile(times)


class _SessionPair:
    """A session without the profiler and one with it, for as long as both are timed.

    The profiler keeps about three kilobytes of each kernel that ran, until its session ends, and can neither be emptied
    before nor begin again (ONNX Runtime 1.31). So where ``max_profiled_runs`` is no None, its session is made anew
    after so many runs, and there is one of both at a time, whose first run is not timed.
    """

    def __init__(
        self,
        specs: tuple[SessionSpec, SessionSpec],
        batch: Mapping[str, NDArray[Any]],
        max_profiled_runs: int | None,
    ) -> None:
        self._specs, self._batch, self._max_profiled_runs = specs, dict(batch), max_profiled_runs
        self._sessions = [None if max_profiled_runs else _create_session(spec) for spec in specs]
        self._profiled_runs = 0
        self._kernels: dict[str, NodeRuns] = {}
        self._untimed = [0, 0]

    def prepare(self, number: int) -> None:
        """Make a session that is not there, or whose profiler keeps what it may."""
        if self._profiled_runs == self._max_profiled_runs:
            self._end(1)
        if self._sessions[number] is None:
            self._end(1)
            self._sessions[number] = _create_session(self._specs[number])
            self.run(number)
            self._untimed[number] += 1

    def run(self, number: int) -> None:
        """Run the first or the second."""
        _run(self._sessions[number], None, self._batch)
        self._profiled_runs += number

    def collect_profile(
        self, times: interleaved_timing.Times
    ) -> tuple[interleaved_timing.Times, Mapping[str, NodeRuns]]:
        """The times of both, and what the profiler told of those of its runs that were timed."""
        if self._max_profiled_runs is None:
            self._end(times.warmups[1])
            return times, self._kernels
        self._end(1)
        return times._replace(warmups=tuple(self._untimed)), self._kernels

    def _end(self, untimed_runs: int) -> None:
        """End the session that is there, and take what its profiler told but of its first runs."""
        profiled_session = self._sessions[1]
        self._sessions, self._profiled_runs = [None, None], 0
        if profiled_session is not None:
            for name, kernel in _end_profiling(profiled_session).items():
                self._kernels.setdefault(name, dataclasses.replace(kernel, milliseconds=array.array("d")))
                self._kernels[name].milliseconds.extend(kernel.milliseconds[untimed_runs:])
        del profiled_session
        free_memory()


def _end_profiling(session: Any) -> dict[str, NodeRuns]:
    """What the profiler of a session told, which ends with it."""
    file = Path(session.end_profiling())
    try:
        return optimized.collect_kernel_times(
            optimized.read_events(file, names_escaped=providers.parse_release() >= _ESCAPING)
        )
    finally:
        file.unlink(missing_ok=True)


def create_session_options(spec: SessionSpec) -> Any:
    """ONNX Runtime's settings of an order."""
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
    if spec.saved:
        options.optimized_model_filepath = spec.saved
    if spec.profile:
        options.enable_profiling = True
        options.profile_file_prefix = spec.profile
    return options


def _create_session(spec: SessionSpec) -> Any:
    return create_session(spec, create_session_options(spec))


def create_session(spec: SessionSpec, options: Any) -> Any:
    """A session in this process.

    Raises:
        BuildError: ONNX Runtime refuses the model.
        Unavailable: the provider cannot start.
    """
    try:
        return providers.create_session(
            spec.data,
            options,
            spec.provider,
            spec.provider_options,
            spec.target,
            disabled_optimizers=spec.without,
        )
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


def _run(session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
    with translate_errors():
        result: list[Any] = session.run(names, feed)
    return result


def read(session: Any, names: Sequence[str], batch: Mapping[str, NDArray[Any]], options: Any) -> Outputs:
    """What a session in this process computes of a batch, without copying what comes out.

    Raises:
        RunError: ONNX Runtime fails on it.
    """
    ort = vendor.onnxruntime()

    feed = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}
    with translate_errors():
        ort_values = session.run_with_ort_values(list(names), feed, options)
        return dict(zip(names, map(_array, ort_values), strict=True))


def _array(value: Any) -> NDArray[Any]:
    """A tensor as an array, in the same memory where NumPy knows its type and ONNX Runtime (after 1.24) offers it."""
    try:
        array: NDArray[Any] = np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        array = value.numpy()
    return array


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """A run, whose failure is told in words; raises ``RunError`` where ONNX Runtime fails on the inputs."""
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


def free_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it; else a process seems to need it still."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
