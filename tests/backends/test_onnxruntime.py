"""The ONNX Runtime backend against ONNX's own reference evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import strategies
from nets import graph
from one_precision import int8
from rtlab import backends
from rtlab.backends.onnxruntime import _move_behind_producers
from rtlab.backends.workers.session_child import POOL
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import prepare, quantizable
from rtlab.relation.relate import relate
from rtlab.testing import ReferenceBackend, tiny_model
from sessions import copy_values


def attention() -> Model:
    """One head of attention and a product behind it, as transformers are exported: ``x`` to ``y``."""
    rng, nodes, weights = np.random.default_rng(0), [], {}

    def node(op: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(value: str, name: str) -> str:
        weights[f"{name}/weight"] = rng.normal(size=(16, 16)).astype(np.float32)
        return node("Add", [node("MatMul", [value, f"{name}/weight"], f"{name}/product"), "bias"], name)

    weights |= {n: rng.normal(size=16).astype(np.float32) for n in ("bias", "scale")}
    weights |= {"heads": [2, 8, 2, 8], "flat": [2, 8, 16]}
    start = node("LayerNormalization", ["x", "scale", "bias"], "norm", axis=-1)
    orders = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    apart = {n: node("Reshape", [linear(start, n), "heads"], f"{n}/heads") for n in orders}
    query, key, value = (node("Transpose", [apart[n]], f"{n}/split", perm=o) for n, o in orders.items())
    shares = node("Softmax", [node("MatMul", [query, key], "scores")], "shares", axis=-1)
    mixed = node("Transpose", [node("MatMul", [shares, value], "mix")], "mixed", perm=[0, 2, 1, 3])
    joined = node("Reshape", [mixed, "flat"], "joined")
    total = node("Add", [linear(joined, "projection"), start], "total")
    linear(node("LayerNormalization", [total, "scale", "bias"], "norm2", axis=-1), "y")
    return graph(nodes, *([(n, TensorProto.FLOAT, [2, 8, 16])] for n in "xy"), weights)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def engine(model):
    return backends.get("onnxruntime").build(BuildRequest(model, Variant.of("fp32")), Silent())


def batch(model):
    return next(CalibrationData.random(model, samples=2, seed=3).batches(model, 2))


def test_every_intermediate_value_equals_the_reference(model, engine) -> None:
    names = [o for n in model.top for o in n.outputs]
    reference = ReferenceBackend()
    slow = reference.outputs(
        reference.build(BuildRequest(model, Variant.of()), Silent()), batch(model), names
    )
    fast = backends.get("onnxruntime").outputs(engine, batch(model), names)
    for name in names:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_node_is_in_an_optimized_layer(model, engine) -> None:
    """ONNX Runtime declares no origins, so the dataflow must tell."""
    mapping = relate(model, model, engine)
    assert () == mapping.missing
    fused = mapping.layers("stem/Conv")
    assert fused == mapping.layers("stem/Relu") == mapping.layers("stem/BatchNormalization")


def test_an_fp16_graph_that_runs_in_fp32_still_maps_layer_by_layer(model) -> None:
    """ONNX Runtime renames every FP16 value; taken for unknown, one cast would seem to hold the whole model."""
    half = prepare(model, Variant.of("fp16")).model
    engine = backends.get("onnxruntime").build(BuildRequest(half, Variant.of("fp16")), Silent())
    mapping = relate(half, half, engine)
    fused = ("stem/Conv/input/Cast", "stem/Conv", "stem/BatchNormalization", "stem/Relu")
    assert fused == mapping.nodes(mapping.layers("stem/Conv")[0])
    assert len(fused) == max(len(mapping.nodes(layer.id)) for layer in engine.layers)


@pytest.mark.parametrize("precision", backends.get("onnxruntime").capabilities().precisions, ids=str)
def test_every_precision_that_is_offered_builds_at_every_level_and_runs(precision) -> None:
    """At level "all", ONNX Runtime makes of an FP8 product an INT8 kernel that then refuses its input."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="second"),
    ]
    weight = numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32) / 6, "w")
    net = load(strategies.of_nodes(nodes, weights=[weight], shape=(4, 32)))
    variant = Variant.of(precision)
    ready = prepare(net, variant, scales={v: Scale(4.0) for v in quantizable(net)})
    backend, x = backends.get("onnxruntime"), rng.standard_normal((4, 32)).astype(np.float32)
    plain = backend.build(BuildRequest(net, Variant.of("fp32")), Silent())
    want = backend.outputs(plain, {"x": x})["y"]
    for model, level in ((ready.model, "all"), (ready.model, "basic"), (ready.emulation, "basic")):
        engine = backend.build(BuildRequest(model, variant, level=level), Silent())
        assert 2 == backend.profile(engine, {"x": x}, Silent(), runs=2, warmup=0).runs
        assert 0.5 > np.abs(want - backend.outputs(engine, {"x": x})["y"]).max()


