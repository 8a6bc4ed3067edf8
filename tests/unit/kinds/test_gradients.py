"""Rules of gradients with the less usual attributes, against differences of what ONNX Runtime computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from nets import graph, graph_proto, run
from property.test_adjoint import differentiated
from rtlab.core.model import Model

FLOAT = TensorProto.FLOAT


@dataclasses.dataclass(frozen=True)
class Node:
    """One operator that writes "y" from "x"; further inputs are constants unless they are ``asked`` for, too."""

    op: str
    shape: tuple[int, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rest: tuple[Any, ...] = ()
    opset: int = 17
    step: float = 1.0
    asked: bool = False
    second: bool = False


def gradients(source: Model, feed: dict[str, np.ndarray], seed: np.ndarray) -> dict[str, np.ndarray]:
    model, names, stopped = differentiated(source, [*feed])
    assert stopped == {}
    _, *rest = run(model.bytes(), {**feed, "seed": seed})
    found = iter(rest)
    return {k: next(found) if n else np.zeros_like(feed[k]) for k, n in zip(feed, names, strict=True)}


def ramp(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)


WIDE, PICTURE = (2, 3, 4), (1, 2, 3, 2)
#: What tests/property/test_adjoint.py does not draw, or seldom.
LINEAR = [
    Node("Conv", (2, 4, 5, 6), {"group": 2, "pads": [0, 1, 2, 1], "strides": [2, 1]},
         (ramp(2, 2, 3, 2), ramp(2)), asked=True),
    Node("Conv", (2, 4, 7), {"group": 4, "dilations": [2], "pads": [2, 1]}, (ramp(4, 1, 3),), asked=True),
    Node("AveragePool", (1, 2, 5, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, opset=19),
    Node("AveragePool", (1, 2, 5, 7), {"kernel_shape": [2, 3], "dilations": [2, 2]}, opset=19),
    Node("Resize", PICTURE, {"mode": "nearest"}, (None, None, np.array([1, 2, 6, 3]))),
    Node("Resize", PICTURE, {"mode": "linear", "axes": [-1, 2]}, (None, np.array([1.5, 2], np.float32)), 18),
    Node("ReduceMean", WIDE, {"axes": [-1, 1], "keepdims": 0}),
    Node("ReduceSum", WIDE, {"noop_with_empty_axes": 1}),
    Node("ReduceMean", WIDE, {"noop_with_empty_axes": 1, "keepdims": 0}, opset=18),
    Node("Slice", WIDE, {}, (np.array([-1, 0]), np.array([-9, 3]), np.array([2, -2]), np.array([-2, 1]))),
    Node("Slice", WIDE, {}, (np.array([1, -3]), np.array([2, 9]), np.array([-3, 2]))),
    Node("Pad", WIDE, {}, (np.array([1, -1, 0, 0, 0, -2]), np.float32(3))),
    Node("Pad", WIDE, {}, (np.array([1, 2]), np.float32(3), np.array([-1])), 18),
    Node("ScatterElements", (2, 4), {"axis": -1, "reduction": "add"}, (np.array([[1, 1], [0, 3]]), ramp(2, 2)), 18),
    *(Node("MatMul", a, {}, (ramp(*b),), asked=True)
      for a, b in ((WIDE, (4, 5)), (WIDE, (4,)), (WIDE, (1, 4, 5)), ((4,), (2, 4, 5)), ((3, 4), (2, 4, 5)))),
    *(Node("Einsum", a, {"equation": e}, (ramp(*b),), asked=True)
      for e, a, b in (("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk->ik", (2, 1), (1, 4)), ("ij,jk", (2, 3), (3, 4)))),
    Node("Gemm", (4, 3), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 3.0}, (ramp(2, 4), ramp(1, 2)), asked=True),
]  # fmt: skip
CURVED = [
    Node("TopK", (2, 5), {"axis": 0, "largest": 0}, (np.array([1]),), second=True),
    *(Node(op, WIDE, {"axis": -2}) for op in ("Softmax", "LogSoftmax")),
]  # fmt: skip


EVERY = [*LINEAR, *(dataclasses.replace(n, step=2**-9) for n in CURVED)]


@pytest.mark.parametrize("one", EVERY, ids=[f"{n.op}-{i}" for i, n in enumerate(EVERY)])
def test_along_a_direction_the_output_changes_by_the_part_of_the_gradient_along_it(one: Node) -> None:
    rng = np.random.default_rng(3)
    names = ["x", *(("" if v is None else f"w{i}") for i, v in enumerate(one.rest))]
    rest = {n: np.asarray(v) for n, v in zip(names[1:], one.rest, strict=True) if v is not None}
    x = rng.permutation(np.prod(one.shape)).reshape(one.shape) / np.prod(one.shape) + 0.25
    feed = {"x": x.astype(np.float32), **(rest if one.asked else {})}
    fixed = {} if one.asked else rest
    outputs = ["v", "i"] if one.second else ["y"]
    nodes = [helper.make_node(one.op, names, outputs, "n", **one.attributes)]
    if one.second:
        nodes.append(helper.make_node("Cast", ["i"], ["y"], to=FLOAT))
    shapes = [(k, FLOAT, v.shape) for k, v in feed.items()]
    forward = graph_proto(nodes, shapes, [("y", FLOAT, None)], fixed, one.opset).SerializeToString()
    y = run(forward, feed)[0]
    seed = rng.standard_normal(y.shape).astype(np.float32)
    found = gradients(graph(nodes, shapes, [("y", FLOAT, y.shape)], fixed, one.opset), feed, seed)
    for name, value in feed.items():
        way = rng.standard_normal(value.shape).astype(np.float32)
        step = np.float32(one.step) * way
        ends = [run(forward, {**feed, name: value + s * step})[0] for s in (-1, 1)]
        true = float(((ends[1] - ends[0]).astype(np.float64) / (2 * one.step) * seed).sum())
        assert found[name].shape == value.shape
        part, within = found[name] * way, 1e-4 if one.step == 1 else 2e-3
        assert part.sum() == pytest.approx(true, abs=within * float(1 + np.abs(part).sum()))


#: Numbers inside of a range and beyond it: INT8 holds -12.8 to 12.7 in steps of 0.1, and what rounds to these.
VALUES = np.array([[-13.0, -12.84, -1.0, 0.0], [12.74, 12.76, 13.0, 30.0]], np.float32)


@pytest.mark.parametrize(
    ("scale", "zero", "attributes", "through"),
    [
        (np.float32(0.1), np.int8(0), {}, [[0, 1, 1, 1], [1, 0, 0, 0]]),
        # From -3.3 to 22.2.
        (np.float32(0.1), np.uint8(33), {}, [[0, 0, 1, 1], [1, 1, 1, 0]]),
        (np.array([0.1, 0.2], np.float32), np.zeros(2, np.int8), {"axis": 0}, [[0, 1, 1, 1], [1, 1, 1, 0]]),
        (np.array([1, 0.1, 0.1, 0.1], np.float32), np.zeros(4, np.int8), {"axis": -1}, [[1, 1, 1, 1], [1, 0, 0, 0]]),
        (np.float32(0.05), np.array(0, ml_dtypes.float8_e4m3fn), {}, [[1, 1, 1, 1], [1, 1, 1, 0]]),
    ],
    ids=["int8", "uint8", "rows", "columns", "fp8"],
)  # fmt: skip
def test_what_a_quantizer_clips_has_no_gradient(scale, zero, attributes, through) -> None:
    """The largest of FP8 is 448 times the scale, 22.4."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q", **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "d", **attributes),
    ]
    fixed = {"s": scale, "z": zero}
    source = graph(nodes, [("x", FLOAT, [2, 4])], [("y", FLOAT, [2, 4])], fixed, 19)
    found = gradients(source, {"x": VALUES}, np.full((2, 4), 3, np.float32))
    np.testing.assert_array_equal(found["x"], 3 * np.array(through, np.float32))


