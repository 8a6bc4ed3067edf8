"""The task's score with its uncertainty, and the samples that flipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.score import (
    FlippedSample,
    compare_scores,
    find_flipped_samples,
    find_reference,
    format_difference,
    format_p_value,
    format_score,
    parse_sample_numbers,
)
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference
from rtlab.core.facts import Score, VariantResult
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta
from rtlab.core.stage import Stage
from rtlab.documents.contract import Figure, Work
from rtlab.documents.figure import axis, figure
from rtlab.documents.panel import button, make_text_field
from rtlab.errors import RunError, VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.task import Task

#: Pictures in a row and rows of them; pixels of each at most, along one side.
_ACROSS, _ROWS, _PIXELS = 8, 2, 48
#: The least side of what is taken for a picture.
_SMALLEST = 4
#: Room below a picture for its words, and between two, as a share of its side.
_BELOW, _BETWEEN = 0.5, 0.12


@dataclasses.dataclass(frozen=True)
class TaskScore:
    """The task's score of a variant with its 95 % interval, and the paired difference to a baseline.

    ``value`` and both intervals are in ``unit``; ``difference`` is the variant's score less the baseline's, and
    ``verdict`` says whether that is worse or better, or whether the samples cannot tell; empty without a baseline.
    ``lost`` samples are right in the baseline alone, ``won`` in the variant alone, ``p`` is McNemar's; None where the
    metric counts no hits.
    """

    variant: str
    baseline: str
    metric: str
    unit: str
    value: float
    interval: Interval | None
    told: Annotated[str, FieldMeta("{self.metric}", origin="measured", note="{self.how}")]
    samples: Annotated[int, FieldMeta("Samples")]
    compared: Annotated[str | None, FieldMeta("Difference", origin="measured", omit=True, note="{self.by}")]
    flips: Annotated[str | None, FieldMeta("Flipped", origin="measured", omit=True)]
    verdict: Literal["worse", "better", "cannot tell", ""]
    difference: float | None
    difference_interval: Interval | None
    lost: int | None
    won: int | None
    p: float | None
    how: str
    by: str
    flipped: tuple[FlippedSample, ...]
    notes: tuple[str, ...]


def analyze_score(context: PanelContext) -> TaskScore:
    """The score of a variant, beside that of the baseline or of the first other variant in fp32.

    Raises:
        RunError: there is no score.
    """
    facts, task = context.result, context.study.scored_task
    score = facts.score
    if score is None or score.tally is None or task is None:
        raise RunError(_missing(facts, task))
    baseline = context.baseline if context.baseline is not None else find_reference(context.study, facts)
    comparison = compare_scores(facts, baseline) if baseline is not None else None
    variant_titles, interval = get_variant_titles(context.study), score.interval
    other, flipped = "", tuple[FlippedSample, ...]()
    if baseline is not None and comparison is not None:
        other = variant_titles.get(baseline.name, baseline.name)
        numbers = context.study.selected_samples
        flipped = find_flipped_samples(facts, baseline, task)
        # Under the numbers that they have among all samples.
        flipped = tuple(dataclasses.replace(f, sample=numbers[f.sample]) if numbers else f for f in flipped)
    flips = None
    if comparison is not None and comparison.lost is not None:
        test = f"; McNemar's exact test {format_p_value(comparison.p)}" if comparison.p is not None else ""
        flips = f"{comparison.lost} lost, {comparison.won} won{test}"
    return TaskScore(
        variant=variant_titles.get(facts.name, facts.name),
        baseline=other,
        metric=score.name,
        unit=score.unit,
        value=score.value,
        interval=interval,
        told=format_score(score),
        samples=score.samples,
        compared=format_difference(comparison, score, other, tested=False) if comparison else None,
        flips=flips,
        verdict=_verdict(comparison, score),
        difference=comparison.difference if comparison else None,
        difference_interval=comparison.interval if comparison else None,
        lost=comparison.lost if comparison else None,
        won=comparison.won if comparison else None,
        p=comparison.p if comparison else None,
        how=f"95 % interval: {interval.method}." if interval else "",
        by=f"95 % interval: {comparison.interval.method}." if comparison and comparison.interval else "",
        flipped=flipped,
        notes=tuple(_notes(task, score, baseline, comparison)),
    )


def _missing(facts: VariantResult, task: Task | None) -> str:
    """Why there is no score."""
    prefix = f'Cannot show the score of "{facts.name}": '
    if task is None:
        return (
            f"{prefix}the study has no task. Give Study(model, task=rtlab.Task(data, labels)); without labels the "
            "answers of fp32 count."
        )
    if facts.recorded:
        return (
            f"{prefix}it was read from files, which contain none. "
            "Add a variant of the same precision to score one here."
        )
    standing = next((s.text for s in facts.stages.values() if s.stage is Stage.SCORED), "")
    why = f"{standing}." if standing else f'it was not scored. Run study.measure("{facts.name}").'
    return f"{prefix}{why}"


def _verdict(
    comparison: PairedDifference | None, score: Score
) -> Literal["worse", "better", "cannot tell", ""]:
    if comparison is None or comparison.interval is None:
        return ""
    if not comparison.sure:
        return "cannot tell"
    return "better" if (comparison.difference > 0) == score.higher else "worse"


def _notes(
    task: Task, score: Score, baseline: VariantResult | None, comparison: PairedDifference | None
) -> Iterator[str]:
    """What a reader must know of these numbers."""
    if task.reference:
        yield (
            "No labels were given: they are the model's own answers in fp32, so that this says how far the variant "
            "agrees with fp32, and not how often it is right."
        )
    tally, before = score.tally, baseline.score if baseline is not None and comparison is not None else None
    if score.samples < FEWEST and not (tally is not None and tally.picked):
        yield (
            f"{pluralize(score.samples, 'sample')} are too few to conclude anything about the task: give at least "
            f"{FEWEST}, better some hundreds."
        )
    if before is not None and before.tally is not None and baseline is not None and before.tally.broken:
        yield (
            f"The baseline itself is broken: its output has NaN in {before.tally.broken} of {before.samples} samples, "
            "which count as wrong. No variant can be judged by it there."
        )
    if tally is not None and tally.broken:
        yield f"The output has NaN in {tally.broken} of {score.samples} samples, which count as wrong."
    if tally is not None and tally.picked:
        yield (
            f"Only {pluralize(score.samples, 'chosen sample')}: picked for what they show, they tell nothing of "
            "others, so that there are no intervals."
        )
    elif score.interval is None and tally is not None:
        why = "one sample has no spread" if score.samples == 1 else "the metric gives none"
        yield f"There is no interval: {why}."
    if tally is not None and tally.amounts is None:
        yield (
            "The metric gives one number for all samples, so that it is unknown which of them changed. Give "
            "rtlab.Metric(name, each=...) with a value for each sample."
        )
    elif comparison is None:
        yield (
            "Compared with nothing: others are compared with this variant, or none in fp32 has a score of this metric. "
            "Show another variant, or add one in fp32."
        )


def build_score_panel(context: PanelContext) -> PanelParts:
    """The score, pictures of the samples that flipped, and buttons that show them alone in every panel."""
    task_score, chosen = analyze_score(context), context.study.selected_samples
    text, hint = context.settings.get("samples", ""), "numbers, such as 3, 17-20"
    field = make_text_field("samples", "Samples", "Errors and score of these samples alone.", text, hint)
    return PanelParts(
        result=task_score,
        settings=[] if chosen else [field],
        work=[_button(context, task_score)],
        figures=_draw_pictures(context, task_score),
    )


def _button(context: PanelContext, task_score: TaskScore) -> Work:
    """Shows some samples alone in every panel, or all again."""
    if context.study.selected_samples:
        return button("only", "All samples again", samples="")
    text, why = context.settings.get("samples", "").strip(), ""
    try:
        numbers = parse_sample_numbers(text) if text else tuple(f.sample for f in task_score.flipped)
    except VariantError as error:
        numbers, why = (), str(error)
    why = why or ("" if numbers else "No sample is listed: write numbers of samples")
    which = "these samples" if not numbers else f"these {len(numbers)} samples"
    title = f"Show only {'this sample' if len(numbers) == 1 else which}"
    return button("only", title, why, samples=",".join(map(str, numbers)))


def _draw_pictures(context: PanelContext, task_score: TaskScore) -> list[Figure]:
    """The first samples of the list, where the model reads pictures or other arrays of two dimensions."""
    task, numbers = context.study.scored_task, context.study.selected_samples
    samples = task_score.flipped[: _ACROSS * _ROWS]
    if task is None or not samples:
        return []
    rows = [numbers.index(f.sample) if numbers else f.sample for f in samples]
    for array in task.data.arrays.values():
        tiles = [_read_picture(np.asarray(array[i])) for i in rows if i < len(array)]
        pictures = [tile for tile in tiles if tile is not None]
        if len(pictures) == len(samples) and len({t.shape for t in pictures}) == 1:
            return [_draw_sheet(pictures, task_score, samples)]
    return []


def _read_picture(sample: NDArray[Any]) -> NDArray[np.float64] | None:
    """A sample as brightness from 0 to 1, of shape ``(H, W)``; None where it is no picture."""
    if sample.dtype.kind not in "biuf":
        return None
    row = sample.squeeze()
    if row.ndim == 3 and 3 in {row.shape[0], row.shape[-1]}:
        row = row.mean(axis=0 if row.shape[0] == 3 else -1)
    if row.ndim != 2 or min(row.shape) < _SMALLEST:
        return None
    step = -(-max(row.shape) // _PIXELS)
    part = np.nan_to_num(row[::step, ::step].astype(np.float64))
    bright: NDArray[np.float64] = (part - part.min()) / (np.ptp(part) or 1)
    return bright


def _draw_sheet(
    tiles: Sequence[NDArray[np.float64]], task_score: TaskScore, samples: Sequence[FlippedSample]
) -> Figure:
    """All of them on one sheet in grey, with both answers below each."""
    before, after = task_score.baseline, task_score.variant
    high, wide = tiles[0].shape
    across = min(_ACROSS, len(tiles))
    columns, rows = round(wide * (1 + _BETWEEN)), round(high * (1 + _BELOW))
    sheet = np.full((-(-len(tiles) // across) * rows, across * columns), None)
    words, dots = [], []
    for k, (tile, flip) in enumerate(zip(tiles, samples, strict=True)):
        x, y = (k % across) * columns, (k // across) * rows
        sheet[y : y + high, x : x + wide] = np.round(tile, 2)
        caption = {"text": _format_caption(flip), "showarrow": False, "yanchor": "top", "font": {"size": 11}}
        words.append({"x": x + wide / 2, "y": y + 1.02 * high, **caption})
        label = f"<br>label {flip.label}" if flip.label else ""
        hover = f"sample {flip.sample}{label}<br>{before}: {flip.before}<br>{after}: {flip.after}"
        dots.append((x + wide / 2, y + high / 2, hover))
    scale = {"zmin": 0, "zmax": 1, "colorscale": [[0, "#000"], [1, "#fff"]], "showscale": False}
    x_at, y_at, hovers = ([*column] for column in zip(*dots, strict=True))
    bare: dict[str, Any] = {"showgrid": False, "showticklabels": False, "ticks": "", "fixedrange": True}
    return figure(
        f"The first {len(tiles)} listed samples, with the answers of {before} and {after}",
        [
            {"type": "heatmap", "x0": 0.5, "y0": 0.5, "z": sheet.tolist(), "hoverinfo": "skip", **scale},
            {
                "type": "scatter",
                "mode": "markers",
                "x": x_at,
                "y": y_at,
                "marker": {"size": 24, "opacity": 0},
                "hovertext": hovers,
                "hovertemplate": "%{hovertext}<extra></extra>",
            },
        ],
        title=f"The first {len(tiles)}: what {before} says, and {after}",
        annotations=words,
        xaxis=axis(**bare, range=[-1, sheet.shape[1]], constrain="domain"),
        yaxis=axis(**bare, range=[len(sheet), -1], scaleanchor="x", constrain="domain"),
    )


def _format_caption(flip: FlippedSample) -> str:
    """Both answers, as short as a picture is wide."""
    before, after = (text if len(text) <= 8 else f"{text[:7]}…" for text in (flip.before, flip.after))
    return f"{before} → {after}"
