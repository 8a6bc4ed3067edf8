"""Lines of a log as bytes of UTF-8, whatever it is written in, without holding it as a whole."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path

from rtlab.backends.readers.wrapping import GZIP, Wrapping, detect_encoding, detect_wrapping
from rtlab.core.inputs import open_input

_AGAIN = (
    "Make a verbose log with trtexec --verbose, with polygraphy convert -vv, or with a logger that receives VERBOSE "
    "messages, and give all of it."
)
#: Lines of a log that tells of a build.
_EXPECTED = 'such as "After vertical fusions: 84 layers" or "Tactic: 0x0000000000000000 Time: 0.0031"'
_CHUNK = 1 << 20
_SAMPLED = 1 << 16
#: A longer line is no line of a log; it is read in pieces.
_LONGEST = 1 << 23
#: How a logger's line begins: a severity or TensorRT's name in brackets, after a date or a name at most.
TAGGED = re.compile(rb"\s*(?:\[[^\[\]]{1,40}\] ?)?\[(?:V|I|W|E|F|TRT|TensorRT)\]")
#: How lines end that are whole, where nothing stands behind them: any other may be cut within a number or a name.
_COMPLETE_LINE = re.compile(
    rb"(?:\blayers|\bseconds\.?|\bms|\bsec\.|\bMiB|\*{3,}|(?:Layer\([^)]*\): |Name: ).*[\])]|&&&& .*)\s*$",
    re.DOTALL,
)


class LogLines:
    """Iterates over lists of lines without their ends. ``size`` and ``head`` are its bytes and the first of them.

    What mail, issues and terminals put around the lines is taken off. ``is_cut`` says, once all is read, that the last
    line has no end. Of a file, such a line is ``last_dropped`` where it may end within a number or a name, as is the
    first one where it has lost its beginning: both were cut when the file was made of a piece of a log. Where it is the
    only line it is ``is_single_cut_line``, and read.
    """

    def __init__(self, source: Path | str) -> None:
        self.source, self.size, self.head = source, 0, b""
        self.is_cut = self.last_dropped = self.is_single_cut_line = False

    def __iter__(self) -> Iterator[list[bytes]]:
        """Read all of it once; OSError where the file cannot be read."""
        rest = b""
        log_wrapping = Wrapping()
        file, has_several_lines = isinstance(self.source, Path), False
        for number, chunk in enumerate(self._decode_chunks()):
            text = chunk
            if not number:
                log_wrapping = _detect_log_wrapping(chunk)
                if log_wrapping.fences and len(chunk) < _CHUNK:
                    # All of it: where the last fence goes, the line before it has no end.
                    text, log_wrapping = _strip_wrapping(log_wrapping, chunk), Wrapping()
            lines = (rest + text).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            if log_wrapping:
                lines = _strip_wrapping(log_wrapping, b"\n".join(lines)).split(b"\n")
            if file and not number:
                _drop_partial_line(lines)
            has_several_lines = has_several_lines or bool(lines)
            yield lines
        self.is_cut = bool(rest.strip())
        if not self.is_cut:
            return
        rest = _strip_wrapping(log_wrapping, rest) if log_wrapping else rest
        is_doubtful = file and _COMPLETE_LINE.search(rest) is None
        self.last_dropped = has_several_lines and is_doubtful
        self.is_single_cut_line = is_doubtful and not has_several_lines
        yield [b"" if self.last_dropped else rest]

    def _decode_chunks(self) -> Iterator[bytes]:
        """Chunks in UTF-8, whatever they are written in."""
        decoder: codecs.IncrementalDecoder | None = None
        with (
            open_input(self.source)
            if isinstance(self.source, Path)
            else io.BytesIO(self.source.encode("utf-8", "replace"))
        ) as file:
            while chunk := file.read(_CHUNK):
                if not self.size:
                    self.head = chunk[:64]
                    decoder = _detect_decoder(chunk)
                    chunk = chunk.removeprefix(codecs.BOM_UTF8)
                self.size += len(chunk)
                if decoder is not None:
                    chunk = decoder.decode(chunk).encode("utf-8", "replace").removeprefix(codecs.BOM_UTF8)
                yield chunk

    def describe_cut(self, line: int) -> list[str]:
        """A note on the last line, which may be cut off."""
        if self.is_single_cut_line:
            return ["The line has no end: its last part may be cut off."]
        text = (
            f"Line {line}, the last, has no end and may be cut off: it is not read. Add the end of the line if it is "
            "whole."
        )
        return [text] if self.last_dropped else []

    def explain_no_build(self, line: int) -> str:
        """Why these lines, up to ``line``, tell of no build, and what to give instead."""
        if not self.size:
            reason = "it is empty."
        elif self.head.startswith(GZIP):
            reason = "its first bytes are those of a gzip file, which must be unpacked first."
        elif b"\x00" in self.head and _detect_decoder(self.head) is None:
            reason = "byte 0: its first bytes are no text; a log belongs there, and this may be an engine."
        elif self.head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"[{", b"[\n", b"[ ")):
            reason = "byte 0: it is JSON, and a log belongs there. Give inspector JSON as layers=."
        else:
            reason = (
                f"none of its lines, 1 to {max(1, line)}, tells of a build. Expected are lines {_EXPECTED}."
            )
        return f"{reason} {_AGAIN}"


def _detect_log_wrapping(chunk: bytes) -> Wrapping:
    """What stands around the lines. Times and the ends of Windows' lines are nothing that a log's reader minds."""
    log_wrapping = detect_wrapping(chunk[:_SAMPLED].decode("utf-8", "replace"), stamps=False)
    return log_wrapping if log_wrapping.marks or log_wrapping.colours or log_wrapping.fences else Wrapping()


def _strip_wrapping(log_wrapping: Wrapping, lines: bytes) -> bytes:
    """Lines without what stands around them."""
    return log_wrapping.strip(lines.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _drop_partial_line(lines: list[bytes]) -> None:
    """Empty the first line where it lacks its beginning: a logger marks the others, and not this one."""
    indices = [i for i, line in enumerate(lines[:20]) if line.strip()][:4]
    if len(indices) < 2 or lines[indices[0]].startswith(b"&&&&"):
        return
    first, *others = (TAGGED.match(lines[i]) for i in indices)
    if first is None and all(others):
        lines[indices[0]] = b""


def _detect_decoder(head: bytes) -> codecs.IncrementalDecoder | None:
    encoding = detect_encoding(head)
    return None if encoding == "utf-8-sig" else codecs.getincrementaldecoder(encoding)("replace")
