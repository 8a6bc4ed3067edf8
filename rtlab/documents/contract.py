"""The contract between Python and the front end.

Every payload that crosses to the browser is one of these types. ``python -m rtlab.documents.contract`` writes the
TypeScript twin ``widgets/src/contract.ts``; a test compares the two.
"""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path
from typing import Any, Literal, TypedDict

Family = Literal[
    "convolution", "activation", "pool", "shape", "normalization", "quantize", "matmul", "control", "other"
]
BoxKind = Literal["node", "layer", "input", "output", "group"]
Reason = Literal["", "folded", "view", "shape", "dead", "unknown"]
Evidence = Literal["declared", "inferred", "merged"]
Role = Literal["work", "body", "scale", "bias", "Q", "DQ", "Q/DQ", "cast", "layout", "control"]
Origin = Literal["measured", "reported", "estimated"]
ChipStatus = Literal["ready", "building", "failed"]
StageName = Literal["compiled", "timed", "compared", "scored"]
StageState = Literal["done", "partial", "waiting", "missing", "none"]
Tab = Literal[
    "timing", "compare", "memory", "streams", "tuning", "recurrence",
    "accuracy", "engine", "build", "calibration", "findings", "table",
]  # fmt: skip
PanelName = Literal[
    "roofline",
    "samples",
    "batches",
    "difference",
    "variants",
    "memory",
    "schedule",
    "formulations",
    "recurrence",
]
WorkName = Literal["sweep", "tune", "rebuild", "peaks"]
Side = Literal["node", "layer", "other"]
Grouping = Literal["none", "layers", "repeats", "scopes", "replay"]
Verdict = Literal["absorbed", "round trip", "own step", "folded", "unknown"]
Action = Literal["fuse", "merge", "eliminate", "retarget", "copy", "remove", "other"]
TensorKind = Literal["weight", "activation"]
GestureType = Literal[
    "build", "cancel", "show", "baseline", "rebuild", "remove", "open", "drop", "netron", "dismiss", "plotly",
    "compare", "inspect", "extract", "fetch", "observe", "rank", "repair", "save", "panel", "work",
    "pictured", "measure",
]  # fmt: skip
ReplyType = Literal["plotly", "link", "file", "parcel", "panel"]


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


class Edge(TypedDict):
    """A tensor between two boxes, given as positions in ``Graph.boxes``."""

    source: int
    target: int
    value: str
    label: str


class Graph(TypedDict):
    """A graph to draw. ``constants`` are not boxes; they show as lines of their consumers.

    ``later`` says that ``inputs``, ``outputs`` and ``details`` of its boxes are empty here and come as ``Later``.
    """

    id: str
    title: str
    subtitle: str
    boxes: list[Box]
    edges: list[Edge]
    later: bool


class Told(TypedDict):
    """What is told of a box besides what is drawn: the fields of ``Box`` of these names."""

    inputs: list[Port]
    outputs: list[Port]
    details: list[Detail]


class Pair(TypedDict):
    """Node and layer that belong together, by box id; ``role`` is what the layer does for the node."""

    node: str
    layer: str
    evidence: Evidence
    role: Role


class Unmapped(TypedDict):
    """A box without a layer: the reason, and the sentence that explains it."""

    node: str
    reason: Reason
    text: str


class Reading(TypedDict):
    """One number on one box.

    ``spread`` is half the interquartile range; ``shared`` counts the boxes that the number belongs to together
    (1: to this alone); ``note`` is shown on hover.
    """

    value: float
    spread: float | None
    shared: int
    note: str


class Overlay(TypedDict):
    """A number for many boxes with its origin. ``best`` says which end is good."""

    id: str
    title: str
    unit: str
    origin: Origin
    source: str
    best: Literal["low", "high"]
    nodes: dict[str, Reading]
    layers: dict[str, Reading]


class Threshold(TypedDict):
    """What one calibrator makes of one value.

    ``amax`` is the threshold in the value's unit; ``clipped`` the share of elements beyond it, from 0 to 1; ``sqnr``
    the ratio of signal to INT8 quantization noise in dB, estimated from the histogram, None where there is no noise.
    ``chosen`` is the calibrator that ``auto`` took and ``why`` its reason, empty for any other. ``doubt`` says what is
    wrong with a threshold that clips more than is healthy, empty where nothing is.
    """

    calibrator: str
    amax: float
    clipped: float
    sqnr: float | None
    chosen: str
    why: str
    doubt: str


