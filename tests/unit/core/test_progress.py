"""Reporters of long work."""

from __future__ import annotations

import threading

import pytest

from rtlab.core.budget import Budget, WorkContext
from rtlab.core.progress import Reporting, Silent, check
from rtlab.errors import Cancelled


def test_cancel_from_another_thread_ends_the_work():
    progress = Silent()
    check(progress, "the build")
    thread = threading.Thread(target=progress.cancel)
    thread.start()
    thread.join()
    assert progress.stopped()
    with pytest.raises(Cancelled, match=r"^Stopped the build: cancelled"):
        check(progress, "the build")


def test_phases_are_always_shown_and_steps_at_most_ten_times_a_second():
    """A calibration of 10,000 images must not send 10,000 messages to the browser."""
    shown = []
    progress = Reporting(lambda *what: shown.append(what[:3]))
    progress.phase("Calibrating", 10_000)
    for _ in range(10_000):
        progress.advance()
    progress.phase("Compiling")
    elapsed = progress._last - progress.started
    assert ("Calibrating", 0, 10_000) == shown[0]
    assert ("Compiling", 0, None) == shown[-1]
    assert len(shown) <= 2 + 10 * elapsed + 1


def test_no_more_time_is_announced_than_the_budget_has(monkeypatch):
    shown = Reporting(lambda *_: None)
    context = WorkContext(None, shown, Budget(15.0))
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    context._began = 100.0
    context.phase("Timing", 60)
    now[0] = 104.0
    context.advance(2)
    # Two of 60 steps in 4 s leave 116 s at that pace, and the budget 11.
    assert " · 0.5/s, 11 s left at most" == shown.pace
    context.advance(28)
    now[0] = 104.2
    context.advance(28)
    assert ", 0 s left" in shown.pace
    # The next phase has no budget of its own.
    shown.phase("Another", 60)
    now[0] = 108.2
    shown.advance(2)
    assert " · 0.5/s, 116 s left" == shown.pace
