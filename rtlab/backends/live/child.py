"""Runs vendor calls in a child process with a large stack, a time limit and a memory limit.

A compiler may crash, hang or eat the machine; the notebook that asked for it must live on. The child talks over
its standard output in pickles; what the vendor prints goes to standard error and is kept for the error's details.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from rtlab.core import scratch
from rtlab.core.progress import check
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import UNCONFINE, BackendError, BuildError, RunError, Unavailable, confined, starved

P = TypeVar("P")
R = TypeVar("R")

#: Python looks for modules in the current folder first, where ``-c`` is given: nothing is imported before that is gone.
_START = (
    "import sys; sys.path[:], sys.argv[1:] = sys.argv[1:], []; "
    "from rtlab.backends.live.serve import serve; serve()"
)
_TICK = 0.05
#: Variables that change all the time, and that no library reads.
_PASSING = frozenset({"PYTEST_CURRENT_TEST"})
#: What programs ask for the folder of temporary files.
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


@dataclasses.dataclass(frozen=True)
class ChildWork:
    """What a child does, in the words of an error when it crashes or passes a limit; which of ``failure`` it is.

    ``quicker`` and ``smaller`` are what helps against the limits of time and of memory, ``again`` after a crash. Of
    ``free`` work, the memory that nobody else takes is a limit too.
    """

    failure: type[BackendError]
    called: str
    who: str
    process: str
    quicker: str
    smaller: str
    again: str
    free: bool = False


BUILDING = ChildWork(
    BuildError, "the build", "the compiler", "the compiler's process",
    "build a smaller part of the model", "build a smaller model",
    "The model is likely to contain something that it cannot digest; build parts of it to find out which, or choose "
    'backend="onnxruntime".',
)  # fmt: skip
RUNNING = ChildWork(
    RunError, "the run", "the process that runs the engine", "the process that runs the engine",
    "ask for fewer inferences", "run smaller batches",
    'Run it again; if it crashes again, build the engine anew, or choose backend="onnxruntime".',
)  # fmt: skip
INSTALLING = ChildWork(
    Unavailable, "the installation", "pip", "pip's process",
    "try again where the network is faster", "give the wheels in a folder", "Try again.",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Limits of a call, or of several together, which end at ``until`` of the monotonic clock."""

    doing: str
    work: ChildWork
    limits: Limits
    until: float

    @classmethod
    def of(cls, doing: str, work: ChildWork, limits: Limits) -> Bounds:
        """The bounds of what begins now."""
        return cls(doing, work, limits, time.monotonic() + limits.seconds)

    @property
    def what(self) -> str:
        """What it is that a user stops."""
        return (
            self.work.called if self.doing.startswith("Backend") else self.doing[:1].lower() + self.doing[1:]
        )

    def granted(self, process: Any) -> int:
        """Bytes that a process may have, as ``psutil`` tells of it at the beginning."""
        import psutil

        limit = self.limits.memory
        return memory(process) + min(limit, psutil.virtual_memory().available) if self.work.free else limit

    def check(self, used: int = 0, most: int = 0) -> None:
        """Raise the error of a limit that is passed; of memory ``most`` bytes are granted."""
        work, granted = self.work, self.limits.memory / 2**30
        if time.monotonic() > self.until:
            raise work.failure(
                f"{self.doing}: it was not finished after {self.limits.seconds:.3g} s, which is the limit. "
                f"Raise it with limits=rtlab.Limits(seconds=...), or {work.quicker}."
            )
        if used > most and work.free:
            raise work.failure(
                f"{self.doing}: it took all the memory that is free, or that rtlab.Limits(memory=...) grants "
                f"({granted:.3g} GiB). {work.smaller[:1].upper()}{work.smaller[1:]}, or another machine."
            )
        if used > most:
            raise work.failure(
                f"{self.doing}: it took {used / 2**30:.1f} GiB of memory, and the limit is {granted:.1f} GiB. "
                f"Raise it with limits=rtlab.Limits(memory=...), or {work.smaller}."
            )


