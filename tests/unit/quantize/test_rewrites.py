"""Nodes in another form: the numbers are those of the model before."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import rtlab
from rtlab.core.model import Model
from rtlab.core.variant import Rewrite, Variant
from rtlab.errors import VariantError
from rtlab.quantize import rewrites


def network(*, bias: bool, epsilon: float = 1e-5, group: int = 1) -> Model:
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(0, 0.3, (6, 4 // group, 3, 3)),
        "c": rng.normal(0, 1, 6),
        "g": rng.normal(1, 0.4, 6),
        "b": rng.normal(0, 1, 6),
        "m": rng.normal(0, 1, 6),
        "v": rng.uniform(0.1, 2, 6),
    }
    if group > 1:
        weights["w"] = rng.normal(0, 0.3, (6, 2, 3, 3))
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["c"] if bias else [])], ["conv"], name="conv", group=group),
        helper.make_node(
            "BatchNormalization", ["conv", "g", "b", "m", "v"], ["normal"], name="normal", epsilon=epsilon
        ),
        helper.make_node("Identity", ["normal"], ["same"], name="same"),
        helper.make_node("Relu", ["same"], ["relu"], name="relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["y"], name="pool"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4, 9, 7])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 6, 1, 1])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items() if bias or n != "c"],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return rtlab.load(made, name="net")


def outputs(model: Model) -> np.ndarray:
    x = np.random.default_rng(0).normal(0, 1, (2, 4, 9, 7)).astype(np.float32)
    return ort.InferenceSession(model.bytes(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
@pytest.mark.parametrize("group", [1, 2])
def test_a_folded_normalization_computes_the_same(bias, epsilon, group) -> None:
    """ONNX Runtime, which knows nothing of the fold, runs both."""
    model = network(bias=bias, epsilon=epsilon, group=group)
    folded = rewrites.rewritten(model, [Rewrite("fold", "normal")])
    assert ["conv", "same", "relu", "pool"] == [n.id for n in folded.top]
    assert ("normal",) == folded.by_id["conv"].outputs, "what was observed of a value is found under its name"
    np.testing.assert_allclose(outputs(folded), outputs(model), rtol=2e-5, atol=2e-6)


def test_a_global_average_is_one_over_windows_of_the_whole_size() -> None:
    model = network(bias=True)
    pooled = rewrites.rewritten(model, [Rewrite("pool", "pool")])
    assert ("AveragePool", [7, 5]) == (
        pooled.by_id["pool"].op,
        pooled.by_id["pool"].attributes["kernel_shape"],
    )
    assert ("y",) == pooled.outputs
    np.testing.assert_allclose(outputs(pooled), outputs(model), rtol=1e-5, atol=1e-6)


def test_what_does_nothing_is_left_out() -> None:
    model = network(bias=True)
    left = rewrites.rewritten(model, [Rewrite("drop", "same")])
    assert ["conv", "normal", "relu", "pool"] == [n.id for n in left.top]
    np.testing.assert_array_equal(outputs(left), outputs(model))


def test_all_of_them_together_and_in_any_order() -> None:
    model = network(bias=False)
    every = tuple(rewrites.possible(model, [n.id for n in model.top]))
    assert {"fold normal", "pool pool", "drop same"} == {*map(str, every)}
    one, other = rewrites.rewritten(model, every), rewrites.rewritten(model, every[::-1])
    np.testing.assert_array_equal(outputs(one), outputs(other))
    np.testing.assert_allclose(outputs(one), outputs(model), rtol=2e-5, atol=2e-6)


def test_the_model_itself_stays_as_it_is() -> None:
    model = network(bias=True)
    before = model.digest
    rewrites.rewritten(model, [Rewrite("fold", "normal")])
    assert before == model.digest


@pytest.mark.parametrize(
    ("rewrite", "why"),
    [
        ("fold conv", "it is Conv, and this form is one of BatchNormalization"),
        ("fold nothing", "there is no node of this id"),
        ("pool relu", "it is Relu, and this form is one of GlobalAveragePool"),
        ("drop relu", "it is Relu, and does something here"),
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
    assert "fold normal" not in {*map(str, rewrites.possible(other, ["normal"]))}
    with pytest.raises(VariantError, match="somebody else reads what it normalizes"):
        rewrites.check(other, [Rewrite("fold", "normal")])


def test_a_variant_says_what_is_rewritten_in_its_name_and_its_id() -> None:
    variant = Variant.of("fp16", rewrites=["pool p", "fold a", "fold a"])
    assert (Rewrite("fold", "a"), Rewrite("pool", "p")) == variant.rewrites
    assert ("fp16 · 2 rewritten", "fp16 fold a pool p@cpu") == (variant.name, variant.id)
