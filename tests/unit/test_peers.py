"""What is counted of peers, from arithmetic by hand; the peers themselves run on demand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import peers


def test_points_behind_are_those_of_the_pairs() -> None:
    """Ten samples: three are lost, one is won, so 20 points; (4 - 2) / 12 in the middle of the interval."""
    one = np.array([1, 1, 1, 1, 1, 1, 1, 0, 0, 0], bool)
    other = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0, 0], bool)
    points, low, high = peers.paired(one, other)
    assert points == pytest.approx(20)
    assert (low + high) / 2 == pytest.approx(100 * 2 / 12)
    variance = (4 + 2) / 12 - (2 / 12) ** 2
    assert high - low == pytest.approx(2 * 1.96 * 100 * np.sqrt(variance / 12), rel=1e-3)


def test_nodes_kept_high_are_those_that_write_fp32() -> None:
    """A cast, a half, a cast back: what the peer put in is not of the model, and not counted."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "cast", to=TensorProto.FLOAT16),
        helper.make_node("Relu", ["h"], ["r"], "half"),
        helper.make_node("Cast", ["r"], ["f"], "back", to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["f"], ["s"], "high"),
        helper.make_node("Shape", ["s"], ["y"], "shape"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]))
    onnx.checker.check_model(model)
    assert peers.kept_high(model, ["half", "high", "shape"]) == ("high",)


def test_agreement_is_over_the_nodes_that_both_know() -> None:
    """1 - 6 · 2 / (4 · 15) where two neighbours of four are swapped; the fifth is unknown."""
    truth = {"a": 9.0, "b": 7.0, "c": 5.0, "d": 3.0, "e": 1.0}
    found, nodes = peers.agreement(truth, {"d": -8.0, "c": -2.0, "b": -3.0, "a": -1.0, "other": 0.0})
    assert nodes == 4
    assert found == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert np.isnan(peers.agreement(truth, {"a": 1.0, "b": 2.0})[0])
    assert np.isnan(peers.agreement(truth, {"other": 1.0})[0])


GOOD, UNSURE, BAD = (0.5, 0.1, 0.9), (2.0, -0.1, 4.1), (3.0, 0.1, 5.9)
