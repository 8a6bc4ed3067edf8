"""Files as text and as JSON, read so that every fault is told with its place and with what belongs there."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rtlab.backends.readers.wrapping import GZIP, detect_encoding, strip_wrapping
from rtlab.core.inputs import open_input
from rtlab.core.phrases import pluralize
from rtlab.core.proto_repair import MOST_LAYERS
from rtlab.errors import ReadError

_LAYERS = "Export it again with trtexec --exportLayerInfo=layers.json --profilingVerbosity=detailed."
#: What to do about a damaged file, by kind.
AGAIN = {
    "layers": _LAYERS,
    "profile": "Export it again with trtexec --exportProfile=profile.json --separateProfileRun.",
    "times": "Export it again with trtexec --exportTimes=times.json.",
    "output": "Export it again with trtexec --exportOutput=output.json.",
    "metadata": "Leave it out, or give what trex's parse_trtexec_log wrote.",
    "log": "Save it again with trtexec --verbose --profilingVerbosity=detailed ... > build.log 2>&1.",
    "ort_profile": "Write it again: set enable_profiling in the SessionOptions and call session.end_profiling().",
    "ort_model": "Write it again: set optimized_model_filepath in the SessionOptions.",
    "results": "Save it again with polygraphy run ... --save-outputs=results.json.",
    "archive": "Write the archive again with trex, or give the files in it one by one.",
    "build": "Save it again with rtlab inspect MODEL --save build.json, where the compiler is.",
}
#: The writer of the profile does not escape names.
_UNESCAPED = re.compile(r'("name"\s*:\s*")(.*?)("\s*,\s*"timeMs"\s*:)')
#: C++ writes values that are no number in its own words.
_UNDEFINED = re.compile(r"(?<=[\[,\s])(-?)(nan|inf)(?=[\],\s])")
#: Where JSON of these files begins on a line; a list of numbers is a date or a tag of a log.
_START = re.compile(r'^[ \t]*(?=\[\s*[\[{"]|\{\s*["}])', re.MULTILINE)
_OBJECT = re.compile(r'\{\s*"')
_NUMBER = re.compile(r"\s*-?\d{1,18}(\.\d+)?([eE][+-]?\d{1,3})?\s*")
#: Starts of JSON that are tried behind lines of a log, and of objects around a cut.
_TRIES = 50
#: Characters of a piece of a file in which messages are looked for.
_AROUND = 1 << 20
#: Keys of an entry of a file, of which a piece of the file has one at least, and what an entry is called.
_ENTRIES = {
    "layers": ({"LayerType", "Inputs", "Outputs"}, "layer"),
    "profile": ({"averageMs", "medianMs", "timeMs"}, "row"),
    "times": ({"computeMs"}, "row"),
}


@dataclasses.dataclass(frozen=True)
class Document:
    """The value of a JSON file, what a reader must know of how it was read, and the text around it, line by line."""

    value: Any
    notes: tuple[str, ...] = ()
    around: str = ""


def fault(kind: str, file: str, problem: str, expected: str) -> ReadError:
    """The error of a damaged file; ``problem`` names the place, ``expected`` what belongs there."""
    return ReadError(f'Cannot read {kind} file "{file}": {problem}; {expected} belongs there. {AGAIN[kind]}')


def check_layer_count(kind: str, file: str, layers: int) -> None:
    """Refuse an engine of more layers than are looked at; raises ``ReadError`` where there are more."""
    if layers > MOST_LAYERS:
        raise ReadError(
            f'Cannot read {kind} file "{file}": it reports {layers:,} layers, and at most {MOST_LAYERS:,} are looked '
            "at. Give the files of one engine."
        )


@contextlib.contextmanager
def open_file(path: Path, error_prefix: str) -> Iterator[BinaryIO]:
    """A regular file, while it is read; ``error_prefix`` begins the words of a ``ReadError``."""
    try:
        with open_input(path) as file:
            yield file
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReadError(f"{error_prefix}: {reason}. Check the path.") from error


def read_bytes(path: Path, kind: str) -> bytes:
    """All bytes of a regular file; raises ``ReadError`` where there is none, it is empty, or it cannot be read."""
    with open_file(path, f'Cannot read {kind} file "{path}"') as file:
        content = file.read()
    if not content:
        raise fault(kind, path.name, "byte 0: it is empty", _BELONGS.get(kind, "text"))
    return content


_BELONGS = {"layers": 'an object with "Layers"', "log": "a verbose log"}


def read_text(path: Path, kind: str) -> str:
    """A file in UTF-8 or UTF-16 as text, without what stands around its lines; ``ReadError`` names the byte."""
    raw = read_bytes(path, kind)
    code = detect_encoding(raw[:4])
    try:
        return strip_wrapping(raw.decode(code))
    except UnicodeDecodeError as error:
        if raw.startswith(GZIP):
            problem = "byte 0 begins a gzip file, which must be unpacked first"
            raise fault(kind, path.name, problem, _BELONGS.get(kind, "text")) from error
        name = code.upper().removesuffix("-SIG")
        raise fault(kind, path.name, f"byte {error.start}: it is not text", f"text in {name}") from error


def load(path: Path, kind: str) -> Document:
    """Read a JSON file, perhaps between lines of a log; ``ReadError`` names line and column where it is damaged."""
    return parse_lenient(read_text(path, kind), path.name, kind)


def load_rows(path: Path, kind: str, expected: str, document: Document | None = None) -> Document:
    """Read a JSON file that holds a list of one row at least, or check that a document is one; see ``load``."""
    document = document or load(path, kind)
    if not isinstance(document.value, list):
        raise fault(kind, path.name, f"line 1: it holds {format_value(document.value)}", expected)
    if not document.value:
        raise fault(kind, path.name, "row 0: there is none", expected)
    return document


def parse_lenient(text: str, file: str, kind: str) -> Document:
    """Read a JSON text, repaired where its writer is known for a fault; see ``load``."""
    try:
        return _parse(text, file, kind)
    except ReadError:
        with contextlib.suppress(ReadError):
            return _parse(_repair(text, kind), file, kind)
        raise


def parse_partial(text: str, file: str, kind: str) -> Document:
    """Read a JSON text, or what is whole of one that was cut at its start or its end; see ``load``."""
    try:
        document = parse_lenient(text, file, kind)
    except ReadError:
        if _is_truncated(text) and (part := _salvage(_repair(text, kind), file, kind)):
            return part
        raise
    # What a cut leaves may begin with a number, or be one entry.
    value = document.value
    rows = isinstance(value, list) and (kind != "layers" or all(isinstance(e, str | dict) for e in value))
    if rows or (isinstance(value, dict) and "Layers" in value):
        return document
    return _salvage(_repair(text, kind), file, kind) or document


def _salvage(text: str, file: str, kind: str) -> Document | None:
    """What a piece of a file holds, as the document of a whole one, and a note; None where no entry in it is whole."""
    if kind not in _ENTRIES:
        return None
    keys, word = _ENTRIES[kind]
    objects = list(_iter_objects(text))
    rows = [o for o in objects if keys & o.keys()]
    if not rows:
        return None
    note = (
        f'"{file}" is a piece of a file: the {pluralize(len(rows), word)} in it that '
        f"{_is_or_are(len(rows))} whole {_is_or_are(len(rows))} shown. Give the whole file for the rest."
    )
    if kind == "layers":
        tensors = [o for o in objects if "IOMode" in o]
        return Document({"Layers": rows, "I/O Tensors": tensors}, (note,), text[:_AROUND])
    return Document([o for o in objects if keys & o.keys() or "count" in o], (note,))


def _iter_objects(text: str) -> Iterator[dict[str, Any]]:
    """Whole objects, the outermost of each, in order."""
    decoder = json.JSONDecoder(strict=False)
    end = failures = 0
    for match in _OBJECT.finditer(text):
        if match.start() < end or failures == _TRIES:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            failures += 1
        else:
            yield value


def _is_truncated(text: str) -> bool:
    """Whether a text that is no whole JSON lacks its start or its end, and is not damaged within."""
    start = len(text) - len(text.lstrip())
    if _START.match(text, start) is None:
        return True
    try:
        json.JSONDecoder(strict=False).raw_decode(text, start)
    except json.JSONDecodeError as error:
        return _is_cut(error, text)
    except (ValueError, RecursionError):
        return False
    # The first of several objects.
    return True


def _repair(text: str, kind: str) -> str:
    if kind == "profile":
        return _UNESCAPED.sub(lambda m: m[1] + m[2].replace("\\", "\\\\").replace('"', '\\"') + m[3], text)
    if kind == "output":
        words = {"nan": "NaN", "inf": "Infinity"}
        return _UNDEFINED.sub(lambda m: m[1] + words[m[2]], text).replace("-NaN", "NaN")
    return text


def _parse(text: str, file: str, kind: str) -> Document:
    """Read a JSON text; see ``load``."""
    decoder = json.JSONDecoder(strict=False)
    start = len(text) - len(text.lstrip())
    positions: Iterable[int] = [start]
    if _START.match(text, start) is None:
        # It may be the date of a log's line.
        positions = find_json_starts(text)
        positions = [*positions, start] if text[start : start + 1] in {"[", "{"} else positions or [start]
    first_error: ReadError | None = None
    for at in positions:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            first_error = first_error or _make_json_error(error, text, at, file, kind)
            continue
        notes = _check_rest(text, end, file, kind)
        if at > start:
            notes.insert(0, _describe_skipped(text.count("\n", 0, at), "before", file))
        around = text[:at] + "\n" * text.count("\n", at, end) + text[end:] if notes else ""
        return Document(value, tuple(notes), around)
    assert first_error is not None  # noqa: S101 - there is always one try
    raise first_error


def find_json_starts(text: str) -> list[int]:
    """Where JSON may begin on a line, the first few places."""
    return [match.end() for match in itertools.islice(_START.finditer(text), _TRIES)]


def _check_rest(text: str, end: int, file: str, kind: str) -> list[str]:
    """Notes on what stands after the JSON."""
    rest = text[end:].strip(" \t\r\n\0\x1a")
    if not rest:
        return []
    if rest[0] in ',:]}"' or _START.match(rest):
        what = "a second JSON document" if rest[0] in "[{" else f"more JSON, {rest[0]!r},"
        problem = f"{_format_position(text, text.index(rest[0], end))}: it is not whole JSON but has {what}"
        raise fault(kind, file, f"{problem} after its end", "the end of the file")
    return [_describe_skipped(rest.count("\n") + 1, "after", file)]


def _describe_skipped(count: int, where: str, file: str) -> str:
    return f'{pluralize(count, "line")} {where} the JSON of "{file}" {_is_or_are(count)} no part of it.'


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _format_position(text: str, at: int) -> str:
    """Line and column of a position, from 1."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _make_json_error(error: Exception, text: str, start: int, file: str, kind: str) -> ReadError:
    if not isinstance(error, json.JSONDecodeError):
        problem = (
            "it is not whole JSON that can be read, it nests too deep or has a number of too many digits"
        )
        return fault(kind, file, f"{_format_position(text, start)}: {problem}", "JSON")
    if _is_cut(error, text):
        problem = f"{_format_position(text, len(text.rstrip()))}: it is not whole JSON but cut off there"
        return fault(kind, file, problem, "the rest of the file")
    excerpt = text[error.pos : error.pos + 12].split("\n", maxsplit=1)[0]
    problem = (
        f"{_format_position(text, error.pos)}: it is not whole JSON, {error.msg.lower()} near {excerpt!r}"
    )
    return fault(kind, file, problem, "JSON")


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    rest = text[error.pos :].rstrip()
    if error.msg.startswith("Unterminated string"):
        return True
    # The start of "null", "-Infinity" or of an escape.
    return len(rest) < 9 and not set(rest) & set("[]{},:\"'") and not error.msg.startswith("Extra")


def parse_number(value: object) -> float | None:
    """A finite number, which some writers put into quotes; None from anything else, a truth value too."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if abs(as_float) < float("inf") else None


def parse_integer(value: object) -> int | None:
    """An integer of 64 bits, with the same leniency."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 1 << 63 else None
    number = parse_number(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 1 << 53 else None


def format_value(value: object) -> str:
    """A value of JSON as a message shows it."""
    words = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    if type(value) in words:
        return words[type(value)]
    if isinstance(value, str):
        return json.dumps(value if len(value) < 40 else value[:37] + "...", ensure_ascii=False)
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 63 else "a number beyond 64 bits"
    return text[:40]


def format_keys(value: Mapping[str, object]) -> str:
    """The first keys of an object, quoted."""
    return ", ".join(f'"{n[:40]}"' for n in list(value)[:6]) or "none"
