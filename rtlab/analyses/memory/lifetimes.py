"""From which step to which an engine needs each of its tensors, also where several streams run at a time."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.relation.writers import Writers

#: Whose memory a tensor lives in: the engine's own, or what the caller binds; a constant is part of the weights.
Place = Literal["arena", "input", "output", "constant"]
_JUMPS = frozenset({"jmp", "cjmp"})
#: By stream, how many of its steps are done.
Clock = tuple[int, ...]


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


def compute_clocks(engine: Engine, writers: Writers | None = None) -> tuple[Clock, ...]:
    """What is done on every stream before each step begins, in the order of ``sorted`` stream numbers.

    The order is that of each stream, a signal before the wait for its event, and a writer before its reader: a
    compiler orders the latter two by events even where its files do not list them.
    """
    lanes = {stream: i for i, stream in enumerate(sorted({layer.stream for layer in engine.layers}))}
    if len(lanes) == 1:
        return tuple((i,) for i in range(len(engine.layers)))
    writers = writers or Writers(engine)
    at = [[0] * len(lanes) for _ in lanes]
    signalled: dict[int, Clock] = {}
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
    return tuple(before)


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
    loops = versions.loops()
    span = _Order(engine, versions.origin, one_stream=one_stream)
    counts: defaultdict[str, int] = defaultdict(int)
    lives: list[Life] = []
    for version in sorted(versions.list_versions(), key=lambda v: (min(v.steps), v.name)):
        steps = version.steps.union(_find_loop_ends(version, loops)) if loops else version.steps
        counts[version.name] += 1
        number = counts[version.name]
        first, last = min(steps), max(steps)
        start, end = span.of(steps, first, last)
        lives.append(
            Life(
                id=version.name if number == 1 else f"{version.name} ({number})",
                name=version.name,
                place=version.place,
                writers=tuple(sorted(version.writers)),
                readers=tuple(sorted(version.readers)),
                mentions=tuple(version.mentions),
                first=first,
                last=last,
                start=start,
                end=end,
            )
        )
    return tuple(lives)


class _Order:
    """What is done when a tensor is first needed, and what must be done before its memory is free."""

    def __init__(self, engine: Engine, writers: Writers, *, one_stream: bool) -> None:
        streams = [layer.stream for layer in engine.layers]
        self._one = one_stream or len(set(streams)) < 2
        if not self._one:
            lanes = {stream: i for i, stream in enumerate(sorted(set(streams)))}
            self._before = compute_clocks(engine, writers)
            self._lanes = [lanes[stream] for stream in streams]

    def of(self, steps: set[int], first: int, last: int) -> tuple[Clock, Clock]:
        if self._one:
            return (first,), (last + 1,)
        start = tuple(min(parts) for parts in zip(*(self._before[s] for s in steps), strict=True))
        end = list(start)
        for step in steps:
            lane = self._lanes[step]
            end[lane] = max(end[lane], self._before[step][lane] + 1)
        return start, tuple(end)


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

    def absorb(self, other: _Version) -> None:
        self.writers |= other.writers
        self.readers |= other.readers
        self.mentions |= other.mentions
        if "arena" in {self.place, other.place}:
            self.place = self.place if other.place == "arena" else other.place


class _Versions:
    """Writings of an engine, joined to tensors."""

    def __init__(self, engine: Engine) -> None:
        self._layers = engine.layers
        self.origin = Writers(engine)
        self._outputs = {t.name for t in engine.outputs}
        self._versions: dict[tuple[str, int], _Version] = {}
        self._parent_keys: dict[tuple[str, int], tuple[str, int]] = {}
        self._carried: list[tuple[int, int]] = []
        self._write()
        for tensor in engine.inputs:
            version = self._at(tensor.name, -1)
            version.place, version.mentions[tensor] = "input", None
        input_names = {t.name for t in engine.inputs}
        for position, layer in enumerate(engine.layers):
            for tensor in layer.inputs:
                if tensor.name:
                    self._read(position, tensor, "input" if tensor.name in input_names else "constant")
            if layer.kind == "NoOp" and layer.inputs:
                self._rename(position, layer)
        if any(layer.kind in _JUMPS for layer in engine.layers):
            self._turn()
        for tensor in engine.outputs:
            self._deliver(tensor)

    def _write(self) -> None:
        for position, layer in enumerate(self._layers):
            for tensor in layer.outputs:
                if tensor.name:
                    version = self._at(tensor.name, position)
                    version.writers.add(position)
                    version.mentions[tensor] = None

    def list_versions(self) -> Iterator[_Version]:
        """All tensors that a step names."""
        return (v for v in self._versions.values() if v.steps)

    def loops(self) -> list[tuple[int, int]]:
        """First and last steps of the loops, as far as tensors that are carried to the next turn show them."""
        return self._carried

    def _at(self, name: str, position: int) -> _Version:
        return self._versions.setdefault(self._root((name, position)), _Version(name))

    def _root(self, key: tuple[str, int]) -> tuple[str, int]:
        while key in self._parent_keys:
            key = self._parent_keys[key]
        return key

    def _join(self, first: tuple[str, int], second: tuple[str, int]) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            self._at(*first).absorb(self._versions.pop(second))
            self._parent_keys[second] = first

    def _merge_writers(self, position: int, tensor: Tensor) -> tuple[str, int] | None:
        """The writings that a step reads, made one."""
        writers = self.origin.of(position, tensor)
        for other in writers[1:]:
            self._join((tensor.name, writers[0]), (tensor.name, other))
        return (tensor.name, writers[0]) if writers else None

    def _read(self, position: int, tensor: Tensor, otherwise: Place) -> None:
        key = self._merge_writers(position, tensor)
        if key is None:
            key = (tensor.name, -1)
            self._at(*key).place = otherwise
        elif key[1] > position:
            self._carried.append((position, key[1]))
        version = self._at(*key)
        version.readers.add(position)
        version.mentions[tensor] = None

    def _rename(self, position: int, layer: Layer) -> None:
        source = self._merge_writers(position, layer.inputs[0]) or (layer.inputs[0].name, -1)
        for tensor in layer.outputs:
            if tensor.name:
                self._join(source, (tensor.name, position))

    def _turn(self) -> None:
        """Where steps are repeated, one name is one tensor; what is read before it is written spans a loop."""
        of: defaultdict[str, list[int]] = defaultdict(list)
        for name, position in list(self._versions):
            of[name].append(position)
        for name, positions in of.items():
            for other in positions[1:]:
                self._join((name, positions[0]), (name, other))
            version = self._at(name, positions[0])
            begin, end = min(version.readers, default=0), max(version.writers, default=0)
            if version.readers and begin < end:
                self._carried.append((begin, end))

    def _deliver(self, tensor: Tensor) -> None:
        key = self._merge_writers(len(self._layers), tensor)
        if key is not None:
            version = self._at(*key)
            version.place = "output"
            version.mentions[tensor] = None
