"""Tactics that the builder timed, out of the lines in which its verbose log tells of them, TensorRT 5 to 11."""

from __future__ import annotations

import dataclasses
import heapq
import re
from operator import attrgetter

from rtlab.backends.readers.log.operators import HEAD, NEVER, parse_operator, parse_time
from rtlab.core.buildlog import TacticTime, Tuning

#: How many tactics of one contest are kept.
MAX_TACTICS = 20
#: Rows that wait to be read before the best of them are picked.
_WAITING = 5_000

_NAMED = re.compile(rb"Set Tactic Name: (?P<name>\S+)(?: Tactic: (?P<tactic>-?\w+))?")
_SCRATCH = re.compile(rb"[Ss]cratch requested: (\d{1,18})")
_ONLY = re.compile(rb"Tactic (-?\w+) is the only option")
_speed = attrgetter("milliseconds")
_NUMBERED = re.compile(r"\[0x[0-9a-fA-F]*\]$")


class TacticRows:
    """Collects the rows of one contest after the other. ``rows`` takes lines as they stand in the log."""

    def __init__(self) -> None:
        self.tunings: list[Tuning] = []
        self.rows: list[bytes] = []
        #: Tactics that could not run for want of workspace, and the largest wish in bytes.
        self.refused_count, self.largest_workspace = 0, 0
        self.cached_count = 0
        #: Tactics without a contest: the log lacks its beginning.
        self.orphan_count = 0
        self.attempt = 0
        self._layer, self._formats, self._runner, self._line = "", "", "", 0
        self._open = False
        self._since = 0
        self._count, self._only = 0, ""
        self._best: list[TacticTime] = []
        self._names: dict[bytes | str, str] = {}
        #: The head of the table of an operator within a region, its line, and the rows that follow; None outside.
        self._operator: tuple[re.Match[str], int] | None = None
        self._inside: list[str] = []

    def read_operator_line(self, line: bytes, number: int) -> None:
        """A line of a region's own compiler, which times the operators within."""
        if b"Autotuning op " in line:
            self._end_operator()
            head = HEAD.search(line.decode("utf-8", "replace"))
            self._operator = (head, number) if head else None
        elif self._operator:
            self._inside.append(line.decode("utf-8", "replace"))

    def _end_operator(self) -> None:
        """The table of an operator is over."""
        if self._operator is not None:
            head, line = self._operator
            timed_operator = parse_operator(head, self._inside)
            if timed_operator.timed:
                self.tunings.append(
                    Tuning(
                        self._layer if self._open else "", self._runner if self._open else "", self._formats,
                        timed_operator.timed[:MAX_TACTICS], timed_operator.timed[0].tactic, len(timed_operator.timed),
                        line, attempt=self.attempt, operator=self._intern(timed_operator.name),
                        nodes=timed_operator.nodes,
                    )
                )  # fmt: skip
        self._operator = None
        self._inside.clear()

    def begin_formats(self, text: str) -> None:
        """A combination of formats is tried from here on; empty when the next layer begins."""
        self.end_contest()
        self._formats = self._intern(text)
        self._since = len(self.tunings)

    def begin_runner(self, layer: str, runner: str, line: int) -> None:
        """A runner's tactics are timed from here on."""
        self.end_contest()
        if layer != self._layer:
            self._since = len(self.tunings)
        self._layer, self._runner, self._line = self._intern(layer), self._intern(_strip_number(runner)), line
        self.rows.clear()
        self._open = True

    def end_runner(self, layer: str, runner: str, tactic: str, milliseconds: str) -> None:
        """The runner's contest is over. Layer and runner are empty where the line does not name them."""
        if not self._open and runner:
            self._layer, self._runner, self._open = (
                self._intern(layer),
                self._intern(_strip_number(runner)),
                True,
            )
        self.end_contest(tactic if parse_time(milliseconds) is not None else "")

    def record_no_tactic(self, layer: str, runner: str, line: int) -> None:
        """A runner has no tactic for these formats."""
        self.end_contest()
        self.tunings.append(
            Tuning(
                self._intern(layer), self._intern(_strip_number(runner)), self._formats, (), "", 0, line,
                attempt=self.attempt,
            )
        )  # fmt: skip

    def record_cached(self, layer: str, formats: str, runner: str, row: TacticTime, line: int) -> None:
        """A timing cache knew the result, so nothing was timed."""
        self.end_contest()
        self.cached_count += 1
        self._since = len(self.tunings)
        self.tunings.append(
            Tuning(
                self._intern(layer), self._intern(runner), self._intern(formats), (row,), row.tactic, 0, line,
                won=True, attempt=self.attempt,
            )
        )  # fmt: skip

    def record_choice(self, runner: str, tactic: str) -> None:
        """The builder takes one runner for these formats."""
        self.end_contest()
        for index in range(len(self.tunings) - 1, self._since - 1, -1):
            tuning = self.tunings[index]
            if tuning.runner == runner and not tuning.operator and (tuning.timed or tuning.chosen):
                self.tunings[index] = dataclasses.replace(tuning, chosen=tactic, won=True)
                return

    def end_contest(self, chosen: str | None = None) -> None:
        """End the contest that is open, if one is."""
        self._end_operator()
        if self.rows:
            self._read_rows()
        if not self._open:
            self.orphan_count += self._count
        elif self._count or self._only or chosen is not None:
            best = self._best[0].tactic if self._best else self._only
            self.tunings.append(
                Tuning(
                    self._layer, self._runner, self._formats, tuple(self._best),
                    best if chosen is None else self._intern(chosen) if self._best or self._only else "",
                    self._count, self._line, attempt=self.attempt,
                )
            )  # fmt: skip
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
        for time, index in heapq.nsmallest(MAX_TACTICS, times) if len(times) > MAX_TACTICS else sorted(times):
            front, _, back = rows[index].rpartition(b"Tactic")
            tactic = back.lstrip(b": ").partition(b" ")[0]
            name = front.partition(b"Tactic Name: ")[2].rstrip()
            before = named_tactics.get(index - 1) if named_tactics else None
            if before and before["tactic"] in {None, tactic}:
                name = before["name"]
            best.append(TacticTime(self._intern(tactic), self._intern(name), time))
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
            self._only = self._intern(only[1])
        return -1.0

    def _intern(self, name: bytes | str) -> str:
        """One string for each name: a log repeats them by the thousand."""
        shared_name = self._names.get(name)
        if shared_name is None:
            text = name if isinstance(name, str) else name.decode("utf-8", "replace")
            shared_name = self._names[name] = text
        return shared_name


def make_tactic_time(tactic: str, milliseconds: str) -> TacticTime | None:
    """A tactic with its time, or None where the number is none."""
    time = parse_time(milliseconds)
    return None if time is None else TacticTime(tactic, "", time)


def _strip_number(runner: str) -> str:
    return _NUMBERED.sub("", runner)
