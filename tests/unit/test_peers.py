"""What is counted of peers, from arithmetic by hand; the peers themselves run on demand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import peers
from peers import Row


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


def row(way: str, gap: tuple[float, float, float] | None, seconds: float, runs: int | None = None) -> Row:
    return Row(way, None if gap is None else 98.0 - gap[0], gap, "0", runs, seconds)


GOOD, UNSURE, BAD = (0.5, 0.1, 0.9), (2.0, -0.1, 4.1), (3.0, 0.1, 5.9)


def test_a_repair_that_peers_surpass_is_said_to_be_surpassed() -> None:
    """Good is within half a point, or where the interval holds none."""
    lost = peers.verdict([row("A", GOOD, 1), row("B", UNSURE, 2), row("rtlab, int8 repaired", BAD, 3)])
    assert "A, B." in lost
    assert "**Peers are better here**: rtlab, int8 repaired is not among them." in lost
    won = peers.verdict([row("A", BAD, 1), row("B", GOOD, 2), row("rtlab, int8 repaired", GOOD, 3)])
    assert won.endswith(": B, rtlab, int8 repaired.")
    none = peers.verdict([Row("A", None, None, "", None, None, "raised"), row("rtlab, int8", GOOD, 1)])
    assert none.endswith(": rtlab, int8.")


def test_peers_stand_beside_the_worst_and_the_slowest_of_the_repairs() -> None:
    """Of 97.5, 96 and 95 percent; B and D are quick, D is not near; C, with a search, is no mere calibration."""
    rows = [
        row("fp32", (0.0, 0.0, 0.0), 0), row("A", GOOD, 9), row("B", UNSURE, 4), row("C", GOOD, 6, 3), row("D", BAD, 1),
        row("rtlab, int8 auto", BAD, 1), row("rtlab, int8 auto repaired", GOOD, 2, 1),
        row("rtlab, int8 minmax repaired", UNSURE, 5, 1),
    ]  # fmt: skip
    assert peers.better(rows) == [
        "more right than rtlab's repair (96.00 %): A (97.50), C (97.50)",
        "more right, without a search, than rtlab, int8 auto, without repair (95.00 %): A (97.50), B (96.00)",
        "as near to fp32 as is asked, and quicker than rtlab's repair (5.0 s): B (4.0 s)",
    ]
    assert peers.better([row("D", BAD, 7), *rows[5:]]) == []


def test_the_lead_tells_better_rankings_and_what_is_left_out() -> None:
    kept = {
        "fp16": {"fp16_overflow": [vars(Row("A", None, None, "", None, None, "not done after 9 s"))]},
        "rankings": {
            "digits_vit": [
                ["rtlab.sensitivity", 0.9, 5, 0.99, 8, 20.0, 3.0, ""], ["rtlab, alone", 0.99, 5, 0.99, 8, 2.0, 1.0, ""],
                ["A", 0.95, 4, 0.99, 8, 30.0, 2.9, ""], ["AIMET, against itself", 1.0, 5, None, 8, 1.0, 1.0, ""],
                ["B", -0.1, 5, 0.99, 8, 19.9, 3.1, ""], ["C", None, 0, 0.99, 8, None, None, "raised"],
            ]
        },
    }  # fmt: skip
    lines = peers.lead(kept)
    assert lines[:4] == [
        "- **FP16: fp16_overflow**: in nothing.",
        "- **FP16: fp16_overflow**: A has no number: not done after 9 s.",
        (
            "- **The guilty of digits_vit**: nearer to the truth than rtlab (0.90): A (0.95 over 4 of 5 nodes); "
            "fewer plain inferences than rtlab (20.0): B (19.9); quicker than rtlab (3.0 s): A (2.9 s)."
        ),
        "- **The guilty of digits_vit**: C has no number: raised.",
    ]
    assert [line for line in lines[4:] if "left out" in line] == lines[4:]
    assert "digits_outlier, digits_inception" in lines[4]
    assert "fp16_overflow" not in lines[5]
    assert "digits_vit" not in lines[6]


def test_the_page_tells_refusals_and_what_is_not_known() -> None:
    gone = dict.fromkeys(("right", "gap", "runs", "seconds"))
    kept = {
        "date": "2026-01-02", "versions": {"onnx": "1.0"}, "told": 7,
        "int8": {"net": [{"way": "AIMET", **gone, "high": "", "note": "a | b"}]},
        "rankings": {"net": [["rtlab.sensitivity", 0.987, 5, float("nan"), 64, 8.04, 1.26, "so"]]},
    }  # fmt: skip
    lines = peers.page(kept).splitlines()
    assert "| AIMET | – | – | – | – | – | a / b |" in lines
    assert "| net | rtlab.sensitivity | 0.99 | 5 | – | 64 | 8.0 | 1.3 | so |" in lines
