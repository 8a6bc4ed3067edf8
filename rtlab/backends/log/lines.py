"""Lines of a log as bytes of UTF-8, whatever it is written in, without holding it as a whole."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

_AGAIN = (
    "Make a verbose log with trtexec --verbose, with polygraphy convert -vv, or with a logger that receives VERBOSE "
    "messages, and give all of it."
)
#: The first bytes of a gzip file.
GZIP = b"\x1f\x8b"
#: Lines of a log that tells of a build.
_EXPECTED = 'such as "After vertical fusions: 84 layers" or "Tactic: 0x0000000000000000 Time: 0.0031"'
_CHUNK = 1 << 20
#: A longer line is no line of a log; it is read in pieces.
_LONGEST = 1 << 23
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: What tells UTF-16 without a mark: this share of every second byte is zero, in so many bytes.
_ZEROS, _SAMPLE = 0.8, 400


class LogLines:
    """Iterates over lists of lines without their ends. ``size`` and ``head`` are its bytes and the first of them.

    ``cut`` says, once all is read, that the last line has no end.
    """

    def __init__(self, source: Path | str | Iterable[bytes]) -> None:
        self.source = source
        self.size, self.head, self.cut = 0, b"", False

    def __iter__(self) -> Iterator[list[bytes]]:
        """Read all of it once; OSError where the file cannot be read."""
        rest = b""
        decoder: codecs.IncrementalDecoder | None = None
        for raw in self._chunks():
            chunk = raw
            if not self.size:
                self.head = raw[:64]
                decoder = _decoder(raw)
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
            self.size += len(raw)
            if decoder is not None:
                chunk = decoder.decode(chunk).encode("utf-8", "replace").removeprefix(codecs.BOM_UTF8)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            yield lines
        self.cut = bool(rest.strip())
        if self.cut:
            yield [rest]

    @property
    def binary(self) -> bool:
        """Whether the first bytes are no text."""
        return b"\x00" in self.head and _decoder(self.head) is None

    def nothing(self, line: int) -> str:
        """Why these lines, up to ``line``, tell of no build, and what to give instead."""
        if not self.size:
            found = "it is empty."
        elif self.head.startswith(GZIP):
            found = "its first bytes are those of a gzip file, which must be unpacked first."
        elif self.binary:
            found = "byte 0: its first bytes are no text; a log belongs there, and this may be an engine."
        elif self.head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"[{", b"[\n", b"[ ")):
            found = "byte 0: it is JSON, and a log belongs there. Give inspector JSON as layers=."
        else:
            found = (
                f"none of its lines, 1 to {max(1, line)}, tells of a build. Expected are lines {_EXPECTED}."
            )
        return f"{found} {_AGAIN}"

    def _chunks(self) -> Iterator[bytes]:
        if isinstance(self.source, Path):
            with self.source.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        elif isinstance(self.source, str):
            for start in range(0, len(self.source), _CHUNK):
                yield self.source[start : start + _CHUNK].encode("utf-8", "replace")
        else:
            # The encoding shows in the first bytes, however few of them come at a time.
            chunks, head = iter(self.source), b""
            for chunk in chunks:
                head += chunk
                if len(head) >= _SAMPLE:
                    break
            if head:
                yield head
            yield from chunks


def _decoder(head: bytes) -> codecs.IncrementalDecoder | None:
    if head.startswith(_MARKS):
        return codecs.getincrementaldecoder("utf-16")("replace")
    sample = head[:_SAMPLE]
    for order, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if zeros and zeros.count(0) > _ZEROS * len(zeros):
            return codecs.getincrementaldecoder(order)("replace")
    return None
