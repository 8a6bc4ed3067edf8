"""Calls on threads of their own: what their callers see, and when both end."""

from __future__ import annotations

import threading
import time

import pytest

from rtlab.backends.attending import Attendant
from rtlab.backends.live.apart import BUILDING, RUNNING
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import BuildError, Cancelled, RunError


def nothing() -> None:
    """Some calls need no end."""


def test_a_call_gives_what_it_returns_or_raises() -> None:
    attendant = Attendant("Cannot run")
    assert 7 == attendant.do(lambda _: 7, nothing)
    with pytest.raises(ZeroDivisionError):
        attendant.do(lambda _: 1 // 0, nothing)


def test_a_call_that_heeds_is_waited_for_and_one_that_does_not_is_left() -> None:
    """Whoever presses Cancel must not wait for a product of minutes."""
    for heeds in (True, False):
        progress, stop, end = Silent(), threading.Event(), threading.Event()
        until = stop if heeds else end

        def work(_, until=until, progress=progress) -> bool:
            progress.cancel()
            return until.wait(30)

        with pytest.raises(Cancelled, match="Stopped the run"):
            Attendant("Cannot run", progress).do(work, stop.set)
        assert stop.is_set()
        end.set()


@pytest.mark.parametrize(("work", "failure"), [(RUNNING, RunError), (BUILDING, BuildError)])
def test_a_limit_is_one_for_all_calls_of_an_attendant(work, failure) -> None:
    attendant = Attendant("Cannot run", limits=Limits(seconds=0.3), work=work)
    attendant.do(lambda _: time.sleep(0.2), nothing)
    stop = threading.Event()
    with pytest.raises(failure, match=r"not finished after 0\.3 s"):
        attendant.do(lambda _: stop.wait(30), stop.set)
