"""One thing that a check looks at: its limit, what was found, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal

from rtlab.core.schema import FieldMeta, Origin
from rtlab.errors import VariantError

#: What is looked at, in this order.
CheckName = Literal["numbers", "accuracy", "score", "latency", "fusion", "precision", "findings", "memory"]
#: Whether a limit holds; what nobody set a limit for is told, and what has nothing to compare with is not checked.
CheckVerdict = Literal["holds", "broken", "told", "not checked"]
#: What may be refused to get worse at all, and what stands in the place of a number for it.
NOT_WORSE: Mapping[CheckName, str] = {
    "fusion": "nothing in more layers",
    "precision": "nothing in a wider type",
    "findings": "no new one",
}


@dataclasses.dataclass(frozen=True)
class CheckRow:
    """One thing that was looked at.

    ``limit`` is empty where nobody set one, ``detail`` tells what ``found`` rests on. ``reason`` says why the verdict
    is what it is, or why there is none, ``remedy`` what to do, and ``changes`` name what differs from the earlier
    check. ``value`` and ``bound`` are what was found and what is allowed, in ``unit``; None where it is no number.
    """

    check: Annotated[CheckName, FieldMeta("Check")]
    limit: Annotated[str, FieldMeta("Limit")]
    found: Annotated[str, FieldMeta("Found", origin="{self.origin}")]
    verdict: Annotated[CheckVerdict, FieldMeta("Verdict")]
    origin: Annotated[Origin | None, FieldMeta("Origin")] = None
    detail: str = ""
    reason: str = ""
    remedy: str = ""
    changes: tuple[str, ...] = ()
    value: float | None = None
    bound: float | None = None
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class CheckLimits:
    """What a variant has to keep.

    ``max_drop`` is in the unit of the score, beside fp32 of the same model; ``max_latency_regression`` in percent of
    the earlier time; ``fail_on`` names what may not get worse at all, of ``NOT_WORSE``. ``sure`` asks the whole
    interval of a drop to be within its limit, and not the drop alone.

    Raises:
        VariantError: one of them is no limit.
    """

    max_drop: float | None = None
    max_latency_regression: float | None = None
    fail_on: tuple[CheckName, ...] = ()
    sure: bool = False

    def __post_init__(self) -> None:
        for name in ("max_drop", "max_latency_regression"):
            bound = getattr(self, name)
            number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
            if bound is not None and not (number and 0 <= bound < float("inf")):
                raise VariantError(
                    f"Cannot check with {name}={bound!r}: a limit is a number from 0 upward. Give for example 0.5."
                )
        for one in self.fail_on:
            if one not in NOT_WORSE:
                raise VariantError(
                    f'Cannot fail on "{one}": nothing of this name is compared. Choose among '
                    f"{', '.join(NOT_WORSE)}."
                )
        if self.sure and self.max_drop is None:
            raise VariantError(
                "Cannot ask a drop to be surely within its limit: there is no limit. Give max_drop too."
            )
