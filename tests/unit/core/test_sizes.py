"""Shapes of all values at given sizes, and sizes that are proposed, against what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from onnx import TensorProto, helper, numpy_helper

import strategies
from nets import graph
from rtlab.core import partial_shapes
from rtlab.core.model import Model, load, wrap
from rtlab.errors import ModelError
from rtlab.web.page.controls import build_controls

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


RELU, NEG = helper.make_node("Relu", ["x"], ["y"], "r"), helper.make_node("Neg", ["x"], ["y"], "n")
#: Nodes, the shape of "x", constants, and the shapes of what is written.
ODD = {
    "a rank of zero": ([NEG], [], {}, {"y": ()}),
    "an empty tensor": (
        [helper.make_node("Concat", ["x", "e"], ["y"], axis=0)], ["N"], {"e": np.zeros(0, np.float32)}, {"y": (1,)},
    ),
    "a huge size": (
        [RELU, helper.make_node("Shape", ["y"], ["s"])], ["N", 2**40], {}, {"y": (1, 2**40), "s": (2,)},
    ),
    "a tensor that nobody can hold": (
        [helper.make_node("ConstantOfShape", ["n"], ["y"]), helper.make_node("Add", ["y", "x"], ["z"])],
        ["N"], {"n": np.array([2**50], np.int64)}, {"y": (2**50,)},
    ),
}  # fmt: skip


def info(name: str, shape: list[int | str | None] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=None, functions=None, shapes=None) -> Model:
    """A model; weights are arrays by name."""
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    )
    opsets = [helper.make_opsetid(d, v) for d, v in (("", 17), ("local", 1), ("com.microsoft", 1))]
    proto = helper.make_model(graph, ir_version=9, opset_imports=opsets, functions=functions or [])
    return load(proto, shapes=shapes)


def real(net: Model, **feeds: np.ndarray) -> dict[str, tuple[int, ...]]:
    """The shapes of what every node of the main graph writes."""
    proto = net.proto()
    names = [o for n in net.top for o in n.outputs if o]
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in net.outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {n: np.shape(v) for n, v in zip(names, session.run(names, feeds), strict=True)}


def known(net: Model, names: object, **options: object) -> dict[str, tuple[int, ...] | None]:
    sizes = net.sizes(**options)
    return {n: sizes.get(n) for n in names}


@given(strategies.protos(dynamic=True, hostile=False, bodies=True))
def test_shapes_are_those_of_the_real_tensors(proto):
    """At the batch that was named, and at another one; ONNX Runtime is the oracle."""
    net = load(proto)
    dims = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim][1:]
    for batch in (1, 3):
        found = real(net, image=np.zeros((batch, *dims), np.float32))
        assert found == known(net, found, batch=batch)


def _flattened(height: str) -> list[onnx.NodeProto]:
    """``x.reshape(N, C, H * W).transpose(1, 2)`` as TorchScript writes it: sizes are multiplied at run time."""
    return [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        *(helper.make_node("Gather", ["s", f"i{i}"], [f"d{i}"], f"gather{i}") for i in range(4)),
        helper.make_node("Mul", ["d2", "d3"], [height], "area"),
        *(helper.make_node("Unsqueeze", [v, "zero"], [f"{v}_1"], f"un{v}") for v in ("d0", "d1", height)),
        helper.make_node("Concat", ["d0_1", "d1_1", f"{height}_1"], ["to"], "to", axis=0),
        helper.make_node("Reshape", ["x", "to"], ["flat"], "reshape"),
        helper.make_node("Transpose", ["flat"], ["y"], "turn", perm=[0, 2, 1]),
    ]


def test_shape_arithmetic_is_computed() -> None:
    """ONNX's own inference gives up at a product; what follows from it is a whole detector."""
    weights = {**{f"i{i}": np.array(i, np.int64) for i in range(4)}, "zero": np.array([0], np.int64)}
    net = model(_flattened("hw"), [info("x", ["N", 3, "H", "W"])], [info("y", ["A", "B", "C"])], weights)
    found = real(net, x=np.zeros((1, 3, 20, 30), np.float32))
    assert found == known(net, found, shapes={"x": (1, 3, 20, 30)})
    assert (1, 600, 3) == net.sizes(shapes={"x": (1, 3, 20, 30)}).get("y")
    assert net.sizes().get("y") is None, "nobody gave H and W a size"