class CalibratedValue(TypedDict):
    """What calibration saw of one value, which the nodes ``readers`` quantize.

    ``counts`` are magnitudes over equal bins from 0 to ``upper``, exact zeros in the first; ``zeros`` is their share.
    ``origin`` of counts and shares is measured, or estimated where a part of a large map's elements stands for all.
    """

    value: str
    node: str
    readers: list[str]
    shape: str
    count: int
    zeros: float
    origin: Origin
    upper: float
    counts: list[float]
    thresholds: list[Threshold]


class Rank(TypedDict):
    """One calibrator on the task, measured: the score, its difference from fp32, and the SQNR of the model's output."""

    calibrator: str
    precision: str
    score: float | None
    delta: float | None
    sqnr: float | None
    note: str


class Calibration(TypedDict):
    """All that is known of the activations: observed on ``samples`` samples of ``source``.

    ``wanted`` is how many samples there are; fewer were seen after a cancel, and 0 says that more are left, nobody
    knows how many. ``ranking`` has the best first, and is empty before it was asked for; ``measured`` says on what and
    with which runner it was measured.
    """

    samples: int
    wanted: int
    source: str
    values: list[CalibratedValue]
    task: str
    unit: str
    ranking: list[Rank]
    measured: str


class Finding(TypedDict):
    """Something worth changing: the rule, the nodes, what it costs, how to be rid of it, and whether rtlab can do that.

    ``evidence`` tells what the statement rests on: a rule of the compiler, or what the engine's files tell. ``layers``
    are ids of the engine's layers, empty where the model alone shows it; ``microseconds`` is the measured time of the
    layers at stake, None where no times are known.
    """

    id: str
    rule: str
    title: str
    nodes: list[str]
    layers: list[str]
    microseconds: float | None
    cost: str
    fix: str
    evidence: str
    fixable: bool


class Findings(TypedDict):
    """Where quantization is placed badly; ``note`` says what was looked at, or that there is nothing to look at."""

    items: list[Finding]
    note: str


class QuantizedPair(TypedDict):
    """What the compiler made of a Q/DQ pair that the model brought along, or of the DequantizeLinear of a weight.

    ``nodes`` are the pair's; ``verdict`` says whether a layer that computes absorbed it, or whether it is a step of its
    own; ``note`` says how we know.
    """

    nodes: list[str]
    value: str
    verdict: Verdict
    note: str


class Slice(TypedDict):
    """Layers of one kind, or of one precision: how many, their time in milliseconds and its share in percent.

    ``name`` is the ``op`` or the ``precision`` of their boxes. ``time`` and ``share`` are None where none is known.
    """

    name: str
    layers: int
    time: float | None
    share: float | None


class Transition(TypedDict):
    """How many layers read ``before`` and write ``after``: the ``reads`` and ``writes`` of their boxes.

    ``time`` is theirs in milliseconds, None where none is known.
    """

    before: str
    after: str
    layers: int
    time: float | None


class Reformat(TypedDict):
    """A layer that only changes the type or the memory layout of a tensor.

    ``before`` and ``after`` are ready to show, such as ``fp32 · row major``; ``producer`` and ``consumer`` are ids of
    the layers on both sides, empty at the edge of the engine. ``cause`` says why it is there and ``fix`` how to be rid
    of it, a sentence each; ``time`` in milliseconds, None where no times are known.
    """

    layer: str
    tensor: str
    before: str
    after: str
    producer: str
    consumer: str
    cause: str
    fix: str
    time: float | None


class Coverage(TypedDict):
    """How much of the engine the mapping explains: nodes that have a layer or a reason for having none, and layers.

    ``nodes`` of ``all_nodes`` are in a layer, ``explained`` more have a reason; ``layers`` of ``all_layers``
    compute a node, ``moves`` more only move or quantize data. ``declared`` of the pairs are the compiler's own word,
    the others inferred.
    """

    nodes: int
    all_nodes: int
    explained: int
    layers: int
    all_layers: int
    moves: int
    declared: int
    pairs: int


class Summary(TypedDict):
    """What the layers of one engine are, and where its time goes.

    ``processor`` is what the times belong to, ``source`` where they come from, both empty without times. ``total`` is
    the latency of whole inferences in milliseconds, ``summed`` the sum of the layers, ``ratio`` the second by the
    first; None where unknown.
    """

    kinds: list[Slice]
    precisions: list[Slice]
    transitions: list[Transition]
    reformats: list[Reformat]
    coverage: Coverage
    processor: str
    source: str
    total: float | None
    summed: float | None
    ratio: float | None


