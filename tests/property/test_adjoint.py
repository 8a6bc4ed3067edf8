"""The rule of each operator against finite differences of ONNX's own reference, in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from net_text import written
from nets import graph, graph_proto
from rtlab.core.model import Model, load
from rtlab.gradients import RULES, Tape, differentiate
from rtlab.quantize.edit import Edit
from sessions import opened
from sloped import CASES, Case, Draw

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
STEP = 1e-6


class Erf(OpRun):
    """In double precision, which ONNX's own is not."""

    def _run(self, x: np.ndarray) -> tuple:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Mean(OpRun):
    """With repeated sizes, which ONNX's own refuses."""

    def _run(self, *values: np.ndarray) -> tuple:
        return (sum(values[1:], values[0]) / len(values),)


class LRN(OpRun):
    """By its formula: a sum over neighbouring channels."""

    def _run(self, x: np.ndarray, alpha: float, beta: float, bias: float, size: int) -> tuple:
        before, behind, n = (size - 1) // 2, size // 2, x.shape[1]
        near = [(x[:, max(0, c - before) : min(n, c + behind + 1)] ** 2).sum(axis=1) for c in range(n)]
        return (x / (bias + alpha / size * np.stack(near, axis=1)) ** beta,)


class Gelu(OpRun):
    """In double precision."""

    def _run(self, x: np.ndarray, approximate: str) -> tuple:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        exact = Erf._run(self, x / math.sqrt(2))[0]
        return (x / 2 * (1 + (np.tanh(inner) if approximate == "tanh" else exact)),)


class GlobalMaxPool(OpRun):
    """Over three dimensions too."""

    def _run(self, x: np.ndarray) -> tuple:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(OpRun):
    """By the runtime, in double precision: windows that reach beyond the input are counted as it does."""

    def _run(self, x: np.ndarray, **names: object) -> tuple:
        there = {a.name for a in self.onnx_node.attribute}
        given = {k: v for k, v in names.items() if v is not None and v != [] and k in there}
        node = helper.make_node("MaxPool", ["x"], ["y"], **given)
        made = graph_proto([node], [("x", DOUBLE, x.shape)], [("y", DOUBLE, None)], {})
        session = opened(made.SerializeToString(), "ENABLE_BASIC")
        return (session.run(["y"], {"x": x})[0],)


NEW = [Erf, Mean, LRN, Gelu, GlobalMaxPool, MaxPool]


