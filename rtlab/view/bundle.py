"""Finds the built front end."""

from __future__ import annotations

from pathlib import Path

from rtlab.errors import Unavailable


def bundle(name: str) -> str:
    """The text of the built script of one widget.

    Raises:
        Unavailable: a checkout was never built; the message names the command.
    """
    path = Path(__file__).parents[1] / "static" / name
    if not path.exists():
        raise Unavailable(
            f'Cannot show the widget: its script "static/{name}" is not built. '
            "Run npm --prefix widgets ci && npm --prefix widgets run build in the checkout."
        )
    return path.read_text(encoding="utf-8")