class Step(TypedDict):
    """One decision of the builder. ``nodes`` of the model are those whose layers it joined, moved or removed.

    ``joins`` says that the nodes are one layer from then on. ``layer`` is the id of the engine's layer that came of it,
    empty where none bears its name.
    """

    action: Action
    rule: str
    text: str
    line: int
    joins: bool
    nodes: list[str]
    layer: str


class BuildPass(TypedDict):
    """A pass of the builder: layers before and after it, None where untold, and its steps from ``first`` on."""

    name: str
    before: int | None
    after: int | None
    first: int
    steps: int


class Tactic(TypedDict):
    """A tactic that was timed: its id, its name, milliseconds on the machine that built the engine."""

    tactic: str
    name: str
    time: float


class Contest(TypedDict):
    """The tactics of one layer: all that were timed, in every combination of formats.

    ``candidates`` has the fastest first, at most twenty of ``count``; ``formats`` are those of the winner, and
    ``margin`` is the time of the runner-up by that of the winner, None with one candidate. ``layer`` is the id of the
    engine's layer, empty where none bears the name.
    """

    name: str
    layer: str
    winner: str
    formats: str
    margin: float | None
    count: int
    candidates: list[Tactic]


class BuildStory(TypedDict):
    """What the verbose log of one build tells, replayed: ``attempts`` are networks on their way through all passes.

    ``title`` names compiler and device. ``memory`` and ``notes`` are lines ready to show; all of it is *reported*.
    """

    title: str
    counts: list[int]
    passes: list[BuildPass]
    steps: list[Step]
    attempts: int
    contests: list[Contest]
    memory: list[Detail]
    notes: list[str]


class Option(TypedDict):
    """One thing to choose. A disabled one says why on hover."""

    id: str
    label: str
    enabled: bool
    reason: str


class Link(TypedDict):
    """What a point of a figure or a row of a table stands for: nodes, layers of ``variant``, layers of ``compared``."""

    nodes: list[str]
    layers: list[str]
    others: list[str]


class Setting(TypedDict):
    """Something to choose in a panel; what was chosen comes back as ``ViewState.settings["<panel>.<key>"]``.

    ``range`` is a slider that stops at each of ``options``, whose ids are the values in order; ``select`` a list of
    them; ``text`` a field to write in, with ``hint`` in it while it is empty.
    """

    key: str
    label: str
    kind: Literal["select", "range", "text"]
    value: str
    options: list[Option]
    hint: str


class Work(TypedDict):
    """A button of a panel that starts work of seconds or minutes, with progress and cancel.

    ``values`` goes with it in the gesture ``work``; a disabled one says why in ``reason``.
    """

    work: WorkName
    label: str
    values: dict[str, str]
    enabled: bool
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


class Panel(TypedDict):
    """One analysis of one variant: the kernel's answer to the gesture ``panel``.

    ``asked`` is the gesture's value. ``lead`` is a sentence or two that say what is to be seen. ``problem`` says what
    is missing and what to do, where there is nothing to show; settings that would help stand beside it.
    """

    name: PanelName
    asked: str
    variant: str
    title: str
    lead: str
    settings: list[Setting]
    work: list[Work]
    facts: list[Fact]
    figures: list[Figure]
    columns: list[Column]
    rows: list[Row]
    links: dict[str, Link]
    notes: list[str]
    problem: str


class EngineView(TypedDict):
    """Everything about one variant: the engine's graph, how it maps to the source model, and its numbers.

    ``calibrator`` is the one whose thresholds it has, empty without one. ``commands`` build the prepared model
    elsewhere, a line each. ``precisions`` tells in what each node of the source is computed, where that is not fp32.
    ``quantized`` are the model's own Q/DQ pairs; ``panels`` are those that have something to say of this variant.
    Where the graph's boxes are told of later, ``overlays``, ``summary`` and ``findings`` are empty, and come as
    ``Later`` too.
    """

    variant: str
    calibrator: str
    commands: list[str]
    precisions: dict[str, str]
    quantized: list[QuantizedPair]
    graph: Graph
    pairs: list[Pair]
    unmapped: list[Unmapped]
    overlays: list[Overlay]
    summary: Summary | None
    findings: list[Finding]
    panels: list[PanelName]


class Later(TypedDict):
    """What follows the picture of a large graph, because nothing is drawn from it: ``of`` is the variant, or the model.

    ``boxes`` tell of ``Graph.boxes``, by position; ``overlays``, ``summary`` and ``findings`` are those of
    ``EngineView``, and empty for a model.
    """

    of: str
    boxes: list[Told]
    overlays: list[Overlay]
    summary: Summary | None
    findings: list[Finding]


