"""Files as text and as JSON, read so that every fault is told with its place and with what belongs there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rtlab.backends.readers import fragments
from rtlab.backends.readers.wrapping import GZIP, detect_encoding, strip_wrapping
from rtlab.core.extent import MOST_LAYERS
from rtlab.core.inputs import open_input
from rtlab.core.phrases import pluralize, quote_names
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
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_NUMBER = re.compile(r"\s*-?\d{1,18}(\.\d+)?([eE][+-]?\d{1,3})?\s*")
#: Starts of JSON that are tried behind lines of a log.
_TRIES = 50
_DEEP = 200


@dataclasses.dataclass(frozen=True)
class Document:
    """The value of a JSON file, what a reader must know of how it was read, and keys that stood twice in an object."""

    value: Any
    notes: tuple[str, ...] = ()
    twice: frozenset[str] = frozenset()


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
    """A regular file, while it is read; ``error_prefix`` begins the words of an error.

    Raises:
        ReadError: there is none, or it cannot be read.
    """
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
    """A file as text, in UTF-8 or UTF-16, without what mail, issues and terminals put around its lines.

    Raises:
        ReadError: it cannot be read, or is not text; the message names the byte.
    """
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
    """Read a JSON file, with lines of a log before and after it if need be.

    Raises:
        ReadError: it is no JSON or not all of it; the message names line and column.
    """
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
        return parse(text, file, kind)
    except ReadError:
        repaired_text = _repair(text, kind)
        if repaired_text != text:
            with contextlib.suppress(ReadError):
                return parse(repaired_text, file, kind)
        raise


def parse_partial(text: str, file: str, kind: str) -> Document:
    """Read a JSON text, or what is whole of one that was cut at its start or its end; see ``load``."""
    try:
        document = parse_lenient(text, file, kind)
    except ReadError:
        if _is_truncated(text) and (part := fragments.salvage(_repair(text, kind), file, kind)):
            return Document(*part)
        raise
    # What a cut leaves may begin with a number, or be one entry.
    value = document.value
    is_whole = isinstance(value, dict) and "Layers" in value if kind == "layers" else isinstance(value, list)
    if is_whole or (isinstance(value, list) and value and all(isinstance(e, (str, dict)) for e in value)):
        return document
    part = fragments.salvage(_repair(text, kind), file, kind)
    return Document(*part) if part else document


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
        return _UNESCAPED.sub(_escape, text)
    if kind == "output":
        return _UNDEFINED.sub(lambda m: m[1] + {"nan": "NaN", "inf": "Infinity"}[m[2]], text).replace(
            "-NaN", "NaN"
        )
    return text


def _escape(row: re.Match[str]) -> str:
    return row[1] + row[2].replace("\\", "\\\\").replace('"', '\\"') + row[3]


def parse(text: str, file: str, kind: str) -> Document:
    """Read a JSON text; see ``load``."""
    duplicate_keys: set[str] = set()
    decoder = json.JSONDecoder(
        strict=False, object_pairs_hook=functools.partial(_make_object, duplicate_keys, {})
    )
    start = len(text) - len(text.lstrip())
    notes: list[str] = []
    positions: Iterable[int] = [start]
    if text[start : start + 1] in {"[", "{"} and _START.match(text, start) is None:
        # It may be the date of a log's line.
        positions = [*find_json_starts(text), start]
    elif text[start : start + 1] not in {"[", "{"}:
        positions = find_json_starts(text) or [start]
    first_error: ReadError | None = None
    for at in positions:
        duplicate_keys.clear()
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            first_error = first_error or _make_json_error(error, text, at, file, kind)
            continue
        if at > start:
            count = text.count("\n", 0, at)
            notes.append(
                f'{pluralize(count, "line")} before the JSON of "{file}" {_is_or_are(count)} passed over.'
            )
        notes += _check_rest(text, end, file, kind)
        if duplicate_keys:
            keys = quote_names(sorted(duplicate_keys)[:3])
            notes.append(
                f'Keys stand twice in one object of "{file}"; the last of each is taken: {keys}'
                + (" ..." if len(duplicate_keys) > 3 else ".")
            )
        return Document(value, tuple(notes), frozenset(duplicate_keys))
    assert first_error is not None  # noqa: S101 - there is always one try
    raise first_error


def find_json_starts(text: str) -> list[int]:
    """Where JSON may begin on a line, the first few places."""
    return [match.end() for match in itertools.islice(_START.finditer(text), _TRIES)]


def _make_object(
    duplicate_keys: set[str], lists: dict[tuple[int, ...], list[int]], items: list[tuple[str, Any]]
) -> dict[str, Any]:
    members = dict(items)
    for key, value in items:
        # Shapes, strides and kernels repeat: one list each, or Python looks through tens of thousands for garbage.
        if value.__class__ is list and set(map(type, value)) == {int}:
            members[key] = lists.setdefault(tuple(value), value)
    if len(members) != len(items):
        names: set[str] = set()
        duplicate_keys.update(k for k, _ in items if k in names or names.add(k))  # type: ignore[func-returns-value]
    return members


def _check_rest(text: str, end: int, file: str, kind: str) -> list[str]:
    """Notes on what stands after the JSON."""
    rest = text[end:].strip(" \t\r\n\0\x1a")
    if not rest:
        return []
    at = text.index(rest[0], end)
    if rest[0] in ',:]}"' or _START.match(rest):
        what = "a second JSON document" if rest[0] in "[{" else f"more JSON, {rest[0]!r},"
        raise fault(
            kind,
            file,
            f"{format_position(text, at)}: it is not whole JSON but has {what} after its end",
            "the end of the file",
        )
    count = rest.count("\n") + 1
    return [f'{pluralize(count, "line")} after the JSON of "{file}" {_is_or_are(count)} passed over.']


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def format_position(text: str, at: int) -> str:
    """Line and column of a position, from 1."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _make_json_error(error: Exception, text: str, start: int, file: str, kind: str) -> ReadError:
    if isinstance(error, json.JSONDecodeError):
        if _is_cut(error, text):
            end = len(text.rstrip())
            problem = f"{format_position(text, end)}: it is not whole JSON but cut off there"
            return fault(kind, file, problem, "the rest of the file")
        message = error.msg.partition(":")[0]
        expected = message.removeprefix("Expecting ") if message.startswith("Expecting ") else "JSON"
        excerpt = text[error.pos : error.pos + 12].split("\n", maxsplit=1)[0]
        problem = (
            f"{format_position(text, error.pos)}: it is not whole JSON, {message.lower()} near {excerpt!r}"
        )
        return fault(kind, file, problem, f"a {expected}" if expected == "value" else expected)
    if isinstance(error, RecursionError):
        problem = (
            f"{format_position(text, _find_too_deep(text, start))}: it is not whole JSON that can be read, "
            "it nests too deep"
        )
        return fault(kind, file, problem, f"JSON of fewer than {_DEEP} levels")
    digits = re.compile(r"\d{1000,}").search(text, start)
    problem = (
        f"{format_position(text, digits.start() if digits else start)}: "
        f"it is not whole JSON that can be read ({error})"
    )
    return fault(kind, file, problem, "a number that fits into 64 bits")


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    rest = text[error.pos :].rstrip()
    if error.msg.startswith("Unterminated string"):
        return True
    # The start of "null", "-Infinity" or of an escape.
    return len(rest) < 9 and not set(rest) & set("[]{},:\"'") and not error.msg.startswith("Extra")


def _find_too_deep(text: str, start: int) -> int:
    depth = 0
    for match in _BRACKETS.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > _DEEP:
            return match.start()
    return start


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
    as_float = parse_number(value)
    return (
        int(as_float) if as_float is not None and as_float.is_integer() and abs(as_float) < 1 << 53 else None
    )


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
