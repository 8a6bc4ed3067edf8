"""Vendor calls in a child process with a large stack, a time limit and a memory limit: both sides of it.

A compiler may crash, hang or eat the machine; the notebook that asked for it must live on. The child sends pickles over
its standard output, log records of ``rtlab`` among them, which the parent's loggers handle; what the vendor prints goes
to standard error and is kept for the error's details. The child imports this module for every build, so it needs
neither ONNX nor NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import mmap
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
from typing import IO, TYPE_CHECKING, Any, TypeVar

from rtlab.core.progress import check
from rtlab.errors import (
    UNCONFINE,
    BackendError,
    BuildError,
    RunError,
    Unavailable,
    describe_memory_limit,
    is_out_of_memory,
)

if TYPE_CHECKING:
    from rtlab.core.protocols import Limits, Progress

P = TypeVar("P")
R = TypeVar("R")
_LOG = logging.getLogger(__name__)
#: The logger whose level children take over, and whose records they send.
_ROOT_LOG = logging.getLogger("rtlab")

#: Python looks for modules in the current folder first, where ``-c`` is given: nothing is imported before that is gone.
_START = (
    "import sys; sys.path[:], sys.argv[1:] = sys.argv[1:], []; "
    "from rtlab.backends.workers.process import serve; serve()"
)
#: Seconds between two looks at the clock, the memory and the user, and between two reports of a child.
_TICK = 0.05
#: What programs ask for the folder of temporary files.
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
#: Bytes from which arrays go through a file, and what each is aligned to there.
_LARGE, _ALIGNED = 1 << 20, 64
#: Bytes of weights from which memory for a work on them is looked for before it begins.
_REQUIRED = 1 << 29


@dataclasses.dataclass(frozen=True)
class ChildWork:
    """What a child does, in the words of an error of kind ``failure``, for a crash or a limit that is passed.

    ``time_hint`` and ``memory_hint`` are what helps against the limits of time and of memory, ``retry_hint`` after a
    crash.
    """

    failure: type[BackendError]
    activity: str
    program: str
    time_hint: str
    memory_hint: str
    retry_hint: str


BUILDING = ChildWork(
    BuildError, "the build", "the compiler", "build a smaller part of the model", "Build a smaller model",
    "The model is likely to contain something that it cannot digest; build parts of it to find out which, or choose "
    'backend="onnxruntime".',
)  # fmt: skip
RUNNING = ChildWork(
    RunError, "the run", "the process that runs the engine", "ask for fewer inferences", "Run smaller batches",
    'Run it again; if it crashes again, build the engine anew, or choose backend="onnxruntime".',
)  # fmt: skip
INSTALLING = ChildWork(
    Unavailable, "the installation", "pip", "try again where the network is faster", "Give the wheels in a folder",
    "Try again.",
)  # fmt: skip


class Bounds:
    """What a call, or several in a row, may take from now on.

    Args:
        error_prefix: How an error begins, such as ``Backend "tensorrt-rtx" cannot build "fp16"``.
        work: What it is, for the words of errors.
        limits: Seconds, and bytes by which a process may grow, which are never more than those that are free.
        progress: Gets the reports of a child, and is asked whether to stop.
    """

    def __init__(self, error_prefix: str, work: ChildWork, limits: Limits, progress: Progress) -> None:
        self.error_prefix, self.work, self.limits, self.progress = error_prefix, work, limits, progress
        self._deadline = time.monotonic() + limits.seconds
        self._most_bytes = 0

    @property
    def activity(self) -> str:
        """What it is that a user stops."""
        if self.error_prefix.startswith("Backend"):
            return self.work.activity
        return self.error_prefix[:1].lower() + self.error_prefix[1:]

    def require_memory(self, weight_bytes: int, factor: float) -> str:
        """What memory a work on large weights takes, ``factor`` times as much as they, in words; empty for small ones.

        Raises:
            BackendError: less is there; of the kind of the work.
        """
        import psutil

        if weight_bytes < _REQUIRED:
            return ""
        granted = min(self.limits.memory, int(psutil.virtual_memory().available))
        words = (
            f"about {factor * weight_bytes / 2**30:.1f} GiB of memory, {factor:.2g} times its weights of "
            f"{weight_bytes / 2**30:.2f} GiB"
        )
        if factor * weight_bytes > granted:
            raise self.work.failure(
                f"{self.error_prefix}: {self.work.activity} takes {words}, and {granted / 2**30:.1f} GiB are free or "
                f"granted by rtlab.Limits(memory=...), so that it is not begun. {self.work.memory_hint}, or take "
                "another machine."
            )
        return f"{self.work.activity} takes {words}; {granted / 2**30:.1f} GiB are free or granted"

    def check(self, pid: int | None = None) -> None:
        """Look at the user, the clock and the memory of a process.

        Raises:
            Cancelled: ``progress`` asked to stop.
            BackendError: a limit is passed; of the kind of the work.
        """
        import psutil

        check(self.progress, self.activity)
        if time.monotonic() > self._deadline:
            raise self.work.failure(
                f"{self.error_prefix}: it was not finished after {self.limits.seconds:.3g} s, which is the limit. "
                f"Raise it with limits=rtlab.Limits(seconds=...), or {self.work.time_hint}."
            )
        used = _measure_memory(pid)
        free = int(psutil.virtual_memory().available)
        self._most_bytes = self._most_bytes or used + min(self.limits.memory, free)
        if used > self._most_bytes:
            raise self.work.failure(
                f"{self.error_prefix}: it took {used / 2**30:.1f} GiB of memory, and {self._most_bytes / 2**30:.1f} "
                f"GiB were free or granted by rtlab.Limits(memory=...). {self.work.memory_hint}, or another machine."
            )


def _measure_memory(pid: int | None) -> int:
    """Bytes of memory that a process takes, this one by default; 0 where it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def call(function: Callable[[P, Any], R], payload: P, bounds: Bounds, path: Sequence[str] = ()) -> R:
    """Call ``function(payload, report)`` in a child process of its own: see ``ChildProcess``."""
    with contextlib.closing(ChildProcess(bounds.limits.stack, path=path)) as child:
        return child.call(function, payload, bounds)


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

    After a crash, a passed limit or a cancelled call the child is gone: ``alive`` is false then.

    Args:
        stack: Bytes of the stack of its thread.
        path: Folders in which it looks for modules first, such as that of another release of a compiler.
        preload: Called at once in the child; may fail.
    """

    def __init__(
        self, stack: int, *, path: Sequence[str] = (), preload: Callable[[], object] | None = None
    ) -> None:
        #: What takes results that are published, by their key; others are dropped.
        self.receivers: dict[int, Callable[[Any], object]] = {}
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
        )
        self._end = weakref.finalize(self, _end, self._child, self._stderr, temp_folder)
        threading.Thread(target=_receive, args=(self._child, self._messages), daemon=True).start()
        _LOG.debug("child %d started", self._child.pid)
        # So little goes into the pipe whether or not anybody reads it yet.
        _send(self._child, (stack, pickle.dumps(preload)))

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
        """End the child, whatever it does; so does dropping the object."""
        self._end()

    def detach(self) -> None:
        """Leave the child alone: it is that of another process, of which this one is a fork."""
        self._end.detach()

    def call(self, function: Callable[[P, Any], R], payload: P, bounds: Bounds) -> R:
        """Call ``function(payload, report)``, a function of a module, in the child and return its result.

        Raises:
            BackendError: the child crashed or passed a limit, of the kind of ``bounds.work``.
            Cancelled: the user asked to stop; the child is ended at once.
            RtlabError: whatever the function itself raised.
        """
        while not self._lock.acquire(timeout=_TICK):
            check(bounds.progress, bounds.activity)
        try:
            check(bounds.progress, bounds.activity)
            parts = (function, payload, _ROOT_LOG.getEffectiveLevel())
            threading.Thread(target=_send, args=(self._child, parts), daemon=True).start()
            try:
                kind, answer = self._await_answer(bounds)
            except BaseException:
                self.close()
                raise
        finally:
            self._lock.release()
        if kind == "error":
            # The child lives on: its function raised, as it may.
            raise _explain_memory_error(answer, bounds)
        result: R = answer
        return result

    def _await_answer(self, bounds: Bounds) -> tuple[str, Any]:
        while True:
            with contextlib.suppress(queue.Empty):
                kind, value = self._messages.get(timeout=_TICK)
                if kind in {"result", "error"}:
                    return kind, value
                if kind == "end":
                    code = _wait_exit_code(self._child)
                    self._stderr.seek(0)
                    stderr_text = self._stderr.read().decode("utf-8", "replace")
                    problem = _describe_crash(code, bounds.error_prefix, bounds.work)
                    raise bounds.work.failure(problem, details=stderr_text)
                if kind == "publish":
                    key, result = value
                    self.receivers.get(key, lambda _: None)(result)
                    # The call may end with this result: so its limits are checked after the next message.
                    continue
                getattr(bounds.progress, kind)(*value)
            bounds.check(self._child.pid)


def _end(child: subprocess.Popen[bytes], stderr: IO[bytes], temp_folder: Path) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, stderr):
        # The child may be gone, and with it what we wrote.
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    shutil.rmtree(temp_folder, ignore_errors=True)


def _wait_exit_code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child that has nothing more to say."""
    try:
        return child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _explain_memory_error(error: BaseException, bounds: Bounds) -> BaseException:
    """An error of a child; where memory was refused, one that names the limit."""
    if not is_out_of_memory(error):
        return error
    details = "\n".join(filter(None, (str(error), getattr(error, "details", ""))))
    return bounds.work.failure(
        f"{bounds.error_prefix}: there is not enough memory: {describe_memory_limit()}. {UNCONFINE}",
        details=details,
    )


