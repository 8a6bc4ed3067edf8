"""anywidget, ipywidgets and plotly classes: they display payloads and pass gestures on."""
