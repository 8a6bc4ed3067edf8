"""The verbose log of a build, TensorRT 5 to 11 and TensorRT-RTX: passes, decisions, tactics, memory, streams, layers.

A log is read in chunks of bytes and never held as text. Most of its lines tell nothing that is kept, so the first five
characters of a message choose who reads it; a logger's prefix is skipped, whichever logger wrote it.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from rtlab.backends.readers.log import listing
from rtlab.backends.readers.log.build import Build
from rtlab.backends.readers.log.listing import Header, match_header_line, read_header
from rtlab.backends.readers.log.tactics import parse_time
from rtlab.backends.readers.messages import quote_information
from rtlab.backends.readers.reports import find_reports
from rtlab.backends.readers.wrapping import Wrapping, detect_encoding, detect_wrapping
from rtlab.core.buildlog import BuildLog, Decision, LayerMemory, Sparsity
from rtlab.core.engine import Layer, Tensor
from rtlab.core.inputs import open_input
from rtlab.core.message import MessageMatch
from rtlab.errors import ReadError

_AGAIN = (
    "Give lines with an error, a warning or times of TensorRT, ONNX Runtime, Polygraphy or Nsight Systems, or a "
    "verbose log (trtexec --verbose, polygraphy convert -vv)."
)
#: Bytes of lines that are searched for messages; a log that is not verbose has a few thousand.
_MESSAGES = 8 << 20
_CHUNK = 1 << 20
_SAMPLED = 1 << 16
#: A longer line is no line of a log; it is read in pieces.
_LONGEST = 1 << 23
#: How a logger's line begins: a severity or TensorRT's name in brackets, after a date or a name at most.
TAGGED = re.compile(rb"\s*(?:\[[^\[\]]{1,40}\] ?)?\[(?:V|I|W|E|F|TRT|TensorRT)\]")
#: How lines end that are whole, where nothing stands behind them: any other may be cut within a number or a name.
_COMPLETE_LINE = re.compile(
    rb"(?:\blayers|\bseconds\.?|\bms|\bsec\.|\bMiB|\*{3,}|(?:Layer\([^)]*\): |Name: ).*[\])]|&&&& .*)\s*$",
    re.DOTALL,
)
#: What the parser and the builder print of every node, tensor and kernel, where lines have no severity.
_ROUTINE = re.compile(
    rb"(?:Importing initializer|Registering (?:layer|tensor)|Searching for input|Parsing node|Static check for parsing "
    rb"node|Using kernel|Convolution (?:in|out)put dimensions): |\s+(?:(?:Input|Output) \d|\d+\t\d+\s*$)| ?Name: |"
    rb"\S+ \[\w+\] (?:in|out)puts: "
)


class LogLines:
    """Iterates over lists of lines without their ends, and without what mail, issues and terminals put around them.

    ``is_cut`` is set after the last line where that has no end. Such a line of a file is dropped (``last_dropped``)
    where it may end within a number or a name, as is the first line where it lacks its beginning; ``partial_lines`` are
    these with their numbers, 0 for the last.
    """

    def __init__(self, source: Path | str) -> None:
        self.source = source
        self.is_empty, self.is_cut, self.last_dropped = True, False, False
        self.partial_lines: list[tuple[int, bytes]] = []

    def __iter__(self) -> Iterator[list[bytes]]:
        """Read all of it once; OSError where the file cannot be read."""
        rest = b""
        wrapping = Wrapping()
        is_file = isinstance(self.source, Path)
        for number, chunk in enumerate(self._decode_chunks()):
            text = chunk
            if not number:
                wrapping = detect_wrapping(chunk[:_SAMPLED].decode("utf-8", "replace"), stamps=False)
                if wrapping.fences and len(chunk) < _CHUNK:
                    # All of it: where the last fence goes, the line before it has no end.
                    text, wrapping = _strip_wrapping(wrapping, chunk), Wrapping()
            lines = (rest + text).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            if wrapping:
                lines = _strip_wrapping(wrapping, b"\n".join(lines)).split(b"\n")
            if is_file and not number:
                self.partial_lines += _drop_partial_line(lines)
            yield lines
        self.is_cut = bool(rest.strip())
        if self.is_cut:
            rest = _strip_wrapping(wrapping, rest) if wrapping else rest
            self.last_dropped = is_file and _COMPLETE_LINE.search(rest) is None
            if self.last_dropped:
                self.partial_lines.append((0, rest))
            yield [b"" if self.last_dropped else rest]

    def _decode_chunks(self) -> Iterator[bytes]:
        """Chunks in UTF-8."""
        with (
            open_input(self.source)
            if isinstance(self.source, Path)
            else io.BytesIO(self.source.encode("utf-8", "replace"))
        ) as file:
            while chunk := file.read(_CHUNK):
                if self.is_empty:
                    self.is_empty = False
                    decoder = codecs.getincrementaldecoder(detect_encoding(chunk[:64]))("replace")
                yield decoder.decode(chunk).encode("utf-8", "replace").removeprefix(codecs.BOM_UTF8)


def _strip_wrapping(wrapping: Wrapping, lines: bytes) -> bytes:
    """Lines without what stands around them."""
    return wrapping.strip(lines.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _drop_partial_line(lines: list[bytes]) -> list[tuple[int, bytes]]:
    """Empty the first line where it lacks its beginning: a logger marks the others. Gives its number and it."""
    indices = [i for i, line in enumerate(lines[:20]) if line.strip()][:4]
    if len(indices) < 2 or lines[indices[0]].startswith(b"&&&&"):
        return []
    first, *others = (TAGGED.match(lines[i]) for i in indices)
    if first is not None or not all(others):
        return []
    partial_line, lines[indices[0]] = lines[indices[0]], b""
    return [(indices[0] + 1, partial_line)]


#: How lines begin that tell of a run.
_RUN_LINES = ("GPU C", "Throu", "&&&& PASSED", "&&&& FAILED")
#: What loggers write before a message: brackets of date, severity and name, words of severity, dates.
_PREFIX = re.compile(
    rb"\s*(?P<tag>(?:(?:\[(?!MS\]|MemUsage|BlockAssign|GpuLayer|DlaLayer|\d+,)[^\[\]\n]{1,100}\]|"
    rb"(?:VERBOSE|DEBUG|INFO|WARNING|ERROR|INTERNAL_ERROR|TensorRT|TRT):|\d{4}-\d\d-\d\d[ T][\d:.,]+Z?|-(?= ))\s*)*)"
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
    r".*?\(Sparsity\) (?:(?P<found>Found \d{1,9} layer\(s\) eligible|Layers eligible)|"
    r"(?:Chose \d{1,9} layer\(s\)|TRT inference plan picked))[^:]*:(?P<names>.*)"
)
_SECONDS = re.compile(r"(?P<what>.+?) (?:completed )?in (?P<seconds>\d+(?:\.\d+)?(?:e-?\d+)?) sec")
_FOREIGN = re.compile(r"ForeignNode (?P<name>\{.*\}) metadata: (?P<labels>.*)")
_ESTIMATE = re.compile(r"estimated inference time \((?P<time>[^()]+)\)")
_STRATEGY = re.compile(r"(?:Building graph using|.*?with) (?P<name>backend strategy \d+)")


@dataclasses.dataclass(frozen=True)
class ParsedLog:
    """A log, and the engine's layers and the tensors at its edges, as far as the log lists them.

    ``printed_rows`` are lines, each with its number, in which the inspector's text form lists the same layers;
    ``bound_names`` are names of inputs and outputs, ``unread`` counts lines of the listing that no rule understood.
    Without ``has_build`` the log is that of a run alone; ``has_times`` says that it holds a table of layer times.
    ``messages`` are failures, warnings and reports.
    """

    log: BuildLog
    layers: tuple[Layer, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    printed_rows: tuple[tuple[int, str], ...] = ()
    bound_names: tuple[str, ...] = ()
    unread: int = 0
    has_build: bool = True
    has_times: bool = False
    messages: tuple[MessageMatch, ...] = ()


def parse(source: Path | str, *, interpret: bool = True) -> ParsedLog:
    """Read a verbose build log, or what a log of a run alone tells of machine, version and latency.

    ``source`` is a file in UTF-8 or UTF-16, or the text itself, with the lines of any logger. The result is the last
    complete build of the log; where none is complete, the last that tells anything. Raises ``ReadError`` where the file
    cannot be read, or no line of it is of a known form. Without ``interpret``, messages of a complete build are left
    out: to look for them takes half of the time for a log of some thousand lines.
    """
    title = f'"{source}"' if isinstance(source, Path) else "the build log"
    reading, text = _LogReader(), LogLines(source)
    try:
        for lines in text:
            reading.read_lines(lines)
            reading.collect_messages(lines)
    except OSError as error:
        raise ReadError(
            f"Cannot read {title}: {error.strerror or error}. Name a file that exists."
        ) from error
    return reading.make_log(title, text, interpret=interpret)


class _LogReader:
    """The state of one pass over a log: the build that its present line belongs to, and what came before."""

    def __init__(self) -> None:
        self.line = 0
        self.header = Header()
        self.build = Build(self.header, 1)
        self.best_build: Build | None = None
        self.build_count = 0
        self.has_times = False
        self._message_lines: dict[int, bytes] = {}
        self._message_room = _MESSAGES
        self._has_tags = False
        self._has_prefix = True
        self._section = ""
        self._offset, self._tail = 0, b""
        # A reader returns False where the line was not its own: it may be one that begins with the name of a layer.
        self._readers: dict[bytes, Callable[[str], bool | None]] = {
            b"After": self._on_after, b"Origi": self._on_original, b"Runni": self._on_decision,
            b"Addin": self._on_adding, b"-----": self._on_timing, b"*****": self._on_autotuning,
            b">>>>>": self._on_choice, b"=====": self._on_other, b"=== P": self._on_other,
            b"Faste": self._on_fastest, b"Skipp": self._on_skipping,
            b"Layer": self._on_layer, b"Name:": self._on_name, b"I/O T": self._on_edges, b"Engin": self._on_engine,
            b"Bindi": self._on_edges,
            **dict.fromkeys((b"Creat", b"Input", b"Outpu"), self._on_binding),
            b"Total": self._on_total, b"Max S": self._on_total, b"(Spar": self._on_sparsity,
            b"(fore": self._on_sparsity, b"Forei": self._on_foreign, b"[MS] ": self._on_stream,
            b"Data ": self._on_engine, b"Graph": self._on_engine, b"Forma": self._on_engine, b"Finis": self._on_engine,
            b"Build": self._on_strategy, b"Use b": self._on_strategy, b"Chose": self._on_strategy,
            b"Skip ": self._on_strategy, b"Regis": self._on_device, b"Marki": self._on_device,
            b"Selec": self._on_device, b"Compu": self._on_device, b"Tenso": self._on_device, b"&&&& ": self._on_device,
            b"Tryin": self._on_device, b"Loade": self._on_device, b"Memor": self._on_device,
            b"Start": self._on_other,
            b"GPU C": self._on_device, b"Throu": self._on_device, b"start": self._on_device,
            **dict.fromkeys(
                (b"Fusin", b"Mergi", b"Elimi", b"Retar", b"Gener", b"Remov", b"Swap ", b"Swapp", b"Conve"),
                self._on_decision,
            ),
        }  # fmt: skip

    def read_lines(self, lines: list[bytes]) -> None:
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
                self.build.tactics.read_operator_line(line, number)
                continue
            key = line[offset:stop]
            if not offset or not mark.startswith(tail) or key[:1] in b"[ ":
                match = _PREFIX.match(line)
                offset = match.end() if match else 0
                start, stop = max(0, offset - 6), offset + 5
                tail = line[start:offset]
                tactic, region = tail + b"Tacti", tail + b"(fore"
                self._has_prefix = bool(match and match["tag"])
                # The first line, behind a fence, may be cut off: a word in brackets is no logger's.
                self._has_tags |= self._has_prefix and (number > 3 or TAGGED.match(line) is not None)
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
                if reader(line[offset:].decode("utf-8", "replace").rstrip("\r\n")) is not False:
                    rows = self.build.tactics.rows
                    continue
            if (
                b"Tactic" in line
                or b"usi" in line
                or b"got cached result" in line
                or b" valid tactics" in line
            ):
                self.line = number
                self._read_unkeyed(line, line[offset:].decode("utf-8", "replace").rstrip("\r\n"))
        self._offset, self._tail, self.line = offset, tail, number
        self.build.tactics.trim()

    def collect_messages(self, lines: list[bytes]) -> None:
        """Keep lines that may be errors, warnings or reports: nearly all others of a long log are marked verbose."""
        # Of most chunks none is, which the first test finds out at the least cost.
        if self._message_room <= 0 or not [line for line in lines if b"[V]" not in line]:
            return
        first = self.line - len(lines) + 1
        numbered_lines = {
            number: line
            for number, line in enumerate(lines, first)
            if b"[V]" not in line and b"VERBOSE" not in line and not _ROUTINE.match(line)
        }
        self._message_lines |= numbered_lines
        self._message_room -= sum(map(len, numbered_lines.values()))

    def _find_messages(self, text: LogLines) -> tuple[MessageMatch, ...]:
        """What the lines report, those among them that are cut off."""
        # A line that was dropped is there as an empty one.
        lines = {**self._message_lines, **{n or self.line: line for n, line in text.partial_lines}}
        text_lines = [lines[n].decode("utf-8", "replace").rstrip("\r") for n in sorted(lines)]
        return find_reports("\n".join(text_lines), sorted(lines))

    def _read_unkeyed(self, line: bytes, text: str) -> None:
        """A message that begins with the name of a layer or of a rule."""
        tactics = self.build.tactics
        if "Set Tactic Name: " in text:
            tactics.rows.append(line)
        elif "got cached result" in text and (m := _CACHED.match(text)):
            tactics.record_cached(m, self.line)
        elif "Fastest Tactic: " in text:
            self._on_fastest(text)
        elif "has no valid tactics for this config" in text:
            tactics.end_contest("")
        elif "using " in text:
            self._on_decision(text)

    # Passes and decisions.

    def _on_original(self, text: str) -> bool:
        match = _LAYERS.match(text)
        if match is None or match["stage"] != "Original":
            return False
        if self.build.has_begun or self.build.complete:
            if self.build.calibrating:
                self.build.begin_attempt(keep=0)
            else:
                self._store_build()
                self.build = Build(self.header, self.line)
        self.build.attempt.count = int(match["count"])
        self.build.has_begun = True
        return True

    def _store_build(self) -> None:
        self.build_count += self.build.rank() > 0
        if self.best_build is None or self.build.rank() >= self.best_build.rank():
            self.best_build = self.build

    def _on_after(self, text: str) -> bool:
        match = _LAYERS.match(text)
        if match is None or not self._is_trusted():
            return False
        self.build.has_begun = True
        self.build.end_pass(match["stage"].removeprefix("After "), int(match["count"]), self.line)
        return True

    def _is_trusted(self) -> bool:
        """Whether a sentence is the builder's: where a logger marks its lines, other programs' lines lack the mark."""
        return self._has_prefix or not self._has_tags

    def _on_decision(self, text: str) -> bool:
        if not self._is_trusted():
            return False
        if text.startswith("Running"):
            self.build.attempt.decisions.begin_rule(text)
            return True
        if decision := self.build.attempt.decisions.read(text, self.line):
            self.build.attempt.pending.append(decision)
        return True

    def _on_adding(self, text: str) -> bool:
        return self._on_device(text) or (
            text.startswith("Adding reformat layer: ") and self._on_decision(text)
        )

    def _on_strategy(self, text: str) -> bool:
        if text.startswith("Building") and (match := _STRATEGY.match(text)):
            self.build.has_begun = True
            self.build.begin_strategy(match["name"])
            return True
        match = _ESTIMATE.search(text)
        if match is None or "backend strategy" not in text:
            return False
        self.build.attempt.milliseconds = parse_time(match["time"])
        if not text.startswith("Skip"):
            self.build.chosen = len(self.build.attempts) - 1
        return True

    def _on_foreign(self, text: str) -> None:
        if match := _FOREIGN.match(text):
            name, labels = match["name"], listing.parse_node_ids(match["labels"])
            if labels:
                decision = Decision("fuse", labels, name, "Myelin", "", text, self.line)
                self.build.attempt.regions.setdefault(name, decision)

    # Tactics.

    def _on_timing(self, text: str) -> None:
        tactics = self.build.tactics
        if match := _RUNNER.match(text) or _OLD_RUNNER.match(text):
            tactics.begin_runner(match["layer"], match["runner"], self.line)
        elif match := _OLD_CHOSE.match(text):
            tactics.record_choice(match["runner"], match["tactic"])

    def _on_autotuning(self, text: str) -> None:
        title, _, formats = text.partition(": ")
        if title.endswith((" Autotuning format combination", " Autotuning Reformat")):
            self.build.tactics.begin_formats(formats.rstrip(" *"))

    def _on_choice(self, text: str) -> None:
        if match := _CHOSE.match(text):
            self.build.tactics.record_choice(match["runner"], match["tactic"])

    def _on_other(self, text: str) -> None:
        if " Computing " in text:
            self.build.tactics.begin_formats("")
        self.has_times |= text.startswith("=== Profile (")
        self.build.calibrating |= text.startswith("Starting Calibration")

    def _on_fastest(self, text: str) -> bool:
        match = _FASTEST.match(text)
        if match is None:
            return False
        if match["time"] == "inf":
            self._message_lines[self.line] = text.encode("utf-8", "replace")
        self.build.tactics.end_runner(
            match["layer"] or "", match["runner"] or "", match["tactic"], match["time"]
        )
        return True

    def _on_skipping(self, text: str) -> bool:
        match = _SKIPPING.match(text)
        if match is None:
            if text.startswith("Skipping tactic "):
                self._message_lines[self.line] = text.encode("utf-8", "replace")
            return False
        self.build.tactics.record_no_tactic(match["layer"], match["runner"], self.line)
        return True

    # Memory, sparsity, streams.

    def _on_total(self, text: str) -> None:
        for key, rule in listing.TOTALS.items():
            if match := rule.match(text):
                self.build.attempt.totals[key] = int(match[1][:18])

    def _on_sparsity(self, text: str) -> None:
        if text.startswith("(foreignNode)") and "(Sparsity)" not in text:
            self.build.tactics.read_operator_line(text.encode("utf-8", "replace"), self.line)
        elif match := _SPARSITY.match(text):
            attempt = self.build.attempt
            names = _split_names(match["names"])
            if match["found"]:
                attempt.eligible = names
            else:
                sparsity = Sparsity(attempt.eligible, names)
                attempt.eligible = ()
                if sparsity not in attempt.sparsity:
                    attempt.sparsity.append(sparsity)

    def _on_stream(self, text: str) -> None:
        self.build.attempt.streams[text.removeprefix("[MS] ").strip()] = None

    # The engine, and the machine.

    def _on_engine(self, text: str) -> None:
        if text.startswith("Engine Layer Information"):
            self._section = "steps"
            self.build.begin_listing()
        elif text.startswith("Engine Metadata"):
            self._section = ""
        elif match := _SECONDS.match(text):
            self.build.end_phase(match["what"], float(match["seconds"]))

    def _on_layer(self, text: str) -> bool:
        build = self.build
        if text.startswith("Layer("):
            if (listed_layer := listing.parse_layer(text, len(build.layers))) is not None:
                build.layers.append(listed_layer)
            else:
                build.unread += self._section == "steps"
            return True
        if text.strip() == "Layers:":
            self._section = "rows"
            build.begin_rows()
            return True
        if match := _MEMORY.match(text):
            host, device, scratch = (int(match[key] or 0) for key in ("host", "device", "scratch"))
            build.attempt.memory[match["layer"]] = LayerMemory(match["layer"], host, device, scratch)
            return True
        return False

    def _on_name(self, text: str) -> bool:
        build = self.build
        if self._section == "edges":
            if edge := listing.parse_edge(text):
                (build.inputs if edge[0] else build.outputs).append(edge[1])
        elif self._section == "rows":
            build.listings[-1].append((self.line, text))
        elif not build.listings[-1] and ", LayerType: " in text and ", Inputs: [" in text:
            # The heading is cut off.
            self._section = "rows"
            build.listings[-1].append((self.line, text))
        return bool(self._section)

    def _on_binding(self, text: str) -> bool:
        tensor_name = self.header.read_binding(text)
        if tensor_name:
            self.build.bound_names[tensor_name] = None
        return bool(tensor_name)

    def _on_edges(self, text: str) -> None:
        if self._section != "rows":
            return
        if text.strip() == "Bindings:":
            self._section = ""
        elif text.strip() == "I/O Tensors:":
            self._section = "edges"
            self.build.inputs.clear()
            self.build.outputs.clear()

    def _begin_header(self) -> None:
        """What tells of a network or a machine belongs to the next build, where one has ended."""
        if self.header is self.build.header and self.build.complete:
            self.header = dataclasses.replace(
                self.header, inputs={}, outputs={}, nodes={}, tensors={}, layer_names=set()
            )

    def _on_device(self, text: str) -> bool:
        match = match_header_line(text)
        if match is not None:
            # A latency is told of the build before it, so it begins no other.
            if not text.startswith(_RUN_LINES):
                self._begin_header()
            self.header.update(match)
        return match is not None

    def make_log(self, title: str, text: LogLines, *, interpret: bool) -> ParsedLog:
        """All that was read, once the log has ended."""
        self._store_build()
        build = self.best_build or self.build
        # The first line may be an exporter's, without the logger's marks.
        first_lines = [line.decode("utf-8", "replace") for number, line in text.partial_lines if number]
        build.header.version = build.header.version or read_header(first_lines).version
        has_build = build.rank() > 0
        run = self.header.describe()
        is_whole = has_build and build.complete and not text.last_dropped
        messages = () if is_whole and not interpret else self._find_messages(text)
        has_failed = any(m.failed for m in messages)
        if not has_build and not run and not messages:
            lines = (self._message_lines.get(n, b"") for n in range(1, self.line + 1))
            messages = quote_information(b"\n".join(lines).decode("utf-8", "replace"))
        if not has_build and not run and not messages:
            reason = (
                "it is empty"
                if text.is_empty
                else f"none of its lines, 1 to {self.line}, is of a form that rtlab knows"
            )
            raise ReadError(f"Cannot read {title}: {reason}. {_AGAIN}")
        if not has_build:
            if run and not has_failed and not any(m.id == "engine-time" for m in messages):
                build.notes.append(f"rtlab reads no build in this log, but: {run}.")
        elif not build.complete and not has_failed and not any(m.id == "outcome" for m in messages):
            build.notes.append(
                f"The log is cut off in line {self.line}; what follows is missing."
                if text.is_cut and build is self.build
                else "rtlab reads no end of the build in this log."
            )
        elif text.is_cut and self._section == "rows" and build is self.build:
            build.notes.append(f"The log is cut off in line {self.line}, within the listing of layers.")
        if text.last_dropped and not messages:
            build.notes.append(
                f"Line {self.line}, the last, has no end and may be cut off: it is not read. Add the end of the line "
                "if it is whole."
            )
        if self.build_count > 1:
            note = f"The file holds {self.build_count} builds; this is the one that begins in line {build.first}."
            build.notes.append(note)
        printed_rows = build.read_rows()
        run_edges = tuple(self.header.bound_inputs.values()), tuple(self.header.bound_outputs.values())
        return ParsedLog(
            build.to_log(self.line),
            tuple(build.layers),
            *(build.get_edges() if has_build else run_edges),
            printed_rows,
            tuple(build.bound_names),
            build.unread,
            has_build=has_build,
            has_times=self.has_times,
            messages=messages,
        )


def _split_names(text: str) -> tuple[str, ...]:
    """Names in a list parted by commas; those may stand in names too, within brackets."""
    names: list[str] = []
    for part in filter(None, text.strip().split(", ")):
        if names and names[-1].count("(") > names[-1].count(")"):
            names[-1] += f", {part}"
        else:
            names.append(part)
    return tuple(names)