@pytest.mark.parametrize(
    "shapes", [{"H": 20, "W": 30}, {"H": [20], "W": (30,)}, {"x": (4, 3, 20, 30)}, {"N": 4, "H": 20, "W": 30}]
)
def test_named_sizes_are_used_for_every_value(shapes) -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2])]
    net = model(nodes, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 3, "h", "w"])], shapes=shapes)
    batch = 1 if len(shapes) == 2 else 4
    assert (batch, 3, 10, 15) == net.sizes().get("y")
    assert (7, 3, 10, 15) == net.sizes(batch=7).get("y")
    assert net.sizes() is net.sizes(), "computed once"


def test_what_counts_numbers_is_counted() -> None:
    nodes = [
        helper.make_node("Greater", ["mask", "zero"], ["on"], "on"),
        helper.make_node("NonZero", ["on"], ["where"], "where"),
        helper.make_node("Transpose", ["where"], ["rows"], "rows"),
        helper.make_node("GatherND", ["x", "rows"], ["y"], "take"),
    ]
    weights = {"mask": np.eye(5, dtype=np.float32), "zero": np.zeros(1, np.float32)}
    net = model(nodes, [info("x", [5, "A"])], [info("y", ["K"])], weights)
    found = real(net, x=np.zeros((5, 5), np.float32))
    assert found == known(net, found, shapes={"x": (5, 5)})


def test_sizes_that_follow_from_numbers_of_the_input_are_unknown_and_can_be_learned() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], "where"),
        helper.make_node("Cast", ["where"], ["y"], "cast", to=FLOAT),
        helper.make_node("Relu", ["x"], ["z"], "relu"),
    ]
    net = model(nodes, [info("x", ["N", 4])], [info("y", [2, "K"]), info("z", ["N", 4])])
    sizes = net.sizes()
    assert ("where", "y") == sizes.unknown
    assert (1, 4) == sizes.get("z")
    sizes.learn({"where": [2, 3], "z": [9, 9], "nothing": [1]})
    assert ("y",) == sizes.unknown
    assert ((2, 3), (1, 4)) == (sizes.get("where"), sizes.get("z")), "what is known stays"
    assert 1 == sizes.learned


def _branches(**ops: str) -> dict[str, onnx.GraphProto]:
    made = {}
    for name, op in ops.items():
        attributes = {"perm": [1, 0]} if op == "Transpose" else {}
        node = helper.make_node(op, ["x"], [f"{name}_out"], f"{name}_{op}", **attributes)
        made[f"{name}_branch"] = helper.make_graph([node], name, [], [info(f"{name}_out", None)])
    return made


def test_a_branch_that_is_known_decides_and_others_have_what_they_share() -> None:
    nodes = [
        helper.make_node("If", ["yes"], ["a"], "constant", **_branches(then="Transpose", **{"else": "Neg"})),
        helper.make_node("If", ["c"], ["b"], "open", **_branches(then="Abs", **{"else": "Neg"})),
        helper.make_node("If", ["c"], ["d"], "torn", **_branches(then="Transpose", **{"else": "Neg"})),
    ]
    inputs = [info("x", ["A", "B"]), info("c", [], BOOL)]
    outputs = [info("a", ["a", "b"]), info("b", ["a", "b"]), info("d", ["c", "d"])]
    net = model(nodes, inputs, outputs, {"yes": np.array(True)})
    sizes = net.sizes(shapes={"x": (2, 7)})
    assert [(7, 2), (2, 7), None] == [sizes.get(n) for n in ("a", "b", "d")]
    inside = {(n.op_type, sizes.of(n.outputs[0], s.space)) for s in net.scopes[1:] for n in s.nodes}
    assert {("Transpose", (7, 2)), ("Neg", (2, 7)), ("Abs", (2, 7))} == inside


