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


def assert_that(condition: object, otherwise: str) -> None:
    """An assertion that stands with optimization, too."""
    if not condition:
        raise AssertionError(otherwise)


def check_date(when: datetime.datetime | None, what: str) -> None:
    """Fail unless there is a date with a time zone."""
    assert_that(when is not None, f"{what} has no date")
    assert_that(when is not None and when.tzinfo is not None, f"the date of {what} has no time zone")


def catch_error(ask: Callable[[], object], otherwise: str) -> Exception:
    """What a call raises."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - of which kind is what is looked at
        return error
    raise AssertionError(otherwise)


def check_message(error: Exception, *kinds: type[RtlabError]) -> None:
    """Fail unless an error is of a promised kind and has three parts."""
    kind_names = " or ".join(k.__name__ for k in kinds)
    assert_that(isinstance(error, kinds), f"it raises {describe_error(error)}, and {kind_names} is promised")
    assert_that(
        _WORDS.search(str(error)),
        f'"{error}" lacks a part: what was attempted, a colon, what was found, and a sentence on what to do next',
    )


def describe_error(error: Exception) -> str:
    """Kind and words of an error."""
    return f"{type(error).__name__} ({error})"


def digest(path: Path) -> tuple[str, int]:
    """What tells a file from what it was: its content, and when it was written."""
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
