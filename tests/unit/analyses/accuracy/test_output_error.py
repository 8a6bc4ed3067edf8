"""The SQNR of the output that a table of variants shows."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.analyses.accuracy import compute_accuracy, find_output_error
from rtlab.core.facts import Errors


def facts(overflows: int = 0) -> SimpleNamespace:
    """Two outputs and a value between, whose sums of squares are 100 and whose errors are given."""
    nodes = [
        helper.make_node("Relu", ["x"], ["hidden"]),
        helper.make_node("Neg", ["hidden"], ["a"]),
        helper.make_node("Abs", ["hidden"], ["b"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("x", "a", "b")]
    model = rtlab.load(helper.make_model(helper.make_graph(nodes, "two", ends[:1], ends[1:])))
    lost = {"hidden": (50.0, 0), "a": (1.0, 0), "b": (0.1, overflows)}
    sums = {v: np.array([100, e, 100, 100, 1, 4, bad, 0, 0, 0]) for v, (e, bad) in lost.items()}
    return SimpleNamespace(errors=Errors("cpu", sums, dict.fromkeys(lost, 1)), source=model)


def test_it_is_the_lowest_of_the_outputs_and_none_of_a_value_between() -> None:
    """By hand: 10 log10(100 / 1) is 20 dB, of the other output 30 dB, of the value between 3 dB."""
    one = facts()
    worst = find_output_error(one)  # type: ignore[arg-type]
    assert worst is not None
    assert worst.value == "a"
    assert worst.sqnr == pytest.approx(20)
    # It is the number that the values of the tab have.
    errors = compute_accuracy(one)  # type: ignore[arg-type]
    assert errors is not None
    assert worst.sqnr == next(v.sqnr for v in errors.values if v.value == "a")


def test_an_output_that_is_not_finite_is_the_worst() -> None:
    worst = find_output_error(facts(overflows=1))  # type: ignore[arg-type]
    assert worst is not None
    assert ("b", -math.inf, "not finite") == (worst.value, worst.sqnr, worst.note)


def test_there_is_none_without_a_comparison() -> None:
    assert find_output_error(SimpleNamespace(errors=None)) is None  # type: ignore[arg-type]
