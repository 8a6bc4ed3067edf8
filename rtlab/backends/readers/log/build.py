"""One build while its verbose log is read: the networks that were tried, and what became of them."""

from __future__ import annotations

import dataclasses

from rtlab.backends.readers import inspector, printed
from rtlab.backends.readers.log import listing
from rtlab.backends.readers.log.decisions import Decisions
from rtlab.backends.readers.log.machine import Header
from rtlab.backends.readers.log.tactics import TacticRows
from rtlab.core import buildlog, trtexec
from rtlab.core.buildlog import BuildLog, Decision, LayerMemory, NetworkPass, Sparsity
from rtlab.core.engine import Layer, Tensor

#: The pass in which regions are handed to a compiler of their own.
_REGIONS = "Myelin optimization"
#: The pass with which every attempt of TensorRT 10 begins.
_FIRST = "adding DebugOutput nodes"
#: How phases begin whose seconds are those of the whole build, in the words of trtexec, Polygraphy and the builder.
_WHOLE = ("Engine built", "Finished engine building", "Engine generation")
#: How those begin that are parts of a build; the first comes last.
_PARTS = ("Data initialization and engine generation", "Graph construction and optim", "Formats and tactics")
#: Bytes in a mebibyte.
_MIB = 1 << 20


class OpenAttempt:
    """One network on its way through the passes."""

    def __init__(self, header: Header, passes: list[NetworkPass], count: int | None) -> None:
        self.name = ""
        self.milliseconds: float | None = None
        self.passes, self.count = passes, count
        self.pending: list[Decision] = []
        self.decisions = Decisions()
        self.decisions.layer_names = header.layer_names
        self.regions: dict[str, Decision] = {}
        self.memory: dict[str, LayerMemory] = {}
        self.totals: dict[str, int] = {}
        self.sparsity: list[Sparsity] = []
        self.eligible: tuple[str, ...] = ()
        self.streams: dict[str, None] = {}

    def to_attempt(self) -> buildlog.Attempt:
        """The attempt as the noun."""
        passes = list(self.passes)
        if pending := tuple(self.pending):
            passes.append(NetworkPass("unfinished", self.count, None, pending, pending[0].line))
        if self.regions and passes:
            at = next((i for i, p in enumerate(passes) if p.name == _REGIONS), len(passes) - 1)
            decisions = (*passes[at].decisions, *self.regions.values())
            passes[at] = dataclasses.replace(passes[at], decisions=decisions)
        return buildlog.Attempt(tuple(passes), self.name, self.milliseconds)


