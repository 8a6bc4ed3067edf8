"""A picture of one panel of a study, or of one of the charts that the page has by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtlab.documents.contract import Figure
from rtlab.documents.drawing.sheet import Picture, picture
from rtlab.documents.figure import SIGNS
from rtlab.documents.tabs import TABS
from rtlab.errors import VariantError
from rtlab.questions import panels
from rtlab.questions.scene import Scene
from rtlab.questions.titles import titles
from rtlab.view import charts, chrome
from rtlab.view.effects import ranking_of
from rtlab.view.graph import engine_view

if TYPE_CHECKING:
    from rtlab.documents.contract import Panel

#: The charts of the page, by the names that they have in their tabs: title, and what the kernel calls them.
_CHARTS = {
    "layers": ("Time of each layer", "timing"),
    "errors": ("Signal to noise along the network", "accuracy"),
}


def drawn(name: str, scene: Scene, *, width: float, dark: bool) -> Picture:
    """Draw a panel, a chart of the layers, or the first of either under a tab's name.

    Raises:
        VariantError: there is none of this name.
    """
    result = scene.result
    called = titles(scene.study)
    beside = f", beside {called[scene.baseline.name]}" if scene.baseline is not None else ""
    about = f"{scene.model.name} · {called[result.name]}{beside}"
    sources = [
        f"{SIGNS[item['origin']]} {item['text']}"
        for item in chrome.status(scene.study, result.name)
        if item["warning"] or item["text"].startswith(_TOLD)
    ]
    return picture(_panel(name, scene), about=about, sources=sources, width=width, dark=dark)


#: Of the status line: what made the numbers.
_TOLD = ("compiled:", "read:", "predicted:", "measured:", "estimated:")


def _panel(name: str, scene: Scene) -> Panel:
    if name not in panels.PANELS:
        # A panel comes before the tab that is called the same.
        name = _FIRST.get(name, name)
    if name in _CHARTS:
        return _chart(name, scene)
    if name not in panels.PANELS:
        known, tabs = ", ".join((*_CHARTS, *panels.PANELS)), ", ".join(_FIRST)
        raise VariantError(
            f'Cannot draw "{name}": there is none of this name. Choose {known}; or a tab, for its first: {tabs}.'
        )
    return panels.answer(name, scene)


#: What each tab shows first, as the page has it.
_FIRST = {
    str(tab.name): next(iter((*tab.panels, *(q.name for q in panels.QUESTIONS if q.tab == tab.name))))
    for tab in TABS
}


def _chart(name: str, scene: Scene) -> Panel:
    title, key = _CHARTS[name]
    result = scene.result
    view = engine_view(result, scene.model, ranking_of(scene.study, result.name))
    if scene.settings.get("order") == "time":
        key = "longest" if name == "layers" else key
    found: dict[str, Any] = charts.of(view, result)[key]
    figure = Figure(title=title, height=0, data=found["data"], layout=found["layout"])
    return panels.PANELS["kernels"].panel(scene, title=title, lead="", figures=[figure])
