"""ONNX Runtime at work, on the child's side of ``apart``: sessions that are made, kept, run and timed."""

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

from rtlab.backends import providers, vendor, watch
from rtlab.backends.files import optimized
from rtlab.backends.files.optimized import NodeRuns
from rtlab.backends.live.rooms import leave
from rtlab.backends.placement import Partition, parts
from rtlab.backends.providers import CPU, Provider
from rtlab.core.protocols import Progress
from rtlab.core.trace import Outputs
from rtlab.core.variant import Target
from rtlab.errors import BuildError, RtlabError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Settings of a session: its threads do not wait for more work, beside another one that runs in turn; and it tells
#: which provider takes which node.
IN_TURN = ("session.force_spinning_stop", "1")
PLACED = ("session.record_ep_graph_assignment_info", "1")
#: First release whose profiler writes names as JSON does.
_ESCAPING = (1, 31)
_CPU = Target("cpu")
_KEPT: dict[int, Any] = {}
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True)
class SessionOrder:
    """What a session is made of: a model, as bytes or by the path of its file, and ONNX Runtime's settings.

    ``doing`` begins the words of an error. ``saved`` is where the optimized graph is written, ``profile`` what the name
    of the profiler's file begins with; empty for neither. ``planned`` says whether memory is planned for all values at
    once. ``without`` names optimizers that are left out.
    """

    data: bytes | str = dataclasses.field(repr=False)
    doing: str
    threads: int
    level: Literal["basic", "all"] = "all"
    provider: Provider = CPU
    told: Mapping[str, str] = dataclasses.field(default_factory=dict)
    target: Target = _CPU
    entries: tuple[tuple[str, str], ...] = ()
    saved: str = ""
    profile: str = ""
    planned: bool = True
    without: tuple[str, ...] = ()


def ready() -> None:
    """Import what every call needs, before the first comes."""
    vendor.onnxruntime()


def optimize(order: SessionOrder, report: Progress) -> tuple[Partition, ...]:  # noqa: ARG001 - every call gets one
    """Make a session, which writes its graph where the order says so; which provider takes what, where it was asked."""
    made = session(order, settings(order))
    return parts(made) if PLACED in order.entries else ()


def keep(order: SessionOrder, report: Progress) -> tuple[int, tuple[str, ...]]:  # noqa: ARG001
    """Make a session and keep it: its number, and the names of its outputs."""
    made, number = session(order, settings(order)), next(_NUMBERS)
    _KEPT[number] = made
    if isinstance(order.data, str):
        # Of a large model, it took much to make.
        free_memory()
    return number, tuple(o.name for o in made.get_outputs())


def forget(numbers: Iterable[int], report: Progress) -> None:  # noqa: ARG001
    """End sessions that were kept."""
    for number in numbers:
        _KEPT.pop(number, None)


def rest(payload: None, report: Progress) -> None:  # noqa: ARG001
    """Give memory back before a while without work."""
    free_memory()


def run(
    payload: tuple[int, Sequence[str], Mapping[str, NDArray[Any]], int | None],
    report: Progress,  # noqa: ARG001
) -> list[Any]:
    """What a session that was kept computes of a batch, of each name, in a room of that number."""
    number, names, feed, room = payload
    return leave(room, _run(_KEPT[number], list(names), dict(feed)))


def time(
    payload: tuple[
        SessionOrder, SessionOrder, Mapping[str, NDArray[Any]], int, int, float | None, int | None
    ],
    report: Progress,
) -> tuple[watch.Times, Mapping[str, NodeRuns]]:
    """Time a session without instrumentation and one with it, in turns; the times, and what the profiler told.

    The last of the payload is how many runs the profiler may keep, the untimed one of each session among them; None for
    all.
    """
    plain, profiled, batch, runs, warmup, seconds, most = payload
    started = clock.monotonic()
    pair = (
        _TwoSessions((plain, profiled), batch) if most is None else _Sparing((plain, profiled), batch, most)
    )
    left = None if seconds is None else seconds - (clock.monotonic() - started)
    works = [functools.partial(pair.run, number) for number in (0, 1)]
    times = watch.alternate(
        works, report, runs, warmup if most is None else 0, seconds=left, ready=pair.ready
    )
    return pair.told(times)


class _TwoSessions:
    """A session without the profiler and one with it, for as long as both are timed."""

    def __init__(self, orders: tuple[SessionOrder, SessionOrder], batch: Mapping[str, NDArray[Any]]) -> None:
        self._batch = dict(batch)
        self._sessions = [session(order, settings(order)) for order in orders]

    def ready(self, number: int) -> None:
        """Make what a run needs."""

    def run(self, number: int) -> None:
        """Run the first or the second."""
        _run(self._sessions[number], None, self._batch)

    def told(self, times: watch.Times) -> tuple[watch.Times, Mapping[str, NodeRuns]]:
        """The times of both, and what the profiler told of those of its runs that were timed."""
        found = _profiled(self._sessions[1])
        for kernel in found.values():
            del kernel.taken[: times.warmups[1]]
        return times, found


