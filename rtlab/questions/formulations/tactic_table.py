"""The builder's contests of tactics, as figures and tables: who won, by how much, and what forcing another costs."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rtlab.documents.contract import Fact, Figure, Link, Row
from rtlab.documents.figure import BETTER, FAINT, MAIN, OTHER, across, axis, figure, legend, logarithmic
from rtlab.documents.numbers import number, shortened, time_unit
from rtlab.documents.panel import column, fact, link
from rtlab.questions.build.tactics import Contest, Price, prices, second_best, total

if TYPE_CHECKING:
    from rtlab.core.buildlog import BuildLog
    from rtlab.core.engine import Engine
    from rtlab.relation.mapping import Mapping as NodeMapping

LEAD = (
    "Each dot is a tactic that the builder timed for a layer, by the time of the fastest. Triangles are the "
    "runners-up: near the line the choice hardly matters, far above it forcing another tactic is dear."
)
ONE_LEAD = "The tactics that the builder timed for this layer, the fastest first, and what each would cost if forced."
_LONG = 44


def facts(found: Sequence[Contest], log: BuildLog | None) -> list[Fact]:
    """How many were timed, and what the second best would cost altogether."""
    engine, more = total(found), second_best(found)
    share = f" ({more / engine:.0%})" if engine > 0 else ""
    told = [
        fact("Layers tuned", f"{len(found):,}"),
        fact("Tactics timed", f"{sum(c.count for c in found):,}"),
        fact(
            "Fastest of all layers", number(engine, "ms"), "reported", "one after the other, without copies"
        ),
        fact("All runners-up instead", f"+{number(more, 'ms')}{share}", "reported", "copies not counted"),
    ]
    if log is not None:
        device = log.device or (str(log.target) if log.target.sm else "not recorded")
        told.append(fact("Device", device, note=f"TensorRT {log.version or '(version not told)'}"))
    return told


def notes(found: Sequence[Contest]) -> list[str]:
    """What the prices leave out."""
    first = (
        "Times are the builder's own, of single layers. A tactic with other formats than the fastest may need copies "
        "between formats, or save some: these are not counted."
    )
    told = [first]
    alone = sum(c.runner_up is None for c in found)
    if alone:
        told.append(f"{alone} layer{'s' * (alone != 1)} had one tactic only, so there was no choice.")
    return told


def parts(found: Sequence[Contest], engine: Engine, mapping: NodeMapping, layer: str) -> dict[str, Any]:
    """Figures, columns, rows and links: of all layers, or of one."""
    ids = {y.name: y.id for y in reversed(engine.layers)}
    whole = total(found)
    priced = {c.layer: prices(c, whole) for c in found}
    unit, factor = time_unit(max(_longest(c, priced[c.layer][:1]) for c in found))
    if layer:
        contest = next(c for c in found if c.layer == layer)
        return _one(contest, priced[layer], _link(ids.get(layer), mapping))
    return {
        "figures": [_all(found, priced)],
        "columns": [
            column("No.", numeric=True),
            column("Layer"),
            column("Winner"),
            column("Time", unit, "reported"),
            column("Runner-up"),
            column("Margin", "×", "reported"),
            column("Forcing it costs", unit, "reported"),
            column("Of the layer", "%", "reported"),
            column("Of the engine", "%", "reported"),
            column("Same formats"),
            column("Timed", numeric=True),
        ],
        "rows": [_row(i, c, priced[c.layer], factor) for i, c in enumerate(found, 1)],
        "links": {
            key: stands
            for c in found
            for stands in [_link(ids.get(c.layer), mapping)]
            for key in (c.layer, *(_key(c, p) for p in priced[c.layer]))
        },
    }


def _key(contest: Contest, price: Price) -> str:
    """The point of a tactic: its rank among those of its layer, for two runners may have tactics of one name."""
    rank = next(i for i, c in enumerate(contest.candidates) if c is price.candidate)
    return f"{contest.layer}|{rank}"


def _link(layer: str | None, mapping: NodeMapping) -> Link:
    return link(mapping.nodes(layer), [layer]) if layer else link()


def _longest(contest: Contest, priced: Sequence[Price]) -> float:
    """Milliseconds of the winner, or what the dearest of some others costs."""
    return max(contest.winner.tactic.milliseconds, *(p.milliseconds for p in priced), 0.0)


def _row(position: int, contest: Contest, priced: Sequence[Price], factor: float) -> Row:
    winner, second = contest.winner, priced[0] if priced else None
    return Row(
        key=contest.layer,
        cells=[
            position,
            contest.layer,
            winner.name,
            winner.tactic.milliseconds * factor,
            second.candidate.name if second else "",
            contest.margin,
            second.milliseconds * factor if second else None,
            _percent(second.of_layer) if second else None,
            _percent(second.of_engine) if second else None,
            ("no" if second.reformats else "yes") if second else "",
            contest.count,
        ],
        note=winner.formats,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _all(found: Sequence[Contest], priced: dict[str, tuple[Price, ...]]) -> Figure:
    rest: list[tuple[int, Contest, Price]] = []
    seconds: list[tuple[int, Contest, Price]] = []
    for position, contest in enumerate(found, 1):
        mine = [p for p in priced[contest.layer] if p.of_layer is not None]
        seconds += [(position, contest, p) for p in mine[:1]]
        rest += [(position, contest, p) for p in mine[1:]]
    kind = "scattergl" if len(rest) + len(seconds) > 2000 else "scatter"
    grey = FAINT.replace("0.25", "0.8")
    data = [
        _trace(kind, "other tactics", rest, {"color": grey, "size": 5, "symbol": "circle"}),
        _trace(kind, "runner-up", seconds, {"color": OTHER, "size": 10, "symbol": "triangle-up"}),
    ]
    most = max((y for t in data for y in t["y"]), default=1.0)
    return figure(
        f"Times of the tactics of {len(found)} layers, relative to the fastest of each",
        data,
        height=320,
        xaxis=axis("layer, by its number in the table", range=[0.3, len(found) + 0.7]),
        yaxis=axis("times the fastest", **logarithmic(1.0, most)),
        showlegend=True,
        legend=legend(),
        shapes=[across(1, color=BETTER, width=2)],
    )


def _trace(
    kind: str, name: str, rows: Sequence[tuple[int, Contest, Price]], marker: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": kind,
        "mode": "markers",
        "name": name,
        "x": [position for position, *_ in rows],
        "y": [1 + (p.of_layer or 0.0) for *_, p in rows],
        # Points of one id are one point to Plotly, and a layer has many tactics.
        "ids": [_key(c, p) for _, c, p in rows],
        "marker": marker,
        "text": [
            f"<b>{html.escape(shortened(c.layer, _LONG))}</b><br>{html.escape(shortened(p.candidate.name, _LONG))}<br>"
            f"+{number(p.milliseconds, 'ms')} to {number(c.winner.tactic.milliseconds, 'ms')}"
            for _, c, p in rows
        ],
        "hovertemplate": "%{text}<extra>reported</extra>",
    }


def _one(contest: Contest, priced: Sequence[Price], stands: Link) -> dict[str, Any]:
    costs: list[Price | None] = [None, *priced]
    unit, factor = time_unit(max(c.tactic.milliseconds for c in contest.candidates))
    keys = [f"{contest.layer}|{i}" for i in range(len(contest.candidates))]
    shown = list(reversed(list(zip(keys, contest.candidates, strict=True))))
    drawn = figure(
        f"Times of the tactics of {contest.layer}",
        [
            {
                "type": "bar",
                "orientation": "h",
                # Two runners may have tactics of one name.
                "y": [f"{_rank(key)}. {html.escape(shortened(c.name, _LONG))}" for key, c in shown],
                "x": [c.tactic.milliseconds * factor for _, c in shown],
                "ids": [key for key, _ in shown],
                "marker": {
                    "color": [BETTER if key == keys[0] else MAIN for key, _ in shown],
                    "pattern": {
                        "shape": ["/" if key == keys[0] else "" for key, _ in shown],
                        "fillmode": "overlay",
                        "solidity": 0.2,
                    },
                },
                "customdata": [html.escape(c.formats) for _, c in shown],
                "hovertemplate": f"%{{y}}: %{{x:.3~g}} {unit}<br>%{{customdata}}<extra>reported</extra>",
            }
        ],
        height=90 + 22 * len(shown),
        xaxis=axis(f"{unit}, reported", rangemode="tozero"),
        yaxis=axis(),
    )
    return {
        "figures": [drawn],
        "columns": [
            column("Tactic"),
            column("Runner"),
            column("Id"),
            column("Time", unit, "reported"),
            column("Forcing it costs", unit, "reported"),
            column("Of the layer", "%", "reported"),
            column("Of the engine", "%", "reported"),
            column("Formats"),
        ],
        "rows": [
            Row(
                key=key,
                cells=[
                    c.name,
                    c.runner,
                    c.tactic.tactic,
                    c.tactic.milliseconds * factor,
                    price.milliseconds * factor if price else None,
                    _percent(price.of_layer) if price else None,
                    _percent(price.of_engine) if price else None,
                    c.formats,
                ],
                note="from a timing cache" if c.cached else "",
            )
            for key, c, price in zip(keys, contest.candidates, costs, strict=True)
        ],
        "links": dict.fromkeys(keys, stands),
    }


def _rank(key: str) -> int:
    return int(key.rpartition("|")[2]) + 1
