"""Reporters of long work."""

from __future__ import annotations

import threading

import pytest

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
