"""What is shown of an engine, made once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.panel_context import PanelContext
from rtlab.documents.payload import encode
from rtlab.relation.mapping import map_to_places
from rtlab.web.page import charts
from rtlab.web.page.contract import EngineView
from rtlab.web.page.effects import pick_ranking
from rtlab.web.page.graph import add_details, describe_engine_boxes

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.relation.mapping import Mapping

#: From this many layers on an engine is prepared on a thread, so that the page can work from the start.
_MANY_LAYERS = 1_000


class EnginePicture:
    """What is shown of an engine: its picture and what follows, each part made once and when it is sent."""

    def __init__(self, result: VariantResult, study: StudyState, view: EngineView, picture: bytes) -> None:
        self.result, self.view, self._study = result, view, study
        #: Who is guilty of its error, as far as anybody looked.
        self.sensitivity = pick_ranking(study, result.name)
        #: The engine as it is drawn; empty where the page has a drawing to which this adds numbers.
        self.picture = picture

    @functools.cached_property
    def mapping(self) -> Mapping:
        """Its nodes by the places where they run."""
        return map_to_places(map_nodes(self.result), self._study.model)

    @functools.cached_property
    def deferred_details(self) -> bytes:
        """What a large graph's picture lacks; empty where it lacks nothing."""
        return self.numbers if self.view["graph"]["later"] else b""

    @functools.cached_property
    def numbers(self) -> bytes:
        """What the boxes tell and their numbers, whether or not the picture came with older ones."""
        details = describe_engine_boxes(self.result, self._study.model, self.sensitivity)
        add_details(self.view, details)
        return encode(details)

    @functools.cached_property
    def answers(self) -> dict[str, bytes]:
        """What the page draws with code of its own, by the question's name."""
        return panels.encode_payloads(PanelContext(self._study, self.result))

    @functools.cached_property
    def charts(self) -> dict[str, Any]:
        """The figures of times and errors."""
        # The figures need what the picture lacks.
        view, _ = self.view, self.deferred_details
        return charts.build_charts(view, self.result)


def is_large(result: VariantResult) -> bool:
    """Whether an engine takes so long to prepare that the page should not wait for it."""
    return len(result.engine.layers) >= _MANY_LAYERS
