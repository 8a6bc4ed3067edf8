"""The layers of two engines of one model set side by side, by what they do and what stands before and behind them.

Seeds are layers that are known to be the same, and those of a kind, kernel and shape that each engine has once. From
each, what reads its result is compared. What is left between two pairs is matched in its order, at least cost. At
last, what stands on one side only joins the layers that it was fused into.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from rtlab.core.engine import Engine
from rtlab.relation.dataflow import Writers
from rtlab.relation.similarity import PRODUCTS, Shape, Signature, sizes

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
        back, first = [none] * len(main), [none] * len(main)
        for place, tensors in enumerate(reads):
            neighbours = [self._collect_neighbours(w, main, back) for w in tensors]
            back[place] = neighbours[0] if len(neighbours) == 1 else none.union(*neighbours)
            first[place] = next(filter(None, neighbours), none)
        ahead = [none] * len(main)
        for place in range(len(main) - 1, -1, -1):
            leaves = not exits.isdisjoint([t.name for t in engine.layers[place].outputs])
            followers = self._collect_neighbours(read_by[place], main, ahead)
            ahead[place] = followers | {_EXIT} if leaves else followers
        places = [p for p, y in enumerate(engine.layers) if y.id in self.at]
        return [back[p] for p in places], [first[p] for p in places], [ahead[p] for p in places]

    def _collect_neighbours(
        self, places: Sequence[int], main: Sequence[int], through: Sequence[frozenset[int]]
    ) -> frozenset[int]:
        # Most tensors have one writer, and most of those compute.
        if len(places) == 1 and main[places[0]] < 0 <= places[0]:
            return through[places[0]]
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
        group = self.group
        return frozenset([f for n in neighbours if (f := n if n < 0 else group[n]) is not None])

    def take_free(self, row: Sequence[int]) -> list[int]:
        """The layers of a row up to the first that is in a group."""
        return list(itertools.takewhile(lambda i: self.group[i] is None, row))

    def free(self, among: Iterable[int]) -> list[int]:
        """Those that are in no group yet."""
        group = self.group
        return [i for i in among if group[i] is None]


def group_alike(
    side: EngineSide, among: Iterable[int], further: Sequence[Collection[int]] | None = None
) -> dict[tuple[int, ...], list[int]]:
    """Layers by what they do, and where their next neighbours are given by what those do."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in dict.fromkeys(among):
        further_sorts = () if further is None else sorted(side.sorts[n] if n >= 0 else n for n in further[i])
        groups.setdefault((side.sorts[i], *further_sorts), []).append(i)
    return groups


#: Pairs in a table of costs that holds all of a gap; and layers of each engine in one of a larger gap: at first, and at
#: most.
_SMALL, _WINDOW, _WIDEST = 2048, 12, 192
#: Costs: of a layer that stays alone, of what is only like it, of each side on which the neighbours are known to be
#: others, of one that pads or pools by itself.
_ALONE, _LIKE, _ELSEWHERE, _NEAR = 5, 2, 1, 4
#: Steps that a compiler fuses into what writes their input.
_FOLLOWERS = frozenset(
    {"pointwise", "scale", "normalization", "kernel", "pooling", "slice", "softmax", "shuffle"}
)


