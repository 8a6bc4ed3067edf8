"""The channels of a value: a chart of their errors, and a row for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.channels import ChannelErrors
from rtlab.analyses.panel_context import PanelContext, PanelParts
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
    errors_by_value = context.study.channels.get(context.result.name, {})
    value = _choose_value(context)
    return errors_by_value.get(value) if value else next(reversed([*errors_by_value.values()]), None)


def _choose_value(context: PanelContext) -> str:
    """The value that is chosen, by its name or by its node's; empty where none of the model is."""
    value, model = context.settings.get("value", ""), context.model
    if value in model.by_id:
        return model.by_id[value].outputs[0]
    return value if value in model.producers else ""


def build_channel_panel(context: PanelContext) -> PanelParts:
    """The channels of the chosen value, or what measures them."""
    channel_errors, errors = _find_channel_errors(context), compute_accuracy(context.result)
    if context.result.recorded:
        return PanelParts(
            problem="Its engine was read from files of another machine, whose values are not known."
        )
    if errors is None or not errors.values:
        return PanelParts(problem="None of its values was compared.")
    offered = {v.value: v.node for v in (*errors.guilty(_OFFERED), *errors.worst(_OFFERED))}
    value = channel_errors.value if channel_errors else _choose_value(context) or next(iter(offered))
    if value in context.model.producers:
        offered.setdefault(value, context.model.producers[value].id)
    labels = {v: f"{context.model.by_id[node].title} · {v}" for v, node in offered.items()}
    settings = [make_select("value", "Value", "The value whose channels are shown.", labels, value)]
    label = "Measure again" if channel_errors else "Measure its channels"
    work = [button("channels", label, value=value)]
    if channel_errors is None:
        notes = ["The channels of this value are not measured yet."]
        return PanelParts(settings=settings, work=work, notes=notes)
    one = ["It has no axis of channels: all of it is one."] if channel_errors.axis is None else []
    return PanelParts(
        result=channel_errors,
        settings=settings,
        work=work,
        facts=[],
        figures=[_draw_channels(channel_errors)] if len(channel_errors.channels) > 1 else [],
        notes=[*one, f"{channel_errors.origin[:1].upper()}{channel_errors.origin[1:]}."],
    )


def _draw_channels(channel_errors: ChannelErrors) -> Figure:
    """Largest magnitude and RMSE of each channel; the step of one scale is the same for all of them."""
    rows, threshold = channel_errors.channels, channel_errors.threshold

    def draw_bars(field: str, name: str, color: str) -> dict[str, Any]:
        heights = [v if math.isfinite(v := getattr(r, field)) and v > 0 else None for r in rows]
        at = [r.channel for r in rows]
        return {"type": "bar", "x": at, "y": heights, "name": name, "marker": {"color": color}}

    return figure(
        f"Largest magnitude and RMSE of {len(rows)} channels",
        [draw_bars("amax", "Largest magnitude", MAIN), draw_bars("rmse", "RMSE", OTHER)],
        title="dotted: the threshold of its quantizer" if threshold is not None else "",
        barmode="group",
        showlegend=True,
        legend=legend(),
        xaxis=axis("Channel"),
        yaxis=axis("in the value's own unit", type="log"),
        shapes=[] if threshold is None else [make_horizontal_line(threshold, color=FAINT, dash="dot")],
    )
