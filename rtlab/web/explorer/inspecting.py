"""One question at a time, answered on a thread; a new question ends the work on the last one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from rtlab.core.progress import Silent


class Inspecting:
    """Answers the latest question only.

    Args:
        answer: Yields answers to a question, better and better, and asks its ``Silent`` whether to stop.
        publish: Takes each answer while its question is the latest.
    """

    def __init__(
        self, answer: Callable[[str, Silent], Iterator[Any]], publish: Callable[[Any], None]
    ) -> None:
        self._answer, self._publish = answer, publish
        self._lock = threading.RLock()
        self._next: str | None = None
        self._current: Silent | None = None
        self._thread: threading.Thread | None = None

    def ask(self, question: str) -> None:
        """Ask; comes back at once."""
        with self._lock:
            self._next = question
            if self._current is not None:
                self._current.cancel()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="rtlab-inspect", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Answer no question that was asked before: what they were about is gone."""
        with self._lock:
            self._next = None
            if self._current is not None:
                self._current.cancel()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the latest question is answered."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._next is None:
                    self._thread = None
                    return
                question, self._next = self._next, None
                self._current = current = Silent()
            for answer in self._answer(question, current):
                with self._lock:
                    if current.stopped():
                        break
                    self._publish(answer)
