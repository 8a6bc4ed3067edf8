"""The table of analyses, in the order of the tabs: a new one is an entry here.

A panel is made when its tab is open, and again when one of its settings changes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab.analyses.accuracy.losses import analyze_accuracy
from rtlab.analyses.batches.panel import build_batch_panel, get_sweep
from rtlab.analyses.bisection.panel import build_bisection_panel, get_bisection
from rtlab.analyses.build import BuildStory, analyze_build
from rtlab.analyses.calibration.calibrated import Calibrated, analyze_calibration
from rtlab.analyses.channels.panel import build_channel_panel, get_channel_errors
from rtlab.analyses.diagnosis.panel import build_diagnosis_panel, get_diagnosis
from rtlab.analyses.difference.panel import analyze_difference, build_difference_panel
from rtlab.analyses.engine import Summary, list_kernels, summarize_engine
from rtlab.analyses.findings import Findings, summarize_findings
from rtlab.analyses.formulations.panel import analyze_tuning, build_tuning_panel
from rtlab.analyses.generation import analyze_generation, generates_text
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
from rtlab.documents.results import ResultView
from rtlab.documents.serialization import encode
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class Analysis:
    """An entry: an analysis, and how the page shows its result.

    ``compute`` is the analysis; facts, table, frame, JSON and text follow from the dataclass that it returns. Its panel
    is ``label`` in the tab ``tab``, headed by ``title`` and ``lead``, whose first sentence says what it shows. ``draw``
    gives what the panel has besides: figures, settings, buttons. ``payload_type`` is the type of the result where the
    page draws it with code of its own, and needs no panel; ``shared`` says that it is the same for every variant,
    ``per_engine`` that its rows are of an engine each, with their own origins. ``applies`` says for which models there
    is anything to show.
    """

    name: str
    tab: str
    label: str
    title: str
    lead: str
    compute: Callable[[PanelContext], Any]
    draw: Callable[[PanelContext], PanelParts] | None = None
    payload_type: type | None = None
    shared: bool = False
    per_engine: bool = False
    applies: Callable[[Model], bool] = lambda _: True

    @property
    def shows(self) -> str:
        """What the panel shows, in a sentence."""
        return re.split(r"(?<=[.?]) ", self.lead)[0]


ANALYSES: tuple[Analysis, ...] = (
    Analysis(
        "roofline",
        "timing",
        "Roofline",
        "Roofline",
        "How near each layer comes to what the processor's arithmetic and its memory allow.",
        compute=analyze_roofline,
        draw=build_roofline_panel,
    ),
    Analysis(
        "kernels",
        "timing",
        "Kernels",
        "Kernels",
        "Which kernels run how many layers, and what they take together. Those at the top are worth another tactic, "
        "precision or shape.",
        compute=lambda context: list_kernels(context.result),
    ),
    Analysis(
        "samples",
        "timing",
        "Inferences",
        "Whole inferences",
        "The time of every inference, and which of them stand apart. Each point is one whole inference; diamonds stand "
        "apart from the others.",
        compute=analyze_samples,
        draw=build_samples_panel,
    ),
    Analysis(
        "batches",
        "timing",
        "Batch sizes",
        "Batch sizes",
        "How rate and latency follow the size of the batch. A larger batch keeps more of the processor busy; from some "
        "size on only the latency rises.",
        compute=get_sweep,
        draw=build_batch_panel,
    ),
    Analysis(
        "generation",
        "timing",
        "Generation",
        "Prompts and tokens",
        "How fast a language model can read a prompt and write tokens at most, and how large its key-value cache is. "
        "A bound from sizes and published peaks: what is measured is slower.",
        compute=analyze_generation,
        applies=generates_text,
    ),
    Analysis(
        "difference",
        "compare",
        "Difference",
        "Where the time went",
        "Which groups of ONNX nodes got faster or slower, although fusions and layer names differ.",
        compute=analyze_difference,
        draw=build_difference_panel,
    ),
    Analysis(
        "bisection",
        "compare",
        "What changed",
        "What changed, and the fewest nodes that show it",
        "Which nodes share their layers otherwise, and the fewest that show it. Both compilers build parts of the "
        "model until they differ.",
        compute=get_bisection,
        draw=build_bisection_panel,
        per_engine=True,
    ),
    Analysis(
        "variants",
        "compare",
        "Variants",
        "Variants side by side",
        "All variants in one table, and others to build from this one. One choice at a time: another GPU, other "
        "options or sparse weights.",
        compute=analyze_variants,
        draw=build_variants_panel,
        per_engine=True,
    ),
    Analysis(
        "why",
        "fusion",
        "Why",
        "Why is it not fused?",
        "Each row is a pair of neighbours that are not one layer. Choose one and ask: rtlab builds parts of the model "
        "with one thing changed, and the compiler itself shows what keeps the two apart.",
        compute=explain_fusion,
        draw=build_why_panel,
    ),
    Analysis(
        "memory",
        "memory",
        "Memory",
        "Memory",
        "When each tensor lives, and how the engine places them in the same bytes.",
        compute=analyze_memory,
        draw=build_memory_panel,
    ),
    Analysis(
        "schedule",
        "streams",
        "Streams",
        "Streams",
        "What runs when on each stream, and what waits for what.",
        compute=analyze_streams,
        draw=build_schedule_panel,
    ),
    Analysis(
        "formulations",
        "tuning",
        "Formulations",
        "Auto-tuning",
        "Every way to compute a layer, and how long each takes. A convolution can be computed directly, as one large "
        "product of matrices (im2col), by Winograd's algorithm, with one thread or several. Which is fastest depends "
        "on its shape and on the processor: every way is built as an ONNX graph, checked and timed.",
        compute=analyze_tuning,
        draw=build_tuning_panel,
    ),
    Analysis(
        "recurrence",
        "recurrence",
        "Recurrence",
        "Time fusion",
        "The products and steps of a recurrence, and the kernels that run them. Above, every product and pointwise "
        "operation of the definition, step by step; below, what the engine runs for them. Look for gates that became "
        "one product, for an input product that serves all steps, and for kernels that end one step and begin the "
        "next: a number is a layer, the same number the same layer.",
        compute=analyze_recurrence,
        draw=build_recurrence_panel,
        applies=has_recurrent_nodes,
    ),
    Analysis(
        "accuracy",
        "accuracy",
        "Accuracy",
        "Errors of each value",
        "How far each value lies from that of fp32, the lowest signal to noise first.",
        compute=analyze_accuracy,
    ),
    Analysis(
        "channels",
        "accuracy",
        "Channels",
        "Errors of each channel",
        "Which channels of a value lose what the whole of it loses. The values that lose most are first.",
        compute=get_channel_errors,
        draw=build_channel_panel,
    ),
    Analysis(
        "score",
        "accuracy",
        "Task",
        "Score on the task",
        "The score with its interval, and the samples that are right in one variant alone.",
        compute=analyze_score,
        draw=build_score_panel,
    ),
    Analysis(
        "sensitivity",
        "accuracy",
        "Sensitivity",
        "Sensitivity",
        "Which nodes, or places that round, change the outputs most. Each is changed alone or left out alone: a large "
        "error of a value may come from far before it.",
        compute=get_sensitivity,
        draw=build_sensitivity_panel,
    ),
    Analysis(
        "diagnosis",
        "accuracy",
        "Why",
        "Where did the accuracy go?",
        "The causes that accuracy was lost to, with their evidence and a repair. Choose a cause: a button builds the "
        "variant without it.",
        compute=get_diagnosis,
        draw=build_diagnosis_panel,
    ),
    Analysis(
        "repair",
        "accuracy",
        "Repair",
        "What gives the accuracy back?",
        "What brings the score back, and what it costs in time. Other scales are tried first, which cost no time, then "
        "a higher precision for as few nodes as will do. The choice is made on every second sample, and the scores "
        "are those of the others.",
        compute=get_repair,
        draw=build_repair_panel,
    ),
    Analysis(
        "engine",
        "engine",
        "Engine",
        "What the layers are",
        "Layers by kind and by precision with their time, what changes types, and what only moves data.",
        compute=lambda context: summarize_engine(context.result, context.model),
        payload_type=Summary,
    ),
    Analysis(
        "build",
        "build",
        "Build",
        "How it was built",
        "The builder's passes over the network, what each decided, and which tactics it timed.",
        compute=analyze_build,
        payload_type=BuildStory,
    ),
    Analysis(
        "calibration",
        "calibration",
        "Calibration",
        "Calibration",
        "What calibration saw of each value, what each calibrator makes of it, and how they do on the task.",
        compute=analyze_calibration,
        payload_type=Calibrated,
        shared=True,
    ),
    Analysis(
        "findings",
        "findings",
        "Findings",
        "What is worth changing",
        "What to change about the engine and about the model's own quantization, and why.",
        compute=lambda context: summarize_findings(context.model, context.facts),
        payload_type=Findings,
    ),
    Analysis(
        "table",
        "table",
        "Table",
        "Layers",
        "Every layer with what the compiler reports of it, in order of execution.",
        compute=lambda context: LayerTable(layer_rows(context.result, context.model)),
    ),
    Analysis(
        "recipe",
        "recipe",
        "Reproduce",
        "Make it again",
        "These lines make the variant again, from the same model, data and choices. Versions are those of the process "
        "that shows this.",
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
    """One panel; its ``problem`` says what is in the way.

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
    title = title or analysis.title
    if context.facts is None:
        return ResultView(title, result)
    predicts = context.facts.engine.maker.predicts and not analysis.per_engine
    return ResultView(title, result, context.layer_names, context.nodes, predicts)


def encode_payloads(context: PanelContext, *, shared: bool = False) -> dict[str, bytes]:
    """What the page draws with code of its own, by the analysis's name, as ``encode`` makes it.

    Empty where something is missing, which the page says itself. ``shared`` are those that are the same for every
    variant, and else those of one.
    """
    payloads = {}
    for analysis in ANALYSES:
        if analysis.payload_type and analysis.shared == shared:
            try:
                payloads[analysis.name] = encode(analysis.compute(context))
            except RtlabError:
                payloads[analysis.name] = b""
    return payloads


def _get_analysis(name: str, action: str) -> Analysis:
    if name not in PANELS:
        raise VariantError(
            f'Cannot {action} "{name}": there is none of this name. Choose {", ".join(PANELS)}.'
        )
    return PANELS[name]
