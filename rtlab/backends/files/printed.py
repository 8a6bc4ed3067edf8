"""What Python tools of TensorRT print: the inspector's text form, and tables of layer times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rtlab.backends.files.contents import Document, fault
from rtlab.backends.log.listing import TENSOR

#: The header that tools print, or the one that the inspector itself writes.
INSPECTOR = re.compile(r"^(?:Engine information \(txt format\):?|Layers:)[ \t]*\r?$", re.MULTILINE)
#: A row of a printed profile: microseconds and a name.
TIME = re.compile(r"^Timing:\s*(?P<time>[^\s]+?)us\s*->\s*(?P<name>.*?)\r?$", re.MULTILINE)
# Values may hold any character, so a line is taken apart at its fixed keys.
_LINE = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>[\w:]+), Inputs: \[(?P<Inputs>.*?)\], "
    r"(?:Constants: \[(?P<Constants>.*?)\], )?Outputs: \[(?P<Outputs>|.*?\})\](?=, \w+: |$)(?P<rest>.*)"
)
_KEY = re.compile(r", (?P<key>[A-Z]\w*): ")
_SIDES = ("Inputs", "Outputs", "Constants")


def layers(text: str, file: str) -> Document:
    """The inspector's text form as the document that its JSON form would be.

    Raises:
        ReadError: it has no listing of layers, or a line of it is no layer.
    """
    header = INSPECTOR.search(text)
    if header is None:
        raise fault("layers", file, "line 1: it has no listing of layers", 'a line "Layers:"')
    line = text.count("\n", 0, header.start()) + 1
    found: list[object] = []
    bindings: list[str] = []
    section = ""
    for offset, raw in enumerate(text[header.start() :].split("\n")):
        row = raw.rstrip("\r")
        if row in {"Layers:", "Bindings:"}:
            section = row
        elif not row.strip():
            # A blank line ends the bindings; before them it divides the sections.
            if section == "Bindings:":
                break
        elif section == "Bindings:":
            bindings.append(row)
        elif section == "Layers:":
            found.append(_entry(row, f"line {line + offset}", file))
    return Document({"Layers": found, "Bindings": bindings})


def entries(rows: Iterable[tuple[int, str]]) -> tuple[list[object], list[int]]:
    """Lines of a log, each with its number, as the entries of ``Layers`` in JSON; and the numbers of damaged ones."""
    found: list[object] = []
    damaged: list[int] = []
    for line, row in rows:
        entry = _parsed(row)
        if entry is None:
            damaged.append(line)
        else:
            found.append(entry)
    return found, damaged


def _entry(row: str, where: str, file: str) -> object:
    if not row.startswith("Name: "):
        return row
    entry = _parsed(row)
    if entry is None:
        expected = "Name, LayerType, Inputs and Outputs, and of each tensor its name and dimensions"
        raise fault("layers", file, f"{where}: it is cut off or changed", expected)
    return entry


def _parsed(row: str) -> dict[str, object] | None:
    """A row as an entry of the JSON form; None where it is cut off or changed."""
    found = _LINE.fullmatch(row)
    if found is None:
        return None
    entry: dict[str, object] = {"Name": found["name"], "LayerType": found["kind"]}
    for side in _SIDES:
        tensors = [_tensor(m) for m in TENSOR.finditer(found[side] or "")]
        if (found[side] or "").count("{ Name: ") != len(tensors):
            return None
        entry[side] = tensors
    rest, _, entry["Metadata"] = found["rest"].partition(", Metadata:")
    marks = [*_KEY.finditer(rest)]
    for mark, end in zip(marks, [*(m.start() for m in marks[1:]), len(rest)], strict=True):
        value = rest[mark.end() : end].strip()
        entry[mark["key"]] = _value(value)
    return entry


def _value(text: str) -> object:
    """Numbers, lists and objects are printed as JSON has them; words are not."""
    try:
        return json.loads(text) if len(text) < 1000 and text[:1] in "-0123456789[{" else text
    except (ValueError, RecursionError):
        return text


def _tensor(found: re.Match[str]) -> dict[str, object]:
    entry: dict[str, object] = {"Name": found["name"], "Dimensions": _ints(found["shape"])}
    if found["strides"] is not None:
        entry["Strides"] = _ints(found["strides"])
    told = {"Format/Datatype": found["both"], "Datatype": found["dtype"], "Format": found["format"]}
    return entry | {k: v.strip() for k, v in told.items() if v}


def _ints(text: str) -> list[str]:
    return [t.strip() for t in text.split(",") if t.strip()]


def times(text: str, file: str) -> list[list[tuple[str, float]]]:
    """Tables of layer times, one for each inference: names and milliseconds.

    Raises:
        ReadError: a row has no time.
    """
    runs: list[list[tuple[str, float]]] = []
    for match in TIME.finditer(text):
        try:
            time = float(match["time"]) / 1e3
        except ValueError:
            time = -1.0
        if not 0 <= time < float("inf"):
            line = text.count("\n", 0, match.start()) + 1
            found = f'line {line}: row "{match["name"]}" has no time'
            raise fault("profile", file, found, "microseconds")
        # The layers of one inference come in one order, so the first one begins the next.
        if not runs or match["name"] == runs[-1][0][0]:
            runs.append([])
        runs[-1].append((match["name"], time))
    return runs
