"""Runs vendor calls in a child process with a large stack, a time limit and a memory limit.

A compiler may crash, hang or eat the machine; the notebook that asked for it must live on. The child talks over
its standard output in pickles; what the vendor prints goes to standard error and is kept for the error's details.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import IO, Any

from rtlab.core.progress import check
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, BuildError

_START = (
    "import sys, pickle; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from rtlab.backends.live.serve import serve; serve()"
)
_TICK = 0.05


def call(target: str, payload: object, *, limits: Limits, progress: Progress, doing: str) -> Any:
    """Call ``module:function(payload, report)`` in a child process of its own and return its result.

    ``doing`` opens error messages, such as ``Backend "tensorrt-rtx" cannot build "fp16"``.

    Raises:
        BuildError: the child crashed, or passed a limit; the message names the signal or the limit.
        Cancelled: ``progress`` asked to stop; the child is ended at once.
        RtlabError: whatever the function itself raised.
    """
    with contextlib.closing(Session(limits)) as session:
        return session.call(target, payload, progress=progress, doing=doing)


class Session:
    """A child process that answers calls one after the other, and keeps in its modules what they leave there.

    ``failure`` is the kind of error for a crash or a passed limit. After either, and after a cancelled call, the
    child is gone: ``alive`` is false then. Limits of time count for each call.
    """

    def __init__(self, limits: Limits, *, failure: type[BackendError] = BuildError) -> None:
        self._limits, self._failure = limits, failure
        self._lock = threading.Lock()
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._spoken = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._child = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._spoken,
            # A fault handler of the parent's environment would print over the signal that we name ourselves.
            env={**os.environ, "PYTHONFAULTHANDLER": ""},
            # Interrupting the kernel signals its whole group; the build is ended by us, not by accident.
            start_new_session=os.name == "posix",
        )
        self._end = weakref.finalize(self, _end, self._child, self._spoken)
        self._process = _process(self._child.pid)
        threading.Thread(target=_receive, args=(self._child, self._messages), daemon=True).start()
        self._parts: tuple[object, ...] = (sys.path, limits.stack)

    @property
    def alive(self) -> bool:
        """Whether the child can answer."""
        return self._child.poll() is None

    def close(self) -> None:
        """End the child, whatever it does; so does dropping the session."""
        self._end()

    def call(
        self, target: str, payload: object, *, progress: Progress, doing: str, seconds: float | None = None
    ) -> Any:
        """Call ``module:function(payload, report)`` in the child; errors are those of the module's ``call``.

        The limit of time is ``seconds`` where it is given.
        """
        with self._lock:
            parts, self._parts = (*self._parts, target, payload), ()
            threading.Thread(target=_send, args=(self._child, parts), daemon=True).start()
            try:
                return self._attend(progress, doing, self._limits.seconds if seconds is None else seconds)
            except _Told as told:
                # The child lives on: its function raised, as it may.
                raise told.error from None
            except BaseException:
                self.close()
                raise

    def _attend(self, progress: Progress, doing: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
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
                raise self._failure(_crash(code, doing, built=self._failure is BuildError), details=words)
            what = "the build" if self._failure is BuildError else "the run"
            check(progress, what if doing.startswith("Backend") else doing[:1].lower() + doing[1:])
            self._check_limits(deadline, seconds, doing)

    def _check_limits(self, deadline: float, seconds: float, doing: str) -> None:
        built = self._failure is BuildError
        if time.monotonic() > deadline:
            less = "build a smaller part of the model" if built else "ask for fewer inferences"
            raise self._failure(
                f"{doing}: it was not finished after {seconds:.3g} s, which is the limit. "
                f"Raise it with limits=rtlab.Limits(seconds=...), or {less}."
            )
        used = _memory(self._process)
        if used > self._limits.memory:
            less = "build a smaller model" if built else "run smaller batches"
            raise self._failure(
                f"{doing}: it took {used / 2**30:.1f} GiB of memory, and the limit is "
                f"{self._limits.memory / 2**30:.1f} GiB. Raise it with limits=rtlab.Limits(memory=...), or {less}."
            )


def _end(child: subprocess.Popen[bytes], spoken: IO[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, spoken):
        if pipe is not None:
            # The child may be gone, and with it what we wrote.
            with contextlib.suppress(OSError):
                pipe.close()


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


def _process(pid: int) -> Any:
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _memory(process: Any) -> int:
    import psutil

    if process is None:
        return 0
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _crash(code: int, doing: str, *, built: bool) -> str:
    who = "the compiler" if built else "the process that runs the engine"
    next_ = (
        "The model is likely to contain something that it cannot digest; build parts of it to find out which"
        if built
        else "Run it again; if it crashes again, build the engine anew"
    )
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f'{doing}: {who} crashed with {name}. {next_}, or choose backend="onnxruntime".'
    whose = "the compiler's process" if built else who
    return (
        f"{doing}: {whose} ended with exit code {code} and no result. "
        'See the error\'s details, or choose backend="onnxruntime".'
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
