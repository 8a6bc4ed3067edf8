"""Numbers as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.documents.numbers import number, storage, storage_unit


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123456, "ms", "12.3 µs"),
        (-2.5, "ms", "−2.5 ms"),
        (1100.0, "MB", "1,100 MB"),
        (-123_456.0, "ms", "−123,000 ms"),
        (999.7, "", "1,000"),
        (1.2e9, "", "1.2e+09"),
        (None, "ms", "—"),
    ],
)
def test_a_number_has_three_digits_and_no_exponent_that_a_person_would_not_write(value, unit, text) -> None:
    assert text == number(value, unit)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1_023, "1023 bytes"), (1_024, "1 KiB"), (1_181_116_006, "1.1 GiB"), (None, "—")],
)
def test_bytes_are_told_in_the_unit_that_reads_best(nbytes, text) -> None:
    assert text == storage(nbytes)


def test_a_difference_of_bytes_has_a_sign() -> None:
    assert ["+7.81 MiB", "−7.81 MiB", "−12 bytes"] == [
        storage(n, signed=True) for n in (8_192_000, -8_192_000, -12)
    ]


@given(st.integers(1_024, 10**12 - 1))
def test_what_is_told_of_bytes_is_within_half_a_percent(nbytes) -> None:
    told, unit = storage(nbytes).replace(",", "").split()
    assert (unit, True) == (
        storage_unit(nbytes)[0],
        math.isclose(float(told) * storage_unit(nbytes)[1], nbytes, rel_tol=0.005),
    )
