"""A presenter's list of views, each with the sentence that goes with it."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from rtlab.documents.contract import Side
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError
from rtlab.web.page.state import ViewState


class Step(TypedDict):
    """One view of a presentation: ``words`` is the sentence that the room reads.

    ``view`` holds the fields of a ``ViewState`` that are not as at first; ``places`` the part of each graph that is in
    view, by side: left, top, width and height in the graph's own units.
    """

    words: str
    view: dict[str, Any]
    places: dict[str, list[float]]


_FIELDS = {field.name for field in dataclasses.fields(ViewState)}
_SIDES = typing.get_args(Side)
_CORNERS = 4
_SHAPE = 'Give {"words": ..., "view": {...}}, as explorer.steps lists them.'


def parse_steps(steps: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Steps as they were given, complete and in plain lists, numbers and texts.

    Raises:
        RtlabError: one of them is no step.
    """
    return [_step(at, one) for at, one in enumerate(steps, 1)]


def _step(at: int, one: Mapping[str, Any]) -> Step:
    if not isinstance(one, Mapping):
        raise _step_error(at, f"it is {one!r}", _SHAPE)
    if unknown := set(one) - {"words", "view", "places"}:
        raise _step_error(at, f"it has {', '.join(sorted(map(str, unknown)))}", _SHAPE)
    words, view, places = one.get("words", ""), one.get("view", {}), one.get("places", {})
    if not isinstance(words, str) or not isinstance(view, Mapping):
        raise _step_error(at, f"its words are {words!r} and its view is {view!r}", _SHAPE)
    if unknown := set(view) - _FIELDS:
        problem = f"its view has {', '.join(sorted(map(str, unknown)))}"
        raise _step_error(at, problem, f"Choose among {', '.join(sorted(_FIELDS))}.")
    tabs = [tab.name for tab in TABS]
    if view.get("tab", tabs[0]) not in tabs:
        raise _step_error(at, f'there is no tab "{view["tab"]}"', f"Choose among {', '.join(tabs)}.")
    return {"words": words, "view": {k: _plain(v) for k, v in view.items()}, "places": _places(at, places)}


def _places(at: int, places: Any) -> dict[str, list[float]]:
    if not isinstance(places, Mapping) or set(places) - set(_SIDES):
        raise _step_error(at, f"its places are {places!r}", f"Choose among the sides {', '.join(_SIDES)}.")
    try:
        rectangles = {str(side): [float(v) for v in place] for side, place in places.items()}
    except (TypeError, ValueError):
        raise _step_error(
            at, f"its places are {places!r}", "Give left, top, width and height of each."
        ) from None
    for side, place in rectangles.items():
        if len(place) != _CORNERS or not all(map(math.isfinite, place)) or min(place[2:]) <= 0:
            raise _step_error(at, f"the place of {side} is {place}", "Give left, top, width and height.")
    return rectangles


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _step_error(at: int, problem: str, remedy: str) -> RtlabError:
    return RtlabError(f"Cannot take step {at} of the presentation: {problem}. {remedy}")
