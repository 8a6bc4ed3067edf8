"""Answers, formulations and counts of work on small cases, by hand."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nets
from nets import graph
from recurrent import recurrent_model
from rtlab.analyses.bisection import Bisection, ChangedGroup, Reproduction, record
from rtlab.core.model import wrap
from rtlab.errors import ReadError
from rtlab.formulations import build_layer_model, create_weighted_node, find_tunable_nodes, list_formulations
from rtlab.formulations.recurrent import build_forms, read_recurrent
from rtlab.testing import tiny_model

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


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_forms_of_a_recurrence_without_a_bias_compute_it(op: str) -> None:
    proto = recurrent_model(op, 3, inputs=4, hidden=5, batch=2, head=False).proto()
    (node,) = [n for n in proto.graph.node if n.op_type == op]
    del node.input[3:]
    one = read_recurrent(wrap(proto, name="bare"), node.name)
    assert ((1, 2 * one.w.shape[1]), False) == (one.b.shape, one.b.any())
    batch = dict(one.create_batch(1))
    made = {n: run(f.model.SerializeToString(), batch) for n, f in build_forms(one).items()}
    for name, value in made.items():
        np.testing.assert_allclose(value, made["operator"], atol=1e-5, err_msg=name)


def changed(*nodes: str, part: int | None, shown: Reproduction | None = None) -> ChangedGroup:
    return ChangedGroup(nodes, nodes[0], 1, "a", "b", 0.5, "kernels", part, shown)


def test_a_record_of_what_changed_is_read_back_and_asked_again() -> None:
    one, two = tiny_model(), tiny_model(seed=1)
    rows = (
        changed("a", part=3, shown=Reproduction((one, two), ("log 1", "log 2"))),
        changed("b", "c", part=None),
        changed("d", part=2, shown=Reproduction((one, one), ("log 3", "log 4"))),
    )
    sides = [record.RecordedSide("int8", "", m.digest, "trt", "10", "sm86") for m in (one, two)]
    now = Bisection("x", "y", rows, "Three changed.", builds=4, asked="2024-01-02T03:04:05", recalled=True)
    kept = record.BisectionRecord.of("net", *sides, now)
    assert [2, None, 1] == [None if p is None else len(p.models) for p in kept.parts]
    assert not kept.bisection.recalled
    again = record.read(kept.text())
    assert again == kept
    found = again.full_bisection
    assert found.recalled
    assert [3, None, 2] == [c.part for c in found.changes]
    digests = [[m.digest for m in c.shown.models] for c in found.changes if c.shown]
    assert [[one.digest, two.digest], [one.digest] * 2] == digests
    assert [("log 1", "log 2"), ("log 3", "log 4")] == [c.shown.logs for c in found.changes if c.shown]
    for text in ("{", kept.text().replace('"schema": 1', '"schema": 2')):
        with pytest.raises(ReadError):
            record.read(text)
