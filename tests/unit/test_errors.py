"""What every message keeps to."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from rtlab.errors import ModelError, RtlabError


def test_a_message_quotes_both_ends_of_a_long_name_and_keeps_it_in_the_details() -> None:
    name = "first" + "x" * 5_000_000 + "last"
    error = ModelError(f'Cannot find node "{name}" in model "m": no node has this id.', details="as told")
    text = str(error)
    assert text.startswith('Cannot find node "firstxxx')
    assert text.endswith('xxxlast" in model "m": no node has this id.')
    assert 199 == len(text.split('"')[1])
    assert f'as told\nCannot find node "{name}" in model "m": no node has this id.' == error.details


def test_a_long_message_of_short_names_is_told_whole() -> None:
    text = "Cannot do it: " + ", ".join(f'"node {i}"' for i in range(1000))
    error = RtlabError(text)
    assert (text, "") == (str(error), error.details)
    between = f'Backend "a" cannot build "b": {"words " * 50}choose backend="c", or "d".'
    assert between == str(RtlabError(between))
    # Spaces do not end a name that is quoted: 200 characters are told, one more is cut.
    for count, whole in ((200, True), (201, False)):
        told = str(RtlabError(f'Cannot load "{"a b" * 66}{"c" * (count - 198)}": no such file.'))
        assert whole == ("…" not in told)


@given(st.lists(st.text(alphabet='ab "\n…é', max_size=700), max_size=5).map("".join))
def test_no_message_has_a_longer_name_and_it_survives_pickling(text: str) -> None:
    error = ModelError(text, details="d")
    assert all(len(word) <= 200 for word in str(error).replace('"', " ").split())
    again = pickle.loads(pickle.dumps(error))
    assert (str(error), error.details) == (str(again), again.details)
    assert text in error.details if text != str(error) else error.details == "d"
