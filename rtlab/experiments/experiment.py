"""Experiments: searches that build and run within a budget.

An experiment is a frozen dataclass of choices with a method ``steps``, which gives a record after each step.
``run_experiment`` follows it on a ``WorkContext`` with the tool that builds and runs, which the study hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from rtlab.core.budget import WorkContext
from rtlab.errors import Cancelled

Tool = TypeVar("Tool")
Record = TypeVar("Record")
Record_co = TypeVar("Record_co", covariant=True)


class Experiment(Protocol[Tool, Record_co]):
    """A search: ``partial`` says whether the last record before a cancel is an answer too."""

    @property
    def partial(self) -> bool:
        """Whether the record before a cancel is the answer."""

    def steps(self, context: WorkContext[Tool]) -> Iterable[Record_co]:
        """A frozen record after each step; the last of them is the answer.

        Raises:
            Cancelled: the work was stopped.
        """


def run_experiment(
    experiment: Experiment[Tool, Record],
    context: WorkContext[Tool],
    keep: Callable[[Record], None] | None = None,
) -> Record:
    """Follow an experiment to its end, or as far as the budget goes; returns the last record.

    ``keep`` gets each record, so that a cancel or an error keeps the last one.

    Raises:
        Cancelled: the work was stopped, before there was a record or where a partial one is no answer.
    """
    records: list[Record] = []
    try:
        for record in experiment.steps(context):
            records = [record]
            context.has_result = True
            if keep is not None:
                keep(record)
    except Cancelled:
        if not records or (context.is_cancelled() and not experiment.partial):
            raise
    assert records, "an experiment has a first step"  # noqa: S101 - each of ours gives a record or raises
    return records[-1]


T = TypeVar("T")


def minimize(
    items: Sequence[T], is_sufficient: Callable[[list[T]], bool], context: WorkContext[Any], activity: str
) -> list[T]:
    """The items that are left once none of the parts that are tried can be left out, half of them at first.

    All ``items`` together are sufficient, which is not tried. Once the budget of ``context`` is used up, the answer is
    what is left by then.

    Raises:
        Cancelled: ``activity`` was stopped.
    """
    remaining, count = list(items), 2
    while len(remaining) >= 2:
        width = max(1, len(remaining) // count)
        starts = context.iterate(range(0, len(remaining), width), activity)
        rests = (remaining[:i] + remaining[i + width :] for i in starts)
        smaller = next((rest for rest in rests if rest and is_sufficient(rest)), None)
        if smaller is not None:
            remaining, count = smaller, max(count - 1, 2)
        elif count >= len(remaining):
            break
        else:
            count = min(len(remaining), 2 * count)
    return remaining