def _describe_crash(code: int, error_prefix: str, work: ChildWork) -> str:
    signals = {-int(s): s.name for s in signal.Signals}
    end = (
        f"ended with exit code {code}"
        if code >= 0
        else f"crashed with {signals.get(code, f'signal {-code}')}"
    )
    # A child that lacks room ends in any way, even before it can say a word.
    if limit := describe_memory_limit():
        return f"{error_prefix}: {work.program} {end} and no result, and {limit}. {UNCONFINE}"
    if code >= 0:
        end += " and no result, see the error's details"
    elif end.endswith("SIGKILL"):
        # The system ends so, without a word, whoever takes its last memory.
        end += ", as the system ends processes when it lacks memory"
    return f"{error_prefix}: {work.program} {end}. {work.retry_hint}"


def _send(child: subprocess.Popen[bytes], parts: tuple[object, ...]) -> None:
    pipe = child.stdin
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    # The child may have died first, or was closed; the receiver finds out.
    with contextlib.suppress(OSError, ValueError):
        for part in parts:
            pickle.dump(part, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        pipe.flush()


def _receive(child: subprocess.Popen[bytes], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
    pipe = child.stdout
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        while True:
            kind, value = _unpack(*pickle.load(pipe))  # noqa: S301 - from our own child
            if kind == "log":
                _handle_record(value)
            else:
                messages.put((kind, value))
    except Exception:  # noqa: BLE001 - the end of the stream, or a message that nothing here can read
        messages.put(("end", ()))


def _handle_record(record: logging.LogRecord) -> None:
    """Log a child's record as if it had been logged here; ``record.process`` is the child."""
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


# --- the child's side -------------------------------------------------------------------------------------------------


def _pack(message: tuple[str, object]) -> tuple[bytes, str, list[int]]:
    """A message as bytes; large arrays in it lie in a file of a name, one after the other with these sizes.

    A pipe takes as long as the run that computed them.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, 5, buffer_callback=buffers.append)
    sizes = [buffer.raw().nbytes for buffer in buffers]
    if sum(sizes) >= _LARGE and os.name == "posix":
        # Where the disk is full, the pipe takes it.
        with contextlib.suppress(OSError):
            number, path = tempfile.mkstemp()
            with os.fdopen(number, "wb") as file:
                for buffer, size in zip(buffers, sizes, strict=True):
                    file.write(buffer)
                    file.write(bytes(-size % _ALIGNED))
            return data, path, sizes
    return pickle.dumps(message, 5), "", []


def _unpack(data: bytes, path: str, sizes: list[int]) -> Any:
    """The message of ``_pack``; its arrays lie in memory that is mapped for as long as somebody has one of them."""
    if not path:
        return pickle.loads(data)  # noqa: S301 - from our own child
    with Path(path).open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    Path(path).unlink()
    buffers, start = [], 0
    for size in sizes:
        buffers.append(content[start : start + size])
        start += size + -size % _ALIGNED
    return pickle.loads(data, buffers=buffers)  # noqa: S301 - from our own child


class _Report:
    """Sends phases to the parent at once, and steps now and then: a large network reports thousands of them."""

    def __init__(self, send: Callable[[str, object], None]) -> None:
        self._send, self._steps, self._last = send, 0, 0.0

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase of ``total`` steps."""
        self._steps = 0
        if time.monotonic() - self._last >= _TICK or total is None:
            self._last = time.monotonic()
            self._send("phase", (name, total))

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._steps += steps
        if time.monotonic() - self._last >= _TICK:
            self._last = time.monotonic()
            self.flush_steps()

    def flush_steps(self) -> None:
        """Send the steps that were not sent yet."""
        if self._steps:
            self._send("advance", (self._steps,))
            self._steps = 0

    def publish(self, key: int, result: object) -> None:
        """Send a result to the receiver of a key, which gets it during this call or a later one."""
        self._send("publish", (key, result))

    def stopped(self) -> bool:
        """Never: the parent ends a call by ending the child."""
        return False


def serve() -> None:
    """The child's side: do each call that arrives, on one thread with a large stack, until the parent is gone."""
    import logging.handlers

    stack = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    preload = pickle.load(sys.stdin.buffer)  # noqa: S301 - the same
    # The vendor may print: keep the real standard output for our messages and give it standard error instead.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(kind: str, value: object) -> None:
        message = _pack((kind, value))
        with lock:
            pickle.dump(message, out)
            out.flush()

    class Forward(logging.handlers.QueueHandler):
        def enqueue(self, record: logging.LogRecord) -> None:
            send("log", record)

    _ROOT_LOG.addHandler(Forward(queue.SimpleQueue()))
    _ROOT_LOG.propagate = False
    calls: queue.SimpleQueue[tuple[Callable[[Any, Any], object], object, int]] = queue.SimpleQueue()

    def work() -> None:
        # What is missing is missed by the call that needs it.
        with contextlib.suppress(Exception):
            if (initialize := pickle.loads(preload)) is not None:  # noqa: S301 - the same
                initialize()
        while True:
            function, payload, level = calls.get()
            _ROOT_LOG.setLevel(level)
            try:
                report = _Report(send)
                result = function(payload, report)
                report.flush_steps()
                send("result", result)
                # What it holds, such as the weights of a model, must not wait for the next call.
                del payload, result
            except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
                try:
                    send("error", error)
                except Exception:  # noqa: BLE001 - not every exception can be pickled
                    words = f"The child process failed: {error}. See the details."
                    send("error", BackendError(words, details=repr(error)))

    # A chain of thousands of nodes makes the compiler recurse deeper than the usual 8 MiB of stack allow.
    threading.stack_size(stack)
    threading.Thread(target=work, daemon=True).start()
    # Reading on while a call is at work, we learn of the parent's end at once: its side of the pipe closes then.
    with contextlib.suppress(EOFError):
        while True:
            function = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
            payload = pickle.load(sys.stdin.buffer)  # noqa: S301 - the same
            calls.put((function, payload, pickle.load(sys.stdin.buffer)))  # noqa: S301 - the same
    # The vendor's destructors may crash at exit, after the result was sent.
    os._exit(0)
