"""From which step to which an engine needs each of its tensors, also where several streams run at a time."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.relation.dataflow import Writers

#: Whose memory a tensor lives in: the engine's own, or what the caller binds; a constant is part of the weights.
Place = Literal["arena", "input", "output", "constant"]
_JUMPS = frozenset({"jmp", "cjmp"})
#: By stream, how many of its steps are done.
Clock = tuple[int, ...]
#: A name and the first step that writes it, -1 for what no step writes.
_Key = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Life:
    """One tensor, from its first step to its last; all are positions in ``Engine.layers``.

    ``mentions`` are the tensor as its writers and readers name it, the same or parts of it, each once. ``id`` is its
    name, numbered from the second tensor of that name on. ``first`` and ``last`` are in the order of issue: the first
    step that names it, and the last that needs it. It is needed when what ``start`` says is done on every stream, and
    free when all that ``end`` says is done.
    """

    id: str
    name: str
    place: Place
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    mentions: tuple[Tensor, ...]
    first: int
    last: int
    start: Clock
    end: Clock

    def frees(self, other: Life) -> bool:
        """Whether every step that names this tensor is done before any that names ``other`` begins."""
        return all(e <= s for e, s in zip(self.end, other.start, strict=True))


def compute_clocks(engine: Engine, writers: Writers) -> list[Clock]:
    """What is done on every stream before each step begins, in the order of ``sorted`` stream numbers.

    The order is that of each stream, a signal before the wait for its event, and a writer before its reader: a
    compiler orders the latter two by events even where its files do not list them.
    """
    lanes = _number_lanes(engine)
    at = [[0] * len(lanes) for _ in lanes]
    signalled: dict[int | None, Clock] = {}
    before: list[Clock] = []
    after: list[Clock] = []
    for position, layer in enumerate(engine.layers):
        lane = lanes[layer.stream]
        predecessor_clocks = [after[w] for w in writers.before(position)]
        if layer.kind == "wait" and layer.event in signalled:
            predecessor_clocks.append(signalled[layer.event])
        now = [max(parts) for parts in zip(at[lane], *predecessor_clocks, strict=True)]
        before.append(tuple(now))
        now[lane] += 1
        at[lane] = now
        after.append(tuple(now))
        if layer.kind == "signal" and layer.event is not None:
            signalled[layer.event] = after[-1]
    return before


def _number_lanes(engine: Engine) -> dict[int, int]:
    return {stream: i for i, stream in enumerate(sorted({layer.stream for layer in engine.layers}))}


def compute_lifetimes(engine: Engine, *, one_stream: bool = False) -> tuple[Life, ...]:
    """Every tensor of an engine, by its first step.

    Names that a compiler uses again are tensors of their own; what several layers write in parts, such as the inputs
    of a concatenation that it eliminated, is one tensor, and so is what a layer without work (NoOp) only renames. A
    tensor that is read in a loop, and written before it, lives to the loop's end.

    Args:
        engine: With tensors; layers without any give an empty answer.
        one_stream: As if all steps ran one after the other, in the order of issue.
    """
    versions = _Versions(engine)
    lanes = _number_lanes(engine)
    if one_stream or len(lanes) < 2:
        before: Sequence[Clock] = [(i,) for i in range(len(engine.layers))]
        lane_by_step = [0] * len(engine.layers)
    else:
        before = compute_clocks(engine, versions.origin)
        lane_by_step = [lanes[layer.stream] for layer in engine.layers]
    counts: Counter[str] = Counter()
    lives: list[Life] = []
    for version in sorted(versions.list_versions(), key=lambda v: (min(v.steps), v.name)):
        steps = version.steps.union(_find_loop_ends(version, versions.loops))
        counts[version.name] += 1
        number = counts[version.name]
        start = tuple(min(parts) for parts in zip(*(before[s] for s in steps), strict=True))
        end = list(start)
        for step in steps:
            lane = lane_by_step[step]
            end[lane] = max(end[lane], before[step][lane] + 1)
        lives.append(
            Life(
                id=version.name if number == 1 else f"{version.name} ({number})",
                name=version.name,
                place=version.place,
                writers=tuple(sorted(version.writers)),
                readers=tuple(sorted(version.readers)),
                mentions=tuple(version.mentions),
                first=min(steps),
                last=max(steps),
                start=start,
                end=tuple(end),
            )
        )
    return tuple(lives)


def _find_loop_ends(version: _Version, loops: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The ends of the loops that need a tensor again in their next turn."""
    for begin, end in loops:
        inside = any(begin <= s <= end for s in version.readers)
        if inside and not any(begin <= w for w in version.writers):
            yield end


