"""How many samples run at a time, where a model leaves its sizes open."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nets import graph_proto
from rtlab import CalibrationData, load
from rtlab.backends.reference import get_evaluator
from rtlab.core.model import Model
from rtlab.experiments import running
from rtlab.experiments.running import batch_size, fixed_batch, sizes_of

FLOAT = TensorProto.FLOAT


def convolutions(dims: list[int | str], kind: int = FLOAT) -> onnx.ModelProto:
    """Six convolutions one after the other, whose values are as large as a picture of 16 channels."""
    rng, read, width = np.random.default_rng(0), "x", 3
    nodes, weights = [], {}
    for i in range(6):
        weight = rng.standard_normal((16, width, 3, 3)) / 16
        weights[f"w{i}"] = weight.astype(helper.tensor_dtype_to_np_dtype(kind))
        nodes.append(helper.make_node("Conv", [read, f"w{i}"], [f"y{i}"], f"conv{i}", pads=[1] * 4))
        read, width = f"y{i}", 16
    ends = [(n, kind, [dims[0], c, *dims[1:]]) for n, c in (("x", 3), (read, 16))]
    return graph_proto(nodes, ends[:1], ends[1:], weights)


def written(net: Model) -> tuple[str, ...]:
    return tuple(o for n in net.top for o in n.outputs)


@pytest.mark.parametrize(("kind", "bits"), [(FLOAT, 32), (TensorProto.FLOAT16, 16), (TensorProto.DOUBLE, 64)])
def test_named_sizes_bound_the_batch(kind, bits) -> None:
    """Height and width counted as one: 64 pictures of any size were run at a time."""
    net = load(convolutions(["N", "H", "W"], kind), shapes={"H": 40, "W": 50})
    each = 6 * 16 * 40 * 50 * bits // 8
    assert running._BATCH_BYTES // each == batch_size(net, written(net)) > 1
    assert min(64, running._BATCH_BYTES // (each // 6)) == batch_size(net, written(net)[:1])
    large = load(convolutions(["N", "H", "W"], kind), shapes={"x": (1, 3, 900, 900)})
    assert 1 == batch_size(large, written(net))
    assert 64 == batch_size(load(convolutions(["N", 4, 4], kind)), written(net))
    assert 1 == batch_size(load(convolutions([1, 4, 4], kind)), written(net))


def test_the_samples_of_a_stream_tell_what_nobody_named() -> None:
    net = load(convolutions(["N", "H", "W"]))
    data = CalibrationData.of([np.zeros((3, 40, 50), np.float32)] * 4, model=net)
    named = load(convolutions(["N", "H", "W"]), shapes={"H": 40, "W": 50})
    assert batch_size(named, written(named)) == batch_size(net, written(net), data) < 64
    assert 1 == fixed_batch(net)
    assert 2 == fixed_batch(load(convolutions([2, 4, 4])))


def test_values_whose_size_nobody_knows_count_as_much_as_the_largest() -> None:
    net = load(convolutions(["N", "H", "W"]))
    assert 1 == batch_size(net, written(net))


def test_what_shape_inference_cannot_tell_one_run_does() -> None:
    """An operator of ONNX Runtime's own in the middle: what comes after it had no size."""
    proto = convolutions(["N", "H", "W"])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.node.insert(
        2, helper.make_node("QuickGelu", ["y1"], ["g"], "gelu", domain="com.microsoft", alpha=1.0)
    )
    proto.graph.node[3].input[0] = "g"
    net = load(proto, shapes={"H": 40, "W": 50})
    assert net.sizes().unknown[0] == "g"
    data = CalibrationData.random(net, samples=2)
    sizes_of(net, data)
    assert net.sizes().unknown[0] == "g", "nobody has run it"
    found = sizes_of(net, data, get_evaluator())
    assert () == found.unknown
    assert (1, 16, 40, 50) == found.get("g") == found.get("y5")
    assert found is net.sizes(), "work and memory read the same"
    assert running._BATCH_BYTES // (7 * 16 * 40 * 50 * 4) == batch_size(net, written(net), data)
