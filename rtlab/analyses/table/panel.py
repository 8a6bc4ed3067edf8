"""The question of the Table tab, which the page draws from its graphs."""

from __future__ import annotations

import dataclasses

from rtlab.analyses.panel_context import PanelSpec
from rtlab.analyses.table.dataframe import LayerRow, layer_rows


@dataclasses.dataclass(frozen=True)
class LayerTable:
    """All layers of an engine, in order of execution."""

    layers: tuple[LayerRow, ...]


TABLE = PanelSpec(
    "table",
    tab="table",
    label="Table",
    title="Layers",
    lead="Every layer with what the compiler tells of it, in order of execution.",
    noun=lambda context: LayerTable(layer_rows(context.result, context.model)),
)
