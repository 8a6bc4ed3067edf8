"""Types that the kernel sends to the page, besides results; ``rtlab.web.page.contract`` writes them for TypeScript."""

from __future__ import annotations

from typing import Any, Literal, NewType, TypeAlias, TypedDict

from rtlab.core.schema import Origin
from rtlab.documents.commands import Message, WorkName

#: One of those that ``rtlab.analyses.panels`` lists.
PanelName = NewType("PanelName", str)
Side = Literal["node", "layer", "other"]
#: "auto" folds repeated blocks where the graph is large or repeats one often.
Grouping = Literal["auto", "none", "layers", "repeats", "scopes", "replay"]


class Option(TypedDict):
    """One thing to choose; ``reason`` says why it cannot be, and is empty where it can."""

    id: str
    label: str
    reason: str


class Link(TypedDict):
    """What a point of a figure or a row of a table stands for: nodes, layers of ``variant``, layers of ``compared``."""

    nodes: list[str]
    layers: list[str]
    others: list[str]


class Setting(TypedDict):
    """Something to choose in a panel; what was chosen comes back as ``ViewState.settings["<panel>.<key>"]``.

    ``range`` is a slider that stops at each of ``options``, whose ids are the values in order; ``select`` a list of
    them; ``text`` a field to write in, with ``hint`` in it while it is empty. ``told`` says in a sentence what it does.
    """

    key: str
    label: str
    told: str
    kind: Literal["select", "range", "text"]
    value: str
    options: list[Option]
    hint: str


class Work(TypedDict):
    """A button of a panel that starts work of seconds or minutes, with progress and cancel.

    ``told`` says in a sentence what it does. ``values`` goes with it in the command ``work``; ``reason`` says why it
    cannot be started, and is empty where it can.
    """

    work: WorkName
    label: str
    told: str
    values: dict[str, str]
    reason: str


class Fact(TypedDict):
    """One number of a panel, ready to show with its unit; ``origin`` is empty for a count, ``note`` shown on hover."""

    key: str
    value: str
    origin: Origin | Literal[""]
    note: str


class Column(TypedDict):
    """One column of a panel's table. Numbers are shown to three significant digits, with ``unit`` in the heading."""

    title: str
    unit: str
    numeric: bool
    origin: Origin | Literal[""]


class Row(TypedDict):
    """One row of a panel's table: a cell for each column, None where nothing is known; ``note`` is shown on hover.

    ``key`` is that of the panel's ``links``, and of the points of its figures that stand for the same thing.
    """

    key: str
    cells: list[str | float | None]
    note: str


class Figure(TypedDict):
    """A Plotly figure: ``data`` and ``layout`` are Plotly's own. The ``ids`` of the points are keys of ``Panel.links``.

    ``title`` says in words what is seen, for those who do not see it; ``height`` is in pixels, 0 to fill the panel.
    """

    title: str
    height: int
    data: list[Any]
    layout: dict[str, Any]


class Script(TypedDict):
    """Lines to copy, and what they are for."""

    label: str
    text: str


class Panel(TypedDict):
    """One analysis of one variant: the kernel's answer to the command ``panel``.

    ``lead`` is a sentence or two on the content. ``problem`` is what is missing and what to do, where there is nothing
    to show. ``scripts`` are shown in the place of figures.
    """

    name: PanelName
    variant: str
    title: str
    lead: str
    settings: list[Setting]
    work: list[Work]
    facts: list[Fact]
    scripts: list[Script]
    figures: list[Figure]
    columns: list[Column]
    rows: list[Row]
    links: dict[str, Link]
    notes: list[str]
    problem: str


class OpenSize(TypedDict):
    """A size that the inputs leave open, or a default for it; ``lacking`` where it must be named before a build.

    ``size`` is None where it lacks, and none that was tried fits the graph.
    ``id`` is its symbol, or an input and its dimension: ``image[2]``. ``inputs`` are those that have it, with shapes.
    ``least`` is 0 for the number of tokens before, else 1.
    """

    id: str
    size: int | None
    least: int
    inputs: list[str]
    lacking: bool


class Controls(TypedDict):
    """What the top row offers for the present choice, and the sizes that can be named."""

    models: list[Option]
    precisions: list[Option]
    calibrators: list[Option]
    targets: list[Option]
    compilers: list[Option]
    treatments: list[Option]
    sizes: list[OpenSize]


class Failure(TypedDict):
    """An error card: the message in its three parts as one text, the vendor's words, and the kind.

    ``until`` are the values at which the model can be cut before what the compiler refuses, ``rewrites`` those with
    which it builds ``variant``; empty where there are none.
    """

    kind: str
    message: str
    details: str
    until: list[str]
    rewrites: list[str]
    variant: str


class BuildState(TypedDict):
    """Work in progress. ``fraction`` is None while unknown; the page counts on from ``elapsed`` seconds."""

    running: bool
    phase: str
    fraction: float | None
    elapsed: float


class DataState(TypedDict):
    """What the study runs on: ``source`` in words, whether it is ``random``, and what each input takes, a line each."""

    source: str
    random: bool
    inputs: list[str]


class Status(TypedDict):
    """One item of the status line; a ``warning`` says what must not be missed."""

    origin: Origin
    text: str
    warning: bool


class PlotlySent(Message, frozen=True, tag="plotly"):
    """The library that draws charts, as the only buffer."""


class NetronStarted(Message, frozen=True, tag="link"):
    """Where Netron shows what it was opened for."""

    address: str


class FileSent(Message, frozen=True, tag="file"):
    """A file to save: its name, with its bytes as the only buffer."""

    name: str


class StudySaved(Message, frozen=True, tag="saved"):
    """Where the study was saved, in words, and the line of Python that opens it."""

    text: str
    python: str


class Parcel(Message, frozen=True, tag="parcel"):
    """What is delivered under a name: of this digest, as the only buffer or as ``content``."""

    name: str
    digest: str
    content: Any = None


class PanelAnswered(Message, frozen=True, tag="answer"):
    """A panel, and which question it answers."""

    id: str
    panel: Panel


Reply: TypeAlias = PlotlySent | NetronStarted | FileSent | StudySaved | Parcel | PanelAnswered
