from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from one_precision import fp16, int8
from rtlab.backends import providers
from rtlab.core.model import Model, load
from rtlab.core.node import ORIGIN
from rtlab.core.scale import Scale
from rtlab.errors import BuildError
from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import quantizable

node = helper.make_node
INFO = helper.make_tensor_value_info
RNG = np.random.default_rng(0)


def all_int8(model: Model) -> Model:
    return int8(model, {v: Scale(16.0) for v in quantizable(model)})


def prepared(model: Model) -> list[Model]:
    halves = fp16(model)
    return [all_int8(model), halves.typed, halves.emulation]


def agree(run, source: Model, feed: dict[str, np.ndarray], tolerance: float = 0.15) -> None:
    """Every prepared form is valid, keeps the output's name, and computes nearly the same."""
    name = source.outputs[0]
    want = run(source, feed, [name])[name]
    for model in prepared(source):
        onnx.checker.check_model(model.proto(), full_check=True)
        if (
            model.opset == 23
            and providers.parse_release() < (1, 24)
            and "QuantizeLinear" in {n.op for n in model.nodes}
        ):
            with pytest.raises(BuildError, match=r"implementation for QuantizeLinear\(23\)"):
                run(model, feed, [name])
            continue
        got = run(model, feed, [name])[name]
        assert np.abs(want - got).max() <= tolerance * np.abs(want).max()


def conv_weights() -> dict[str, np.ndarray]:
    w = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32) / 5
    return {"w": w, "v": np.ones((2, 4, 1, 1), np.float32)}


PIXELS = {"x": RNG.standard_normal((1, 3, 6, 6)).astype(np.float32)}


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset_from_seven_on_is_prepared(make, run, opset: int):
    net = make(
        "x[1, 3, 6, 6]; first: c = Conv(x, w, pads=[1, 1, 1, 1]); "
        "bn: n = BatchNormalization(c, s, b, m, d); relu: r = Relu(n); second: p = Conv(r, v); "
        "pool: g = GlobalAveragePool(p); flat: f = Flatten(g); soft: y = Softmax(f, axis=1); y[1, 2]",
        {
            **conv_weights(),
            **{name: np.float32([value] * 4) for name, value in {"s": 1, "b": 0, "m": 0, "d": 1}.items()},
        },
        opset=opset,
    )
    agree(run, net, PIXELS)
    ready = all_int8(net)
    assert max(opset, 13) == ready.opset
    assert {n.id for n in net.nodes} <= {n.id for n in ready.nodes}
    assert {n.origin for n in ready.nodes} == {n.id for n in net.nodes}


def test_nodes_that_the_opset_converter_adds_have_an_origin(make, run):
    """Squeeze got its axes as an input in opset 13, so the converter adds a constant."""
    net = make(
        "x[1, 3, 6, 6]; conv: c = Conv(x, w); pool: g = GlobalAveragePool(c); "
        "squeeze: q = Squeeze(g, axes=[2, 3]); unsqueeze: y = Unsqueeze(q, axes=[0]); y[1, 1, 4]",
        {"w": conv_weights()["w"]},
        opset=11,
    )
    ready = all_int8(net)
    added = {n.id: n.origin for n in ready.nodes if n.op == "Constant"}
    assert {"squeeze", "unsqueeze"} >= set(added.values())
    assert [n.id for n in net.nodes] == [n.id for n in ready.nodes if n.id in net.by_id]
    agree(run, net, PIXELS)


def test_new_names_avoid_those_that_exist(make, run):
    net = make(
        [
            node("Identity", ["x"], ["c/input/scale"], name="c/input/QuantizeLinear"),
            node("Conv", ["c/input/scale", "w"], ["c/weight/int8"], name="c", pads=[1] * 4),
            node("Relu", ["c/weight/int8"], ["y"], name="c/weight/DequantizeLinear"),
        ],
        {"w": conv_weights()["w"]}, {"x": [1, 3, 6, 6]}, {"y": [1, 4, 6, 6]},
    )  # fmt: skip
    agree(run, net, PIXELS)
    ids = [n.id for n in all_int8(net).nodes]
    assert len(ids) == len(set(ids))