def environment() -> dict[str, str]:
    """The variables that a child started now would have; one that waits was started with those of then."""
    return {name: value for name, value in os.environ.items() if name not in _PASSING}


def call(
    function: Callable[[P, Any], R],
    payload: P,
    *,
    limits: Limits,
    progress: Progress,
    doing: str,
    path: Sequence[str] = (),
    work: ChildWork = BUILDING,
) -> R:
    """Call ``function(payload, report)``, a function of a module, in a child process of its own and return its result.

    ``doing`` opens error messages, such as ``Backend "tensorrt-rtx" cannot build "fp16"``. ``path`` and ``work`` are
    those of ``ChildProcess``.

    Raises:
        BuildError: the child crashed, or passed a limit; the message names the signal or the limit.
        Cancelled: ``progress`` asked to stop; the child is ended at once.
        RtlabError: whatever the function itself raised.
    """
    with contextlib.closing(ChildProcess(limits, work=work, path=path)) as session:
        return session.call(function, payload, progress=progress, doing=doing)


def import_path() -> list[str]:
    """Where a child looks for modules: as this process does, but for the current folder and that of its script.

    A model may lie there beside a ``pickle.py`` that its author put there. rtlab itself is imported from where it was.
    """
    unsafe = {os.path.realpath(os.curdir)}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None:
        unsafe.add(str(Path(script).resolve().parent))
    # What runs with -m may lie among the installed packages, as a kernel's launcher does.
    unsafe -= {os.path.realpath(p) for p in sysconfig.get_paths().values()}
    home = str(Path(__file__).parents[3])
    folders = [p for p in sys.path if p and os.path.realpath(p) not in unsafe]
    # Last, where it is one of those: nothing in it is taken for a module of another's.
    return folders if home in folders else [*folders, home]


class ChildProcess:
    """A child process that answers calls one after the other, and keeps in its modules what they leave there.

    ``work`` tells the kind of error for a crash or a passed limit. After either, and after a cancelled call, the child
    is gone: ``alive`` is false then. Limits count for each call. ``first`` is called at once
    in it, and may fail; ``files`` are the numbers of open files that it inherits. ``path`` are the folders in which it
    looks for modules first, such as that of another release of a compiler.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        work: ChildWork = BUILDING,
        first: Callable[[], object] | None = None,
        files: Sequence[int] = (),
        path: Sequence[str] = (),
    ) -> None:
        self._limits, self._work = limits, work
        self._lock = threading.Lock()
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._spoken = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        # What a vendor leaves in the folder for temporary files goes with the child, however that ends.
        room = scratch.kept()
        self._child = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", _START, *path, *import_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._spoken,
            # A fault handler of the parent's environment would print over the signal that we name ourselves.
            env={**os.environ, "PYTHONFAULTHANDLER": "", **dict.fromkeys(_TEMPORARY, str(room))},
            # Interrupting the kernel signals its whole group; the build is ended by us, not by accident.
            start_new_session=os.name == "posix",
            pass_fds=files,
        )
        self._end = weakref.finalize(self, _end, self._child, self._spoken, room)
        self._process = running(self._child.pid)
        threading.Thread(target=_receive, args=(self._child, self._messages), daemon=True).start()
        # So little goes into the pipe whether or not anybody reads it yet.
        _send(self._child, (limits.stack, pickle.dumps(first)))

    @property
    def alive(self) -> bool:
        """Whether the child can answer."""
        return self._child.poll() is None

    @property
    def busy(self) -> bool:
        """Whether a call is at work."""
        return self._lock.locked()

    @property
    def pid(self) -> int:
        """The child's number."""
        return self._child.pid

    def close(self) -> None:
        """End the child, whatever it does; so does dropping the session."""
        self._end()

    def forget(self) -> None:
        """Leave the child alone: it is that of another process, of which this one is a fork."""
        self._end.detach()

    def call(
        self,
        function: Callable[[P, Any], R],
        payload: P,
        *,
        progress: Progress,
        doing: str,
        seconds: float | None = None,
    ) -> R:
        """Call ``function(payload, report)`` in the child; errors are those of the module's ``call``.

        The limit of time is ``seconds`` where it is given.
        """
        limits = self._limits if seconds is None else dataclasses.replace(self._limits, seconds=seconds)
        return self.do(function, payload, progress, Bounds.of(doing, self._work, limits))

    def do(self, function: Callable[[P, Any], R], payload: P, progress: Progress, bounds: Bounds) -> R:
        """The same within bounds of the caller's."""
        while not self._lock.acquire(timeout=_TICK):
            check(progress, bounds.what)
        try:
            check(progress, bounds.what)
            threading.Thread(target=_send, args=(self._child, (function, payload)), daemon=True).start()
            try:
                found: R = self._attend(progress, bounds)
            except _Told as told:
                # The child lives on: its function raised, as it may.
                raise _starved(told.error, bounds) from None
            except BaseException:
                self.close()
                raise
            return found
        finally:
            self._lock.release()

    def _attend(self, progress: Progress, bounds: Bounds) -> Any:
        most = 0
        while True:
            try:
                kind, value = self._messages.get(timeout=_TICK)
            except queue.Empty:
                kind, value = "", None
            if kind == "result":
                return value
            if kind == "error":
                raise _Told(value)
            if kind == "phase":
                progress.phase(*value)
            elif kind == "advance":
                progress.advance(value)
            elif kind == "end":
                code = _ended(self._child)
                self._spoken.seek(0)
                words = self._spoken.read().decode("utf-8", "replace")
                raise bounds.work.failure(_crash(code, bounds.doing, bounds.work), details=words)
            check(progress, bounds.what)
            # A brief call is over before it could take much.
            most = most or bounds.granted(self._process)
            bounds.check(memory(self._process), most)


