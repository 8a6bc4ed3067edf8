"""What gives the accuracy back: the points that were verified, against the time that each costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.repair import AccuracyRepair, RepairPoint
from rtlab.analyses.score import TASKLESS
from rtlab.documents.figure import FAINT, MAIN, OTHER, axis, figure, make_horizontal_line
from rtlab.documents.panel import button, fact
from rtlab.documents.results import ResultTable
from rtlab.errors import RunError

if TYPE_CHECKING:
    from rtlab.documents.contract import Figure


def get_repair(context: PanelContext) -> AccuracyRepair:
    """What gives the variant's accuracy back.

    Raises:
        RunError: it is not searched yet.
    """
    repair = context.study.repairs.get(context.result.name)
    if repair is None:
        raise RunError(
            f'Cannot show what repairs "{context.result.name}": it is not searched yet. '
            f"Run study.accuracy.repair({context.result.name!r})."
        )
    return repair


def build_repair_panel(context: PanelContext) -> PanelParts:
    """The points that were tried, or what is in the way of trying."""
    facts, repair, reason = context.result, context.study.repairs.get(context.result.name), ""
    if facts.recorded:
        reason = "Its engine was read from files of another machine, whose values are not known"
    elif context.study.task is None:
        reason = TASKLESS
    elif not facts.prepared.precisions:
        reason = "Nothing of it computes in less than FP32"
    work = [button("repair", "Look again" if repair else "Repair all", reason)]
    if repair is None and reason:
        return PanelParts(work=work, problem=f"{reason}.")
    if repair is None:
        return PanelParts(work=work, notes=["Not measured yet. What is found becomes a variant of its own."])
    basis = (
        f"Chosen on {repair.chosen} samples, reported on {repair.reported} others."
        if repair.reported
        else f"Measured on {repair.chosen} samples; the search was stopped before the others were asked."
    )
    return PanelParts(
        lead=repair.words,
        work=work,
        facts=[
            fact("Before", f"{repair.before:.4g} {repair.unit}", "measured", basis),
            fact("After", f"{repair.after:.4g} {repair.unit}", "measured", basis),
            fact("fp32", f"{repair.baseline:.4g} {repair.unit}", "measured", basis),
            fact("In higher precision", f"{len(repair.kept_high)} nodes"),
            fact("Runs", str(repair.runs)),
        ],
        figures=_curve(repair),
        table=ResultTable(RepairPoint, repair.points, of=repair),
        notes=[basis, f"{repair.source}."],
    )


def _curve(repair: AccuracyRepair) -> list[Figure]:
    """Accuracy against time, where the time of several points is known."""
    timed = [p for p in repair.points if p.milliseconds is not None]
    if len({p.milliseconds for p in timed}) < 2:
        return []
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [p.milliseconds for p in timed],
        "y": [p.score for p in timed],
        "text": [p.what for p in timed],
        "marker": {
            "size": 9,
            "color": [MAIN if p.enough else OTHER for p in timed],
            "symbol": ["circle" if p.enough else "x" for p in timed],
        },
        "hovertemplate": f"%{{text}}<br>%{{y:.4~g}} {repair.unit} measured, %{{x:.4~g}} ms estimated<extra></extra>",
    }
    level = max(p.score + p.drop for p in repair.points) - repair.max_drop
    return [
        figure(
            f"{repair.metric} against time of {len(timed)} variants",
            [points],
            title="● enough   ✕ not enough",
            xaxis=axis("ms, estimated"),
            yaxis=axis(f"{repair.metric}, {repair.unit}"),
            shapes=[make_horizontal_line(level, color=FAINT, dash="dot")],
        )
    ]
