"""Repeated blocks of a graph, which its picture folds and its charts and tables sum up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from rtlab.analyses.cards.picture import Box, Edge, Repeats
from rtlab.relation.blocks import Repeat, find_repeats

#: Boxes from which on a graph opens with its repeated blocks folded.
_LARGE = 1500
#: A dimension with a name, between others in a label.
_NAMED_SIZE = re.compile(r"(?<!\w)[A-Za-z_]\w*(?=×)|(?<=×)[A-Za-z_]\w*")
#: Or so many copies of one block of so many boxes at least.
_OFTEN, _BLOCK = 8, 4


def find_repeated_blocks(
    boxes: Sequence[Box], edges: Sequence[Edge], names: Mapping[str, str] | None = None
) -> tuple[list[Repeats], bool]:
    """The repeated blocks of a graph, and whether they are folded at first.

    What one copy alone is joined to, such as a cache of its own, belongs to it where all copies have the like.

    Args:
        boxes: The boxes of the graph.
        edges: The edges between them.
        names: What a layer's box is called by the first node that it runs, by its id; by default a box has its title.
    """
    joined = {end for e in edges for end in (e["source"], e["target"])} if edges else {*range(len(boxes))}
    # Layers without chips and tensors, such as signals, are no part of the picture.
    # Nor are nodes that read constants alone, such as the Identity of a weight: which blocks have one is chance.
    constants = {at for at, b in enumerate(boxes) if b["kind"] == "node"} - {e["target"] for e in edges}
    joined -= constants
    order = [
        at
        for at, b in enumerate(boxes)
        if b["kind"] in {"node", "layer"} and b["parent"] < 0 and (b["chips"] or at in joined)
    ]
    wires = [e for e in edges if e["source"] not in constants]
    runs, paths = _find_runs(boxes, order, wires, names)
    moved = _move_shared(order, wires, runs)
    if moved != order:
        again, others = _find_runs(boxes, moved, wires, names)
        if sum(r.count * r.period for r in again) > sum(r.count * r.period for r in runs):
            order, runs, paths = moved, again, others
    repeats = []
    for run in runs:
        end = run.start + run.count * run.period
        copies = [order[k : k + run.period] for k in range(run.start, end, run.period)]
        first, last = (_join_path(paths[k : k + run.period]) for k in (run.start, end - run.period))
        rows = [*map(list, zip(*copies, strict=True)), *_find_ends(boxes, edges, copies)]
        repeats.append(
            Repeats(title=f"{run.count} × {_drop_numbers(first, last)}", count=run.count, rows=rows)
        )
    often = any(run.count >= _OFTEN and run.period >= _BLOCK for run in runs)
    return repeats, bool(runs) and (often or len(order) >= _LARGE)


def _find_runs(
    boxes: Sequence[Box], order: Sequence[int], edges: Sequence[Edge], names: Mapping[str, str] | None
) -> tuple[list[Repeat], list[list[str]]]:
    """Runs of equal blocks in the boxes of ``order``, and the name scopes of each of these."""
    place = {at: k for k, at in enumerate(order)}
    reads: list[list[int]] = [[] for _ in order]
    sizes: list[list[str]] = [[] for _ in order]
    for edge in edges:
        if (reader := place.get(edge["target"])) is not None:
            reads[reader].append(place.get(edge["source"], -1))
            # Sizes that have a name, such as an exporter counts up, are equal.
            sizes[reader].append(_NAMED_SIZE.sub("?", edge["label"]))
    paths = [
        _split_path(boxes[at]["title"] if names is None else names.get(boxes[at]["id"], "")) for at in order
    ]
    signs = [(_sign(boxes[at]), tuple(labels)) for at, labels in zip(order, sizes, strict=True)]
    return find_repeats(signs, reads, _measure_depths(paths)), paths


def _move_shared(order: Sequence[int], edges: Sequence[Edge], runs: Sequence[Repeat]) -> list[int]:
    """The order with what all blocks of a run read from before it in front, behind what that follows from.

    A tracing exporter writes such boxes, as the angles of rotary embeddings, where the first block reads them: without
    this the first block is longer than the others, and none of them.
    """
    place = {at: k for k, at in enumerate(order)}
    run_of = [-1] * len(order)
    for number, run in enumerate(runs):
        end = run.start + run.count * run.period
        run_of[run.start : end] = [number] * (end - run.start)
    sources: defaultdict[int, list[int]] = defaultdict(list)
    readers: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for edge in edges:
        source, reader = place.get(edge["source"]), place.get(edge["target"])
        if source is None or reader is None:
            continue
        sources[reader].append(source)
        if (number := run_of[reader]) >= 0 and source < runs[number].start:
            readers[source, number].add((reader - runs[number].start) // runs[number].period)
    stack = [source for (source, number), copies in readers.items() if len(copies) == runs[number].count]
    first: set[int] = set()
    while stack:
        if (at := stack.pop()) not in first:
            first.add(at)
            stack += sources[at]
    return [order[k] for k in sorted(first)] + [at for k, at in enumerate(order) if k not in first]


def _sign(box: Box) -> Hashable:
    """Equal for boxes that do the same with weights of the same sizes."""
    chips = tuple((c["op"], c["role"]) for c in box["chips"])
    return box["op"], chips, tuple(box["lines"]), box["precision"], box["reads"], box["writes"]


def _split_path(name: str) -> list[str]:
    """The name scopes in a name, without what is last in it."""
    return [part for part in re.split(r"[/.]" if "/" not in name else "/", name) if part][:-1]


def _measure_depths(paths: Sequence[Sequence[str]]) -> list[int]:
    """Where each path parts from the one before it; the depth of all of it where it does not."""
    depths, before = [], None
    for path in paths:
        shared = 0
        while before is not None and shared < min(len(path), len(before)) and path[shared] == before[shared]:
            shared += 1
        # What has no name begins no block.
        depths.append(len(path) + 1 if not path or path == before else shared)
        before = path or before
    return depths


def _join_path(paths: Sequence[Sequence[str]]) -> str:
    """What the paths of a block's boxes have in common; those without a path do not count."""
    common: Sequence[str] | None = None
    for path in filter(None, paths):
        same = 0
        while common is not None and same < min(len(path), len(common)) and path[same] == common[same]:
            same += 1
        common = path if common is None else common[:same]
    return "/".join(common or ())


