"""What an analysis is about, and what its panel has beside its result."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.fusion import map_nodes
from rtlab.errors import VariantError
from rtlab.relation.mapping import map_to_places

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model
    from rtlab.documents.contract import Column, Fact, Figure, Link, Row, Script, Setting, Work
    from rtlab.documents.results import ResultTable
    from rtlab.relation.mapping import Mapping as NodeMapping


@dataclasses.dataclass(frozen=True, eq=False)
class PanelContext:
    """What an analysis is about: a variant of a study, beside which other one, with which settings of its own.

    ``facts`` is None where no variant is shown: some analyses have a result before one is built.
    """

    study: StudyState
    facts: VariantResult | None = None
    baseline: VariantResult | None = None
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The source model."""
        return self.study.model

    @property
    def result(self) -> VariantResult:
        """What is known of the variant.

        Raises:
            VariantError: none is shown.
        """
        if self.facts is None:
            raise VariantError(
                f'Cannot ask about a variant of "{self.model.name}": none is built. Run study.run() first.'
            )
        return self.facts

    @property
    def other(self) -> str:
        """The name of the variant to compare with: the one chosen, else the baseline, else any.

        Raises:
            VariantError: there is none.
        """
        others = [n for n in self.study.results if n != self.result.name]
        preferred = self.settings.get("from") or (self.baseline.name if self.baseline else "")
        if not others:
            raise VariantError(
                "There is nothing to compare with yet: this is the only variant. Build a second one, in another "
                "precision or for another GPU for example, or read an engine from files."
            )
        return preferred if preferred in others else others[0]

    @functools.cached_property
    def mapping(self) -> NodeMapping:
        """Places of the source model's nodes by the layers of the variant."""
        return map_to_places(map_nodes(self.result), self.model)

    def nodes(self, layer: str) -> tuple[str, ...]:
        """The places of the nodes that a layer of the variant runs."""
        return self.mapping.nodes(layer)

    @functools.cached_property
    def layer_names(self) -> Mapping[str, str]:
        """What each layer of the variant is called, by its id."""
        return name_layers(self.result, self.model)

    @property
    def batch(self) -> int | None:
        """The batch that was chosen; None where that of the engine itself is wanted.

        Raises:
            VariantError: it is no number.
        """
        return self.get_number("batch", 0) if self.settings.get("batch") else None

    def get_number(self, key: str, default: int) -> int:
        """A setting that is a whole number.

        Raises:
            VariantError: it is none.
        """
        text = self.settings.get(key) or str(default)
        try:
            return int(text)
        except ValueError:
            raise VariantError(
                f'Cannot use {key} "{text}": it is no whole number. Write one, such as 8.'
            ) from None


class PanelParts(TypedDict, total=False):
    """What a panel has: facts, columns, rows, links and notes follow from ``result``, or else are given here.

    ``table`` stands in place of the result's own, ``units`` are those of its columns, as ``ResultTable`` takes them.
    ``links`` are added to those of the rows, the other fields are those of ``Panel``.
    """

    result: Any
    table: ResultTable
    units: Mapping[str, tuple[str, float]]
    title: str
    lead: str
    settings: list[Setting]
    work: list[Work]
    facts: list[Fact]
    scripts: list[Script]
    figures: list[Figure]
    columns: list[Column]
    rows: list[Row]
    links: dict[str, Link]
    notes: list[str]
    problem: str
