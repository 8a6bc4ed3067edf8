"""What causes a variant's error, with the button that measures it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.sensitivity import ASKS, DIVERGENCE, Asks, By, Sensitivity
from rtlab.documents.panel import button, make_select
from rtlab.documents.results import list_facts
from rtlab.errors import RunError

_SETTINGS: Mapping[str, tuple[str, str, Mapping[Any, str]]] = {
    "asks": (
        "Alone",
        "Whether each is rounded alone, or left out alone while all others are rounded.",
        {"only": "quantized", "released": "released"},
    ),
    "by": (
        "Of",
        "Nodes, or the single places that round what a node reads and writes.",
        {"node": "nodes", "quantizer": "places that round"},
    ),
}


def get_sensitivity(context: PanelContext) -> Sensitivity:
    """The ranking of a variant.

    Raises:
        RunError: it is not measured yet.
    """
    name, choice = context.result.name, _read_settings(context)
    ranking = context.study.sensitivities.get(name, {}).get(choice)
    if ranking is None:
        raise RunError(
            f'Cannot show the sensitivity of "{name}": it is not measured yet. Run '
            f'study.accuracy.sensitivity("{name}", asks="{choice[0]}", by="{choice[1]}").'
        )
    return ranking


def _read_settings(context: PanelContext) -> tuple[Asks, By]:
    settings = context.settings
    return (
        "released" if settings.get("asks") == "released" else "only",
        "quantizer" if settings.get("by") == "quantizer" else "node",
    )


def build_sensitivity_panel(context: PanelContext) -> PanelParts:
    """The ranking that is chosen, and what looks for it."""
    choice, result = _read_settings(context), context.result
    values = dict(zip(_SETTINGS, choice, strict=True))
    settings = [
        make_select(key, label, hint, dict(options), values[key])
        for key, (label, hint, options) in _SETTINGS.items()
    ]
    reason = ""
    if result.recorded:
        reason = "Its engine was read from files of another machine"
    elif result.prepared.emulated is result.source:
        reason = "Nothing of it is rounded: it computes in fp32"
    ranking = context.study.sensitivities.get(result.name, {}).get(choice)
    label = "Look on more samples" if ranking else "Measure sensitivity"
    work = [button("sensitivity", label, reason, **values)]
    if ranking is None and reason:
        return PanelParts(settings=settings, work=work, problem=f"{reason}.")
    if ranking is None:
        before = f"Not measured yet. Asked is {ASKS[choice[0]]}. Effects are differences of the {DIVERGENCE}."
        return PanelParts(settings=settings, work=work, notes=[before])
    rests = f"{ranking.question[:1].upper()}{ranking.question[1:]}; effects are differences of the {ranking.loss}."
    return PanelParts(
        result=ranking,
        settings=settings,
        work=work,
        facts=[f for f in list_facts(ranking) if f["key"] not in _IN_WORDS],
        notes=[*ranking.notes, rests, f"{ranking.source}."],
    )


#: What stands in sentences below the table, or in the settings: a card of it would leave no room for numbers.
_IN_WORDS = frozenset({"Question", "Measure", "Source"})