class _Sparing(_TwoSessions):
    """The same for a graph of many nodes, of which the profiler keeps a few runs only.

    It keeps about three kilobytes of each kernel that ran, until its session ends, and can neither be emptied before
    nor begin again (ONNX Runtime 1.31). So the session is made anew after ``most`` runs, and there is one of both at a
    time. The first run of each is not timed.
    """

    def __init__(
        self, orders: tuple[SessionOrder, SessionOrder], batch: Mapping[str, NDArray[Any]], most: int
    ) -> None:
        self._orders, self._batch, self._most = orders, dict(batch), most
        self._sessions: list[Any] = [None, None]
        self._kept = 0
        self._found: dict[str, NodeRuns] = {}
        self._untimed = [0, 0]

    def ready(self, number: int) -> None:
        """Make a session that is not there, or whose profiler keeps what it may."""
        if self._kept == self._most:
            self._end()
        if self._sessions[number] is None:
            self._end()
            order = self._orders[number]
            self._sessions[number] = session(order, settings(order))
            self.run(number)
            self._untimed[number] += 1

    def run(self, number: int) -> None:
        """Run the first or the second."""
        super().run(number)
        self._kept += number

    def told(self, times: watch.Times) -> tuple[watch.Times, Mapping[str, NodeRuns]]:
        """The times of both, and what the profiler told of those of its runs that were timed."""
        self._end()
        return times._replace(warmups=tuple(self._untimed)), self._found

    def _end(self) -> None:
        """End the session that is there, and take what its profiler told."""
        profiled = self._sessions[1]
        self._sessions, self._kept = [None, None], 0
        if profiled is not None:
            for name, kernel in _profiled(profiled).items():
                self._found.setdefault(name, dataclasses.replace(kernel, taken=array.array("d")))
                self._found[name].taken.extend(kernel.taken[1:])
        del profiled
        free_memory()


def _profiled(session: Any) -> dict[str, NodeRuns]:
    """What the profiler of a session told, which ends with it."""
    file = Path(session.end_profiling())
    try:
        return optimized.kernels(optimized.written(file, escaped=providers.release() >= _ESCAPING))
    finally:
        file.unlink(missing_ok=True)


def settings(order: SessionOrder) -> Any:
    """ONNX Runtime's settings of an order."""
    ort = vendor.onnxruntime()

    options, levels = ort.SessionOptions(), ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_BASIC if order.level == "basic" else levels.ORT_ENABLE_ALL
    )
    options.intra_op_num_threads = order.threads
    options.log_severity_level = 4
    options.enable_mem_pattern = order.planned
    for name, value in order.entries:
        options.add_session_config_entry(name, value)
    if order.saved:
        options.optimized_model_filepath = order.saved
    if order.profile:
        options.enable_profiling = True
        options.profile_file_prefix = order.profile
    return options


def session(order: SessionOrder, options: Any) -> Any:
    """A session in this process.

    Raises:
        BuildError: ONNX Runtime refuses the model.
        Unavailable: the provider cannot start.
    """
    try:
        return providers.session(
            order.data, options, order.provider, order.told, order.target, without=order.without
        )
    except RtlabError:
        raise
    except Exception as error:
        if "serialization failed" in str(error):
            raise BuildError(
                f"{order.doing}: ONNX Runtime cannot write the graph that it made: the disk is full, or a file may not "
                "grow so large here (ulimit -f). Free some space, name a folder with more of it in TMPDIR, or raise "
                "the limit.",
                details=str(error),
            ) from error
        advice = (
            "Check that every operator has a CPU kernel for its types."
            if order.provider == CPU
            else f"Check the options and the driver of {order.provider.title}, and the types of the operators."
        )
        raise BuildError(
            f"{order.doing}: ONNX Runtime refuses the model: {_first_line(error)} {advice}",
            details=str(error),
        ) from error


def _run(session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
    with running():
        result: list[Any] = session.run(names, feed)
    return result


def read(session: Any, names: Sequence[str], batch: Mapping[str, NDArray[Any]], options: Any) -> Outputs:
    """What a session in this process computes of a batch, without copying what comes out.

    Raises:
        RunError: ONNX Runtime fails on it.
    """
    ort = vendor.onnxruntime()

    feed = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}
    with running():
        found = session.run_with_ort_values(list(names), feed, options)
        return dict(zip(names, map(_array, found), strict=True))


def _array(value: Any) -> NDArray[Any]:
    """A tensor as an array, in the same memory where NumPy knows its type and ONNX Runtime (after 1.24) offers it."""
    try:
        array: NDArray[Any] = np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        array = value.numpy()
    return array


@contextlib.contextmanager
def running() -> Iterator[None]:
    """A run, whose failure is told in words.

    Raises:
        RunError: ONNX Runtime fails on the inputs.
    """
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
