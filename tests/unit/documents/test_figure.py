"""What all figures have in common."""

from __future__ import annotations

import pytest

from rtlab.documents.figure import logarithmic


@pytest.mark.parametrize(
    ("least", "most", "within"),
    [
        (0.4, 3.0, ["0.5", "1", "2"]), (1.0, 1.35, ["1", "1.1", "1.2", "1.3"]),
        (0.97, 1.04, ["0.98", "1", "1.02", "1.04"]), (880.0, 910.0, ["880", "890", "900", "910"]),
        (150.0, 36_000.0, ["200", "500", "1,000", "2,000", "5,000", "10,000", "20,000"]),
        (100.0, 1e6, ["100", "1,000", "10,000", "100,000", "1,000,000"]), (1.0, 1.0, ["1"]),
    ],
)  # fmt: skip
def test_ticks_of_a_logarithmic_axis_are_whole_numbers_and_few(least, most, within) -> None:
    """Plotly by itself writes 5, 2, 10k, 5, 2: the reader would have to guess the tens."""
    ticks = logarithmic(least, most)
    shown = zip(ticks["tickvals"], ticks["ticktext"], strict=True)
    assert within == [text for value, text in shown if least <= value <= most]
