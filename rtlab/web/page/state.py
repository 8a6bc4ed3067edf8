"""What every pane of the page reads, and a presentation: a list of such views with words."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable
from collections.abc import Mapping as MappingType
from typing import Any, Literal, TypedDict

import msgspec

from rtlab.documents.contract import Grouping, Side
from rtlab.documents.serialization import to_builtins
from rtlab.documents.tabs import TABS, Tab
from rtlab.errors import RtlabError
from rtlab.relation.mapping import Mapping

#: What ``ViewState.arrange`` may change, and the values of each; colours depend on the variant.
_CHOICES: dict[str, tuple[object, ...]] = {
    "grouping_nodes": typing.get_args(Grouping),
    "grouping": ("auto", "none", "repeats"),
    "colour_nodes": (),
    "colour": (),
    "panes": typing.get_args(Side),
    "stacked": (False, True),
    "across": (False, True),
    "follow": (False, True),
    "tab": ("", *(tab.name for tab in TABS)),
}


@dataclasses.dataclass(frozen=True)
class ViewState:
    """What every pane reads. ``anchor`` is the side that was clicked; the other sides follow from the mapping.

    ``selection`` holds node ids, ``layers`` layer ids of ``variant``, ``others`` layer ids of ``compared``, the
    variant in the third pane. ``panes`` lists the sides in view in their order, ``stacked`` one above the other;
    ``across`` lays graphs out from left to right; with ``follow`` the panes pan together. ``tab`` is the one whose
    charts are open below the graphs, empty while they are folded. ``folds`` holds the ids of the groups that are not as
    they are at first: repeats, scopes and bodies folded, frames of layers open. ``step`` is
    how many decisions of the build are replayed on the ONNX graph when it is grouped by ``replay``. ``settings`` holds
    what was chosen in panels, by panel and key such as ``memory.batch``, and by tab the panel it shows.
    """

    selection: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    anchor: Side = "node"
    variant: str = ""
    compared: str = ""
    baseline: str = ""
    colour: str = ""
    colour_nodes: str = "operator"
    tab: Tab | Literal[""] = ""
    panes: tuple[Side, ...] = ("node", "layer")
    stacked: bool = False
    across: bool = False
    follow: bool = False
    grouping: Grouping = "auto"
    grouping_nodes: Grouping = "auto"
    folds: tuple[str, ...] = ()
    step: int = 0
    settings: MappingType[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def from_payload(cls, payload: MappingType[str, Any]) -> ViewState:
        """From what the browser sent; unknown keys are ignored, so that versions may differ."""
        names = {field.name for field in dataclasses.fields(cls)}
        values: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in payload.items() if k in names}
        return cls(**values)

    def payload(self) -> dict[str, Any]:
        """For the browser."""
        fields: dict[str, Any] = to_builtins(self)
        return fields

    def select(
        self, nodes: Iterable[str], mapping: Mapping | None, other: Mapping | None = None
    ) -> ViewState:
        """Select nodes; their layers light up, in the engine shown and in the one compared with it."""
        selected_nodes = tuple(dict.fromkeys(nodes))
        return dataclasses.replace(
            self,
            selection=selected_nodes,
            layers=_layers(selected_nodes, mapping),
            others=_layers(selected_nodes, other),
            anchor="node",
        )

    def show(self, variant: str, mapping: Mapping | None, other: Mapping | None = None) -> ViewState:
        """Show another variant; the selected nodes stay, their layers are looked up anew."""
        return dataclasses.replace(self, variant=variant).select(self.selection, mapping, other)

    def arrange(self, **changes: object) -> ViewState:
        """Group, colour and place, as the menus of the panes do.

        Args:
            changes: ``grouping_nodes`` of the ONNX graph ("auto", "none", "layers", "repeats", "scopes") and
                ``grouping`` of engines ("auto", "none", "repeats"), where "auto" folds the repeated blocks of large
                graphs; ``colour_nodes`` and ``colour``, an overlay's id; ``panes``, the sides in their order;
                ``stacked``, ``across`` and ``follow``, true or false; ``tab``, whose charts open, or "" to fold them.

        Raises:
            RtlabError: there is no such choice, or not this value of it.
        """
        for name, value in changes.items():
            if name not in _CHOICES:
                raise RtlabError(
                    f'Cannot arrange the view by "{name}": it has no such choice. Choose among {", ".join(_CHOICES)}.'
                )
            choices, values = (
                _CHOICES[name],
                value if name == "panes" and isinstance(value, (list, tuple)) else (value,),
            )
            if choices and (not values or any(v not in choices for v in values)):
                raise RtlabError(
                    f"Cannot arrange the view by {name}={value!r}: this choice has other values. "
                    f"Choose among {', '.join(map(repr, choices))}."
                )
        return self.from_payload({**self.payload(), **changes})

    def compare(self, variant: str, other: Mapping | None) -> ViewState:
        """Show a second engine in a third pane, or with an empty name take that pane away."""
        if variant:
            # The order of the panes is the user's.
            panes = self.panes if "other" in self.panes else (*self.panes, "other")
            return dataclasses.replace(
                self, compared=variant, others=_layers(self.selection, other), panes=panes
            )
        panes = tuple(p for p in self.panes if p != "other")
        anchor: Side = "node" if self.anchor == "other" else self.anchor
        return dataclasses.replace(
            self, compared="", others=(), anchor=anchor, panes=panes or ("node", "layer")
        )


def _layers(nodes: Iterable[str], mapping: Mapping | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for n in nodes for i in (mapping.layers(n) if mapping else ())))


class Step(TypedDict):
    """One view of a presentation: ``words`` is the sentence that is shown with it.

    ``view`` holds the fields of a ``ViewState`` that are not as at first; ``places`` the part of each graph that is in
    view, by side: left, top, width and height in the graph's own units.
    """

    words: str
    view: dict[str, Any]
    places: dict[str, list[float]]


def parse_steps(steps: Iterable[MappingType[str, Any]]) -> list[Step]:
    """Steps with all their fields, in plain lists, numbers and texts; ``RtlabError`` where one of them is no step."""
    return [_parse_step(number, step) for number, step in enumerate(steps, 1)]


def _parse_step(number: int, step: MappingType[str, Any]) -> Step:
    try:
        parsed: Step = msgspec.convert({"words": "", "view": {}, "places": {}, **step}, Step)
    except (TypeError, msgspec.ValidationError) as error:
        raise _step_error(number, f"{error} in {step!r}") from error
    view, places = parsed["view"], parsed["places"]
    unknown = [
        *(set(step) - set(parsed)),
        *(set(view) - {field.name for field in dataclasses.fields(ViewState)}),
        *(set(places) - {*typing.get_args(Side)}),
        *({view.get("tab", "")} - {*_CHOICES["tab"]}),
    ]
    if unknown:
        raise _step_error(number, f"it has {', '.join(sorted(map(str, unknown)))}")
    for side, place in places.items():
        if len(place) != 4 or not all(map(math.isfinite, place)) or min(place[2:]) <= 0:
            raise _step_error(number, f"the place of {side} is {place}, not left, top, width and height")
    plain: Step = to_builtins(parsed)
    return plain


def _step_error(number: int, problem: str) -> RtlabError:
    return RtlabError(
        f"Cannot take step {number} of the presentation: {problem}. "
        'Give {"words": ..., "view": {...}}, as explorer.steps lists them.'
    )
