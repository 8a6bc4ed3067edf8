"""What is printed: text from files cannot command the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

#: Control characters but for the tabulator and the end of a line, and what turns the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """The text with control characters in their escaped form."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class CleanStream:
    """A stream of text to which ``clean`` text is written; all else is that of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write cleaned text; returns the length of ``text``."""
        self._stream.write(clean(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def clean_output() -> Iterator[None]:
    """Standard output and standard error are cleaned meanwhile."""
    streams = sys.stdout, sys.stderr
    # Python has none where it was closed before the start.
    sys.stdout, sys.stderr = (cast("TextIO", s and CleanStream(s)) for s in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
