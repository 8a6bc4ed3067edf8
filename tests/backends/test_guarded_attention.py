"""Attention as PyTorch's exporters write it: with a guard behind the softmax, against rows without a key."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import rtlab
from decoders import Decoder
from rtlab import backends
from rtlab.core.model import Model

needs_rtx = pytest.mark.skipif(not backends.get("tensorrt-rtx").availability().ok, reason="not installed")
SIZES = Decoder(layers=1, width=256)


def guarded() -> Model:
    """A block whose probabilities are 0 where they are no numbers."""
    proto = SIZES.make().proto()
    at = next(i for i, n in enumerate(proto.graph.node) if n.op_type == "Softmax")
    softmax = proto.graph.node[at]
    (shares,) = softmax.output
    softmax.output[0] = "unguarded"
    proto.graph.node.insert(at + 1, helper.make_node("IsNaN", ["unguarded"], ["lost"], name="guard/IsNaN"))
    proto.graph.node.insert(
        at + 2, helper.make_node("Where", ["lost", "none", "unguarded"], [shares], name="guard/Where")
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(0), "none"))
    onnx.checker.check_model(proto)
    return rtlab.load(proto)


@needs_rtx
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_attention_with_a_guard_is_one_layer_in_sixteen_bits(precision: str) -> None:
    """Between Q/DQ pairs each of its products is a layer; without a guard the compiler has a kernel for them."""
    for model, dtype in ((SIZES.make(), precision), (guarded(), "fp16")):
        study = rtlab.Study(model, data=rtlab.CalibrationData.of({"ids": SIZES.ids(2)}, model=model))
        study.add(precision, target="sm89", backend="tensorrt-rtx")
        study.run(compare=False, budget_s=0)
        (layer,) = [y for y in study[precision].engine.layers if "_mha_v" in y.name]
        assert dtype == layer.inputs[0].dtype
