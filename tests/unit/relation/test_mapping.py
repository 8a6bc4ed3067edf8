"""Mapping: every node is accounted for, each pair with its evidence."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from qdq import Net
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load, wrap
from rtlab.core.variant import Rewrite, Target
from rtlab.quantize.rewrites import apply_rewrites
from rtlab.relation.mapping import Coverage, Mapping, coverage
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model

F = TensorProto.FLOAT
TINY = tiny_model()
node = helper.make_node


def engine(*layers: Layer) -> Engine:
    return Engine("test", "1", Target("sm86"), tuple(layers))


def layer(
    index: int, origins: tuple[str, ...] = (), *, name: str = "", reads=(), writes=(), kind="kgen"
) -> Layer:
    inputs, outputs = (tuple(Tensor(t) for t in side) for side in (reads, writes))
    return Layer(f"L{index}", name or f"step{index}", kind, index, inputs, outputs, origins=origins)


def model(nodes: list, inputs: list, outputs: list, weights: dict | None = None) -> Model:
    return nets.graph(nodes, inputs, outputs, weights or {})


def held(mapping: Mapping, e: Engine) -> list[set[str]]:
    """The nodes of each layer."""
    return [set(mapping.nodes(y.id)) for y in e.layers]


def reasons(m: Model, *layers: Layer) -> dict[str, str]:
    return {x.node: x.reason for x in relate(m, m, engine(*layers)).missing}


STEM = {"stem/Conv", "stem/BatchNormalization", "stem/Relu"}
JOIN = {"join/Concat", "join/Add"}
BOTH = {"left/Conv", "right/Conv"}


#: Layers of the tiny model, the nodes that each holds, and the evidence of all.
LAYERS: dict[str, tuple[list[Layer], list[set[str]], set[str]]] = {
    "a label of the compiler is declared": ([layer(0, tuple(STEM))], [STEM], {"declared"}),
    # Its factors are folded into the weights of the convolution, so that is where it runs.
    "a batch normalization without a label follows its convolution": (
        [layer(0, ("stem/Conv", "stem/Relu")), layer(1, ("left/Conv",))],
        [STEM, {"left/Conv"}], {"declared", "inferred"},
    ),
    # A compiler without labels still tells by its tensors what it replaced.
    "layers between two values hold the nodes between them": (
        [layer(0, reads=["x"], writes=["act"]), layer(1, reads=["act"], writes=["sum"])],
        [STEM, BOTH | JOIN], {"inferred"},
    ),
    # An optimizer that splits a value renames it; the node that writes it stays a layer of its own.
    "a node whose output was renamed is not taken into its reader": (
        [layer(0, name="stem/Conv", kind="Conv", reads=["x"], writes=["new"]),
         layer(1, name="rest", reads=["new"], writes=["act"])],
        [{"stem/Conv"}, STEM - {"stem/Conv"}], {"inferred"},
    ),
    # The normalization between two listed nodes of one layer cannot be anywhere else.
    "names alone give the nodes that they list": (
        [layer(0, name="stem/Conv + stem/Relu", kind=""), layer(1, name="left/Conv || right/Conv", kind=""),
         layer(2, name="PWN(join/Add)", kind=""), layer(3, name="head/Gemm", kind="")],
        [STEM, BOTH, {"join/Add"}, {"head/Gemm"}], {"inferred"},
    ),
    # Tensors are renamed more freely than layers: the way back may lead through other layers.
    "the subgraph between values does not take what another layer names": (
        [layer(0, name="stem/Conv + stem/Relu", reads=["x"], writes=["made up"]),
         layer(1, name="left/Conv || right/Conv", reads=["made up"], writes=["l", "r"]),
         layer(2, name="__myl_Kernel_myl0_2", reads=["l", "r"], writes=["sum"])],
        [STEM, BOTH, JOIN], {"inferred"},
    ),
    # Inputs and outputs have the same names in many models: between them lies the whole of this one.
    "an engine of another model does not claim this one": (
        [layer(0, name="conv1", kind="CaskConvolution", reads=TINY.inputs, writes=["conv1_out"]),
         layer(1, name="prob", kind="CaskSoftMaxV2", reads=["conv1_out"], writes=TINY.outputs)],
        [set(), set()], set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
def test_layers_hold_what_their_labels_names_and_tensors_tell(case: str) -> None:
    layers, expected, evidence = LAYERS[case]
    mapping = relate(TINY, TINY, engine(*layers))
    assert (expected, evidence) == (held(mapping, engine(*layers)), {p.evidence for p in mapping.pairs})


def test_a_merged_convolution_is_not_shown_as_removed() -> None:
    """A horizontal merge keeps one label of several; the silent sibling still runs in that layer."""
    nodes = [node("Conv", ["x", f"w{n}"], [n], n) for n in ("one", "two")]
    nodes.append(node("Add", ["one", "two"], ["y"], "sum"))
    weights = {f"w{n}": np.ones((3, 2, 1, 1), np.float32) for n in ("one", "two")}
    m = model(nodes, [("x", F, [1, 2, 4, 4])], [("y", F, [1, 3, 4, 4])], weights)
    mapping = relate(m, m, engine(layer(0, ("one",)), layer(1, ("sum",))))
    (pair,) = (p for p in mapping.pairs if p.node == "two")
    assert ("L0", "merged", True) == (pair.layer, pair.evidence, "one" in pair.note)
    # A rewrite merged them: the layer between the input and the sum runs both, whatever its name.
    built = apply_rewrites(m, [Rewrite("merge", "one")])
    unnamed = layer(0, name="__myl_FcAdd_myl0_0", reads=["x"], writes=["t"])
    mapping = relate(m, built, engine(unnamed, layer(1, ("sum",), reads=["t"], writes=["y"])))
    evidence = {p.node: (p.layer, p.evidence) for p in mapping.pairs}
    assert {"one": ("L0", "inferred"), "two": ("L0", "merged"), "sum": ("L1", "declared")} == evidence


def test_each_reason_is_found_in_the_graph() -> None:
    """Folded, shape arithmetic, view and dead nodes look alike in a listing: none of them has a step."""
    nodes = [
        node("Mul", ["c1", "c2"], ["folded"], "constant product"), node("Shape", ["x"], ["s"], "shape"),
        node("Gather", ["s", "zero"], ["rows"], "pick"), node("Concat", ["rows", "minus"], ["target"], "sizes", axis=0),
        node("Add", ["x", "folded"], ["sum"], "add"), node("Reshape", ["sum", "target"], ["y"], "reshape"),
        node("Exp", ["x"], ["unused"], "nobody reads me"),
    ]  # fmt: skip
    ones = dict.fromkeys(("c1", "c2"), np.ones(3, np.float32))
    weights = {**ones, "zero": np.int64([0]), "minus": np.int64([-1])}
    m = model(nodes, [("x", F, [2, 3])], [("y", F, [2, 3])], weights)
    expected = {**dict.fromkeys(("shape", "pick", "sizes"), "shape"), "constant product": "folded"}
    assert {**expected, "reshape": "view", "nobody reads me": "dead"} == reasons(m, layer(0, ("add",)))
    # An invented place would be worse than none.
    found = reasons(TINY, layer(0, ("stem/Conv",)), layer(1, ("head/Gemm",)))
    assert "unknown" == found["head/GlobalAveragePool"]


def test_a_quantized_engine_without_labels_maps_as_its_names_and_tensors_say() -> None:
    """TensorRT 8.4: a name lists a weight, the pair on it and what computes; the pairs around it fold in unnamed."""
    n = Net()
    w = n.weight("c0", (16, 16, 3, 3), quantized=False)
    conv = n.op("Conv", [n.pair("x", "p0"), n.pair(w, "w")], "c0", pads=[1] * 4)
    m = n.model(n.pair(n.op("Relu", [conv], "r0"), "p1"))
    first, second = (x.outputs[0] for x in m.top if x.id in {"p0_q", "p1_q"})
    e = engine(
        layer(0, name="p0_q", kind="Reformat", reads=["x"], writes=[first]),
        layer(1, name=f"{w} + w_q + c0 + r0", kind="CaskConvolution", reads=[first], writes=[second]),
        layer(2, name="p1_dq", kind="Reformat", reads=[second], writes=m.outputs),
    )
    mapping = relate(m, m, e)
    # Both nodes of the weight's pair are constant, but one is named.
    assert [{"p0_q"}, {"p0_dq", "c0", "w_q", "r0", "p1_q"}, {"p1_dq"}] == held(mapping, e)
    assert ("folded", {"inferred"}) == (mapping.why("w_dq").reason, {p.evidence for p in mapping.pairs})


def test_a_label_that_is_no_id_finds_the_node_by_its_name() -> None:
    """Names with log separators get an id of their own; the engine's file has the author's."""
    m = model(
        [node("Relu", ["x"], ["a"], "one|two"), node("Neg", ["a"], ["y"], "same"), node("Abs", ["a"], ["z"], "same")],
        [("x", F, [4])], [("y", F, [4]), ("z", F, [4])],
    )  # fmt: skip
    mapping = relate(m, m, engine(layer(0, ("one|two",)), layer(1, ("same",), reads=("a",), writes=("z",))))
    by_op = {n.op: n.id for n in m.nodes}
    # Both nodes of one name read "a"; what the layer writes tells them apart.
    declared = {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}
    assert {(by_op["Relu"], "L0"), (by_op["Abs"], "L1")} == declared


def test_a_pooling_of_one_element_needs_no_layer() -> None:
    """Adaptive pooling is exported so where the sizes are equal already; a larger window is a pooling."""
    pools = {"idle": ([1, 1], [1, 1]), "stride": ([1, 1], [2, 2]), "window": ([2, 2], [1, 1])}
    nodes = [
        node("AveragePool", [f"v{i}"], [f"v{i + 1}"], name, kernel_shape=kernel, strides=strides)
        for i, (name, (kernel, strides)) in enumerate(pools.items())
    ]
    m = model(nodes, [("v0", F, [1, 2, 4, 4])], [("v3", F, [1, 2, 1, 1])])
    assert {"idle": "view", "stride": "unknown", "window": "unknown"} == reasons(m)


def test_coverage_counts_nodes_layers_and_moves() -> None:
    e = engine(
        layer(0, name="Reformatting CopyNode for Input Tensor 0 to stem/Conv", kind="Reformat"),
        layer(1, ("stem/Conv", "stem/BatchNormalization", "stem/Relu")),
        layer(2, name="left/Conv", kind="CaskConvolution"), layer(3, name="event", kind="signal"),
        layer(4, name="head/Flatten", kind="NoOp"),
    )  # fmt: skip
    mapping = relate(TINY, TINY, e)
    assert ("stem/Conv", "stem/BatchNormalization", "stem/Relu") == mapping.nodes("L1")
    assert ["join/Concat"] == [x.node for x in mapping.missing if x.reason != "unknown"]
    expected = {"nodes": 5, "all_nodes": 10, "explained": 1, "layers": 3, "all_layers": 5, "moves": 1}
    assert Coverage(**expected, declared=3, pairs=5) == coverage(mapping, TINY, e)


def test_without_a_model_nothing_is_related_and_nothing_fails() -> None:
    nothing = wrap(helper.make_model(helper.make_graph([], "", [], [])), name="")
    e = engine(layer(0, ("conv",), name="conv"), layer(1, name="{ForeignNode[a...b]}"))
    mapping = relate(nothing, nothing, e)
    assert ((), ()) == (mapping.pairs, mapping.missing)
    assert Coverage(0, 0, 0, 0, 2, 0, 0, 0) == coverage(mapping, nothing, e)


@pytest.mark.parametrize(
    ("size", "index", "expected"),
    [
        # Nothing is asked for at run time, though the exporter wrote it as a computation.
        (4, 1, {"reshape": "view", "shape": "shape", "mask": "folded"}),
        # The compiler may fill it anew for every batch; what it did is not told.
        ("batch", 1, {"mask": "unknown"}),
    ],
    ids=["sizes fixed", "sizes open"],
)
def test_what_is_made_of_sizes_that_the_inputs_fix_is_constant(size, index, expected) -> None:
    """A mask whose sizes are asked of a reshaped value, as a windowed attention is exported, and picked elements."""
    nodes = [
        node("Reshape", ["x", "to"], ["r"], "reshape"),
        node("Shape", ["r"], ["s"], "shape"),
        node("ConstantOfShape", ["s"], ["m"], "mask"),
        node("Add", ["r", "m"], ["a"], "add"),
        node("Gather", ["a", "i"], ["y"], "pick", axis=0),
    ]
    outputs = [("y", F, ["k", "n"][np.ndim(index) == 0 :])]
    m = model(nodes, [("x", F, [size, 4])], outputs, {"to": np.int64([-1, 8]), "i": np.int64(index)})
    found = reasons(m, layer(0, ("add",)))
    assert expected == {k: v for k, v in found.items() if k in expected}
    assert "add" not in found


def chain(*ops: str) -> Model:
    """Nodes one after the other, called a, b, c."""
    nodes = [node(op, [f"v{i}"], [f"v{i + 1}"], name="abcdef"[i]) for i, op in enumerate(ops)]
    return model(nodes, [("v0", F, [4, 4])], [(f"v{len(ops)}", F, [4, 4])])


def test_a_jump_belongs_to_the_node_whose_steps_it_repeats() -> None:
    """The first turns back over two nodes and belongs to neither; the second over one."""
    m = chain("Softmax", "Relu", "Softmax")
    steps = engine(
        layer(0, kind="memset"), layer(1, ("a",), reads=["v0"], writes=["v1"]),
        layer(2, ("b",), reads=["v1"], writes=["v2"]), layer(3, kind="cjmp"), layer(4, kind="memset"),
        layer(5, ("c",), reads=["v2"], writes=["v3"]), layer(6, kind="cjmp"),
    )  # fmt: skip
    found = [p for p in relate(m, m, steps).pairs if p.layer in {"L3", "L6"}]
    assert [("c", "L6", "inferred", "control")] == [(p.node, p.layer, p.evidence, p.role) for p in found]


SOFTMAX = chain("Softmax")
FORK = model(
    [node("Softmax", ["x"], ["s"], name="a"), node("Erf", ["x"], ["y"], name="b")],
    [("x", F, [4, 4])], [("s", F, [4, 4]), ("y", F, [4, 4])],
)  # fmt: skip
#: Of steps without a label: the model, its layers, and the nodes that each holds.
STEPS: dict[str, tuple[Model, list[Layer], list[set[str]]]] = {
    # The products of a recurrence bear no label, nor do the first steps of a softmax.
    "one node alone reads it": (
        chain("Softmax", "Relu"),
        [layer(0, reads=["v0"], writes=["max"], kind="gemm"), layer(1, reads=["v0", "max"], writes=["exp"]),
         layer(2, ("a",), reads=["exp"], writes=["t"]), layer(3, ("b",), reads=["t"], writes=["v2"])],
        [{"a"}, {"a"}, {"a"}, {"b"}],
    ),
    # A guess would be as often wrong as right.
    "two nodes read it": (
        FORK,
        [layer(0, reads=["x"], writes=["t"]), layer(1, ("a",), reads=["t"], writes=["s"]),
         layer(2, ("b",), reads=["t"], writes=["y"])],
        [set(), {"a"}, {"b"}],
    ),
    # The last step of a recurrence is fused with what follows it, and still reads its products.
    "its readers have one in common": (
        chain("Softmax", "Erf"),
        [layer(0, reads=["v0"], writes=["t"]), layer(1, ("a",), reads=["t"], writes=["u"]),
         layer(2, ("a", "b"), reads=["t", "u"], writes=["v2"])],
        [{"a"}, {"a"}, {"a", "b"}],
    ),
    "it reads one node alone": (
        SOFTMAX, [layer(0, ("a",), reads=["v0"], writes=["t"]), layer(1, reads=["t"], writes=["u"])], [{"a"}, {"a"}],
    ),
    # Unrolled steps of a recurrence lose their labels, except at the ends.
    "it stands within one node": (
        SOFTMAX,
        [layer(0, ("a",), reads=["v0"], writes=["t"]), layer(1, reads=["t"], writes=["u"]),
         layer(2, ("a",), reads=["u"], writes=["v1"])],
        [{"a"}, {"a"}, {"a"}],
    ),
    # Reformatting is the compiler's own overhead and must stand out as such.
    "it moves a layout": (
        SOFTMAX,
        [layer(0, name="__myl_Move_myl0_0", reads=["v0"], writes=["t"]), layer(1, ("a",), reads=["t"], writes=["v1"])],
        [set(), {"a"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS)
def test_a_step_without_a_label_belongs_to_the_node_around_it(case: str) -> None:
    m, layers, expected = STEPS[case]
    mapping = relate(m, m, engine(*layers))
    assert expected == held(mapping, engine(*layers))
    assert {"inferred"} >= {p.evidence for p in mapping.pairs if not layers[int(p.layer[1:])].origins}


def test_a_step_behind_a_node_is_not_taken_from_a_reader_that_has_no_layer() -> None:
    nodes = [node("Softmax", ["x"], ["s"], name="a"), node("TopK", ["s", "k"], ["y", "i"], name="b")]
    m = model(nodes, [("x", F, [4, 4])], [("y", F, [4, 2])], {"k": np.array([2], np.int64)})
    first, second = layer(0, ("a",), reads=["x"], writes=["t"]), layer(1, reads=["t", "other"], writes=["u"])
    behind = engine(first, second, layer(2, reads=["u"], writes=["w"]))
    assert "a" not in relate(m, m, behind).nodes("L1")


def test_a_constant_is_no_neighbour_though_a_layer_has_what_it_was_computed_from() -> None:
    """A mask of ones in a layer of its own: the kernel of the other side names what joins them."""
    nodes = [
        node("Erf", ["x"], ["e"], name="a"), node("Exp", ["w"], ["u"], name="constant"),
        node("Floor", ["u"], ["f"], name="folded"), node("Pow", ["e", "f"], ["y"], name="joint"),
    ]  # fmt: skip
    m = model(nodes, [("x", F, [4, 4])], [("y", F, [4, 4])], {"w": np.ones((4, 4), np.float32)})
    e = engine(layer(0, ("a",), name="__myl_ErfPow_myl0_0"), layer(1, ("constant",), name="__myl_Exp_myl0_1"))
    assert [{"a", "joint"}, {"constant"}] == held(relate(m, m, e), e)


def test_a_layer_whose_inputs_cannot_hold_a_node_does_its_work_though_others_run_between() -> None:
    """A mask that is spread over the scores inside the kernel that adds it, beside a layer that counts its blocks."""
    nodes = [
        node("Erf", ["x"], ["e"], name="a"), node("Pow", ["e", "w"], ["p"], name="spread"),
        node("Softmax", ["p"], ["y"], name="c"),
    ]  # fmt: skip
    m = model(nodes, [("x", F, [4, 1])], [("y", F, [4, 8])], {"w": np.ones((1, 8), np.float32)})
    x, column, blocks, y = (
        Tensor(n, "fp32", s) for n, s in (("x", (4, 1)), ("t", (4, 1)), ("u", (2,)), ("y", (4, 8)))
    )
    layers = [
        Layer("L0", "step0", "kgen", 0, (x,), (column,), origins=("a",)),
        Layer("L1", "step1", "kgen", 1, (column,), (blocks,)),
        Layer("L2", "step2", "kgen", 2, (column, blocks), (y,), origins=("c",)),
    ]  # fmt: skip
    e = Engine("test", "1", Target("sm86"), tuple(layers), inputs=(x,), outputs=(y,))
    assert {"c", "spread"} == set(relate(m, m, e).nodes("L2"))


def called(calls: int) -> Model:
    """A function of two nodes, called so often, one call after the other."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    body = [node("Relu", ["a"], ["t"], name="relu"), node("Neg", ["t"], ["b"], name="neg")]
    nodes = [node("Block", [f"v{i}"], [f"v{i + 1}"], name=f"call{i}", domain="local") for i in range(calls)]
    ends = [helper.make_tensor_value_info(f"v{i}", F, [2]) for i in (0, calls)]
    graph = helper.make_graph(nodes, "called", ends[:1], ends[1:])
    function = helper.make_function("local", "Block", ["a"], ["b"], body, opsets)
    return load(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9))
