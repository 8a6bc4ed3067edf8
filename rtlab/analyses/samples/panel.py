"""Whole inferences one by one: their distribution, and those that stand apart."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.samples.spread import WORDS, Outlier, Spread, compute_spread
from rtlab.analyses.timing import compute_timing
from rtlab.analyses.timing.times import Timing
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.figure import FAINT, MAIN, WORSE, axis, figure, make_horizontal_line, make_log_ticks
from rtlab.documents.numbers import choose_time_unit
from rtlab.errors import RunError

#: Points that the page draws one by one; of more every n-th is shown, and all that stand apart.
_MOST = 4_000
#: From this ratio of the most to the median on, times are shown on a logarithmic scale.
_WIDE = 5


_REST = (
    "The time of whole inferences less the sum of their layers: gaps between layers, or, below zero, what it costs to "
    "time each layer. The sum is {self.ratio:.2f} of the latency."
)
_TUKEY = "Beyond 1.5 interquartile ranges (Tukey's fences)."
_P90, _P95, _P99 = (FieldMeta(f"p{percent}", origin="measured", omit=True) for percent in (90, 95, 99))


@dataclasses.dataclass(frozen=True)
class Inferences:
    """How whole inferences scatter, and what their layers sum up to, in words of one unit; None where nobody knows.

    ``milliseconds`` are least, lower quartile, median, upper quartile and most.
    """

    median: Annotated[str, FieldMeta("Median", origin="measured")]
    quartiles: Annotated[str, FieldMeta("Quartiles", origin="measured")]
    ends: Annotated[str, FieldMeta("Least, most", origin="measured")]
    p90: Annotated[str | None, _P90]
    p95: Annotated[str | None, _P95]
    p99: Annotated[str | None, _P99]
    summed: Annotated[str | None, FieldMeta("Sum of the layers", origin="measured", omit=True)]
    rest: Annotated[str | None, FieldMeta("Outside the layers", origin="measured", note=_REST, omit=True)]
    count: Annotated[int, FieldMeta("Runs", note="{self.untimed}")]
    apart: Annotated[int, FieldMeta("Stand apart", note=_TUKEY)]
    milliseconds: tuple[float, float, float, float, float]
    ratio: float | None
    warmup: int
    untimed: Annotated[str, UNSENT]
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...]


def analyze_samples(context: PanelContext) -> Inferences:
    """How whole inferences scatter.

    Raises:
        RunError: no single times are known.
    """
    spread, times = _get_spread(context)
    unit, factor = choose_time_unit(spread.median)
    least, lower, median, upper, most = spread.least, spread.lower, spread.median, spread.upper, spread.most
    tails = {p: f"{v * factor:.4g} {unit}" for p, v in times.percentiles.items()}
    rest = None if times.ratio is None or times.total is None else times.total - times.summed
    return Inferences(
        median=f"{median * factor:.4g} {unit}",
        quartiles=f"{lower * factor:.4g} to {upper * factor:.4g} {unit}",
        ends=f"{least * factor:.4g}, {most * factor:.4g} {unit}",
        p90=tails.get(90),
        p95=tails.get(95),
        p99=tails.get(99),
        summed=None if rest is None else f"{times.summed * factor:.4g} {unit}",
        rest=None if rest is None else f"{rest * factor:+.4g} {unit}".replace("-", "−"),
        count=spread.count,
        apart=len(spread.outliers),
        milliseconds=(least, lower, median, upper, most),
        ratio=times.ratio,
        warmup=times.warmup,
        untimed=f"After {times.warmup} untimed ones." if times.warmup else "",
        outliers=spread.outliers,
        notes=(f"{times.origin[:1].upper()}{times.origin[1:]}.", *spread.sentences()),
    )


def _get_spread(context: PanelContext) -> tuple[Spread, Timing]:
    times, name = compute_timing(context.result), context.result.name
    spread = None if times is None else compute_spread(times.samples)
    if times is not None and spread is not None:
        return spread, times
    if context.result.recorded:
        advice = "Read it together with the file of trtexec --exportTimes (times=)."
    else:
        advice = f"Time it more often: study.measure({name!r}), or Measure more in the Explorer."
    raise RunError(f'Cannot show how inferences of "{name}" scatter: fewer than two were timed. {advice}')


def build_samples_panel(context: PanelContext) -> PanelParts:
    """Times of whole inferences in their order and as a histogram.

    Raises:
        RunError: none are known.
    """
    spread, times = _get_spread(context)
    unit, factor = choose_time_unit(spread.median)
    values, middle = times.samples * factor, spread.median * factor
    least, most = spread.least * factor, spread.most * factor
    reasons = {o.index: WORDS[o.reason] for o in spread.outliers}
    step = -(-len(values) // _MOST)
    plain = [i for i in range(0, len(values), step) if i not in reasons]
    point = {"type": "scattergl" if len(values) > 1_000 else "scatter", "mode": "markers"}
    hover = f"inference %{{x}}: %{{y:.4~g}} {unit}"
    steady = {
        **point,
        "x": [i + 1 for i in plain],
        "y": values[plain].tolist(),
        "marker": {"color": MAIN, "size": 5, "opacity": 0.7},
        "hovertemplate": f"{hover}<extra>measured</extra>",
    }
    strange = {
        **point,
        "x": [i + 1 for i in reasons],
        "y": values[[*reasons]].tolist(),
        "marker": {"color": WORSE, "size": 8, "symbol": "diamond"},
        "customdata": [*reasons.values()],
        "hovertemplate": f"{hover}<br>%{{customdata}} (inferred)<extra>measured</extra>",
    }
    # One interruption may take a hundred times as long as the rest.
    wide = least > 0 and most > _WIDE * middle
    bins = min(60, max(8, round(2 * len(values) ** 0.5)))
    edges = (np.geomspace if wide else np.linspace)(least, most * (1 + 1e-9), bins + 1)
    counts, _ = np.histogram(values, bins=edges)
    bars = {
        "type": "scatter",
        "mode": "lines",
        # Steps along the edges of the bins, from nothing to nothing.
        "x": [0, *np.repeat(counts, 2).tolist(), 0],
        "y": np.repeat(edges, 2).tolist(),
        "fill": "tozerox",
        "line": {"color": MAIN, "width": 1},
        "xaxis": "x2",
        "hovertemplate": f"%{{x}} inferences around %{{y:.4~g}} {unit}<extra>measured</extra>",
    }
    scale = axis(f"{unit}, logarithmic", **make_log_ticks(least, most)) if wide else axis(unit)
    drawn = figure(
        f"{spread.count} inferences, median {middle:.4g} {unit}, {len(reasons)} stand apart",
        [steady, strange, bars] if reasons else [steady, bars],
        title=f"● {unit} of each inference, in order" + ("   ◆ stands apart" if reasons else ""),
        xaxis=axis("inference", domain=[0, 0.72], showgrid=False),
        xaxis2=axis("how many", domain=[0.76, 1], showgrid=False, nticks=3, tickangle=0),
        yaxis=scale,
        shapes=[make_horizontal_line(middle, color=FAINT, width=2, dash="dash")],
    )
    # Of one unit with the figure, however long what stands apart took.
    return PanelParts(result=analyze_samples(context), units={"ms": (unit, factor)}, figures=[drawn])
