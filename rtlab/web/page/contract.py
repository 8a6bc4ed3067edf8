"""The contract between Python and the page: all that crosses, and its types in TypeScript.

``python -m rtlab.web.page.contract`` writes ``widgets/src/core/contract.ts``, and terms into
``widgets/test/glossary.ts`` for tests of the page, which has them from the kernel. A test compares both.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from rtlab.analyses.calibration.pairs import PairUse, Verdict
from rtlab.analyses.cards.picture import BoxKind, Family, Graph, Overlay, Told
from rtlab.analyses.inspection.tensors import Inspection, TensorKind
from rtlab.analyses.panels import ANALYSES, PANELS
from rtlab.core.buildlog import Action
from rtlab.core.schema import Origin
from rtlab.core.stage import Stage, StageStatus, State
from rtlab.documents import contract
from rtlab.documents.commands import Choice, Command, WorkName
from rtlab.documents.contract import Failure, Panel, PanelName, Status
from rtlab.documents.glossary import glossary_terms
from rtlab.documents.serialization import render_typescript
from rtlab.documents.tabs import TABS
from rtlab.relation.flow import Reason
from rtlab.relation.mapping import Evidence, Missing, Pair
from rtlab.relation.roles import Role
from rtlab.web.page.controls import TREATMENTS
from rtlab.web.page.state import Step, ViewState

#: One that is "planned" is neither built nor being built, and has no numbers.
ChipStatus = Literal["planned", "ready", "building", "failed"]


class EngineView(TypedDict):
    """Everything about one variant: the engine's graph, how it maps to the source model, and its numbers.

    ``calibrator`` is the one whose thresholds it has, empty without one. ``commands`` build the prepared model
    elsewhere, a line each. ``precisions`` is that of each node of the source, where it is not fp32.
    ``quantized`` are the model's own Q/DQ pairs; ``panels`` are those that have something to say of this variant.
    Where details of the boxes come as ``Later``, ``overlays`` are empty here, and come there too.
    """

    variant: str
    calibrator: str
    commands: list[str]
    precisions: dict[str, str]
    quantized: list[PairUse]
    graph: Graph
    pairs: list[Pair]
    unmapped: list[Missing]
    overlays: list[Overlay]
    panels: list[PanelName]


class Later(TypedDict):
    """What follows the picture of the large engine of variant ``of``, because nothing is drawn from it.

    ``boxes`` belong to ``Graph.boxes``, by position; ``overlays`` are those of ``EngineView``.
    """

    of: str
    boxes: list[Told]
    overlays: list[Overlay]


#: What tables say of variants: the heading of a column, and what it means, by its key.
VARIANT_COLUMNS: Mapping[str, tuple[str, str]] = {
    "variant": ("Variant", "Its precision, or the name that it was given."),
    "calibrator": ("Calibrator", "The rule that makes the scales of what samples show."),
    "target": ("Target", "The processor that the engine is built for."),
    "layers": (
        "Nodes → layers",
        "Nodes of the model once it is prepared, and layers that the compiler made of them.",
    ),
    "estimate": (
        "GPU estimate",
        "What an inference should take on the GPU of the target: the roofline of each layer.",
    ),
    "time": ("Time", "What an inference takes where it was measured."),
    "score": ("Score", "The metric of the task on samples that calibration does not see."),
    "sqnr": ("Output SQNR", "How far the outputs lie from those of fp32: the lowest of them."),
    "delta": ("To the baseline", "The score less that of the baseline."),
}


class Chip(TypedDict):
    """A variant in the table above the graphs; ``recorded`` is one that was read from files, and has no ``stages``.

    ``label`` is what it is called, ``about`` what the files of a recorded one tell beside, ``choice`` what was chosen
    for it, spelled as in ``int8·auto``.
    ``score_delta`` is against the baseline; None where there is none. ``score_worse`` says that the samples can tell it
    is worse than that, ``score_told`` is the score with its interval and the difference, in words. ``random`` says what
    of it rests on random input, in words; empty where nothing does. ``estimate`` is the time on the GPU that the engine
    was built for, which comes before what a CPU took; None where there is none, with the reason in ``estimate_source``
    where it was withheld.
    ``calibrator`` is empty without one. ``sqnr`` is that of the output that lost most, in decibel, None where nothing
    was compared or where it is no number; ``sqnr_told`` says that, or which part of an output the whole hides.
    ``counted`` is what the layers are called: those of ONNX Runtime are no TensorRT layers. ``predicted`` says that
    rules made them, and no compiler.
    """

    id: str
    label: str
    about: str
    choice: str
    calibrator: str
    target: str
    status: ChipStatus
    baseline: bool
    recorded: bool
    predicted: bool
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
    score_worse: bool
    score_told: str
    score_source: str
    sqnr: float | None
    sqnr_told: str
    random: str
    error: Failure | None
    stages: list[StageStatus]


class SavedVariant(TypedDict):
    """A variant in a report: its ``EngineView``, as ``encode`` makes it, in base64.

    ``answers`` are what the page draws with code of its own, by the question's name and in the same form, empty where
    there is none; ``panels`` are those of the first settings; ``charts`` are those that the Explorer has, by name.
    """

    id: str
    engine: str
    answers: dict[str, str]
    status: list[Status]
    panels: list[Panel]
    charts: dict[str, Any]


class Saved(TypedDict):
    """All that a report holds. ``source``, a ``Graph``, is as ``encode`` makes it, in base64.

    ``answers`` are those of ``SavedVariant`` that are the same for every variant. ``steps`` are a presentation;
    ``terms`` are as ``glossary.glossary_terms`` lists them.
    """

    model: str
    source: str
    answers: dict[str, str]
    variants: list[SavedVariant]
    chips: list[Chip]
    view: ViewState
    steps: list[Step]
    terms: list[list[str]]


#: What crosses by itself; what it is made of crosses with it.
ROOTS: tuple[Any, ...] = (
    Graph, EngineView, Later, *(q.payload_type for q in ANALYSES if q.payload_type), Inspection, Panel,
    contract.Controls, Choice, Chip, contract.BuildState, contract.DataState, ViewState, Status, Saved,
    Step,
)  # fmt: skip
ALIASES: Mapping[str, Any] = {
    "Family": Family, "BoxKind": BoxKind, "Reason": Reason, "Evidence": Evidence, "Role": Role, "Origin": Origin,
    "ChipStatus": ChipStatus, "StageName": tuple(map(str, Stage)), "StageState": State,
    "Side": contract.Side, "Grouping": contract.Grouping, "TensorKind": TensorKind,
    "Action": Action, "Verdict": Verdict, "PanelName": tuple(PANELS),
    "WorkName": WorkName,
}  # fmt: skip


UNIONS: Mapping[str, Any] = {"Command": Command, "Reply": contract.Reply}


_HEAD = "Generated by python -m rtlab.web.page.contract. Change what Python declares, not this file."


def typescript() -> str:
    """The types of all that crosses, as the page knows them, and the tabs and panels that it has."""
    return render_typescript(ROOTS, ALIASES, UNIONS, head=_HEAD) + _tabs()


def glossary() -> str:
    """The terms that the page explains, for the tests of the page, which has them from the kernel."""
    lines = [
        f"// {_HEAD}",
        'import type { Term } from "../src/core/glossary";',
        "",
        "export const TERMS: readonly Term[] = [",
        *(f"  {json.dumps(term, ensure_ascii=False)}," for term in glossary_terms()),
        "];",
    ]
    return "\n".join(lines) + "\n"


#: What is written into ``widgets``, by the path of the file.
WRITTEN: Mapping[str, Callable[[], str]] = {"src/core/contract.ts": typescript, "test/glossary.ts": glossary}


def _tabs() -> str:
    tabs = [
        {
            **dataclasses.asdict(tab),
            "panels": [
                *tab.panels,
                *(q.name for q in ANALYSES if q.tab == tab.name and tab.part == "analysis"),
            ],
        }
        for tab in TABS
    ]
    labels = json.dumps({q.name: [q.label, q.shows] for q in ANALYSES}, ensure_ascii=False)
    lines = [
        "/** The tabs at the bottom of the Explorer, in their order. */",
        "export const TABS = [",
        *(f"  {json.dumps(tab, ensure_ascii=False)}," for tab in tabs),
        "] as const;",
        'export type Tab = (typeof TABS)[number]["name"];',
        "",
        "/** What panels are called in their tab, and what each shows. */",
        f"export const PANELS: Record<PanelName, readonly [string, string]> = {labels};",
        "",
        "/** What tables say of variants: the heading of a column, and what it means, by its key. */",
        f"export const VARIANT_COLUMNS = {json.dumps(VARIANT_COLUMNS, ensure_ascii=False)} as const;",
        "export type VariantColumn = keyof typeof VARIANT_COLUMNS;",
        "",
        "/** What each treatment does, and what it costs. */",
        f"export const TREATMENTS: Record<string, string> = {json.dumps(TREATMENTS, ensure_ascii=False)};",
    ]
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, render in WRITTEN.items():
        target = Path(__file__).parents[3] / "widgets" / name
        target.write_text(render(), encoding="utf-8")
        sys.stdout.write(f"wrote {target.name}\n")
