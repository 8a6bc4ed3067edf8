"""The fewest of several things for which something holds as for all of them.

Delta debugging: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rtlab.core.budget import WorkContext

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
