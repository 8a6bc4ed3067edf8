"""The channels of a value: a chart of their errors, and a row for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.core.data import RANDOM
from rtlab.documents.answer import NounTable
from rtlab.documents.figure import FAINT, MAIN, OTHER, across, axis, figure, legend
from rtlab.documents.panel import button, choices
from rtlab.errors import RunError
from rtlab.questions.channels import ChannelDelta, ChannelErrors
from rtlab.questions.scene import Question, Scene

if TYPE_CHECKING:
    from rtlab.documents.contract import Figure, Panel

_LEAD = "Which channels of a value lose what the whole of it loses. The values that lose most stand first."
#: Values that are offered, those with the lowest own SQNR first.
_OFFERED = 60


def found(scene: Scene) -> ChannelErrors:
    """The channels that were measured last, or those of the value that is chosen.

    Raises:
        RunError: nobody measured them.
    """
    known = _known(scene)
    if known is None:
        name = scene.result.name
        raise RunError(
            f'Cannot tell the channels of "{name}": nobody measured any. Measure those of a value with '
            f'study.channels("{name}", VALUE).'
        )
    return known


def _known(scene: Scene) -> ChannelErrors | None:
    told, chosen = scene.study.channels.get(scene.result.name, {}), _chosen(scene)
    return told.get(chosen) if chosen else next(reversed([*told.values()]), None)


def _chosen(scene: Scene) -> str:
    """The value that is chosen, by its name or by its node's; empty where none of the model is."""
    chosen, model = scene.settings.get("value", ""), scene.model
    if chosen in model.by_id:
        return model.by_id[chosen].outputs[0]
    return chosen if chosen in model.producers else ""


def channels(scene: Scene) -> Panel:
    """The channels of the chosen value, or what measures them."""
    facts, known = scene.result, _known(scene)
    errors = questions.accuracy.of(facts)
    reason = (
        "Its engine was read from files of another machine, whose values are not known"
        if facts.recorded
        else ""
        if errors is not None and errors.values
        else "None of its values was compared"
    )
    if reason or errors is None:
        return CHANNELS.panel(scene, problem=f"{reason}.")
    first = [*errors.guilty(_OFFERED), *errors.worst(_OFFERED)]
    offered = {v.value: f"{scene.model.by_id[v.node].title} · {v.value}" for v in first}
    chosen = known.value if known else _chosen(scene) or next(iter(offered))
    if chosen in scene.model.producers:
        offered.setdefault(chosen, f"{scene.model.producers[chosen].title} · {chosen}")
    settings = [choices("value", "Value", "The value whose channels are shown.", offered, chosen)]
    work = [button("channels", "Measure again" if known else "Measure its channels", value=chosen)]
    if known is None:
        notes = ["Nobody measured the channels of this value yet."]
        return CHANNELS.panel(scene, settings=settings, work=work, notes=notes)
    table = NounTable(ChannelDelta, known.channels, of=known)
    rests = f"Measured on {known.samples} samples: {known.source}{f', {RANDOM}' if known.synthetic else ''}."
    one = ["It has no axis of channels: all of it is one."] if known.axis is None else []
    return CHANNELS.panel(
        scene,
        known,
        settings=settings,
        work=work,
        facts=[],
        figures=[_drawn(known)] if len(known.channels) > 1 else [],
        columns=table.columns(),
        rows=table.rows(),
        notes=[*one, rests],
    )


def _drawn(known: ChannelErrors) -> Figure:
    """Largest magnitude and RMSE of each channel; the step of one scale is the same for all of them."""
    rows = known.channels

    def heights(name: str) -> list[float | None]:
        return [v if math.isfinite(v := getattr(r, name)) and v > 0 else None for r in rows]

    at = [r.channel for r in rows]
    lines = [] if known.threshold is None else [across(known.threshold, color=FAINT, dash="dot")]
    return figure(
        f"Largest magnitude and RMSE of {len(rows)} channels",
        [
            {
                "type": "bar",
                "x": at,
                "y": heights("amax"),
                "name": "Largest magnitude",
                "marker": {"color": MAIN},
            },
            {"type": "bar", "x": at, "y": heights("rmse"), "name": "RMSE", "marker": {"color": OTHER}},
        ],
        title="dotted: the threshold of its quantizer" if lines else "",
        barmode="group",
        showlegend=True,
        legend=legend(),
        xaxis=axis("Channel"),
        yaxis=axis("in the value's own unit", type="log"),
        shapes=lines,
    )


CHANNELS = Question(
    "channels",
    tab="accuracy",
    label="Channels",
    title="Errors of each channel",
    lead=_LEAD,
    noun=found,
    drawn=channels,
)
