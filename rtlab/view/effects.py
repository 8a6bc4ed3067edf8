"""What nodes do to the outputs by what they round, as numbers for boxes: estimates apart from what was verified."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.questions.cards.picture import Overlay, OverlayValue
from rtlab.relation.roles import SERVING

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.schema import Origin
    from rtlab.questions.sensitivity import Asks, Guilty, Sensitivity
    from rtlab.questions.snapshot import Snapshot

_TITLES: Mapping[Asks, str] = {"only": "Effect on the outputs", "released": "Gain if released"}


def ranking_of(study: Snapshot, name: str) -> Sensitivity | None:
    """The ranking that the boxes of a variant tell: of nodes before places that round, of harm before gain."""
    found = study.sensitivities.get(name, {}).values()
    return min(found, key=lambda s: (s.asks != "only", s.by != "node", s.effects is None), default=None)


def effects(result: Facts, found: Sensitivity) -> list[Overlay]:
    """The estimated effects of all nodes, and the measured ones of those that were run; what there is of both."""
    told: Mapping[Origin, list[Guilty]] = {
        "estimated": [g for g in found.ranking if g.origin == "estimated"],
        "measured": [g for g in found.ranking if g.verified is not None],
    }
    made = [_overlay(result, found, origin, rows) for origin, rows in told.items() if rows]
    return [overlay for overlay in made if overlay["nodes"]]


def _overlay(result: Facts, found: Sensitivity, origin: Origin, rows: list[Guilty]) -> Overlay:
    measured = origin == "measured"
    nodes: dict[str, OverlayValue] = {}
    for row in rows:
        value = row.verified if measured and row.verified is not None else row.effect
        # Of several places that round for one node the worst speaks; what has no number has no colour.
        if math.isfinite(value) and (row.node not in nodes or value > nodes[row.node]["value"]):
            nodes[row.node] = OverlayValue(value=value, spread=None, shared=1, note=_note(row, measured))
    layers: dict[str, OverlayValue] = {}
    for layer in result.engine.layers:
        pairs = questions.fusion.mapping(result).of(layer.id)
        mine = [p.node for p in pairs if p.role not in SERVING and p.node in nodes]
        if mine:
            layers[layer.id] = nodes[max(mine, key=lambda n: nodes[n]["value"])]
    trust = "" if found.reliability is None else f", reliability {found.reliability:.2f}"
    how = "by runs of the model" if measured else "from gradients"
    return Overlay(
        id="effect_verified" if measured else "effect",
        title=f"{_TITLES[found.asks]}{', verified' if measured else ''}",
        unit="",
        origin=origin,
        source=f"{origin} {how}: {found.question}; {found.loss}, {found.samples} samples{trust}",
        best="low",
        nodes=nodes,
        layers=layers,
    )


def _note(row: Guilty, measured: bool) -> str:  # noqa: FBT001 - of this module
    place = f'of "{row.quantizer}"; ' if row.quantizer else ""
    if not measured:
        return f"{place}95 % interval {row.low:.3g} to {row.high:.3g}"
    return f"{place}estimated {row.effect:.3g}" if row.origin == "estimated" else place.rstrip("; ")
