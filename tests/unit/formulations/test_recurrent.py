"""A recurrence in other words computes the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from recurrent import GATES, Session, recurrent_model
from rtlab.core.model import wrap
from rtlab.errors import ModelError
from rtlab.formulations.recurrent import FORMS, build_forms, read_recurrent


@settings(max_examples=25, deadline=None)
@given(
    op=st.sampled_from(sorted(GATES)),
    steps=st.integers(1, 6),
    inputs=st.integers(1, 7),
    hidden=st.integers(1, 9),
    batch=st.integers(1, 4),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    linear=st.integers(0, 1),
    seed=st.integers(0, 99),
)
def test_every_form_computes_what_the_node_itself_computes(
    op, steps, inputs, hidden, batch, direction, linear, seed
):
    model = recurrent_model(
        op, steps, inputs=inputs, hidden=hidden, batch=batch, direction=direction, linear=linear, head=False
    )
    layer = read_recurrent(model, "/rnn0")
    given_ = dict(layer.create_batch(seed))
    # First states other than zero show a form that leaves one out.
    rng = np.random.default_rng(seed)
    given_ |= {n: rng.normal(size=given_[n].shape).astype(np.float32) for n in layer.states}
    protos = {name: f.model.SerializeToString() for name, f in build_forms(layer).items()}
    made = {name: Session(p, given_).outputs()["Y"] for name, p in protos.items()}
    assert set(FORMS) == set(made)
    for name, value in made.items():
        np.testing.assert_allclose(value, made["operator"], atol=1e-5, err_msg=name)


def test_the_node_itself_is_the_one_of_the_model():
    model = recurrent_model("GRU", 5, inputs=4, hidden=6, batch=2, linear=1, head=False)
    layer = read_recurrent(model, "/rnn0")
    batch = layer.create_batch()
    expected = onnxruntime.InferenceSession(model.bytes()).run(["y0"], {"x": batch["x"]})[0]
    form = build_forms(layer)["operator"].model.SerializeToString()
    np.testing.assert_array_equal(expected, Session(form, batch).outputs()["Y"])


@pytest.mark.parametrize(
    ("op", "linear", "naive", "merged", "hoisted"),
    [("LSTM", 0, 40, 10, 6), ("GRU", 1, 30, 10, 6), ("GRU", 0, 30, 15, 11), ("RNN", 0, 10, 10, 6)],
)
def test_forms_have_the_products_that_their_names_say(op, linear, naive, merged, hoisted):
    """Five steps: two per gate and step; two per step; one, and one per step."""
    made = build_forms(read_recurrent(recurrent_model(op, 5, linear=linear), "/rnn0"))
    assert [naive, merged, hoisted, 0] == [made[n].products for n in FORMS]
    assert made["operator"].nodes == 2


def changed(**attributes):
    """The node with other attributes."""
    proto = recurrent_model("LSTM", 4).proto()
    node = next(n for n in proto.graph.node if n.op_type == "LSTM")
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    return wrap(proto, name="changed")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"clip": 3.0}, "it sets clip"),
        ({"activations": ["Sigmoid", "Relu", "Relu"]}, "it sets activations"),
        ({"input_forget": 1}, "it sets input_forget"),
    ],
)
def test_settings_that_no_form_has_are_refused(attributes, why):
    with pytest.raises(ModelError, match=why):
        read_recurrent(changed(**attributes), "/rnn0")


def test_a_node_that_is_no_recurrence_or_has_states_of_its_own_is_refused():
    model = recurrent_model("LSTM", 4)
    with pytest.raises(ModelError, match="MatMul is no LSTM"):
        read_recurrent(model, "/head")
    proto = model.proto()
    node = next(n for n in proto.graph.node if n.op_type == "LSTM")
    node.input.extend(["", "first"])
    zeros = np.zeros((1, 1, 16), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(zeros, "first"))
    with pytest.raises(ModelError, match="first states or peepholes"):
        read_recurrent(wrap(proto, name="first"), "/rnn0")


def test_another_batch_is_a_field():
    layer = dataclasses.replace(read_recurrent(recurrent_model("LSTM", 3), "/rnn0"), batch=16)
    assert (3, 16, 8) == layer.create_batch()["x"].shape
    made = Session(build_forms(layer)["naive"].model.SerializeToString(), layer.create_batch()).outputs()["Y"]
    assert (3, 1, 16, 16) == made.shape
