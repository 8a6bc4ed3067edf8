"""Budgets of work on this machine, and a reporter that ends work within one."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from rtlab.core.progress import Deadline, Reporting, Silent, check
from rtlab.errors import VariantError

if TYPE_CHECKING:
    # The command line imports this module before it knows whether it will need ONNX.
    from rtlab.core.protocols import Progress

#: Default seconds of measuring on this machine.
BUDGET_S = 15.0
#: Seconds that works without any result may take beyond their budget, all of them together.
_OVERTIME_S = 5.0
T = TypeVar("T")
Tool = TypeVar("Tool")


def parse_budget(budget: object) -> float:
    """A user's budget in seconds; ``VariantError`` where it is none. 0 only compiles, infinity sets no bound."""
    try:
        seconds = float(budget)  # type: ignore[arg-type] # checked here
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds >= 0:
        raise VariantError(
            f"Cannot measure within a budget of {budget!r}: it is no number of seconds. "
            "Give 0 to only compile, 15 for a first answer, or math.inf for all that can be measured."
        )
    return seconds


class Budget:
    """Limits of seconds, of built or opened models, and of inferences; unlimited by default.

    Seconds that one share leaves are for the next ones.
    """

    def __init__(self, seconds: float = math.inf, builds: float = math.inf, runs: float = math.inf) -> None:
        self.seconds = self.remaining = seconds
        self._overtime = _OVERTIME_S
        self.builds, self.runs = builds, runs

    @property
    def is_bounded(self) -> bool:
        """Whether there is an end to the seconds."""
        return math.isfinite(self.seconds)

    @contextlib.contextmanager
    def share(
        self, progress: Progress, part: float = 1.0, *, ends_after_step: bool = True, ends: bool = True
    ) -> Iterator[WorkContext[None]]:
        """A context that ends when a part of the seconds that are left is over; the time in it counts.

        It ends so after its first step, or never without ``ends_after_step``. Where ``ends``, it ends in any case when
        all seconds are over, and what little is granted beyond them.
        """
        began = time.monotonic()
        if isinstance(progress, Deadline):
            self.remaining = min(self.remaining, progress.remaining)
        most = self.remaining + self._overtime if ends else math.inf
        try:
            yield WorkContext(
                None,
                progress,
                Budget(part * self.remaining),
                ends_after_step=ends_after_step,
                most_seconds=most,
            )
        finally:
            self.remaining -= time.monotonic() - began
            self._overtime += min(0.0, self.remaining)
            self.remaining = max(0.0, self.remaining)


class WorkContext(Generic[Tool]):
    """The context of work within a budget: the tool that builds and runs, a reporter, and the limits.

    It is a ``Progress`` itself. It ends on a cancel, and after the first result also when the seconds are over; then no
    further item begins once builds or runs are used up.

    Attributes:
        tool: Builds and runs.
        budget: The limits.
        builds: Models that were built or opened so far.
        runs: Inferences so far.
        has_result: Whether there is a result.
        activity: The phase that was reported last.
    """

    def __init__(
        self,
        tool: Tool,
        progress: Progress | None = None,
        budget: Budget | None = None,
        *,
        ends_after_step: bool = False,
        most_seconds: float = math.inf,
    ) -> None:
        """With ``ends_after_step`` a reported step counts as a result; after ``most_seconds`` it ends without one."""
        self.tool, self.budget = tool, budget or Budget()
        self.activity = ""
        self.builds = self.runs = 0
        self.has_result = False
        self._progress, self._ends_after_step = progress or Silent(), ends_after_step
        self._most_seconds = most_seconds
        self._began = time.monotonic()

    @property
    def remaining(self) -> float:
        """Seconds that are left; 0 once they are over."""
        return max(0.0, self.budget.seconds - (time.monotonic() - self._began))

    @property
    def is_timed_out(self) -> bool:
        """Whether the seconds are over and there is a result, or all that is granted without one."""
        return (self.has_result and not self.remaining) or time.monotonic() - self._began > self._most_seconds

    @property
    def is_exhausted(self) -> bool:
        """Whether no further item may begin: the seconds, the builds or the runs are used up."""
        is_used_up = self.builds >= self.budget.builds or self.runs >= self.budget.runs
        return self.is_timed_out or (self.has_result and is_used_up)

    def is_cancelled(self) -> bool:
        """Whether somebody asked to stop, apart from the budget."""
        return self._progress.stopped()

    def stopped(self) -> bool:
        """Whether the work was cancelled or timed out."""
        return self.is_timed_out or self.is_cancelled()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase, which ends with the budget."""
        self.activity = name
        self._progress.phase(name, total)
        self.bound(self.remaining)

    def bound(self, seconds: float) -> None:
        """Announce no more than so many seconds of the open phase."""
        if isinstance(self._progress, (Reporting, WorkContext)):
            self._progress.bound(seconds)

    def advance(self, steps: int = 1) -> None:
        """Report steps."""
        self.has_result |= self._ends_after_step and steps > 0
        self._progress.advance(steps)

    def count(self, *, builds: int = 0, runs: int = 0) -> None:
        """Count what was taken of the budget."""
        self.builds += builds
        self.runs += runs

    def check(self, activity: str) -> None:
        """Raise ``Cancelled`` where somebody asked to stop."""
        check(self._progress, activity)

    def iterate(self, items: Iterable[T], activity: str) -> Iterator[T]:
        """Items until the budget is used up; raises ``Cancelled``."""
        for item in items:
            self.check(activity)
            if self.is_exhausted:
                return
            yield item
