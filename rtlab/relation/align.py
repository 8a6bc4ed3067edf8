"""The layers of two engines of one model set side by side, by what they do and what stands before and behind them.

Seeds are layers that are known to be the same, and those of a kind, kernel and shape that each engine has once. From
each, what reads its result is compared. What is left between two pairs is matched in its order, at least cost; two or
three layers may be the parts of one. At last, what stands on one side only joins the layers that it was fused into.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from rtlab.core.engine import Engine
from rtlab.relation.grouping import EngineSide, Grouping, Reason, group_alike
from rtlab.relation.similarity import PRODUCTS, Shape, Signature, sizes

#: Pairs in a table of costs that holds all of a gap; and layers of each engine in one of a larger gap: at first, and at
#: most.
_SMALL, _WINDOW, _WIDEST = 2048, 12, 192
#: Costs: of a layer that stays alone, of what is only like it, of each side on which the neighbours are known to be
#: others, of one that pads or pools by itself, of parts of a whole.
_ALONE, _LIKE, _ELSEWHERE, _NEAR, _PARTS = 5, 2, 1, 4, 3
#: Layers that may be the parts of one.
_MOST_PARTS = 3
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

    @property
    def inverse(self) -> Match:
        """Seen from the other engine."""
        return Match(self.second, self.first, self.reason)


def align(
    engines: tuple[Engine, Engine],
    signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
    working: tuple[Collection[str], Collection[str]],
    anchors: Iterable[tuple[Collection[str], Collection[str]]] = (),
    *,
    may: Callable[[str, str], bool] | None = None,
) -> list[Match]:
    """Groups of layers that do the same work in both engines; a layer in none of them stands alone.

    Args:
        engines: Of one model.
        signs: What each of their layers does.
        working: Ids of the layers of each that do work; the others only move data, and are seen through.
        anchors: Layers that are known to be the same.
        may: Whether a layer of the first and one of the second may be a pair. Where it is given, no layers are joined
            to be the parts of one.
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
    return [m.inverse for m in matches] if is_swapped else matches


def _rank(engine: Engine) -> tuple[object, ...]:
    return len(engine.layers), tuple(y.name for y in engine.layers), tuple(y.precision for y in engine.layers)


