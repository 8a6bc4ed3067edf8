"""What every experiment is: a search that builds and runs to find an answer, within what it may take.

An experiment is a frozen dataclass of choices with a method ``steps``, which gives after each step all that is known by
then. ``run_experiment`` follows it on a ``SearchContext``, which has what builds and runs, hears who asks to stop, and
counts. Nothing here knows where the tool comes from: the session hands it in, a test one of its own.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Generic, Protocol, TypeVar

from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.errors import Cancelled

#: Seconds after which work in an executor looks whether somebody wants it to stop.
_POLL_S = 0.2
T = TypeVar("T")
Tool = TypeVar("Tool")
Record = TypeVar("Record")
Record_co = TypeVar("Record_co", covariant=True)


@dataclasses.dataclass(frozen=True)
class SearchBudget:
    """What a search may take: seconds, models that are built or opened, and inferences; without a bound by default."""

    seconds: float = math.inf
    builds: float = math.inf
    runs: float = math.inf


class SearchContext(Generic[Tool]):
    """What an experiment works with: the tool that builds and runs, a reporter, and what may be taken.

    It is a ``Progress`` itself. What is handed it ends when somebody asks to stop or the seconds are over, and no step
    begins once builds or runs are used up; but not before something was found: whatever the budget, there is an answer.

    Attributes:
        tool: What builds and runs.
        budget: What may be taken.
        builds: Models that were built or opened so far.
        runs: Inferences so far.
        has_record: Whether there is a record.
    """

    def __init__(
        self, tool: Tool, progress: Progress | None = None, budget: SearchBudget | None = None
    ) -> None:
        self.tool = tool
        self.budget = budget or SearchBudget()
        self.builds = self.runs = 0
        self.has_record = False
        self._progress = progress or Silent()
        self._began = time.monotonic()

    @property
    def is_timed_out(self) -> bool:
        """Whether the seconds are over, and something was found in them."""
        return self.has_record and time.monotonic() - self._began >= self.budget.seconds

    @property
    def is_exhausted(self) -> bool:
        """Whether no further step may begin: the seconds, the builds or the runs are used up."""
        most = self.budget
        return self.is_timed_out or (
            self.has_record and (self.builds >= most.builds or self.runs >= most.runs)
        )

    def is_cancelled(self) -> bool:
        """Whether somebody asked to stop, apart from the allowance."""
        return self._progress.stopped()

    def stopped(self) -> bool:
        """Whether somebody asked to stop, or the time is over; a step that has its build has its runs too."""
        return self.is_timed_out or self.is_cancelled()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""
        self._progress.phase(name, total)

    def advance(self, steps: int = 1) -> None:
        """Report steps."""
        self._progress.advance(steps)

    def count(self, *, builds: int = 0, runs: int = 0) -> None:
        """Count what was taken of the allowance."""
        self.builds += builds
        self.runs += runs

    def check(self, activity: str) -> None:
        """Raise ``Cancelled`` where somebody asked to stop."""
        check(self._progress, activity)

    def wait_for(self, future: Future[T], activity: str) -> T:
        """What an executor's worker gives.

        Raises:
            Cancelled: somebody asked to stop meanwhile.
        """
        self.check(activity)
        while not wait([future], timeout=_POLL_S).done:
            self.check(activity)
        return future.result()

    def iterate(self, items: Iterable[T], activity: str) -> Iterator[T]:
        """One item after the other; none any more once the allowance is used up.

        Raises:
            Cancelled: somebody asked to stop.
        """
        for item in items:
            self.check(activity)
            if self.is_exhausted:
                return
            yield item


class Experiment(Protocol[Tool, Record_co]):
    """A search: ``partial`` says that a record which is not the last one tells so itself, and is an answer too."""

    @property
    def partial(self) -> bool:
        """Whether what was found before a cancel is the answer."""

    def steps(self, context: SearchContext[Tool]) -> Iterable[Record_co]:
        """What is known after each step, as frozen facts; the last of them is the answer.

        Raises:
            Cancelled: somebody asked to stop.
        """


def run_experiment(
    experiment: Experiment[Tool, Record],
    context: SearchContext[Tool],
    keep: Callable[[Record], None] | None = None,
) -> Record:
    """Follow an experiment to its end, or as far as the allowance goes.

    Args:
        experiment: What is searched.
        context: What it works with.
        keep: Gets each record as it is found, so that a cancel or an error leaves the last one standing.

    Returns:
        The last record.

    Raises:
        Cancelled: somebody asked to stop, before anything was found or where a partial record is no answer.
    """
    records: list[Record] = []
    try:
        for record in experiment.steps(context):
            records = [record]
            context.has_record = True
            if keep is not None:
                keep(record)
    except Cancelled:
        if not records or (context.is_cancelled() and not experiment.partial):
            raise
    assert records, "an experiment has a first step"  # noqa: S101 - each of ours gives a record or raises
    return records[-1]