@pytest.mark.parametrize(
    ("kind", "through"),
    [(TensorProto.FLOAT16, [1, 1, 0, 0]), (TensorProto.BFLOAT16, [1] * 4), (TensorProto.INT32, [0] * 4)],
)
def test_what_a_type_cannot_hold_has_no_gradient(kind: int, through: list[int]) -> None:
    """The end of FP16 is 65,504."""
    nodes = [helper.make_node("Cast", [a], [b], b, to=t) for a, b, t in (("x", "c", kind), ("c", "y", FLOAT))]
    source = graph(nodes, [("x", FLOAT, [4])], [("y", FLOAT, [4])], {})
    x = np.array([-1, 65504, 70000, -1e6], np.float32)
    found = gradients(source, {"x": x}, np.full(4, 2, np.float32))
    np.testing.assert_array_equal(found["x"], 2 * np.array(through, np.float32))


@pytest.mark.parametrize(
    ("op", "x", "w", "y", "attributes", "words"),
    [
        ("Einsum", (2, 1), (4, 3), (2, 3), {"equation": "ij,jk->ik"}, '"j" is repeated'),
        ("Einsum", (3, 3), (3,), (3,), {"equation": "ii,i->i"}, "diagonal"),
        ("ConvTranspose", (1, 1, 3, 4), (1, 1, 3, 3), (1, 1, 7, 6), {"output_shape": [7, 6]}, "padding follows"),
        ("ConvTranspose", (1, 1, 3, 4), (1, 1, 3, 3), (1, 1, 3, 4), {"auto_pad": "SAME_UPPER"}, "padding follows"),
    ],
)  # fmt: skip
def test_what_sizes_leave_open_is_not_differentiated(op, x, w, y, attributes, words) -> None:
    nodes = [helper.make_node(op, ["x", "w"], ["y"], "n", **attributes)]
    source = graph(nodes, [("x", FLOAT, x)], [("y", FLOAT, y)], {"w": ramp(*w)}, 17)
    _, names, stopped = differentiated(source, ["x"])
    assert ([None], ["n"], True) == (names, [*stopped], words in stopped["n"])
