"""What Python tools of TensorRT print: the inspector's text form, and tables of layer times."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable

from rtlab.backends.readers.contents import Document, fault
from rtlab.backends.readers.log.listing import EDGE, TENSOR
from rtlab.core.phrases import pluralize

#: The header that tools print, or the one that the inspector itself writes.
INSPECTOR = re.compile(r"^(?:Engine information \(txt format\):?|Layers:)[ \t]*\r?$", re.MULTILINE)
#: A layer as the inspector prints it. People paste such lines, and cut the first and the last.
ROW = re.compile(r"^[ \t]*Name: .*?, LayerType: [\w:]+, Inputs: \[", re.MULTILINE)
#: The head of the table that ``trtexec --dumpProfile`` prints. Up to TensorRT 8.4 layers stand first, later last, and
#: medians came later than means.
TABLE = re.compile(
    r"^[ \t]*(?P<tag>(?:\[[^\]\n]*\][ \t]*)*)(?P<first>Layer[ \t]+)?Time ?\(ms\)[ \t]+Avg\. ?(?:Time )?\(ms\)"
    r"(?P<median>[ \t]+Median ?(?:Time )?\(ms\))?[ \t]+Time ?(?:\(%\)|%)(?(first)|[ \t]+Layer)[ \t]*\r?$",
    re.MULTILINE,
)
_COUNT = re.compile(r"=== Profile \((?P<count>\d{1,12}) iterations ?\) ===")
_TAG = re.compile(r"^(?:\[[\d/]+-[\d:.]+\] )?(?:\[[VIWEF]\] )?[ \t]*")
_TOTAL = "Total"
#: A row of a printed profile: microseconds and a name.
TIME = re.compile(r"^Timing:\s*(?P<time>[^\s]+?)us\s*->\s*(?P<name>.*?)\r?$", re.MULTILINE)
# Values may hold any character, so a line is taken apart at its fixed keys.
_LINE = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>[\w:]+), Inputs: \[(?P<Inputs>.*?)\], "
    r"(?:Constants: \[(?P<Constants>.*?)\], )?Outputs: \[(?P<Outputs>|.*?\})\](?=, \w+: |$)(?P<rest>.*)"
)
_KEY = re.compile(r", (?P<key>[A-Z]\w*): ")
_SIDES = ("Inputs", "Outputs", "Constants")
#: The sections of a listing. Tensors at the edge took the place of bindings in TensorRT 11 and RTX.
_SECTIONS = frozenset({"Layers:", "Bindings:", "I/O Tensors:"})


@dataclasses.dataclass(frozen=True)
class Table:
    """Names and milliseconds of layers over ``count`` inferences, medians or means; ``is_complete`` up to the total."""

    rows: tuple[tuple[str, float], ...]
    count: int
    medians: bool
    is_complete: bool


def parse_layers(text: str, file: str) -> Document:
    """The inspector's text form as the document of its JSON form, or of a piece what is whole; or ``ReadError``."""
    header = INSPECTOR.search(text) or ROW.search(text)
    if header is None:
        raise fault("layers", file, "line 1: it has no listing of layers", 'a line "Layers:"')
    line = _get_line(text, header.start())
    lines = text[header.start() :].rstrip(" \t\r\n").split("\n")
    notes: list[str] = []
    if (last := _trim_last_row(lines[-1], has_end=text.endswith("\n"))) != lines[-1]:
        notes.append(f'Line {line + len(lines) - 1} of "{file}" is cut off: its end is not read.')
        lines[-1] = last
    # What people paste begins with a layer.
    sections = _split_sections(lines, "Layers:" if header.re is ROW else "")
    has_several_rows = sum(row.startswith("Name: ") for _, row in sections["Layers:"]) > 1
    layer_entries = [
        _require_entry(row, f"line {line + offset}", file)
        for offset, row in sections["Layers:"]
        if not has_several_rows or row.startswith("Name: ")
    ]
    if not layer_entries:
        raise fault("layers", file, f"line {line}: no layer in its listing is whole", "a line for each layer")
    if header.re is ROW:
        notes.append(
            f'"{file}" is a piece of a listing of layers: {pluralize(len(layer_entries), "layer")} of it '
            f"{'is' if len(layer_entries) == 1 else 'are'} shown. Give all of what the inspector printed for the rest."
        )
    edges = [
        {
            "Name": m["name"],
            "IOMode": m["mode"],
            "DataType": m["dtype"],
            "Dimensions": _split_ints(m["shape"]),
        }
        for _, row in sections["I/O Tensors:"]
        if (m := EDGE.match(row)) is not None
    ]
    bindings = [row for _, row in sections["Bindings:"]]
    document = {"Layers": layer_entries, "I/O Tensors": edges, "Bindings": bindings}
    return Document(document, tuple(notes))


def _get_line(text: str, at: int) -> int:
    """The number of the line of a position, from 1."""
    return text.count("\n", 0, at) + 1


def _split_sections(lines: Iterable[str], section: str) -> dict[str, list[tuple[int, str]]]:
    """Lines of a listing by their section, each with its number."""
    sections: dict[str, list[tuple[int, str]]] = {name: [] for name in _SECTIONS}
    for offset, raw in enumerate(lines):
        row = raw.strip("\r") if section != "Layers:" else raw.strip("\r").lstrip(" \t")
        if row in _SECTIONS:
            section = row
        elif not row.strip():
            # A blank line ends what is last; before that it divides the sections.
            if section not in {"", "Layers:"}:
                break
        elif section:
            sections[section].append((offset, row))
    return sections


