"""The verbose log of a build, TensorRT 5 to 11 and TensorRT-RTX: passes, decisions, tactics, memory, streams, layers.

A log is read in chunks of bytes and never held as text. Most of its lines tell nothing that is kept, so the first five
characters of a message choose who reads it; a logger's prefix is skipped, whichever logger wrote it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from rtlab.backends.log import listing
from rtlab.backends.log.build import Build
from rtlab.backends.log.lines import TAGGED, LogLines
from rtlab.backends.log.machine import Header, machine
from rtlab.backends.log.tactics import tactic_time
from rtlab.core.buildlog import BuildLog, Sparsity
from rtlab.core.engine import Layer, Tensor
from rtlab.errors import ReadError

#: What a log of a run is good for, as ``trtexec --loadEngine`` writes it.
_RUN = 'For what it tells, give the layers of the engine beside it: layers="layers.json" (trtexec --exportLayerInfo).'
#: Other builds of a file that a note lists.
_LISTED = 5
#: What loggers write before a message: brackets of date, severity and name, words of severity, dates.
_PREFIX = re.compile(
    rb"\s*(?P<tag>(?:(?:\[(?!MS\]|MemUsage|BlockAssign|GpuLayer|DlaLayer|\d+,)[^\[\]\n]{1,100}\]|"
    rb"(?:VERBOSE|DEBUG|INFO|WARNING|ERROR|INTERNAL_ERROR|TensorRT|TRT):|\d{4}-\d\d-\d\d[ T][\d:.,]+|-(?= ))\s*)*)"
)
_LAYERS = re.compile(r"(?P<stage>.+?): (?P<count>\d{1,9}) layers?\b")
_RUNNER = re.compile(r"-+ Timing Runner: (?P<layer>.*) \((?P<runner>[^()]*)\)\s*$")
_OLD_RUNNER = re.compile(r"-+ Timing (?P<layer>.*)\((?P<runner>\d+)\)\s*$")
_OLD_CHOSE = re.compile(r"-+ Chose (?P<runner>\d+) \((?P<tactic>-?\d+)\)")
_CHOSE = re.compile(r">+ Chose Runner Type: (?P<runner>.+) Tactic: (?P<tactic>-?\w+)")
_FASTEST = re.compile(
    r"(?:(?P<layer>.*) \((?P<runner>[^()]*)\) profiling completed in \S+ seconds\. )?"
    r"Fastest Tactic: (?P<tactic>-?\w+) Time: (?P<time>\S+)"
)
_CACHED = re.compile(
    r"(?P<layer>.*) \[(?P<formats>[^\[\]]*)\] got cached result: (?P<runner>.*), tactic (?P<tactic>-?\w+), "
    r"(?P<time>\S+) ms"
)
_SKIPPING = re.compile(r"Skipping (?P<runner>\w+): No valid tactics for (?P<layer>.*)")
_MEMORY = re.compile(
    r"Layer: (?P<layer>.*?)(?: Weights: \d+)? Host ?Persistent: (?P<host>\d{1,18})(?: bytes)? Device ?Persistent: "
    r"(?P<device>\d{1,18})(?: bytes)?(?: Scratch Memory: (?P<scratch>\d{1,18}))?"
)
_SPARSITY = re.compile(
    r".*?\(Sparsity\) (?:(?P<found>Found (?P<eligible>\d{1,9}) layer\(s\) eligible|Layers eligible)|"
    r"(?:Chose (?P<chosen>\d{1,9}) layer\(s\)|TRT inference plan picked))[^:]*:(?P<names>.*)"
)
_SECONDS = re.compile(r"(?P<what>.+?) (?:completed )?in (?P<seconds>\d+(?:\.\d+)?(?:e-?\d+)?) sec")
_FOREIGN = re.compile(r"ForeignNode (?P<name>\{.*\}) metadata: (?P<labels>.*)")
_ESTIMATE = re.compile(r"estimated inference time \((?P<time>[^()]+)\)")
_STRATEGY = re.compile(r"(?:Building graph using|.*?with) (?P<name>backend strategy \d+)")


@dataclasses.dataclass(frozen=True)
class Parsed:
    """A log, and the engine's layers and the tensors at its edges, as far as the log lists them.

    ``printed`` are lines, each with its number, in which the inspector's text form lists the same layers: TensorRT up
    to 10 built with detailed verbosity, and ``trtexec --dumpLayerInfo``; ``bound`` are names of inputs and outputs.
    ``unread`` are lines of the listing that no rule understood.
    ``built`` is False where the log is that of a run alone: then ``log`` holds machine, version and latency. ``timed``
    says that it holds a table of the times of the layers.
    """

    log: BuildLog
    layers: tuple[Layer, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    printed: tuple[tuple[int, str], ...] = ()
    bound: tuple[str, ...] = ()
    unread: int = 0
    built: bool = True
    timed: bool = False


def parse(source: Path | str | Iterable[bytes], *, built: bool = True) -> Parsed:
    """Read a verbose build log.

    Args:
        source: A file, the text itself, or its bytes in chunks. UTF-8, or UTF-16 with or without a mark; the lines of
            any logger.
        built: Refuse a log that tells of no build. Else that of a run is taken too, such as ``trtexec --loadEngine``
            writes, for the machine and the version that it tells.

    Returns:
        The last complete build of the log; where none is complete, the last that tells anything. Others are noted.

    Raises:
        ReadError: the file cannot be read, or nothing in it tells of a build.
    """
    title = f'"{source}"' if isinstance(source, Path) else "the build log"
    reading, text = _Reading(), LogLines(source)
    try:
        for lines in text:
            reading.take(lines)
    except OSError as error:
        raise ReadError(
            f"Cannot read {title}: {error.strerror or error}. Name a file that exists."
        ) from error
    return reading.result(title, text, built=built)


class _Reading:
    """The state of one pass over a log: the build that its present line belongs to, and what came before."""

    def __init__(self) -> None:
        self.line = 0
        self.header = Header()
        self.build = Build(self.header, 1)
        self.kept: Build | None = None
        self.others: list[str] = []
        self.timed = False
        self._tagged = False
        self._trusted = True
        self._where = ""
        self._offset, self._tail = 0, b""
        # A reader says whether the line was its own; if not, it may be one that begins with the name of a layer.
        self._readers: dict[bytes, Callable[[str], bool]] = {
            b"After": self._after, b"Origi": self._original, b"Runni": self._running, b"Addin": self._adding,
            b"-----": self._timing, b"*****": self._autotuning, b">>>>>": self._chose, b"=====": self._costs,
            b"=== P": self._table,
            b"Faste": self._fastest, b"Skipp": self._skipping,
            b"Layer": self._layer, b"Name:": self._name, b"I/O T": self._edges, b"Engin": self._engine,
            b"Bindi": self._bindings,
            **dict.fromkeys((b"Creat", b"Input", b"Outpu"), self._binding),
            b"Total": self._total, b"Max S": self._total, b"(Spar": self._sparsity, b"(fore": self._sparsity,
            b"Forei": self._foreign, b"[MS] ": self._stream, b"Data ": self._engine, b"Graph": self._engine,
            b"Forma": self._engine, b"Finis": self._engine, b"Build": self._building, b"Use b": self._strategy,
            b"Chose": self._strategy, b"Skip ": self._strategy, b"Regis": self._registering, b"Marki": self._marking,
            b"Selec": self._device, b"Compu": self._device, b"Tenso": self._device, b"&&&& ": self._device,
            b"Tryin": self._device, b"Loade": self._device, b"Memor": self._device, b"Start": self._calibrating,
            **dict.fromkeys((b"GPU C", b"Avera", b"Throu"), self._latency),
            **dict.fromkeys(
                (b"Fusin", b"Mergi", b"Elimi", b"Retar", b"Gener", b"Remov", b"Swap ", b"Swapp", b"Conve"),
                self._decide,
            ),
        }  # fmt: skip

    def take(self, lines: list[bytes]) -> None:
        """Read lines. This loop is what a large log costs, so it holds its state in locals."""
        offset, tail, readers, number = self._offset, self._tail, self._readers, self.line
        # Nearly all prefixes of a log have one length and one end, so the end tells where the message begins.
        start, stop = max(0, offset - 6), offset + 5
        tactic, region = tail + b"Tacti", tail + b"(fore"
        rows = self.build.tactics.rows
        for line in lines:
            number += 1
            mark = line[start:stop]
            if mark == tactic and offset:
                rows.append(line)
                continue
            # A region's own compiler tells thousands of lines on its kernels.
            if mark == region and offset and b"(Sparsity)" not in line:
                self.build.tactics.inside(line, number)
                continue
            key = line[offset:stop]
            if not offset or not mark.startswith(tail) or key[:1] in b"[ ":
                found = _PREFIX.match(line)
                offset = found.end() if found else 0
                start, stop = max(0, offset - 6), offset + 5
                tail = line[start:offset]
                tactic, region = tail + b"Tacti", tail + b"(fore"
                self._trusted = bool(found and found["tag"])
                # The first line, behind a fence, may be cut off: a word in brackets is no logger's.
                self._tagged |= self._trusted and (number > 3 or TAGGED.match(line) is not None)
                key = line[offset:stop]
                if key == b"Tacti":
                    rows.append(line)
                    continue
            reader = readers.get(key)
            # These follow the name of a layer, which may begin like anything.
            if (
                reader is not None
                and b" got cached result: " not in line
                and b" Set Tactic Name: " not in line
            ):
                self.line = number
                if reader(line[offset:].decode("utf-8", "replace").rstrip("\r\n")):
                    rows = self.build.tactics.rows
                    continue
            if (
                b"Tactic" in line
                or b"usi" in line
                or b"got cached result" in line
                or b" valid tactics" in line
            ):
                self.line = number
                self._unkeyed(line, line[offset:].decode("utf-8", "replace").rstrip("\r\n"))
        self._offset, self._tail, self.line = offset, tail, number
        self.build.tactics.trim()

    def _unkeyed(self, line: bytes, text: str) -> None:
        """A message that begins with the name of a layer or of a rule."""
        tactics = self.build.tactics
        if "Set Tactic Name: " in text:
            tactics.rows.append(line)
        elif "got cached result" in text and (m := _CACHED.match(text)):
            if row := tactic_time(m["tactic"], m["time"]):
                tactics.from_cache(m["layer"], m["formats"], m["runner"], row, self.line)
        elif "Fastest Tactic: " in text:
            self._fastest(text)
        elif "has no valid tactics for this config" in text:
            tactics.close("")
        elif "using " in text:
            self._decide(text)

    # Passes and decisions.

    def _original(self, text: str) -> bool:
        found = _LAYERS.match(text)
        if found is None or found["stage"] != "Original":
            return False
        if self.build.begun or self.build.complete:
            if self.build.calibrating:
                self.build.again(keep=0)
            else:
                self._next()
        self.build.attempt.count = int(found["count"])
        self.build.begun = True
        return True

    def _next(self) -> None:
        """Another build begins in the same file."""
        self._put_by()
        self.build = Build(self.header, self.line)

    def _put_by(self) -> None:
        build = self.build.ended(self.line)
        if self.kept is None or build.rank() >= self.kept.rank():
            build, self.kept = self.kept, build  # type: ignore[assignment]
        if build is not None and build.rank() > 0:
            state = "complete" if build.complete else "not complete"
            self.others.append(f"lines {build.first} to {build.last} ({state})")

    def _after(self, text: str) -> bool:
        found = _LAYERS.match(text)
        if found is None or not self._sure():
            return False
        self.build.begun = True
        self.build.after(found["stage"].removeprefix("After "), int(found["count"]), self.line)
        return True

    def _sure(self) -> bool:
        """Whether a sentence is the builder's: where a logger marks its lines, other programs' lines lack the mark."""
        return self._trusted or not self._tagged

    def _running(self, text: str) -> bool:
        self.build.attempt.decisions.running(text)
        return True

    def _decide(self, text: str) -> bool:
        if not self._sure():
            return False
        if decision := self.build.attempt.decisions.read(text, self.line):
            self.build.attempt.pending.append(decision)
        return True

    def _adding(self, text: str) -> bool:
        if text.startswith("Adding network input: "):
            self._fresh()
            self.header.adding(text)
            return True
        return text.startswith("Adding reformat layer: ") and self._decide(text)

    def _registering(self, text: str) -> bool:
        self._fresh()
        self.header.registering(text)
        return True

    def _marking(self, text: str) -> bool:
        if " as output: " in text:
            self._fresh()
            self.header.marking(text)
        return True

    def _building(self, text: str) -> bool:
        if found := _STRATEGY.match(text):
            self.build.begun = True
            self.build.strategy(found["name"])
        return True

    def _strategy(self, text: str) -> bool:
        found = _ESTIMATE.search(text)
        if found is None or "backend strategy" not in text:
            return False
        if row := tactic_time("", found["time"]):
            self.build.attempt.milliseconds = row.milliseconds
        if not text.startswith("Skip"):
            self.build.chosen = len(self.build.attempts) - 1
        return True

    def _foreign(self, text: str) -> bool:
        if found := _FOREIGN.match(text):
            self.build.region(found["name"], listing.origins(found["labels"]), text, self.line)
        return True

    def _calibrating(self, text: str) -> bool:
        if text.startswith("Starting Calibration"):
            self.build.calibrating = True
        return True

    # Tactics.

    def _timing(self, text: str) -> bool:
        tactics = self.build.tactics
        if found := _RUNNER.match(text) or _OLD_RUNNER.match(text):
            tactics.runner(found["layer"], found["runner"], self.line)
        elif found := _OLD_CHOSE.match(text):
            tactics.chose(found["runner"], found["tactic"])
        return True

    def _autotuning(self, text: str) -> bool:
        what, _, formats = text.partition(": ")
        if what.endswith((" Autotuning format combination", " Autotuning Reformat")):
            self.build.tactics.formats(formats.rstrip(" *"))
        return True

    def _chose(self, text: str) -> bool:
        if found := _CHOSE.match(text):
            self.build.tactics.chose(found["runner"], found["tactic"])
        return True

    def _costs(self, text: str) -> bool:
        if " Computing " in text:
            self.build.tactics.formats("")
        return True

    def _table(self, text: str) -> bool:
        self.timed |= text.startswith("=== Profile (")
        return True

    def _fastest(self, text: str) -> bool:
        found = _FASTEST.match(text)
        if found is None:
            return False
        self.build.tactics.fastest(
            found["layer"] or "", found["runner"] or "", found["tactic"], found["time"]
        )
        return True

    def _skipping(self, text: str) -> bool:
        found = _SKIPPING.match(text)
        if found is None:
            return False
        self.build.tactics.none(found["layer"], found["runner"], self.line)
        return True

    # Memory, sparsity, streams.

    def _total(self, text: str) -> bool:
        for key, rule in listing.TOTALS.items():
            if found := rule.match(text):
                self.build.attempt.totals[key] = int(found[1][:18])
        return True

    def _sparsity(self, text: str) -> bool:
        if text.startswith("(foreignNode)") and "(Sparsity)" not in text:
            self.build.tactics.inside(text.encode("utf-8", "replace"), self.line)
        elif found := _SPARSITY.match(text):
            attempt = self.build.attempt
            names = attempt.names(found["names"], found["eligible"] or found["chosen"])
            if found["found"]:
                attempt.eligible = names
            else:
                told = Sparsity(attempt.eligible, names)
                attempt.eligible = ()
                if told not in attempt.sparsity:
                    attempt.sparsity.append(told)
        return True

    def _stream(self, text: str) -> bool:
        self.build.attempt.streams[text.removeprefix("[MS] ").strip()] = None
        return True

    # The engine, and the machine.

    def _engine(self, text: str) -> bool:
        if text.startswith("Engine Layer Information"):
            self._where = "steps"
            self.build.listed()
        elif text.startswith("Engine Metadata"):
            self._where = ""
        elif found := _SECONDS.match(text):
            self.build.took(found["what"], float(found["seconds"]))
        return True

    def _layer(self, text: str) -> bool:
        build = self.build
        if text.startswith("Layer("):
            if (step := listing.step(text, len(build.layers))) is not None:
                build.layers.append(step)
            else:
                build.skip(text, listed=self._where == "steps")
            return True
        if text.strip() == "Layers:":
            self._where = "rows"
            build.heading()
            return True
        if found := _MEMORY.match(text):
            build.remember(found["layer"], found["host"], found["device"], found["scratch"] or "0")
            return True
        return False

    def _name(self, text: str) -> bool:
        build = self.build
        if self._where == "edges":
            if found := listing.edge(text):
                (build.inputs if found[0] else build.outputs).append(found[1])
        elif self._where == "rows":
            build.rows.append((self.line, text))
        elif not build.rows and ", LayerType: " in text and ", Inputs: [" in text:
            # The heading is cut off.
            self._where = "rows"
            build.rows.append((self.line, text))
        return bool(self._where)

    def _bindings(self, text: str) -> bool:
        if self._where == "rows" and text.strip() == "Bindings:":
            self._where = ""
        return True

    def _binding(self, text: str) -> bool:
        bound = self.header.binding(text)
        if bound:
            self.build.bound[bound] = None
        return bool(bound)

    def _edges(self, text: str) -> bool:
        if text.strip() == "I/O Tensors:" and self._where == "rows":
            self._where = "edges"
            self.build.inputs.clear()
            self.build.outputs.clear()
        return True

    def _fresh(self) -> None:
        """What tells of a network or a machine belongs to the next build, where one has ended."""
        if self.header is self.build.header and self.build.complete:
            self.header = dataclasses.replace(
                self.header, inputs={}, outputs={}, nodes={}, tensors={}, known=set()
            )

    def _device(self, text: str) -> bool:
        found = machine(text)
        if found is not None:
            self._fresh()
            self.header.learn(found)
        return found is not None

    def _latency(self, text: str) -> bool:
        # It is told of the build before it, so it begins no other.
        found = machine(text)
        if found is not None:
            self.header.learn(found)
        return found is not None

    def _run(self, text: LogLines, told: str) -> Parsed:
        """A log without a build, such as that of ``trtexec --loadEngine``."""
        build = self.build
        build.notes.append(f"The log is that of a run and tells of no build: {told}.")
        build.notes += text.lost(self.line)
        edges = tuple(self.header.taken.values()), tuple(self.header.given.values())
        return Parsed(build.log(self.line), (), *edges, bound=tuple(build.bound), built=False)

    def result(self, title: str, text: LogLines, *, built: bool) -> Parsed:
        """All that was read, once the log has ended."""
        self._put_by()
        build = self.kept
        if build is None or not build.rank():
            run = self.header.words()
            if not run:
                raise ReadError(f"Cannot read {title}: {text.nothing(self.line)}")
            if built:
                raise ReadError(f"Cannot read {title}: it tells {run}, but {text.nothing(self.line)} {_RUN}")
            return self._run(text, run)
        if not build.complete:
            build.notes.append(
                f"The log is cut off in line {self.line}; what follows is missing."
                if text.cut and build is self.build
                else "The log ends before the build does."
            )
        elif text.cut and self._where == "rows" and build is self.build:
            build.notes.append(f"The log is cut off in line {self.line}, within the listing of layers.")
        build.notes += text.lost(self.line)
        if self.others:
            more = f" and {len(self.others) - _LISTED} more" if len(self.others) > _LISTED else ""
            build.notes.append(
                f"The file holds {len(self.others) + 1} builds; this is the one in lines {build.first} to "
                f"{build.last}. Others: {', '.join(self.others[:_LISTED])}{more}."
            )
        printed = build.settle()
        edges, bound = build.edges(), tuple(build.bound)
        return Parsed(
            build.log(self.line), tuple(build.layers), *edges, printed, bound, build.unread, timed=self.timed
        )
