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


def test_steps_that_were_read_are_set_again_as_they_are() -> None:
    """A list that was copied into a cell is the same list."""
    once = steps_of([{"words": "x", "view": {"tab": "memory"}, "places": {"node": [0, -1.5, 30, 40]}}, {}])
    assert once == steps_of(once)
    assert [0.0, -1.5, 30.0, 40.0] == once[0]["places"]["node"]
