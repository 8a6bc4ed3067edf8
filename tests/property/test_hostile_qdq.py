"""Pairs with any axis, any number of scales and any zero points: findings, repair and report never raise."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import rtlab
from nets import graph_proto
from qdq import repair
from rtlab.errors import ModelError, RtlabError
from rtlab.quantize import findings

CHANNELS, OUT = 3, 4
ENDS = [("x", TensorProto.FLOAT, [1, CHANNELS, 8, 8])], [("y", TensorProto.FLOAT, [1, OUT, 6, 6])]
KINDS = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int16: TensorProto.INT16}


@st.composite
def parameters(draw) -> tuple[int | None, np.ndarray, np.ndarray | None]:
    """Axis, scales and zero points."""
    axis = draw(st.none() | st.integers(-5, 5))
    shapes = st.sampled_from([(), (1,), (0,), (2,), (CHANNELS,), (OUT,), (OUT, 1), (1, 1, 1, 1)])
    numbers = st.floats(width=32) | st.sampled_from([0.0, -1.0, 0.01, 1e-30, 3e38])
    shape = draw(shapes)
    size = int(np.prod(shape))
    scale = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), np.float32).reshape(shape)
    kind = draw(st.sampled_from([*KINDS]))
    other = draw(st.just(shape) | shapes)
    zero = draw(st.none() | st.integers(0, 100).map(lambda z: np.full(other, z, kind)))
    return axis, scale, zero


@st.composite
def models(draw) -> onnx.ModelProto:
    """A convolution with a pair of any numbers at each of its inputs and at its output."""
    weight = np.random.default_rng(0).normal(size=(OUT, CHANNELS, 3, 3)).astype(np.float32)
    tensors, nodes = {"w": weight}, []

    def pair(source: str) -> str:
        axis, scale, zero = draw(parameters())
        tensors[f"{source}_s"] = scale
        if zero is not None:
            tensors[f"{source}_z"] = zero
        names = [n for n in tensors if n.startswith(f"{source}_")]
        attributes = {} if axis is None else {"axis": axis}
        back = attributes if draw(st.booleans()) else {}
        node, steps = helper.make_node, (source, f"{source}_q", f"{source}_d")
        nodes.append(node("QuantizeLinear", [steps[0], *names], [steps[1]], f"{source}/q", **attributes))
        nodes.append(node("DequantizeLinear", [steps[1], *names], [steps[2]], f"{source}/d", **back))
        return f"{source}_d"

    read = [pair("x"), pair("w")] if draw(st.booleans()) else [pair("x"), "w"]
    nodes.append(helper.make_node("Conv", read, ["c"], "conv"))
    nodes.append(helper.make_node("Relu", [pair("c") if draw(st.booleans()) else "c"], ["y"], "relu"))
    return graph_proto(nodes, *ENDS, tensors, draw(st.sampled_from([10, 13, 19, 21])))


def exercise(proto: onnx.ModelProto) -> None:
    """What a user would ask of such a model, in words or with an answer."""
    try:
        model = rtlab.load(proto)
    except ModelError:
        return
    listed = findings.check(model, calibrated=True)
    assert len({f.id for f in listed}) == len(listed)
    with contextlib.suppress(RtlabError):
        repair(model)
    study = rtlab.Study(model)
    study.add("fp32", backend="classic")
    with contextlib.suppress(RtlabError), contextlib.redirect_stderr(io.StringIO()):
        study.run()
    assert [f.id for f in study.findings()] == [f.id for f in study.findings()]


@settings(max_examples=60, deadline=None)
@given(models())
def test_findings_and_repairs_end_in_an_answer_or_in_words(proto) -> None:
    exercise(proto)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(models())
def test_so_do_those_of_five_hundred_graphs(proto) -> None:
    exercise(proto)


@pytest.mark.parametrize(
    ("axis", "scales", "zeros", "reason"),
    [
        (1, OUT, OUT, "4 scales on axis 1, which has 3 channels"),
        (0, OUT, OUT, ""),
        (-4, OUT, 1, ""),
        (4, OUT, OUT, "4 scales on axis 4 of 4 dimensions"),
        (0, OUT, CHANNELS, "3 zero points for 4 scales"),
        (0, 1, 1, ""),
    ],
)
def test_numbers_that_do_not_fit_are_a_finding(axis, scales, zeros, reason) -> None:
    weight = np.ones((OUT, CHANNELS, 3, 3), np.float32)
    arrays = {"w": weight, "s": np.full(scales, 0.1, np.float32), "z": np.zeros(zeros, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], "w/q", axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "w/d", axis=axis),
        helper.make_node("Conv", ["x", "d"], ["y"], "conv"),
    ]
    model = rtlab.load(graph_proto(nodes, *ENDS, arrays, 13))
    titles = [f.title for f in findings.check(model) if f.rule == "scale-axis"]
    assert titles == ([f'"w" is quantized with {reason}.'] if reason else [])
