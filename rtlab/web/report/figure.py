"""A chart of the page as a ``plotly.graph_objects.Figure``: of a panel, or of the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.contract import Figure
from rtlab.errors import VariantError
from rtlab.web.page import charts
from rtlab.web.page.graph import engine_view

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: The charts that the page has beside its panels, by name: title, and key in ``charts.build_charts``.
_CHARTS = {
    "layers": ("Time of each layer", "timing"),
    "errors": ("Signal to noise along the network", "accuracy"),
}


def plotly_figure(name: str, context: PanelContext, *, index: int = 0) -> go.Figure:
    """One chart of a panel, or of the layers.

    Raises:
        VariantError: there is no panel of this name, or it has no such chart for this variant.
    """
    import plotly.graph_objects as go

    title, figures, problem = _read_figures(name, context)
    if not 0 <= index < len(figures):
        count = f"it has {len(figures)} here, counted from 0" if figures else problem or "it has none here"
        raise VariantError(f'Cannot draw chart {index} of "{name}": {count}.')
    figure, names = figures[index], get_variant_titles(context.study)
    heading = " · ".join(
        dict.fromkeys(filter(None, (title, figure["title"], context.model.name, names[context.result.name])))
    )
    if context.baseline is not None:
        heading += f", beside {names[context.baseline.name]}"
    # The page writes the title above the chart and leaves no room for it inside.
    margin: dict[str, Any] = {**figure["layout"].get("margin", {})}
    margin["t"] = max(60, margin.get("t", 0))
    layout = {**figure["layout"], "title": {"text": heading}, "margin": margin}
    return go.Figure(data=figure["data"], layout={**layout, "height": figure["height"] or None})


def _read_figures(name: str, context: PanelContext) -> tuple[str, list[Figure], str]:
    """Title, charts, and what is wrong where there are none."""
    if name in _CHARTS:
        title, key = _CHARTS[name]
        if name == "layers" and context.settings.get("order") == "time":
            key = "longest"
        view = engine_view(context.result, context.model)
        chart: dict[str, Any] = charts.build_charts(view, context.result)[key]
        return title, [Figure(title="", height=0, data=chart["data"], layout=chart["layout"])], ""
    if name not in panels.PANELS:
        choices = ", ".join((*_CHARTS, *panels.PANELS))
        raise VariantError(f'Cannot draw "{name}": there is none of this name. Choose one of {choices}.')
    panel = panels.render_panel(name, context)
    return panel["title"], list(panel["figures"]), panel["problem"]