@dataclasses.dataclass
class _Version:
    """One tensor under construction; ``mentions`` keeps the order in which they occur."""

    name: str
    place: Place = "arena"
    writers: set[int] = dataclasses.field(default_factory=set)
    readers: set[int] = dataclasses.field(default_factory=set)
    mentions: dict[Tensor, None] = dataclasses.field(default_factory=dict)

    @property
    def steps(self) -> set[int]:
        return self.writers | self.readers


class _Versions:
    """Writings of an engine, joined to tensors.

    ``loops`` holds the first and the last step of each, as far as tensors that are carried to the next turn show them.
    """

    def __init__(self, engine: Engine) -> None:
        self.origin = Writers(engine)
        self.loops: list[tuple[int, int]] = []
        self._versions: dict[_Key, _Version] = {}
        self._parent_keys: dict[_Key, _Key] = {}
        self._write(engine.layers)
        for tensor in engine.inputs:
            version = self._at((tensor.name, -1))
            version.place, version.mentions[tensor] = "input", None
        input_names = {t.name for t in engine.inputs}
        for position, layer in enumerate(engine.layers):
            for tensor in layer.inputs:
                if tensor.name:
                    self._read(position, tensor, "input" if tensor.name in input_names else "constant")
            if layer.kind == "NoOp" and layer.inputs:
                self._rename(position, layer)
        if any(layer.kind in _JUMPS for layer in engine.layers):
            self._join_turns()
        for tensor in engine.outputs:
            key = self._merge_writers(len(engine.layers), tensor)
            if key is not None:
                version = self._at(key)
                version.place, version.mentions[tensor] = "output", None

    def _write(self, layers: Sequence[Layer]) -> None:
        for position, layer in enumerate(layers):
            for tensor in layer.outputs:
                if tensor.name:
                    version = self._at((tensor.name, position))
                    version.writers.add(position)
                    version.mentions[tensor] = None

    def list_versions(self) -> Iterator[_Version]:
        """All tensors that a step names."""
        return (v for v in self._versions.values() if v.steps)

    def _at(self, key: _Key) -> _Version:
        return self._versions.setdefault(self._root(key), _Version(key[0]))

    def _root(self, key: _Key) -> _Key:
        while key in self._parent_keys:
            key = self._parent_keys[key]
        return key

    def _join(self, first: _Key, second: _Key) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            version, other = self._at(first), self._versions.pop(second)
            version.writers |= other.writers
            version.readers |= other.readers
            version.mentions |= other.mentions
            if version.place == "arena":
                version.place = other.place
            self._parent_keys[second] = first

    def _merge_writers(self, position: int, tensor: Tensor) -> _Key | None:
        """The writings that a step reads, made one."""
        writers = self.origin.of(position, tensor)
        for other in writers[1:]:
            self._join((tensor.name, writers[0]), (tensor.name, other))
        return (tensor.name, writers[0]) if writers else None

    def _read(self, position: int, tensor: Tensor, otherwise: Place) -> None:
        key = self._merge_writers(position, tensor)
        if key is None:
            key = (tensor.name, -1)
            self._at(key).place = otherwise
        elif key[1] > position:
            self.loops.append((position, key[1]))
        version = self._at(key)
        version.readers.add(position)
        version.mentions[tensor] = None

    def _rename(self, position: int, layer: Layer) -> None:
        source = self._merge_writers(position, layer.inputs[0]) or (layer.inputs[0].name, -1)
        for tensor in layer.outputs:
            if tensor.name:
                self._join(source, (tensor.name, position))

    def _join_turns(self) -> None:
        """Where steps are repeated, one name is one tensor; what is read before it is written spans a loop."""
        of: defaultdict[str, list[_Key]] = defaultdict(list)
        for key in self._versions:
            of[key[0]].append(key)
        for keys in of.values():
            for other in keys[1:]:
                self._join(keys[0], other)
            version = self._at(keys[0])
            begin, end = min(version.readers, default=0), max(version.writers, default=0)
            if version.readers and begin < end:
                self.loops.append((begin, end))