def _drop_numbers(first: str, last: str) -> str:
    """A name without the numbers in which two copies differ: "encoder/layer" of "encoder/layer.0" and ".../layer.5"."""
    a, b = re.split(r"(\d+)", first), re.split(r"(\d+)", last)
    name = "".join(part for k, part in enumerate(a) if k % 2 == 0 or part == (b[k] if k < len(b) else ""))
    return re.sub(r"[._/-]+(?=/|$)", "", name) or "block"


def _find_ends(
    boxes: Sequence[Box], edges: Sequence[Edge], copies: Sequence[Sequence[int]]
) -> list[list[int]]:
    """What one copy alone is joined to, such as a cache of its own: a row for all copies that have the like."""
    at_copy = {at: (copy, k) for copy, members in enumerate(copies) for k, at in enumerate(members)}
    joined: defaultdict[int, set[tuple[int, int] | None]] = defaultdict(set)
    for edge in edges:
        for end, other in ((edge["source"], edge["target"]), (edge["target"], edge["source"])):
            if end not in at_copy and boxes[end]["parent"] < 0:
                joined[end].add(at_copy.get(other))
    ends: defaultdict[Hashable, dict[int, int]] = defaultdict(dict)
    for end, others in joined.items():
        places = {c for c in others if c is not None}
        if len(places) == len(others) and len({copy for copy, _ in places}) == 1:
            box, (copy, _) = boxes[end], next(iter(places))
            ends[box["kind"], box["op"], tuple(sorted(k for _, k in places))][copy] = end
    return [[row[copy] for copy in sorted(row)] for row in ends.values() if len(row) > 1]