def _end(child: subprocess.Popen[bytes], spoken: IO[bytes], room: Path) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, spoken):
        if pipe is not None:
            # The child may be gone, and with it what we wrote.
            with contextlib.suppress(OSError):
                pipe.close()
    shutil.rmtree(room, ignore_errors=True)


class _Told(Exception):  # noqa: N818 - carries an error from the child to its caller
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child that has nothing more to say."""
    try:
        return child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def running(pid: int | None = None) -> Any:
    """A process, this one by default, as ``psutil`` tells of it; None where it is gone."""
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def memory(process: Any) -> int:
    """Bytes of memory that a process takes; 0 where it is gone."""
    import psutil

    if process is None:
        return 0
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _starved(error: BaseException, bounds: Bounds) -> BaseException:
    """An error of a child; in words of its own where there was too little room for it."""
    if not starved(error):
        return error
    details = "\n".join(filter(None, (str(error), getattr(error, "details", ""))))
    return bounds.work.failure(
        f"{bounds.doing}: there is not enough memory: {confined()}. {UNCONFINE}", details=details
    )


def _crash(code: int, doing: str, work: ChildWork) -> str:
    # A child that lacks room ends in any way, even before it can say a word.
    if limit := confined():
        ended = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        return f"{doing}: {work.process} ended {ended} and no result, and {limit}. {UNCONFINE}"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        # The system ends so, without a word, whoever takes its last memory.
        killed = ", as the system ends processes when it lacks memory" if name == "SIGKILL" else ""
        return f"{doing}: {work.who} crashed with {name}{killed}. {work.again}"
    return (
        f"{doing}: {work.process} ended with exit code {code} and no result. "
        f"See the error's details. {work.again}"
    )


def _send(child: subprocess.Popen[bytes], parts: tuple[object, ...]) -> None:
    pipe = child.stdin
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        for part in parts:
            pickle.dump(part, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        pipe.flush()
    except (OSError, ValueError):  # the child died first, or was closed; the receiver tells
        pass


def _receive(child: subprocess.Popen[bytes], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
    pipe = child.stdout
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        while True:
            messages.put(pickle.load(pipe))  # noqa: S301 - from our own child
    except Exception:  # noqa: BLE001 - the end of the stream, or a message that nothing here can read
        messages.put(("end", None))
