"""A presenter's list of views."""

from __future__ import annotations

import json

import pytest

from rtlab.errors import RtlabError
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


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"text": "x"}, "step 2.*it has text"),
        ("x", "step 2.*it is 'x'"),
        ({"words": 3}, "step 2.*its words are 3"),
        ({"view": {"tabs": "memory"}}, "step 2.*its view has tabs.*selection"),
        ({"view": {"tab": "memories"}}, 'step 2.*no tab "memories".*memory'),
        ({"places": {"left": [0, 0, 1, 1]}}, "step 2.*node, layer, other"),
        ({"places": {"node": [0, 0, 1]}}, "step 2.*left, top, width and height"),
        ({"places": {"node": 3}}, "step 2.*left, top, width and height"),
        ({"places": {"node": [0, 0, 0, 1]}}, "step 2.*left, top, width and height"),
        ({"places": {"node": [0, 0, float("nan"), 1]}}, "step 2.*left, top, width and height"),
    ],
)
def test_what_is_no_step_is_said_with_its_number_and_what_to_do(wrong: object, found: str) -> None:
    """A typing error in a cell is found where it is made, and not in front of the room."""
    with pytest.raises(RtlabError, match=found):
        steps_of([{"words": "fine"}, wrong])  # type: ignore[list-item]