def test_reading_gives_the_values_of_the_model(model, engine) -> None:
    """Calibration reads through a leaner session, which must compute the same network."""
    names = [*model.inputs, *(o for n in model.top for o in n.outputs)]
    expected = backends.get("onnxruntime").outputs(engine, batch(model), names[1:])
    before = model.bytes()
    with backends.get("onnxruntime").reading(model, names) as fetch:
        found = fetch(batch(model))
    assert before == model.bytes()
    assert set(names[1:]) == set(found)
    for name, array in found.items():
        np.testing.assert_allclose(expected[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_transposes_that_are_read_stand_behind_what_writes_their_value(tmp_path: Path) -> None:
    """ONNX Runtime's own file has them last; of an input, one stays where it is."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    nodes += [helper.make_node("Transpose", [v], [f"{v}:last"], perm=(0, 2, 3, 1)) for v in ("b", "x", "a")]
    values = {v: helper.make_tensor_value_info(v, TensorProto.FLOAT, (1, 2, 3, 4)) for v in ("x", "b")}
    outputs = [helper.make_tensor_value_info(f"{v}:last", TensorProto.FLOAT, (1, 3, 4, 2)) for v in "bxa"]
    path = tmp_path / "folded.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [values["x"]], [values["b"], *outputs])), path)
    _move_behind_producers(str(path), [f"{v}:last" for v in "bxa"])
    moved = onnx.load(path)
    onnx.checker.check_model(moved)
    assert ["a", "a:last", "b", "b:last", "x:last"] == [n.output[0] for n in moved.graph.node]


def test_reading_a_quantized_model_rounds_as_the_comparison_does(model) -> None:
    """Fused integer kernels round otherwise, by as much as quantization itself."""
    quantized = int8(model, {v: Scale(3.0) for v in quantizable(model)})
    runner = backends.get("onnxruntime")
    names = [o for n in quantized.top for o in n.outputs]
    engine = runner.build(BuildRequest(quantized, Variant.of("fp32"), level="basic"), Silent())
    expected = runner.outputs(engine, batch(model), names)
    with runner.reading(quantized, names) as fetch:
        found = fetch(batch(model))
    for name in names:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)


def test_reduced_values_are_those_of_runs_to_the_bit_and_come_in_turn(model) -> None:
    """At a higher level, sums of products have another order; the second model rounds."""
    runner, quantized = backends.get("onnxruntime"), int8(model, {v: Scale(3.0) for v in quantizable(model)})
    feeds = [{k: (i + 1) * v for k, v in batch(model).items()} for i in range(3)]
    reads = [(m, [o for n in m.top for o in n.outputs]) for m in (model, quantized)]
    received: list[Any] = []
    with runner.reducing(reads, copy_values, received.append) as run:
        for number, feed in enumerate(feeds):
            run(feed, number)
            assert number <= len(received) + 1
        run(None, 0)
        run(None, 0)
    assert [0, 1, 2] == [samples for _, samples in received]
    for number, (net, names) in enumerate(reads):
        engine = runner.build(BuildRequest(net, Variant.of("fp32"), level="basic"), Silent())
        for feed, (values, _) in zip(feeds, received, strict=True):
            expected = runner.outputs(engine, feed, names)
            for name in names:
                np.testing.assert_array_equal(expected[name], values[number][name], err_msg=name)


def test_what_a_reduction_raises_is_raised_by_the_next_call_and_ends_no_process(model) -> None:
    received: list[Any] = []
    with backends.get("onnxruntime").reducing([(model, model.outputs)], divmod, received.append) as run:
        run(batch(model), 1)
        with pytest.raises(TypeError, match="divmod"):
            run(None, 0)
        run(None, 0)
        children = [c.process.pid for c in POOL.children]
        run(batch(model), 1)
        assert children == [c.process.pid for c in POOL.children]
    assert not received


def test_what_was_read_stays_after_the_session_is_gone(model) -> None:
    """Arrays share memory with the runtime; a view that outlives it must not show something else."""
    name = model.top[0].outputs[0]
    with backends.get("onnxruntime").reading(model, [name]) as fetch:
        first = fetch(batch(model))[name]
        kept = first.copy()
        for _ in range(5):
            fetch({k: 2 * v for k, v in batch(model).items()})
    np.testing.assert_array_equal(kept, first)


@pytest.mark.slow
def test_a_transformer_is_read_as_it_is_compared() -> None:
    model, runner = attention(), backends.get("onnxruntime")
    names = [n for n in quantizable(model) if n != "x"]
    x = np.random.default_rng(1).normal(size=(2, 8, 16)).astype(np.float32)
    engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    expected = runner.outputs(engine, {"x": x}, names)
    with runner.reading(model, names) as fetch:
        found = fetch({"x": x})
    for name in names:
        np.testing.assert_allclose(expected[name], found[name], rtol=1e-4, atol=1e-5, err_msg=name)
