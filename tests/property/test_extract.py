"""Laws of cutting a part out of a model: it is valid, and it computes what the whole computes there."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st

import strategies
from sessions import run


@given(strategies.models(hostile=False, bodies=True, dynamic=False), st.data())
def test_a_part_is_valid_and_computes_the_values_of_the_whole(model, data):
    ids = data.draw(st.lists(st.sampled_from([n.id for n in model.nodes]), min_size=1, unique=True))
    part = model.extract(ids)
    proto = part.proto()
    onnx.checker.check_model(proto, full_check=True)
    assert {n.id for n in model.top if n.id in ids} <= {n.id for n in part.top}
    assert {n.id for n in part.top} <= {n.id for n in model.top}

    whole = model.proto()
    wanted = [v for v in (*part.inputs, *part.outputs) if v not in model.inputs]
    whole.graph.output.extend(onnx.ValueInfoProto(name=v) for v in wanted if v not in model.outputs)
    shape = model.values["image"].shape
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    values = dict(zip(wanted, run(whole.SerializeToString(), {"image": image}, wanted), strict=True)) | {
        "image": image
    }
    found = run(proto.SerializeToString(), {n: values[n] for n in part.inputs}, list(part.outputs))
    for name, array in zip(part.outputs, found, strict=True):
        np.testing.assert_array_equal(values[name], array)


@given(strategies.models(bodies=True), st.data())
def test_any_names_can_be_cut(model, data):
    ids = data.draw(st.lists(st.sampled_from([n.id for n in model.nodes]), min_size=1, unique=True))
    onnx.checker.check_model(model.extract(ids).proto(), full_check=True)


@given(strategies.models(hostile=False, dynamic=True))
def test_all_nodes_make_the_model_again(model):
    part = model.extract(n.id for n in model.nodes)
    assert model.nodes == part.nodes
    assert set(model.inputs) == set(part.inputs)
    assert set(model.outputs) <= set(part.outputs)
    assert {v: model.values[v].shape for v in model.inputs} == {v: part.values[v].shape for v in model.inputs}
