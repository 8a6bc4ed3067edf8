"""Nodes in another form: the numbers are those of the model before."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import rtlab
from net_text import written
from nets import graph
from rtlab.core.model import Model
from rtlab.core.variant import Rewrite
from rtlab.errors import VariantError
from rtlab.quantize import rewrites

FLOAT = onnx.TensorProto.FLOAT


def network(*, bias: bool, epsilon: float = 1e-5, group: int = 1) -> Model:
    rng = np.random.default_rng(3)
    weights = {"w": rng.normal(0, 0.3, (6, 4 // group, 3, 3)), "g": rng.normal(1, 0.4, 6)}
    weights["v"] = rng.uniform(0.1, 2, 6)
    weights |= {n: rng.normal(0, 1, 6) for n in "cbm"}
    text = (
        f"x[2, 4, 9, 7]; conv: conv = Conv(x, w{', c' if bias else ''}, group={group}); "
        f"normal: normal = BatchNormalization(conv, g, b, m, v, epsilon={epsilon}); same: same = Identity(normal); "
        "relu: relu = Relu(same); pool: y = GlobalAveragePool(relu); y[2, 6, 1, 1]"
    )
    return written(text, **{n: a.astype(np.float32) for n, a in weights.items() if bias or n != "c"})


def outputs(model: Model) -> np.ndarray:
    x = np.random.default_rng(0).normal(0, 1, (2, 4, 9, 7)).astype(np.float32)
    return ort.InferenceSession(model.bytes(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
@pytest.mark.parametrize("group", [1, 2])
def test_a_folded_normalization_computes_the_same(bias, epsilon, group) -> None:
    model = network(bias=bias, epsilon=epsilon, group=group)
    folded = rewrites.apply_rewrites(model, [Rewrite("fold", "normal")])
    assert ["conv", "same", "relu", "pool"] == [n.id for n in folded.top]
    assert ("normal",) == folded.by_id["conv"].outputs, "what was observed of a value is found under its name"
    np.testing.assert_allclose(outputs(folded), outputs(model), rtol=2e-5, atol=2e-6)


def test_a_global_average_is_one_over_windows_of_the_whole_size() -> None:
    model = network(bias=True)
    pooled = rewrites.apply_rewrites(model, [Rewrite("pool", "pool")])
    at = pooled.by_id["pool"]
    assert ("AveragePool", [7, 5]) == (at.op, at.attributes["kernel_shape"])
    assert ("y",) == pooled.outputs
    np.testing.assert_allclose(outputs(pooled), outputs(model), rtol=1e-5, atol=1e-6)


def test_what_does_nothing_is_left_out() -> None:
    model = network(bias=True)
    left = rewrites.apply_rewrites(model, [Rewrite("drop", "same")])
    assert ["conv", "normal", "relu", "pool"] == [n.id for n in left.top]
    np.testing.assert_array_equal(outputs(left), outputs(model))


def test_all_of_them_together_and_in_any_order() -> None:
    model = network(bias=False)
    every = tuple(rewrites.iter_possible_rewrites(model, [n.id for n in model.top]))
    assert {"fold normal", "pool pool", "drop same"} == {*map(str, every)}
    one, other = rewrites.apply_rewrites(model, every), rewrites.apply_rewrites(model, every[::-1])
    np.testing.assert_array_equal(outputs(one), outputs(other))
    np.testing.assert_allclose(outputs(one), outputs(model), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("rewrite", "why"),
    [
        ("fold conv", "one of BatchNormalization"),
        ("fold nothing", "no node of this id"),
        ("pool relu", "one of GlobalAveragePool"),
        ("drop relu", "does something here"),
    ],
)
def test_a_node_without_the_form_is_refused_with_the_reason(rewrite, why) -> None:
    with pytest.raises(VariantError, match=why):
        rtlab.Study(network(bias=True)).add("x", target="cpu", rewrites=[rewrite])


def test_a_convolution_that_somebody_else_reads_is_not_folded_into() -> None:
    model = network(bias=True)
    proto = model.proto()
    proto.graph.output.append(helper.make_tensor_value_info("conv", onnx.TensorProto.FLOAT, [2, 6, 7, 5]))
    other = rtlab.load(proto, name="other")
    assert "fold normal" not in {*map(str, rewrites.iter_possible_rewrites(other, ["normal"]))}
    with pytest.raises(VariantError, match="another node reads what"):
        rewrites.check(other, [Rewrite("fold", "normal")])


def block(*, opset: int = 17, biases: tuple[bool, ...] = (True, True, True), stride: int = 1) -> Model:
    """Three convolutions of one value, the second with a stride of its own where one is given, and their sum."""
    rng = np.random.default_rng(5)
    widths, nodes, weights = (2, 5, 3), [], {}
    for i, (width, bias) in enumerate(zip(widths, biases, strict=True)):
        weights[f"w{i}"] = rng.normal(0, 1, (width, 4, 3, 3))
        weights |= {f"c{i}": rng.normal(0, 1, width)} if bias else {}
        strides = {"strides": [stride, stride]} if i == 1 and stride > 1 else {}
        inputs = ["x", f"w{i}", *([f"c{i}"] if bias else [])]
        nodes.append(helper.make_node("Conv", inputs, [f"v{i}"], name=f"conv{i}", pads=[1] * 4, **strides))
        nodes.append(helper.make_node("ReduceMean", [f"v{i}"], [f"m{i}"], name=f"mean{i}", axes=[2, 3]))
    nodes.append(helper.make_node("Concat", ["m0", "m1", "m2"], ["y"], name="join", axis=1))
    floats = {n: a.astype(np.float32) for n, a in weights.items()}
    return graph(nodes, [("x", FLOAT, [2, 4, 9, 7])], [("y", FLOAT, [2, 10, 1, 1])], floats, opset)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("biases", [(True, True, True), (False, True, False), (False, False, False)])
def test_merged_siblings_compute_the_same(opset, biases) -> None:
    """One convolution of 2 + 5 + 3 channels and a Split; values keep their names."""
    model = block(opset=opset, biases=biases)
    made = rewrites.apply_rewrites(model, [Rewrite("merge", "conv0")])
    assert ["Conv", "Split"] == [n.op for n in made.top if n.op in {"Conv", "Split"}]
    assert {"v0", "v1", "v2"} <= set(made.values)
    assert 10 == made.known[next(n for n in made.top if n.op == "Conv").inputs[1]].shape[0]
    assert np.allclose(outputs(model), outputs(made), rtol=1e-5, atol=1e-5)


def test_only_siblings_of_one_window_are_merged() -> None:
    found = rewrites.iter_possible_rewrites(block(), ["conv0", "conv1", "conv2"])
    assert ["conv0"] == [r.node for r in found if r.kind == "merge"]
    made = rewrites.apply_rewrites(block(stride=2), [Rewrite("merge", "conv0")])
    assert ["conv1"] == [n.id for n in made.top if n.id.startswith("conv") and "/" not in n.id]
    with pytest.raises(VariantError, match="not the first of"):
        rewrites.apply_rewrites(block(), [Rewrite("merge", "conv1")])


def transposed(second: str, *, constant: tuple[int, ...] = (), perm: tuple[int, ...] = (0, 2, 3, 1)) -> Model:
    """A ReLU, a transposition, and a node of some operator on it, beside a constant or a tensor of the whole size."""
    whole = [(2, 4, 5, 3)[i] for i in perm]
    weights = {"c": np.random.default_rng(2).uniform(1, 2, constant).astype(np.float32)} if constant else {}
    text = (
        f"x[2, 4, 5, 3]; z{whole}; relu: r = Relu(x); there: t = Transpose(r, perm={[*perm]}); "
        f"second: s = {second}(t, {'c' if constant else 't'}); last: y = Sub(s, z); y{whole}"
    )
    return written(text, **weights)


def ran(model: Model) -> np.ndarray:
    rng = np.random.default_rng(0)
    given = {n: rng.normal(0, 1, model.input_shape(n)).astype(np.float32) for n in model.inputs}
    return ort.InferenceSession(model.bytes(), providers=["CPUExecutionProvider"]).run(None, given)[0]


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 0, 1, 2), (1, 0, 3, 2)])
@pytest.mark.parametrize("constant", [(), (1,), "last", "two", "whole"])
def test_a_pointwise_node_is_lifted_over_a_transposition(perm, constant) -> None:
    whole = tuple((2, 4, 5, 3)[i] for i in perm)
    shape = {"last": whole[-1:], "two": (whole[-2], 1), "whole": whole}.get(constant, constant)  # type: ignore[call-overload]
    model = transposed("Mul", constant=shape, perm=perm)
    lifted = rewrites.apply_rewrites(model, [Rewrite("lift", "second")])
    at = lifted.by_id["second"]
    assert lifted.producers[at.inputs[0]].id == "relu"
    assert "Transpose" == lifted.producers["s"].op, "what was observed of a value is found under its name"
    np.testing.assert_array_equal(ran(lifted), ran(model))
    assert lifted.sizes().get("s") == whole


def test_a_node_that_reads_a_tensor_beside_the_transposed_one_has_that_transposed_back() -> None:
    model = transposed("Add", constant=(4,))
    once = rewrites.apply_rewrites(model, [Rewrite("lift", "second")])
    twice = rewrites.apply_rewrites(once, [Rewrite("lift", "last")])
    reads = [twice.producers[twice.by_id[n].inputs[0]].id for n in ("second", "last")]
    assert ["relu", "second"] == reads
    np.testing.assert_array_equal(ran(twice), ran(model))


def test_what_is_no_pointwise_node_on_a_transposition_is_not_lifted() -> None:
    model = transposed("Mul", constant=(4,))
    assert ["lift second"] == [
        str(r) for r in rewrites.iter_possible_rewrites(model, [n.id for n in model.top])
    ]
    with pytest.raises(VariantError, match="it is no pointwise operator on what a Transpose writes"):
        rewrites.check(network(bias=True), [Rewrite("lift", "relu")])
