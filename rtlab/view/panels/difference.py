"""Two variants, group by group of ONNX nodes: where the milliseconds went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analysis.diff import Difference, Group, Half, Side
from rtlab.analysis.mapping import placed
from rtlab.core.peaks import TABLE, peaks
from rtlab.errors import RtlabError, VariantError
from rtlab.view.contract import Fact, Figure, Link, Panel, Row
from rtlab.view.figure import BETTER, FAINT, MAIN, WORSE, axis, figure
from rtlab.view.panel import Scene, choices, column, fact, link, panel
from rtlab.view.table import number

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
_BASIS = {
    "nodes": "They run the same ONNX nodes.",
    "names": "Their layers' names tell the same nodes.",
    "order": "No names in common: they stand at the same place among layers of this kind and shape (inferred).",
    "moves": "Layers that only move or retype data, or order streams.",
    "alone": "Only one of the engines has layers for it.",
}


def difference(scene: Scene) -> Panel:
    """The variant shown against another one of the study, as a waterfall and as a table."""
    study, result = scene.study, scene.result
    others = [n for n in study.results if n != result.name]
    chosen = scene.settings.get("from") or (scene.baseline.name if scene.baseline else "")
    other = chosen if chosen in others else next(iter(others), "")
    if not other:
        return panel(
            scene,
            "difference",
            _TITLE,
            _LEAD,
            problem="There is nothing to compare with yet: this is the only variant. Build a second one, in another "
            "precision or for another GPU for example, or read an engine from files.",
        )
    timed = all(study.results[n].timing is not None for n in (other, result.name))
    estimates = {_TARGET: "estimated, each on a GPU it was built for"}
    estimates |= {p.name: f"estimated on {p.name}" for p in (*TABLE, *study.processors)}
    sources = {_MEASURED: "measured", **estimates} if timed else estimates
    # What was chosen for two other variants may not be had for these.
    gpu = _source(scene.settings.get("times", ""), sources) or next(iter(sources))
    order = scene.settings.get("order", "")
    order = order if order in _ORDERS else next(iter(_ORDERS))
    settings = [
        choices("from", "Compared with", {n: n for n in others}, other),
        choices("times", "Times", sources, gpu),
        choices("order", "Order", _ORDERS, order),
    ]
    own = {p.name: p for p in study.processors}
    try:
        found = study.difference(other, result.name, gpu=None if gpu == _MEASURED else own.get(gpu, gpu))
    except RtlabError as error:
        # Other times may be had: the choice stays at hand.
        return panel(scene, "difference", _TITLE, _LEAD, settings=settings, problem=str(error))
    groups = sorted(found.groups, key=lambda g: -_weight(g)) if order == "size" else list(found.groups)
    keys = {id(g): f"g{i}" for i, g in enumerate(found.groups)}
    return panel(
        scene,
        "difference",
        f"From {other} to {result.name}",
        _LEAD,
        settings=settings,
        facts=_facts(found),
        figures=[_waterfall(found, groups, keys, scene.model)]
        if found.timed or any(map(_more, groups))
        else [],
        columns=[
            column("Nodes"),
            column("Layers before", numeric=True),
            column("Layers after", numeric=True),
            column(f"{other}", "ms", found.origin),
            column(f"{result.name}", "ms", found.origin),
            column("Difference", "ms", found.origin),
            column("What differs"),
        ],
        rows=[_row(g, keys[id(g)], scene.model) for g in groups],
        links=_links(found, keys, scene),
        notes=_notes(found),
    )


def _source(asked: str, sources: Mapping[str, str]) -> str:
    """The choice itself, or the GPU of the table that it is another name of; empty where it is neither."""
    if asked in sources:
        return asked
    try:
        found = peaks(asked).name
    except VariantError:
        return ""
    return found if found in sources else ""


def _signed(text: str) -> str:
    """A true minus sign instead of a hyphen."""
    return text.replace("-", "−")


def _brief(value: float) -> str:
    """A difference above a narrow bar: two digits, and all of a whole number; the rest is in the hover text."""
    return _signed(f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.2g}")


def _weight(group: Group) -> float:
    return abs(group.delta) if group.delta is not None else abs(_more(group))


def _more(group: Group) -> int:
    return len(group.second.layers) - len(group.first.layers)


def _facts(found: Difference) -> list[Fact]:
    """Latency, layers, and how much of the difference the groups explain."""
    count = [len(s.engine.layers) for s in (found.first, found.second)]
    facts = [fact("Layers", f"{count[0]} → {count[1]}"), fact("Groups of nodes", f"{len(found.groups)}")]
    if found.totals is None or found.delta is None:
        return facts
    before, after = found.totals
    whole = found.first.whole is not None and found.second.whole is not None
    what = "Latency" if whole else "Sum of the layers"
    origin = found.origin
    facts = [
        fact(what, f"{before:.4g} → {after:.4g} ms", origin),
        fact(
            "Difference",
            _signed(f"{found.delta:+.4g} ms ({found.delta / before:+.0%})") if before else "",
            origin,
        ),
        *facts,
    ]
    if found.rest is not None and whole:
        note = "What whole inferences differ by beyond their layers: gaps between layers, and the cost of timing them."
        facts.append(fact("Outside the layers", _signed(f"{found.rest:+.4g} ms"), origin, note))
    return facts


def _waterfall(found: Difference, groups: list[Group], keys: dict[int, str], model: Model) -> Figure:
    if found.totals is None or not found.timed:
        return _layers(groups, keys, model)
    unit, factor = ("µs", 1e3) if max(found.totals) < 1 else ("ms", 1.0)
    ranked = sorted(groups, key=lambda g: -_weight(g))
    kept = {id(g) for g in ranked[:_BARS]}
    shown = [g for g in groups if id(g) in kept]
    left = sum(g.delta or 0.0 for g in groups if id(g) not in kept)
    before, after = found.totals
    labels = [found.first.name, *(_label(g, model) for g in shown)]
    values = [before, *(g.delta or 0.0 for g in shown)]
    # Points of one id are one point to Plotly.
    ids = ["before", *(keys[id(g)] for g in shown)]
    hover = [f"{found.first.name}: {before:.4g} ms", *(_hover(g, model) for g in shown)]
    if len(kept) < len(groups):
        labels.append(f"{len(groups) - len(kept)} others")
        values.append(left)
        ids.append("others")
        hover.append(f"{len(groups) - len(kept)} smaller differences together: {_signed(f'{left:+.4g}')} ms")
    if found.rest and found.first.whole is not None and found.second.whole is not None:
        labels.append("outside layers")
        values.append(found.rest)
        ids.append("rest")
        hover.append(f"outside the layers: {_signed(f'{found.rest:+.4g}')} ms")
    labels.append(found.second.name)
    values.append(after)
    ids.append("after")
    hover.append(f"{found.second.name}: {after:.4g} ms")
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
        f"From {found.first.name} to {found.second.name}: {before:.4g} to {after:.4g} ms, by groups of nodes",
        [trace],
        title=f"{'●' if found.origin == 'measured' else '○'} {unit}, {found.origin}: down is faster",
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


def _layers(groups: list[Group], keys: dict[int, str], model: Model) -> Figure:
    """Without times, what differs is how many layers a group became."""
    shown = [g for g in groups if _more(g)][:_BARS]
    trace = {
        "type": "bar",
        "x": list(range(len(shown))),
        "y": [_more(g) for g in shown],
        "ids": [keys[id(g)] for g in shown],
        "marker": {"color": [WORSE if _more(g) > 0 else BETTER for g in shown]},
        "text": [_signed(f"{_more(g):+d}") for g in shown],
        **_TEXTS,
        "cliponaxis": False,
        "customdata": [_hover(g, model) for g in shown],
        "hovertemplate": "%{customdata}<extra>reported</extra>",
    }
    title = "Layers more or less, by groups of nodes; no times are known of both"
    return figure(
        title,
        [trace],
        title=title,
        xaxis=_names([_label(g, model) for g in shown]),
        yaxis=axis("layers", dtick=1),
    )


def _title(group: Group, model: Model) -> str:
    """Operators and the first node, or what the layers say."""
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    if not nodes:
        return group.title
    ops = [n.op for n in nodes]
    shown = "·".join(ops[:3]) + (f"·+{len(ops) - 3}" if len(ops) > 3 else "")
    return f"{shown} {nodes[0].title}"


def _label(group: Group, model: Model) -> str:
    if group.basis == "moves":
        return "data movement"
    nodes = [model.by_id[n] for n in group.nodes if n in model.by_id]
    text = nodes[0].title if nodes else group.title
    parts = [p for p in text.split("/") if p]
    # The end of a path repeats the operator; what stands before it tells the place.
    if nodes and len(parts) > 1 and parts[-1].rstrip("_0123456789") == nodes[0].op:
        parts.pop()
    short = text
    for count in range(1, len(parts) + 1):
        if len(longer := "/".join(parts[-count:])) <= _LONG or count == 1:
            short = longer
    return short if len(short) <= _LONG else f"…{short[1 - _LONG :]}"


def _hover(group: Group, model: Model) -> str:
    times = (
        f"<br>{group.first.time:.4g} → {group.second.time:.4g} ms ({_signed(f'{group.delta:+.4g}')})"
        if group.delta is not None
        else ""
    )
    return f"{_title(group, model)}<br>{group.cause}{times}<br>{_BASIS[group.basis]}"


def _row(group: Group, key: str, model: Model) -> Row:
    cells: list[str | float | None] = [
        _title(group, model),
        len(group.first.layers),
        len(group.second.layers),
        group.first.time,
        group.second.time,
        group.delta,
        group.cause,
    ]
    return Row(key=key, cells=cells, note=_BASIS[group.basis])


def _links(found: Difference, keys: dict[int, str], scene: Scene) -> dict[str, Link]:
    """Nodes by their places; layers of the engine on screen, which may be another one than was timed."""
    model = scene.model
    mappings = {name: placed(r.mapping, model) for name, r in scene.study.results.items()}
    table: dict[str, Link] = {}
    for group in found.groups:
        places = [p for n in group.nodes if n in model.by_id for p in model.where(n)]
        halves = ((found.second, group.second), (found.first, group.first))
        layers = [_shown(s, h, places, scene, mappings[s.name]) for s, h in halves]
        table[keys[id(group)]] = link(places, *layers)
    return table


def _shown(side: Side, half: Half, places: list[str], scene: Scene, mapping: Any) -> list[str]:
    result = scene.study.results[side.name]
    if side.engine is result.engine:
        return list(half.layers)
    return list(dict.fromkeys(i for p in places for i in mapping.layers(p)))


def _notes(found: Difference) -> list[str]:
    notes = list(found.doubts)
    notes += [
        f'"{s.name}" has no times of its layers, so layers are counted instead.'
        for s in (found.first, found.second)
        if not s.times
    ]
    if not found.timed and not any(map(_more, found.groups)):
        notes.append("Every group of nodes became as many layers in both engines.")
    if any(g.basis == "order" for g in found.groups):
        notes.append(
            "The two engines come from files that share no names of nodes; layers of one kind and shape were set side "
            "by side in their order (inferred). Give both the same model= to compare by nodes."
        )
    names = [s.engine.title for s in (found.first, found.second)]
    if names[0] != names[1]:
        notes.append(f"{found.first.name}: {names[0]}; {found.second.name}: {names[1]}.")
    return notes
