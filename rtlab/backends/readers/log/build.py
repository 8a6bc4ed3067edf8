"""One build while its verbose log is read: the networks that were tried, and what became of them."""

from __future__ import annotations

import dataclasses
import re

from rtlab.backends.readers import inspector, printed
from rtlab.backends.readers.log import listing
from rtlab.backends.readers.log.listing import Header
from rtlab.backends.readers.log.tactics import TacticRows
from rtlab.core import buildlog, trtexec
from rtlab.core.buildlog import Action, BuildLog, Decision, LayerMemory, NetworkPass, Sparsity
from rtlab.core.engine import Layer, Tensor

_FUSE = re.compile(r"(?:(?P<rule>\w+): )?(?P<verb>[Ff]using) (?P<rest>.+)", re.DOTALL)
_SCALED = re.compile(r"convolution weights from (?P<first>.+) with scale (?P<second>.+)", re.DOTALL)
_CONCAT = re.compile(r"Eliminating con(?:c|t)atenation (?P<name>.+)", re.DOTALL)
_SLICE = re.compile(r"Eliminating slice (?P<name>.+?) by retargeting (?P<rest>.+)", re.DOTALL)
_TWIN = re.compile(r"Eliminating (?P<name>.+) which duplicates (?:\(\w+\) )?(?P<other>.+)", re.DOTALL)
_COPY = re.compile(r"Generating copy for (?P<rest>.+?)(?: because (?:of )?(?P<reason>[^.]*)\.?)?$", re.DOTALL)
_TYPE = re.compile(r"(?:Swap the|Convert) layer type of (?P<name>.+) from \w+ to (?P<kind>\w+)", re.DOTALL)
_REFORMAT = re.compile(
    r"Adding reformat layer: Reformatted (?P<side>Input|Output) Tensor (?P<slot>\d+) to (?P<layer>.+?) \(.+\) from "
    r"(?P<change>\S.* to \S.*)",
    re.DOTALL,
)
_RUNNING = re.compile(r"Running: (?P<rule>\w+) on (?P<name>.+)", re.DOTALL)


class Decisions:
    """Reads the sentences of one network in order.

    ``layer_names`` are those of layers met so far, ``targets`` those of buffers that others were moved into,
    ``removed_layers`` what a decision has taken away. ``rule`` is being tried on ``subject``.
    """

    def __init__(self, layer_names: set[str]) -> None:
        self.layer_names = layer_names
        self.rule, self.subject = "", ""
        self.removed_layers: set[str] = set()
        self.targets: set[str] = set()

    def begin_rule(self, text: str) -> None:
        """Remember which rule is tried on which layer. Whether it does anything, the next lines tell."""
        match = _RUNNING.match(text)
        self.rule, self.subject = (match["rule"], match["name"]) if match else ("", "")
        self.layer_names.add(self.subject)

    def end_rule(self) -> None:
        """A pass is over, and with it the rule that was tried last."""
        self.rule, self.subject = "", ""

    def read(self, text: str, line: int) -> Decision | None:
        """The decision that a message tells; None where it tells none, or repeats one."""
        for rule in _RULES:
            if (fields := rule(self, text)) is not None:
                action, names, result, name, reason = fields
                self.layer_names.update(names, [result] if result else ())
                return Decision(action, names, result, name, reason, text, line)
        return None

    def split_names(self, text: str, word: str, *, last: bool = False) -> tuple[str, str] | None:
        """The two names around ``word``; None where it is missing."""
        places = [m.start() for m in re.finditer(re.escape(word), text)]
        # A sentence holds few such words; without a bound a damaged one could take long.
        pairs = [(text[:p], text[p + len(word) :]) for p in places[:50]]
        pairs = [(a, b) for a, b in pairs if a.strip() and b.strip()]
        if not pairs:
            return None
        if last:
            pairs.reverse()

        def fit(pair: tuple[str, str]) -> int:
            first, second = pair
            is_second_met = second in self.layer_names or second in self.targets
            return 2 * (first == self.subject) + (first in self.layer_names) + is_second_met

        return max(pairs, key=fit)