class Build:
    """What the log told so far.

    ``has_begun`` is set by its first pass; ``complete`` when the builder said it is done.
    """

    def __init__(self, header: Header, first: int) -> None:
        self.header = header
        self.first, self.last = first, first
        self.has_begun = self.complete = self.calibrating = False
        self.attempts = [OpenAttempt(header, [], None)]
        self.chosen: int | None = None
        self.tactics = TacticRows()
        self.layers: list[Layer] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        #: Lines under the last heading of layers, and those under the longest one before it.
        self.rows: list[tuple[int, str]] = []
        self._rows_before: list[tuple[int, str]] = []
        self.bound_names: dict[str, None] = {}
        self.unread, self.unread_line = 0, ""
        self.notes: list[str] = []
        #: Seconds of phases by their beginnings.
        self._phases: dict[str, float] = {}

    @property
    def attempt(self) -> OpenAttempt:
        """The attempt that the present line belongs to."""
        return self.attempts[-1]

    def record_unread(self, text: str, *, in_listing: bool) -> None:
        """Count a line that no rule understands, if it is ``in_listing``, below the heading of the layers."""
        self.unread += in_listing
        self.unread_line = text

    def finish(self, line: int) -> Build:
        """The build with its last line. Where that is the only one, and cut off, what is whole of it counts."""
        self.last = line
        if line == 1 and (partial_layer := listing.parse_partial_layer(self.unread_line, 0)) is not None:
            self.layers.append(partial_layer[0])
            self.notes.append(partial_layer[1])
        return self

    def rank(self) -> int:
        """How much it is worth beside other builds of the file: 0 where it tells nothing."""
        has_content = (
            self.layers
            or self.rows
            or self.tactics.tunings
            or any(
                a.passes or a.pending or a.memory or a.totals or a.count is not None for a in self.attempts
            )
        )
        return 0 if not has_content else 1 + self.complete

    def end_pass(self, name: str, count: int, line: int) -> None:
        """A pass has ended with so many layers."""
        if name == _FIRST:
            at = next((i for i, p in enumerate(self.attempt.passes) if p.name == _FIRST), None)
            if at is not None:
                self.begin_attempt(keep=at)
        attempt = self.attempt
        attempt.passes.append(NetworkPass(name, attempt.count, count, tuple(attempt.pending), line))
        attempt.pending.clear()
        attempt.count = count
        attempt.decisions.end_rule()

    def begin_strategy(self, name: str) -> None:
        """The builder starts from the whole network, in another way than before."""
        if self.attempt.name:
            at = next((i for i, p in enumerate(self.attempt.passes) if p.name == _FIRST), 0)
            self.begin_attempt(keep=at)
        self.attempt.name = name

    def begin_attempt(self, *, keep: int) -> None:
        """Another attempt begins; the first ``keep`` passes are those of all attempts."""
        before = self.attempt.passes[:keep]
        self.tactics.end_contest()
        self.attempts.append(OpenAttempt(self.header, before, before[-1].after if before else None))
        self.tactics.attempt = len(self.attempts) - 1
        self.complete = False

    def add_region(self, name: str, labels: tuple[str, ...], text: str, line: int) -> None:
        """A region that a compiler of its own takes whole, with the nodes in it."""
        if labels:
            decision = Decision("fuse", labels, name, "Myelin", "", text, line)
            self.attempt.regions.setdefault(name, decision)

    def record_memory(self, layer: str, host: str, device: str, scratch: str) -> None:
        """Memory of a layer in bytes."""
        self.attempt.memory[layer] = LayerMemory(layer, int(host), int(device), int(scratch))

    def end_phase(self, phase: str, seconds: float) -> None:
        """A phase has ended."""
        name = next((n for n in (*_WHOLE, *_PARTS) if phase.startswith(n)), "")
        is_attempt = name == "Engine generation"
        if name:
            self._phases[name] = seconds + (self._phases.get(name, 0.0) if is_attempt else 0.0)
        # With strategies, another attempt is to come.
        if name in {*_WHOLE, _PARTS[0]} and not (is_attempt and self.attempt.name):
            self.complete = True

    def begin_listing(self) -> None:
        """The listing of the engine's layers begins: the builder has decided."""
        self.layers.clear()
        self.tactics.end_contest()
        self.complete = True

    def begin_rows(self) -> None:
        """A listing in the inspector's words begins; trtexec repeats that of the builder."""
        if len(self.rows) >= len(self._rows_before):
            self._rows_before = self.rows
        self.rows = []
        self.complete = True

    def read_rows(self) -> tuple[tuple[int, str], ...]:
        """Read the listing in the inspector's words where TensorRT-RTX wrote it; else give its lines."""
        # One that is shorter than another before it was cut off.
        rows = self.rows if len(self.rows) >= len(self._rows_before) else self._rows_before
        if any(listing.PARAMETERS.search(text) for _, text in rows):
            return tuple(rows)
        layers: list[Layer] = []
        for _, text in rows:
            if (entry := printed.parse_entry(text)) is not None:
                # Whose program a layer is, its names tell.
                layers.append(
                    inspector.make_layer(str(entry["Name"]), entry, len(layers), [], keep_profile=True)
                )
        self.unread += len(rows) - len(layers)
        if layers:
            self.begin_listing()
            self.layers += layers
        return ()

    def compute_seconds(self) -> float | None:
        """Time of the whole build: as told, or the sum of its phases."""
        for name in _WHOLE:
            if name in self._phases:
                return self._phases[name]
        return sum(self._phases.values()) if _PARTS[0] in self._phases else None

    def get_edges(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Tensors that the engine takes and gives."""
        if self.inputs or self.outputs:
            return tuple(self.inputs), tuple(self.outputs)
        written_tensors = {t.name: t for layer in self.layers for t in layer.outputs}
        read_tensors = {t.name: t for layer in self.layers for t in layer.inputs}
        output_tensors = [written_tensors[n] for n in self.header.outputs if n in written_tensors]
        input_tensors = [read_tensors.get(n, t) for n, t in self.header.inputs.items()]
        return (
            tuple(input_tensors or (t for n, t in read_tensors.items() if n not in written_tensors)),
            tuple(output_tensors or (t for n, t in written_tensors.items() if n not in read_tensors)),
        )

    def to_log(self, lines: int) -> BuildLog:
        """The build as the noun."""
        self.tactics.end_contest()
        chosen = len(self.attempts) - 1 if self.chosen is None else self.chosen
        attempt = self.attempts[chosen]
        attempts = tuple(a.to_attempt() for a in self.attempts)
        return BuildLog(
            version=self.header.version,
            device=self.header.device,
            target=self.header.target,
            attempts=attempts if any(a.passes for a in attempts) else (),
            chosen=chosen,
            tunings=tuple(self.tactics.tunings),
            memory=tuple(attempt.memory.values()),
            totals=dict(attempt.totals),
            sparsity=tuple(attempt.sparsity),
            streams=tuple(attempt.streams),
            nodes=dict(self.header.nodes),
            tensors=dict(self.header.tensors),
            seconds=self.compute_seconds(),
            latency=self.header.compute_median(),
            workspace=self.header.workspace,
            lines=lines,
            complete=self.complete,
            notes=(*self.notes, *self._list_remarks()),
        )

    def _list_remarks(self) -> list[str]:
        notes = []
        pool = self.header.workspace
        if pool is not None and pool < _MIB:
            notes.append(
                f"The builder had a workspace of {pool:,} bytes. trtexec takes a size without a unit as MiB and reads "
                f"one letter, B, K, M or G, as a unit, so that {pool}MiB is {pool:,} bytes: write "
                f"{trtexec.format_flag('memPoolSize', {'workspace': pool * _MIB})}."
            )
        if self.tactics.refused_count:
            notes.append(
                f"{self.tactics.refused_count} tactics could not be timed for want of workspace; the largest asks for "
                f"{self.tactics.largest_workspace / _MIB:.3g} MiB. Build with a larger workspace pool, such as trtexec "
                f"{trtexec.format_flag('memPoolSize', {'workspace': self.tactics.largest_workspace})} (trtexec counts "
                "in MiB)."
            )
        if self.tactics.cached_count:
            notes.append(
                f"{self.tactics.cached_count} results came from a timing cache, so their rivals were not timed."
            )
        if self.tactics.orphan_count:
            notes.append(
                f"{self.tactics.orphan_count} tactics were timed before the first layer is named: the log lacks its "
                "beginning."
            )
        if self.unread:
            notes.append(f"{self.unread} lines of the listing of layers could not be read.")
        return notes
