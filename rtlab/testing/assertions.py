"""Assertions in words, which stand with optimization, too."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from rtlab.errors import RtlabError

#: What was attempted, a colon, what was found, and what to do next, each a sentence.
_WORDS = re.compile(r"^[A-Z][^\n]*?: .+?[.?!)] .*[.?!)]$", re.DOTALL)


def hold(held: object, otherwise: str) -> None:
    """An assertion that stands with optimization, too."""
    if not held:
        raise AssertionError(otherwise)


def check_date(when: datetime.datetime | None, what: str) -> None:
    """Fail unless there is a date with a time zone."""
    hold(when is not None, f"{what} has no date")
    hold(when is not None and when.tzinfo is not None, f"the date of {what} has no time zone")


def raised(ask: Callable[[], object], otherwise: str) -> Exception:
    """What a call raises."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - of which kind is what is looked at
        return error
    raise AssertionError(otherwise)


def in_words(error: Exception, *kinds: type[RtlabError]) -> None:
    """Fail unless an error is of a promised kind and has three parts."""
    wanted = " or ".join(k.__name__ for k in kinds)
    hold(isinstance(error, kinds), f"it raises {named(error)}, and {wanted} is promised")
    hold(
        _WORDS.search(str(error)),
        f'"{error}" lacks a part: what was attempted, a colon, what was found, and a sentence on what to do next',
    )


def named(error: Exception) -> str:
    """Kind and words of an error."""
    return f"{type(error).__name__} ({error})"


def digest(path: Path) -> tuple[str, int]:
    """What tells a file from what it was: its content, and when it was written."""
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
