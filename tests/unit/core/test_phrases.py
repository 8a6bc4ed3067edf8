"""Counts and names as sentences have them."""

from __future__ import annotations

import pytest

from rtlab.core.phrases import many, quoted
from rtlab.core.variant import Precision


@pytest.mark.parametrize(
    ("count", "nouns", "words"),
    [
        (0, ("node",), "0 nodes"),
        (1, ("node",), "1 node"),
        (2, ("node",), "2 nodes"),
        (1, ("layer has", "layers have"), "1 layer has"),
        (3, ("layer has", "layers have"), "3 layers have"),
    ],
)
def test_a_noun_has_the_number_of_its_count(count: int, nouns: tuple[str, ...], words: str) -> None:
    assert words == many(count, *nouns)


def test_names_stand_in_quotes_in_their_order() -> None:
    assert '"b", "a"' == quoted(["b", "a"])
    assert '"int8"' == quoted([Precision.INT8])
    assert "" == quoted([])