class TensorStats(TypedDict):
    """What is known of the numbers of one tensor: ``count`` of them, and their distribution.

    ``histogram`` has ``counts`` over equal bins from ``lower`` to ``upper``. ``zeros`` is a share from 0 to 1.
    """

    name: str
    kind: TensorKind
    origin: Origin
    source: str
    shape: str
    dtype: str
    count: int
    minimum: float
    maximum: float
    mean: float
    std: float
    zeros: float
    lower: float
    upper: float
    counts: list[float]


class Inspection(TypedDict):
    """The kernel's answer to the gesture ``inspect``: the tensors of one node, or in words why there are none."""

    node: str
    tensors: list[TensorStats]
    note: str


class Controls(TypedDict):
    """What the top row offers for the present choice."""

    models: list[Option]
    precisions: list[Option]
    calibrators: list[Option]
    targets: list[Option]


class Pin(TypedDict):
    """Nodes that have a precision of their own: those whose id or name fits the pattern, or ``op:`` and an operator."""

    pattern: str
    precision: str


class Choice(TypedDict):
    """What the top row has chosen; ``calibrator`` is empty where the precision needs none.

    ``weights`` is ``channel`` or ``tensor``; ``sparsity`` holds patterns of nodes to prune to 2:4.
    """

    model: str
    precision: str
    calibrator: str
    target: str
    backend: str
    pins: list[Pin]
    weights: str
    sparsity: list[str]


class Failure(TypedDict):
    """An error card: the message in its three parts as one text, the vendor's words, and the kind."""

    kind: str
    message: str
    details: str


class Standing(TypedDict):
    """How far a stage of a variant's work came, see ``rtlab.core.stage``.

    ``text`` says what is missing and why; ``basis`` on how much its numbers rest, such as ``3 of 30 runs``.
    """

    stage: StageName
    state: StageState
    text: str
    basis: str


class Chip(TypedDict):
    """A variant in the second row; ``recorded`` is one that was read from files, and has no ``stages``.

    ``label`` is what it is called, ``about`` what the files of a recorded one tell beside, ``choice`` what was chosen
    for it, spelled as in ``int8·auto``.
    ``score_delta`` is against the baseline; None where there is none. ``random`` says what of it rests on random input,
    in words; empty where nothing does. ``estimate`` is the time on the GPU that the engine was built for, which comes
    before what a CPU took; None where there is none, with the reason in ``estimate_source`` where it was withheld.
    ``counted`` is what the layers are called: those of ONNX Runtime are no TensorRT layers.
    """

    id: str
    label: str
    about: str
    choice: str
    target: str
    status: ChipStatus
    baseline: bool
    recorded: bool
    nodes: int
    layers: int
    counted: str
    estimate: float | None
    estimate_gpu: str
    estimate_source: str
    time: float | None
    time_source: str
    score: float | None
    score_delta: float | None
    score_unit: str
    score_source: str
    random: str
    error: Failure | None
    stages: list[Standing]


class BuildState(TypedDict):
    """Work in progress. ``fraction`` is None while unknown; ``elapsed`` is in seconds when this was told.

    The page counts on from there by itself: clocks of two machines differ, and either may be put right meanwhile.
    """

    running: bool
    phase: str
    fraction: float | None
    elapsed: float


class ViewState(TypedDict):
    """What every pane reads. ``anchor`` tells the side that was clicked; the other sides follow from the mapping.

    ``selection`` holds node ids, ``layers`` layer ids of ``variant``, ``others`` layer ids of ``compared``, the
    variant in the third pane. ``panes`` lists the sides in view in their order, ``stacked`` one above the other;
    ``across`` lays graphs out from left to right; with ``follow`` the panes pan together. ``folds`` holds the ids of
    the groups that are not as they are at first: repeats, scopes and bodies folded, frames of layers open. ``step`` is
    how many decisions of the build are replayed on the ONNX graph when it is grouped by ``replay``. ``settings`` holds
    what was chosen in panels, by panel and key such as ``memory.batch``, and by tab the panel it shows.
    """

    selection: list[str]
    layers: list[str]
    others: list[str]
    anchor: Side
    variant: str
    compared: str
    baseline: str
    colour: str
    colour_nodes: str
    tab: Tab
    panes: list[Side]
    stacked: bool
    across: bool
    follow: bool
    grouping: Grouping
    grouping_nodes: Grouping
    folds: list[str]
    step: int
    settings: dict[str, str]


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


