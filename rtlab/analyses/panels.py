"""The table of analyses, in the order of the tabs: a new one is an entry here.

A panel is made when its tab is open, and again when one of its settings changes. What the page draws with code of its
own is sent when it changes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab.analyses.accuracy.losses import analyze_accuracy
from rtlab.analyses.batches.panel import build_batch_panel, get_sweep
from rtlab.analyses.bisection.panel import build_bisection_panel, get_bisection
from rtlab.analyses.build.story import BuildStory, analyze_build
from rtlab.analyses.calibration.calibrated import Calibrated, analyze_calibration
from rtlab.analyses.channels.panel import build_channel_panel, get_channel_errors
from rtlab.analyses.diagnosis.panel import build_diagnosis_panel, get_diagnosis
from rtlab.analyses.difference.panel import analyze_difference, build_difference_panel
from rtlab.analyses.engine.summary import Summary, summarize_engine
from rtlab.analyses.findings.analysis import Findings, summarize_findings
from rtlab.analyses.formulations.panel import analyze_tuning, build_tuning_panel
from rtlab.analyses.kernels import list_kernels
from rtlab.analyses.memory.panel import analyze_memory, build_memory_panel
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.recipe import analyze_recipe, build_recipe_panel
from rtlab.analyses.recurrence.panel import analyze_recurrence, build_recurrence_panel, has_recurrent_nodes
from rtlab.analyses.repair.panel import build_repair_panel, get_repair
from rtlab.analyses.roofline.panel import analyze_roofline, build_roofline_panel
from rtlab.analyses.samples.panel import analyze_samples, build_samples_panel
from rtlab.analyses.schedule.panel import analyze_streams, build_schedule_panel
from rtlab.analyses.score.panel import analyze_score, build_score_panel
from rtlab.analyses.sensitivity.panel import build_sensitivity_panel, get_sensitivity
from rtlab.analyses.table.dataframe import LayerTable, layer_rows
from rtlab.analyses.variants.panel import analyze_variants, build_variants_panel
from rtlab.analyses.why.panel import build_why_panel, explain_fusion
from rtlab.documents.contract import Panel, PanelName
from rtlab.documents.payload import encode
from rtlab.documents.results import ResultView
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class Analysis:
    """An entry: an analysis, and how the page shows its result.

    ``compute`` is the analysis; facts, table, frame, JSON and text follow from the dataclass that it returns. Its panel
    is ``label`` in the tab ``tab``, headed by ``title`` and ``lead``, a sentence or two that say what is to be seen.
    ``draw`` gives what the panel has besides: figures, settings, buttons. ``payload_type`` is the type of the result
    where the page draws it with code of its own, and needs no panel; ``shared`` says that it is the same for every
    variant, ``per_engine`` that its rows are of an engine each, and tell themselves what of it is predicted.
    ``applies`` says of which models there is anything to show; ``summary`` what the panel shows, where the first
    sentence of ``lead`` does not.
    """

    name: str
    tab: str
    label: str
    title: str
    lead: str
    compute: Callable[[PanelContext], Any]
    draw: Callable[[PanelContext], PanelParts] | None = None
    summary: str = ""
    payload_type: type | None = None
    shared: bool = False
    per_engine: bool = False
    applies: Callable[[Model], bool] = lambda _: True

    @property
    def shows(self) -> str:
        """What the panel shows, in a sentence."""
        return self.summary or re.split(r"(?<=[.?]) ", self.lead)[0]


ANALYSES: tuple[Analysis, ...] = (
    Analysis(
        "roofline",
        tab="timing",
        label="Roofline",
        title="Roofline",
        lead="",
        summary="How near each layer comes to what the processor's arithmetic and its memory allow.",
        compute=analyze_roofline,
        draw=build_roofline_panel,
    ),
    Analysis(
        "kernels",
        tab="timing",
        label="Kernels",
        title="Kernels",
        lead=(
            "One kernel may compute many layers. Those at the top are worth another tactic, precision or "
            "shape."
        ),
        summary="Which kernels run how many layers, and what they take together.",
        compute=lambda context: list_kernels(context.result),
    ),
    Analysis(
        "samples",
        tab="timing",
        label="Inferences",
        title="Whole inferences",
        lead=(
            "One number hides how times scatter. Each point is one whole inference; diamonds stand apart "
            "from the others."
        ),
        summary="The time of every inference, and which of them stand apart.",
        compute=analyze_samples,
        draw=build_samples_panel,
    ),
    Analysis(
        "batches",
        tab="timing",
        label="Batch sizes",
        title="Batch sizes",
        lead=(
            "A larger batch keeps more of the processor busy. The rate rises until it is busy enough; from "
            "then on only the latency does."
        ),
        summary="How rate and latency follow the size of the batch.",
        compute=get_sweep,
        draw=build_batch_panel,
    ),
    Analysis(
        "difference",
        tab="compare",
        label="Difference",
        title="Where the time went",
        lead="Which groups of ONNX nodes got faster or slower, although fusions and layer names differ.",
        compute=analyze_difference,
        draw=build_difference_panel,
    ),
    Analysis(
        "bisection",
        tab="compare",
        label="What changed",
        title="What changed, and the fewest nodes that show it",
        lead=(
            "Which nodes share their layers otherwise than in the other variant, and the fewest nodes "
            "that still show it: both compilers build parts of the model until they differ."
        ),
        summary="Which nodes share their layers otherwise, and the fewest that show it.",
        compute=get_bisection,
        draw=build_bisection_panel,
        per_engine=True,
    ),
    Analysis(
        "variants",
        tab="compare",
        label="Variants",
        title="Variants side by side",
        lead=(
            "One choice at a time: build the same model for another GPU, with other options or sparse "
            "weights, and see what became of its layers."
        ),
        summary="All variants in one table, and others to build from this one.",
        compute=analyze_variants,
        draw=build_variants_panel,
        per_engine=True,
    ),
    Analysis(
        "why",
        tab="fusion",
        label="Why",
        title="Why is it not fused?",
        lead=(
            "Each row is a pair of neighbours that are not one layer. Choose one and ask: rtlab builds parts "
            "of the model with one thing changed, and the compiler itself shows what keeps the two apart."
        ),
        compute=explain_fusion,
        draw=build_why_panel,
    ),
    Analysis(
        "memory",
        tab="memory",
        label="Memory",
        title="Memory",
        lead="",
        summary="When each tensor lives, and how the engine places them in the same bytes.",
        compute=analyze_memory,
        draw=build_memory_panel,
    ),
    Analysis(
        "schedule",
        tab="streams",
        label="Streams",
        title="Streams",
        lead="",
        summary="What runs when on each stream, and what waits for what.",
        compute=analyze_streams,
        draw=build_schedule_panel,
    ),
    Analysis(
        "formulations",
        tab="tuning",
        label="Formulations",
        title="Auto-tuning",
        lead=(
            "A convolution can be computed in many ways that give the same but for rounding: directly, as "
            "one large product of matrices (im2col), by Winograd's algorithm, with one thread or several. Which is "
            "fastest depends on its shape and on the processor, so a compiler tries them and keeps the fastest. Do "
            "the same here: every way is built as an ONNX graph, checked, timed."
        ),
        summary="Every way to compute a layer, and how long each takes.",
        compute=analyze_tuning,
        draw=build_tuning_panel,
    ),
    Analysis(
        "recurrence",
        tab="recurrence",
        label="Recurrence",
        title="Time fusion",
        lead=(
            "Above, every product and every pointwise operation that the definition asks for, step by step. "
            "Below, what the engine runs for them. Look for gates that became one product, for an input "
            "product that serves all steps, and for kernels that end one step and begin the next: a number "
            "is a layer, the same number the same layer."
        ),
        summary="The products and steps of a recurrence, and the kernels that run them.",
        compute=analyze_recurrence,
        draw=build_recurrence_panel,
        applies=has_recurrent_nodes,
    ),
    Analysis(
        "accuracy",
        tab="accuracy",
        label="Accuracy",
        title="Errors of each value",
        lead="How far each value lies from that of fp32, the lowest signal to noise first.",
        compute=analyze_accuracy,
    ),
    Analysis(
        "channels",
        tab="accuracy",
        label="Channels",
        title="Errors of each channel",
        lead=(
            "Which channels of a value lose what the whole of it loses. The values that lose most stand "
            "first."
        ),
        compute=get_channel_errors,
        draw=build_channel_panel,
    ),
    Analysis(
        "score",
        tab="accuracy",
        label="Task",
        title="Score on the task",
        lead=(
            "How far the score may lie from that of all such samples, and which samples are right in one "
            "variant alone."
        ),
        summary="The score with its interval, and the samples that are right in one variant alone.",
        compute=analyze_score,
        draw=build_score_panel,
    ),
    Analysis(
        "sensitivity",
        tab="accuracy",
        label="Sensitivity",
        title="Sensitivity",
        lead=(
            "What each node, or each place that rounds, does to the outputs, alone or left out alone. A "
            "large error of a value may come from far before it; these are the places that make it."
        ),
        summary="Which nodes, or places that round, change the outputs most.",
        compute=get_sensitivity,
        draw=build_sensitivity_panel,
    ),
    Analysis(
        "diagnosis",
        tab="accuracy",
        label="Why",
        title="Where did the accuracy go?",
        lead="Choose a cause: it is explained here, and a button builds the variant without it.",
        summary="The causes that accuracy was lost to, with their evidence and a repair.",
        compute=get_diagnosis,
        draw=build_diagnosis_panel,
    ),
    Analysis(
        "repair",
        tab="accuracy",
        label="Repair",
        title="What gives the accuracy back?",
        lead=(
            "Other scales are tried first, which cost no time, then a higher precision for as few nodes as "
            "will do. The choice is made on every second sample, and the scores are those of the others."
        ),
        summary="What brings the score back, and what it costs in time.",
        compute=get_repair,
        draw=build_repair_panel,
    ),
    Analysis(
        "engine",
        tab="engine",
        label="Engine",
        title="What the layers are",
        lead="Layers by kind and by precision with their time, what changes types, and what only moves data.",
        compute=lambda context: summarize_engine(context.result, context.model),
        payload_type=Summary,
    ),
    Analysis(
        "build",
        tab="build",
        label="Build",
        title="How it was built",
        lead="The builder's passes over the network, what each decided, and which tactics it timed.",
        compute=analyze_build,
        payload_type=BuildStory,
    ),
    Analysis(
        "calibration",
        tab="calibration",
        label="Calibration",
        title="Calibration",
        lead=(
            "What calibration saw of each value, what each calibrator makes of it, and how they do on the "
            "task."
        ),
        compute=analyze_calibration,
        payload_type=Calibrated,
        shared=True,
    ),
    Analysis(
        "findings",
        tab="findings",
        label="Findings",
        title="What is worth changing",
        lead="What to change about the engine and about the model's own quantization, and why.",
        compute=lambda context: summarize_findings(
            context.model, context.facts, context.study.results.values()
        ),
        payload_type=Findings,
    ),
    Analysis(
        "table",
        tab="table",
        label="Table",
        title="Layers",
        lead="Every layer with what the compiler reports of it, in order of execution.",
        compute=lambda context: LayerTable(layer_rows(context.result, context.model)),
    ),
    Analysis(
        "recipe",
        tab="recipe",
        label="Reproduce",
        title="Make it again",
        lead=(
            "These lines make the variant again, from the same model, data and choices. Versions are those of "
            "the process that shows this."
        ),
        compute=analyze_recipe,
        draw=build_recipe_panel,
    ),
)
PANELS: Mapping[str, Analysis] = {a.name: a for a in ANALYSES}
#: Tabs that show panels.
_PANEL_TABS = {tab.name for tab in TABS if tab.part == "analysis"}


def list_panels(model: Model) -> list[PanelName]:
    """The panels that have something to say of a model's variants, where the page has no code of its own for it."""
    return [PanelName(a.name) for a in PANELS.values() if a.tab in _PANEL_TABS and a.applies(model)]


