"""What there is to know of each sample before it is loaded."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping
from pathlib import Path

#: How a notebook shows the cards: its own colours where it has some, and as many in a row as there is room for.
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:.75rem;line-height:1.4"
_BOX = (
    "border:1px solid var(--jp-border-color2,#8886);border-radius:6px;padding:.75rem;display:flex;"
    "flex-direction:column;gap:.35rem"
)
_QUIET = "color:var(--jp-ui-font-color2,inherit);font-size:.85em"
_LIST = f"display:grid;grid-template-columns:auto 1fr;gap:.1rem .6rem;margin:0;{_QUIET}"


@dataclasses.dataclass(frozen=True)
class SampleCard:
    """One sample, without its model.

    Attributes:
        name: The argument of ``load``.
        title: A title in words.
        trait: What the sample shows.
        task: What it was trained to do, or that it was not.
        data: What it is calibrated and scored on.
        script: What makes it: a script of ``sample_models``, or a function of rtlab.
        licence: Of the model, and of the data where that differs.
        nodes: Number of nodes, those of bodies included.
        accuracy: Percent right by preparation, measured on ONNX Runtime's CPU; empty without a task.
        measured_on: Number of samples behind the percents.
        thumbnail: The graph from input to output, and the first sample, as SVG.
    """

    name: str
    title: str
    trait: str
    task: str
    data: str
    script: str
    licence: str
    nodes: int
    accuracy: Mapping[str, float]
    measured_on: int
    thumbnail: str = dataclasses.field(repr=False)

    @property
    def scores(self) -> str:
        """The percents and their source in words; empty without a task."""
        if not self.accuracy:
            return ""
        percents = ", ".join(f"{percent:.2f} % {how}" for how, percent in self.accuracy.items())
        return f"{percents}; measured on {self.measured_on} held-out samples, ONNX Runtime's CPU"

    def _repr_html_(self) -> str:
        facts = {
            "Task": self.task,
            "Data": self.data,
            "Right": self.scores,
            "Size": f"{self.nodes} nodes",
            "Made by": self.script,
            "Licence": self.licence,
        }
        rows = "".join(
            f'<dt>{k}</dt><dd style="margin:0;text-align:left">{html.escape(v)}</dd>'
            for k, v in facts.items()
            if v
        )
        return (
            f'<div style="{_BOX}">{self.thumbnail}<b>{html.escape(self.title)}</b>'
            f'<code style="align-self:flex-start">{html.escape(self.name)}</code>'
            f"<div>{html.escape(self.trait)}</div>"
            f'<dl style="{_LIST}">{rows}</dl></div>'
        )


class SampleCards(tuple[SampleCard, ...]):
    """The cards of all samples: a grid of pictures in a notebook, a table as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        wide = max((len(c.name) for c in self), default=0)
        return "\n".join(f"{c.name:{wide}}  {c.nodes:4} nodes  {c.trait}" for c in self)

    def _repr_html_(self) -> str:
        return f'<div style="{_GRID}">{"".join(c._repr_html_() for c in self)}</div>'


def read(path: Path) -> SampleCards:
    """The cards that ``sample_models/make_cards.py`` wrote."""
    return SampleCards([SampleCard(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))])