def kind(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model(case: Case, weights: set[str], dims: dict[str, list], double: bool) -> bytes:
    """The graph of a case, in FP32 or in FP64; sizes of "x", of "y" and of inputs as given."""
    nodes = list(case.nodes)
    if double:
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        for one in nodes:
            if one.op_type.endswith("GroupNormalization"):
                one.attribute.append(helper.make_attribute("stash_type", DOUBLE))

    def typed(array: np.ndarray) -> np.ndarray:
        fractional = array.dtype == np.float64
        return array.astype(np.float64 if double else np.float32) if fractional else array

    values = {n: typed(v) for n, v in case.moving.items()}
    fixed = {n: typed(v) for n, v in case.fixed.items()} | {n: values[n] for n in weights}
    inputs = [(n, kind(v), dims[n]) for n, v in values.items() if n not in weights]
    made = graph_proto(nodes, inputs, [("y", DOUBLE if double else FLOAT, dims["y"])], fixed, case.opset)
    made.ir_version = 10
    return made.SerializeToString()


def evaluated(case: Case, still: set[str], dims: dict[str, list]) -> Callable[[dict], np.ndarray]:
    """The forward part: in double precision, or in FP32 where large steps will do."""
    if case.linear:
        content = model(case, still, dims, double=False)
        session = opened(content, "ENABLE_BASIC")
        return lambda feed: session.run(["y"], {n: v.astype(np.float32) for n, v in feed.items()})[0].astype(
            float
        )
    evaluator = ReferenceEvaluator(
        onnx.load_from_string(model(case, still, dims, double=True)),
        new_ops=NEW,
    )
    return lambda feed: evaluator.run(["y"], feed)[0]


def differentiated(source: Model, asked: list[str]) -> tuple[Model, list[str | None], dict[str, str]]:
    """The model with a seed for its output, and the gradients of inputs as further outputs, by name."""
    edit = Edit(source)
    tape = Tape(edit.graph, source.opset, source.known)
    nodes, end = list(edit.graph), edit.values["y"]
    seed = ir.Value(name="seed", type=ir.TensorType(ir.DataType.FLOAT))
    edit.graph.inputs.append(seed)
    found = differentiate(tape, nodes, {end: seed})
    slopes = [found.values.get(edit.values[n]) for n in asked]
    edit.graph.outputs.extend(s for s in slopes if s is not None)
    edit.sort_and_reindex()
    return edit.model, [None if s is None else s.name for s in slopes], dict(found.unsupported_nodes)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1), sizes=st.sampled_from(["known", "batch", "open"]), weights=st.booleans()
)
def test_the_gradient_is_that_of_finite_differences(name: str, seed: int, sizes: str, weights: bool) -> None:
    case = CASES[name](Draw(seed))
    asked = [n for n in case.moving if n == "x" or not weights]
    still = {*case.moving} - {*asked}
    shapes = {n: list(v.shape) for n, v in case.moving.items()}
    forward = evaluated(case, still, {**shapes, "y": None})
    y = forward({n: case.moving[n] for n in asked})
    dims = {
        n: declared(n, list(s), "open" if n == "y" and rounds_up(case) else sizes)
        for n, s in (shapes | {"y": list(y.shape)}).items()
    }
    source = load(model(case, still, dims, double=False))
    both, slopes, stopped = differentiated(source, asked)
    if stopped:
        assert sizes in case.stops.split(), stopped
        return
    draw = Draw(seed + 1)
    weight = draw.noise(*y.shape)
    feed = {n: case.moving[n].astype(np.float32) for n in asked}
    wanted = [n for n in slopes if n is not None]
    feed["seed"] = weight.astype(np.float32)
    ran = opened(both.bytes(), "ENABLE_BASIC").run(wanted, feed) if wanted else []
    found = dict(zip(wanted, ran, strict=True))
    steps = {n: draw.noise(*case.moving[n].shape) for n in asked}
    step = 1.0 if case.linear else STEP
    ends = [forward({n: case.moving[n] + s * step * steps[n] for n in asked}) for s in (-1, 1)]
    true = float(((ends[1] - ends[0]) / (2 * step) * weight).sum())
    sums, size = 0.0, 1.0
    for n, slope in zip(asked, slopes, strict=True):
        if slope is not None:
            assert found[slope].shape == case.moving[n].shape
            sums += float((found[slope].astype(np.float64) * steps[n]).sum())
            size += float(np.abs(found[slope].astype(np.float64) * steps[n]).sum())
    assert sums == pytest.approx(true, abs=1e-4 * size)


def rounds_up(case: Case) -> bool:
    return any(a.name == "ceil_mode" and a.i for n in case.nodes for a in n.attribute)


def declared(name: str, shape: list[int], sizes: str) -> list:
    """Sizes as a model declares them: numbers, or names; of "batch", the first of "x" and of what it writes.

    With ceil_mode ONNX and ONNX Runtime count windows differently, so that what is written has names in any case.
    """
    if sizes == "known":
        return shape
    if sizes == "batch":
        return ["N" if name == "x" else f"{name}0", *shape[1:]] if shape and name in {"x", "y"} else shape
    return [f"{name}{i}" for i in range(len(shape))]


def test_every_rule_has_a_case() -> None:
    """But those of quantizers, of types and of dropout, and old names."""
    used = {n.op_type for make in CASES.values() for seed in range(40) for n in make(Draw(seed)).nodes}
    apart = {"QuantizeLinear", "DequantizeLinear", "Cast", "CastLike", "Dropout", "Hardmax"}
    assert {*RULES} - used == apart | {"SimplifiedLayerNormalization"}