def test_bodies_are_carried_over_byte_for_byte(make, run):
    """GraphSurgeon drops metadata and some attributes; a body must come out as it went in."""
    inner = node("Conv", ["c", "v"], ["o"], name="inner")
    body = helper.make_graph([inner], "body", [], [INFO("o", 1, [1, 2, 6, 6])])
    branch = node("If", ["flag"], ["y"], name="if", then_branch=body, else_branch=body)
    net = make(
        ["x[1, 3, 6, 6]; outer: c = Conv(x, w, pads=[1, 1, 1, 1])", branch, "y[1, 2, 6, 6]"],
        {**conv_weights(), "flag": np.array(True)},
    )
    agree(run, net, PIXELS)

    def bodies(model: Model) -> list[bytes]:
        owner = next(n for n in model.proto().graph.node if n.op_type == "If")
        return [a.g.SerializeToString() for a in owner.attribute]

    for model in prepared(net):
        assert bodies(net) == bodies(model)
        assert "v" in {t.name for t in model.proto().graph.initializer}


def test_local_functions_are_carried_over(make, run):
    mul, opsets = node("Mul", ["a", "b"], ["c"], name="mul"), [helper.make_opsetid("", 17)]
    block = helper.make_function("local", "Scale", ["a", "b"], ["c"], [mul], opsets)
    call = node("Scale", ["c", "two"], ["d"], name="call", domain="local")
    net = make(
        [
            "x[1, 3, 6, 6]; conv: c = Conv(x, w, pads=[1, 1, 1, 1])",
            call,
            "last: y = Conv(d, v); y[1, 2, 6, 6]",
        ],
        {**conv_weights(), "two": np.float32([2])},
        functions=[block],
    )
    agree(run, net, PIXELS)
    assert any("a custom operator or" in note for note in fp16(net).notes)
    for model in prepared(net):
        assert ["mul"] == [n.id for n in model.nodes if n.scope]


def test_an_old_model_with_weights_among_its_inputs_is_prepared(run):
    """IR version 3 lists weights as graph inputs; they are weights all the same."""
    weights = conv_weights()
    graph = helper.make_graph(
        [node("Conv", ["x", "w"], ["c"], name="a", pads=[1] * 4), node("Conv", ["c", "v"], ["y"], name="b")],
        "old",
        [INFO("x", 1, [1, 3, 6, 6]), *(INFO(n, 1, a.shape) for n, a in weights.items())],
        [INFO("y", 1, [1, 2, 6, 6])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    net = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3))
    agree(run, net, PIXELS)
    assert ("x",) == all_int8(net).inputs


def test_a_later_edit_keeps_the_origins_of_an_earlier_one(make):
    net = make("x[1]; relu: y = Relu(x); y[1]")
    first = Edit(net)
    first.insert("Identity", "relu/first", [first.values["y"]], origin="relu", after="relu")
    once = first.model
    again = Edit(once, keep_origins=True)
    again.insert("Identity", "relu/second", [again.values["y"]], origin="relu", after="relu/first")
    twice = again.model
    assert {n.id: "relu" for n in twice.top} == {n.id: n.origin for n in twice.top}
    assert ["relu", "relu/first", "relu/second"] == [n.id for n in twice.top]
    # A prepared model that was saved and loaded is a source of its own.
    assert {"relu": "relu", "relu/first": "relu/first"} == {n.id: n.origin for n in Edit(once).model.top}


