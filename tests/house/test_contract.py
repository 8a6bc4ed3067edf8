"""The contract between Python and the front end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.view import contract

TWIN = Path(__file__).parents[2] / "widgets" / "src" / "contract.ts"


def test_typescript_twin_is_current():
    """A field that one side does not know is an empty pane; python -m rtlab.view.contract writes the twin."""
    assert contract.typescript() == TWIN.read_text(encoding="utf-8")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Lone surrogates are no text; they are replaced.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_decoding_is_the_inverse_of_encoding(payload):
    """What Python projects is what the browser reads, whatever the names in a model are."""
    assert payload == contract.decode(contract.encode(payload))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_json_does_not_know_are_refused(bad):
    """The browser would stop at a NaN; a missing number is None."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        contract.encode({"value": bad})
