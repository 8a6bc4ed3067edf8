"""Auto-tuning: what was tried for each layer, on this CPU or by the builder, and what the choice is worth."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import (
    Contest,
    Price,
    compute_prices,
    find_contests,
    sum_fastest_times,
    sum_runner_up_losses,
)
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.core.validation import validate_integer
from rtlab.documents.contract import Figure, Setting, Work
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
from rtlab.documents.panel import button, link, make_select, make_slider
from rtlab.errors import ReadError, RunError, VariantError
from rtlab.formulations import FORMULATIONS
from rtlab.formulations.trial import is_clearly_faster, notch

if TYPE_CHECKING:
    from rtlab.core.buildlog import BuildLog
    from rtlab.formulations.trial import Trial, TunedLayer, TunedModel
    from rtlab.relation.mapping import Mapping as NodeMapping


CONTEST_LEAD = (
    "Each dot is a tactic that the builder timed for a layer, by the time of the fastest. Triangles are the "
    "runners-up: near the line the choice hardly matters, far above it forcing another tactic is dear."
)
LAYER_LEAD = "The tactics that the builder timed for this layer, the fastest first, and what each would cost if forced."
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
        "notes": _list_contest_notes(contests),
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


def _list_contest_notes(contests: Sequence[Contest]) -> tuple[str, ...]:
    """What the prices leave out."""
    first = (
        "Times are the builder's own, of single layers. A tactic with other formats than the fastest may need copies "
        "between formats, or save some: these are not counted."
    )
    alone = sum(c.runner_up is None for c in contests)
    rest = f"{pluralize(alone, 'layer')} had one tactic only, so there was no choice."
    return (first, rest) if alone else (first,)


def draw_contest_figures(
    contests: Sequence[Contest], layer: str, nodes: Callable[[str], Iterable[str]]
) -> PanelParts:
    """The figure of all layers, or of one, and what its points stand for beside the rows."""
    if layer:
        return {"figures": [_draw_tactics(next(c for c in contests if c.layer == layer))]}
    priced = {c.layer: compute_prices(c, sum_fastest_times(contests)) for c in contests}
    points = {_price_key(c, p): link(nodes(c.id), [c.id]) for c in contests if c.id for p in priced[c.layer]}
    return {"figures": [_draw_contests(contests, priced)], "links": points}


def _price_key(contest: Contest, price: Price) -> str:
    """The point of a tactic: its rank among those of its layer, for two runners may have tactics of one name."""
    rank = next(i for i, c in enumerate(contest.candidates) if c is price.candidate)
    return f"{contest.layer}|{rank}"


def _draw_contests(contests: Sequence[Contest], priced: dict[str, tuple[Price, ...]]) -> Figure:
    rest: list[Point] = []
    seconds: list[Point] = []
    for position, contest in enumerate(contests, 1):
        mine = [(p, 1 + p.of_layer) for p in priced[contest.layer] if p.of_layer is not None]
        points = [(position, ratio, _price_key(contest, p), _format_hover(contest, p)) for p, ratio in mine]
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


#: Seconds that the button may spend.
_BUDGETS = (10, 30, 60, 120, 300)
_USUAL = 60
#: A day: nobody waits longer.
_LONGEST = 86_400
_HERE, _BUILDER = "here", "builder"
_ONE_WAY = "All layers in short, or one with every way to compute it."
_ONE_TACTIC = "All layers in short, or one with every tactic that was timed."


def analyze_tuning(context: PanelContext) -> BuilderTuning | OrtTuning:
    """What was tried for all layers, or for one: measured on this CPU, or reported by the builder.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
        ReadError: neither model nor log is there.
        RunError: nothing was tuned here yet.
    """
    log, sources = get_build_log(context.result), _sources(context)
    if not sources:
        raise ReadError(_explain_missing_tuning(context))
    if log is not None and _source(context, sources) == _BUILDER:
        layer_contests = _contests(context)
        layer = _choose_layer(context, "contest", {c.layer: c.layer for c in layer_contests})
        return summarize_contests(layer_contests, log, layer)
    if context.study.tuned is None:
        raise RunError(
            f'Cannot show how "{context.model.name}" is computed fastest: nothing was tuned yet. Run '
            "study.tuning.tune() first."
        )
    titles = _title_nodes(context, context.study.tuned)
    layer = _choose_layer(context, "layer", titles)
    return summarize_tuning(context.study.tuned, titles, context.mapping, layer)


def build_tuning_panel(context: PanelContext) -> PanelParts:
    """The same as figures and a table.

    Raises:
        VariantError: a setting names a way of tuning that there is not.
    """
    sources = _sources(context)
    if not sources:
        return PanelParts(work=[_work(context, None)], problem=_explain_missing_tuning(context))
    chosen = _source(context, sources)
    select = make_select("tuned", "Tuned", "Who timed the ways: rtlab here, or the builder.", sources, chosen)
    build_panel = _build_builder_panel if chosen == _BUILDER else _build_cpu_panel
    return build_panel(context, [select] if len(sources) > 1 else [])


def _build_cpu_panel(context: PanelContext, settings: list[Setting]) -> PanelParts:
    cpu_tuning, hint = context.study.tuned, "How long ways may be timed, all layers together."
    budget = make_slider("budget", "Seconds", hint, _BUDGETS, _budget(context))
    work = [_work(context, cpu_tuning)]
    if cpu_tuning is None:
        return PanelParts(settings=[*settings, budget], work=work, notes=[BEFORE])
    titles = _title_nodes(context, cpu_tuning)
    layer = _choose_layer(context, "layer", titles)
    select = make_select("layer", "Layer", _ONE_WAY, {"": "all layers", **titles}, layer)
    return PanelParts(
        result=analyze_tuning(context),
        lead=ONE_LEAD if layer else LEAD,
        settings=[*settings, select, budget],
        work=work,
        **draw_figures(cpu_tuning, titles, context.mapping, layer),
    )


def _build_builder_panel(context: PanelContext, settings: list[Setting]) -> PanelParts:
    layer_contests = _contests(context)
    names = {c.layer: c.layer for c in layer_contests}
    layer = _choose_layer(context, "contest", names)
    select = make_select("contest", "Layer", _ONE_TACTIC, {"": "all layers", **names}, layer)
    return PanelParts(
        result=analyze_tuning(context),
        lead=LAYER_LEAD if layer else CONTEST_LEAD,
        settings=[*settings, select],
        **draw_contest_figures(layer_contests, layer, context.nodes),
    )


def _contests(context: PanelContext) -> tuple[Contest, ...]:
    log = get_build_log(context.result)
    ids = {y.name: y.id for y in reversed(context.result.engine.layers)}
    return tuple(c for c in find_contests(log, ids) if not c.operator) if log else ()


def _sources(context: PanelContext) -> dict[str, str]:
    here = context.study.tuned is not None or context.model.nodes
    sources = {_HERE: "on this CPU, measured"} if here else {}
    return sources | ({_BUILDER: "by the builder, reported"} if _contests(context) else {})


def _source(context: PanelContext, sources: Mapping[str, str]) -> str:
    """What was chosen, else what was measured here, else what is there to be seen."""
    usual = _BUILDER if _BUILDER in sources and context.study.tuned is None else _HERE
    choice = context.settings.get("tuned") or usual
    if choice not in sources:
        raise VariantError(
            f'Cannot show the tuning "{choice}" of variant "{context.result.name}": there is none. Choose one of '
            f"{quote_names(sources)}."
        )
    return choice


def _choose_layer(context: PanelContext, key: str, names: Mapping[str, str]) -> str:
    """The layer of the setting, empty for all: one of another variant may still be set."""
    choice = context.settings.get(key, "")
    return choice if choice in names else ""


def _title_nodes(context: PanelContext, cpu_tuning: TunedModel) -> dict[str, str]:
    places = context.model.places
    return {y.node: places[y.node].node.title if y.node in places else y.node for y in cpu_tuning.layers}


def _work(context: PanelContext, cpu_tuning: TunedModel | None) -> Work:
    budget = _budget(context)
    reason = "" if context.model.nodes else "No ONNX model was given with this engine: give it with model=..."
    again = "Tune again" if cpu_tuning else "Tune on this CPU"
    return button("tune", f"{again} (about {budget} s)", reason, budget_s=str(budget))


def _budget(context: PanelContext) -> int:
    return validate_integer(
        context.get_number("budget", _USUAL), "Cannot tune for", "number of seconds", most=_LONGEST
    )


def _explain_missing_tuning(context: PanelContext) -> str:
    return (
        f'Cannot show how variant "{context.result.name}" was tuned: its files hold no build log that times tactics, '
        "and no ONNX model is there to be tuned here. Give the log of trtexec --verbose as log=..., "
        "or the model as model=..."
    )


LEAD = (
    "Each dot is one way to compute a layer, timed on this CPU; on the line it takes as long as what ONNX Runtime does "
    "by itself, below it less. A ring marks the fastest of each layer. Open marks use one thread."
)
BEFORE = (
    "Nothing was tuned yet. The button above times every way to compute each layer on this CPU, then the whole model "
    "with the fastest of them; it takes about as long as the slider says."
)
ONE_LEAD = (
    "All ways to compute this layer, the fastest first, with the middle half of their times. Those that do not compute "
    "the same, or cannot run, are in the table only, with the reason."
)
_FASTER = "with as many threads, by more than noise, judged by the spread of the runs"
_GAIN = "time of whole inferences in the same run"
#: Told apart by shape as well; readable on light and dark.
_LOOKS = (
    ("#6a3d9a", "circle"), ("#e69f00", "square"), ("#56b4e9", "diamond"), ("#009e73", "triangle-up"),
    ("#cc79a7", "triangle-down"),
)  # fmt: skip


def _measured(title: str, note: str) -> FieldMeta:
    return FieldMeta(title, "ms", "measured", note=note, omit=True)


@dataclasses.dataclass(frozen=True)
class TunedNode:
    """A layer with its fastest formulation, beside what ONNX Runtime does by itself."""

    position: Annotated[int, FieldMeta("No.")]
    node: Annotated[str, FieldMeta(links="nodes")]
    title: Annotated[str, FieldMeta("Layer")]
    fastest: Annotated[str, FieldMeta("Fastest")]
    time: Annotated[float | None, FieldMeta("Time", "ms", "measured")]
    default: Annotated[float | None, FieldMeta("As it is", "ms", "measured")]
    gain: Annotated[float | None, FieldMeta("Gain", "×", "measured")]
    margin: Annotated[float | None, FieldMeta("Margin", "×", "measured")]
    clear: Annotated[str, FieldMeta("More than noise")]
    error: Annotated[float | None, FieldMeta("Error", origin="measured")]
    candidates: Annotated[int, FieldMeta("Candidates")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class TriedForm:
    """A formulation of a layer with a number of threads; ``why`` says what is wrong with one that did not run."""

    formulation: Annotated[str, FieldMeta("Formulation")]
    threads: Annotated[int, FieldMeta("Threads")]
    median: Annotated[float | None, FieldMeta("Median", "ms", "measured")]
    lower: Annotated[float | None, FieldMeta("Lower quartile", "ms", "measured")]
    upper: Annotated[float | None, FieldMeta("Upper quartile", "ms", "measured")]
    by_default: Annotated[float | None, FieldMeta("By the default", "×", "measured")]
    error: Annotated[float | None, FieldMeta("Error", origin="measured")]
    tolerance: Annotated[float, FieldMeta("Allowed")]
    runs: Annotated[int, FieldMeta("Runs")]
    why: Annotated[str, FieldMeta("Note")]
    nodes: Annotated[tuple[str, ...], FieldMeta(links="nodes")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: str


@dataclasses.dataclass(frozen=True)
class OrtTuning:
    """The whole model as it is and tuned, and where that was measured."""

    count: Annotated[int, FieldMeta("Layers tuned", note="{self.distinct} distinct")]
    faster: Annotated[int, FieldMeta("Another way is faster", note=_FASTER)]
    whole: Annotated[float | None, _measured("Whole model, as it is", "{self.how_whole}")]
    best: Annotated[float | None, _measured("Whole model, tuned", "{self.how_best}")]
    gain: Annotated[str | None, FieldMeta("Gain", "", "measured", note=_GAIN, omit=True)]
    device: Annotated[str, FieldMeta("Device", note="{self.source}")]
    distinct: int
    source: str
    how_whole: Annotated[str, UNSENT]
    how_best: Annotated[str, UNSENT]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TunedNodes(OrtTuning):
    """Of all layers the fastest."""

    layers: tuple[TunedNode, ...]


@dataclasses.dataclass(frozen=True)
class TriedForms(OrtTuning):
    """Of one layer all that was tried: those that may win, the fastest first, then the others."""

    forms: tuple[TriedForm, ...]


def summarize_tuning(
    cpu_tuning: TunedModel, titles: Mapping[str, str], mapping: NodeMapping, layer: str
) -> OrtTuning:
    """What was tuned here, of all layers or of one; ``titles`` are those of the nodes."""
    baseline, best = cpu_tuning.default, cpu_tuning.best
    summary_fields: dict[str, Any] = {
        "count": len(cpu_tuning.layers),
        "faster": sum(map(_prefers_other_formulation, cpu_tuning.layers)),
        "whole": baseline and baseline.default,
        "best": best.tuned if best else None,
        "gain": f"{baseline.default / best.tuned:.2f}×" if baseline and best else None,
        "device": cpu_tuning.device or "unknown",
        "distinct": len({y.key for y in cpu_tuning.layers}),
        "source": f"{cpu_tuning.source}, {cpu_tuning.taken:%Y-%m-%d %H:%M} UTC",
        "how_whole": baseline
        and f"{_spread(baseline.default_quartiles)}, {_threads(baseline.threads)}, {baseline.runs} runs",
        "how_best": best
        and f"{_spread(best.tuned_quartiles)}, {_threads(best.threads)}, {len(best.changed)} layers changed",
        "notes": tuple(_notes(cpu_tuning)),
    }
    if not layer:
        nodes = tuple(_node(i, y, titles, mapping) for i, y in enumerate(cpu_tuning.layers, 1))
        return TunedNodes(**summary_fields, layers=nodes)
    one = next(y for y in cpu_tuning.layers if y.node == layer)
    trials = (*one.ranking, *(t for t in one.trials if not t.ok))
    return TriedForms(**summary_fields, forms=tuple(_form(t, one, mapping) for t in trials))


def _prefers_other_formulation(layer: TunedLayer) -> bool:
    """Whether another formulation wins clearly, even beside the model's own with the winner's number of threads."""
    winner, baseline = layer.winner, layer.direct(layer.winner.threads) or layer.default
    is_other = winner.formulation != layer.default.formulation
    return is_other and layer.is_clear and is_clearly_faster(winner, baseline)


def _node(position: int, layer: TunedLayer, titles: Mapping[str, str], mapping: NodeMapping) -> TunedNode:
    winner = layer.winner
    return TunedNode(
        position=position,
        node=layer.node,
        title=titles[layer.node],
        fastest=f"{winner.formulation}, {_threads(winner.threads)}",
        time=winner.median,
        default=layer.default.median,
        gain=layer.gain,
        margin=layer.margin,
        clear="yes" if layer.is_clear else "no",
        error=winner.error,
        candidates=len(layer.trials),
        layers=tuple(mapping.layers(layer.node)),
        note=layer.title + (f"; times of {titles.get(layer.like, layer.like)}" if layer.like else ""),
    )


def _form(trial: Trial, layer: TunedLayer, mapping: NodeMapping) -> TriedForm:
    lower, upper = trial.quartiles or (None, None)
    hows = {f.name: f.how for f in FORMULATIONS["Conv"]}
    default = layer.default.median
    return TriedForm(
        trial.formulation, trial.threads, trial.median, lower, upper,
        trial.median / default if trial.median and default else None, trial.error, trial.tolerance, trial.runs,
        trial.note, (layer.node,), tuple(mapping.layers(layer.node)), hows[trial.formulation],
    )  # fmt: skip


def _notes(cpu_tuning: TunedModel) -> list[str]:
    """How to read the numbers, and whether tuning paid."""
    notes = [_verdict(cpu_tuning), *cpu_tuning.notes]
    notes.append(
        "A layer is timed by itself. In the model its neighbours may be fused with it, such as an activation after a "
        "convolution, and another way to compute it can lose that: so the whole model is timed as well."
    )
    if threads := sum(y.is_clear and not _prefers_other_formulation(y) for y in cpu_tuning.layers):
        notes.append(
            f"{pluralize(threads, 'layer is', 'layers are')} faster with another number of threads alone, which is not "
            "counted as another way: a model runs all of its layers with one number."
        )
    return notes


def _verdict(cpu_tuning: TunedModel) -> str:
    baseline, best = cpu_tuning.default, cpu_tuning.best
    if baseline is None:
        return "The whole model was not compared: tuning was stopped before."
    wrong = [w for w in cpu_tuning.model_trials if not w.ok]
    if best is None or wrong:
        worst = max(w.error for w in wrong)
        return f"With its winners the whole model differs by {worst:.1e}: it is not offered."
    if not any(w.changed for w in cpu_tuning.model_trials):
        return "For no layer another way was faster by more than noise: ONNX Runtime's own choice stands."
    after = notch(best.tuned, best.tuned_quartiles, best.runs)
    before = notch(baseline.default, baseline.default_quartiles, baseline.runs)
    if after[1] < before[0]:
        return "The tuned model is faster than ONNX Runtime's own choice, by more than noise."
    if after[0] > before[1]:
        return "The tuned model is slower as a whole: what its layers won alone, it lost between them."
    return "As a whole the tuned model takes as long as ONNX Runtime's own choice, within noise."


def draw_figures(
    cpu_tuning: TunedModel, titles: Mapping[str, str], mapping: NodeMapping, layer: str
) -> PanelParts:
    """The figures of all layers, or of one, with their unit, and what points stand for beside the rows."""
    if layer:
        one = next(y for y in cpu_tuning.layers if y.node == layer)
        unit = choose_time_unit(max((t.median or 0.0 for t in one.ranking), default=0.0))
        figures = [_draw_candidates(one, titles[layer], *unit)] if one.ranking else []
        return {"figures": figures, "units": {"ms": unit}}
    layers = cpu_tuning.layers
    points = {_key(y, t): link([y.node], mapping.layers(y.node)) for y in layers for t in y.ranking}
    return {"figures": [_draw_layers(cpu_tuning, titles)], "links": points}


def _key(layer: TunedLayer, trial: Trial) -> str:
    return f"{layer.node}|{trial.formulation}|{trial.threads}"


def _draw_layers(cpu_tuning: TunedModel, titles: Mapping[str, str]) -> Figure:
    """One trace for each formulation; the fastest of each layer in a trace above them."""
    points: dict[str, list[tuple[Point, int]]] = {}
    best: list[Point] = []
    for position, layer in enumerate(cpu_tuning.layers, 1):
        base, title = layer.default.median, titles[layer.node]
        for trial in layer.ranking:
            if base and trial.median:
                ratio, hover = trial.median / base, _hover(layer, trial, title)
                dot = (position, ratio, _key(layer, trial), hover)
                points.setdefault(trial.formulation, []).append((dot, trial.threads))
                best += [(position, ratio, layer.node, hover)] if trial is layer.winner else []
    most = max((t.threads for y in cpu_tuning.layers for t in y.trials), default=1)
    data = []
    for (colour, symbol), name in zip(_LOOKS, (f.name for f in FORMULATIONS["Conv"]), strict=True):
        dots = points.get(name, [])
        symbols = [symbol if threads == most else f"{symbol}-open" for _, threads in dots]
        marker = {"color": colour, "size": 7, "symbol": symbols}
        data += [draw_dots(name, [dot for dot, _ in dots], marker)] if dots else []
    ring = {"color": BETTER, "size": 14, "symbol": "circle-open", "line": {"width": 2}}
    data.append(draw_dots("fastest", best, ring, "fastest"))
    ratios = [1.0, *(y for t in data for y in t["y"])]
    return figure(
        f"Times of the candidates of {len(cpu_tuning.layers)} layers, relative to what ONNX Runtime does by itself",
        data,
        height=320,
        xaxis=axis("layer, by its number in the table"),
        yaxis=axis("times the default", **make_log_ticks(min(ratios), max(ratios))),
        showlegend=True,
        legend=legend(),
        shapes=[make_horizontal_line(1, color=OTHER, width=1)],
    )


def _hover(layer: TunedLayer, trial: Trial, title: str) -> str:
    default, median = (format_number(t.median, "ms") for t in (layer.default, trial))
    return (
        f"<b>{html.escape(title)}</b><br>{html.escape(layer.title)}<br>default: {default}<br>{trial.formulation}, "
        f"{_threads(trial.threads)}: {median}, {trial.runs} runs, measured"
    )


def _draw_candidates(layer: TunedLayer, title: str, unit: str, factor: float) -> Figure:
    """The candidates of one layer, the fastest above."""
    trials = layer.ranking
    times = [(t.median or 0.0, *(t.quartiles or (0.0, 0.0))) for t in trials]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [(high - median) * factor for median, _, high in reversed(times)],
        "arrayminus": [(median - low) * factor for median, low, _ in reversed(times)],
        "color": "rgba(128,128,128,0.9)",
    }
    return draw_ranking(
        f"Times of all candidates of {title}, with quartiles",
        [_label(t, layer) for t in trials],
        [median * factor for median, *_ in times],
        [_colour(t, layer) for t in trials],
        f"median, {unit}, measured; lines: quartiles",
        error_x=bars,
        customdata=[f"{t.runs} runs" for t in reversed(trials)],
        hovertemplate=f"%{{y}}: %{{x:.3~g}} {unit}, %{{customdata}}<extra>measured</extra>",
    )


def _label(trial: Trial, layer: TunedLayer) -> str:
    before = "fastest: " if trial is layer.winner else "default: " if trial is layer.default else ""
    return f"{before}{trial.formulation}, {_threads(trial.threads)}"


def _colour(trial: Trial, layer: TunedLayer) -> str:
    if trial is layer.winner:
        return BETTER
    return OTHER if trial is layer.default else FAINT.replace("0.25", "0.7")


def _spread(quartiles: tuple[float, float]) -> str:
    return f"half of them {format_number(quartiles[0], 'ms')} to {format_number(quartiles[1], 'ms')}"


def _threads(count: int) -> str:
    return pluralize(count, "thread")
