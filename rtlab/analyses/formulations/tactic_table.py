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
_LONG = 44


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
    fastest: Annotated[
        float,
        FieldMeta("Fastest of all layers", "ms", "reported", note="one after the other, without copies"),
    ]
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
        return ContestedLayers(
            **summary_fields, layers=tuple(_layer(i, c, engine) for i, c in enumerate(contests, 1))
        )
    contest = next(c for c in contests if c.layer == layer)
    costs: list[Price | None] = [None, *compute_prices(contest, engine)]
    return ContestedTactics(
        **summary_fields,
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
    rest = f"{alone} layer{'s' * (alone != 1)} had one tactic only, so there was no choice."
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
    rest: list[tuple[int, Contest, Price]] = []
    seconds: list[tuple[int, Contest, Price]] = []
    for position, contest in enumerate(contests, 1):
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
        f"Times of the tactics of {len(contests)} layers, relative to the fastest of each",
        data,
        height=320,
        xaxis=axis("layer, by its number in the table", range=[0.3, len(contests) + 0.7]),
        yaxis=axis("times the fastest", **make_log_ticks(1.0, most)),
        showlegend=True,
        legend=legend(),
        shapes=[make_horizontal_line(1, color=BETTER, width=2)],
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
            f"<b>{html.escape(shorten_name(c.layer, _LONG))}</b><br>"
            f"{html.escape(shorten_name(p.candidate.name, _LONG))}<br>"
            f"+{format_number(p.milliseconds, 'ms')} to {format_number(c.winner.tactic.milliseconds, 'ms')}"
            for _, c, p in rows
        ],
        "hovertemplate": "%{text}<extra>reported</extra>",
    }


def _draw_tactics(contest: Contest) -> Figure:
    unit, factor = choose_time_unit(max(c.tactic.milliseconds for c in contest.candidates))
    ranked_candidates = list(reversed(list(enumerate(contest.candidates))))
    return figure(
        f"Times of the tactics of {contest.layer}",
        [
            {
                "type": "bar",
                "orientation": "h",
                # Two runners may have tactics of one name.
                "y": [f"{i + 1}. {html.escape(shorten_name(c.name, _LONG))}" for i, c in ranked_candidates],
                "x": [c.tactic.milliseconds * factor for _, c in ranked_candidates],
                # Those of the rows.
                "ids": [f"row {i}" for i, _ in ranked_candidates],
                "marker": {
                    "color": [MAIN if i else BETTER for i, _ in ranked_candidates],
                    "pattern": {
                        "shape": ["" if i else "/" for i, _ in ranked_candidates],
                        "fillmode": "overlay",
                        "solidity": 0.2,
                    },
                },
                "customdata": [html.escape(c.formats) for _, c in ranked_candidates],
                "hovertemplate": f"%{{y}}: %{{x:.3~g}} {unit}<br>%{{customdata}}<extra>reported</extra>",
            }
        ],
        height=90 + 22 * len(ranked_candidates),
        xaxis=axis(f"{unit}, reported", rangemode="tozero"),
        yaxis=axis(),
    )