def render_panel(name: str, context: PanelContext) -> Panel:
    """One panel; what is in the way is told in it, so that its settings stay at hand.

    Raises:
        VariantError: there is no such panel.
    """
    analysis = _get_analysis(name, "show panel")
    try:
        parts = analysis.draw(context) if analysis.draw else PanelParts(result=analysis.compute(context))
    except RtlabError as error:
        parts = PanelParts(problem=str(error))
    view = view_result(name, context, parts["result"]) if "result" in parts else None
    table = parts.get("table") or (view.table if view else None)
    if table is not None:
        table = dataclasses.replace(table, units=parts.get("units", {}))
    panel: dict[str, Any] = {
        "name": PanelName(name),
        "variant": context.result.name,
        "title": analysis.title,
        **{k: [] for k in ("settings", "work", "scripts", "figures")},
        "facts": view.facts if view else [],
        "columns": table.columns() if table and (table.items or "table" not in parts) else [],
        "rows": table.rows() if table else [],
        "notes": view.notes if view else [],
        "problem": "",
        **{k: v for k, v in parts.items() if k not in {"result", "table", "units"}},
        "lead": parts.get("lead") or analysis.lead,
        "links": {**(table.links() if table else {}), **parts.get("links", {})},
    }
    if context.result.engine.maker.predicts and not analysis.per_engine:
        for key in ("facts", "columns"):
            # What a compiler would report, rules predict.
            panel[key] = [p | {"origin": "predicted"} if p["origin"] == "reported" else p for p in panel[key]]
    return cast("Panel", panel)


