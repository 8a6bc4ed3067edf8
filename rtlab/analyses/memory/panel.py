"""The memory of an engine: every tensor from its first step to its last, at an address of one arena."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.cards.card import format_exact_names
from rtlab.analyses.memory.plan import MemoryPlan, plan_engine_memory
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.core.engine import Engine, Tensor
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.core.value import shape_text
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import choose_byte_unit, format_bytes, shorten_name
from rtlab.documents.panel import link, make_batch_slider
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.analyses.memory.plan import Life

#: More tensors than this are drawn without outlines, which would cover them.
_OUTLINED = 600
_EDGE = "rgba(128,128,128,0.8)"
_PEAK = "the arena of this plan: {self.count:,} tensors, addresses at multiples of {self.align} bytes"
_BOUND = "the most that is alive at once: no plan needs less, unless layers write over what they read"
_NAIVE = "the sum of all tensors, were no memory used twice{self.times}"
_WEIGHTS_NOTE = "beside the arena, as long as the engine lives"
_OVERHEAD = FieldMeta("Above the bound", origin="estimated", note="what the plan wastes in gaps")
_ONE_STREAM = FieldMeta("On one stream", "B", "estimated", note="{self.streams}", omit=True)
_REPORTED = FieldMeta("Compiler's total", "B", "reported", note="at batch {self.batch}", omit=True)
_SCRATCH = FieldMeta("Scratch", "B", "reported", note="a part of the compiler's total", omit=True)
_ENDS = FieldMeta("Inputs and outputs", origin="estimated", note="memory of the caller, not in the arena")


@dataclasses.dataclass(frozen=True)
class PlacedTensor:
    """A tensor, from the first step that names it to the last that needs it, with all ``layers`` that do.

    Those that write it stand before those that read it.
    """

    tensor: Annotated[str, FieldMeta("Tensor")]
    shape: Annotated[str, FieldMeta("Shape")]
    dtype: Annotated[str, FieldMeta("Type")]
    nbytes: Annotated[int, FieldMeta("Size", "B", "estimated")]
    first: Annotated[int, FieldMeta("First layer")]
    last: Annotated[int, FieldMeta("Last layer")]
    offset: Annotated[int, FieldMeta("Address", "B", "estimated")]
    at_peak: Annotated[bool, FieldMeta("At the peak")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: Annotated[str, UNSENT]


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """What the activations of an engine take; None where something is not reported, or says nothing.

    ``one_stream`` is the peak were all layers run one after the other, ``reported`` the compiler's own total.
    """

    peak: Annotated[int, FieldMeta("Peak", "B", "estimated", note=_PEAK)]
    bound: Annotated[int, FieldMeta("Lower bound", "B", "estimated", note=_BOUND)]
    overhead: Annotated[str, _OVERHEAD]
    naive: Annotated[int, FieldMeta("Each its own memory", "B", "estimated", note=_NAIVE)]
    one_stream: Annotated[int | None, _ONE_STREAM]
    reported: Annotated[int | None, _REPORTED]
    weights: Annotated[int | None, FieldMeta("Weights", "B", "{self.origin}", note=_WEIGHTS_NOTE, omit=True)]
    scratch: Annotated[int | None, _SCRATCH]
    ends: Annotated[str, _ENDS]
    count: int
    align: int
    batch: str
    times: Annotated[str, UNSENT]
    streams: Annotated[str, UNSENT]
    origin: Annotated[Origin, UNSENT]
    tensors: tuple[PlacedTensor, ...]


def analyze_memory(context: PanelContext) -> MemoryUse:
    """Lifetimes and addresses of all activations, at a batch of one's choice.

    Raises:
        VariantError: the batch is no number, or not one that a plan can be made for.
        RtlabError: the engine does not report its tensors.
    """
    return _summarize_memory(*_plans(context), context.result.engine, _name_steps(context))


def build_memory_panel(context: PanelContext) -> PanelParts:
    """The same as a figure and a table.

    Raises:
        VariantError: the batch is no number.
    """
    engine, batch = context.result.engine, context.batch
    try:
        plan, one = _plans(context)
    except RtlabError as error:
        return PanelParts(settings=_list_settings(1, batch), problem=str(error))
    unit, scale = choose_byte_unit(plan.peak)
    steps = _name_steps(context)
    return PanelParts(
        result=_summarize_memory(plan, one, engine, steps),
        units={"B": (unit, 1 / scale)},
        links={y.id: link(context.nodes(y.id), [y.id]) for y in engine.layers},
        lead=_lead(plan, list(context.layer_names.values())),
        settings=_list_settings(plan.engine_batch, batch),
        figures=[_draw_arena(plan, engine, steps, unit, scale)] if plan.lives else [],
        notes=_notes(plan, one, engine),
    )


def _plans(context: PanelContext) -> tuple[MemoryPlan, MemoryPlan | None]:
    """The plan, and that on one stream where there are several."""
    engine, built, batch = context.result.engine, context.result.prepared.model, context.batch
    plan = plan_engine_memory(engine, built, batch=batch)
    if plan.streams == 1:
        return plan, None
    return plan, plan_engine_memory(engine, built, batch=batch, one_stream=True)


def _name_steps(context: PanelContext) -> list[str]:
    """What the steps are called in hover texts."""
    return [shorten_name(n) for n in format_exact_names(context.layer_names, context.result.engine).values()]


def _summarize_memory(
    plan: MemoryPlan, one: MemoryPlan | None, engine: Engine, names: Sequence[str]
) -> MemoryUse:
    """A plan as its panel and its table show it; ``one`` is that on one stream, ``names`` those of the steps."""
    more = 0 if one is None else plan.peak - one.peak
    return MemoryUse(
        peak=plan.peak,
        bound=plan.bound,
        overhead=f"{plan.overhead:.1%}",
        naive=plan.naive,
        one_stream=None if one is None else one.peak,
        reported=plan.reported or None,
        weights=plan.weights,
        scratch=plan.scratch or None,
        ends=f"{format_bytes(plan.caller('input'))} + {format_bytes(plan.caller('output'))}",
        count=len(plan.lives),
        align=plan.align,
        batch=str(plan.engine_batch or "as built"),
        times=f", {plan.naive / plan.peak:.3g} times the peak" if plan.peak else "",
        streams=f"that layers run side by side costs {format_bytes(more)} more" if more else "streams cost nothing",
        origin=plan.weights_origin,
        tensors=tuple(
            PlacedTensor(
                life.id, shape_text(_pick_largest_mention(life).shape), _pick_largest_mention(life).dtype,
                allocation.nbytes, life.first + 1, life.last + 1, allocation.offset or 0, i in plan.at_peak,
                tuple(dict.fromkeys(engine.layers[p].id for p in (*life.writers, *life.readers))),
                f"from layer {names[life.first]} to layer {names[life.last]}",
            )
            for i, (life, allocation) in enumerate(zip(plan.lives, plan.allocations, strict=True))
        ),
    )  # fmt: skip


def _pick_largest_mention(life: Life) -> Tensor:
    """The mention of a tensor that has most elements: of a part and the whole, the whole."""
    return max(life.mentions, key=lambda t: -1 if t.shape is None else abs(math.prod(t.shape)))


def _list_settings(engine_batch: int | None, batch: int | None) -> list[Setting]:
    if engine_batch is None:
        return []
    return [make_batch_slider(engine_batch, batch if batch and batch > 0 else engine_batch)]


def _lead(plan: MemoryPlan, layer_names: Sequence[str]) -> str:
    if not plan.lives:
        return "This engine keeps nothing between its layers but what the caller gives and takes."
    return (
        "A tensor needs memory from the layer that writes it to the last that reads it; then another may have its "
        "place. Each box is one, as wide as its life and as high as its size. Most is alive at layer "
        f"{plan.step + 1} ({layer_names[plan.step]}): to need less, look at the orange boxes."
    )


def _notes(plan: MemoryPlan, one: MemoryPlan | None, engine: Engine) -> list[str]:
    notes = ["Addresses are rtlab's plan: compilers do not report theirs."]
    if plan.reported and engine.maker.reserves:
        notes.append(
            "The compiler's total may be higher than the tensors need: for every library kernel that may run at a time "
            "it holds 8,192,000 bytes, because only the GPU decides how much scratch memory the kernel wants. It "
            "reports the same total as scratch."
        )
    if plan.scaled:
        notes.append(
            f"The engine is built for batch {plan.engine_batch}. At batch {plan.batch} it is shown as if it were built "
            "for that: its tensors grow in proportion, though a compiler may choose other layers then."
        )
    if one is not None:
        notes.append(
            "Streams run side by side, so that a tensor is free only when every stream is known to be past its last "
            "reader. The lower curve and the bound follow the order of issue."
        )
    if engine.maker.memory == "running":
        notes.append(f"{engine.compiler} allocates while it runs: so much its layers would need in an arena.")
    if plan.unsized:
        names, count = quote_names(shorten_name(life.name) for life in plan.unsized[:3]), len(plan.unsized)
        notes.append(f"Not in the plan: {pluralize(count, 'tensor')} of unknown size, such as {names}.")
    return notes


def _draw_arena(plan: MemoryPlan, engine: Engine, steps: Sequence[str], unit: str, scale: float) -> Figure:
    names = [html.escape(n) for n in steps]
    peak, at = plan.peak / scale, plan.step + 1
    ends, dotted = [0.5, len(steps) + 0.5], {"color": OTHER, "width": 1, "dash": "dot"}
    return figure(
        f"Memory over the layers of the engine: {len(plan.lives):,} tensors in an arena of "
        f"{format_bytes(plan.peak)}, and what is alive at each layer, at most "
        f"{format_bytes(int(plan.alive.max()))} at layer {at}.",
        [
            _draw_boxes(plan, names, scale, at_peak=True),
            _draw_boxes(plan, names, scale, at_peak=False),
            {
                "type": "scatter",
                "mode": "lines",
                "name": "alive at a layer",
                "x": list(range(1, len(steps) + 1)),
                "y": (plan.alive / scale).tolist(),
                "yaxis": "y2",
                "ids": [layer.id for layer in engine.layers],
                "text": names,
                "line": {"shape": "hvh", "width": 1, "color": MAIN},
                "fill": "tozeroy",
                "fillcolor": "rgba(49,104,142,0.35)",
                "hovertemplate": f"step %{{text}}<br>%{{y:.4~g}} {unit} alive<extra>estimated</extra>",
            },
            _draw_level("peak", peak, ends, unit, {"color": OTHER, "width": 3}),
            _draw_level("lower bound", plan.bound / scale, ends, unit, {"color": _EDGE, "dash": "dash"}),
        ],
        height=380,
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend=legend(itemsizing="trace"),
        xaxis=axis("layer, in the order of issue", anchor="y2", range=ends),
        yaxis=axis(f"address, {unit}", domain=[0.42, 1], range=[0, peak * 1.04], nticks=6),
        yaxis2=axis(unit, domain=[0, 0.32], range=[0, peak * 1.15], nticks=4),
        shapes=[{"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": dotted}],
    )


def _draw_boxes(plan: MemoryPlan, names: Sequence[str], scale: float, *, at_peak: bool) -> dict[str, Any]:
    """The tensors that are alive at the peak, or the others: one bar each, as wide as its life."""
    peak = set(plan.at_peak)
    pairs = enumerate(zip(plan.lives, plan.allocations, strict=True))
    boxes = [(i, life, g) for i, (life, g) in pairs if g.nbytes and (i in peak) == at_peak]
    pattern = {"pattern": {"shape": "/", "size": 7, "solidity": 0.15, "fillmode": "overlay"}}
    return {
        "type": "bar",
        "name": "alive at the peak" if at_peak else "other tensors",
        # The keys of the rows.
        "ids": [f"row {i}" for i, *_ in boxes],
        "x": [(life.first + life.last) / 2 + 1 for _, life, _ in boxes],
        "width": [life.last - life.first + 1 for _, life, _ in boxes],
        "base": [(g.offset or 0) / scale for *_, g in boxes],
        "y": [g.nbytes / scale for *_, g in boxes],
        "hovertext": [_format_hover(life, g.nbytes, names) for _, life, g in boxes],
        "hoverinfo": "text",
        "marker": {
            "color": OTHER if at_peak else MAIN,
            "opacity": 0.85 if at_peak else 0.55,
            "line": {"color": _EDGE, "width": 1 if len(plan.lives) <= _OUTLINED else 0},
            **(pattern if at_peak else {}),
        },
    }


def _format_hover(life: Life, nbytes: int, names: Sequence[str]) -> str:
    tensor = _pick_largest_mention(life)
    kind = f"{shape_text(tensor.shape)} {tensor.dtype}"
    text = f"<b>{html.escape(shorten_name(life.id))}</b><br>{kind} · {format_bytes(nbytes)} (estimated)"
    if life.writers:
        text += f"<br>written by layer {names[life.writers[0]]}"
    if life.readers:
        text += f"<br>last read by layer {names[life.readers[-1]]}"
    return text


def _draw_level(name: str, at: float, ends: list[float], unit: str, line: dict[str, Any]) -> dict[str, Any]:
    level = {"type": "scatter", "mode": "lines", "name": name, "x": ends, "y": [at, at], "yaxis": "y2"}
    return level | {"line": line, "hovertemplate": f"{name}: %{{y:.4~g}} {unit}<extra>estimated</extra>"}
