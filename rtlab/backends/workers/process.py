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

from rtlab.core.progress import check
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import (
    UNCONFINE,
    BackendError,
    BuildError,
    RunError,
    Unavailable,
    describe_memory_limit,
    is_out_of_memory,
)

P = TypeVar("P")
R = TypeVar("R")

#: Python looks for modules in the current folder first, where ``-c`` is given: nothing is imported before that is gone.
_START = (
    "import sys; sys.path[:], sys.argv[1:] = sys.argv[1:], []; "
    "from rtlab.backends.workers.serve import serve; serve()"
)
_TICK = 0.05
#: Variables that change all the time, and that no library reads.
_VOLATILE_VARIABLES = frozenset({"PYTEST_CURRENT_TEST"})
#: What programs ask for the folder of temporary files.
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


@dataclasses.dataclass(frozen=True)
class ChildWork:
    """What a child does, in the words of an error when it crashes or passes a limit; which of ``failure`` it is.

    ``time_hint`` and ``memory_hint`` are what helps against the limits of time and of memory, ``retry_hint`` after a
    crash. Of ``limit_to_free_memory`` work, the memory that nobody else takes is a limit too.
    """

    failure: type[BackendError]
    activity: str
    program: str
    process: str
    time_hint: str
    memory_hint: str
    retry_hint: str
    limit_to_free_memory: bool = False


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
    """Limits of a call, or of several together, which end at ``deadline`` of the monotonic clock."""

    error_prefix: str
    work: ChildWork
    limits: Limits
    deadline: float

    @classmethod
    def of(cls, error_prefix: str, work: ChildWork, limits: Limits) -> Bounds:
        """The bounds of what begins now."""
        return cls(error_prefix, work, limits, time.monotonic() + limits.seconds)

    @property
    def activity(self) -> str:
        """What it is that a user stops."""
        if self.error_prefix.startswith("Backend"):
            return self.work.activity
        return self.error_prefix[:1].lower() + self.error_prefix[1:]

    def compute_memory_limit(self, process: Any) -> int:
        """Bytes that a process may have, as ``psutil`` tells of it at the beginning."""
        import psutil

        if not self.work.limit_to_free_memory:
            return self.limits.memory
        return measure_memory(process) + min(self.limits.memory, int(psutil.virtual_memory().available))

    def check(self, used: int = 0, memory_limit: int = 0) -> None:
        """Raise the error of a limit that is passed; of memory ``memory_limit`` bytes are granted."""
        work, limit_gib = self.work, self.limits.memory / 2**30
        if time.monotonic() > self.deadline:
            raise work.failure(
                f"{self.error_prefix}: it was not finished after {self.limits.seconds:.3g} s, which is the limit. "
                f"Raise it with limits=rtlab.Limits(seconds=...), or {work.time_hint}."
            )
        if used > memory_limit and work.limit_to_free_memory:
            raise work.failure(
                f"{self.error_prefix}: it took all the memory that is free, or that rtlab.Limits(memory=...) grants "
                f"({limit_gib:.3g} GiB). {work.memory_hint[:1].upper()}{work.memory_hint[1:]}, or another machine."
            )
        if used > memory_limit:
            raise work.failure(
                f"{self.error_prefix}: it took {used / 2**30:.1f} GiB of memory, and the limit is {limit_gib:.1f} GiB. "
                f"Raise it with limits=rtlab.Limits(memory=...), or {work.memory_hint}."
            )


def copy_environment() -> dict[str, str]:
    """The variables that a child started now would have; one that waits was started with those of then."""
    return {name: value for name, value in os.environ.items() if name not in _VOLATILE_VARIABLES}


def call(
    function: Callable[[P, Any], R],
    payload: P,
    *,
    limits: Limits,
    progress: Progress,
    error_prefix: str,
    path: Sequence[str] = (),
    work: ChildWork = BUILDING,
) -> R:
    """Call ``function(payload, report)``, a function of a module, in a child process of its own and return its result.

    ``error_prefix`` opens error messages, such as ``Backend "tensorrt-rtx" cannot build "fp16"``. ``path`` and ``work``
    are those of ``ChildProcess``.

    Raises:
        BuildError: the child crashed, or passed a limit; the message names the signal or the limit.
        Cancelled: ``progress`` asked to stop; the child is ended at once.
        RtlabError: whatever the function itself raised.
    """
    with contextlib.closing(ChildProcess(limits, work=work, path=path)) as session:
        return session.call(function, payload, progress=progress, error_prefix=error_prefix)


