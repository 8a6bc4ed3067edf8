"""The contract between Python and the front end."""

from __future__ import annotations

from pathlib import Path

from rtlab.view import contract

TWIN = Path(__file__).parents[2] / "widgets" / "src" / "contract.ts"


def test_typescript_twin_is_current():
    """A field that one side does not know is an empty pane; python -m rtlab.view.contract writes the twin."""
    assert contract.typescript() == TWIN.read_text(encoding="utf-8")
