"""What every experiment is: a search that builds and runs to find an answer, within what it may take.

An experiment is a frozen dataclass of choices with a method ``steps``, which gives after each step all that is known by
then. ``run_experiment`` follows it on a ``WorkContext``, which has what builds and runs, hears who asks to stop, and
counts. Nothing here knows where the tool comes from: the study hands it in, a test one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from rtlab.core.budget import WorkContext
from rtlab.errors import Cancelled

Tool = TypeVar("Tool")
Record = TypeVar("Record")
Record_co = TypeVar("Record_co", covariant=True)


class Experiment(Protocol[Tool, Record_co]):
    """A search: ``partial`` says that a record which is not the last one tells so itself, and is an answer too."""

    @property
    def partial(self) -> bool:
        """Whether what was found before a cancel is the answer."""

    def steps(self, context: WorkContext[Tool]) -> Iterable[Record_co]:
        """What is known after each step, as frozen facts; the last of them is the answer.

        Raises:
            Cancelled: somebody asked to stop.
        """


def run_experiment(
    experiment: Experiment[Tool, Record],
    context: WorkContext[Tool],
    keep: Callable[[Record], None] | None = None,
) -> Record:
    """Follow an experiment to its end, or as far as the budget goes.

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
            context.has_result = True
            if keep is not None:
                keep(record)
    except Cancelled:
        if not records or (context.is_cancelled() and not experiment.partial):
            raise
    assert records, "an experiment has a first step"  # noqa: S101 - each of ours gives a record or raises
    return records[-1]