def test_bodies_are_raised_to_the_new_opset_too(make, run):
    def body(name: str) -> onnx.GraphProto:
        squeeze = node("Squeeze", ["c"], ["o"], name=name, axes=[0])
        return helper.make_graph([squeeze], "body", [], [INFO("o", 1, [4, 6, 6])])

    branch = node("If", ["flag"], ["y"], name="if", then_branch=body("a"), else_branch=body("b"))
    net = make(
        ["x[1, 3, 6, 6]; conv: c = Conv(x, w, pads=[1, 1, 1, 1])", branch, "y[4, 6, 6]"],
        {"w": conv_weights()["w"], "flag": np.array(True)},
        opset=11,
    )
    agree(run, net, PIXELS)
    assert {"conv", "if", "a", "b"} == {n.origin for n in all_int8(net).nodes}


def test_weights_in_an_external_file_are_read_and_the_files_left_alone(tmp_path, make, run):
    net = make(
        "x[1, 3, 6, 6]; a: c = Conv(x, w, pads=[1, 1, 1, 1]); b: y = Conv(c, v); y[1, 2, 6, 6]",
        conv_weights(),
    )
    path = tmp_path / "big.onnx"
    onnx.save(net.proto(), path, save_as_external_data=True, location="big.bin", size_threshold=0)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    agree(run, load(path), PIXELS)
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_a_loop_keeps_its_state(make, run):
    body = helper.make_graph(
        [node("Add", ["h", "c"], ["h2"], name="step"), node("Identity", ["go"], ["go2"], name="go")],
        "body",
        [INFO("i", 7, []), INFO("go", 9, []), INFO("h", 1, [1, 4, 6, 6])],
        [INFO("go2", 9, []), INFO("h2", 1, [1, 4, 6, 6])],
    )
    loop = node("Loop", ["n", "", "c"], ["h_end"], name="loop", body=body)
    net = make(
        [
            "x[1, 3, 6, 6]; conv: c = Conv(x, w, pads=[1, 1, 1, 1])",
            loop,
            "last: y = Conv(h_end, v); y[1, 2, 6, 6]",
        ],
        {**conv_weights(), "n": np.int64(3)},
    )
    agree(run, net, PIXELS)


def test_dynamic_sizes_and_their_names_are_kept(make):
    net = make(
        "x[N, 3, height, 6]; a: y = Conv(x, w); y[N, 4, h2, 4]",
        {"w": conv_weights()["w"]},
        shapes={"height": 6},
    )
    for model in prepared(net):
        assert net.values["x"].shape == model.values["x"].shape
        assert (1, 3, 6, 6) == model.input_shape("x")


def test_model_metadata_is_kept(make):
    net = make("x[1, 3, 6, 6]; a: y = Conv(x, w); y[1, 4, 4, 4]", {"w": conv_weights()["w"]})
    proto = net.proto()
    proto.metadata_props.add(key="classes", value="cat,dog")
    proto.graph.node[0].metadata_props.add(key="from", value="torch")
    proto.graph.node[0].doc_string = "first"
    for model in prepared(load(proto)):
        got = model.proto()
        conv = next(n for n in got.graph.node if n.op_type == "Conv")
        assert ("classes", "cat,dog") == (got.metadata_props[0].key, got.metadata_props[0].value)
        assert "torch" == {p.key: p.value for p in conv.metadata_props}["from"]
        assert "first" == conv.doc_string


def test_names_stay_unique_however_many_are_asked_for(make):
    net = make("x[1]; r: y = Relu(x); y[1]")
    edit = Edit(net)
    names = [
        edit.add_constant(name, np.zeros(1)).name for name in ["a", "a", "b" * 500, "b" * 500 + "c", "x"]
    ]
    assert len(names) == len(set(names))
    assert "x" not in names
    assert all(len(n) <= 200 for n in names)


def test_nodes_of_a_raised_opset_tell_by_which_name_they_were_known(make):
    edit = Edit(make("x[1, 4]; first: h = Relu(x); second: y = Softmax(h); y[1, 4]", opset=11))
    edit.raise_opset(13, "a test")
    assert edit.model.opset == 13
    assert {"first", "second"} <= {n.metadata_props[ORIGIN] for n in edit.nodes.values()}
    before = [*edit.nodes.values()]
    edit.raise_opset(12, "a test")
    assert before == [*edit.nodes.values()]
