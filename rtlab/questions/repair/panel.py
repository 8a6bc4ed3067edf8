"""What gives the accuracy back: the points that were verified, against the time that each costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.documents.answer import NounTable
from rtlab.documents.figure import FAINT, MAIN, OTHER, across, axis, figure
from rtlab.documents.panel import button, fact
from rtlab.errors import RunError
from rtlab.questions.repair import AccuracyRepair, RepairPoint
from rtlab.questions.scene import Question, Scene
from rtlab.questions.score.words import TASKLESS

if TYPE_CHECKING:
    from rtlab.documents.contract import Figure, Panel

_LEAD = (
    "Other scales are tried first, which cost no time, then a higher precision for as few nodes as will do. The choice "
    "is made on every second sample, and the scores are those of the others."
)


def found(scene: Scene) -> AccuracyRepair:
    """What gives the variant's accuracy back.

    Raises:
        RunError: nobody looked for it yet.
    """
    known = scene.study.repairs.get(scene.result.name)
    if known is None:
        raise RunError(
            f'Cannot tell what repairs "{scene.result.name}": nobody looked for it yet. '
            f"Run study.repair({scene.result.name!r})."
        )
    return known


def repaired(scene: Scene) -> Panel:
    """The points that were tried, or what is in the way of trying."""
    facts, known = scene.result, scene.study.repairs.get(scene.result.name)
    reason = (
        "Its engine was read from files of another machine, whose values are not known"
        if facts.recorded
        else TASKLESS
        if scene.study.task is None
        else ""
        if facts.prepared.precisions
        else "Nothing of it computes in less than FP32"
    )
    work = [button("repair", "Look again" if known else "Repair all", reason)]
    if known is None:
        notes = [] if reason else ["Nobody looked yet. What is found becomes a variant of its own."]
        return REPAIR.panel(scene, work=work, problem=f"{reason}." if reason else "", notes=notes)
    table = NounTable(RepairPoint, known.points, of=known)
    basis = (
        f"Chosen on {known.chosen} samples, reported on {known.reported} others."
        if known.reported
        else f"Measured on {known.chosen} samples; the search was stopped before the others were asked."
    )
    return REPAIR.panel(
        scene,
        lead=known.words,
        work=work,
        facts=[
            fact("Before", f"{known.before:.4g} {known.unit}", "measured", basis),
            fact("After", f"{known.after:.4g} {known.unit}", "measured", basis),
            fact("fp32", f"{known.baseline:.4g} {known.unit}", "measured", basis),
            fact("Kept high", f"{len(known.kept_high)} nodes"),
            fact("Runs", str(known.runs)),
        ],
        figures=_curve(known),
        columns=table.columns(),
        rows=table.rows(),
        links=table.links(),
        notes=[basis, f"{known.source}."],
    )


def _curve(known: AccuracyRepair) -> list[Figure]:
    """Accuracy against time, where the time of several points is known."""
    timed = [p for p in known.points if p.milliseconds is not None]
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
        "hovertemplate": f"%{{text}}<br>%{{y:.4~g}} {known.unit} measured, %{{x:.4~g}} ms estimated<extra></extra>",
    }
    level = max(p.score + p.drop for p in known.points) - known.max_drop
    return [
        figure(
            f"{known.metric} against time of {len(timed)} variants",
            [points],
            title="● enough   ✕ not enough",
            xaxis=axis("ms, estimated"),
            yaxis=axis(f"{known.metric}, {known.unit}"),
            shapes=[across(level, color=FAINT, dash="dot")],
        )
    ]


REPAIR = Question(
    "repair",
    tab="accuracy",
    label="Repair",
    title="What gives the accuracy back?",
    lead=_LEAD,
    told="What brings the score back, and what it costs in time.",
    noun=found,
    drawn=repaired,
)
