"""Tables of tactics inside foreign nodes: what TensorRT's graph compiler timed for each operator of a region."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable

from rtlab.backends.readers.log.listing import parse_node_ids
from rtlab.core.buildlog import Operator, TacticTime

#: Beyond this a time means that nothing ran: old builders write the largest float.
NEVER = 1e30
HEAD = re.compile(
    r"Autotuning op (?P<name>.+?)(?:\(key: (?P<key>0x[0-9a-fA-F]{32})\))?:(?:\s*(?P<labels>\[ONNX Layer: .*))?\s*$"
)
_ROW = re.compile(
    r"(?:^|\s)\d+, (?P<time>[^,\s]+), [^,\s]+, [^,\s]+, (?P<name>.+?), (?P<tactic>0x[0-9a-fA-F]{1,16}),"
)


def parse_operators(log: str) -> tuple[Operator, ...]:
    """The operators whose tactics a verbose log lists, in its order; one for each key, and each table without one."""
    tables: dict[str, tuple[re.Match[str], list[str]]] = {}
    rows: list[str] = []
    for line in log.splitlines():
        if "Autotuning op " in line and (head := HEAD.search(line)):
            # What was timed again counts as it was last.
            rows = []
            tables[(head["key"] or "").lower() or f"table {len(tables)}"] = (head, rows)
        elif tables:
            rows.append(line)
    parsed_operators = (parse_operator(head, lines) for head, lines in tables.values())
    return tuple(o for o in parsed_operators if o.timed)


def parse_operator(head: re.Match[str], lines: Iterable[str]) -> Operator:
    """An operator by the head of its table, with the tactics in the lines that follow, the fastest first."""
    return Operator(
        head["name"],
        (head["key"] or "").lower(),
        tuple(parse_node_ids(head["labels"] or "")),
        tuple(_parse_rows(lines)),
    )


def _parse_rows(lines: Iterable[str]) -> list[TacticTime]:
    times = []
    for line in lines:
        row = _ROW.search(line)
        time = parse_time(row["time"]) if row else None
        if row and time is not None:
            times.append(TacticTime(row["tactic"], row["name"], time))
    return heapq.nsmallest(len(times), times, key=lambda t: t.milliseconds)


def parse_time(text: str | bytes) -> float | None:
    """Milliseconds; None where it is no time."""
    try:
        time = float(text)
    except ValueError:
        return None
    return time if 0 <= time < NEVER else None
