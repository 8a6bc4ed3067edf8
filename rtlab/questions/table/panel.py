"""The question of the Table tab, which the page draws from its graphs."""

from __future__ import annotations

import dataclasses

from rtlab.questions.scene import Question
from rtlab.questions.table.dataframe import LayerRow, layer_rows


@dataclasses.dataclass(frozen=True)
class LayerTable:
    """All layers of an engine, in order of execution."""

    layers: tuple[LayerRow, ...]


TABLE = Question(
    "table",
    tab="table",
    label="Table",
    title="Layers",
    lead="Every layer with what the compiler tells of it, in order of execution.",
    noun=lambda scene: LayerTable(layer_rows(scene.result, scene.model)),
)
