"""Two variants, group by group of ONNX nodes: where the milliseconds went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab import questions
from rtlab.core.peaks import TABLE, peaks
from rtlab.core.schema import Origin
from rtlab.documents.contract import Figure, Panel, Setting
from rtlab.documents.figure import BETTER, FAINT, MAIN, SIGNS, WORSE, axis, figure
from rtlab.documents.numbers import number
from rtlab.documents.panel import choices
from rtlab.errors import RtlabError, VariantError
from rtlab.questions.difference import unexplained
from rtlab.questions.difference.answer import (
    TimeDifference,
    group_title,
    more,
    signed,
    time_difference,
    unit_of,
)
from rtlab.questions.difference.diff import BASES, Difference, Group
from rtlab.questions.scene import Question, Scene
from rtlab.questions.titles import titled, titles

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: Bars of groups; what is left is one bar.
_BARS = 14
#: Letters of a bar's name.
_LONG = 24
#: Where times come from: a setting's value.
_MEASURED, _TARGET = "measured", "target"
_ORDERS = {"size": "largest first", "time": "as executed"}
_TITLE = "Where the time went"
_LEAD = "Which groups of ONNX nodes got faster or slower, although fusions and layer names differ."
#: Numbers above bars, all of one size.
_TEXTS = {"textposition": "outside", "constraintext": "none", "textangle": 0, "textfont": {"size": 10}}


def told(scene: Scene) -> TimeDifference:
    """The variant shown against another one of the study: the groups that differ most first, unless asked otherwise.

    Raises:
        VariantError: it is the only one.
        ModelError: a dimension has no size.
    """
    return time_difference(*_found(scene, _settings(scene)), scene)


def difference(scene: Scene) -> Panel:
    """The same as a waterfall and a table.

    Raises:
        VariantError: it is the only one.
    """
    settings = _settings(scene)
    try:
        found, groups = _found(scene, settings)
    except RtlabError as error:
        # Other times may be had: the choice stays at hand.
        return DIFFERENCE.panel(scene, settings=settings, problem=str(error))
    noun, unit, problem = time_difference(found, groups, scene), unit_of(found), unexplained(found)
    keys = {id(g): f"row {i}" for i, g in enumerate(groups)}
    drawn = titled(found, titles(scene.study))
    return DIFFERENCE.panel(
        scene,
        noun,
        units={"ms": unit},
        title=f"From {noun.before} to {noun.after}",
        settings=settings,
        figures=[] if problem else _figures(drawn, groups, keys, scene.model, unit),
        problem=problem,
        notes=[n for n in noun.notes if n != problem],
    )


def _settings(scene: Scene) -> list[Setting]:
    study, result = scene.study, scene.result
    others = [n for n in study.facts if n != result.name]
    chosen = scene.settings.get("from") or (scene.baseline.name if scene.baseline else "")
    other = chosen if chosen in others else next(iter(others), "")
    if not other:
        raise VariantError(
            "There is nothing to compare with yet: this is the only variant. Build a second one, in another "
            "precision or for another GPU for example, or read an engine from files."
        )
    called = titles(study)
    timed = all(questions.timing.of(study.facts[n]) is not None for n in (other, result.name))
    estimates = {_TARGET: "estimated for the GPU of each"}
    estimates |= {p.name: f"estimated on {p.name}" for p in (*TABLE, *study.processors)}
    guesses = [questions.roofline.estimate(r) for r in (study.facts[other], result)]
    emulated = all(g is not None for g in guesses)
    here = "measured on the CPU that stands in for the GPU" if emulated else "measured"
    measured = {_MEASURED: here} if timed else {}
    # The CPU runs other kernels than the GPU that the engines are for, and emulates some precisions.
    enough = all(g is not None and g.known.enough for g in guesses)
    sources = {_TARGET: estimates[_TARGET], **measured, **estimates} if enough else {**measured, **estimates}
    # What was chosen for two other variants may not be had for these.
    gpu = _source(scene.settings.get("times", ""), sources) or next(iter(sources))
    order = scene.settings.get("order", "")
    return [
        choices(
            "from",
            "Compared with",
            "The variant that times are compared with.",
            {n: called[n] for n in others},
            other,
        ),
        choices(
            "times", "Times", "Which times: those that were measured, or an estimate for a GPU.", sources, gpu
        ),
        choices(
            "order",
            "Order",
            "Which groups stand first.",
            _ORDERS,
            order if order in _ORDERS else next(iter(_ORDERS)),
        ),
    ]


def _found(scene: Scene, settings: list[Setting]) -> tuple[Difference, list[Group]]:
    """The difference as it is asked for, and its groups in the order that is wanted."""
    other, gpu, order = (s["value"] for s in settings)
    own = {p.name: p for p in scene.study.processors}
    found = questions.difference.of(
        scene.study.facts[other], scene.result, gpu=None if gpu == _MEASURED else own.get(gpu, gpu)
    )
    return found, sorted(found.groups, key=lambda g: -_weight(g)) if order == "size" else list(found.groups)


def _source(asked: str, sources: Mapping[str, str]) -> str:
    """The choice itself, or the GPU of the table that it is another name of; empty where it is neither."""
    if asked in sources:
        return asked
    try:
        found = peaks(asked).name
    except VariantError:
        return ""
    return found if found in sources else ""


def _brief(value: float) -> str:
    """A difference above a narrow bar: two digits, and all of a whole number; the rest is in the hover text."""
    return signed(f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.2g}")


def _weight(group: Group) -> float:
    return abs(group.delta) if group.delta is not None else abs(more(group))


#: A unit of time, and how many of it a millisecond has.
_Unit = tuple[str, float]


def _figures(
    found: Difference, groups: list[Group], keys: dict[int, str], model: Model, unit: _Unit
) -> list[Figure]:
    """Times where both engines have them, else layers; nothing where nothing differs."""
    if found.totals is None or not found.timed:
        origins = (found.first.engine.origin, found.second.engine.origin)
        return [_layers(groups, keys, model, origins)] if any(map(more, groups)) else []
    moved = [g for g in groups if g.delta]
    return [_waterfall(found, moved, keys, model, unit)] if moved or found.rest else []


def _waterfall(
    found: Difference, groups: list[Group], keys: dict[int, str], model: Model, times: _Unit
) -> Figure:
    (before, after), (unit, factor) = found.totals or (0.0, 0.0), times
    ranked = sorted(groups, key=lambda g: -_weight(g))
    kept = {id(g) for g in ranked[:_BARS]}
    shown = [g for g in groups if id(g) in kept]
    left = sum(g.delta or 0.0 for g in groups if id(g) not in kept)
    labels = [found.first.name, *_labels(shown, model)]
    values = [before, *(g.delta or 0.0 for g in shown)]
    # Points of one id are one point to Plotly.
    ids = ["before", *(keys[id(g)] for g in shown)]
    hover = [f"{found.first.name}: {before * factor:.4g} {unit}", *(_hover(g, model, times) for g in shown)]
    if len(kept) < len(groups):
        labels.append(f"{len(groups) - len(kept)} others")
        values.append(left)
        ids.append("others")
        hover.append(
            f"{len(groups) - len(kept)} smaller differences together: {signed(f'{left * factor:+.4g}')} {unit}"
        )
    if found.rest and found.first.whole is not None and found.second.whole is not None:
        labels.append("outside layers")
        values.append(found.rest)
        ids.append("rest")
        hover.append(f"outside the layers: {signed(f'{found.rest * factor:+.4g}')} {unit}")
    labels.append(found.second.name)
    values.append(after)
    ids.append("after")
    hover.append(f"{found.second.name}: {after * factor:.4g} {unit}")
    shares = [v * factor for v in values]
    trace = {
        "type": "waterfall",
        # Two groups may bear one label; each has a place of its own.
        "x": list(range(len(labels))),
        "y": shares,
        "measure": ["absolute", *["relative"] * (len(labels) - 2), "total"],
        "ids": ids,
        "text": [number(shares[0]), *map(_brief, shares[1:-1]), number(shares[-1])],
        **_TEXTS,
        "cliponaxis": False,
        "customdata": hover,
        "hovertemplate": f"%{{customdata}}<extra>{found.origin}</extra>",
        "decreasing": {"marker": {"color": BETTER}},
        "increasing": {"marker": {"color": WORSE}},
        "totals": {"marker": {"color": MAIN}},
        "connector": {"line": {"color": FAINT, "width": 1}},
    }
    return figure(
        f"From {found.first.name} to {found.second.name}: {before * factor:.4g} to {after * factor:.4g} {unit}, "
        "by groups of nodes",
        [trace],
        title=f"{SIGNS[found.origin]} {unit}, {found.origin}: down is faster",
        xaxis=_names(labels),
        # Room for the numbers above the highest bar and below the lowest.
        yaxis=axis(unit, range=_room(shares)),
    )


def _room(shares: list[float]) -> list[float]:
    """A range of the y axis that holds all bars of a waterfall and their numbers."""
    levels = [shares[0], *(sum(shares[:i]) for i in range(2, len(shares))), shares[-1], 0.0]
    low, high = min(levels), max(levels)
    spare = 0.14 * (high - low)
    return [low - spare if low < 0 else 0.0, high + spare]


def _names(labels: list[str]) -> dict[str, Any]:
    """An axis of names."""
    return axis(tickvals=list(range(len(labels))), ticktext=labels, tickangle=-35, showgrid=False)


def _layers(
    groups: list[Group], keys: dict[int, str], model: Model, origins: tuple[Origin, Origin]
) -> Figure:
    """Without times, what differs is how many layers a group became; a predicted engine may be one of the two."""
    told = " before, ".join(origins) + " after" if origins[0] != origins[1] else origins[0]
    shown = [g for g in groups if more(g)][:_BARS]
    trace = {
        "type": "bar",
        "x": list(range(len(shown))),
        "y": [more(g) for g in shown],
        "ids": [keys[id(g)] for g in shown],
        "marker": {"color": [WORSE if more(g) > 0 else BETTER for g in shown]},
        "text": [signed(f"{more(g):+d}") for g in shown],
        **_TEXTS,
        "cliponaxis": False,
        "customdata": [_hover(g, model, ("ms", 1.0)) for g in shown],
        "hovertemplate": f"%{{customdata}}<extra>{told}</extra>",
    }
    title = "Layers more or less, by groups of nodes; no times are known of both"
    return figure(
        title,
        [trace],
        title=title,
        xaxis=_names(_labels(shown, model)),
        yaxis=axis("layers", dtick=1),
    )


def _labels(groups: list[Group], model: Model) -> list[str]:
    """Names below bars: ends of paths; of those that end alike the beginnings, or more of both, to tell them apart."""
    paths = [_parts(g, model) for g in groups]
    ends = [_shortest(p, last=True) for p in paths]
    starts = [_shortest(p, last=False) for p in paths]
    both = [
        text if len(text) <= 2 * _LONG else f"{text[:_LONG]}…{text[1 - _LONG :]}"
        for text in map("/".join, paths)
    ]
    names = zip(ends, starts, both, strict=True)
    return [
        end if ends.count(end) == 1 else start if starts.count(start) == 1 else more
        for end, start, more in names
    ]


def _parts(group: Group, model: Model) -> list[str]:
    """The path of a group's first node."""
    if group.basis == "moves":
        return ["data movement"]
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    text = nodes[0].title if nodes else group.title
    parts = [p for p in text.split("/") if p]
    # The end of a path repeats the operator; what stands before it tells the place.
    if nodes and len(parts) > 1 and parts[-1].rstrip("_0123456789") == nodes[0].op:
        parts.pop()
    # Exporters write each module with its place in the one around it: features/features.10/block/block.2.
    told = [p for p, after in zip(parts, [*parts[1:], ""], strict=True) if not after.startswith(f"{p}.")]
    return told or [text]


def _shortest(parts: list[str], *, last: bool) -> str:
    """As much of a path as has room: its last parts, or its first ones."""
    short = parts[-1] if last else f"{parts[0]}/…"
    for count in range(2, len(parts) + 1):
        longer = "/".join(parts[-count:] if last else [*parts[:count], "…"])
        if len(longer) <= _LONG:
            short = longer
    return short if len(short) <= _LONG else f"…{short[1 - _LONG :]}"


def _hover(group: Group, model: Model, unit: _Unit) -> str:
    name, factor = unit
    before, after, delta = ((v or 0.0) * factor for v in (group.first.time, group.second.time, group.delta))
    times = (
        f"<br>{before:.4g} → {after:.4g} {name} ({signed(f'{delta:+.4g}')})"
        if group.delta is not None
        else ""
    )
    return f"{group_title(group, model)}<br>{group.cause}{times}<br>{BASES[group.basis]}"


DIFFERENCE = Question(
    "difference",
    tab="compare",
    label="Difference",
    title=_TITLE,
    lead=_LEAD,
    noun=told,
    drawn=difference,
)
