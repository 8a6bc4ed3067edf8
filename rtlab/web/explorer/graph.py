"""The two linked graphs alone, for a page or a lesson that needs no more than the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import traitlets

from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.serialization import encode
from rtlab.relation.mapping import map_to_places
from rtlab.web.explorer.transport import DeliveredWidget
from rtlab.web.page.graph import engine_view, source_graph
from rtlab.web.page.state import ViewState

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult


class LinkedGraphs(DeliveredWidget):
    """A model beside the engine of one variant, or of two. ``state`` has what is selected; ``select`` changes it."""

    source = traitlets.Bytes(b"").tag(delivered=True)
    engine = traitlets.Bytes(b"").tag(delivered=True)
    other = traitlets.Bytes(b"").tag(delivered=True)
    view = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(480).tag(sync=True)
    #: What its variants are called, by name.
    titles = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        study: StudyState,
        result: VariantResult,
        other: VariantResult | None = None,
        *,
        height: int = 480,
    ) -> None:
        self._model = study.model
        self._result, self._other = result, other
        view = ViewState(variant=result.name)
        if self._other is not None:
            view = view.compare(self._other.name, None)
        super().__init__(
            "graph.js",
            source=encode(source_graph(self._model)),
            engine=encode(engine_view(self._result, self._model)),
            other=encode(engine_view(self._other, self._model)) if self._other else b"",
            view=dict(view.payload()),
            height=height,
            titles=dict(get_variant_titles(study)),
        )

    def __repr__(self) -> str:
        return f"<LinkedGraphs {self._model.name}: {', '.join(r.name for r in (self._result, self._other) if r)}>"

    @property
    def state(self) -> ViewState:
        """What is selected now."""
        return ViewState.from_payload(self.view)

    def arrange(self, **changes: object) -> LinkedGraphs:
        """Group, colour and place, as the menus of the panes do: see ``ViewState.arrange``."""
        self.view = dict(self.state.arrange(**changes).payload())
        return self

    def select(self, *nodes: str) -> None:
        """Select nodes by id on both sides.

        Raises:
            ModelError: there is no such node.
        """
        mappings = [
            map_to_places(map_nodes(r), self._model) if r else None for r in (self._result, self._other)
        ]
        self.view = dict(self.state.select(self._model.chosen(nodes), *mappings).payload())
