"""The two linked graphs alone, for a page or a lesson that needs no more than the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anywidget
import traitlets

from rtlab.view.bundle import bundle
from rtlab.view.contract import encode
from rtlab.view.graph import engine_view, source_graph
from rtlab.view.state import ViewState

if TYPE_CHECKING:
    from rtlab.study import Result, Study


class Graph(anywidget.AnyWidget):  # type: ignore[misc] # the base is untyped
    """A model beside the engine of one variant. ``state`` tells what is selected; ``select`` changes it."""

    source = traitlets.Bytes(b"").tag(sync=True)
    engine = traitlets.Bytes(b"").tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(480).tag(sync=True)

    def __init__(self, study: Study, name: str, *, height: int = 480) -> None:
        self._esm = bundle("graph.js")
        self._model = study.model
        self._result: Result = study[name]
        super().__init__(
            source=encode(source_graph(self._model)),
            engine=encode(engine_view(self._result, self._model)),
            view=dict(ViewState(variant=name).payload()),
            height=height,
        )

    def __repr__(self) -> str:
        return f"<Graph {self._model.name}: {self._result.name}>"

    @property
    def state(self) -> ViewState:
        """What is selected now."""
        return ViewState.of(self.view)

    def select(self, *nodes: str) -> None:
        """Select nodes by id on both sides.

        Raises:
            ModelError: there is no such node.
        """
        ids = [self._model.node(n).id for n in nodes]
        self.view = dict(self.state.select(ids, self._result.mapping).payload())
