"""A question as the page lists it, what it is asked about, and how its answer is put together."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.fusion import map_nodes
from rtlab.documents.answer import Answer
from rtlab.documents.contract import Link, Panel, PanelName
from rtlab.errors import VariantError
from rtlab.relation.mapping import map_to_places

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model
    from rtlab.relation.mapping import Mapping as NodeMapping


@dataclasses.dataclass(frozen=True, eq=False)
class PanelContext:
    """What a question is about: a variant of a study, beside which other one, with which settings of its own.

    ``facts`` is None where no variant is shown: some questions have an answer before one is built.
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


@dataclasses.dataclass(frozen=True)
class PanelSpec:
    """A question with a panel.

    ``tab`` is where its panel stands, as ``label`` among those of the tab; ``title`` and ``lead``, a sentence or two
    that say what is to be seen, are its head. ``noun`` gives the noun that answers, from whose fields the panel, JSON,
    frame and text follow; ``panel_builder`` the same with a figure, or with something to choose.
    ``concerns`` says of which models there is anything to ask. ``payload_type`` is the type of the noun where the page
    draws it with code of its own, and needs no panel; ``shared`` says that the answer is the same for every variant,
    ``per_engine`` that its rows are of an engine each, and tell themselves what of it is predicted. ``summary`` says
    what the panel shows where the first sentence of ``lead`` does not.
    """

    name: str
    tab: str
    label: str
    title: str
    lead: str
    noun: Callable[[PanelContext], Any]
    panel_builder: Callable[[PanelContext], Panel] | None = None
    payload_type: type | None = None
    shared: bool = False
    per_engine: bool = False
    concerns: Callable[[Model], bool] = lambda _: True
    summary: str = ""

    @property
    def shows(self) -> str:
        """What the panel shows, in a sentence."""
        return self.summary or re.split(r"(?<=[.?]) ", self.lead)[0]

    def ask(self, context: PanelContext) -> Answer:
        """The answer as a noun."""
        return self.answer(context, self.noun(context))

    def answer(self, context: PanelContext, noun: Any, title: str = "") -> Answer:
        """The answer by its noun, with what the layers in it are called and which nodes they run."""
        if context.facts is None:
            return Answer(title or self.title, noun)
        predicts = context.facts.engine.maker.predicts and not self.per_engine
        return Answer(title or self.title, noun, context.layer_names, context.nodes, predicts)

    def show(self, context: PanelContext) -> Panel:
        """The panel: the one that the question draws, or the one that follows from its noun."""
        return (
            self.panel(context, **self.ask(context).parts())
            if self.panel_builder is None
            else self.panel_builder(context)
        )

    def panel(
        self,
        context: PanelContext,
        noun: Any = None,
        *,
        units: Mapping[str, tuple[str, float]] | None = None,
        links: Mapping[str, Link] | None = None,
        **parts: Any,
    ) -> Panel:
        """A panel of this question.

        Args:
            context: What it is about.
            noun: What facts, columns, rows and links follow from; its layers bear their names already.
            units: Those of its columns, as ``NounTable`` takes them.
            links: What points of the figures stand for, beside the rows.
            parts: Other fields of ``Panel``, or those in place of what follows; what is not given is empty.
        """
        answer_parts = {} if noun is None else Answer("", noun, {}, context.nodes).parts(units)
        panel_fields: dict[str, Any] = {
            "name": PanelName(self.name),
            "variant": context.result.name,
            "title": self.title,
            "lead": self.lead,
            **{
                k: [] for k in ("settings", "work", "facts", "scripts", "figures", "columns", "rows", "notes")
            },
            "links": {},
            "problem": "",
            "quoted": "",
            **answer_parts,
            **parts,
        }
        panel_fields["links"] |= links or {}
        if context.result.engine.maker.predicts and not self.per_engine:
            panel_fields |= {
                k: [_mark_predicted(part) for part in panel_fields[k]] for k in ("facts", "columns")
            }
        return cast("Panel", panel_fields)


def _mark_predicted(part: dict[str, Any]) -> dict[str, Any]:
    """A fact or a column of an engine that no compiler made: what a compiler would report, rules predict."""
    return part | {"origin": "predicted"} if part["origin"] == "reported" else part