@dataclasses.dataclass(frozen=True)
class Match:
    """Layers of both engines that do the same work, by id, in order of execution."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    reason: Reason


def align(
    engines: tuple[Engine, Engine],
    signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
    working: tuple[Collection[str], Collection[str]],
    anchors: Iterable[tuple[Collection[str], Collection[str]]] = (),
    *,
    may: Callable[[str, str], bool] | None = None,
) -> list[Match]:
    """Groups of layers that do the same work in both engines; a layer in none of them stands alone.

    ``signs`` tells what each layer does, ``working`` which work: the others only move data, and are seen through.
    ``anchors`` are layers that are known to be the same. ``may`` says whether two layers may be a pair; where it is
    given, no layers are joined to a group.
    """
    # Which engine is called the first must not matter where costs are equal.
    is_swapped = _rank(engines[0]) > _rank(engines[1])
    if is_swapped:
        engines, signs, working = engines[::-1], signs[::-1], working[::-1]
        anchors = [(b, a) for a, b in anchors]
    may_pair = may if may is None or not is_swapped else (lambda a, b: may(b, a))
    search = _Aligner(engines, signs, working, may_pair)
    search.run(anchors)
    one, two = search.sides
    matches = [
        Match(
            tuple(one.layers[i].id for i in sorted(first)),
            tuple(two.layers[j].id for j in sorted(second)),
            search.get_reason(number),
        )
        for number, (first, second) in enumerate(search.groups)
    ]
    return [Match(m.second, m.first, m.reason) for m in matches] if is_swapped else matches


def _rank(engine: Engine) -> tuple[object, ...]:
    return len(engine.layers), tuple(y.name for y in engine.layers), tuple(y.precision for y in engine.layers)


class _Aligner:
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
        self.likeness: dict[tuple[int, int], int | None] = {}
        #: How many groups have been followed to their neighbours, and whether backwards too.
        self.extended, self.back = 0, False

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

    def run(self, anchors: Iterable[tuple[Collection[str], Collection[str]]]) -> None:
        """Find all groups, the known ones first and in their order."""
        one, two = self.sides
        for first, second in anchors:
            self.join([one.at[i] for i in first], [two.at[j] for j in second], "known")
        self._match_unique(one.mains, two.mains)
        self._match_neighbours((one.entries, two.entries), (one.readers, two.readers))
        self._extend()
        # What writes is told less surely than what reads, where the other branch of a sum was given the sum.
        self.back, self.extended = True, 0
        self._extend()
        self._match_gaps()
        self._match_unique(one.mains, two.mains, only_remaining=True)
        self._extend()
        self._match_gaps()
        if self.may is None:
            _join_fused(self)

    def _match_unique(
        self, first: Iterable[int], second: Iterable[int], *, only_remaining: bool = False
    ) -> None:
        """Pairs of what each engine has once: products first; ``only_remaining``, other kinds with the same writers."""
        once = []
        for side, among in zip(self.sides, (first, second), strict=True):
            free = side.free(among)
            count = Counter(side.sorts[i] for i in free)
            once.append({side.sorts[i]: i for i in free if count[side.sorts[i]] == 1})
        for sort, i in once[0].items():
            j, sign = once[1].get(sort), self.signs[sort]
            if j is None or not sign.is_complete or not self.free(i, j):
                continue
            if only_remaining and not self.has_other_writers(i, j):
                self.join([i], [j], "order")
            elif not only_remaining and sign.kind in PRODUCTS:
                self.join([i], [j], "shapes")

    def _extend(self) -> None:
        """From every new group on to what reads its results, or writes for it: pairs that nothing else is like."""
        one, two = self.sides
        while self.extended < len(self.groups):
            first, second = self.groups[self.extended]
            self.extended += 1
            readers = [r for i in first for r in one.readers[i]], [r for j in second for r in two.readers[j]]
            self._match_neighbours(readers, (one.readers, two.readers))
            if self.back:
                writers = (
                    [w for i in first for w in one.source[i]],
                    [w for j in second for w in two.source[j]],
                )
                self._match_neighbours(writers, (one.source, two.source), closely=True)

    def _match_neighbours(
        self,
        near: tuple[Sequence[int], Sequence[int]],
        further: tuple[Sequence[Collection[int]], Sequence[Collection[int]]],
        *,
        closely: bool = False,
    ) -> None:
        """Pairs among the neighbours of one group: alike in what they do, then in their own neighbours."""
        one, two = self.sides
        for next_too in (True,) if closely else (False, True):
            mine = [n for n in near[0] if n >= 0 and one.group[n] is None]
            theirs = [n for n in near[1] if n >= 0 and two.group[n] is None]
            if not (mine and theirs):
                return
            candidates = group_alike(one, mine, further[0] if next_too else None)
            equal = group_alike(two, theirs, further[1] if next_too else None)
            for key, indices in candidates.items():
                like = equal.get(key, [])
                single = len(indices) == len(like) == 1
                if single and self.signs[key[0]].is_complete and self.free(indices[0], like[0]):
                    self.join(indices, like, "neighbours")

    def _match_gaps(self) -> None:
        """What is left between two pairs, in its order and at least cost; then what stands there in another order."""
        for first, second in self._list_gaps():
            self._match_gap(first, second)
            self._match_unique(first, second, only_remaining=True)
        self._extend()

    def _match_gap(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Match two rows of layers, a window at a time: from each pair on, most others follow by what they read."""
        rows = first, second
        places = {i: n for n, i in enumerate(first)}, {j: n for n, j in enumerate(second)}
        at, size = [0, 0], _WINDOW
        while at[0] < len(first) and at[1] < len(second):
            if self._skip_matched(0, rows, places, at) or self._skip_matched(1, rows, places, at):
                continue
            if (len(first) - at[0]) * (len(second) - at[1]) <= _SMALL:
                size = _SMALL
            runs = [self.sides[n].take_free(rows[n][at[n] : at[n] + size]) for n in (0, 1)]
            cut = [len(runs[n]) == size and at[n] + size < len(rows[n]) for n in (0, 1)]
            pairs = self._align_gap(runs[0], runs[1], cut)
            if any(cut):
                # What stands at a window's end may have its like behind it.
                pairs = pairs[: max(1, len(pairs) * 2 // 3)]
            for mine, theirs in pairs:
                self.join([mine], [theirs], "order")
                count = len(self.groups)
                self._extend()
                if len(self.groups) > count:
                    # What follows from this pair is surer than the rest of the table.
                    break
            if pairs:
                size = _WINDOW
            elif any(cut) and size < _WIDEST:
                size *= 2
            else:
                at, size = [a + len(run) for a, run in zip(at, runs, strict=True)], _WINDOW

    def _skip_matched(
        self,
        number: int,
        rows: tuple[Sequence[int], Sequence[int]],
        places: tuple[Mapping[int, int], Mapping[int, int]],
        at: list[int],
    ) -> bool:
        """Go on behind a layer that has been matched, and behind its like, which ends a part of the gap."""
        other = 1 - number
        if at[number] >= len(rows[number]):
            return False
        group = self.sides[number].group[rows[number][at[number]]]
        if group is None:
            return False
        at[number] += 1
        mates = [places[other][j] for j in self.groups[group][other] if j in places[other]]
        at[other] = max([at[other], *(m + 1 for m in mates)])
        return True

    def _list_gaps(self) -> list[tuple[list[int], list[int]]]:
        """The layers of both engines between pairs that stand in the same order in both, and on no branch."""
        one, two = self.sides
        ends = [(min(g[0]), min(g[1])) for g in self.groups]
        # The most of them that rise in both.
        chains: list[list[tuple[int, int]]] = []
        for end in sorted(e for e in ends if one.alone[e[0]] and two.alone[e[1]]):
            place = bisect.bisect_left(chains, end[1], key=lambda chain: chain[-1][1])
            chains[place : place + 1] = [[*(chains[place - 1] if place else ()), end]]
        rising_ends = chains[-1] if chains else []
        cuts = [*rising_ends, (len(one.layers), len(two.layers))]
        gaps: list[tuple[list[int], list[int]]] = [([], []) for _ in cuts]
        for number, side in enumerate(self.sides):
            starts = [c[number] for c in cuts]
            for i in side.free(side.mains):
                gaps[bisect.bisect_left(starts, i)][number].append(i)
        return [f for f in gaps if f[0] and f[1]]

    def _align_gap(
        self, first: Sequence[int], second: Sequence[int], cut: Sequence[bool]
    ) -> list[tuple[int, int]]:
        """Pairs at least cost (Needleman-Wunsch); ends are free where ``cut``."""
        wide = len(second) + 1
        rows = [[_ALONE * col for col in range(wide)]]
        ways = [[(0, 1)] * wide]
        for number, prices in enumerate(self._compute_costs(first, second), 1):
            above, costs, way = rows[-1], [_ALONE * number], [(1, 0)]
            for col in range(1, wide):
                best, by = above[col] + _ALONE, (1, 0)
                if (cost := costs[-1] + _ALONE) < best:
                    best, by = cost, (0, 1)
                pair = prices[col - 1]
                if pair is not None and (cost := above[col - 1] + pair) < best:
                    best, by = cost, (1, 1)
                costs.append(best)
                way.append(by)
            rows.append(costs)
            ways.append(way)
        ends = [(len(first), len(second))]
        ends += [(len(first), c) for c in range(wide) if cut[0]]
        ends += [(r, len(second)) for r in range(len(rows)) if cut[1]]
        row, col = min(ends, key=lambda end: (rows[end[0]][end[1]], -sum(end)))
        pairs = []
        while row and col:
            up, left = ways[row][col]
            if up and left:
                pairs.append((first[row - 1], second[col - 1]))
            row, col = row - up, col - left
        return pairs[::-1]

    def _compute_costs(self, first: Sequence[int], second: Sequence[int]) -> list[list[int | None]]:
        """What each layer of one row costs as a pair with each of the other; None where the two cannot be one."""
        # Nothing is joined while a table is made.
        mine, theirs = (
            [(s.sorts[i], s.layers[i].id, s.labels(s.source[i]), s.labels(s.readers[i])) for i in run]
            for s, run in zip(self.sides, (first, second), strict=True)
        )
        may, likeness, table = self.may, self.likeness, []
        for sort, name, before, after in mine:
            costs: list[int | None] = []
            for other, its_name, its_before, its_after in theirs:
                key = sort, other
                cost = likeness[key] if key in likeness else self._compute_kind_cost(key)
                if cost is not None and may is not None and not may(name, its_name):
                    cost = None
                if cost is not None:
                    # Of like layers the one whose writer is known to be the same is the likeliest.
                    cost += _ELSEWHERE * before.isdisjoint(its_before)
                    cost += _ELSEWHERE * (bool(after or its_after) and after.isdisjoint(its_after))
                costs.append(cost)
            table.append(costs)
        return table

    def _compute_kind_cost(self, key: tuple[int, int]) -> int | None:
        """What two kinds of work cost as a pair, wherever they stand."""
        a, b = (self.signs[k] for k in key)
        cost = 0 if a == b else _LIKE if a.is_like(b) else _NEAR if a.is_near(b) else None
        self.likeness[key] = cost
        return cost


def _join_fused(grouping: _Aligner) -> None:
    """Put what is in no group into one, where the other engine runs it as a part of another layer."""
    for number in (0, 1):
        _join_followers(grouping, number)
    _join_quantizers(grouping)


def _join_followers(grouping: _Aligner, number: int) -> None:
    """What the other engine has no step for joins the group of its writer, or of its reader."""
    side = grouping.sides[number]
    for i in side.free(side.mains):
        sign = side.signs[i]
        if sign.kind not in _FOLLOWERS:
            continue
        group = _find_group(grouping, number, side.before[i], sign.writes, writes=True)
        if group is None:
            group = _find_group(grouping, number, side.after[i], sign.reads, writes=False)
        if group is not None:
            grouping.widen(group, number, i)


def _find_group(
    grouping: _Aligner, number: int, near: frozenset[int], shape: Shape | None, *, writes: bool
) -> int | None:
    """The group of a neighbour in whose other half a layer writes, or reads, this shape."""
    side, other = grouping.sides[number], grouping.sides[1 - number]
    for n in sorted(near):
        group = side.group[n] if n >= 0 else None
        if group is None or shape is None:
            continue
        signs = [other.signs[j] for j in grouping.groups[group][1 - number]]
        if any(s.writes == shape if writes else sizes(s.reads) == sizes(shape) for s in signs):
            return group
    return None


def _join_quantizers(grouping: _Aligner) -> None:
    """Steps that quantize are pairs where they stand between the same layers."""
    places: list[defaultdict[object, list[int]]] = []
    for side in grouping.sides:
        mine: defaultdict[object, list[int]] = defaultdict(list)
        for i in side.free(i for i, converts in enumerate(side.converts) if converts):
            between = side.labels(side.before[i]), side.labels(side.after[i])
            mine[between, side.signs[i].writes, side.layers[i].writes].append(i)
        places.append(mine)
    for place, first in places[0].items():
        for i, j in zip(first, places[1].get(place, ()), strict=False):
            if grouping.free(i, j):
                grouping.join([i], [j], "neighbours")
