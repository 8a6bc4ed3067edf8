"""Loaded models: what a user gives, and what comes of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper, numpy_helper

import hostile
from nets import graph_proto
from rtlab.core.model import Model, load, wrap
from rtlab.errors import ModelError
from rtlab.testing import tiny_model
from strategies import HOSTILE_NAMES, chain, of_nodes

node = helper.make_node

CORPUS = sorted(Path(onnx.backend.test.__file__).with_name("data").rglob("*.onnx"))


def _saved(path, *names: str, batch: int | str = 1):
    """A chain of activations of these names, written to a file."""
    values = [f"v{i}" for i in range(len(names) + 1)]
    nodes = [node("Relu", [values[i]], [values[i + 1]], n) for i, n in enumerate(names)]
    ends = ([(values[i], TensorProto.FLOAT, [batch, 4])] for i in (0, -1))
    onnx.save(graph_proto(nodes, *ends, {}), path)
    return path


def names(model: Model) -> list[tuple[str, str]]:
    return [(n.id, n.name) for n in model.nodes]


@pytest.fixture
def detector() -> onnx.ModelProto:
    """Two inputs with dynamic dimensions: images of any number and size, and one threshold."""
    nodes = [node("Relu", ["image"], ["r"], name="relu"), node("Mul", ["r", "threshold"], ["y"], name="mul")]
    shape = ["N", 3, "height", None]
    inputs = [("image", TensorProto.FLOAT, shape), ("threshold", TensorProto.FLOAT, [])]
    return graph_proto(nodes, inputs, [("y", TensorProto.FLOAT, shape)], {})


def test_path_bytes_and_proto_give_the_same_model(tmp_path):
    proto = chain(3)
    path = tmp_path / "three.onnx"
    onnx.save(proto, path)
    sources = (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), proto)
    models = [load(s, name="m") for s in sources]
    assert [models[0].nodes] * 5 == [m.nodes for m in models]
    assert {models[0].digest} == {m.digest for m in models}
    assert "three" == load(path).name
    assert "small" == load(proto).name


@pytest.mark.skipif(not CORPUS, reason=f"onnx {onnx.__version__} carries no models of its backend tests")
@pytest.mark.parametrize(
    "path", CORPUS or [Path()], ids=lambda p: p.parent.name if p.name == "model.onnx" else p.stem
)
def test_every_model_of_the_onnx_package_loads_or_is_refused(path):
    before = path.read_bytes()
    try:
        model = load(path)
    except ModelError as refusal:
        model = None
        opset = onnx.load(path).opset_import[0].version
        assert opset < 7 or "the ONNX checker refuses" in str(refusal)  # noqa: PT017 - either way is right
    if model is not None:
        again = load(model.bytes())
        assert names(model) == names(again)
        assert model.bytes() == again.bytes()
    assert before == path.read_bytes()


@pytest.mark.parametrize("case", hostile.UNLOADABLE, ids=str)
def test_hostile_files_are_refused_with_the_reason_and_the_next_step(case, tmp_path):
    path = case.make(tmp_path)
    before = path.read_bytes()
    with pytest.raises(case.error) as caught:
        load(path)
    assert [] == [w for w in case.words if w not in str(caught.value)]
    assert str(caught.value).startswith("Cannot load")
    assert str(caught.value).endswith(".")
    assert before == path.read_bytes()


@pytest.mark.parametrize("case", hostile.BUILDABLE, ids=str)
def test_valid_but_hostile_files_load_and_survive_saving(case, tmp_path):
    path = case.make(tmp_path)
    before = path.read_bytes()
    model = load(path)
    assert names(model) == names(load(model.bytes()))
    assert before == path.read_bytes()


def test_opset_6_is_refused_and_opset_7_loads():
    """Before opset 7 broadcasting had another meaning, and the graph would be explained wrongly."""
    with pytest.raises(ModelError, match="opset 6"):
        load(of_nodes([node("Relu", ["x"], ["y"])], opset=6))
    assert 7 == load(of_nodes([node("Relu", ["x"], ["y"])], opset=7)).opset


def test_weights_beside_a_relative_path_are_found_and_carried(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    hostile.external(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    model = load("models/hostile.onnx")
    monkeypatch.chdir("/")
    weight = onnx.load_from_string(model.bytes()).graph.initializer[0]
    np.testing.assert_array_equal([[0, 1, 2, 3]], numpy_helper.to_array(weight))
    assert "constant" == model.values["w"].kind
    assert (1, 4) == model.values["w"].shape


def test_duplicate_and_empty_names_get_their_position_and_keep_what_the_author_wrote():
    proto = chain(5)
    for node, name in zip(proto.graph.node, ["conv", "", "conv", "", "#1"], strict=True):
        node.name = name
    model = load(proto)
    assert [("#0", "conv"), ("#1.1", ""), ("#2", "conv"), ("#3", ""), ("#1", "#1")] == names(model)
    assert ["conv", "Neg 1", "conv", "Neg 3", "#1"] == [n.title for n in model.nodes]


def test_ids_contain_nothing_that_breaks_a_listing():
    proto = chain(len(HOSTILE_NAMES))
    for node, name in zip(proto.graph.node, HOSTILE_NAMES, strict=True):
        node.name = name
    model = load(proto)
    assert list(HOSTILE_NAMES) == [n.name for n in model.nodes]
    assert len(HOSTILE_NAMES) == len({n.id for n in model.nodes})
    assert [] == [n.id for n in model.nodes if set(n.id) & set("|[]\n\t\x1e\x1f") or ", " in n.id]
    assert [n.id for n in model.nodes] == [n.name for n in model.ir.graph]


def test_ids_stay_when_a_preparation_inserts_nodes():
    proto = chain(3)
    for one in proto.graph.node:
        one.name = ""
    model = load(proto)
    prepared = model.proto()
    cast = node("Identity", ["x"], ["x_cast"], name="")
    prepared.graph.node[0].input[0] = "x_cast"
    prepared.graph.node.insert(0, cast)
    after = wrap(prepared, name="prepared")
    assert ["#0", "#1", "#2"] == [n.id for n in model.nodes]
    assert ["#0.1", "#0", "#1", "#2"] == [n.id for n in after.nodes]
    assert ["", "", "", ""] == [n.name for n in after.nodes]


def test_looking_for_a_node_takes_names_and_helps():
    proto = chain(4)
    for node, name in zip(proto.graph.node, ["/a|b", "twice", "twice", "/layer1/conv/Conv"], strict=True):
        node.name = name
    model = load(proto)
    assert "#0" == model.node("/a|b").id
    with pytest.raises(ModelError, match='the ids "#1", "#2"'):
        model.node("twice")
    with pytest.raises(ModelError, match="no node has this"):
        model.node("/layer1/conv1/Conv")
    with pytest.raises(ModelError, match=r"See model\.nodes\."):
        model.node("zzz")


def test_producers_and_consumers_are_each_others_inverse(tiny_model):
    edges = {(p.id, v) for v, p in tiny_model.producers.items() for _ in tiny_model.consumers.get(v, ())}
    read = {
        (tiny_model.producers[i].id, i) for n in tiny_model.top for i in n.inputs if i in tiny_model.producers
    }
    assert read == edges
    assert set(tiny_model.outputs) == set(tiny_model.producers) - set(tiny_model.consumers)


def test_a_weight_that_is_listed_as_input_is_a_constant():
    """Old exporters list weights among the inputs; nobody can feed those."""
    weight = numpy_helper.from_array(np.ones((1, 4), np.float32), "w")
    proto = of_nodes([node("Add", ["x", "w"], ["y"], name="add")], weights=[weight])
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 4]))
    model = load(proto)
    assert ("x",) == model.inputs
    assert "constant" == model.values["w"].kind


def test_nodes_of_bodies_know_their_owners():
    branches = {
        branch: helper.make_graph(
            [node(op, ["x"], [f"{branch}_out"], name="same")], branch, [],
            [helper.make_tensor_value_info(f"{branch}_out", TensorProto.FLOAT, [1, 4])],
        )
        for branch, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }  # fmt: skip
    condition = numpy_helper.from_array(np.array(True), "cond")
    nodes = [node("If", ["cond"], ["a"], name="choice", **branches), node("Abs", ["a"], ["y"], name="abs")]
    model = load(of_nodes(nodes, weights=[condition]))
    assert [("If", ()), ("Abs", ())] == [(n.op, n.scope) for n in model.top]
    assert {("Relu", "same", ("choice",)), ("Neg", "same", ("choice",))} == {
        (n.op, n.name, n.scope) for n in model.nodes if n.scope
    }
    assert "a" not in {n.id for n in model.nodes}
    assert 4 == len({n.id for n in model.nodes})


@pytest.mark.parametrize(("levels", "times"), [(15, 2), (4, 14)])
def test_as_many_calls_of_functions_as_any_model_has_are_expanded(levels, times):
    model = load(hostile.functions_upon_functions(levels, times))
    deepest = next(n for n in model.nodes if n.op == "Neg" and "function F0" in n.scope)
    assert times ** (levels - 1) == len(model.where(deepest.id))


def test_calls_of_functions_are_counted_with_their_bodies_and_once_for_each_call():
    """21 levels of two calls each: 2 + 4 + ... + 2^20 calls of functions below the first one, and that one."""
    with pytest.raises(ModelError, match=r"stand for 2\.1e\+06 calls") as refused:
        load(hostile.functions_upon_functions(21))
    assert 2_097_151 == sum(2**i for i in range(21))
    assert "Export the model without" in str(refused.value)
    # One call more is inside a body, which is counted as well.
    inside = hostile.functions_upon_functions(20)
    (call,) = inside.graph.node
    then, other = (
        helper.make_graph([call], name, [], [inside.graph.output[0]]) for name in ("then", "other")
    )
    asked = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inside.graph.node[0].CopyFrom(asked)
    inside.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with pytest.raises(ModelError, match=r"stand for 2\.1e\+06 calls"):
        load(inside)


def test_nodes_of_local_functions_come_last_under_the_functions_name():
    opsets = [helper.make_opsetid("", 17)]
    body = [node("Relu", ["a"], ["t"], name="n0"), node("Neg", ["t"], ["b"], name="n1")]
    proto = of_nodes([node("Block", ["x"], ["y"], name="call", domain="local")])
    proto.functions.append(helper.make_function("local", "Block", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    model = load(proto)
    assert [("call", ()), ("n0", ("function Block",)), ("n1", ("function Block",))] == [
        (n.id, n.scope) for n in model.nodes
    ]
    assert model.nodes == load(model.bytes()).nodes


@pytest.mark.slow
def test_a_chain_of_ten_thousand_nodes_loads():
    assert 10_000 == len(load(chain(10_000)).nodes)


def test_named_sizes_fix_dynamic_dimensions(detector):
    by_symbol_and_shape = load(detector, shapes={"image": (2, 3, 32, 64)})
    static = by_symbol_and_shape.static()
    assert (2, 3, 32, 64) == by_symbol_and_shape.input_shape("image")
    assert () == by_symbol_and_shape.input_shape("threshold")
    assert ("N", 3, "height", None) == by_symbol_and_shape.values["image"].shape
    assert (2, 3, 32, 64) == static.values["image"].shape == static.values["y"].shape
    assert static is static.static()


def test_a_batch_without_a_name_is_one_and_other_dimensions_must_be_named(detector):
    model = load(detector, shapes={"height": 32})
    with pytest.raises(ModelError, match=r'"image": dimension 3 .*\(1, 3, 32, 224\)'):
        model.input_shape("image")
    assert (1, 4) == load(of_nodes([node("Relu", ["x"], ["y"])], shape=["N", 4])).input_shape("x")


def test_a_large_weight_whose_bytes_are_too_few_is_refused() -> None:
    """The checker is spared large weights that have all of their bytes, and only those."""
    weight = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[512, 512], raw_data=b"\0" * (512 * 512 * 4 - 4)
    )
    proto = of_nodes([node("Add", ["x", "w"], ["y"])], weights=[weight], shape=(512, 512))
    with pytest.raises(ModelError, match="the file holds 1048572"):
        load(proto)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"imgae": (1, 3, 8, 8)}, 'its inputs are "image" N×3×height×?, "threshold" scalar'),
        ({"image": (1, 3, 8)}, 'Cannot give "image" the shape 1×3×8'),
        ({"image": (1, 4, 8, 8)}, 'Cannot give "image" the shape 1×4×8×8'),
        ({"width": 8}, "its symbols are N, height"),
        ({"height": 0}, "at least 1"),
        ({"image": (1, 3, -1, 8)}, "at least 1"),
    ],
    ids=["input", "rank", "channels", "symbol", "zero", "negative"],
)
def test_a_size_that_does_not_fit_says_what_would(shapes, words, detector):
    with pytest.raises(ModelError, match=re.escape(words)):
        load(detector, shapes=shapes)


def test_named_sizes_are_part_of_the_digest(detector):
    digests = {load(detector, shapes={"image": (1, 3, size, size)}).digest for size in (32, 64)}
    assert 2 == len(digests)


def test_dynamic_batch_is_of_all_inputs(detector):
    assert not load(detector).dynamic_batch
    assert load(of_nodes([node("Relu", ["x"], ["y"])], shape=["N", 4])).dynamic_batch
    assert not load(chain(1)).dynamic_batch


@pytest.mark.parametrize(
    ("names", "batch"), [(("same", "same"), 1), (("", "two"), 1), (("one", "two"), "batch")]
)
def test_a_file_with_other_names_or_open_sizes_is_not_what_is_built(tmp_path, names, batch) -> None:
    assert load(_saved(tmp_path / "a.onnx", *names, batch=batch)).file is None


def test_a_file_that_changed_since_it_was_loaded_is_not_what_is_built(tmp_path) -> None:
    path = _saved(tmp_path / "a.onnx", "one", "two")
    model = load(path)
    _saved(path, "one", "two", "three")
    assert model.file is None
    path.unlink()
    assert model.file is None


def test_a_name_of_several_lines_stands_in_one():
    assert load(tiny_model().bytes(), name="one\r\ntwo\u2028three").name == "one two three"


def test_constants_and_nodes_of_bodies_are_counted_apart():
    five = numpy_helper.from_array(np.float32(5), "five")
    body = helper.make_graph(
        [node("Relu", ["x"], ["r"])], "then", [], [helper.make_tensor_value_info("r", 1, [1, 4])]
    )
    other = helper.make_graph(
        [node("Neg", ["x"], ["n"])], "else", [], [helper.make_tensor_value_info("n", 1, [1, 4])]
    )
    nodes = [
        node("Constant", [], ["c"], value=five), node("Add", ["x", "c"], ["a"]),
        node("Constant", [], ["b"], value=numpy_helper.from_array(np.array(True))),
        node("If", ["b"], ["i"], then_branch=body, else_branch=other), node("Mul", ["a", "i"], ["y"]),
    ]  # fmt: skip
    model = wrap(graph_proto(nodes, [("x", 1, [1, 4])], [("y", 1, [1, 4])], {}), name="m")
    assert (3, "3 nodes · 2 constants · 2 in bodies") == (model.node_count, model.size)
    assert "3 nodes · 2 constants · 2 in bodies, opset" in repr(model)
