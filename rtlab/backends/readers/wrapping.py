"""What mail, issues, terminals and build servers put around a tool's lines, taken off before anything reads them.

Lines stay lines, so that a message counts them as the sender sees them.
"""

from __future__ import annotations

import codecs
import dataclasses
import re

#: The first bytes of a gzip file.
GZIP = b"\x1f\x8b"
#: Characters from which the wrapping is found.
_SAMPLE = 1 << 16
#: Marks, one inside the other, that are taken off: an answer to an answer to an answer.
_DEEPEST = 6
#: Lines that must bear a mark: a few may be cut off or empty.
_SHARE = 0.9
_COLOUR = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w.+-]*[ \t]*$", re.MULTILINE)
#: The last fence, before which the last line may be cut off.
_LAST = re.compile(r"\n[ \t]*(?:`{3,}|~{3,})[ \t]*\s*\Z")
#: "> ", but not the row of arrows with which the builder tells what it chose.
_QUOTE = re.compile(r"^[ \t]*>(?!>{3}) ?", re.MULTILINE)
#: A time by ISO 8601, as build servers and containers write it before each line.
_STAMP = re.compile(
    r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]+", re.MULTILINE
)


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """What stands around the lines of a text: ``marks`` before each, the outermost first, colours, fences."""

    marks: tuple[re.Pattern[str], ...] = ()
    colours: bool = False
    fences: bool = False

    def __bool__(self) -> bool:
        return bool(self.marks or self.colours or self.fences)

    def strip(self, text: str) -> str:
        """The text without it, in as many lines that end as on Unix."""
        text = text.replace("\r\n", "\n")
        if self.colours:
            text = _COLOUR.sub("", text)
        for mark in self.marks:
            text = mark.sub("", text)
        return _FENCE.sub("", _LAST.sub("", text)) if self.fences else text


def detect_wrapping(head: str, *, stamps: bool = True) -> Wrapping:
    """What stands around the lines of a text, by the first of them; ``stamps`` says to look for times, too."""
    sample = head[:_SAMPLE]
    colours = "\x1b" in sample
    sample = Wrapping(colours=colours).strip(sample)
    marks: list[re.Pattern[str]] = []
    while len(marks) < _DEEPEST and (mark := _find_mark(sample, stamps=stamps)) is not None:
        marks.append(mark)
        sample = mark.sub("", sample)
    return Wrapping(tuple(marks), colours, _FENCE.search(sample) is not None)


def _find_mark(sample: str, *, stamps: bool) -> re.Pattern[str] | None:
    """The outermost mark before the lines; None where there is none."""
    lines = sample.split("\n")
    # Within JSON that begins here, blanks mean nothing, and taking them off a large file takes seconds.
    is_json = sample.lstrip().split("\n", 1)[0].rstrip() in {"{", "["}
    # The first line may be cut off at its beginning.
    nonblank_lines = [line for line in lines[1:] if line.strip()] or [line for line in lines if line.strip()]
    if not nonblank_lines:
        return None
    marks: tuple[re.Pattern[str], ...] = (_QUOTE, _STAMP) if stamps else (_QUOTE,)
    for mark in marks:
        if sum(mark.match(line) is not None for line in nonblank_lines) >= _SHARE * len(nonblank_lines):
            return mark
    deep = 0 if is_json else min(len(line) - len(line.lstrip(" \t")) for line in nonblank_lines)
    return re.compile(rf"^[ \t]{{1,{deep}}}", re.MULTILINE) if deep else None


def strip_wrapping(text: str) -> str:
    """A text without what stands around its lines."""
    return detect_wrapping(text).strip(text)


def detect_encoding(head: bytes) -> str:
    """The encoding of a text by its first bytes; PowerShell writes UTF-16."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) > 1 and not head[1] and head[0]:
        return "utf-16-le"
    if len(head) > 1 and not head[0] and head[1]:
        return "utf-16-be"
    return "utf-8-sig"
