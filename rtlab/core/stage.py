"""The stages of a variant's work: how far each came, and the time that they may take on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import time
from collections.abc import Iterator
from typing import Annotated, Literal

from rtlab.core.progress import Deadline
from rtlab.core.protocols import Progress
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.errors import VariantError

#: Seconds that a first answer may take on this machine beyond compiling.
BUDGET_S = 15.0

#: ``done``, ``partial`` (there is more to measure), ``waiting`` (under way), ``missing``, or ``none``: not to be had.
State = Literal["done", "partial", "waiting", "missing", "none"]
#: Why a stage is not done; empty where it is.
Why = Literal["", "budget", "cancelled", "failed", "not asked", "nothing to do"]


class Stage(str, enum.Enum):
    """What is found out of a variant, in this order; a later stage that ends early leaves the earlier ones standing."""

    COMPILED = "compiled"
    TIMED = "timed"
    COMPARED = "compared"
    SCORED = "scored"

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(frozen=True)
class StageStatus:
    """How far a stage came: ``done`` of ``target_count`` of its ``unit`` (runs, samples).

    ``target_count`` is 0 if unknown. ``available_count`` is how many there are, if more than the first pass measures;
    ``Study.measure`` continues to all of them. ``text`` says in a sentence what is missing and why, and is empty for
    a stage that is done or running.
    """

    stage: Stage
    state: State
    why: Annotated[Why, UNSENT] = ""
    text: str = ""
    done: Annotated[int, UNSENT] = 0
    target_count: Annotated[int, UNSENT] = 0
    unit: Annotated[str, UNSENT] = ""
    available_count: Annotated[int, UNSENT] = 0

    def __repr__(self) -> str:
        return f"<{self.stage}: {self.state}{f' {self.basis}' if self.basis else ''}>"

    @property
    def basis(self) -> Annotated[str, FieldMeta("Rests on")]:
        """On how much the numbers rest: ``3 of 30 runs``; empty where nothing was counted."""
        if not self.target_count or not self.done:
            return ""
        every = max(self.target_count, self.available_count)
        of = f"{self.done} of {every}" if self.done < every else f"{self.done}"
        return f"{of} {self.unit if every != 1 else self.unit.removesuffix('s')}"

    @property
    def is_incomplete(self) -> bool:
        """Whether a first answer is not there, or not whole."""
        return self.state in {"partial", "missing"}

    @property
    def more(self) -> Annotated[bool, FieldMeta("More")]:
        """Whether there is something to measure that is not measured yet."""
        return self.is_incomplete or (self.state == "done" and self.done < self.available_count)


def parse_budget(budget: object) -> float:
    """Seconds that a person gave as a budget, checked: 0 only compiles, infinity sets no bound.

    Raises:
        VariantError: it is no number of seconds.
    """
    try:
        seconds = float(budget)  # type: ignore[arg-type] # what people give is checked here
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds >= 0:
        raise VariantError(
            f"Cannot measure within a budget of {budget!r}: it is no number of seconds. "
            "Give 0 to only compile, 15 for a first answer, or math.inf for all that can be measured."
        )
    return seconds


class Budget:
    """Seconds that measuring may take; what one stage leaves, the next ones have."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.remaining = seconds

    @property
    def is_bounded(self) -> bool:
        """Whether there is an end to it."""
        return math.isfinite(self.seconds)

    @contextlib.contextmanager
    def share(self, progress: Progress, part: float = 1.0) -> Iterator[DeadlineProgress]:
        """A reporter that asks to stop when a part of what is left is over; the time in it counts."""
        began = time.monotonic()
        if isinstance(progress, Deadline):
            self.remaining = min(self.remaining, progress.remaining)
        try:
            yield DeadlineProgress(progress, began + part * self.remaining)
        finally:
            self.remaining = max(0.0, self.remaining - (time.monotonic() - began))


class DeadlineProgress:
    """A reporter with a deadline, which only counts from the first step on: every stage measures something."""

    def __init__(self, progress: Progress, deadline: float) -> None:
        self._progress, self._deadline = progress, deadline
        self._steps = 0

    @property
    def remaining(self) -> float:
        """Seconds that are left; 0 when the deadline has passed."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is over, and something was done in it."""
        return self._steps > 0 and not self.remaining

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked to stop, apart from the time."""
        return self._progress.stopped()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""
        self._progress.phase(name, total)

    def advance(self, steps: int = 1) -> None:
        """Report steps."""
        self._steps += steps
        self._progress.advance(steps)

    def stopped(self) -> bool:
        """Whether somebody asked to stop, or the time is over."""
        return self.is_over or self.is_cancelled
