"""Laws of loading, over graphs of every kind."""

from __future__ import annotations

import networkx
import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st

import strategies
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.errors import ModelError
from sessions import run


def image(proto: onnx.ModelProto, batch: int = 1) -> dict[str, np.ndarray]:
    dims = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim][1:]
    return {"image": np.random.default_rng(0).standard_normal((batch, *dims)).astype(np.float32)}


def refusal(source: bytes) -> str | None:
    """What ``load`` says against a source; any exception but a ModelError is a failure of the test."""
    try:
        assert load(source).bytes()
    except ModelError as error:
        return str(error)
    return None


@given(strategies.protos(bodies=True))
def test_ids_are_unique_and_names_are_the_authors(proto):
    model = load(proto)

    assert len(model.nodes) == len({n.id for n in model.nodes})
    assert [n.name for n in proto.graph.node] == [n.name for n in model.top]
    assert [n.op_type for n in proto.graph.node] == [n.op for n in model.top]


@given(strategies.protos(bodies=True))
def test_loading_what_was_saved_is_the_identity(proto):
    model = load(proto)
    again = load(model.bytes())

    assert model.nodes == again.nodes
    assert model.values == again.values
    assert model.digest == again.digest


@given(strategies.protos(bodies=True))
def test_loading_changes_neither_the_source_nor_what_it_computes(proto):
    before = proto.SerializeToString()
    model = load(proto)

    assert before == proto.SerializeToString()
    for node in proto.graph.node:
        node.name = ""  # ONNX Runtime refuses duplicate names in a source; ids let it run even those
    feeds = image(proto)
    np.testing.assert_array_equal(run(proto.SerializeToString(), feeds)[0], run(model.bytes(), feeds)[0])


@given(strategies.protos(dynamic=True, hostile=False))
def test_fixing_the_batch_keeps_nodes_and_results(proto):
    model = load(proto, shapes={"N": 2})
    static = model.static()

    nodes, others = ([(n.id, n.name, n.inputs, n.outputs) for n in m.nodes] for m in (model, static))
    assert nodes == others
    assert (2,) == (static.values["image"].shape or ())[:1]
    feeds = image(proto, batch=2)
    np.testing.assert_array_equal(run(model.bytes(), feeds)[0], run(static.bytes(), feeds)[0])


@given(strategies.protos(dynamic=False, hostile=False))
def test_shapes_and_types_on_the_edges_are_those_of_the_real_tensors(proto):
    model = load(proto)
    probe = onnx.load_from_string(model.bytes())
    wanted = [v for n in model.top for v in n.outputs]
    probe.graph.output.extend(onnx.ValueInfoProto(name=v) for v in wanted if v not in model.outputs)
    tensors = run(probe.SerializeToString(), image(proto), wanted)
    numpy_names = {"fp32": "float32", "int64": "int64", "int8": "int8", "bool": "bool"}

    assert {v: (t.shape, str(t.dtype)) for v, t in zip(wanted, tensors, strict=True)} == {
        v: (model.values[v].shape, numpy_names[model.values[v].dtype]) for v in wanted
    }


def _names_read(node: onnx.NodeProto) -> set[str]:
    """Names that a node or its bodies read, as far as this strategy nests them."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    return {i for n in (node, *(m for b in bodies for m in b.node)) for i in n.input if i}


@given(strategies.protos(bodies=True, hostile=False), st.data())
def test_any_order_of_the_nodes_loads_as_the_same_model(proto, data):
    """What networkx says: nodes come as early as their place in the file allows."""
    image_ = image(proto)
    expected = run(proto.SerializeToString(), image_)[0]
    nodes = data.draw(st.permutations(list(proto.graph.node)))
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(proto)
    shuffled.graph.ClearField("node")
    shuffled.graph.node.extend(nodes)
    makers = {o: i for i, n in enumerate(nodes) for o in n.output}
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from((makers[v], i) for i, n in enumerate(nodes) for v in _names_read(n) if v in makers)
    order = list(networkx.lexicographical_topological_sort(graph))

    model = load(shuffled)
    assert [nodes[i].name for i in order] == [n.name for n in model.top]
    assert (order == list(range(len(nodes)))) == (not model.notes)
    np.testing.assert_array_equal(expected, run(model.bytes(), image_)[0])


@given(strategies.protos(dynamic=False, hostile=False), st.data())
def test_sizes_that_are_none_are_what_a_user_names(proto, data):
    before = load(proto)
    given_ = onnx.ModelProto()
    given_.CopyFrom(proto)
    for i, dim in enumerate(given_.graph.input[0].type.tensor_type.shape.dim):
        if i != 1 and data.draw(st.booleans()):
            dim.dim_value = data.draw(st.sampled_from([0, -1, -2, -(2**63)]))
    for dim in given_.graph.output[0].type.tensor_type.shape.dim:
        if data.draw(st.booleans()):
            dim.dim_value = -1
    model = load(given_, shapes={"image": before.input_shape("image")})

    shapes, others = ({k: v.shape for k, v in m.values.items()} for m in (before, model.static()))
    assert shapes == others
    np.testing.assert_array_equal(run(before.bytes(), image(proto))[0], run(model.bytes(), image(proto))[0])


@given(strategies.protos(hostile=False), st.data())
def test_a_damaged_file_is_refused_or_loads(proto, data):
    damaged = bytearray(proto.SerializeToString())
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    said = refusal(bytes(damaged))

    assert said is None or said.startswith("Cannot")


@given(strategies.models(hostile=False), st.integers(1, 9), st.integers(1, 4))
def test_batches_in_order_give_back_the_data(model, samples, size):
    data = CalibrationData.random(model, samples=samples, seed=1)
    data.check(model)
    batches = list(data.batches(model, size))

    joined = np.concatenate([np.asarray(b["image"]) for b in batches])
    np.testing.assert_array_equal(data.arrays["image"], joined)
    most = size if model.dynamic_batch else 1
    assert {most} >= {len(b["image"]) for b in batches[:-1]}
    assert most >= len(batches[-1]["image"])


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data):
    assert (refusal(data) or "").startswith("Cannot load")
