"""A question as the page lists it, what it is asked about, and how its answer is put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab import questions
from rtlab.documents.answer import Answer
from rtlab.documents.contract import Panel, PanelName
from rtlab.errors import VariantError
from rtlab.questions.cards.card import names
from rtlab.relation.mapping import placed

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model
    from rtlab.questions.snapshot import Snapshot


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """What a question is about: a variant of a study, beside which other one, with which settings of its own.

    ``facts`` is None where no variant is shown: some questions have an answer before one is built.
    """

    study: Snapshot
    facts: Facts | None = None
    baseline: Facts | None = None
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The source model."""
        return self.study.model

    @property
    def result(self) -> Facts:
        """What is known of the variant.

        Raises:
            VariantError: none is shown.
        """
        if self.facts is None:
            raise VariantError(
                f'Cannot ask about a variant of "{self.model.name}": none is built. Run study.run() first.'
            )
        return self.facts

    def number(self, key: str, default: int) -> int:
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
class Question:
    """A question with a panel.

    ``tab`` is where its panel stands, as ``label`` among those of the tab; ``title`` and ``lead``, a sentence or two
    that say what is to be seen, are its head. One of two functions answers: ``noun`` gives a noun, from whose fields
    the panel, JSON, frame and text follow; ``drawn`` gives a whole panel, where there is a figure to draw.
    ``concerns`` says of which models there is anything to ask. ``sent`` is the type of the noun where the page draws
    it with code of its own, and needs no panel; ``shared`` says that the answer is the same for every variant.
    """

    name: str
    tab: str
    label: str
    title: str
    lead: str
    noun: Callable[[Scene], Any] | None = None
    drawn: Callable[[Scene], Panel] | None = None
    sent: type | None = None
    shared: bool = False
    concerns: Callable[[Model], bool] = lambda _: True

    def ask(self, scene: Scene) -> Answer:
        """The answer as a noun.

        Raises:
            VariantError: this question draws its panel, and has no noun of its own.
        """
        if self.noun is None:
            raise VariantError(
                f'Cannot answer "{self.name}" in words: it draws a figure. Open its panel in the Explorer, or a report.'
            )
        noun = self.noun(scene)
        if scene.facts is None:
            return Answer(self.title, noun)
        mapping = placed(questions.fusion.mapping(scene.facts), scene.model)
        return Answer(self.title, noun, names(scene.facts, scene.model), mapping.nodes)

    def show(self, scene: Scene) -> Panel:
        """The panel: the one that the question draws, or the one that follows from its noun."""
        return self.panel(scene, **self.ask(scene).parts()) if self.drawn is None else self.drawn(scene)

    def panel(self, scene: Scene, **parts: Any) -> Panel:
        """A panel of this question; ``parts`` are fields of ``Panel``, those that are not given are empty."""
        given = {
            "name": PanelName(self.name),
            "variant": scene.result.name,
            "title": self.title,
            "lead": self.lead,
            **{k: [] for k in ("settings", "work", "facts", "figures", "columns", "rows", "notes")},
            "links": {},
            "problem": "",
            **parts,
        }
        return cast("Panel", given)
