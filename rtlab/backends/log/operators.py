"""Tables of tactics inside foreign nodes: what TensorRT's graph compiler timed for each operator of a region."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable

from rtlab.backends.log.listing import origins
from rtlab.core.buildlog import Operator, TacticTime

HEAD = re.compile(
    r"Autotuning op (?P<name>.+?)(?:\(key: (?P<key>0x[0-9a-fA-F]{32})\))?:(?:\s*(?P<labels>\[ONNX Layer: .*))?\s*$"
)
_ROW = re.compile(
    r"(?:^|\s)\d+, (?P<time>[^,\s]+), [^,\s]+, [^,\s]+, (?P<name>.+?), (?P<tactic>0x[0-9a-fA-F]{1,16}),"
)


def operators(log: str) -> tuple[Operator, ...]:
    """The operators whose tactics a verbose log lists, in its order; one for each key, and each table without one."""
    found: dict[str, tuple[re.Match[str], list[str]]] = {}
    rows: list[str] = []
    for line in log.splitlines():
        if "Autotuning op " in line and (head := HEAD.search(line)):
            # What was timed again counts as it was last.
            rows = []
            found[(head["key"] or "").lower() or f"table {len(found)}"] = (head, rows)
        elif found:
            rows.append(line)
    told = (operator(head, lines) for head, lines in found.values())
    return tuple(o for o in told if o.timed)


def operator(head: re.Match[str], lines: Iterable[str]) -> Operator:
    """An operator by the head of its table, with the tactics in the lines that follow, the fastest first."""
    return Operator(
        head["name"], (head["key"] or "").lower(), tuple(origins(head["labels"] or "")), tuple(_timed(lines))
    )


def _timed(lines: Iterable[str]) -> list[TacticTime]:
    found = []
    for line in lines:
        row = _ROW.search(line)
        time = _time(row["time"]) if row else None
        if row and time is not None:
            found.append(TacticTime(row["tactic"], row["name"], time))
    return heapq.nsmallest(len(found), found, key=lambda t: t.milliseconds)


def _time(text: str) -> float | None:
    try:
        time = float(text)
    except ValueError:
        return None
    return time if math.isfinite(time) and time >= 0 else None
