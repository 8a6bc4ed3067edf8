"""Large models reach ONNX Runtime as a graph with its weights in a file, which is written once for all sessions."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nets import graph_proto
from ordered import orders
from rtlab import backends
from rtlab.backends import onnxruntime
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import RunError


def layers(width: int = 64, *, constant: bool = False) -> onnx.ModelProto:
    """``y = relu(x W0) W1 + c`` where c may be the output of a Constant node."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(width, width)).astype(np.float32) / width for i in range(2)}
    bias = rng.normal(size=width).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["r"], name="first"),
        helper.make_node("Relu", ["r"], ["s"], name="bend"),
        helper.make_node("MatMul", ["s", "w1"], ["t"], name="second"),
        helper.make_node("Add", ["t", "c"], ["y"], name="shift"),
    ]
    if constant:
        told = numpy_helper.from_array(bias, "c")
        nodes.insert(0, helper.make_node("Constant", [], ["c"], name="c", value=told))
    x, y = ([(n, TensorProto.FLOAT, [1, width])] for n in "xy")
    return graph_proto(nodes, x, y, weights if constant else {**weights, "c": bias})


@pytest.fixture
def everything_large(monkeypatch):
    monkeypatch.setattr(onnxruntime, "LARGE", 1)


@pytest.fixture
def opened(monkeypatch):
    """Orders of every session."""
    return orders(monkeypatch)


def feed(model: Model) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=model.input_shape("x")).astype(np.float32)}


def expected(proto: onnx.ModelProto, batch) -> dict[str, np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    names = ["r", "s", "t", "y"]
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    del wide.graph.output[:]
    wide.graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names)
    return dict(zip(names, ReferenceEvaluator(wide).run(None, batch), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True], ids=["in one file", "weights beside it"])
@pytest.mark.parametrize("constant", [False, True], ids=["initializers", "a constant node"])
def test_a_large_model_is_built_timed_and_read_from_one_file_of_weights(
    everything_large, opened, monkeypatch, tmp_path, beside, constant
) -> None:
    """Nobody makes bytes of it, which holds the interpreter; the weights are written once."""
    proto = layers(constant=constant)
    path = tmp_path / "m.onnx"
    onnx.save(
        proto, path, save_as_external_data=beside, location="w", size_threshold=0, convert_attribute=True
    )
    model, runner = load(path), backends.get("onnxruntime")
    written, real = [], onnxruntime._write_external_weights
    monkeypatch.setattr(
        onnxruntime, "_write_external_weights", lambda m, f, p: written.append(f) or real(m, f, p)
    )
    monkeypatch.setattr(Model, "bytes", lambda _: pytest.fail("made bytes of a large model"))
    batch = feed(model)
    engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    profile = runner.profile(engine, batch, Silent(), runs=2, warmup=1)
    found = runner.outputs(engine, batch, ["r", "t", "y"])
    with runner.reading(model, ["r", "s", "t", "y"]) as read:
        found |= {"s": read(batch)["s"].copy()}
    for name, array in expected(layers(constant=constant), batch).items():
        np.testing.assert_allclose(array, found[name], rtol=1e-4, atol=1e-5)
    assert {y.id for y in engine.layers} == set(profile.samples)
    assert 1 == len(written)
    assert {written[0]} == {Path(o.data).parent for o in opened}
    with pytest.raises(RunError, match='Cannot read value "nothing"'):
        runner.outputs(engine, batch, ["nothing"])


@pytest.mark.slow
def test_an_engine_runs_where_its_files_are_not(everything_large) -> None:
    model, runner = load(layers(), name="layers"), backends.get("onnxruntime")
    engine = runner.build(BuildRequest(model, Variant.of("fp32")), Silent())
    sent = pickle.loads(pickle.dumps(engine))
    batch = feed(model)
    del model, engine
    gc.collect()
    np.testing.assert_allclose(
        expected(layers(), batch)["y"], runner.outputs(sent, batch)["y"], rtol=1e-4, atol=1e-5
    )
