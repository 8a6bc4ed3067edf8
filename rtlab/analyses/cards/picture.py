"""A graph as the page draws it: boxes, the edges between them, and numbers on them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast

from rtlab.core.schema import Origin
from rtlab.relation.roles import Role

Family = Literal[
    "convolution", "activation", "pool", "shape", "normalization", "quantize", "matmul", "control", "other"
]
BoxKind = Literal["node", "layer", "input", "output", "group"]


class Port(TypedDict):
    """A tensor that a box reads or writes. ``shape`` is ready to show, such as ``1×16×32×32``."""

    name: str
    dtype: str
    shape: str
    format: str
    constant: bool


class OpChip(TypedDict):
    """What an engine layer does for one node, in execution order: runs it (role "work"), or serves it.

    ``op`` is the node's operator, short, or the service, such as ``Q``; ``title`` says it whole: ``Q for Conv``.
    Chips whose role is not "work" are no fusion. A model's own QuantizeLinear has the role "Q" here.
    """

    op: str
    family: Family
    node: str
    role: Role
    title: str


class Detail(TypedDict):
    """One line of the side panel."""

    key: str
    value: str


class Box(TypedDict):
    """A box of a graph. ``lines`` stand below the title when zoomed in.

    ``slim`` marks overhead: a layer that moves, retypes or quantizes what others compute; such a box has no chips.
    ``precision`` is the narrowest type that a layer touches, ``reads`` and ``writes`` those of its inputs and outputs,
    empty for a node. ``parent`` is the position of the box whose body this one stands in, -1 in the main graph, and
    ``body`` the name of that body, such as ``then_branch``. Boxes of kind ``group`` are made in the browser only.
    """

    id: str
    kind: BoxKind
    parent: int
    body: str
    op: str
    family: Family
    title: str
    lines: list[str]
    chips: list[OpChip]
    precision: str
    reads: str
    writes: str
    stream: int
    slim: bool
    inputs: list[Port]
    outputs: list[Port]
    details: list[Detail]


#: Of what a box has none: one list for all, since Python looks through thousands of empty ones for garbage. Whoever has
#: something to tell puts a list of its own there.
NONE: list[Any] = []


def make_box(id_: str, kind: BoxKind, op: str, family: Family, title: str, **parts: Any) -> Box:
    """A box in the main graph of which nothing is told yet; ``parts`` are other fields of it."""
    defaults: dict[str, Any] = {
        "id": id_, "kind": kind, "parent": -1, "body": "", "op": op, "family": family, "title": title, "lines": NONE,
        "chips": NONE, "precision": "", "reads": "", "writes": "", "stream": 0, "slim": False, "inputs": NONE,
        "outputs": NONE, "details": NONE,
    }  # fmt: skip
    return cast("Box", {**defaults, **parts})


class Edge(TypedDict):
    """A tensor between two boxes, given as positions in ``Graph.boxes``."""

    source: int
    target: int
    value: str
    label: str


class Repeats(TypedDict):
    """A block that follows itself ``count`` times, such as the layers of a transformer.

    Each row has the boxes that are the same in the copies, as positions in ``Graph.boxes``, that of the first copy
    first; shorter than ``count`` where some copies lack it, such as the Identity of a weight that they share.
    """

    title: str
    count: int
    rows: list[list[int]]


class Graph(TypedDict):
    """A graph to draw. ``constants`` are not boxes; they show as lines of their consumers.

    ``later`` says that ``inputs``, ``outputs`` and ``details`` of its boxes are empty here and come as ``Later``.
    ``folded`` says that it is so large, or repeats a block so often, that its ``repeats`` are folded at first.
    ``details`` are what the model's file says of itself; empty for an engine.
    """

    id: str
    title: str
    subtitle: str
    boxes: list[Box]
    edges: list[Edge]
    repeats: list[Repeats]
    folded: bool
    later: bool
    details: list[Detail]


class Told(TypedDict):
    """What is told of a box besides what is drawn: the fields of ``Box`` of these names."""

    inputs: list[Port]
    outputs: list[Port]
    details: list[Detail]


class OverlayValue(TypedDict):
    """One number on one box.

    ``spread`` is half the interquartile range; ``shared`` counts the boxes that the number belongs to together
    (1: to this alone); ``note`` is shown on hover.
    """

    value: float
    spread: float | None
    shared: int
    note: str


class Overlay(TypedDict):
    """A number for many boxes with its origin.

    ``best`` says which end is good; ``ranked`` is False where the order may be chance, such as that of one run.
    """

    id: str
    title: str
    unit: str
    origin: Origin
    source: str
    best: Literal["low", "high"]
    ranked: bool
    nodes: dict[str, OverlayValue]
    layers: dict[str, OverlayValue]
