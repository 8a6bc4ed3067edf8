"""The builder's contests of tactics, as figures and tables: who won, by how much, and what forcing another costs."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.build.tactics import (
    Contest,
    Price,
    compute_prices,
    sum_fastest_times,
    sum_runner_up_losses,
)
from rtlab.analyses.panel_context import PanelParts
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta
from rtlab.documents.contract import Figure
from rtlab.documents.figure import (
    BETTER,
    FAINT,
    MAIN,
    OTHER,
    axis,
    figure,
    legend,
    make_horizontal_line,
    make_log_ticks,
)
from rtlab.documents.numbers import choose_time_unit, format_number, shorten_name
from rtlab.documents.panel import link

if TYPE_CHECKING:
    from rtlab.core.buildlog import BuildLog

LEAD = (
    "Each dot is a tactic that the builder timed for a layer, by the time of the fastest. Triangles are the "
    "runners-up: near the line the choice hardly matters, far above it forcing another tactic is dear."
)
ONE_LEAD = "The tactics that the builder timed for this layer, the fastest first, and what each would cost if forced."
_FASTEST = "one after the other, without copies"
_LONG = 44
_HATCHED = {"fillmode": "overlay", "solidity": 0.2}
#: The number of a layer, a ratio of times, the id of the point, and the text beside it.
Point = tuple[int, float, str, str]


@dataclasses.dataclass(frozen=True)
class ContestedLayer:
    """A layer for which the builder timed tactics: the fastest, and what the second would cost in its place.

    ``layers`` is the engine's layer of this name, empty where none bears it.
    """

    position: Annotated[int, FieldMeta("No.")]
    layer: Annotated[str, FieldMeta("Layer")]
    winner: Annotated[str, FieldMeta("Winner")]
    time: Annotated[float, FieldMeta("Time", "ms", "reported")]
    runner_up: Annotated[str, FieldMeta("Runner-up")]
    margin: Annotated[float | None, FieldMeta("Margin", "×", "reported")]
    costs: Annotated[float | None, FieldMeta("Forcing it costs", "ms", "reported")]
    of_layer: Annotated[float | None, FieldMeta("Of the layer", "%", "reported")]
    of_engine: Annotated[float | None, FieldMeta("Of the engine", "%", "reported")]
    same_formats: Annotated[str, FieldMeta("Same formats")]
    count: Annotated[int, FieldMeta("Timed")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class ContestedTactic:
    """A tactic of a layer, and what it would cost in place of the fastest."""

    tactic: Annotated[str, FieldMeta("Tactic")]
    runner: Annotated[str, FieldMeta("Runner")]
    id: Annotated[str, FieldMeta("Id")]
    time: Annotated[float, FieldMeta("Time", "ms", "reported")]
    costs: Annotated[float | None, FieldMeta("Forcing it costs", "ms", "reported")]
    of_layer: Annotated[float | None, FieldMeta("Of the layer", "%", "reported")]
    of_engine: Annotated[float | None, FieldMeta("Of the engine", "%", "reported")]
    formats: Annotated[str, FieldMeta("Formats")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class BuilderTuning:
    """What the builder timed, and what the second best would cost altogether."""

    count: Annotated[int, FieldMeta("Layers tuned")]
    timed: Annotated[int, FieldMeta("Tactics timed")]
    fastest: Annotated[float, FieldMeta("Fastest of all layers", "ms", "reported", note=_FASTEST)]
    second: Annotated[str, FieldMeta("All runners-up instead", origin="reported", note="copies not counted")]
    device: Annotated[str, FieldMeta("Device", note="TensorRT {self.version}")]
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


def summarize_contests(contests: Sequence[Contest], log: BuildLog, layer: str) -> BuilderTuning:
    """What the builder timed for all layers, or for one."""
    engine, more = sum_fastest_times(contests), sum_runner_up_losses(contests)
    share = f" ({more / engine:.0%})" if engine > 0 else ""
    summary_fields: dict[str, Any] = {
        "count": len(contests),
        "timed": sum(c.count for c in contests),
        "fastest": engine,
        "second": f"+{format_number(more, 'ms')}{share}",
        "device": log.device or (str(log.target) if log.target.sm else "not recorded"),
        "version": log.version or "(version not reported)",
        "notes": _notes(contests),
    }
    if not layer:
        rows = tuple(_layer(i, c, engine) for i, c in enumerate(contests, 1))
        return ContestedLayers(**summary_fields, layers=rows)
    contest = next(c for c in contests if c.layer == layer)
    costs: list[tuple[float | None, float | None, float | None]] = [(None, None, None)]
    costs += [(p.milliseconds, p.of_layer, p.of_engine) for p in compute_prices(contest, engine)]
    return ContestedTactics(
        **summary_fields,
        tactics=tuple(
            ContestedTactic(
                c.name, c.runner, c.tactic.tactic, c.tactic.milliseconds, *cost, c.formats, _ids(contest),
                "from a timing cache" if c.cached else "",
            )
            for c, cost in zip(contest.candidates, costs, strict=True)
        ),
    )  # fmt: skip


def _ids(contest: Contest) -> tuple[str, ...]:
    return (contest.id,) if contest.id else ()


def _layer(position: int, contest: Contest, engine: float) -> ContestedLayer:
    winner, second = contest.winner, next(iter(compute_prices(contest, engine)), None)
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


def _notes(contests: Sequence[Contest]) -> tuple[str, ...]:
    """What the prices leave out."""
    first = (
        "Times are the builder's own, of single layers. A tactic with other formats than the fastest may need copies "
        "between formats, or save some: these are not counted."
    )
    alone = sum(c.runner_up is None for c in contests)
    rest = f"{pluralize(alone, 'layer')} had one tactic only, so there was no choice."
    return (first, rest) if alone else (first,)


def draw_figures(
    contests: Sequence[Contest], layer: str, nodes: Callable[[str], Iterable[str]]
) -> PanelParts:
    """The figure of all layers, or of one, and what its points stand for beside the rows."""
    if layer:
        return {"figures": [_draw_tactics(next(c for c in contests if c.layer == layer))]}
    priced = {c.layer: compute_prices(c, sum_fastest_times(contests)) for c in contests}
    points = {_key(c, p): link(nodes(c.id), [c.id]) for c in contests if c.id for p in priced[c.layer]}
    return {"figures": [_draw_contests(contests, priced)], "links": points}


def _key(contest: Contest, price: Price) -> str:
    """The point of a tactic: its rank among those of its layer, for two runners may have tactics of one name."""
    rank = next(i for i, c in enumerate(contest.candidates) if c is price.candidate)
    return f"{contest.layer}|{rank}"


def _draw_contests(contests: Sequence[Contest], priced: dict[str, tuple[Price, ...]]) -> Figure:
    rest: list[Point] = []
    seconds: list[Point] = []
    for position, contest in enumerate(contests, 1):
        mine = [(p, 1 + p.of_layer) for p in priced[contest.layer] if p.of_layer is not None]
        points = [(position, ratio, _key(contest, p), _format_hover(contest, p)) for p, ratio in mine]
        seconds += points[:1]
        rest += points[1:]
    grey = FAINT.replace("0.25", "0.8")
    data = [
        draw_dots("other tactics", rest, {"color": grey, "size": 5, "symbol": "circle"}, "reported"),
        draw_dots("runner-up", seconds, {"color": OTHER, "size": 10, "symbol": "triangle-up"}, "reported"),
    ]
    return figure(
        f"Times of the tactics of {len(contests)} layers, relative to the fastest of each",
        data,
        height=320,
        xaxis=axis("layer, by its number in the table", range=[0.3, len(contests) + 0.7]),
        yaxis=axis(
            "times the fastest", **make_log_ticks(1.0, max((y for t in data for y in t["y"]), default=1.0))
        ),
        showlegend=True,
        legend=legend(),
        shapes=[make_horizontal_line(1, color=BETTER, width=2)],
    )


def _format_hover(contest: Contest, price: Price) -> str:
    names = (html.escape(shorten_name(n, _LONG)) for n in (contest.layer, price.candidate.name))
    fastest = format_number(contest.winner.tactic.milliseconds, "ms")
    return "<b>{}</b><br>{}<br>".format(*names) + f"+{format_number(price.milliseconds, 'ms')} to {fastest}"


def draw_dots(name: str, points: Sequence[Point], marker: dict[str, Any], extra: str = "") -> dict[str, Any]:
    """Points above the numbers of their layers; ``extra`` is the side text of their hover."""
    return {
        "type": "scattergl" if len(points) > 1000 else "scatter",
        "mode": "markers",
        "name": name,
        "x": [p[0] for p in points],
        "y": [p[1] for p in points],
        # Points of one id are one point to Plotly, and a layer has many of them.
        "ids": [p[2] for p in points],
        "marker": marker,
        "text": [p[3] for p in points],
        "hovertemplate": f"%{{text}}<extra>{extra}</extra>",
    }


def draw_ranking(
    alt_text: str,
    labels: Sequence[str],
    times: Sequence[float],
    colours: Sequence[str],
    title: str,
    **more: Any,
) -> Figure:
    """A bar for each row of the table, the first row above; ``more`` are keys of the trace."""
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": labels[::-1],
        "x": times[::-1],
        "ids": [f"row {i}" for i in range(len(labels))][::-1],
        "marker": {
            "color": colours[::-1],
            "pattern": {"shape": ["/" if c == BETTER else "" for c in colours][::-1], **_HATCHED},
        },
    }
    height = 90 + 22 * len(labels)
    return figure(alt_text, [bars | more], height=height, xaxis=axis(title, rangemode="tozero"), yaxis=axis())


def _draw_tactics(contest: Contest) -> Figure:
    unit, factor = choose_time_unit(max(c.tactic.milliseconds for c in contest.candidates))
    names = (html.escape(shorten_name(c.name, _LONG)) for c in contest.candidates)
    return draw_ranking(
        f"Times of the tactics of {contest.layer}",
        # Two runners may have tactics of one name.
        [f"{i}. {name}" for i, name in enumerate(names, 1)],
        [c.tactic.milliseconds * factor for c in contest.candidates],
        [MAIN if i else BETTER for i in range(len(contest.candidates))],
        f"{unit}, reported",
        customdata=[html.escape(c.formats) for c in reversed(contest.candidates)],
        hovertemplate=f"%{{y}}: %{{x:.3~g}} {unit}<br>%{{customdata}}<extra>reported</extra>",
    )