def test_loops_carry_what_keeps_its_shape() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "x"], ["sum_out"], "add"),
            helper.make_node("Concat", ["list", "x"], ["list_out"], "append", axis=0),
            helper.make_node("Neg", ["x"], ["each"], "each"),
            helper.make_node("Identity", ["go"], ["go_out"], "go"),
        ],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("sum", None), info("list", None)],
        [info("go_out", [], BOOL), info("sum_out", None), info("list_out", None), info("each", None)],
    )
    nodes = [helper.make_node("Loop", ["turns", "", "x", "x"], ["s", "l", "e"], "loop", body=body)]
    outputs = [info("s", ["A", 3]), info("l", ["B", 3]), info("e", ["T", "A", 3])]
    net = model(nodes, [info("x", ["N", 3])], outputs, {"turns": np.array(4, np.int64)})
    sizes = net.sizes(batch=2)
    found = real(net, x=np.zeros((2, 3), np.float32))
    assert found["s"] == sizes.get("s")
    assert [None, None] == [sizes.get("l"), sizes.get("e")]
    (inside,) = net.scopes[1:]
    told = {n.name: sizes.of(n.outputs[0], inside.space) for n in inside.nodes}
    assert {"add": (2, 3), "append": None, "each": (2, 3), "go": ()} == told


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_runs_along_its_axis(axis) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["h", "xt"], ["h_out"], "add"),
            helper.make_node("Neg", ["h_out"], ["out"], "neg"),
        ],
        "body",
        [info("h", None), info("xt", None)],
        [info("h_out", None), info("out", None)],
    )
    attributes = {"num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [axis]}
    nodes = [helper.make_node("Scan", ["h0", "x"], ["h_last", "y"], "scan", body=body, **attributes)]
    outputs = [info("h_last", ["A"]), info("y", ["B", "C"])]
    net = model(nodes, [info("x", ["T", "F"]), info("h0", ["G"])], outputs)
    shapes = {"x": (5, 3) if axis == 0 else (3, 5), "h0": (3,)}
    found = real(net, **{n: np.zeros(s, np.float32) for n, s in shapes.items()})
    assert found == known(net, found, shapes=shapes)


def test_a_function_has_the_sizes_of_each_call() -> None:
    turn = helper.make_node("Transpose", ["a"], ["t"], "turn")
    turn.attribute.append(
        onnx.AttributeProto(name="perm", ref_attr_name="order", type=onnx.AttributeProto.INTS)
    )
    inside = [turn, helper.make_node("Neg", ["t"], ["b"], "neg")]
    function = helper.make_function(
        "local", "Turn", ["a"], ["b"], inside, [helper.make_opsetid("", 17)], ["order"]
    )
    nodes = [
        helper.make_node("Turn", ["x"], ["m"], "one", domain="local", order=[2, 0, 1]),
        helper.make_node("Turn", ["m"], ["y"], "two", domain="local", order=[0, 2, 1]),
    ]
    net = model(nodes, [info("x", ["N", 3, 5])], [info("y", ["a", "b", "c"])], functions=[function])
    sizes = net.sizes(batch=2)
    found = real(net, x=np.zeros((2, 3, 5), np.float32))
    assert found == {n: sizes.get(n) for n in found}
    calls = [(s.owner, [sizes.of(n.outputs[0], s.space) for n in s.nodes]) for s in net.scopes[1:]]
    assert [("one", [(5, 2, 3)] * 2), ("two", [(5, 3, 2)] * 2)] == calls


def test_operators_that_onnx_does_not_know_leave_the_rest_known() -> None:
    """ONNX Runtime's own operators have no inference in ONNX; what comes beside them has."""
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w"], ["f"], "own", domain="com.microsoft"),
        helper.make_node("MatMul", ["x", "w"], ["m"], "plain"),
        helper.make_node("Add", ["m", "f"], ["y"], "both"),
    ]
    net = model(nodes, [info("x", ["N", 3])], [info("y", ["N", 4])], {"w": np.ones((3, 4), np.float32)})
    sizes = net.sizes(batch=2)
    assert ("f", "y") == sizes.unknown
    assert (2, 4) == sizes.get("m")
    sizes.learn({n: s for n, s in real(net, x=np.zeros((2, 3), np.float32)).items() if n in sizes.unknown})
    assert () == sizes.unknown


