"""Values as readable text in files, and what differs between two: lines side by side, with the path to the value."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import enum
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from rtlab.core import schema
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model

#: Letters of a line and of what stands beside others in it, digits of a number, numbers of an array written one by one.
WIDTH, SHORT, DIGITS, LISTED = 160, 90, 7, 40
#: What is too large to be a value of an answer, and has sections of its own.
WHOLE = (Engine, VariantResult, Model, onnx.ModelProto)
#: What of a text is of one run or one machine: numbers of alike nodes, durations, threads, releases.
_MASKED = {
    re.compile(r"\b(Reorder(?:In|Out)put)_token_\d+"): r"\1",
    re.compile(r"^[\d.]+ s$"): "... s",
    re.compile(r"\b[\d.]+ x plain\b"): "... x plain",
    re.compile(r"\b\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?( UTC|Z|\+00:00)?)?(?!\d)"): "<date>",
    re.compile(r"\btook [\d.,]+ s\b"): "took ... s",
    re.compile(r"\b\d+ threads?\b"): "... threads",
    re.compile(r"\bONNX Runtime \d[\d.]*\d"): "ONNX Runtime ...",
}


def plain(value: Any) -> Any:  # noqa: C901 - a line for each kind
    """A value as JSON has it: fields of nouns by name, large arrays by their sums, numbers to seven digits."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, (float, np.floating)):
        return rounded(float(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, WHOLE):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if schema.is_noun(type(value)):
        return {name: plain(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


@dataclasses.dataclass(frozen=True)
class Golden:
    """Files of what is right in a folder; ``accept`` writes what the code gives now.

    Another release of the compiler may fuse otherwise: where only sections of another one differ, a test ends as
    skipped. Sections that repeat the first one say so.
    """

    folder: Path
    accept: bool

    def __call__(
        self, name: str, sections: Mapping[str, Any], *, rel: float = 1e-6, least: float = 1e-9
    ) -> None:
        """Compare sections, by heads such as ``int8 · TensorRT-RTX 1.7.1.116``; numbers by ``rel`` of themselves."""
        path, first = self.folder / name, next(iter(sections))
        now = {k: plain(v) for k, v in sections.items()}
        now = {k: f"as {_variant(first)}" if k != first and v == now[first] else v for k, v in now.items()}
        kept = read(path.read_text(encoding="utf-8")) if path.exists() else {}
        heads = {was: head for was, head in zip(kept, now, strict=False) if was == head}
        found = [
            (f"{head}{c[0]}", *c[1:])
            for head in heads
            for c in differences(kept[head], now[head], rel, least)
        ]
        if self.accept:
            if found or [*kept] != [*now]:
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_text(written(now), encoding="utf-8")
            return
        assert kept, f"no file {name}: tests/run golden --accept writes it"
        assert [_variant(h) for h in kept] == [_variant(h) for h in now]
        head = f"{name} differs: the value there | the value now; tests/run golden --accept writes it anew"
        assert not found, "\n".join([head, *beside(found)])
        if others := [f"{a}, and here is {b}" for a, b in zip(kept, now, strict=True) if a != b]:
            pytest.skip(f"{name} is of {'; '.join(others)}")


def _variant(head: str) -> str:
    return head.partition(" · ")[0]


def masked(text: str) -> str:
    for pattern, instead in _MASKED.items():
        text = pattern.sub(instead, text)
    return text


def _fields(kind: type) -> tuple[str, ...]:
    try:
        return tuple(f.name for f in schema.fields(kind))
    except NameError:
        return tuple(f.name for f in dataclasses.fields(kind) if not f.name.startswith("_"))


def rounded(number: float) -> float | str:
    if not math.isfinite(number):
        return str(number)
    found = float(f"{number:.{DIGITS}g}")
    return found + 0.0


def array(found: Any) -> Any:
    """Few numbers as they are, of many shape, sums and a weighted sum that tells their order."""
    found = np.asarray(found)
    if found.dtype.kind not in "fiub" or found.size <= LISTED:
        return [plain(v) for v in found.ravel().tolist()] if found.ndim else plain(found.item())
    flat = found.astype(np.float64).ravel()
    finite = np.where(np.isfinite(flat), flat, 0.0)
    order = np.cos(np.arange(flat.size))
    sums = {"sum": finite.sum(), "magnitude": np.abs(finite).sum(), "order": (finite * order).sum()}
    return {"shape": list(found.shape), **{k: rounded(float(v)) for k, v in sums.items()}}


def written(value: Any) -> str:
    """JSON that people read: what fits in a line stands in one, and objects with the same fields are a table."""
    return "\n".join(_lines(_tabled(value), "")) + "\n"


def read(text: str) -> Any:
    return _untabled(json.loads(text))


def _tabled(value: Any) -> Any:
    """With lists and maps of objects that have the same fields as tables: their names, then a row each."""
    if not isinstance(value, (dict, list)) or not value:
        return value
    inner = [*(value.values() if isinstance(value, dict) else value)]
    same = len(inner) > 1 and all(isinstance(v, dict) and list(v) == list(inner[0]) for v in inner)
    rows = [[_tabled(x) for x in v.values()] for v in inner] if same and len(inner[0]) > 1 else None
    if isinstance(value, list):
        return [_tabled(v) for v in value] if rows is None else {"#": [list(inner[0]), *rows]}
    if rows is None or any(" · " in k for k in value):
        return {k: _tabled(v) for k, v in value.items()}
    return {"#by": [list(inner[0]), *([k, *row] for k, row in zip(value, rows, strict=True))]}


def _untabled(value: Any) -> Any:
    if isinstance(value, list):
        return [_untabled(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "#" in value:
        keys, *rows = value["#"]
        return [dict(zip(keys, map(_untabled, row), strict=True)) for row in rows]
    if "#by" in value:
        keys, *rows = value["#by"]
        return {key: dict(zip(keys, map(_untabled, row), strict=True)) for key, *row in rows}
    return {k: _untabled(v) for k, v in value.items()}


def _lines(value: Any, indent: str, before: str = "") -> Iterator[str]:
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(before) + len(short) < WIDTH or not isinstance(value, (dict, list)) or not value:
        yield f"{indent}{before}{short}"
        return
    ends = "{}" if isinstance(value, dict) else "[]"
    yield f"{indent}{before}{ends[0]}"
    items = value.items() if isinstance(value, dict) else (("", v) for v in value)
    last, inner, line = len(value) - 1, f"{indent} ", ""
    rows = before.startswith('"#')
    for i, (key, one) in enumerate(items):
        label = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(value, dict) else ""
        *head, tail = _lines(one, inner, label)
        tail += "," if i < last else ""
        alone = bool(head) or rows or (isinstance(one, (dict, list)) and len(tail) > SHORT)
        if alone or len(line) + len(tail) >= WIDTH:
            yield from filter(None, (line, *head))
            line = ""
        if alone:
            yield tail
        else:
            line = f"{line} {tail.strip()}" if line else tail
    if line:
        yield line
    yield f"{indent}{ends[1]}"


def differences(
    kept: Any, now: Any, rel: float = 1e-6, least: float = 1e-9, path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Path, value before and value now of all that differs; numbers by more than ``rel`` of themselves."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*kept, *now)):
            yield from differences(kept.get(key, ...), now.get(key, ...), rel, least, f"{path}.{key}")
    elif isinstance(kept, list) and isinstance(now, list):
        for i, j in _paired(kept, now):
            at = f"{path}[{j if i is None else i}]"
            a, b = ... if i is None else kept[i], ... if j is None else now[j]
            yield from differences(a, b, rel, least, at)
    elif not alike(kept, now, rel, least):
        yield path, kept, now


def alike(kept: Any, now: Any, rel: float, least: float) -> bool:
    """Whether two values are one; a number in a text, too, may differ in its last digits where sums vary."""
    if _number(kept) and _number(now):
        return math.isclose(kept, now, rel_tol=rel, abs_tol=least)
    return type(kept) is type(now) and kept == now


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _paired(kept: Sequence[Any], now: Sequence[Any]) -> Iterator[tuple[int | None, int | None]]:
    """Which items stand beside each other: one by one, and where there are more or fewer by what is alike."""
    if len(kept) == len(now):
        yield from ((i, i) for i in range(len(kept)))
        return
    texts = [[json.dumps(v, ensure_ascii=False) for v in side] for side in (kept, now)]
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag != "equal":
            both = min(b - a, d - c)
            yield from ((a + k, c + k) for k in range(both))
            yield from ((i, None) for i in range(a + both, b))
            yield from ((None, j) for j in range(c + both, d))


def beside(changes: Sequence[tuple[str, Any, Any]], most: int = 60) -> list[str]:
    """A line each: the path, the value before and the value now; a text by the words in which it differs."""
    lines = []
    for path, kept, now in changes[:most]:
        if isinstance(kept, str) and isinstance(now, str) and max(len(kept), len(now)) > 40:
            lines.append(f"{path}:")
            a, b = kept.splitlines() or [""], now.splitlines() or [""]
            lines += [f"    {x}" for x in difflib.ndiff(a, b) if not x.startswith(" ")]
        else:
            lines.append(f"{path}: {_short(kept):<40} | {_short(now)}")
    return lines + ([f"and {len(changes) - most} more"] if len(changes) > most else [])


def _short(value: Any) -> str:
    text = "(nothing)" if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
