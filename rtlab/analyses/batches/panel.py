"""Latency and throughput by batch size."""

from __future__ import annotations

from rtlab.analyses.batches import Sweep
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import choose_time_unit
from rtlab.documents.panel import button
from rtlab.errors import RunError

_BEFORE = "Not measured yet. The button runs this variant with 1, 2, 4 … 64 samples at a time."


def get_sweep(context: PanelContext) -> Sweep:
    """What was timed at several batch sizes.

    Raises:
        RunError: nothing was.
    """
    sweep = context.study.sweeps.get(context.result.name)
    if sweep is None:
        raise RunError(
            f'Cannot show the times of "{context.result.name}" at other batch sizes: nothing was measured yet. '
            f'Run study.tuning.batch_sizes("{context.result.name}") first.'
        )
    return sweep


def build_batch_panel(context: PanelContext) -> PanelParts:
    """The sweep of the variant shown, with the button that measures it."""
    result = context.result
    model = result.prepared.model
    has_fixed_batch = not model.dynamic_batch or bool(model.written_batch)
    reason = ""
    if result.measured is None or result.recorded:
        reason = "It was not run here: files contain one batch size only"
    elif has_fixed_batch:
        reason = "The model has a fixed batch dimension"
    sweep = context.study.sweeps.get(result.name)
    work = [button("sweep", "Measure again" if sweep else "Measure batch sizes 1 to 64", reason)]
    if sweep is None:
        problem = f"{reason}. Engines that run here with a dynamic batch are timed." if reason else ""
        return PanelParts(work=work, problem=problem, notes=[] if problem else [_BEFORE])
    sizes = [r.batch for r in sweep.rows]
    unit, factor = choose_time_unit(max(r.median for r in sweep.rows))
    at = {"x": [str(b) for b in sizes], "mode": "lines+markers"}
    rate = {
        **at,
        "type": "scatter",
        "name": "samples per second",
        "y": [r.rate for r in sweep.rows],
        "line": {"color": MAIN},
        "marker": {"symbol": "circle", "size": 8},
        "hovertemplate": "batch %{x}: %{y:.4~s} samples/s<extra>measured</extra>",
    }
    latency = {
        **at,
        "type": "scatter",
        "name": f"latency, {unit}",
        "y": [r.median * factor for r in sweep.rows],
        "yaxis": "y2",
        "line": {"color": OTHER, "dash": "dot"},
        "marker": {"symbol": "diamond", "size": 8},
        "error_y": {
            "array": [(r.upper - r.median) * factor for r in sweep.rows],
            "arrayminus": [(r.median - r.lower) * factor for r in sweep.rows],
            "symmetric": False,
            "thickness": 1,
            "width": 2,
        },
        "hovertemplate": f"batch %{{x}}: %{{y:.4~g}} {unit}<extra>measured</extra>",
    }
    return PanelParts(
        result=sweep,
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
        notes=[n for n in (f"{sweep.source}, {sweep.device}, {sweep.taken:%Y-%m-%d}.", sweep.note) if n],
    )
