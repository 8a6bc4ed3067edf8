"""ViewState: what every pane reads. Frozen; a gesture makes a new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from rtlab.analysis.mapping import Mapping
from rtlab.view.contract import ViewState as Payload


@dataclasses.dataclass(frozen=True)
class ViewState:
    """Selection and choice of overlays.

    ``selection`` holds node ids, ``layers`` layer ids of the variant shown; ``anchor`` tells which of the two the
    user picked, the other follows from the mapping.
    """

    selection: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    anchor: Literal["node", "layer"] = "node"
    variant: str = ""
    baseline: str = ""
    colour: str = "time"
    colour_nodes: str = "operator"
    tab: Literal["timing", "accuracy", "table"] = "timing"

    @classmethod
    def of(cls, payload: Payload) -> ViewState:
        """From what the browser sent; unknown keys are ignored, so that versions may differ."""
        known = {f.name for f in dataclasses.fields(cls)}
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in payload.items() if k in known}
        return cls(**given)  # type: ignore[arg-type]

    def payload(self) -> Payload:
        """For the browser."""
        return Payload(
            selection=list(self.selection),
            layers=list(self.layers),
            anchor=self.anchor,
            variant=self.variant,
            baseline=self.baseline,
            colour=self.colour,
            colour_nodes=self.colour_nodes,
            tab=self.tab,
        )

    def select(self, nodes: Iterable[str], mapping: Mapping | None) -> ViewState:
        """Select nodes; their layers light up."""
        chosen = tuple(dict.fromkeys(nodes))
        layers = dict.fromkeys(i for n in chosen for i in (mapping.layers(n) if mapping else ()))
        return dataclasses.replace(self, selection=chosen, layers=tuple(layers), anchor="node")

    def show(self, variant: str, mapping: Mapping | None) -> ViewState:
        """Show another variant; the selected nodes stay, their layers are looked up anew."""
        return dataclasses.replace(self, variant=variant).select(self.selection, mapping)
