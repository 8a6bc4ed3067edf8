"""The stages of a variant's work: how far each came, and the time that they may take on this machine."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Literal

from rtlab.core.schema import UNSENT, FieldMeta

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
    why: Why = ""
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
