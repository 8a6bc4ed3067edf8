"""Figures and panels as SVG: the few kinds of Plotly's figures that panels have, drawn without a browser."""