_DecisionFields = tuple[Action, tuple[str, ...], str, str, str]


def _read_fusion(state: Decisions, text: str) -> _DecisionFields | None:
    match = _FUSE.fullmatch(text)
    if match is None:
        return None
    rule, rest = match["rule"] or "", match["rest"]
    if scale_match := _SCALED.fullmatch(rest):
        # The convolution keeps its name.
        return "fuse", (scale_match["first"], scale_match["second"]), scale_match["first"], rule, ""
    if match["verb"] == "fusing":
        into = state.split_names(rest, " into ", last=True)
        if into is None:
            return None
        names, layer = into
        pair = state.split_names(names[1:-1], " and ") if names[0] + names[-1] == "()" else None
        parts = pair or (names,)
        state.removed_layers.update(parts)
        return "fuse", (layer, *parts), layer, rule, ""
    pair = state.split_names(rest, " with ")
    if pair is None:
        return None
    if state.rule == rule:
        state.end_rule()
    result = "PWN({}, {})".format(*pair) if rule == "PointWiseFusion" else " + ".join(pair)
    return "fuse", pair, result, rule, ""


def _read_merge(state: Decisions, text: str) -> _DecisionFields | None:
    start = "Merging layers: "
    if not text.startswith(start):
        return None
    merged_name = text[len(start) :]
    names: list[str] = []
    for part in merged_name.split(" || "):
        # A layer that was merged before has the sign in its own name.
        if names and f"{names[-1]} || {part}" in state.layer_names:
            names[-1] = f"{names[-1]} || {part}"
        else:
            names.append(part)
    return "merge", tuple(names), merged_name, "", ""


def _read_elimination(state: Decisions, text: str) -> _DecisionFields | None:
    if match := _CONCAT.fullmatch(text):
        state.targets.add(match["name"])
        return "eliminate", (match["name"],), "", "concatenation", ""
    if match := _SLICE.fullmatch(text):
        pair = state.split_names(match["rest"], " to ", last=True)
        return "eliminate", (match["name"],), "", "slice", f"retargeted to {pair[1]}" if pair else ""
    if match := _TWIN.fullmatch(text):
        state.removed_layers.add(match["name"])
        pair_ = (match["name"], match["other"])
        return "eliminate", pair_, match["other"], state.rule, "it duplicates the other"
    return None


def _read_retarget(state: Decisions, text: str) -> _DecisionFields | None:
    pair = state.split_names(text[12:], " to ", last=True) if text.startswith("Retargeting ") else None
    if pair is None:
        return None
    state.targets.add(pair[1])
    return "retarget", pair, "", "", ""


def _read_copy(state: Decisions, text: str) -> _DecisionFields | None:
    match = _COPY.fullmatch(text)
    if match is None or (pair := state.split_names(match["rest"], " to ", last=True)) is None:
        return None
    state.targets.add(pair[1])
    return "copy", pair, f"{pair[0]} copy", "", (match["reason"] or "").strip()


def _read_removal(state: Decisions, text: str) -> _DecisionFields | None:
    if not text.startswith("Removing ") or not (name := text[9:]) or name in state.removed_layers:
        return None
    state.removed_layers.add(name)
    if state.rule.endswith("Fusion") and name != state.subject:
        # Such a rule says only what goes: the layer it ran on does its work from then on, under its own name.
        return "fuse", (state.subject, name), state.subject, state.rule, ""
    return "remove", (name,), "", state.rule if name == state.subject else "", ""


