"""Weights in four bits keep more of what their layers write than rounded to nearest, for a few plain inferences."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

import reconstructed

if TYPE_CHECKING:
    from conftest import Care

#: Decibels won by the median layer; what it may take in plain inferences of itself, and seconds of one from which on
#: that is asked.
WON, COST, LARGE_S = 6.0, 50.0, 1e-4


@pytest.mark.timeout(900)
def test_the_median_layer_keeps_six_decibels_more(care: Care) -> None:
    found = [*reconstructed.table(care.size(reconstructed.SAMPLES, ("digits_vit",)))]
    for precision in ("int4", "fp4"):
        layers = [one for _, p, some in found for one in some if p == precision]
        assert reconstructed.gain(layers) >= WON
    # A product of microseconds costs many of them, and still only milliseconds.
    large = [one.cost for _, _, some in found for one in some if one.plain > LARGE_S]
    assert statistics.median(large) <= care.most(COST)
