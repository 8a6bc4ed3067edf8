"""Tactics that the builder timed, out of the lines in which its verbose log tells of them, TensorRT 5 to 11."""

from __future__ import annotations

import dataclasses
import heapq
import re
import sys
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from rtlab.backends.readers.log.listing import parse_node_ids
from rtlab.core.buildlog import Operator, TacticTime, Tuning

#: How many tactics of one contest are kept.
MAX_TACTICS = 20
#: Beyond this a time means that nothing ran: old builders write the largest float.
NEVER = 1e30
#: Rows that wait to be read before the best of them are picked.
_WAITING = 5_000

_NAMED = re.compile(rb"Set Tactic Name: (?P<name>\S+)(?: Tactic: (?P<tactic>-?\w+))?")
_SCRATCH = re.compile(rb"[Ss]cratch requested: (\d{1,18})")
_ONLY = re.compile(rb"Tactic (-?\w+) is the only option")
_speed = attrgetter("milliseconds")
_NUMBERED = re.compile(r"\[0x[0-9a-fA-F]*\]$")
_HEAD = re.compile(
    r"Autotuning op (?P<name>.+?)(?:\(key: (?P<key>0x[0-9a-fA-F]{32})\))?:(?:\s*(?P<labels>\[ONNX Layer: .*))?\s*$"
)
_ROW = re.compile(
    r"(?:^|\s)\d+, (?P<time>[^,\s]+), [^,\s]+, [^,\s]+, (?P<name>.+?), (?P<tactic>0x[0-9a-fA-F]{1,16}),"
)


class TacticRows:
    """Collects the rows of one contest after the other. ``rows`` takes lines as they stand in the log."""

    def __init__(self) -> None:
        self.tunings: list[Tuning] = []
        self.rows: list[bytes] = []
        #: Tactics that could not run for want of workspace, and the largest wish in bytes.
        self.refused_count, self.largest_workspace = 0, 0
        self.cached_count = 0
        self.attempt = 0
        self._layer, self._formats, self._runner, self._line = "", "", "", 0
        self._open = False
        self._since = 0
        self._count, self._only = 0, ""
        self._best: list[TacticTime] = []
        #: The head of the table of an operator within a region, its line, and the rows that follow; None outside.
        self._operator: tuple[re.Match[str], int] | None = None
        self._inside: list[str] = []

    def read_operator_line(self, line: bytes, number: int) -> None:
        """A line of a region's own compiler, which times the operators within."""
        if b"Autotuning op " in line:
            self._end_operator()
            head = _HEAD.search(line.decode("utf-8", "replace"))
            self._operator = (head, number) if head else None
        elif self._operator:
            self._inside.append(line.decode("utf-8", "replace"))

    def _end_operator(self) -> None:
        """The table of an operator is over."""
        if self._operator is not None:
            head, line = self._operator
            operator = _parse_operator(head, self._inside)
            if operator.timed:
                layer, runner = (self._layer, self._runner) if self._open else ("", "")
                timed = operator.timed
                more = {"operator": _intern(operator.name), "nodes": operator.nodes}
                self._add(
                    layer, runner, timed[:MAX_TACTICS], timed[0].tactic, count=len(timed), line=line, **more
                )
        self._operator = None
        self._inside.clear()

    def _add(self, layer: str, runner: str, timed: tuple[TacticTime, ...], chosen: str, **more: Any) -> None:
        tuning = Tuning(layer, runner, self._formats, timed, chosen, attempt=self.attempt, **more)
        self.tunings.append(tuning)

    def begin_formats(self, text: str) -> None:
        """A combination of formats is tried from here on; empty when the next layer begins."""
        self.end_contest()
        self._formats = _intern(text)
        self._since = len(self.tunings)

    def begin_runner(self, layer: str, runner: str, line: int) -> None:
        """A runner's tactics are timed from here on."""
        self.end_contest()
        if layer != self._layer:
            self._since = len(self.tunings)
        self._layer, self._runner, self._line = _intern(layer), _intern_runner(runner), line
        self.rows.clear()
        self._open = True

    def end_runner(self, layer: str, runner: str, tactic: str, milliseconds: str) -> None:
        """The runner's contest is over. Layer and runner are empty where the line does not name them."""
        if not self._open and runner:
            self._layer, self._runner, self._open = _intern(layer), _intern_runner(runner), True
        self.end_contest(tactic if parse_time(milliseconds) is not None else "")

    def record_no_tactic(self, layer: str, runner: str, line: int) -> None:
        """A runner has no tactic for these formats."""
        self.end_contest()
        self._add(_intern(layer), _intern_runner(runner), (), "", count=0, line=line)

    def record_cached(self, cached: re.Match[str], line: int) -> None:
        """A timing cache knew the result, so nothing was timed: ``cached`` has what the line says by name."""
        time = parse_time(cached["time"])
        if time is None:
            return
        layer, formats, runner = cached["layer"], cached["formats"], cached["runner"]
        row = TacticTime(cached["tactic"], "", time)
        self.begin_formats(formats)
        self.cached_count += 1
        self._add(_intern(layer), _intern(runner), (row,), row.tactic, count=0, line=line, won=True)

    def record_choice(self, runner: str, tactic: str) -> None:
        """The builder takes one runner for these formats."""
        self.end_contest()
        for index in range(len(self.tunings) - 1, self._since - 1, -1):
            tuning = self.tunings[index]
            if tuning.runner == runner and not tuning.operator and (tuning.timed or tuning.chosen):
                self.tunings[index] = dataclasses.replace(tuning, chosen=tactic, won=True)
                return

    def end_contest(self, chosen: str | None = None) -> None:
        """End the contest that is open, if one is; rows without one lack the beginning of their log."""
        self._end_operator()
        self._read_rows()
        if self._open and (self._count or self._only or chosen is not None):
            best = self._best[0].tactic if self._best else self._only
            if chosen is not None:
                best = _intern(chosen) if best else ""
            self._add(self._layer, self._runner, tuple(self._best), best, count=self._count, line=self._line)
        self._open, self._count, self._only, self._best = False, 0, "", []

    def trim(self) -> None:
        """Keep memory bounded however many tactics one contest has."""
        if len(self.rows) > _WAITING:
            self._read_rows()

    def _read_rows(self) -> None:
        rows = self.rows
        named_tactics: dict[int, re.Match[bytes]] = {}
        try:
            # "Time: 0.1" since TensorRT 8. Most contests hold nothing else, and this is what a large log costs.
            milliseconds = [float(row.rpartition(b"ime: ")[2]) for row in rows]
        except ValueError:
            milliseconds = [self._read_row(row, index, named_tactics) for index, row in enumerate(rows)]
        times = [(time, index) for index, time in enumerate(milliseconds) if 0 <= time < NEVER]
        self._count += len(times)
        best = self._best
        for time, index in heapq.nsmallest(MAX_TACTICS, times):
            front, _, back = rows[index].rpartition(b"Tactic")
            tactic = back.lstrip(b": ").partition(b" ")[0]
            name = front.partition(b"Tactic Name: ")[2].rstrip()
            before = named_tactics.get(index - 1)
            if before and before["tactic"] in {None, tactic}:
                name = before["name"]
            best.append(TacticTime(_intern(tactic), _intern(name), time))
        best.sort(key=_speed)
        del best[MAX_TACTICS:]
        rows.clear()

    def _read_row(self, row: bytes, index: int, named_tactics: dict[int, re.Match[bytes]]) -> float:
        """The time of a row, as it was in any version; -1 for one that names the next tactic, or tells why none ran."""
        for word in (b"ime: ", b"ime "):
            _, separator, after = row.rpartition(word)
            if separator and (time := parse_time(after)) is not None:
                return time
        if name := _NAMED.search(row):
            named_tactics[index] = name
        elif scratch := _SCRATCH.search(row):
            self.refused_count += 1
            self.largest_workspace = max(self.largest_workspace, int(scratch[1]))
        elif only := _ONLY.search(row):
            self._only = _intern(only[1])
        return -1.0


