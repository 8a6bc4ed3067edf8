"""Whether outputs are numbers is a limit of its own: two models that answer nothing are equal."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import nets
import rtlab
from rtlab.analyses import channels

FLOAT = TensorProto.FLOAT
ROWS = 8


def study(nodes: list, x: np.ndarray, weights: dict | None = None, **task) -> rtlab.Study:
    """A model of ``x`` to ``y``, row by row, in FP16, with a task of its own answers or of these labels."""
    ends = ([(name, FLOAT, ["N", x.shape[1]])] for name in "xy")
    model = nets.graph(nodes, *ends, weights or {})
    data = rtlab.CalibrationData({"x": x.astype(np.float32)})
    made = rtlab.Study(model, data=data, task=rtlab.Task(data, **task))
    made.add("fp16", precision="fp16", backend="onnxruntime", target="cpu")
    return made


def row(made: rtlab.Study):
    return next(r for r in made.accuracy.check("fp16").rows if r.check == "numbers")


def test_infinities_that_fp32_has_not_break_the_check() -> None:
    """exp(20) is 4.9e8, beyond FP16's 65,504; exp(1) is not. One row of eight, all of its four elements."""
    x = np.ones((ROWS, 4))
    x[3] = 20
    nodes = [helper.make_node("Exp", ["x"], ["e"], "exp"), helper.make_node("Neg", ["e"], ["y"], "neg")]
    made = study(nodes, x)
    found = row(made)
    assert found.verdict == "broken"
    assert '4 of 32 elements of "y"' in found.found
    assert not made.accuracy.check("fp16", max_drop=100).ok


def test_what_fp32_itself_cannot_compute_breaks_the_check() -> None:
    """0 / 0 in each element: both are NaN everywhere, and equal."""
    x = np.zeros((ROWS, 4))
    made = study([helper.make_node("Div", ["x", "x"], ["y"], "div")], x, labels=np.zeros(ROWS, int))
    found = row(made)
    assert found.verdict == "broken"
    assert '32 of 32 elements of "y" are NaN in fp32 itself' in found.found


def test_an_fp32_that_is_always_wrong_breaks_the_check_and_one_that_is_sometimes_right_does_not() -> None:
    x = np.eye(4)[np.arange(ROWS) % 4] + 0.25
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    right = np.arange(ROWS) % 4
    assert row(study(nodes, x, labels=(right + 1) % 4)).verdict == "broken"
    once = (right + 1) % 4
    once[0] = right[0]
    assert row(study(nodes, x, labels=once)).verdict == "holds"


def test_the_infinities_of_a_mask_are_no_error() -> None:
    """FP32 has them, too: softmax makes zeros of them."""
    mask = np.where(np.arange(4) < 2, 0, -np.inf).astype(np.float32)
    masked = helper.make_node("Add", ["x", "mask"], ["masked"], "add")
    nodes = [masked, helper.make_node("Softmax", ["masked"], ["y"], "softmax", axis=-1)]
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    made = study(nodes, x, {"mask": mask})
    assert row(made).verdict == "holds"
    values = {v.value: v for v in made["fp16"].accuracy.values}
    assert [(v.overflowed, v.undefined, v.elements) for v in values.values()] == [(0, 0, 32)] * 2
    assert all(v.sqnr > 30 for v in values.values())


def test_infinities_of_an_output_that_fp32_has_too_are_no_loss() -> None:
    mask = np.where(np.arange(4) < 2, 0, -np.inf).astype(np.float32)
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    made = study([helper.make_node("Add", ["x", "mask"], ["y"], "add")], x, {"mask": mask})
    assert row(made).verdict == "holds"


def test_channels_count_the_infinities_of_one_alone() -> None:
    inf, nan = np.inf, np.nan
    reference = np.array([[1.0, inf, nan, 2.0, -inf, 3.0]], np.float32)
    variant = np.array([[1.0, inf, nan, inf, inf, 3.5]], np.float32)
    (found,) = channels.ChannelSums.from_batch(reference, variant, None, 0, None).compute_rows(
        quantized=False
    )
    assert found.overflowed == 2
    (fine,) = channels.ChannelSums.from_batch(reference[:, :3], variant[:, :3], None, 0, None).compute_rows(
        quantized=False
    )
    assert (fine.overflowed, fine.rmse) == (0, 0)


def test_a_regression_without_any_number_is_repaired_by_the_nodes_that_overflow() -> None:
    """x² of 300 is 90,000, beyond FP16's 65,504: the square and the mean of it stay in FP32, and all is well."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 4)) + 300
    square = helper.make_node("Mul", ["x", "x"], ["square"], "square")
    nodes = [square, helper.make_node("Sqrt", ["square"], ["y"], "root")]
    made = study(nodes, x, metric="nmse")
    assert made.run()["fp16"].score is None
    repair = made.accuracy.repair("fp16")
    assert repair.before == float("inf")
    assert 0 <= repair.after < 0.01
    assert "square" in repair.kept_high
    assert repair.enough
