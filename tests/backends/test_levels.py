"""What prepared files compute in ONNX Runtime at each of its levels: as it was said, or with a note that says how."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import rtlab
from rtlab.errors import RtlabError
from rtlab.quantize.compose import find_fp8_relus

LEVELS = onnxruntime.GraphOptimizationLevel
#: Samples with a Relu before what is quantized, with a recurrence, and with attention.
SAMPLES = ["digits_inception", "digits_gru", "digits_vit", "sentences", "digits_outlier"]
COUNT = 8


def sqnr(reference: np.ndarray, other: np.ndarray) -> float:
    noise = np.square(reference - other).sum()
    return np.inf if noise == 0 else 10 * np.log10(np.square(reference).sum() / noise)


def run(path, level, feed: dict) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})[0], np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp8", "int8", "fp16"])
@pytest.mark.parametrize("name", SAMPLES)
def test_an_exported_sample_computes_the_same_at_every_level(tmp_path, name, precision) -> None:
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration.take(COUNT))
    study.add("variant", precision=precision, backend="onnxruntime", target="cpu")
    path = tmp_path / "variant.onnx"
    try:
        study.run()
        study.export("variant", path)
    except RtlabError as error:
        pytest.skip(str(error))
    feed = next(study.data.batches(sample.model, COUNT))
    plain = run(path, LEVELS.ORT_DISABLE_ALL, feed)
    for level in (LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL):
        assert sqnr(plain, run(path, level, feed)) > 30
    prepared = study["variant"].facts.prepared.model
    exposed, nodes = find_fp8_relus(prepared), {n.name: n.op_type for n in onnx.load(path).graph.node}
    assert {*exposed} <= {name for name, op in nodes.items() if op == "Max"}
    assert bool(exposed) is any("Max" in note for note in study["variant"].facts.prepared.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_inception", "digits_outlier"])
def test_what_is_exported_in_fp8_is_built_as_what_was_prepared(tmp_path, name) -> None:
    pytest.importorskip("tensorrt_rtx")
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration.take(COUNT))
    study.add("fp8", precision="fp8", target="sm89")
    study.run(compare=False)
    study.export("fp8", tmp_path / "m.onnx")
    other = rtlab.Study(tmp_path / "m.onnx")
    other.add("own", target="sm89")
    other.run(compare=False)
    layers = [
        [(y.kind, y.precision) for y in s[n].facts.engine.layers] for s, n in ((study, "fp8"), (other, "own"))
    ]
    assert layers[0] == layers[1]


def test_a_relu_is_kept_where_a_pool_lies_before_the_quantization(tmp_path) -> None:
    """Without the Max, ONNX Runtime 1.32 gives what is below 0 from level EXTENDED on."""
    node, eight = helper.make_node, onnx.TensorProto.FLOAT8E4M3FN
    nodes = [
        node("Relu", ["x"], ["r"], name="relu"),
        node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("QuantizeLinear", ["p", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dq"),
    ]
    info = helper.make_tensor_value_info
    weights = [helper.make_tensor("s", 1, [], [0.1]), helper.make_tensor("z", eight, [], [0.0])]
    made = helper.make_graph(nodes, "g", [info("x", 1, [1, 2, 4, 4])], [info("y", 1, [1, 2, 2, 2])], weights)
    study = rtlab.Study(helper.make_model(made, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    study.add("own", backend="onnxruntime", target="cpu")
    study.export("own", tmp_path / "m.onnx")
    feed = {"x": np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32) - 1}
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL):
        assert run(tmp_path / "m.onnx", level, feed).min() == 0
