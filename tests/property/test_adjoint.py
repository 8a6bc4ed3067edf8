"""The rule of each operator against finite differences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab.adjoint import Tape, differentiate
from rtlab.core.model import Model
from rtlab.quantize.edit import Edit

RNG = np.random.default_rng(3)
FLOAT = TensorProto.FLOAT


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


#: By name: nodes from "x" to "y", the shape of x, the constants, and whether x is kept positive.
X4, X3 = (2, 4, 6, 6), (2, 5, 8)


def one(op: str, *more: str, **attributes: object) -> list:
    return [helper.make_node(op, ["x", *more], ["y"], "n", **attributes)]


CASES: dict[str, tuple] = {
    **{op: (one(op), X3, {}) for op in (
        "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Softplus", "Exp", "Erf", "Neg", "Abs", "Identity",
        "HardSigmoid", "HardSwish", "Softmax", "LogSoftmax",
    )},
    **{op: (one(op), X3, {}, "positive") for op in ("Log", "Sqrt", "Reciprocal")},
    "Clip": (one("Clip", "lo", "hi"), X3, {"lo": np.float32(-0.5), "hi": np.float32(0.8)}),
    "PRelu": (one("PRelu", "s"), X4, {"s": noise(4, 1, 1)}),
    "Pow": (one("Pow", "two"), X3, {"two": np.float32(2)}),
    "Pow 3": (one("Pow", "three"), X3, {"three": np.float32(3)}),
    **{op: ([
        helper.make_node("Slice", ["x", "a", "b", "ax"], ["p"], "s1"),
        helper.make_node("Slice", ["x", "b", "c", "ax"], ["q"], "s2"),
        helper.make_node(op, ["p", "q"], ["y"], "n"),
    ], X3, {"a": [0], "b": [1], "c": [5], "ax": [1]}, "positive") for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    "Where": ([
        helper.make_node("Greater", ["x", "z"], ["c"], "g"), helper.make_node("Where", ["c", "x", "w"], ["y"], "n")
    ], X3, {"z": np.float32(0), "w": noise(8)}),
    "Conv": (one("Conv", "w", "b", pads=[1, 1, 1, 1]), X4, {"w": noise(3, 4, 3, 3), "b": noise(3)}),
    "Conv stride": (one("Conv", "w", strides=[2, 2], pads=[0, 1, 1, 0]), X4, {"w": noise(3, 4, 3, 2)}),
    "Conv groups": (one("Conv", "w", group=2, dilations=[2, 1]), X4, {"w": noise(6, 2, 2, 3)}),
    "Conv depthwise": (one("Conv", "w", group=4, strides=[2, 2], pads=[1, 1, 1, 1]), X4, {"w": noise(4, 1, 3, 3)}),
    "Conv same": (one("Conv", "w", auto_pad="SAME_UPPER", strides=[2, 2]), X4, {"w": noise(3, 4, 3, 3)}),
    "ConvTranspose": (one("ConvTranspose", "w", strides=[2, 2], pads=[1, 1, 1, 1]), X4, {"w": noise(4, 3, 3, 3)}),
    "MatMul": (one("MatMul", "w"), X3, {"w": noise(8, 3)}),
    "MatMul left": ([helper.make_node("MatMul", ["w", "x"], ["y"], "n")], X3, {"w": noise(3, 5)}),
    "MatMul both": ([
        helper.make_node("Transpose", ["x"], ["t"], "t", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"], "n"),
    ], X3, {}),
    "Gemm": (one("Gemm", "w", "b", alpha=0.5, transB=1), (3, 8), {"w": noise(4, 8), "b": noise(4)}),
    "Gemm turned": ([helper.make_node("Gemm", ["w", "x"], ["y"], "n", transA=1, transB=1)], (3, 8), {"w": noise(8, 2)}),
    "BatchNormalization": (
        one("BatchNormalization", "s", "b", "m", "v"), X4,
        {"s": noise(4), "b": noise(4), "m": noise(4), "v": np.abs(noise(4)) + 0.1},
    ),
    "LayerNormalization": (one("LayerNormalization", "s", "b"), X3, {"s": noise(8), "b": noise(8)}),
    "InstanceNormalization": (one("InstanceNormalization", "s", "b"), X4, {"s": noise(4), "b": noise(4)}),
    "Reshape": (one("Reshape", "s"), X3, {"s": [0, -1]}),
    "Flatten": (one("Flatten"), X3, {}),
    "Transpose": (one("Transpose", perm=[2, 0, 1]), X3, {}),
    "Unsqueeze": (one("Unsqueeze", "a"), X3, {"a": [1]}),
    "Concat": (one("Concat", "x", "w", axis=1), X3, {"w": noise(2, 3, 8)}),
    "Split": ([
        helper.make_node("Split", ["x", "s"], ["p", "q"], "n", axis=2), helper.make_node("Mul", ["q", "w"], ["y"], "m")
    ], X3, {"s": [3, 5], "w": noise(5)}),
    "Slice": (one("Slice", "a", "b", "ax"), X3, {"a": [1], "b": [-1], "ax": [2]}),
    "Gather": (one("Gather", "i", axis=1), X3, {"i": np.int64(2)}),
    "Gather kept": (one("Gather", "i", axis=2), X3, {"i": np.array([-1])}),
    "Pad": (one("Pad", "p"), X3, {"p": [0, 1, 2, 0, 0, 1]}),
    "Expand": (one("Expand", "s"), (2, 1, 8), {"s": [2, 5, 8]}),
    "ReduceSum": (one("ReduceSum", "a", keepdims=0), X3, {"a": [1]}),
    "ReduceMean": (one("ReduceMean", axes=[1, 2]), X3, {}),
    "GlobalAveragePool": (one("GlobalAveragePool"), X4, {}),
    "AveragePool": (one("AveragePool", kernel_shape=[2, 2], strides=[2, 2]), X4, {}),
    "AveragePool padded": (
        one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1), X4, {}
    ),
    "MaxPool": (one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0]), X4, {}),
    "Resize": (
        one("Resize", "", "s", nearest_mode="floor", coordinate_transformation_mode="asymmetric"), X4,
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
}  # fmt: skip


def ran(model: Model, feed: dict[str, np.ndarray], names: list[str]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"]).run(
        names, feed
    )


def gradient(model: Model) -> Model:
    """The model with a seed for its output, and the gradient of its input as another output."""
    edit = Edit(model)
    tape = Tape(edit.graph, model.opset, model.known)
    nodes, end = list(edit.graph), edit.values["y"]
    seed = ir.Value(name="seed", type=end.type, shape=end.shape)
    edit.graph.inputs.append(seed)
    found = differentiate(tape, nodes, {end: seed}, beyond=lambda _: False)
    assert not found.stopped
    edit.graph.outputs.append(found.values[edit.values["x"]])
    edit.settle()
    return edit.finish()


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_finite_differences(case: str) -> None:
    """Along random directions, from both sides; kinks are too rare to be met."""
    nodes, shape, weights, *positive = CASES[case]
    x = noise(*shape)
    x = np.abs(x) + 0.5 if positive else x
    constants = {k: np.asarray(v) for k, v in weights.items()}
    model = graph(
        nodes, [("x", FLOAT, list(shape))], [("y", FLOAT, [f"d{i}" for i in range(_rank(case))])], constants
    )
    (y,) = ran(model, {"x": x}, ["y"])
    seed = noise(*y.shape)
    both = gradient(model)
    (slope,) = ran(both, {"x": x, "seed": seed}, [both.outputs[1]])
    assert slope.shape == x.shape
    for _ in range(3):
        step = noise(*shape) * 1e-3
        ends = [
            ran(model, {"x": (x + s * step).astype(np.float32)}, ["y"])[0].astype(np.float64) for s in (-1, 1)
        ]
        true = float(((ends[1] - ends[0]) / 2 * seed).sum())
        scale = float(np.linalg.norm(slope) * np.linalg.norm(step))
        assert float((slope.astype(np.float64) * step).sum()) == pytest.approx(true, abs=0.02 * scale + 1e-5)


def _rank(case: str) -> int:
    nodes, shape, *_ = CASES[case]
    fewer = {"Flatten": 2, "Reshape": 2, "Unsqueeze": 4, "Gather": 2, "ReduceSum": 2}
    return fewer.get(case, len(shape) if nodes else 0)


def test_what_no_rule_covers_stops_there_and_is_told() -> None:
    """What lies upstream lacks its gradient; what lies beside it does not."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], "before"),
        helper.make_node("Round", ["a"], ["b"], "gap"),
        helper.make_node("Tanh", ["x"], ["c"], "beside"),
        helper.make_node("Add", ["b", "c"], ["y"], "sum"),
    ]
    model = graph(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], {})
    edit = Edit(model)
    tape, forward, end = Tape(edit.graph, model.opset, model.known), list(edit.graph), edit.values["y"]
    found = differentiate(tape, forward, {end: end}, beyond=lambda _: False)
    assert {"gap": "there is no rule for Round"} == found.stopped
    assert {edit.values["a"], edit.values["x"]} == found.lacking
    assert edit.values["c"] in found.values
