"""The memory of an engine: every tensor from its first step to its last, at an address of one arena."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses.cards.card import format_exact_names
from rtlab.analyses.memory.answer import MemoryUse, pick_largest_mention, summarize_memory
from rtlab.analyses.memory.plan import RESERVATION, MemoryPlan, plan_engine_memory
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.core.value import shape_text
from rtlab.documents.contract import Figure, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import choose_byte_unit, format_bytes, shorten_name
from rtlab.documents.panel import link, make_batch_slider, make_text_field
from rtlab.errors import RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.analyses.memory.lifetimes import Life
    from rtlab.core.engine import Engine

_RESERVED = f"{RESERVATION:,} bytes"
#: More tensors than this are drawn without outlines, which would cover them.
_OUTLINED = 600
_EDGE = "rgba(128,128,128,0.8)"
_SIZES = re.compile(r"\s*([^=,;]+?)\s*=\s*(\d+)\s*(?:[,;]|$)")


def analyze_memory(context: PanelContext) -> MemoryUse:
    """Lifetimes and addresses of all activations, at a batch of one's choice.

    Raises:
        VariantError: a setting is no number, or not one that a plan can be made for.
        RtlabError: the engine does not tell its tensors.
    """
    return summarize_memory(*_plans(context), context.result.engine, _steps(context))


def build_memory_panel(context: PanelContext) -> PanelParts:
    """The same as a figure and a table.

    Raises:
        VariantError: a setting is no number.
    """
    engine, batch = context.result.engine, context.batch
    _sizes(context.settings.get("sizes", ""))
    try:
        memory_plan, one = _plans(context)
    except RtlabError as error:
        return PanelParts(settings=_settings(context, None, batch), problem=str(error))
    unit, scale = choose_byte_unit(memory_plan.peak)
    steps = _steps(context)
    return PanelParts(
        result=summarize_memory(memory_plan, one, engine, steps),
        units={"B": (unit, 1 / scale)},
        links={y.id: link(context.nodes(y.id), [y.id]) for y in engine.layers},
        lead=_lead(memory_plan, list(context.layer_names.values())),
        settings=_settings(context, memory_plan, batch),
        figures=[_draw_arena(memory_plan, engine, steps, unit, scale)] if memory_plan.lives else [],
        notes=_notes(memory_plan, one, engine),
    )


def _plans(context: PanelContext) -> tuple[MemoryPlan, MemoryPlan | None]:
    """The plan, and that on one stream where there are several."""
    engine, built, batch = context.result.engine, context.result.prepared.model, context.batch
    sizes = _sizes(context.settings.get("sizes", ""))
    memory_plan = plan_engine_memory(engine, built, batch=batch, sizes=sizes)
    one = (
        plan_engine_memory(engine, built, batch=batch, sizes=sizes, one_stream=True)
        if memory_plan.streams > 1
        else None
    )
    return memory_plan, one


def _steps(context: PanelContext) -> list[str]:
    """What the steps are called in hover texts."""
    return [shorten_name(n) for n in format_exact_names(context.layer_names, context.result.engine).values()]


def _sizes(text: str) -> dict[str, int]:
    dim_sizes = {m[1]: int(m[2]) for m in _SIZES.finditer(text)}
    if text.strip() and (_SIZES.sub("", text).strip() or not all(dim_sizes.values())):
        raise VariantError(
            f'Cannot read the sizes "{text}": they are not written as name=number. Write them so, such as '
            "length=128, height=224."
        )
    return dim_sizes


def _settings(context: PanelContext, memory_plan: MemoryPlan | None, batch: int | None) -> list[Setting]:
    settings = []
    engine_batch = memory_plan.engine_batch if memory_plan else 1
    if engine_batch is not None:
        settings.append(make_batch_slider(engine_batch, batch if batch and batch > 0 else engine_batch))
    model = context.result.prepared.model
    dims = [d for n in model.inputs for d in (model.values[n].shape or ())[1:] if isinstance(d, str)]
    if dims:
        hint = ", ".join(f"{d}={model.shapes.get(d, 128)}" for d in dict.fromkeys(dims))
        settings.append(
            make_text_field(
                "sizes",
                "Sizes of dimensions",
                "How large dimensions without a fixed size are taken to be.",
                context.settings.get("sizes", ""),
                hint,
            )
        )
    return settings


def _lead(memory_plan: MemoryPlan, layer_names: Sequence[str]) -> str:
    if not memory_plan.lives:
        return "This engine keeps nothing between its layers but what the caller gives and takes."
    name = layer_names[memory_plan.step]
    return (
        "A tensor needs memory from the layer that writes it to the last that reads it; then another may have its "
        "place. Each box is one, as wide as its life and as high as its size. Most is alive at layer "
        f"{memory_plan.step + 1} ({name}): to need less, look at the orange boxes."
    )


def _notes(memory_plan: MemoryPlan, one: MemoryPlan | None, engine: Engine) -> list[str]:
    notes = ["Addresses are rtlab's plan: compilers do not report theirs."]
    if memory_plan.reported and engine.maker.reserves:
        scratch_note = (
            "The compiler reports the same total as scratch: it does not separate tensors from scratch."
        )
        if memory_plan.reservations:
            scratch_note = (
                "The compiler's total is higher than the tensors need: for every library kernel that may run at a time "
                f"it holds {_RESERVED}, because only the GPU decides how much scratch memory the kernel wants. It "
                "reports the same total as scratch."
            )
            if memory_plan.reported - memory_plan.reservations * RESERVATION < memory_plan.bound:
                scratch_note += (
                    " What is left is below the bound: pointwise layers write over what they read there."
                )
        notes.append(scratch_note)
    if memory_plan.scaled:
        notes.append(
            f"The engine is built for batch {memory_plan.engine_batch}. At batch {memory_plan.batch} it is shown as "
            "if it were built for that: its tensors grow in proportion, though a compiler may choose other layers then."
        )
    if one is not None:
        notes.append(
            "Streams run side by side, so that a tensor is free only when every stream is known to be past its last "
            "reader. The lower curve follows the order of issue; the bound counts what may be alive at a time."
        )
    if engine.maker.memory == "running":
        notes.append(
            f"{engine.compiler} allocates while it runs: this is what its layers would need in a planned arena."
        )
    if memory_plan.unsized:
        count = len(memory_plan.unsized)
        names = ", ".join(f'"{shorten_name(life.name)}"' for life in memory_plan.unsized[:3])
        notes.append(f"Not in the plan: {count} tensor{'s' * (count != 1)} of unknown size, such as {names}.")
    return notes


def _draw_arena(
    memory_plan: MemoryPlan, engine: Engine, layer_names: Sequence[str], unit: str, scale: float
) -> Figure:
    peak, steps = set(memory_plan.at_peak), len(memory_plan.alive)
    names = [html.escape(n) for n in layer_names]
    ends = [0.5, steps + 0.5]
    return figure(
        f"Memory over the layers of the engine: {len(memory_plan.lives):,} tensors in an arena of "
        f"{format_bytes(memory_plan.peak)}, and what is alive at each layer, at most "
        f"{format_bytes(int(memory_plan.alive.max()))} at layer {memory_plan.step + 1}.",
        [
            _boxes(memory_plan, names, scale, peak, first=True),
            _boxes(memory_plan, names, scale, peak, first=False),
            {
                "type": "scatter",
                "mode": "lines",
                "name": "alive at a layer",
                "x": list(range(1, steps + 1)),
                "y": (memory_plan.alive / scale).tolist(),
                "yaxis": "y2",
                "ids": [layer.id for layer in engine.layers],
                "text": names,
                "line": {"shape": "hvh", "width": 1, "color": MAIN},
                "fill": "tozeroy",
                "fillcolor": "rgba(49,104,142,0.35)",
                "hovertemplate": f"step %{{text}}<br>%{{y:.4~g}} {unit} alive<extra>estimated</extra>",
            },
            _level("peak", memory_plan.peak / scale, ends, unit, {"color": OTHER, "width": 3}),
            _level("lower bound", memory_plan.bound / scale, ends, unit, {"color": _EDGE, "dash": "dash"}),
        ],
        height=380,
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend=legend(itemsizing="trace"),
        xaxis=axis("layer, in the order of issue", anchor="y2", range=ends),
        yaxis=axis(
            f"address, {unit}", domain=[0.42, 1], range=[0, memory_plan.peak / scale * 1.04], nticks=6
        ),
        yaxis2=axis(unit, domain=[0, 0.32], range=[0, memory_plan.peak / scale * 1.15], nticks=4),
        shapes=[
            {
                "type": "line",
                "yref": "paper",
                "x0": memory_plan.step + 1,
                "x1": memory_plan.step + 1,
                "y0": 0,
                "y1": 1,
                "line": {"color": OTHER, "width": 1, "dash": "dot"},
            }
        ],
    )


def _boxes(
    memory_plan: MemoryPlan, names: list[str], scale: float, peak: set[int], *, first: bool
) -> dict[str, Any]:
    """The tensors that are alive at the peak, or the others: one bar each, as wide as its life."""
    of = [
        i
        for i, allocation in enumerate(memory_plan.allocations)
        if allocation.nbytes and (i in peak) == first
    ]
    lives = [memory_plan.lives[i] for i in of]
    allocations = [memory_plan.allocations[i] for i in of]
    return {
        "type": "bar",
        "name": "alive at the peak" if first else "other tensors",
        # The keys of the rows.
        "ids": [f"row {i}" for i in of],
        "x": [(life.first + life.last) / 2 + 1 for life in lives],
        "width": [life.last - life.first + 1 for life in lives],
        "base": [(g.offset or 0) / scale for g in allocations],
        "y": [g.nbytes / scale for g in allocations],
        "hovertext": [
            _format_hover(life, g.nbytes, names) for life, g in zip(lives, allocations, strict=True)
        ],
        "hoverinfo": "text",
        "marker": {
            "color": OTHER if first else MAIN,
            "opacity": 0.85 if first else 0.55,
            "line": {"color": _EDGE, "width": 1 if len(memory_plan.lives) <= _OUTLINED else 0},
            **(
                {"pattern": {"shape": "/", "size": 7, "solidity": 0.15, "fillmode": "overlay"}}
                if first
                else {}
            ),
        },
    }


def _format_hover(life: Life, nbytes: int, names: list[str]) -> str:
    tensor = pick_largest_mention(life)
    kind = f"{shape_text(tensor.shape)} {tensor.dtype}"
    text = f"<b>{html.escape(shorten_name(life.id))}</b><br>{kind} · {format_bytes(nbytes)} (estimated)"
    if life.writers:
        text += f"<br>written by layer {names[life.writers[0]]}"
    if life.readers:
        text += f"<br>last read by layer {names[life.readers[-1]]}"
    return text


def _level(name: str, at: float, ends: list[float], unit: str, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": ends,
        "y": [at, at],
        "yaxis": "y2",
        "line": line,
        "hovertemplate": f"{name}: %{{y:.4~g}} {unit}<extra>estimated</extra>",
    }
