"""Stored weights as numbers: what ONNX Runtime makes of them, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from nets import graph_proto
from rtlab import samples
from rtlab.core.model import wrap
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import prepare, quantizable
from rtlab.quantize.edit import Edit
from rtlab.quantize.isolated_error import compute_dequantized, replace_stored_weights
from sessions import run

RNG = np.random.default_rng(3)
ZEROS = RNG.integers(-9, 9, (2, 4)).astype(np.int8)


@pytest.mark.parametrize(
    ("scale", "zero", "attributes"),
    [
        (np.float32(0.013), None, {}),
        (RNG.random(6).astype(np.float32), None, {"axis": 0}),
        (RNG.random(4).astype(np.float32), ZEROS[0], {"axis": -1}),
        (RNG.random((2, 4)).astype(np.float32), None, {"axis": 0, "block_size": 3}),
        (RNG.random((2, 4)).astype(np.float32), ZEROS, {"axis": 0, "block_size": 4}),
    ],
)  # fmt: skip
def test_numbers_are_those_that_a_run_dequantizes(scale, zero, attributes) -> None:
    stored = RNG.integers(-128, 128, (6, 4)).astype(np.int8)
    tensors = {"q": stored, "s": np.asarray(scale), **({} if zero is None else {"z": zero})}
    node = onnx.helper.make_node("DequantizeLinear", [*tensors], ["y"], "n", **attributes)
    proto = graph_proto([node], [], [("y", 1, [6, 4])], tensors, 21)
    proto.ir_version = 10
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = compute_dequantized(Edit(wrap(proto, name="g")).nodes["n"])
    assert found.tobytes() == session.run(None, {})[0].tobytes()


@pytest.mark.parametrize("precision", ["int8", "fp8", "int4", "fp16"])
def test_a_model_without_stored_weights_computes_the_same(precision: str) -> None:
    model = samples.load("digits_vit").model
    scales = {v: Scale(3.0) for v in quantizable(model)}
    made = prepare(model, Variant.of(precision, target="sm120"), scales=scales).emulation
    other = replace_stored_weights(made, model.by_id)
    late = [n for n in made.top if n.op == "DequantizeLinear"]
    stored = [n for n in late if made.constants(n.id).keys() >= {*n.inputs}]
    assert len(other.top) == len(made.top) - len(stored)
    assert (other is made) == (not stored)
    assert {n.id for n in model.top} <= {n.id for n in other.top}
    feed = dict(next(samples.load("digits_vit").calibration.batches(model, 4)))
    one, two = (run(m.bytes(), feed)[0] for m in (made, other))
    assert one.tobytes() == two.tobytes()