def _trim_last_row(row: str, *, has_end: bool) -> str:
    """The last row as far as it is whole: without an end its last value may be cut."""
    if not row.startswith("Name: ") or EDGE.match(row):
        return row if has_end or row in _SECTIONS else ""
    marks = [*_KEY.finditer(row)]
    whole_row = row if has_end or row.endswith(("]", "}")) or not marks else row[: marks[-1].start()]
    return "" if parse_entry(whole_row) is None else whole_row


def parse_entries(rows: Iterable[tuple[int, str]]) -> tuple[list[object], list[int]]:
    """Lines of a log, each with its number, as the entries of ``Layers`` in JSON; and the numbers of damaged ones."""
    entries = [(line, parse_entry(row)) for line, row in rows]
    return [e for _, e in entries if e is not None], [line for line, e in entries if e is None]


def _require_entry(row: str, where: str, file: str) -> object:
    if not row.startswith("Name: "):
        return row
    layer_entry = parse_entry(row)
    if layer_entry is None:
        expected = "Name, LayerType, Inputs and Outputs, and of each tensor its name and dimensions"
        raise fault("layers", file, f"{where}: it is cut off or changed", expected)
    return layer_entry


def parse_entry(row: str) -> dict[str, object] | None:
    """A row as an entry of the JSON form; None where it is cut off or changed."""
    match = _LINE.fullmatch(row)
    if match is None:
        return None
    fields: dict[str, object] = {"Name": match["name"], "LayerType": match["kind"]}
    for side in _SIDES:
        tensors = [_parse_tensor(m) for m in TENSOR.finditer(match[side] or "")]
        if (match[side] or "").count("{ Name: ") != len(tensors):
            return None
        fields[side] = tensors
    rest, _, fields["Metadata"] = match["rest"].partition(", Metadata:")
    marks = [*_KEY.finditer(rest)]
    # None at all, where the row is cut off behind its tensors.
    for mark, next_ in itertools.zip_longest(marks, marks[1:]):
        end = next_.start() if next_ else len(rest)
        fields[mark["key"]] = _parse_value(rest[mark.end() : end].strip())
    return fields


def _parse_value(text: str) -> object:
    """Numbers, lists and objects are printed as JSON has them; words are not."""
    try:
        return json.loads(text) if len(text) < 1000 and text[:1] in "-0123456789[{" else text
    except (ValueError, RecursionError):
        return text


def _parse_tensor(match: re.Match[str]) -> dict[str, object]:
    entry: dict[str, object] = {"Name": match["name"], "Dimensions": _split_ints(match["shape"])}
    if match["strides"] is not None:
        entry["Strides"] = _split_ints(match["strides"])
    formats = {"Format/Datatype": match["both"], "Datatype": match["dtype"], "Format": match["format"]}
    return entry | {k: v.strip() for k, v in formats.items() if v}


def _split_ints(text: str) -> list[str]:
    return [t.strip() for t in text.split(",") if t.strip()]


def parse_table(text: str, file: str) -> Table:
    """The last table of ``--dumpProfile`` in a text, without a last row that may be cut; ``ReadError`` without rows."""
    head = [*TABLE.finditer(text)][-1]
    numbers = 4 if head["median"] else 3
    rows: list[tuple[str, float]] = []
    is_complete = False
    lines = text[head.end() :].lstrip("\r\n").split("\n")
    for at, line in enumerate(lines):
        body = _TAG.sub("", line.rstrip("\r"), count=1)
        # A name may hold spaces, so the numbers are taken off the other end.
        parts = body.rsplit(None, numbers) if head["first"] else body.split(None, numbers)
        if len(parts) <= numbers:
            break
        name, cells = (parts[0], parts[1:]) if head["first"] else (parts[-1], parts[:-1])
        try:
            values = [float(v) for v in cells]
        except ValueError:
            break
        if name.strip() == _TOTAL:
            is_complete = True
            break
        if at == len(lines) - 1:
            break
        rows.append((name.strip(), values[2 if head["median"] else 1]))
    if not rows:
        problem = f"line {_get_line(text, head.start())}: no row follows the head of the table"
        raise fault("profile", file, problem, "a row for each layer")
    counts = [m for m in _COUNT.finditer(text) if m.start() < head.start()]
    return Table(tuple(rows), int(counts[-1]["count"]) if counts else 0, bool(head["median"]), is_complete)


def parse_times(text: str, file: str) -> list[list[tuple[str, float]]]:
    """Tables of layer times, one for each inference: names and milliseconds; ``ReadError`` where a row has no time."""
    runs: list[list[tuple[str, float]]] = []
    rows = [*TIME.finditer(text)]
    if text.strip().count("\n") > 0 and rows[-1].end() == len(text):
        # The name of a last row without an end may be cut.
        rows.pop()
    for match in rows:
        try:
            time = float(match["time"]) / 1e3
        except ValueError:
            time = -1.0
        if not 0 <= time < float("inf"):
            problem = f'line {_get_line(text, match.start())}: row "{match["name"]}" has no time'
            raise fault("profile", file, problem, "microseconds")
        # The layers of one inference come in one order, so the first one begins the next.
        if not runs or match["name"] == runs[-1][0][0]:
            runs.append([])
        runs[-1].append((match["name"], time))
    return runs
