"""A presenter's list of views."""

from __future__ import annotations

import json

from rtlab.view.state import ViewState
from rtlab.view.steps import steps_of


def test_a_step_of_a_cell_is_complete_and_plain() -> None:
    """What a person leaves out is as at first; tuples of a view become lists, as in the notebook's JSON."""
    (made,) = steps_of(
        [{"words": "Look", "view": {"selection": ("a", "b"), "settings": {"memory.batch": "4"}}}]
    )
    assert {
        "words": "Look",
        "view": {"selection": ["a", "b"], "settings": {"memory.batch": "4"}},
        "places": {},
    } == made
    assert made == json.loads(json.dumps(made))
    assert ("a", "b") == ViewState.of(made["view"]).selection
