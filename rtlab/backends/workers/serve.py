"""The child's side of ``child``.

It imports as little as possible, because every build pays for it: no ONNX, no NumPy, nothing but the binding.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rtlab.errors import BackendError

#: A large network reports thousands of steps; the parent shows ten a second.
_PAUSE = 0.05


class _Report:
    """Tells the parent of phases at once and of steps now and then."""

    def __init__(self, send: Callable[[str, object], None]) -> None:
        self._send, self._steps, self._last = send, 0, 0.0

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase of ``total`` steps."""
        self._steps = 0
        if time.monotonic() - self._last >= _PAUSE or total is None:
            self._last = time.monotonic()
            self._send("phase", (name, total))

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._steps += steps
        if time.monotonic() - self._last >= _PAUSE:
            self._last = time.monotonic()
            self.flush_steps()

    def flush_steps(self) -> None:
        """Tell of the steps that were not told of yet."""
        if self._steps:
            self._send("advance", self._steps)
            self._steps = 0

    def stopped(self) -> bool:
        """Never: whoever wants a call to end ends the child."""
        return False


def serve() -> None:
    """The child's side: do each call that arrives, on one thread with the wanted stack, until the parent is gone."""
    stack = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    first = pickle.load(sys.stdin.buffer)  # noqa: S301 - the same
    # The vendor may print: keep the real standard output for our messages and give it standard error instead.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(kind: str, value: object) -> None:
        with lock:
            pickle.dump((kind, value), out, protocol=pickle.HIGHEST_PROTOCOL)
            out.flush()

    calls: queue.SimpleQueue[tuple[Callable[[Any, Any], object], object]] = queue.SimpleQueue()

    def work() -> None:
        # What is missing is missed by the call that needs it.
        with contextlib.suppress(Exception):
            if (initialize := pickle.loads(first)) is not None:  # noqa: S301 - the same
                initialize()
        while True:
            function, payload = calls.get()
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
            calls.put((function, pickle.load(sys.stdin.buffer)))  # noqa: S301 - the same
    # The vendor's destructors may crash at exit, after the result was sent.
    os._exit(0)
