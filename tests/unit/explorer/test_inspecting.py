"""One question at a time, on a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from rtlab.core.progress import Silent
from rtlab.explorer.inspecting import Inspecting


class Slow:
    """Answers when it is let go; the questions that it was given are in ``asked``."""

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.asked: list[str] = []

    def __call__(self, question: str, _progress: Silent) -> Iterator[str]:
        self.asked.append(question)
        self.begun.set()
        assert self.gate.wait(60)
        yield f"{question} is answered"


def test_a_question_about_what_is_gone_is_never_answered() -> None:
    """Another model may have a node of the same name; the old one's weights would stand beside it."""
    slow, published = Slow(), []
    inspecting = Inspecting(slow, published.append)
    inspecting.ask("old")
    assert slow.begun.wait(60)
    inspecting.ask("next")
    inspecting.stop()
    slow.gate.set()
    inspecting.wait(60)
    assert [] == published
    assert ["old"] == slow.asked
    inspecting.ask("new")
    inspecting.wait(60)
    assert ["new is answered"] == published