def test_gradients_of_half_precision_are_written_in_single() -> None:
    d = Draw(5)
    x, w, b = d.noise(2, 4, 6, 6), d.noise(4, 4, 3, 3) / 6, d.noise(4)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], "conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["s"], "gate"),
        helper.make_node("Mul", ["a", "s"], ["m"], "mul"),
        helper.make_node("LayerNormalization", ["m", "t"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "v"], ["y"], "product"),
    ]
    fixed = {"w": w, "b": b, "t": d.noise(3), "v": d.noise(3, 2)}
    slopes = []
    for type_, numpy in ((FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)):
        weights = {n: v.astype(numpy) for n, v in fixed.items()}
        source = graph(nodes, [("x", type_, list(x.shape))], [("y", type_, [2, 4, 3, 2])], weights)
        both, names, stopped = differentiated(source, ["x"])
        assert stopped == {}
        feed = {"x": x.astype(numpy), "seed": np.ones((2, 4, 3, 2), np.float32)}
        slopes += opened(both.bytes(), "ENABLE_BASIC").run(names, feed)
    assert slopes[1].dtype == np.float32
    np.testing.assert_allclose(slopes[1], slopes[0], atol=0.02 * np.abs(slopes[0]).max())


def test_what_a_body_reads_lacks_its_gradient() -> None:
    node = helper.make_node
    inner, kept = node("Mul", ["a", "a"], ["t"], "inner"), node("Identity", ["k"], ["e"], "kept")
    then, other = (
        helper.make_graph([n], "body", [], [helper.make_tensor_value_info(n.output[0], FLOAT, [2, 3])])
        for n in (inner, kept)
    )
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], "before"),
        helper.make_node("If", ["c"], ["i"], "branch", then_branch=then, else_branch=other),
        helper.make_node("Tanh", ["x"], ["b"], "beside"),
        helper.make_node("Sum", ["i", "a", "b"], ["y"], "sum"),
    ]
    inputs, weights = [("x", FLOAT, [2, 3]), ("c", TensorProto.BOOL, [])], {"k": np.ones((2, 3), np.float32)}
    source = graph(nodes, inputs, [("y", FLOAT, [2, 3])], weights)
    edit = Edit(source)
    forward, end = list(edit.graph), edit.values["y"]
    found = differentiate(Tape(edit.graph, 17, {}), forward, {end: end})
    assert found.unsupported_nodes == {"branch": "the bodies of If are not differentiated"}
    assert found.incomplete_values == {edit.values["a"], edit.values["x"]}
    assert edit.values["b"] in found.values


def test_what_no_rule_covers_stops_there_and_is_told() -> None:
    source = written(
        "x[2, 3]; before: a = Sigmoid(x); gap: b = Round(a); beside: c = Tanh(x); sum: y = Add(b, c); y[2, 3]"
    )
    edit = Edit(source)
    forward, end = list(edit.graph), edit.values["y"]
    found = differentiate(Tape(edit.graph, 17, {}), forward, {end: end})
    assert found.unsupported_nodes == {"gap": "there is no rule for Round"}
    assert found.incomplete_values == {edit.values["a"], edit.values["x"]}
    assert edit.values["c"] in found.values


def test_shapes_and_comparisons_carry_no_gradient_and_stop_none() -> None:
    """The reshape to a size that was computed, and the mask that was compared, are as if they were constants."""
    source = written(
        "x[2, 3]; shape: s = Shape(x); more: c = Greater(x, z); largest: i = ArgMax(x); cast: f = Cast(i, to=1); "
        "where: w = Where(c, x, z); mul: m = Mul(w, f); reshape: y = Reshape(m, s); y[2, 3]",
        z=np.zeros(1, np.float32),
    )
    both, names, stopped = differentiated(source, ["x"])
    assert stopped == {}
    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    (slope,) = opened(both.bytes(), "ENABLE_BASIC").run(names, {"x": x, "seed": np.ones((2, 3), np.float32)})
    # The largest of each column is in row 0, 1, 0... of rows: 1, 1, 0.
    np.testing.assert_array_equal(slope, (x > 0) * np.array([[1, 1, 0]], np.float32))