def ask(name: str, context: PanelContext) -> ResultView:
    """The result of one analysis.

    Raises:
        VariantError: there is no such analysis.
        RtlabError: what it needs of the variant is not known.
    """
    return view_result(name, context, _get_analysis(name, "answer").compute(context))


def view_result(name: str, context: PanelContext, result: Any, title: str = "") -> ResultView:
    """A result of one analysis to read, with what the layers in it are called and which nodes they run."""
    analysis = PANELS[name]
    if context.facts is None:
        return ResultView(title or analysis.title, result)
    predicts = context.facts.engine.maker.predicts and not analysis.per_engine
    return ResultView(title or analysis.title, result, context.layer_names, context.nodes, predicts)


def encode_payloads(context: PanelContext, *, shared: bool = False) -> dict[str, bytes]:
    """What the page draws with code of its own, by the analysis's name, as ``encode`` makes it.

    Empty where something is missing, which the page says itself. ``shared`` are those that are the same for every
    variant, and else those of one.
    """
    return {a.name: _encode_payload(a, context) for a in ANALYSES if a.payload_type and a.shared == shared}


def _encode_payload(analysis: Analysis, context: PanelContext) -> bytes:
    try:
        return encode(analysis.compute(context), analysis.payload_type)
    except RtlabError:
        return b""


def _get_analysis(name: str, action: str) -> Analysis:
    if name not in PANELS:
        raise VariantError(
            f'Cannot {action} "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    return PANELS[name]
