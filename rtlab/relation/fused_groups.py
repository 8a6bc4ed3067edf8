"""What stands on one side of a comparison only, joined with what it was fused into on the other."""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque

from rtlab.relation.grouping import EngineSide, Grouping
from rtlab.relation.similarity import PRODUCTS, Shape, Signature, sizes

#: Steps that a compiler fuses into what writes their input.
_FOLLOWERS = frozenset(
    {"pointwise", "scale", "normalization", "kernel", "pooling", "slice", "softmax", "shuffle"}
)


def join_fused(grouping: Grouping) -> None:
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
    """Whether two runs read and write the same shapes, as far as is told, and do not multiply otherwise.

    What multiplies alike has been matched before; a region and a generated kernel do not tell whether they do.
    """
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
