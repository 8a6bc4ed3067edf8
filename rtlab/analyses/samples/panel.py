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


def _percentile(percent: int) -> FieldMeta:
    return FieldMeta(f"p{percent}", origin="measured", omit=True)


@dataclasses.dataclass(frozen=True)
class Inferences:
    """How whole inferences scatter, and what their layers sum up to, in words of one unit; None where nobody knows.

    ``milliseconds`` are least, lower quartile, median, upper quartile and most.
    """

    median: Annotated[str, FieldMeta("Median", origin="measured")]
    quartiles: Annotated[str, FieldMeta("Quartiles", origin="measured")]
    ends: Annotated[str, FieldMeta("Least, most", origin="measured")]
    p90: Annotated[str | None, _percentile(90)]
    p95: Annotated[str | None, _percentile(95)]
    p99: Annotated[str | None, _percentile(99)]
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


def summarize_inferences(distribution: Spread, times: Timing) -> Inferences:
    """Times of whole inferences as their panel and their table tell them."""
    unit, factor = choose_time_unit(distribution.median)
    tails = {p: f"{v * factor:.4g} {unit}" for p, v in times.percentiles.items()}
    rest = None if times.ratio is None or times.total is None else times.total - times.summed
    return Inferences(
        median=f"{distribution.median * factor:.4g} {unit}",
        quartiles=f"{distribution.lower * factor:.4g} to {distribution.upper * factor:.4g} {unit}",
        ends=f"{distribution.least * factor:.4g}, {distribution.most * factor:.4g} {unit}",
        p90=tails.get(90),
        p95=tails.get(95),
        p99=tails.get(99),
        summed=None if rest is None else f"{times.summed * factor:.4g} {unit}",
        rest=None if rest is None else f"{rest * factor:+.4g} {unit}".replace("-", "−"),
        count=distribution.count,
        apart=len(distribution.outliers),
        milliseconds=(
            distribution.least,
            distribution.lower,
            distribution.median,
            distribution.upper,
            distribution.most,
        ),
        ratio=times.ratio,
        warmup=times.warmup,
        untimed=f"After {times.warmup} untimed ones." if times.warmup else "",
        outliers=distribution.outliers,
        notes=(f"{times.origin[:1].upper()}{times.origin[1:]}.", *distribution.sentences()),
    )


def _get_spread(context: PanelContext) -> tuple[Spread, Timing]:
    times = compute_timing(context.result)
    distribution = None if times is None else compute_spread(times.samples)
    if times is None or distribution is None:
        if times is not None and times.samples.size == 1 and not context.result.recorded:
            raise RunError(
                f'Cannot show how inferences of "{context.result.name}" scatter: it ran once, and one run is no '
                f"distribution. Time it more often: study.measure({context.result.name!r}), or Measure more in the "
                "Explorer."
            )
        advice = (
            "Read it together with the file of trtexec --exportTimes (times=)."
            if context.result.recorded
            else "Let study.run() time it on the CPU, or read the engine together with the file of trtexec "
            "--exportTimes (times=)."
        )
        raise RunError(f"No times of single inferences are known of this variant. {advice}")
    return distribution, times


def analyze_samples(context: PanelContext) -> Inferences:
    """How whole inferences scatter.

    Raises:
        RunError: no single times are known.
    """
    return summarize_inferences(*_get_spread(context))


def build_samples_panel(context: PanelContext) -> PanelParts:
    """Times of whole inferences in their order and as a histogram.

    Raises:
        RunError: none are known.
    """
    distribution, times = _get_spread(context)
    unit, factor = choose_time_unit(distribution.median)
    values = times.samples * factor
    outliers_by_index = {o.index: o for o in distribution.outliers}
    step = -(-len(values) // _MOST)
    plain = [i for i in range(0, len(values), step) if i not in outliers_by_index]
    point = {"type": "scattergl" if len(values) > 1_000 else "scatter", "mode": "markers"}
    steady = {
        **point,
        "x": [i + 1 for i in plain],
        "y": values[plain].tolist(),
        "marker": {"color": MAIN, "size": 5, "opacity": 0.7},
        "hovertemplate": f"inference %{{x}}: %{{y:.4~g}} {unit}<extra>measured</extra>",
    }
    strange = {
        **point,
        "x": [i + 1 for i in outliers_by_index],
        "y": values[list(outliers_by_index)].tolist(),
        "marker": {"color": WORSE, "size": 8, "symbol": "diamond"},
        "customdata": [WORDS[o.reason] for o in distribution.outliers],
        "hovertemplate": f"inference %{{x}}: %{{y:.4~g}} {unit}<br>%{{customdata}} (inferred)<extra>measured</extra>",
    }
    # One interruption may take a hundred times as long as the rest.
    wide = distribution.least > 0 and distribution.most > _WIDE * distribution.median
    bins = min(60, max(8, round(2 * len(values) ** 0.5)))
    scale = np.geomspace if wide else np.linspace
    counts, edges = np.histogram(
        values, bins=scale(distribution.least * factor, distribution.most * factor * (1 + 1e-9), bins + 1)
    )
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
    middle = distribution.median * factor
    return PanelParts(
        result=summarize_inferences(distribution, times),
        # Of one unit with the figure, however long what stands apart took.
        units={"ms": (unit, factor)},
        figures=[
            figure(
                f"{distribution.count} inferences, median {middle:.4g} {unit}, "
                f"{len(distribution.outliers)} stand apart",
                [steady, strange, bars] if outliers_by_index else [steady, bars],
                title=f"● {unit} of each inference, in order"
                + ("   ◆ stands apart" if outliers_by_index else ""),
                xaxis=axis("inference", domain=[0, 0.72], showgrid=False),
                xaxis2=axis("how many", domain=[0.76, 1], showgrid=False, nticks=3, tickangle=0),
                yaxis=axis(
                    f"{unit}, logarithmic" if wide else unit,
                    **(
                        make_log_ticks(distribution.least * factor, distribution.most * factor)
                        if wide
                        else {}
                    ),
                ),
                shapes=[make_horizontal_line(middle, color=FAINT, width=2, dash="dash")],
            )
        ],
    )
