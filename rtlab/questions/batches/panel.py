"""Latency and throughput by batch size."""

from __future__ import annotations

from rtlab.documents.contract import Panel
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import time_unit
from rtlab.documents.panel import button
from rtlab.errors import RunError
from rtlab.questions.batches.sweeps import Sweep
from rtlab.questions.scene import Question, Scene

_LEAD = (
    "A larger batch keeps more of the processor busy. The rate rises until it is busy enough; from then on only the "
    "latency does."
)
_BEFORE = (
    "Nothing was measured yet. The button above runs this variant with 1, 2, 4 … 64 samples at a time; small models "
    "take seconds, large ones minutes. Then a figure shows samples per second and latency for each batch size."
)


def swept(scene: Scene) -> Sweep:
    """What was timed at several batch sizes.

    Raises:
        RunError: nothing was.
    """
    found = scene.study.sweeps.get(scene.result.name)
    if found is None:
        raise RunError(
            f'Cannot tell the times of "{scene.result.name}" at other batch sizes: nothing was measured yet. '
            f'Run study.sweep("{scene.result.name}") first.'
        )
    return found


def batches(scene: Scene) -> Panel:
    """The sweep of the variant shown, with the button that measures it."""
    result = scene.result
    model = result.prepared.model
    fixed = not model.dynamic_batch or bool(model.written_batch)
    reason = ""
    if result.measured is None or result.recorded:
        reason = "It was not run here: files tell of one batch size only"
    elif fixed:
        reason = "The model has a fixed batch dimension"
    found = scene.study.sweeps.get(result.name)
    work = [button("sweep", "Measure again" if found else "Measure batch sizes 1 to 64", reason)]
    if found is None:
        problem = (
            f"{reason}. Batch sizes are timed of engines that run here, with a dynamic batch."
            if reason
            else ""
        )
        return BATCHES.panel(scene, work=work, problem=problem, notes=[] if problem else [_BEFORE])
    sizes = [r.batch for r in found.rows]
    unit, factor = time_unit(max(r.median for r in found.rows))
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
        "y": [r.median * factor for r in found.rows],
        "yaxis": "y2",
        "line": {"color": OTHER, "dash": "dot"},
        "marker": {"symbol": "diamond", "size": 8},
        "error_y": {
            "array": [(r.upper - r.median) * factor for r in found.rows],
            "arrayminus": [(r.median - r.lower) * factor for r in found.rows],
            "symmetric": False,
            "thickness": 1,
            "width": 2,
        },
        "hovertemplate": f"batch %{{x}}: %{{y:.4~g}} {unit}<extra>measured</extra>",
    }
    return BATCHES.panel(
        scene,
        found,
        work=work,
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
        notes=[n for n in (f"{found.source}, {found.device}, {found.taken:%Y-%m-%d}.", found.note) if n],
    )


BATCHES = Question(
    "batches",
    tab="timing",
    label="Batch sizes",
    title="Batch sizes",
    lead=_LEAD,
    told="How rate and latency follow the size of the batch.",
    noun=swept,
    drawn=batches,
)