class _Aligner(Grouping):
    """The groups of two engines, and what is kept to find them."""

    def __init__(
        self,
        engines: tuple[Engine, Engine],
        signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
        working: tuple[Collection[str], Collection[str]],
        may: Callable[[str, str], bool] | None,
    ) -> None:
        super().__init__(engines, signs, working, may)
        self.likeness: dict[tuple[int, int], int | None] = {}
        self.wholes: dict[tuple[int, ...], bool] = {}
        self.spans: dict[tuple[Shape | None, Shape | None], int] = {}
        #: How many groups have been followed to their neighbours, and whether backwards too.
        self.extended, self.back = 0, False

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
            mine, theirs = (
                s.free(n for n in among if n >= 0) for s, among in zip(self.sides, near, strict=True)
            )
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
            runs = [_run(self.sides[n], rows[n][at[n] : at[n] + size]) for n in (0, 1)]
            cut = [len(runs[n]) == size and at[n] + size < len(rows[n]) for n in (0, 1)]
            pairs = self._align_gap(runs[0], runs[1], cut)
            if any(cut):
                # What stands at a window's end may have its like behind it.
                pairs = pairs[: max(1, len(pairs) * 2 // 3)]
            for mine, theirs in pairs:
                self.join(mine, theirs, "order" if len(mine) == len(theirs) == 1 else "fused")
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
        rising_ends = _longest_increasing(sorted(e for e in ends if one.alone[e[0]] and two.alone[e[1]]))
        cuts = [*rising_ends, (len(one.layers), len(two.layers))]
        gaps: list[tuple[list[int], list[int]]] = [([], []) for _ in cuts]
        for number, side in enumerate(self.sides):
            starts = [c[number] for c in cuts]
            for i in side.free(side.mains):
                gaps[bisect.bisect_left(starts, i)][number].append(i)
        return [f for f in gaps if f[0] and f[1]]

    def _align_gap(
        self, first: Sequence[int], second: Sequence[int], cut: Sequence[bool]
    ) -> list[tuple[list[int], list[int]]]:
        """Pairs, and parts with their whole, at least cost (Needleman-Wunsch); ends are free where ``cut``."""
        wide = len(second) + 1
        pairs = self._compute_costs(first, second)
        chains = [s.chains(run) for s, run in zip(self.sides, (first, second), strict=True)]
        (one, ones), (two, twos) = (self._spans(n, run, chains[n]) for n, run in enumerate((first, second)))
        costs = [_ALONE * col for col in range(wide)]
        ways = [[(0, 1)] * wide]
        rows = [costs]
        for row in range(1, len(first) + 1):
            above, price = costs, pairs[row - 1]
            costs, way = [above[0] + _ALONE], [(1, 0)]
            for col in range(1, wide):
                best, by = above[col] + _ALONE, (1, 0)
                if (cost := costs[-1] + _ALONE) < best:
                    best, by = cost, (0, 1)
                pair = price[col - 1]
                if pair is not None and (cost := above[col - 1] + pair) < best:
                    best, by = cost, (1, 1)
                if (two[col - 1] in ones[row - 1] or one[row - 1] in twos[col - 1]) and (
                    pair is None or pair >= _PARTS
                ):
                    for up, col_step in self._iter_parts(first, second, row, col, chains):
                        if (cost := rows[row - up][col - col_step] + _PARTS) < best:
                            best, by = cost, (up, col_step)
                costs.append(best)
                way.append(by)
            rows.append(costs)
            ways.append(way)
        alignment = []
        ends = [(len(first), len(second))]
        ends += [(len(first), c) for c in range(wide) if cut[0]]
        ends += [(r, len(second)) for r in range(len(rows)) if cut[1]]
        row, col = min(ends, key=lambda end: (rows[end[0]][end[1]], -sum(end)))
        while row and col:
            up, col_step = ways[row][col]
            if up and col_step:
                alignment.append(([*first[row - up : row]], [*second[col - col_step : col]]))
            row, col = row - up, col - col_step
        return alignment[::-1]

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

    def _spans(
        self, number: int, run: Sequence[int], chains: Sequence[int]
    ) -> tuple[list[int], list[Collection[int]]]:
        """Numbers for the shapes at both ends: of each layer of a row, and of all chains that end with it."""
        signs, numbers = self.sides[number].signs, self.spans
        layer_ends: list[int] = []
        joint: list[Collection[int]] = []
        for at, i in enumerate(run):
            ends = sizes(signs[i].reads), signs[i].writes
            layer_ends.append(numbers.setdefault(ends, len(numbers)))
            parts = range(2, 1 + min(chains[at], _MOST_PARTS if self.may is None else 1))
            firsts = [(sizes(signs[run[at + 1 - p]].reads), signs[i].writes) for p in parts]
            joint.append(tuple([numbers.setdefault(ends, len(numbers)) for ends in firsts]))
        return layer_ends, joint

    def _iter_parts(
        self, first: Sequence[int], second: Sequence[int], row: int, col: int, chains: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, int]]:
        """How the first ``row`` and ``col`` layers can end with the parts of one layer."""
        i, j = first[row - 1], second[col - 1]
        for parts in range(2, _MOST_PARTS + 1):
            if chains[0][row - 1] >= parts and self._are_parts(0, first[row - parts : row], j):
                yield parts, 1
            if chains[1][col - 1] >= parts and self._are_parts(1, second[col - parts : col], i):
                yield 1, parts

    def _are_parts(self, number: int, parts: Sequence[int], target: int) -> bool:
        """Whether a chain of layers of one engine reads and writes what one layer of the other does."""
        side, other = self.sides[number], self.sides[1 - number]
        key = (other.sorts[target], *[side.sorts[p] for p in parts])
        if key not in self.wholes:
            self.wholes[key] = _can_be_parts([self.signs[k] for k in key[1:]], self.signs[key[0]])
        return self.wholes[key]


def _run(side: EngineSide, row: Sequence[int]) -> list[int]:
    """The layers of a row up to the first that has been matched."""
    return list(itertools.takewhile(lambda i: side.group[i] is None, row))


def _can_be_parts(parts: Sequence[Signature], target: Signature) -> bool:
    """Whether layers in a row can be parts of one: by the ends of the row, and by what of them multiplies."""
    products = [p for p in parts if p.kind in PRODUCTS]
    return (
        target.is_complete
        and all(p.kind != "concat" for p in parts)
        and sizes(parts[0].reads) == sizes(target.reads)
        and parts[-1].writes == target.writes
        and len(products) == (target.kind in PRODUCTS)
        and all(p.kind == target.kind and p.has_same_kernel(target) for p in products)
    )


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of these pairs, sorted by their first number, that rise in their second too."""
    tails: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for n, (_, second) in enumerate(pairs):
        place = bisect.bisect_left(tails, second)
        back.append(at[place - 1] if place else -1)
        if place == len(tails):
            tails.append(second)
            at.append(n)
        else:
            tails[place], at[place] = second, n
    subsequence = []
    n = at[-1] if at else -1
    while n >= 0:
        subsequence.append(pairs[n])
        n = back[n]
    return subsequence[::-1]


def _join_fused(grouping: Grouping) -> None:
    """Put what is in no group into one, where the other engine runs it as a part of another layer."""
    for number in (0, 1):
        _join_widened(grouping, number)
    _join_between(grouping)
    for number in (0, 1):
        _join_followers(grouping, number)
    _join_quantizers(grouping)


def _join_widened(grouping: Grouping, number: int) -> None:
    """Convolutions of one input that the other engine runs as one wider convolution."""
    side, other = grouping.sides[number], grouping.sides[1 - number]
    siblings: defaultdict[object, list[int]] = defaultdict(list)
    for i in side.free(side.mains):
        s = side.signs[i]
        if s.kind in PRODUCTS and s.is_complete and s.groups == 1 and s.writes:
            siblings[s.kernel, s.stride, s.reads, s.writes[1:], side.source[i]].append(i)
    wide: defaultdict[Signature, list[int]] = defaultdict(list)
    for j in other.free(other.mains):
        wide[other.signs[j]].append(j)
    for parts in siblings.values():
        shapes = [w for w in (side.signs[p].writes for p in parts) if w]
        total_shape = (sum(w[0] for w in shapes), *shapes[0][1:])
        wholes = other.free(wide[dataclasses.replace(side.signs[parts[0]], writes=total_shape)])
        if len(parts) > 1 and len(wholes) == 1:
            grouping.join(*((parts, wholes) if number == 0 else (wholes, parts)), reason="fused")


def _join_between(grouping: Grouping) -> None:
    """What is left on both sides between the same layers is one group: regions, steps that were cut otherwise."""
    one, two = (_collect_runs(side) for side in grouping.sides)
    for key, mine in one.items():
        theirs = two.get(key, [])
        if len(mine) == len(theirs) == 1 and _have_same_ends(grouping, mine[0], theirs[0]):
            grouping.join(mine[0], theirs[0], "fused")


def _collect_runs(side: EngineSide) -> dict[tuple[frozenset[int], frozenset[int]], list[list[int]]]:
    """The layers without a group that read from each other, by the groups before and behind them."""
    free = dict.fromkeys(side.free(side.mains))
    runs: dict[tuple[frozenset[int], frozenset[int]], list[list[int]]] = {}
    while free:
        run = [next(iter(free))]
        del free[run[0]]
        todo = deque(run)
        while todo:
            i = todo.popleft()
            near = sorted(n for n in side.before[i] | side.after[i] if n in free)
            for n in near:
                del free[n]
            run += near
            todo += near
        members = {*run}
        before = side.labels(n for i in run for n in side.before[i] if n not in members)
        after = side.labels(n for i in run for n in side.after[i] if n not in members)
        if before and after:
            runs.setdefault((before, after), []).append(sorted(run))
    return runs


def _have_same_ends(grouping: Grouping, first: list[int], second: list[int]) -> bool:
    """Whether two runs read and write the same shapes, as far as is known, and do not multiply differently."""
    one, two = ([s.signs[i] for i in run] for s, run in zip(grouping.sides, (first, second), strict=True))
    if any(s.kind == "region" for s in (*one, *two)):
        return True
    for mine, theirs in ((one, two), (two, one)):
        if any(s.kind in PRODUCTS for s in mine) and (
            any(s.kind in PRODUCTS for s in theirs) or not any(s.kind == "kernel" for s in theirs)
        ):
            return False
    ends = ((one[0].reads, two[0].reads), (one[-1].writes, two[-1].writes))
    return all(a is None or b is None or sizes(a) == sizes(b) for a, b in ends)


def _join_followers(grouping: Grouping, number: int) -> None:
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
    grouping: Grouping, number: int, near: frozenset[int], shape: Shape | None, *, writes: bool
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


def _join_quantizers(grouping: Grouping) -> None:
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
