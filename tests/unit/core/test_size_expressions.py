"""Dimensions that exporters write as arithmetic, against arithmetic by hand."""

from __future__ import annotations

import pytest

from rtlab.core.size_expressions import evaluate, list_names, list_symbols, solve


@pytest.mark.parametrize(
    ("dim", "names", "size"),
    [
        ("past_sequence_length + 1", ("past_sequence_length",), 8), ("2*s0", ("s0",), 6), ("s0", ("s0",), 3),
        ("s0 + past_sequence_length", ("s0", "past_sequence_length"), 10), ("(s0 + 1)//2", ("s0",), 2),
        ("s0 - 1 - 1", ("s0",), 1), ("s0*2 + 3*s0", ("s0",), 15),
        ("past_sequence_length / 2", ("past_sequence_length",), 3),
        # What is no arithmetic is a symbol like any other.
        ("p2o.DynamicDimension.0", None, None), ("floor(s0/2)", None, None), ("s0**2", None, None), ("?", None, None),
        ("1or 2", None, None), ("s0 + 1.5", None, None), ("s0 +", None, None), ("s0 if 1 else 2", None, None),
        ("-s0", None, None), ("1 + 2", None, None), ("__import__('os')", None, None), ("s0 + True", None, None),
        ("(" * 500 + "s0" + ")" * 500, None, None), ("s0//0", ("s0",), None), ("s0 + other", ("s0", "other"), None),
    ],
)  # fmt: skip
def test_a_dimension_is_computed_of_its_symbols(dim, names, size) -> None:
    assert list_names(dim) == (names or (dim,))
    assert evaluate(dim, {"s0": 3, "past_sequence_length": 7}) == size


def test_the_whole_length_is_that_of_both_parts_where_a_model_has_them() -> None:
    parts = ["sequence_length", "past_sequence_length"]
    assert list_symbols(["batch", "total_sequence_length", *parts]) == ("batch", *parts)
    assert list_symbols(["total_sequence_length"]) == ("total_sequence_length",)
    assert evaluate("total_sequence_length", {"sequence_length": 2, "past_sequence_length": 5}) == 7
    assert evaluate("total_sequence_length", {"sequence_length": 2, "total_sequence_length": 9}) == 9


@pytest.mark.parametrize(
    ("dim", "size", "solution"),
    [
        ("a + b", 129, {"b": 128}), ("2*b", 6, {"b": 3}), ("2*b", 5, {}), ("(b + 1)//2", 4, {"b": 8}), ("a", 1, {}),
        ("a + b + c", 9, {}), ("b - b", 0, {}),
    ],
)  # fmt: skip
def test_the_one_symbol_without_a_size_follows_from_the_dimension(dim, size, solution) -> None:
    assert solve(dim, size, {"a": 1}) == solution