def build_import_path() -> list[str]:
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
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        # What a vendor leaves in the folder for temporary files goes with the child, however that ends.
        temp_folder = Path(tempfile.mkdtemp(prefix="rtlab-"))
        self._child = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", _START, *path, *build_import_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # A fault handler of the parent's environment would print over the signal that we name ourselves.
            env={**os.environ, "PYTHONFAULTHANDLER": "", **dict.fromkeys(_TEMPORARY, str(temp_folder))},
            # Interrupting the kernel signals its whole group; the build is ended by us, not by accident.
            start_new_session=os.name == "posix",
            pass_fds=files,
        )
        self._end = weakref.finalize(self, _end, self._child, self._stderr, temp_folder)
        self._process = find_process(self._child.pid)
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

    def detach(self) -> None:
        """Leave the child alone: it is that of another process, of which this one is a fork."""
        self._end.detach()

    def call(
        self,
        function: Callable[[P, Any], R],
        payload: P,
        *,
        progress: Progress,
        error_prefix: str,
        seconds: float | None = None,
    ) -> R:
        """Call ``function(payload, report)`` in the child; errors are those of the module's ``call``.

        The limit of time is ``seconds`` where it is given.
        """
        limits = self._limits if seconds is None else dataclasses.replace(self._limits, seconds=seconds)
        return self.execute(function, payload, progress, Bounds.of(error_prefix, self._work, limits))

    def execute(self, function: Callable[[P, Any], R], payload: P, progress: Progress, bounds: Bounds) -> R:
        """The same within bounds of the caller's."""
        while not self._lock.acquire(timeout=_TICK):
            check(progress, bounds.activity)
        try:
            check(progress, bounds.activity)
            threading.Thread(target=_send, args=(self._child, (function, payload)), daemon=True).start()
            try:
                answer: R = self._await_answer(progress, bounds)
            except _ChildError as child_error:
                # The child lives on: its function raised, as it may.
                raise _explain_memory_error(child_error.error, bounds) from None
            except BaseException:
                self.close()
                raise
            return answer
        finally:
            self._lock.release()

    def _await_answer(self, progress: Progress, bounds: Bounds) -> Any:
        memory_limit = 0
        while True:
            try:
                kind, value = self._messages.get(timeout=_TICK)
            except queue.Empty:
                kind, value = "", None
            if kind == "result":
                return value
            if kind == "error":
                raise _ChildError(value)
            if kind == "phase":
                progress.phase(*value)
            elif kind == "advance":
                progress.advance(value)
            elif kind == "end":
                code = _wait_exit_code(self._child)
                self._stderr.seek(0)
                stderr_text = self._stderr.read().decode("utf-8", "replace")
                problem = _describe_crash(code, bounds.error_prefix, bounds.work)
                raise bounds.work.failure(problem, details=stderr_text)
            check(progress, bounds.activity)
            # A brief call is over before it could take much.
            memory_limit = memory_limit or bounds.compute_memory_limit(self._process)
            bounds.check(measure_memory(self._process), memory_limit)


def _end(child: subprocess.Popen[bytes], stderr: IO[bytes], temp_folder: Path) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, stderr):
        if pipe is not None:
            # The child may be gone, and with it what we wrote.
            with contextlib.suppress(OSError):
                pipe.close()
    shutil.rmtree(temp_folder, ignore_errors=True)


class _ChildError(Exception):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _wait_exit_code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child that has nothing more to say."""
    try:
        return child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def find_process(pid: int | None = None) -> Any:
    """A process, this one by default, as ``psutil`` tells of it; None where it is gone."""
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def measure_memory(process: Any) -> int:
    """Bytes of memory that a process takes; 0 where it is gone."""
    import psutil

    if process is None:
        return 0
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _explain_memory_error(error: BaseException, bounds: Bounds) -> BaseException:
    """An error of a child; in words of its own where there was too little room for it."""
    if not is_out_of_memory(error):
        return error
    details = "\n".join(filter(None, (str(error), getattr(error, "details", ""))))
    return bounds.work.failure(
        f"{bounds.error_prefix}: there is not enough memory: {describe_memory_limit()}. {UNCONFINE}",
        details=details,
    )


def _describe_crash(code: int, error_prefix: str, work: ChildWork) -> str:
    # A child that lacks room ends in any way, even before it can say a word.
    if limit := describe_memory_limit():
        exit_text = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        return f"{error_prefix}: {work.process} ended {exit_text} and no result, and {limit}. {UNCONFINE}"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        # The system ends so, without a word, whoever takes its last memory.
        oom_hint = ", as the system ends processes when it lacks memory" if name == "SIGKILL" else ""
        return f"{error_prefix}: {work.program} crashed with {name}{oom_hint}. {work.retry_hint}"
    return (
        f"{error_prefix}: {work.process} ended with exit code {code} and no result. "
        f"See the error's details. {work.retry_hint}"
    )


def _send(child: subprocess.Popen[bytes], parts: tuple[object, ...]) -> None:
    pipe = child.stdin
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    # The child may have died first, or was closed; the receiver tells.
    with contextlib.suppress(OSError, ValueError):
        for part in parts:
            pickle.dump(part, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        pipe.flush()


def _receive(child: subprocess.Popen[bytes], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
    pipe = child.stdout
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        while True:
            messages.put(pickle.load(pipe))  # noqa: S301 - from our own child
    except Exception:  # noqa: BLE001 - the end of the stream, or a message that nothing here can read
        messages.put(("end", None))
