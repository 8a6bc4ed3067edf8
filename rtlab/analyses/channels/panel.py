"""The channels of a value: a chart of their errors, and a row for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.channels import ChannelErrors
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.core.data import RANDOM
from rtlab.documents.figure import FAINT, MAIN, OTHER, axis, figure, legend, make_horizontal_line
from rtlab.documents.panel import button, make_select
from rtlab.errors import RunError

if TYPE_CHECKING:
    from rtlab.documents.contract import Figure

#: Values that are offered, those with the lowest own SQNR first.
_OFFERED = 60


def get_channel_errors(context: PanelContext) -> ChannelErrors:
    """The channels that were measured last, or those of the value that is chosen.

    Raises:
        RunError: nobody measured them.
    """
    channel_errors = _find_channel_errors(context)
    if channel_errors is None:
        name = context.result.name
        raise RunError(
            f'Cannot show the channels of "{name}": none are measured. Measure those of a value with '
            f'study.accuracy.channels("{name}", VALUE).'
        )
    return channel_errors


def _find_channel_errors(context: PanelContext) -> ChannelErrors | None:
    errors_by_value, value_name = context.study.channels.get(context.result.name, {}), _choose_value(context)
    return (
        errors_by_value.get(value_name) if value_name else next(reversed([*errors_by_value.values()]), None)
    )


def _choose_value(context: PanelContext) -> str:
    """The value that is chosen, by its name or by its node's; empty where none of the model is."""
    value_name, model = context.settings.get("value", ""), context.model
    if value_name in model.by_id:
        return model.by_id[value_name].outputs[0]
    return value_name if value_name in model.producers else ""


def build_channel_panel(context: PanelContext) -> PanelParts:
    """The channels of the chosen value, or what measures them."""
    facts, channel_errors = context.result, _find_channel_errors(context)
    errors = compute_accuracy(facts)
    reason = (
        "Its engine was read from files of another machine, whose values are not known"
        if facts.recorded
        else ""
        if errors is not None and errors.values
        else "None of its values was compared"
    )
    if reason or errors is None:
        return PanelParts(problem=f"{reason}.")
    first = [*errors.guilty(_OFFERED), *errors.worst(_OFFERED)]
    value_labels = {v.value: f"{context.model.by_id[v.node].title} · {v.value}" for v in first}
    value_name = (
        channel_errors.value if channel_errors else _choose_value(context) or next(iter(value_labels))
    )
    if value_name in context.model.producers:
        value_labels.setdefault(value_name, f"{context.model.producers[value_name].title} · {value_name}")
    settings = [
        make_select("value", "Value", "The value whose channels are shown.", value_labels, value_name)
    ]
    work = [
        button("channels", "Measure again" if channel_errors else "Measure its channels", value=value_name)
    ]
    if channel_errors is None:
        notes = ["The channels of this value are not measured yet."]
        return PanelParts(settings=settings, work=work, notes=notes)
    provenance = (
        f"Measured on {channel_errors.samples} samples: "
        f"{channel_errors.source}{f', {RANDOM}' if channel_errors.synthetic else ''}."
    )
    one = ["It has no axis of channels: all of it is one."] if channel_errors.axis is None else []
    return PanelParts(
        result=channel_errors,
        settings=settings,
        work=work,
        facts=[],
        figures=[_draw_channels(channel_errors)] if len(channel_errors.channels) > 1 else [],
        notes=[*one, provenance],
    )


def _draw_channels(channel_errors: ChannelErrors) -> Figure:
    """Largest magnitude and RMSE of each channel; the step of one scale is the same for all of them."""
    rows = channel_errors.channels

    def heights(name: str) -> list[float | None]:
        return [v if math.isfinite(v := getattr(r, name)) and v > 0 else None for r in rows]

    at = [r.channel for r in rows]
    lines = (
        []
        if channel_errors.threshold is None
        else [make_horizontal_line(channel_errors.threshold, color=FAINT, dash="dot")]
    )
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
