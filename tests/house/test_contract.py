"""The contract between Python and the front end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.web.page import contract

WIDGETS = Path(__file__).parents[2] / "widgets"


@pytest.mark.parametrize("name", sorted(contract.WRITTEN))
def test_typescript_twin_is_current(name: str):
    """A field that one side does not know is an empty pane; python -m rtlab.web.page.contract writes the twin."""
    assert contract.WRITTEN[name]() == (WIDGETS / name).read_text(encoding="utf-8")
