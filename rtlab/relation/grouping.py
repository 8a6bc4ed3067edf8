"""The layers of two engines, what stands before and behind each, and the groups into which they are put."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from rtlab.core.engine import Engine
from rtlab.relation.similarity import Signature
from rtlab.relation.writers import Writers

#: Why layers are one group: nodes or names that both tell; one kernel and shape that each engine has once; the same
#: work next to the same layers; parts of one layer; the same place among layers of one kind and shape, or of one kind
#: where no shapes are told.
Reason = Literal["known", "shapes", "neighbours", "fused", "order", "kinds"]

#: Stand for what enters and leaves an engine.
_ENTRY, _EXIT = -1, -2
#: Layers that a connection passes at most as a branch of a block.
_SKIPS = 32


class EngineSide:
    """One engine: the layers that work, what each does, and which stand before and behind it.

    Layers are numbered in order of execution. ``alone`` are those beside which no branch runs. ``source`` writes
    what a layer reads first. Equal signatures have one number in ``sorts``, in both engines.
    """

    def __init__(
        self,
        engine: Engine,
        signs: Mapping[str, Signature],
        working: Collection[str],
        numbers: dict[Signature, int],
    ) -> None:
        self.layers = [y for y in engine.layers if y.id in working]
        self.at = {y.id: i for i, y in enumerate(self.layers)}
        self.signs = [signs[y.id] for y in self.layers]
        self.sorts = [numbers.setdefault(s, len(numbers)) for s in self.signs]
        self.converts = [s.kind == "quantization" for s in self.signs]
        self.mains = [i for i, c in enumerate(self.converts) if not c]
        self.before, self.source, self.after = self._find_neighbours(engine)
        self.readers: list[list[int]] = [[] for _ in self.layers]
        self.entries: list[int] = []
        for i in self.mains:
            for p in self.source[i]:
                (self.readers[p] if p >= 0 else self.entries).append(i)
        self.alone = self._mark_unbranched()
        self.group: list[int | None] = [None] * len(self.layers)

    def _mark_unbranched(self) -> list[bool]:
        """Whether no other layer is before and behind a layer at once; connections that skip many do not count."""
        furthest, lone_flags = -1, []
        for i, readers in enumerate(self.after):
            lone_flags.append(furthest <= i)
            furthest = max(furthest, max((r for r in readers if r - i <= _SKIPS), default=-1))
        return lone_flags

    def _find_neighbours(
        self, engine: Engine
    ) -> tuple[list[frozenset[int]], list[frozenset[int]], list[frozenset[int]]]:
        """Who writes what a layer reads and reads what it writes, through what only moves or converts."""
        writers = Writers(engine)
        entries, exits = ({t.name for t in s} for s in (engine.inputs, engine.outputs))
        main = [self.at.get(y.id, -1) for y in engine.layers]
        main = [-1 if m < 0 or self.converts[m] else m for m in main]
        reads: list[list[tuple[int, ...]]] = []
        read_by: list[list[int]] = [[] for _ in main]
        for place, layer in enumerate(engine.layers):
            reads.append([])
            for tensor in layer.inputs:
                positions = writers.of(place, tensor)
                # What a loop carries to its next turn is written later.
                earlier = tuple([w for w in positions if w < place])
                reads[-1].append(earlier or ((_ENTRY,) if tensor.name in entries else ()))
                for w in earlier:
                    read_by[w].append(place)
        none: frozenset[int] = frozenset()
        # Most layers have one neighbour on a side, and several layers the same.
        self._lone = {i: frozenset({i}) for i in (_ENTRY, *self.mains)}
        back, first = [none] * len(main), [none] * len(main)
        for place, tensors in enumerate(reads):
            neighbours = [self._collect_neighbours(w, main, back) for w in tensors]
            back[place] = neighbours[0] if len(neighbours) == 1 else none.union(*neighbours)
            first[place] = next((s for s in neighbours if s), none)
        ahead = [none] * len(main)
        for place in range(len(main) - 1, -1, -1):
            leaves = any(t.name in exits for t in engine.layers[place].outputs)
            followers = self._collect_neighbours(read_by[place], main, ahead)
            ahead[place] = followers | {_EXIT} if leaves else followers
        places = [p for p, y in enumerate(engine.layers) if y.id in self.at]
        return [back[p] for p in places], [first[p] for p in places], [ahead[p] for p in places]

    def _collect_neighbours(
        self, places: Sequence[int], main: Sequence[int], through: Sequence[frozenset[int]]
    ) -> frozenset[int]:
        if len(places) == 1:
            layer = places[0] if places[0] < 0 else main[places[0]]
            return through[places[0]] if places[0] >= 0 > layer else self._lone[layer]
        neighbours: set[int] = set()
        for place in places:
            if place < 0:
                neighbours.add(place)
            elif main[place] >= 0:
                neighbours.add(main[place])
            else:
                neighbours |= through[place]
        return frozenset(neighbours)

    def labels(self, neighbours: Iterable[int]) -> frozenset[int]:
        """The groups of those neighbours that are in one, and what enters and leaves."""
        groups = [n if n < 0 else self.group[n] for n in neighbours]
        return frozenset([f for f in groups if f is not None])

    def chains(self, row: Sequence[int]) -> list[int]:
        """Of each layer of a row, how many up to it follow each other in it, each reading what the last one wrote."""
        lengths: list[int] = []
        for at, i in enumerate(row):
            lengths.append(lengths[-1] + 1 if at and row[at - 1] in self.before[i] else 1)
        return lengths

    def free(self, among: Iterable[int]) -> list[int]:
        """Those that are in no group yet."""
        group = self.group
        return [i for i in among if group[i] is None]


class Grouping:
    """The groups of layers of two engines as they are found, with the reason of each; ``signs`` by their numbers."""

    def __init__(
        self,
        engines: tuple[Engine, Engine],
        signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
        working: tuple[Collection[str], Collection[str]],
        may: Callable[[str, str], bool] | None,
    ) -> None:
        numbers: dict[Signature, int] = {}
        one, two = (EngineSide(e, s, w, numbers) for e, s, w in zip(engines, signs, working, strict=True))
        self.sides = one, two
        self.signs = list(numbers)
        self.groups: list[tuple[list[int], list[int]]] = []
        self.reasons: list[Reason] = []
        self.may = may

    def join(self, first: Iterable[int], second: Iterable[int], reason: Reason) -> None:
        """Put layers that are in no group yet into a new one."""
        group = list(first), list(second)
        for side, layers in zip(self.sides, group, strict=True):
            for i in layers:
                side.group[i] = len(self.groups)
        self.groups.append(group)
        self.reasons.append(reason)

    def widen(self, group: int, number: int, layer: int) -> None:
        """Add a layer of one engine to a group: a part of what the other engine runs as a whole."""
        self.sides[number].group[layer] = group
        self.groups[group][number].append(layer)
        self.reasons[group] = "fused"

    def free(self, i: int, j: int) -> bool:
        """Whether two layers may become a pair."""
        one, two = self.sides
        return (
            one.group[i] is None
            and two.group[j] is None
            and (self.may is None or self.may(one.layers[i].id, two.layers[j].id))
        )

    def has_other_writers(self, i: int, j: int) -> bool:
        """Whether two layers are known to read what different layers write."""
        one, two = self.sides
        a, b = one.labels(one.source[i]), two.labels(two.source[j])
        return bool(a and b) and not a & b

    def get_reason(self, number: int) -> Reason:
        """The strongest reason of a group, once all are known."""
        reason, group = self.reasons[number], self.groups[number]
        if reason in {"known", "fused", "shapes"}:
            return reason
        (i,), (j,) = group
        one, two = self.sides
        if not (one.signs[i].is_complete and two.signs[j].is_complete):
            return "kinds"
        near = (one.before[i], two.before[j]), (one.after[i], two.after[j])
        return "neighbours" if any(one.labels(a) & two.labels(b) for a, b in near) else "order"


def group_alike(
    side: EngineSide, among: Iterable[int], further: Sequence[Collection[int]] | None = None
) -> dict[tuple[int, ...], list[int]]:
    """Layers by what they do, and where their next neighbours are given by what those do."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in dict.fromkeys(among):
        further_sorts = () if further is None else sorted(side.sorts[n] if n >= 0 else n for n in further[i])
        groups.setdefault((side.sorts[i], *further_sorts), []).append(i)
    return groups
