"""Whole inferences one by one: their distribution, and those that stand apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from rtlab import questions
from rtlab.documents.contract import Fact, Panel, Row
from rtlab.documents.figure import FAINT, MAIN, WORSE, across, axis, figure, logarithmic
from rtlab.documents.numbers import time_unit
from rtlab.documents.panel import column, fact
from rtlab.errors import RunError
from rtlab.questions.samples.spread import WORDS, Spread, spread
from rtlab.questions.scene import Question, Scene

if TYPE_CHECKING:
    from rtlab.questions.timing.times import Timing

_LEAD = "One number hides how times scatter. Each point is one whole inference; diamonds stand apart from the others."
#: Points that the page draws one by one; of more every n-th is shown, and all that stand apart.
_MOST = 4_000
#: From this ratio of the most to the median on, times are shown on a logarithmic scale.
_WIDE = 5


def _layers(times: Timing, unit: str, factor: float) -> list[Fact]:
    """What the layers sum up to, and the difference to the whole inference, which no layer accounts for."""
    if not times.layers or times.total is None:
        return []
    rest = times.total - times.summed
    note = (
        "The time of whole inferences less the sum of their layers: gaps between layers, or, below zero, what it costs "
        f"to time each layer. The sum is {times.ratio or 0:.2f} of the latency."
    )
    return [
        fact("Sum of the layers", f"{times.summed * factor:.4g} {unit}", "measured"),
        fact("Outside the layers", f"{rest * factor:+.4g} {unit}".replace("-", "−"), "measured", note),
    ]


def timed(scene: Scene) -> Spread:
    """How whole inferences scatter.

    Raises:
        RunError: no single times are known.
    """
    times = questions.timing.of(scene.result)
    found = None if times is None else spread(times.samples)
    if found is None:
        advice = (
            "Read it together with the file of trtexec --exportTimes (times=)."
            if scene.result.recorded
            else "Let study.run() time it on the CPU, or read the engine together with the file of trtexec "
            "--exportTimes (times=)."
        )
        raise RunError(f"No times of single inferences are known of this variant. {advice}")
    return found


def samples(scene: Scene) -> Panel:
    """Times of whole inferences in their order and as a histogram.

    Raises:
        RunError: none are known.
    """
    found, times = timed(scene), cast("Timing", questions.timing.of(scene.result))
    unit, factor = time_unit(found.median)
    values = times.samples * factor
    apart = {o.index: o for o in found.outliers}
    step = -(-len(values) // _MOST)
    plain = [i for i in range(0, len(values), step) if i not in apart]
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
        "x": [i + 1 for i in apart],
        "y": values[list(apart)].tolist(),
        "marker": {"color": WORSE, "size": 8, "symbol": "diamond"},
        "customdata": [WORDS[o.reason] for o in found.outliers],
        "hovertemplate": f"inference %{{x}}: %{{y:.4~g}} {unit}<br>%{{customdata}} (inferred)<extra>measured</extra>",
    }
    # One interruption may take a hundred times as long as the rest.
    wide = found.least > 0 and found.most > _WIDE * found.median
    bins = min(60, max(8, round(2 * len(values) ** 0.5)))
    scale = np.geomspace if wide else np.linspace
    counts, edges = np.histogram(
        values, bins=scale(found.least * factor, found.most * factor * (1 + 1e-9), bins + 1)
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
    middle = found.median * factor
    return SAMPLES.panel(
        scene,
        facts=[
            fact("Median", f"{middle:.4g} {unit}", "measured"),
            fact("Quartiles", f"{found.lower * factor:.4g} to {found.upper * factor:.4g} {unit}", "measured"),
            fact("Least, most", f"{found.least * factor:.4g}, {found.most * factor:.4g} {unit}", "measured"),
            *(
                fact(f"p{p}", f"{v * factor:.4g} {unit}", "measured")
                for p, v in times.percentiles.items()
                if p != 50
            ),
            *_layers(times, unit, factor),
            fact(
                "Runs",
                f"{found.count:,}",
                None,
                f"After {times.warmup} untimed ones." if times.warmup else "",
            ),
            fact(
                "Stand apart",
                f"{len(found.outliers)}",
                None,
                "Beyond 1.5 interquartile ranges (Tukey's fences).",
            ),
        ],
        figures=[
            figure(
                f"{found.count} inferences, median {middle:.4g} {unit}, {len(found.outliers)} stand apart",
                [steady, strange, bars] if apart else [steady, bars],
                title=f"● {unit} of each inference, in order" + ("   ◆ stands apart" if apart else ""),
                xaxis=axis("inference", domain=[0, 0.72], showgrid=False),
                xaxis2=axis("how many", domain=[0.76, 1], showgrid=False, nticks=3, tickangle=0),
                yaxis=axis(
                    f"{unit}, logarithmic" if wide else unit,
                    **(logarithmic(found.least * factor, found.most * factor) if wide else {}),
                ),
                shapes=[across(middle, color=FAINT, width=2, dash="dash")],
            )
        ],
        # Of one unit with the figure, however long what stands apart took.
        columns=[
            column("Inference", numeric=True),
            column("Time", unit, "measured"),
            column("Likely reason (inferred)"),
        ],
        rows=[
            Row(key=f"s{o.index}", cells=[o.number, o.time * factor, o.words], note="")
            for o in found.outliers
        ],
        notes=[f"{times.origin[:1].upper()}{times.origin[1:]}.", *found.sentences()],
    )


SAMPLES = Question(
    "samples",
    tab="timing",
    label="Inferences",
    title="Whole inferences",
    lead=_LEAD,
    noun=timed,
    drawn=samples,
)
