"""Pieces of JSON files: the objects in them that are whole, where the file was cut at its start or its end."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from rtlab.core.phrases import pluralize

_OBJECT = re.compile(r'\{\s*"')
#: A line of a list of names, such as layers without detailed verbosity.
_NAME = re.compile(r'^[ \t]*[,\[]?[ \t]*("(?:[^"\\\n]|\\.)*")[ \t]*,?[ \t]*\]?[ \t]*$', re.MULTILINE)
_KEY = re.compile(r'"(?!Layers"|Bindings")[^"\n]*"\s*:')
_FIRST = re.compile(r'^\s*\{\s*"Layers"\s*:\s*')
_EDGES = re.compile(r'"Bindings"\s*:\s*\[')
#: Objects that are tried and found to be cut: those around the cut, as deep as files nest.
_TRIES = 50
#: As many names as no engine has inputs and outputs.
_MANY = 10


#: By kind of a file: the key of an entry's name, keys of which it has one beside it, and what it is called.
_ENTRIES = {
    "layers": ("Name", {"LayerType", "Inputs", "Outputs"}, "layer"),
    "profile": ("name", {"averageMs", "medianMs", "timeMs"}, "row"),
    "times": ("", {"computeMs"}, "row"),
}


def salvage(text: str, file: str, kind: str) -> tuple[object, tuple[str, ...]] | None:
    """What a piece of a file holds, as the document of a whole one, and a note; None where no entry in it is whole."""
    if kind not in _ENTRIES:
        return None
    name_key, keys, word = _ENTRIES[kind]
    objects = list(_iter_objects(text))
    entries: list[object] = [
        o
        for o in objects
        if (keys & o.keys() and (not name_key or isinstance(o.get(name_key), str)))
        or (kind == "profile" and "count" in o)
    ]
    if not entries and kind == "layers":
        entries, word = _read_name_list(text), "name"
    rows = sum(not (isinstance(e, dict) and "count" in e) for e in entries)
    if not rows:
        return None
    has_start = re.match(r'\s*(?:\[|\{\s*"Layers")', text) is not None
    has_end = text.rstrip().endswith("}" if kind == "layers" and has_start else "]")
    cut_ends = " and ".join(["start"] * (not has_start) + ["end"] * (not has_end)) or "end"
    note = (
        f'"{file}" is a piece of a file, cut off at its {cut_ends}: the {pluralize(rows, word)} in it that '
        f"{'is' if rows == 1 else 'are'} whole {'is' if rows == 1 else 'are'} shown. Give the whole file for the rest."
    )
    if kind != "layers":
        return entries, (note,)
    edges = [e for e in objects if "IOMode" in e]
    tensors = {"I/O Tensors": edges} if edges else {"Bindings": _read_bindings(text)}
    return {"Layers": entries, **tensors}, (note,)


def _iter_objects(text: str) -> Iterator[dict[str, Any]]:
    """Whole objects, the outermost of each, in order."""
    decoder = json.JSONDecoder(strict=False)
    end = failures = 0
    for match in _OBJECT.finditer(text):
        if match.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            failures += 1
            if failures == _TRIES:
                return
            continue
        if isinstance(value, dict):
            yield value


def _read_name_list(text: str) -> list[object]:
    """Names of layers in a list of names. Those of a few tensors at its end could be taken for such."""
    edges = _EDGES.search(text)
    # Names have no keys beside those of the lists.
    if _KEY.search(text):
        return []
    names: list[object] = [*_iter_names(text)]
    is_json_start = text.lstrip().startswith(("{", "[")) or edges is not None
    last = edges is None and re.search(r"\]\s*\}\s*$", text) is not None
    return names if (is_json_start or len(names) >= _MANY) and not last else []


def _iter_names(text: str) -> Iterator[str]:
    """Names of a list that stands one to a line, up to the list of bindings."""
    edges = _EDGES.search(text)
    list_text = _FIRST.sub("", text[: edges.start() if edges else None])
    for match in _NAME.finditer(list_text):
        with contextlib.suppress(ValueError):
            yield json.loads(match[1], strict=False)


def _read_bindings(text: str) -> list[object]:
    edges = _EDGES.search(text)
    if edges is None:
        return []
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, edges.end() - 1)
    except (ValueError, RecursionError):
        return []
    return [v for v in value if isinstance(v, str)]