def _intern(name: bytes | str) -> str:
    """One string for each name: a log repeats them by the thousand."""
    return sys.intern(name if isinstance(name, str) else name.decode("utf-8", "replace"))


def _intern_runner(runner: str) -> str:
    return sys.intern(_NUMBERED.sub("", runner))


def parse_time(text: str | bytes) -> float | None:
    """Milliseconds; None where it is no time."""
    try:
        time = float(text)
    except ValueError:
        return None
    return time if 0 <= time < NEVER else None


def parse_operators(log: str) -> tuple[Operator, ...]:
    """The operators inside regions whose tactics a verbose log lists, in its order; one for each key."""
    tables: dict[str, tuple[re.Match[str], list[str]]] = {}
    rows: list[str] = []
    for line in log.splitlines():
        if "Autotuning op " in line and (head := _HEAD.search(line)):
            # What was timed again counts as it was last.
            rows = []
            tables[(head["key"] or "").lower() or f"table {len(tables)}"] = (head, rows)
        else:
            rows.append(line)
    parsed_operators = (_parse_operator(head, lines) for head, lines in tables.values())
    return tuple(o for o in parsed_operators if o.timed)


def _parse_operator(head: re.Match[str], lines: Iterable[str]) -> Operator:
    """An operator by the head of its table, with the tactics in the lines that follow, the fastest first."""
    rows = filter(None, map(_ROW.search, lines))
    timed = [
        TacticTime(row["tactic"], row["name"], time)
        for row in rows
        if (time := parse_time(row["time"])) is not None
    ]
    key = (head["key"] or "").lower()
    return Operator(head["name"], key, parse_node_ids(head["labels"] or ""), tuple(sorted(timed, key=_speed)))
