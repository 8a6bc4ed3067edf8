"""Content of a builder's verbose log: passes, decisions, tactics, memory, sparsity, streams."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated, Literal

from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.core.variant import Target

#: What a pass did with layers or tensors, in the compiler's words.
Action = Literal["fuse", "merge", "eliminate", "retarget", "copy", "remove", "other"]

_UNKNOWN = Target("unknown")


@dataclasses.dataclass(frozen=True)
class Decision:
    """One action of a pass.

    ``names`` are the layers concerned, in the log's order: fuse A with B, merge A || B, eliminate concatenation C,
    retarget tensor X to C, copy X to C. ``result`` is the name of the new layer, if any. ``rule`` is the compiler's
    name of the fusion, such as ``ConvReluFusion``, ``reason`` its reason, both empty where not logged. ``line`` counts
    lines of the log from 1; ``text`` is that line's message.
    """

    action: Action
    names: Annotated[tuple[str, ...], UNSENT]
    result: Annotated[str, UNSENT]
    rule: str
    reason: Annotated[str, UNSENT]
    text: str
    line: int


@dataclasses.dataclass(frozen=True)
class NetworkPass:
    """One pass over the network: its name, and the number of layers before and after it, None where not logged."""

    name: str
    before: int | None
    after: int | None
    decisions: tuple[Decision, ...]
    line: int


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The passes over one network; a builder may try several.

    ``name`` is the builder's, such as ``backend strategy 3``, and ``milliseconds`` the time that it expects of its
    engine; empty and None where not logged.
    """

    passes: tuple[NetworkPass, ...]
    name: str = ""
    milliseconds: float | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of layers at the start and after each pass that changed it: 141, 84, 66."""
        counts = (count for step in self.passes for count in (step.before, step.after) if count is not None)
        return tuple(count for count, _ in itertools.groupby(counts))


@dataclasses.dataclass(frozen=True, slots=True)
class TacticTime:
    """One tactic that was timed for a layer: its id (hex, or a number in old logs), its name, milliseconds."""

    tactic: Annotated[str, FieldMeta("Tactic")]
    name: Annotated[str, FieldMeta("Name")]
    milliseconds: Annotated[float, FieldMeta("Time", "ms", "reported")]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator that TensorRT's graph compiler tuned.

    ``key`` is that of the timing cache, empty where the build was not editable. ``nodes`` are the labels of its ONNX
    nodes. ``timed`` are its tactics, the fastest first, with *reported* times.
    """

    name: str
    key: str
    nodes: tuple[str, ...]
    timed: tuple[TacticTime, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An operator's entry in a timing cache: a tactic by its hash, and its *reported* time."""

    key: str
    tactic: int
    milliseconds: float

    @property
    def id(self) -> str:
        """The tactic as the log writes it."""
        return f"{self.tactic:#x}"


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The tactics of one runner that were timed for one layer with one combination of formats.

    ``formats`` is the combination as the log writes it, such as ``Half(784,1:4,28,1) -> Half(6272,1:4,224,8)``.
    ``chosen`` is the tactic that this runner would use, empty where none was valid. ``timed`` are the best, the fastest
    first, of ``count``, which is 0 for one result of a timing cache. ``won`` is True where the builder took this runner
    for these formats, ``attempt`` is a position in ``BuildLog.attempts``. In a region of Myelin ``operator`` names the
    operator that was tuned, and ``nodes`` are the labels of its ONNX nodes.
    """

    layer: str
    runner: str
    formats: str
    timed: tuple[TacticTime, ...]
    chosen: str
    count: int
    line: int
    won: bool = False
    attempt: int = 0
    operator: str = ""
    nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class LayerMemory:
    """Bytes of one layer as the builder *reported* them."""

    layer: str
    host: int
    device: int
    scratch: int


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """Layers that could use sparse tactics, and those that do, as *reported*."""

    eligible: tuple[str, ...]
    chosen: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class BuildLog:
    """A whole log of so many ``lines``; ``complete`` is False where the build did not end in it.

    ``chosen`` is the position in ``attempts`` of the one that became the engine; ``memory``, ``totals``, ``sparsity``
    and ``streams`` are of that one. ``totals`` are memory totals in bytes by ``activation``, ``weights``, ``scratch``,
    ``host`` and ``device``. ``streams`` are lines about auxiliary streams. ``nodes`` and ``tensors`` translate names of
    layers and tensors into those of ONNX. ``seconds`` is the time of the whole build, ``latency`` the median GPU time
    of trtexec's inferences in milliseconds, ``workspace`` trtexec's pool in bytes, None where it is the default or not
    logged. ``notes`` are for the reader, such as that the log is cut off.
    """

    version: str = ""
    device: str = ""
    target: Target = _UNKNOWN
    attempts: tuple[Attempt, ...] = ()
    chosen: int = 0
    tunings: tuple[Tuning, ...] = ()
    memory: tuple[LayerMemory, ...] = ()
    totals: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sparsity: tuple[Sparsity, ...] = ()
    streams: tuple[str, ...] = ()
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tensors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    latency: float | None = None
    workspace: int | None = None
    lines: int = 0
    complete: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<BuildLog {self.version or 'version not reported'}: {len(self.attempts)} attempts, "
            f"{sum(t.count for t in self.tunings)} tactics timed>"
        )
