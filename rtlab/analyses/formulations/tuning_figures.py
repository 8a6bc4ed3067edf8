"""A model tuned on this CPU, as figures and tables: each candidate beside the layer as ONNX Runtime computes it."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.panel_context import PanelParts
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.contract import Figure
from rtlab.documents.figure import (
    BETTER,
    FAINT,
    OTHER,
    axis,
    figure,
    legend,
    make_horizontal_line,
    make_log_ticks,
)
from rtlab.documents.numbers import choose_time_unit, format_number
from rtlab.documents.panel import link
from rtlab.formulations import FORMULATIONS
from rtlab.formulations.trial import is_clearly_faster, notch

if TYPE_CHECKING:
    from rtlab.formulations.trial import ModelTrial, Trial, TunedLayer, TunedModel
    from rtlab.relation.mapping import Mapping as NodeMapping

LEAD = (
    "Each dot is one way to compute a layer, timed on this CPU; on the line it takes as long as what ONNX Runtime does "
    "by itself, below it less. A ring marks the fastest of each layer. Open marks use one thread."
)
BEFORE = (
    (
        "Nothing was tuned yet. The button above times every way to compute each layer on this CPU, then the whole "
        "model with the fastest of them; it takes about as long as the slider says."
    ),
    (
        "Then a figure shows each way beside what ONNX Runtime does by itself, and a table shows the fastest of each "
        "layer, by how much it wins, and whether that is more than noise."
    ),
)
ONE_LEAD = (
    "All ways to compute this layer, the fastest first, with the middle half of their times. Those that do not compute "
    "the same, or cannot run, are in the table only, with the reason."
)
#: Told apart by shape as well; readable on light and dark.
_LOOKS = (
    ("#6a3d9a", "circle"), ("#e69f00", "square"), ("#56b4e9", "diamond"), ("#009e73", "triangle-up"),
    ("#cc79a7", "triangle-down"),
)  # fmt: skip


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
    faster: Annotated[
        int,
        FieldMeta(
            "Another way is faster",
            note="with as many threads, by more than noise, judged by the spread of the runs",
        ),
    ]
    whole: Annotated[
        float | None, FieldMeta("Whole model, as it is", "ms", "measured", note="{self.how_whole}", omit=True)
    ]
    best: Annotated[
        float | None, FieldMeta("Whole model, tuned", "ms", "measured", note="{self.how_best}", omit=True)
    ]
    gain: Annotated[
        str | None,
        FieldMeta("Gain", "", "measured", note="time of whole inferences in the same run", omit=True),
    ]
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


def tuning(cpu_tuning: TunedModel, titles: Mapping[str, str], mapping: NodeMapping, layer: str) -> OrtTuning:
    """What was tuned here, of all layers or of one; ``titles`` are those of the nodes."""
    baseline, best = cpu_tuning.default, cpu_tuning.best
    both = baseline is not None and best is not None
    summary_fields: dict[str, Any] = {
        "count": len(cpu_tuning.layers),
        "faster": sum(map(_prefers_other_formulation, cpu_tuning.layers)),
        "whole": baseline and baseline.default,
        "best": best.tuned if best and both else None,
        "gain": _gain(baseline, best) if baseline and best else None,
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
        return TunedNodes(
            **summary_fields,
            layers=tuple(_node(i, y, titles, mapping) for i, y in enumerate(cpu_tuning.layers, 1)),
        )
    one = next(y for y in cpu_tuning.layers if y.node == layer)
    return TriedForms(**summary_fields, forms=tuple(_form(t, one, mapping) for t in _order_trials(one)))


def _prefers_other_formulation(layer: TunedLayer) -> bool:
    """Whether another formulation wins clearly, even beside the model's own with the winner's number of threads."""
    winner, baseline = layer.winner, layer.direct(layer.winner.threads) or layer.default
    return (
        winner.formulation != layer.default.formulation
        and layer.is_clear
        and is_clearly_faster(winner, baseline)
    )


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


def _order_trials(layer: TunedLayer) -> tuple[Trial, ...]:
    return (*layer.ranking, *(t for t in layer.trials if not t.ok))


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
    if cpu_tuning.disturbed_count > len(cpu_tuning.layers) / 4:
        notes.append(
            f"This machine was busy: in {cpu_tuning.disturbed_count} of {len(cpu_tuning.layers)} layers the slower "
            "runs took over twice as long as the faster. Tune again when nothing else runs, or with more seconds."
        )
    return notes


def _verdict(cpu_tuning: TunedModel) -> str:
    baseline, best = cpu_tuning.default, cpu_tuning.best
    if baseline is None:
        return "The whole model was not compared: tuning was stopped before."
    wrong = [w for w in cpu_tuning.model_trials if not w.ok]
    if best is None or wrong:
        worst = max(wrong, key=lambda w: w.error)
        return f"With its winners the whole model differs by {worst.error:.1e}: it is not offered."
    if not any(w.changed for w in cpu_tuning.model_trials):
        return "For no layer another way was faster by more than noise: ONNX Runtime's own choice stands."
    after = notch(best.tuned, best.tuned_quartiles, best.runs)
    before = notch(baseline.default, baseline.default_quartiles, baseline.runs)
    if after[1] < before[0]:
        return "The tuned model is faster than ONNX Runtime's own choice, by more than noise."
    if after[0] > before[1]:
        return (
            "The tuned model is slower as a whole: what its layers won by themselves, it lost between them."
        )
    return "As a whole the tuned model takes as long as ONNX Runtime's own choice, within noise."


def draw_figures(
    cpu_tuning: TunedModel, titles: Mapping[str, str], mapping: NodeMapping, layer: str
) -> PanelParts:
    """The figures of all layers, or of one, with their unit, and what points stand for beside the rows."""
    if layer:
        one = next(y for y in cpu_tuning.layers if y.node == layer)
        unit = choose_time_unit(max((t.median or 0.0 for t in one.ranking), default=0.0))
        return {
            "figures": [_draw_candidates(one, titles[layer], *unit)] if one.ranking else [],
            "units": {"ms": unit},
        }
    points = {
        _key(y, t): link([y.node], mapping.layers(y.node)) for y in cpu_tuning.layers for t in y.ranking
    }
    return {"figures": [_draw_layers(cpu_tuning, titles), *_draw_model_times(cpu_tuning)], "links": points}


def _key(layer: TunedLayer, trial: Trial) -> str:
    return f"{layer.node}|{trial.formulation}|{trial.threads}"


def _draw_layers(cpu_tuning: TunedModel, titles: Mapping[str, str]) -> Figure:
    """One trace for each formulation; the fastest of each layer in a trace above them."""
    looks = dict(zip((f.name for f in FORMULATIONS["Conv"]), _LOOKS, strict=True))
    points: dict[str, list[tuple[int, TunedLayer, Trial, float]]] = {}
    best: list[tuple[int, TunedLayer, Trial, float]] = []
    for position, layer in enumerate(cpu_tuning.layers, 1):
        base = layer.default.median
        if not base:
            continue
        for trial in layer.trials:
            if trial.ok and trial.median:
                points.setdefault(trial.formulation, []).append((position, layer, trial, trial.median / base))
        winner = layer.winner
        if winner.median:
            best.append((position, layer, winner, winner.median / base))
    heads = {y.node: _head(y, titles) for y in cpu_tuning.layers}
    most = max((t.threads for y in cpu_tuning.layers for t in y.trials), default=1)
    kind = "scattergl" if sum(map(len, points.values())) > 2000 else "scatter"
    data: list[Any] = []
    for name, rows in points.items():
        colour, symbol = looks[name]
        data.append(
            {
                "type": kind,
                "mode": "markers",
                "name": name,
                "x": [p for p, *_ in rows],
                "y": [ratio for *_, ratio in rows],
                # Points of one id are one point to Plotly, and each number of threads has a point.
                "ids": [_key(y, t) for _, y, t, _ in rows],
                "marker": {
                    "color": colour,
                    "size": 7,
                    "symbol": [symbol if t.threads == most else f"{symbol}-open" for _, _, t, _ in rows],
                },
                "text": [_hover(heads[y.node], t) for _, y, t, _ in rows],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    data.append(
        {
            "type": kind,
            "mode": "markers",
            "name": "fastest",
            "x": [p for p, *_ in best],
            "y": [ratio for *_, ratio in best],
            "ids": [y.node for _, y, *_ in best],
            "marker": {"color": BETTER, "size": 14, "symbol": "circle-open", "line": {"width": 2}},
            "text": [_hover(heads[y.node], t) for _, y, t, _ in best],
            "hovertemplate": "%{text}<extra>fastest</extra>",
        }
    )
    return figure(
        f"Times of the candidates of {len(cpu_tuning.layers)} layers, relative to what ONNX Runtime does by itself",
        data,
        height=320,
        xaxis=axis("layer, by its number in the table"),
        yaxis=axis("times the default", **_ratios(y for t in data for y in t["y"])),
        showlegend=True,
        legend=legend(),
        shapes=[make_horizontal_line(1, color=OTHER, width=1)],
    )


def _hover(head: str, trial: Trial) -> str:
    median = format_number(trial.median, "ms")
    return f"{head}{trial.formulation}, {_threads(trial.threads)}: {median}, {trial.runs} runs, measured"


def _head(layer: TunedLayer, titles: Mapping[str, str]) -> str:
    default = format_number(layer.default.median, "ms")
    return f"<b>{html.escape(titles[layer.node])}</b><br>{html.escape(layer.title)}<br>default: {default}<br>"


def _draw_model_times(cpu_tuning: TunedModel) -> list[Figure]:
    """Whole models beside each other, with quartiles."""
    if not cpu_tuning.model_trials:
        return []
    names = [_threads(w.threads) for w in cpu_tuning.model_trials]
    unit, factor = choose_time_unit(max(w.default for w in cpu_tuning.model_trials))
    rows: tuple[tuple[str, str, str, list[tuple[float, tuple[float, float]]]], ...] = (
        (
            "as it is",
            OTHER,
            "",
            [_times(w.default, w.default_quartiles, factor) for w in cpu_tuning.model_trials],
        ),
        ("tuned", BETTER, "/", [_times(w.tuned, w.tuned_quartiles, factor) for w in cpu_tuning.model_trials]),
    )
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": names,
            "x": [median for median, _ in times],
            "marker": {
                "color": colour,
                "pattern": {"shape": pattern, "fillmode": "overlay", "solidity": 0.2},
            },
            "error_x": _bars(times),
            "hovertemplate": f"{label}, %{{y}}: %{{x:.3~g}} {unit}<extra>measured</extra>",
        }
        for label, colour, pattern, times in rows
    ]
    return [
        figure(
            "Whole inferences as ONNX Runtime runs the model, and with the fastest formulations in it",
            data,
            height=90 + 50 * len(names),
            xaxis=axis(f"whole inference, {unit}, measured", rangemode="tozero"),
            yaxis=axis(),
            showlegend=True,
            legend=legend(),
        )
    ]


def _times(median: float, quartiles: tuple[float, float], factor: float) -> tuple[float, tuple[float, float]]:
    return median * factor, (quartiles[0] * factor, quartiles[1] * factor)


def _bars(times: list[tuple[float, tuple[float, float]]]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - median for median, (_, high) in times],
        "arrayminus": [median - low for median, (low, _) in times],
        "color": "rgba(128,128,128,0.9)",
    }


def _draw_candidates(layer: TunedLayer, title: str, unit: str, factor: float) -> Figure:
    """The candidates of one layer, the fastest above."""
    trials = list(reversed(layer.ranking))
    times = [_times(t.median or 0.0, t.quartiles or (0.0, 0.0), factor) for t in trials]
    return figure(
        f"Times of all candidates of {title}, with quartiles",
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": [_label(t, layer) for t in trials],
                "x": [median for median, _ in times],
                # Those of the rows.
                "ids": [f"row {i}" for i in reversed(range(len(trials)))],
                "error_x": _bars(times),
                "marker": {
                    "color": [_colour(t, layer) for t in trials],
                    "pattern": {
                        "shape": ["/" if t is layer.winner else "" for t in trials],
                        "fillmode": "overlay",
                        "solidity": 0.2,
                    },
                },
                "customdata": [f"{t.runs} runs" for t in trials],
                "hovertemplate": f"%{{y}}: %{{x:.3~g}} {unit}, %{{customdata}}<extra>measured</extra>",
            }
        ],
        height=90 + 22 * len(trials),
        xaxis=axis(f"median, {unit}, measured; lines: quartiles", rangemode="tozero"),
        yaxis=axis(),
    )


def _label(trial: Trial, layer: TunedLayer) -> str:
    before = "fastest: " if trial is layer.winner else "default: " if trial is layer.default else ""
    return f"{before}{trial.formulation}, {_threads(trial.threads)}"


def _colour(trial: Trial, layer: TunedLayer) -> str:
    if trial is layer.winner:
        return BETTER
    return OTHER if trial is layer.default else FAINT.replace("0.25", "0.7")


def _ratios(values: Iterable[float]) -> dict[str, Any]:
    ratios = [1.0, *values]
    return make_log_ticks(min(ratios), max(ratios))


def _gain(baseline: ModelTrial, best: ModelTrial) -> str:
    return f"{baseline.default / best.tuned:.2f}×" if best.tuned else "—"


def _spread(quartiles: tuple[float, float]) -> str:
    return f"half of them {format_number(quartiles[0], 'ms')} to {format_number(quartiles[1], 'ms')}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"