@pytest.mark.parametrize("case", ODD)
def test_odd_sizes_are_told_as_they_are(case) -> None:
    nodes, shape, weights, expected = ODD[case]
    last = info(nodes[-1].output[0], ["A"] * max(1, len(shape)) if shape else [])
    if nodes[-1].op_type == "Shape":
        last = info("s", [2], INT64)
    assert expected == known(model(nodes, [info("x", shape)], [last], weights), expected)


def test_sequences_and_optionals_pass_on_what_they_hold() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["q"], "sequence"),
        helper.make_node("SequenceAt", ["q", "zero"], ["y"], "at"),
        helper.make_node("Relu", ["y"], ["z"], "relu"),
    ]
    net = model(nodes, [info("x", ["N", 3])], [info("z", ["N", 3])], {"zero": np.array(0, np.int64)})
    sizes = net.sizes(batch=2)
    assert (2, 3) == sizes.get("z")
    assert sizes.get("q") is None
    assert () == sizes.unknown


def test_types_are_known_inside_functions() -> None:
    inside = [helper.make_node("Cast", ["a"], ["b"], "cast", to=TensorProto.FLOAT16)]
    function = helper.make_function("local", "Half", ["a"], ["b"], inside, [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("Half", ["x"], ["y"], "one", domain="local")]
    net = model(
        nodes, [info("x", ["N", 3])], [info("y", ["N", 3], TensorProto.FLOAT16)], functions=[function]
    )
    (scope,) = net.scopes[1:]
    assert "fp16" == net.sizes().dtype(scope.nodes[0].outputs[0], scope.space)


FAILURES = onnxruntime.capi.onnxruntime_pybind11_state


def net(nodes, inputs, rank: int, **constants) -> Model:
    ends = [(n, FLOAT, s) for n, s in inputs.items()], [("y", FLOAT, [None] * rank)]
    return graph(nodes, *ends, constants)


def runs(model: Model, shapes) -> bool:
    """Whether ONNX Runtime computes the model at these shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    try:
        session.run(None, {n: np.zeros(s, np.float32) for n, s in shapes.items()})
    except (FAILURES.Fail, FAILURES.InvalidArgument):
        return False
    return True


def reader(height: int | str | None = None) -> Model:
    """A text recogniser: three strides of 4, 4 and 3 have to leave one row, which becomes a sequence."""
    convs = [
        helper.make_node("Conv", ["x", "w"], ["a"], strides=[4, 4], kernel_shape=[4, 4]),
        helper.make_node("MaxPool", ["a"], ["b"], strides=[12, 1], kernel_shape=[12, 1]),
        helper.make_node("Squeeze", ["b", "axis"], ["y"]),
    ]
    weights = np.full((5, 3, 4, 4), 0.1, np.float32)
    return net(convs, {"x": ["N", 3, height, "?"]}, 3, w=weights, axis=np.int64([2]))


def test_a_reader_of_lines_gets_the_height_that_it_reads() -> None:
    model = reader()
    assert {"x": (1, 3, 48, 320)} == model.proposed
    assert runs(model, model.proposed)
    assert not runs(model, {"x": (1, 3, 224, 224)}), "else this says nothing"


def test_a_size_that_the_model_fixes_or_a_user_named_stays() -> None:
    assert {"x": (1, 3, 48, 224)} == reader(48).proposed
    assert {"x": (1, 3, 48, 64)} == reader("h").sized({"x": (1, 3, 48, 64)}).proposed
    nothing_fits = reader("h").sized({"h": 224})
    assert {"x": (1, 3, 224, 224)} == nothing_fits.proposed
    assert not nothing_fits.proposal.fits
    assert [None] == [size["size"] for size in build_controls(nothing_fits, {})["sizes"] if size["lacking"]]
    assert reader("h").proposal.fits


@pytest.mark.parametrize(
    ("key", "text", "picture"),
    [("imgsz", "[320, 416]", (320, 416)), ("imgsz", "96", (96, 96)), ("input_size", "(3, 64, 80)", (64, 80)),
     ("names", "{0: 'a 640'}", (224, 224)), ("imgsz", "none", (224, 224))],
)  # fmt: skip
def test_the_picture_that_the_metadata_name_is_proposed_first(key, text, picture) -> None:
    pool = helper.make_node("GlobalAveragePool", ["x"], ["y"])
    proto = net([pool], {"x": ["N", 3, "h", "w"]}, 4).proto()
    helper.set_model_props(proto, {key: text})
    assert {"x": (1, 3, *picture)} == wrap(proto, name="m").proposed


def test_sizes_without_symbols_are_one_field_where_they_are_one_by_their_meaning() -> None:
    cache = {f"past_key_values.{i}.{kind}": [None, 2, "?", 4] for i in range(2) for kind in ("key", "value")}
    words = {"input_ids": [None, None], "attention_mask": [None, None], "cache_position": [None]}
    declared = {**words, **cache}
    fields = partial_shapes.list_open_sizes(declared)
    assert {
        "input_ids[0]": ["input_ids", "attention_mask", *cache],
        "input_ids[1]": ["input_ids"],
        "attention_mask[1]": ["attention_mask"],
        "cache_position[0]": ["cache_position"],
        "past_key_values.0.key[2]": [*cache],
    } == fields
    shapes = partial_shapes.from_open_sizes(declared, dict(zip(fields, (3, 1, 8, 1, 7), strict=True)))
    assert {**dict.fromkeys(cache, (3, 2, 7, 4))} == {name: shapes[name] for name in cache}
    assert {"input_ids": (3, 1), "attention_mask": (3, 8), "cache_position": (1,)} == {
        name: shapes[name] for name in words
    }


def test_pictures_of_their_own_sizes_have_fields_of_their_own() -> None:
    declared = {"left": [1, 3, None, None], "right": [1, 3, None, 64]}
    assert ["left[2]", "left[3]", "right[2]"] == [*partial_shapes.list_open_sizes(declared)]


def test_sound_gets_what_the_first_window_spans() -> None:
    """ONNX infers a size of 1 where a window of 400 finds 128 samples; a runtime refuses that."""
    conv = helper.make_node("Conv", ["u", "w"], ["y"], strides=[160])
    lift = helper.make_node("Unsqueeze", ["sound", "axis"], ["u"])
    model = net(
        [lift, conv], {"sound": ["batch", None]}, 3, w=np.ones((2, 1, 400), np.float32), axis=np.int64([1])
    )
    assert {"sound": (1, 512)} == model.proposed
    assert runs(model, model.proposed)
    assert not runs(model, {"sound": (1, 128)})


@pytest.mark.parametrize("batch", ["batch", None])
def test_the_state_of_a_recurrence_has_the_batch_of_what_it_reads(batch) -> None:
    """With a symbol it is the same one; without, the second of three dimensions is the batch of a state."""
    add = helper.make_node("Add", ["x", "state"], ["y"])
    model = net([add], {"x": [batch, "length", 128], "state": [2, batch, 128]}, 3)
    assert {"x": (1, 128, 128), "state": (2, 1, 128)} == model.proposed
    # The length of frames with one batch is no state.
    assert {"x": (1, 128, 80)} == net(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, None, 80]}, 3
    ).proposed


def test_a_symbol_has_one_size_and_a_question_mark_is_none() -> None:
    add = helper.make_node("Add", ["a", "b"], ["y"])
    told = net([add], {"a": ["N", "length", 8], "b": ["N", "length", 1]}, 3).proposed
    assert {"a": (1, 128, 8), "b": (1, 128, 1)} == told
    wide = net([add], {"a": ["?", 3, "?", "?"], "b": ["?", 1, 1, 1]}, 4)
    assert {"a": (1, 3, 224, 224), "b": (1, 1, 1, 1)} == wide.proposed


def test_what_is_proposed_runs_where_a_shape_is_not_known() -> None:
    where = helper.make_node("NonZero", ["x"], ["i"])
    cast = helper.make_node("Cast", ["i"], ["y"], to=onnx.TensorProto.FLOAT)
    assert {"x": (1, 128)} == net([where, cast], {"x": ["N", "n_words"]}, 2).proposed


def masked(mask: list[int | str | None], shapes: dict[str, int] | None = None) -> Model:
    """Words of ``length`` letters to which a mask is added, and which are joined with those before."""
    nodes = [
        helper.make_node("Concat", ["past", "words"], ["all"], axis=1),
        helper.make_node("Add", ["all", "mask"], ["y"]),
    ]
    ends = {"words": ["N", "length", 8], "past": ["s4", "before", 8], "mask": mask}
    return model(nodes, [info(n, s) for n, s in ends.items()], [info("y", [None] * 3)], shapes=shapes)


def test_symbols_that_the_graph_adds_or_joins_are_one() -> None:
    """The batch of what came before is that of the words, and the mask is as long as both together."""
    net = masked(["batch", "s27", 1])
    whole = ("N", "length + before", 1)
    assert {"words": ("N", "length", 8), "past": ("N", "before", 8), "mask": whole} == net.declared_shapes
    sized = masked(["batch", "s27", 1], {"length": 3, "before": 5})
    assert [(1, 3, 8), (1, 5, 8), (1, 8, 1)] == [sized.input_shape(n) for n in sized.inputs]
    feeds = {n: np.zeros(sized.input_shape(n), np.float32) for n in sized.inputs}
    assert (1, 8, 8) == real(sized, **feeds)["y"]
    step = sized.resized({"length": 1})
    assert [(1, 1, 8), (1, 5, 8), (1, 6, 1)] == [step.input_shape(n) for n in step.inputs]


def test_a_size_is_named_by_any_of_its_symbols_but_once() -> None:
    by_mask = masked(["N", "s27", 1], {"s27": 8, "before": 5})
    assert (1, 3, 8) == by_mask.input_shape("words")
    with pytest.raises(ModelError, match=r'"s27" the size 9 .* equal to "length \+ before", which is 8'):
        masked(["N", "s27", 1], {"s27": 9, "before": 5, "length": 3})


def test_symbols_that_nothing_joins_stay_apart() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["x"]), helper.make_node("Neg", ["b"], ["y"])]
    ends = [info("a", ["N", "one", 4]), info("b", ["M", "two", 4])]
    net = model(nodes, ends, [info("x", [None] * 3), info("y", [None] * 3)])
    assert {"a": ("N", "one", 4), "b": ("M", "two", 4)} == net.declared_shapes


def test_what_is_joined_along_an_axis_may_differ_there() -> None:
    join = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    net = model([join], [info("a", ["one", "N"]), info("b", ["two", "M"])], [info("y", [None] * 2)])
    assert {"a": ("one", "N"), "b": ("two", "N")} == net.declared_shapes
