"""The builder's contests of tactics, as figures and tables: who won, by how much, and what forcing another costs."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.core.schema import Meaning
from rtlab.documents.contract import Figure
from rtlab.documents.figure import BETTER, FAINT, MAIN, OTHER, across, axis, figure, legend, logarithmic
from rtlab.documents.numbers import number, shortened, time_unit
from rtlab.documents.panel import link
from rtlab.questions.build.tactics import Contest, Price, prices, second_best, total

if TYPE_CHECKING:
    from rtlab.core.buildlog import BuildLog

LEAD = (
    "Each dot is a tactic that the builder timed for a layer, by the time of the fastest. Triangles are the "
    "runners-up: near the line the choice hardly matters, far above it forcing another tactic is dear."
)
ONE_LEAD = "The tactics that the builder timed for this layer, the fastest first, and what each would cost if forced."
_LONG = 44


@dataclasses.dataclass(frozen=True)
class ContestedLayer:
    """A layer for which the builder timed tactics: the fastest, and what the second would cost in its place.

    ``layers`` is the engine's layer of this name, empty where none bears it.
    """

    position: Annotated[int, Meaning("No.")]
    layer: Annotated[str, Meaning("Layer")]
    winner: Annotated[str, Meaning("Winner")]
    time: Annotated[float, Meaning("Time", "ms", "reported")]
    runner_up: Annotated[str, Meaning("Runner-up")]
    margin: Annotated[float | None, Meaning("Margin", "×", "reported")]
    costs: Annotated[float | None, Meaning("Forcing it costs", "ms", "reported")]
    of_layer: Annotated[float | None, Meaning("Of the layer", "%", "reported")]
    of_engine: Annotated[float | None, Meaning("Of the engine", "%", "reported")]
    same_formats: Annotated[str, Meaning("Same formats")]
    count: Annotated[int, Meaning("Timed")]
    layers: Annotated[tuple[str, ...], Meaning(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class ContestedTactic:
    """A tactic of a layer, and what it would cost in place of the fastest."""

    tactic: Annotated[str, Meaning("Tactic")]
    runner: Annotated[str, Meaning("Runner")]
    id: Annotated[str, Meaning("Id")]
    time: Annotated[float, Meaning("Time", "ms", "reported")]
    costs: Annotated[float | None, Meaning("Forcing it costs", "ms", "reported")]
    of_layer: Annotated[float | None, Meaning("Of the layer", "%", "reported")]
    of_engine: Annotated[float | None, Meaning("Of the engine", "%", "reported")]
    formats: Annotated[str, Meaning("Formats")]
    layers: Annotated[tuple[str, ...], Meaning(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class BuilderTuning:
    """What the builder timed, and what the second best would cost altogether."""

    count: Annotated[int, Meaning("Layers tuned")]
    timed: Annotated[int, Meaning("Tactics timed")]
    fastest: Annotated[
        float, Meaning("Fastest of all layers", "ms", "reported", note="one after the other, without copies")
    ]
    second: Annotated[str, Meaning("All runners-up instead", origin="reported", note="copies not counted")]
    device: Annotated[str, Meaning("Device", note="TensorRT {self.version}")]
    version: str
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ContestedLayers(BuilderTuning):
    """Of all layers the winners."""

    layers: tuple[ContestedLayer, ...]


@dataclasses.dataclass(frozen=True)
class ContestedTactics(BuilderTuning):
    """Of one layer all tactics, the fastest first."""

    tactics: tuple[ContestedTactic, ...]


def contested(found: Sequence[Contest], log: BuildLog, layer: str) -> BuilderTuning:
    """What the builder timed for all layers, or for one."""
    engine, more = total(found), second_best(found)
    share = f" ({more / engine:.0%})" if engine > 0 else ""
    told: dict[str, Any] = {
        "count": len(found),
        "timed": sum(c.count for c in found),
        "fastest": engine,
        "second": f"+{number(more, 'ms')}{share}",
        "device": log.device or (str(log.target) if log.target.sm else "not recorded"),
        "version": log.version or "(version not told)",
        "notes": _notes(found),
    }
    if not layer:
        return ContestedLayers(**told, layers=tuple(_layer(i, c, engine) for i, c in enumerate(found, 1)))
    contest = next(c for c in found if c.layer == layer)
    costs: list[Price | None] = [None, *prices(contest, engine)]
    return ContestedTactics(
        **told,
        tactics=tuple(
            ContestedTactic(
                c.name, c.runner, c.tactic.tactic, c.tactic.milliseconds, price.milliseconds if price else None,
                price.of_layer if price else None, price.of_engine if price else None, c.formats, _ids(contest),
                "from a timing cache" if c.cached else "",
            )
            for c, price in zip(contest.candidates, costs, strict=True)
        ),
    )  # fmt: skip


def _ids(contest: Contest) -> tuple[str, ...]:
    return (contest.id,) if contest.id else ()


def _layer(position: int, contest: Contest, engine: float) -> ContestedLayer:
    winner, second = contest.winner, next(iter(prices(contest, engine)), None)
    return ContestedLayer(
        position=position,
        layer=contest.layer,
        winner=winner.name,
        time=winner.tactic.milliseconds,
        runner_up=second.candidate.name if second else "",
        margin=contest.margin,
        costs=second.milliseconds if second else None,
        of_layer=second.of_layer if second else None,
        of_engine=second.of_engine if second else None,
        same_formats=("no" if second.reformats else "yes") if second else "",
        count=contest.count,
        layers=_ids(contest),
        note=winner.formats,
    )


def _notes(found: Sequence[Contest]) -> tuple[str, ...]:
    """What the prices leave out."""
    first = (
        "Times are the builder's own, of single layers. A tactic with other formats than the fastest may need copies "
        "between formats, or save some: these are not counted."
    )
    alone = sum(c.runner_up is None for c in found)
    rest = f"{alone} layer{'s' * (alone != 1)} had one tactic only, so there was no choice."
    return (first, rest) if alone else (first,)


def drawn(found: Sequence[Contest], layer: str, nodes: Callable[[str], Iterable[str]]) -> dict[str, Any]:
    """The figure of all layers, or of one, and what its points stand for beside the rows."""
    if layer:
        return {"figures": [_one(next(c for c in found if c.layer == layer))]}
    priced = {c.layer: prices(c, total(found)) for c in found}
    points = {_key(c, p): link(nodes(c.id), [c.id]) for c in found if c.id for p in priced[c.layer]}
    return {"figures": [_all(found, priced)], "links": points}


def _key(contest: Contest, price: Price) -> str:
    """The point of a tactic: its rank among those of its layer, for two runners may have tactics of one name."""
    rank = next(i for i, c in enumerate(contest.candidates) if c is price.candidate)
    return f"{contest.layer}|{rank}"


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


def _one(contest: Contest) -> Figure:
    unit, factor = time_unit(max(c.tactic.milliseconds for c in contest.candidates))
    shown = list(reversed(list(enumerate(contest.candidates))))
    return figure(
        f"Times of the tactics of {contest.layer}",
        [
            {
                "type": "bar",
                "orientation": "h",
                # Two runners may have tactics of one name.
                "y": [f"{i + 1}. {html.escape(shortened(c.name, _LONG))}" for i, c in shown],
                "x": [c.tactic.milliseconds * factor for _, c in shown],
                # Those of the rows.
                "ids": [f"row {i}" for i, _ in shown],
                "marker": {
                    "color": [MAIN if i else BETTER for i, _ in shown],
                    "pattern": {
                        "shape": ["" if i else "/" for i, _ in shown],
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
