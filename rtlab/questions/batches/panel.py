"""Latency and throughput by batch size."""

from __future__ import annotations

from rtlab.documents.contract import Panel, Row, Work
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import time_unit
from rtlab.documents.panel import column, fact
from rtlab.questions.scene import Question, Scene

_LEAD = (
    "A larger batch keeps more of the processor busy. The rate rises until it is busy enough; from then on only the "
    "latency does."
)
_BEFORE = (
    "Nothing was measured yet. The button above runs this variant with 1, 2, 4 … 64 samples at a time; small models "
    "take seconds, large ones minutes. Then a figure shows samples per second and latency for each batch size."
)


def batches(scene: Scene) -> Panel:
    """The sweep of the variant shown, with the button that measures it."""
    result = scene.result
    fixed = not result.prepared.model.dynamic_batch
    reason = ""
    if result.measured is None or result.recorded:
        reason = "It was not run here: files tell of one batch size only"
    elif fixed:
        reason = "The model has a fixed batch dimension"
    found = scene.study.sweeps.get(result.name)
    work = [
        Work(
            work="sweep",
            label="Measure again" if found else "Measure batch sizes 1 to 64",
            values={},
            enabled=not reason,
            reason=reason,
        )
    ]
    if found is None:
        problem = (
            f"{reason}. Batch sizes are timed of engines that run here, with a dynamic batch."
            if reason
            else ""
        )
        return BATCHES.panel(
            scene,
            work=work,
            problem=problem,
            notes=[] if problem else [_BEFORE],
        )
    sizes = [r.batch for r in found.rows]
    unit, factor = time_unit(max(r.times.median for r in found.rows))
    at = {"x": [str(b) for b in sizes], "mode": "lines+markers"}
    rate = {
        **at,
        "type": "scatter",
        "name": "samples per second",
        "y": [r.rate for r in found.rows],
        "line": {"color": MAIN},
        "marker": {"symbol": "circle", "size": 8},
        "hovertemplate": "batch %{x}: %{y:.4~s} samples/s<extra>measured</extra>",
    }
    latency = {
        **at,
        "type": "scatter",
        "name": f"latency, {unit}",
        "y": [r.times.median * factor for r in found.rows],
        "yaxis": "y2",
        "line": {"color": OTHER, "dash": "dot"},
        "marker": {"symbol": "diamond", "size": 8},
        "error_y": {
            "array": [(r.times.upper - r.times.median) * factor for r in found.rows],
            "arrayminus": [(r.times.median - r.times.lower) * factor for r in found.rows],
            "symmetric": False,
            "thickness": 1,
            "width": 2,
        },
        "hovertemplate": f"batch %{{x}}: %{{y:.4~g}} {unit}<extra>measured</extra>",
    }
    rows = [
        Row(
            key=f"b{r.batch}",
            cells=[
                r.batch,
                r.rate,
                *(
                    t * factor
                    for t in (r.times.median, r.times.lower, r.times.upper, r.times.median / r.batch)
                ),
                r.times.count,
            ],
            note="",
        )
        for r in found.rows
    ]
    best, knee = found.best, found.knee
    return BATCHES.panel(
            scene,
        work=work,
        facts=[
            fact("Highest rate", f"{best.rate:.4g}/s at batch {best.batch}", "measured"),
            fact("Enough", f"batch {knee.batch}", "measured", "The smallest with nine tenths of the highest rate."),
            fact(f"Latency of batch {sizes[0]}", f"{found.rows[0].times.median * factor:.4g} {unit}", "measured"),
        ],
        figures=[
            figure(
                f"Samples per second and latency at batch {sizes[0]} to {sizes[-1]}",
                [rate, latency],
                title="● samples/s   ◆ latency",
                xaxis=axis("batch", type="category", showgrid=False),
                yaxis=axis("samples/s", rangemode="tozero"),
                yaxis2=axis(unit, overlaying="y", side="right", rangemode="tozero", showgrid=False),
            )
        ],
        columns=[
            column("Batch", numeric=True),
            column("Rate", "samples/s", "measured"),
            column("Median", unit, "measured"),
            column("Lower quartile", unit, "measured"),
            column("Upper quartile", unit, "measured"),
            column("Per sample", unit, "measured"),
            column("Runs", numeric=True),
        ],
        rows=rows,
        notes=[n for n in (f"{found.source}, {found.device}, {found.taken:%Y-%m-%d}.", found.note) if n],
    )  # fmt: skip


BATCHES = Question(
    "batches",
    tab="timing",
    label="Batch sizes",
    title="Batch sizes",
    lead=_LEAD,
    drawn=batches,
)