def _read_other(state: Decisions, text: str) -> _DecisionFields | None:
    if match := _TYPE.fullmatch(text):
        name, kind = match["name"], match["kind"]
        result = f"PWN({name})" if kind == "POINTWISE" else ""
        return "other", (name,), result, state.rule, f"it becomes {kind}"
    if text.startswith("Swapping ") and (pair := state.split_names(text[9:], " with ")):
        return "other", pair, "", state.rule, "they change places"
    if match := _REFORMAT.fullmatch(text):
        layer = match["layer"]
        copy_name = f"Reformatting CopyNode for {match['side']} Tensor {match['slot']} to {layer}"
        return "other", (layer,), copy_name, "reformat", match["change"]
    return None


_RULES = _read_fusion, _read_merge, _read_elimination, _read_retarget, _read_copy, _read_removal, _read_other


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


@dataclasses.dataclass
class OpenAttempt:
    """One network on its way through the passes; ``count`` is that of its layers."""

    decisions: Decisions
    passes: list[NetworkPass] = dataclasses.field(default_factory=list)
    count: int | None = None
    name: str = ""
    milliseconds: float | None = None
    pending: list[Decision] = dataclasses.field(default_factory=list)
    regions: dict[str, Decision] = dataclasses.field(default_factory=dict)
    memory: dict[str, LayerMemory] = dataclasses.field(default_factory=dict)
    totals: dict[str, int] = dataclasses.field(default_factory=dict)
    sparsity: list[Sparsity] = dataclasses.field(default_factory=list)
    eligible: tuple[str, ...] = ()
    streams: dict[str, None] = dataclasses.field(default_factory=dict)

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
    """What the log told so far; ``has_begun`` since the first pass, ``complete`` when the builder is done."""

    def __init__(self, header: Header, first: int) -> None:
        self.header, self.first = header, first
        self.has_begun = self.complete = self.calibrating = False
        self.attempts = [OpenAttempt(Decisions(header.layer_names))]
        self.chosen: int | None = None
        self.tactics = TacticRows()
        self.layers: list[Layer] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        #: Lines under each heading of layers.
        self.listings: list[list[tuple[int, str]]] = [[]]
        self.bound_names: dict[str, None] = {}
        #: Lines of the listing of layers that no rule understands.
        self.unread = 0
        self.notes: list[str] = []
        #: Seconds of phases by their beginnings.
        self._phases: dict[str, float] = {}

    @property
    def attempt(self) -> OpenAttempt:
        """The attempt that the present line belongs to."""
        return self.attempts[-1]

    def rank(self) -> int:
        """How much it is worth beside other builds of the file: 0 where it tells nothing."""
        has_attempt = any(
            a.passes or a.pending or a.memory or a.totals or a.count is not None for a in self.attempts
        )
        has_content = has_attempt or self.layers or any(self.listings) or self.tactics.tunings
        return 1 + self.complete if has_content else 0

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
        count = before[-1].after if before else None
        self.attempts.append(OpenAttempt(Decisions(self.header.layer_names), before, count))
        self.tactics.attempt = len(self.attempts) - 1
        self.complete = False

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
        self.listings.append([])
        self.complete = True

    def read_rows(self) -> tuple[tuple[int, str], ...]:
        """Read the listing in the inspector's words where TensorRT-RTX wrote it; else give its lines."""
        # One that is shorter than another before it was cut off.
        rows = max(reversed(self.listings), key=len)
        if any(listing.PARAMETERS.search(text) for _, text in rows):
            return tuple(rows)
        layers: list[Layer] = []
        for _, text in rows:
            if (entry := printed.parse_entry(text)) is not None:
                layers.append(inspector.make_layer(str(entry["Name"]), entry, len(layers)))
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
            latency=self.header.latency,
            workspace=self.header.workspace,
            lines=lines,
            complete=self.complete,
            notes=(*self.notes, *self._list_remarks()),
        )

    def _list_remarks(self) -> list[str]:
        notes = []
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
        if self.unread:
            notes.append(f"{self.unread} lines of the listing of layers could not be read.")
        return notes