class Gesture(TypedDict):
    """The only message that returns.

    ``value`` is a variant id, a model name, a path, or for ``build`` the ``Choice`` as JSON. ``drop`` brings files: a
    list of their names as JSON, and as many ``buffers``.
    ``compare`` names the variant of the third pane, empty to close it; ``netron`` a variant, or empty for the model;
    ``inspect`` a node id; ``extract`` a list of node ids as JSON; ``fetch`` a trait that is delivered, or "script".
    ``observe`` gathers the activations' ranges, ``rank`` tries every calibrator on the task, ``repair`` applies the
    findings whose ids are given as JSON, all if none; ``save`` is JSON with ``variant`` and ``what``: ``onnx``,
    ``scales`` or ``cache``. ``panel`` is JSON with ``panel``, ``variant`` and ``settings``, those of the panel by key;
    ``work`` JSON with ``work``, ``variant`` and ``values``. ``measure`` goes on measuring a variant where it stopped.
    """

    type: GestureType
    value: str


class Reply(TypedDict):
    """A message from the kernel that no trait keeps.

    A file's name with its bytes, a link, plotly's script, or a parcel: name and digest, with bytes or ``content``; a
    ``panel`` has the ``Panel`` as its ``content`` and what was asked as its value.
    """

    type: ReplyType
    value: str


class SavedVariant(TypedDict):
    """A variant in a report: its ``EngineView`` and its ``BuildStory``, if any, as ``encode`` makes them, in base64.

    ``panels`` are those of the first settings, without their figures.
    """

    id: str
    engine: str
    story: str
    status: list[Status]
    panels: list[Panel]


class Saved(TypedDict):
    """All that a report holds. ``source``, a ``Graph``, and ``calibration`` are as ``encode`` makes them, in base64."""

    model: str
    source: str
    calibration: str
    variants: list[SavedVariant]
    chips: list[Chip]
    view: ViewState


#: Written in this order; a type comes after those it uses.
TYPES: tuple[type, ...] = (
    Port, OpChip, Detail, Box, Edge, Graph, Told, Pair, Unmapped, Reading, Overlay, Threshold, CalibratedValue, Rank,
    Calibration, Finding, Findings, QuantizedPair, Slice, Transition, Reformat, Coverage, Summary,
    Step, BuildPass, Tactic, Contest, BuildStory, Option, Link, Setting, Work, Fact, Column, Row,
    Figure, Panel, EngineView, Later, TensorStats, Inspection, Controls, Pin, Choice,
    Failure, Standing, Chip, BuildState, DataState, ViewState, Status, Gesture, Reply, SavedVariant, Saved,
)  # fmt: skip
ALIASES: dict[str, Any] = {
    "Family": Family, "BoxKind": BoxKind, "Reason": Reason, "Evidence": Evidence, "Role": Role, "Origin": Origin,
    "ChipStatus": ChipStatus, "StageName": StageName, "StageState": StageState,
    "Tab": Tab, "Side": Side, "Grouping": Grouping, "TensorKind": TensorKind,
    "Action": Action, "Verdict": Verdict, "GestureType": GestureType, "ReplyType": ReplyType, "PanelName": PanelName,
    "WorkName": WorkName,
}  # fmt: skip


def _ts(kind: Any) -> str:
    for name, alias in ALIASES.items():
        if kind == alias:
            return name
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return " | ".join(json.dumps(a) for a in arguments)
    if origin is list:
        inner = _ts(arguments[0])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<string, {_ts(arguments[1])}>"
    if arguments:
        return " | ".join(_ts(a) for a in arguments)
    plain = {
        str: "string",
        float: "number",
        int: "number",
        bool: "boolean",
        type(None): "null",
        Any: "unknown",
    }
    return plain.get(kind) or str(kind.__name__)


def typescript() -> str:
    """The TypeScript twin of this module."""
    out = ["// Generated by python -m rtlab.documents.contract. Change that module, not this file.", ""]
    for name, alias in ALIASES.items():
        out.append(f"export type {name} = {' | '.join(json.dumps(a) for a in typing.get_args(alias))};")
    for kind in TYPES:
        doc = " ".join((kind.__doc__ or "").split())
        out += ["", f"/** {doc} */", f"export interface {kind.__name__} {{"]
        out += [f"  {field}: {_ts(hint)};" for field, hint in typing.get_type_hints(kind).items()]
        out.append("}")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "widgets" / "src" / "contract.ts"
    target.write_text(typescript(), encoding="utf-8")
    sys.stdout.write(f"wrote {target.name}\n")
