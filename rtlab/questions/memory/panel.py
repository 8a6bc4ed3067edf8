"""The memory of an engine: every tensor from its first step to its last, at an address of one arena."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rtlab.core.value import shape_text
from rtlab.documents.contract import Figure, Panel, Setting
from rtlab.documents.figure import MAIN, OTHER, axis, figure, legend
from rtlab.documents.numbers import shortened, storage, storage_unit
from rtlab.documents.panel import batches, field, link
from rtlab.errors import RtlabError, VariantError
from rtlab.questions.cards.card import exact
from rtlab.questions.memory.answer import MemoryUse, memory_use, shown
from rtlab.questions.memory.plan import RESERVATION, MemoryPlan, plan
from rtlab.questions.scene import Question, Scene

if TYPE_CHECKING:
    from rtlab.core.engine import Engine
    from rtlab.questions.memory.lifetimes import Life

_RESERVED = f"{RESERVATION:,} bytes"
#: More tensors than this are drawn without outlines, which would cover them.
_OUTLINED = 600
_EDGE = "rgba(128,128,128,0.8)"
_SIZES = re.compile(r"\s*([^=,;]+?)\s*=\s*(\d+)\s*(?:[,;]|$)")


def told(scene: Scene) -> MemoryUse:
    """Lifetimes and addresses of all activations, at a batch of one's choice.

    Raises:
        VariantError: a setting is no number, or not one that a plan can be made for.
        RtlabError: the engine does not tell its tensors.
    """
    return memory_use(*_plans(scene), scene.result.engine, _steps(scene))


def memory(scene: Scene) -> Panel:
    """The same as a figure and a table.

    Raises:
        VariantError: a setting is no number.
    """
    engine, batch = scene.result.engine, scene.batch
    _sizes(scene.settings.get("sizes", ""))
    try:
        found, one = _plans(scene)
    except RtlabError as error:
        return MEMORY.panel(scene, settings=_settings(scene, None, batch), problem=str(error))
    unit, scale = storage_unit(found.peak)
    steps = _steps(scene)
    return MEMORY.panel(
        scene,
        memory_use(found, one, engine, steps),
        units={"B": (unit, 1 / scale)},
        links={y.id: link(scene.nodes(y.id), [y.id]) for y in engine.layers},
        lead=_lead(found, list(scene.called.values())),
        settings=_settings(scene, found, batch),
        figures=[_drawn(found, engine, steps, unit, scale)] if found.lives else [],
        notes=_notes(found, one, engine),
    )


def _plans(scene: Scene) -> tuple[MemoryPlan, MemoryPlan | None]:
    """The plan, and that on one stream where there are several."""
    engine, built, batch = scene.result.engine, scene.result.prepared.model, scene.batch
    sizes = _sizes(scene.settings.get("sizes", ""))
    found = plan(engine, built, batch=batch, sizes=sizes)
    one = plan(engine, built, batch=batch, sizes=sizes, one_stream=True) if found.streams > 1 else None
    return found, one


def _steps(scene: Scene) -> list[str]:
    """What the steps are called in hover texts."""
    return [shortened(n) for n in exact(scene.called, scene.result.engine).values()]


def _sizes(text: str) -> dict[str, int]:
    found = {m[1]: int(m[2]) for m in _SIZES.finditer(text)}
    if text.strip() and (_SIZES.sub("", text).strip() or not all(found.values())):
        raise VariantError(
            f'Cannot read the sizes "{text}": they are not written as name=number. Write them so, such as '
            "length=128, height=224."
        )
    return found


def _settings(scene: Scene, found: MemoryPlan | None, batch: int | None) -> list[Setting]:
    settings = []
    own = found.own_batch if found else 1
    if own is not None:
        settings.append(batches(own, batch if batch and batch > 0 else own))
    model = scene.result.prepared.model
    dims = [d for n in model.inputs for d in (model.values[n].shape or ())[1:] if isinstance(d, str)]
    if dims:
        hint = ", ".join(f"{d}={model.shapes.get(d, 128)}" for d in dict.fromkeys(dims))
        settings.append(
            field(
                "sizes",
                "Sizes of dimensions",
                "How large dimensions without a fixed size are taken to be.",
                scene.settings.get("sizes", ""),
                hint,
            )
        )
    return settings


def _lead(found: MemoryPlan, called: Sequence[str]) -> str:
    if not found.lives:
        return "This engine keeps nothing between its layers but what the caller gives and takes."
    name = called[found.step]
    return (
        "A tensor needs memory from the layer that writes it to the last that reads it; then another may have its "
        f"place. Each box is one, as wide as its life and as high as its size. Most is alive at step {found.step + 1} "
        f"({name}): to need less, look at the orange boxes."
    )


def _notes(found: MemoryPlan, one: MemoryPlan | None, engine: Engine) -> list[str]:
    notes = ["Addresses are rtlab's plan: compilers do not tell theirs."]
    if found.reported and engine.maker.reserves:
        told = "The compiler reports the same total as scratch: it does not tell tensors and scratch apart."
        if found.reservations:
            told = (
                "The compiler's total is higher than the tensors need: for every library kernel that may run at a time "
                f"it holds {_RESERVED}, because only the GPU will tell how much scratch memory the kernel wants. It "
                "reports the same total as scratch."
            )
            if found.reported - found.reservations * RESERVATION < found.bound:
                told += " What is left is below the bound: pointwise layers write over what they read there."
        notes.append(told)
    if found.scaled:
        notes.append(
            f"The engine is built for batch {found.own_batch}. At batch {found.batch} it is shown as if it were built "
            "for that: its tensors grow in proportion, though a compiler may choose other layers then."
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
    if found.unsized:
        count = len(found.unsized)
        names = ", ".join(f'"{shortened(life.name)}"' for life in found.unsized[:3])
        notes.append(f"Not in the plan: {count} tensor{'s' * (count != 1)} of unknown size, such as {names}.")
    return notes


def _key(position: int) -> str:
    """What names a tensor in the figure: the key of its row."""
    return f"row {position}"


def _drawn(found: MemoryPlan, engine: Engine, called: Sequence[str], unit: str, scale: float) -> Figure:
    peak, steps = set(found.at_peak), len(found.alive)
    names = [html.escape(n) for n in called]
    ends = [0.5, steps + 0.5]
    return figure(
        f"Memory over the steps of the engine: {len(found.lives):,} tensors in an arena of {storage(found.peak)}, and "
        f"what is alive at each step, at most {storage(int(found.alive.max()))} at step {found.step + 1}.",
        [
            _boxes(found, names, scale, peak, first=True),
            _boxes(found, names, scale, peak, first=False),
            {
                "type": "scatter",
                "mode": "lines",
                "name": "alive at a step",
                "x": list(range(1, steps + 1)),
                "y": (found.alive / scale).tolist(),
                "yaxis": "y2",
                "ids": [layer.id for layer in engine.layers],
                "text": names,
                "line": {"shape": "hvh", "width": 1, "color": MAIN},
                "fill": "tozeroy",
                "fillcolor": "rgba(49,104,142,0.35)",
                "hovertemplate": f"step %{{text}}<br>%{{y:.4~g}} {unit} alive<extra>estimated</extra>",
            },
            _level("peak", found.peak / scale, ends, unit, {"color": OTHER, "width": 3}),
            _level("lower bound", found.bound / scale, ends, unit, {"color": _EDGE, "dash": "dash"}),
        ],
        height=380,
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend=legend(itemsizing="trace"),
        xaxis=axis("step, in the order of issue", anchor="y2", range=ends),
        yaxis=axis(f"address, {unit}", domain=[0.42, 1], range=[0, found.peak / scale * 1.04], nticks=6),
        yaxis2=axis(unit, domain=[0, 0.32], range=[0, found.peak / scale * 1.15], nticks=4),
        shapes=[
            {
                "type": "line",
                "yref": "paper",
                "x0": found.step + 1,
                "x1": found.step + 1,
                "y0": 0,
                "y1": 1,
                "line": {"color": OTHER, "width": 1, "dash": "dot"},
            }
        ],
    )


def _boxes(
    found: MemoryPlan, names: list[str], scale: float, peak: set[int], *, first: bool
) -> dict[str, Any]:
    """The tensors that are alive at the peak, or the others: one bar each, as wide as its life."""
    of = [i for i, given in enumerate(found.allocations) if given.nbytes and (i in peak) == first]
    lives = [found.lives[i] for i in of]
    given = [found.allocations[i] for i in of]
    return {
        "type": "bar",
        "name": "alive at the peak" if first else "other tensors",
        "ids": [_key(i) for i in of],
        "x": [(life.first + life.last) / 2 + 1 for life in lives],
        "width": [life.last - life.first + 1 for life in lives],
        "base": [(g.offset or 0) / scale for g in given],
        "y": [g.nbytes / scale for g in given],
        "hovertext": [_told(life, g.nbytes, names) for life, g in zip(lives, given, strict=True)],
        "hoverinfo": "text",
        "marker": {
            "color": OTHER if first else MAIN,
            "opacity": 0.85 if first else 0.55,
            "line": {"color": _EDGE, "width": 1 if len(found.lives) <= _OUTLINED else 0},
            **(
                {"pattern": {"shape": "/", "size": 7, "solidity": 0.15, "fillmode": "overlay"}}
                if first
                else {}
            ),
        },
    }


def _told(life: Life, nbytes: int, names: list[str]) -> str:
    whole = shown(life)
    kind = f"{shape_text(whole.shape)} {whole.dtype}"
    text = f"<b>{html.escape(shortened(life.id))}</b><br>{kind} · {storage(nbytes)} (estimated)"
    if life.writers:
        text += f"<br>written by step {names[life.writers[0]]}"
    if life.readers:
        text += f"<br>last read by step {names[life.readers[-1]]}"
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


MEMORY = Question(
    "memory",
    tab="memory",
    label="Memory",
    title="Memory",
    lead="",
    told="When each tensor lives, and how the engine places them in the same bytes.",
    noun=told,
    drawn=memory,
)
