"""What nodes do to the outputs by what they round, as numbers for boxes: estimates apart from what was verified."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.analyses.cards.picture import Overlay, OverlayValue
from rtlab.analyses.fusion import map_nodes
from rtlab.relation.roles import SERVING

if TYPE_CHECKING:
    from rtlab.analyses.sensitivity import Asks, Sensitivity, SensitivityRow
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.schema import Origin

_TITLES: Mapping[Asks, str] = {"only": "Effect on the outputs", "released": "Gain if released"}


def pick_ranking(study: StudyState, name: str) -> Sensitivity | None:
    """The ranking that the boxes of a variant tell: of nodes before places that round, of harm before gain."""
    rankings = study.sensitivities.get(name, {}).values()
    return min(rankings, key=lambda s: (s.asks != "only", s.by != "node", s.effects is None), default=None)


def build_effect_overlays(result: VariantResult, sensitivity: Sensitivity) -> list[Overlay]:
    """The estimated effects of all nodes, and the measured ones of those that were run; what there is of both."""
    rows_by_origin: Mapping[Origin, list[SensitivityRow]] = {
        "estimated": [g for g in sensitivity.ranking if g.origin == "estimated"],
        "measured": [g for g in sensitivity.ranking if g.verified is not None],
    }
    overlays = [
        _overlay(result, sensitivity, origin, rows) for origin, rows in rows_by_origin.items() if rows
    ]
    return [overlay for overlay in overlays if overlay["nodes"]]


def _overlay(
    result: VariantResult, sensitivity: Sensitivity, origin: Origin, rows: list[SensitivityRow]
) -> Overlay:
    is_measured = origin == "measured"
    nodes: dict[str, OverlayValue] = {}
    for row in rows:
        value = row.verified if is_measured and row.verified is not None else row.effect
        # Of several places that round for one node the worst speaks; what has no number has no colour.
        if math.isfinite(value) and (row.node not in nodes or value > nodes[row.node]["value"]):
            nodes[row.node] = OverlayValue(value=value, spread=None, shared=1, note=_note(row, is_measured))
    layers: dict[str, OverlayValue] = {}
    for layer in result.engine.layers:
        pairs = map_nodes(result).of(layer.id)
        mine = [p.node for p in pairs if p.role not in SERVING and p.node in nodes]
        if mine:
            layers[layer.id] = nodes[max(mine, key=lambda n: nodes[n]["value"])]
    trust = "" if sensitivity.reliability is None else f", reliability {sensitivity.reliability:.2f}"
    how = "by runs of the model" if is_measured else "from gradients"
    return Overlay(
        id="effect_verified" if is_measured else "effect",
        title=f"{_TITLES[sensitivity.asks]}{', verified' if is_measured else ''}",
        unit="",
        origin=origin,
        source=f"{origin} {how}: {sensitivity.question}; {sensitivity.loss}, {sensitivity.samples} samples{trust}",
        best="low",
        nodes=nodes,
        layers=layers,
    )


def _note(row: SensitivityRow, is_measured: bool) -> str:  # noqa: FBT001 - of this module
    place = f'of "{row.quantizer}"; ' if row.quantizer else ""
    if not is_measured:
        return f"{place}95 % interval {row.low:.3g} to {row.high:.3g}"
    return f"{place}estimated {row.effect:.3g}" if row.origin == "estimated" else place.rstrip("; ")
