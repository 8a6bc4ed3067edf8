"""Answers, formulations and counts of work on small cases, by hand."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nets
from nets import graph
from rtlab.formulations import build_layer_model, create_weighted_node, find_tunable_nodes, list_formulations

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(0)


def run(content: bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    return nets.run(content, feed)[0]


@pytest.mark.parametrize(
    ("weight", "attributes", "y"),
    [
        ((3, 4, 1, 1), {"strides": [2, 3]}, [1, 3, 4, 3]),
        ((4, 1, 3, 2), {"group": 4, "pads": [1, 0, 1, 1]}, [1, 4, 7, 9]),
        ((4, 1, 3, 3), {"group": 4, "strides": [2, 1], "dilations": [1, 2]}, [1, 4, 3, 5]),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_every_form_of_an_unusual_convolution_computes_it(weight, attributes, y, bias: bool) -> None:
    held = {"w": RNG.standard_normal(weight).astype(np.float32)}
    held |= {"b": RNG.standard_normal(weight[0]).astype(np.float32)} if bias else {}
    shape = (1, 4, 7, 9)
    conv = helper.make_node("Conv", ["x", *held], ["y"], "n", **attributes)
    model = graph([conv], [("x", FLOAT, shape)], [("y", FLOAT, y)], held)
    (node,) = find_tunable_nodes(model)
    found = create_weighted_node(model, node, shape)
    x = RNG.standard_normal(shape).astype(np.float32)
    true, names = run(model.bytes(), {"x": x}), [f.name for f in list_formulations(found)]
    assert len(names) > 1
    for one in list_formulations(found):
        made = build_layer_model(found, one)
        content = made.SerializeToString() if hasattr(made, "SerializeToString") else made.bytes()
        feed = {onnxruntime.InferenceSession(content).get_inputs()[0].name: x}
        np.testing.assert_allclose(run(content, feed), true, atol=1e-4, err_msg=one.name)
