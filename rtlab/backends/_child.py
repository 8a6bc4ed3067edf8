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
from typing import IO, Any

from rtlab.core.progress import check
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BuildError

_START = (
    "import sys, pickle; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from rtlab.backends._serve import serve; serve()"
)
_TICK = 0.05


def call(target: str, payload: object, *, limits: Limits, progress: Progress, doing: str) -> Any:
    """Call ``module:function(payload, report)`` in a child process and return its result.

    ``doing`` opens error messages, such as ``Backend "tensorrt-rtx" cannot build "fp16"``.

    Raises:
        BuildError: the child crashed, or passed a limit; the message names the signal or the limit.
        Cancelled: ``progress`` asked to stop; the child is ended at once.
        RtlabError: whatever the function itself raised.
    """
    with tempfile.TemporaryFile() as spoken:
        child = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=spoken,
            # A fault handler of the parent's environment would print over the signal that we name ourselves.
            env={**os.environ, "PYTHONFAULTHANDLER": ""},
            # Interrupting the kernel signals its whole group; the build is ended by us, not by accident.
            start_new_session=os.name == "posix",
        )
        try:
            return _attend(child, target, payload, spoken, limits=limits, progress=progress, doing=doing)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    # The child may be gone, and with it what we wrote.
                    with contextlib.suppress(OSError):
                        pipe.close()


def _attend(
    child: subprocess.Popen[bytes],
    target: str,
    payload: object,
    spoken: IO[bytes],
    *,
    limits: Limits,
    progress: Progress,
    doing: str,
) -> Any:
    messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_send, args=(child, target, payload, limits.stack), daemon=True).start()
    threading.Thread(target=_receive, args=(child, messages), daemon=True).start()
    process = _process(child.pid)
    deadline = time.monotonic() + limits.seconds
    while True:
        try:
            kind, value = messages.get(timeout=_TICK)
        except queue.Empty:
            kind, value = "", None
        if kind == "result":
            return value
        if kind == "error":
            raise value
        if kind == "phase":
            progress.phase(*value)
        elif kind == "advance":
            progress.advance(value)
        elif kind == "end":
            code = _ended(child)
            spoken.seek(0)
            words = spoken.read().decode("utf-8", "replace")
            raise BuildError(_crash(code, doing), details=words)
        check(progress, doing[:1].lower() + doing[1:] if not doing.startswith("Backend") else "the build")
        if time.monotonic() > deadline:
            raise BuildError(
                f"{doing}: it was not finished after {limits.seconds:.3g} s, which is the limit. "
                "Raise it with limits=rtlab.Limits(seconds=...), or build a smaller part of the model."
            )
        used = _memory(process)
        if used > limits.memory:
            raise BuildError(
                f"{doing}: it took {used / 2**30:.1f} GiB of memory, and the limit is "
                f"{limits.memory / 2**30:.1f} GiB. Raise it with limits=rtlab.Limits(memory=...), or build a "
                "smaller model."
            )


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


def _crash(code: int, doing: str) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return (
            f"{doing}: the compiler crashed with {name}. The model is likely to contain something that it cannot "
            'digest; build parts of it to find out which, or choose backend="onnxruntime".'
        )
    return (
        f"{doing}: the compiler's process ended with exit code {code} and no result. "
        'See the error\'s details, or choose backend="onnxruntime".'
    )


def _send(child: subprocess.Popen[bytes], target: str, payload: object, stack: int) -> None:
    pipe = child.stdin
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        for part in (sys.path, (target, stack), payload):
            pickle.dump(part, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        pipe.flush()
    except OSError:  # the child died first; the receiver tells
        pass


def _receive(child: subprocess.Popen[bytes], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
    pipe = child.stdout
    assert pipe is not None  # noqa: S101 - we asked for the pipe
    try:
        while True:
            messages.put(pickle.load(pipe))  # noqa: S301 - from our own child
    except Exception:  # noqa: BLE001 - the end of the stream, or a message that nothing here can read
        messages.put(("end", None))
