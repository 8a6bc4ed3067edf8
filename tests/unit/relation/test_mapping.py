"""Mapping: every node is accounted for, each pair with its evidence."""

from __future__ import annotations

import dataclasses
import heapq
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq import Net
from rtlab.backends.trtexec import Trtexec
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load, wrap
from rtlab.core.variant import Target
from rtlab.relation.coverage import Coverage, coverage
from rtlab.relation.dataflow import moves, work
from rtlab.relation.mapping import Mapping, Pair, placed
from rtlab.relation.relate import relate
from rtlab.samples import load as load_sample
from rtlab.study import Study
from rtlab.testing import tiny_model

# Recordings live beside the checkout, not in it.
RECORDED = Path(__file__).parents[4] / "shared" / "recorded" / "engines"


def engine(*layers: Layer) -> Engine:
    return Engine("test", "1", Target("sm86"), tuple(layers))


def layer(
    index: int, origins: tuple[str, ...] = (), *, name: str = "", reads=(), writes=(), kind="kgen"
) -> Layer:
    return Layer(
        id=f"L{index}",
        name=name or f"step{index}",
        kind=kind,
        index=index,
        inputs=tuple(Tensor(t) for t in reads),
        outputs=tuple(Tensor(t) for t in writes),
        origins=origins,
    )


def model(nodes: list, inputs: list, outputs: list, weights: dict | None = None) -> Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), name="m")


F = TensorProto.FLOAT


def evidence(mapping, node: str) -> set[str]:
    return {p.evidence for p in mapping.pairs if p.node == node}


def test_a_label_of_the_compiler_is_declared_evidence() -> None:
    """What the compiler says itself ranks above anything we conclude."""
    m = tiny_model()
    mapping = relate(m, m, engine(layer(0, ("stem/Conv", "stem/BatchNormalization", "stem/Relu"))))
    assert ("stem/Conv", "stem/BatchNormalization", "stem/Relu") == mapping.nodes("L0")
    assert {"declared"} == evidence(mapping, "stem/Relu")


def test_a_merged_convolution_is_not_shown_as_removed() -> None:
    """A horizontal merge keeps one label of several; the silent sibling still runs in that layer."""
    conv = helper.make_node
    m = model(
        [
            conv("Conv", ["x", "w1"], ["a"], name="one"),
            conv("Conv", ["x", "w2"], ["b"], name="two"),
            conv("Add", ["a", "b"], ["y"], name="sum"),
        ],
        [("x", F, [1, 2, 4, 4])],
        [("y", F, [1, 3, 4, 4])],
        {"w1": np.ones((3, 2, 1, 1), np.float32), "w2": np.ones((3, 2, 1, 1), np.float32)},
    )
    mapping = relate(m, m, engine(layer(0, ("one",)), layer(1, ("sum",))))
    assert ("L0",) == mapping.layers("two")
    assert {"merged"} == evidence(mapping, "two")
    assert "one" in next(p.note for p in mapping.pairs if p.node == "two")


def test_an_unlabelled_batch_normalization_follows_its_convolution() -> None:
    """Its factors are folded into the weights of the convolution, so that is where it runs."""
    m = tiny_model()
    mapping = relate(m, m, engine(layer(0, ("stem/Conv", "stem/Relu")), layer(1, ("left/Conv",))))
    assert ("L0",) == mapping.layers("stem/BatchNormalization")
    assert {"inferred"} == evidence(mapping, "stem/BatchNormalization")


def test_each_reason_is_found_in_the_graph() -> None:
    """Folded, shape arithmetic, view and dead nodes look alike in a listing: none of them has a step."""
    n = helper.make_node
    m = model(
        [
            n("Mul", ["c1", "c2"], ["folded"], name="constant product"),
            n("Shape", ["x"], ["s"], name="shape"),
            n("Gather", ["s", "zero"], ["rows"], name="pick"),
            n("Concat", ["rows", "minus"], ["target"], name="sizes", axis=0),
            n("Add", ["x", "folded"], ["sum"], name="add"),
            n("Reshape", ["sum", "target"], ["y"], name="reshape"),
            n("Exp", ["x"], ["unused"], name="nobody reads me"),
        ],
        [("x", F, [2, 3])],
        [("y", F, [2, 3])],
        {
            "c1": np.ones(3, np.float32),
            "c2": np.ones(3, np.float32),
            "zero": np.array([0], np.int64),
            "minus": np.array([-1], np.int64),
        },
    )
    mapping = relate(m, m, engine(layer(0, ("add",))))
    expected = {
        "constant product": "folded",
        "shape": "shape",
        "pick": "shape",
        "sizes": "shape",
        "reshape": "view",
        "nobody reads me": "dead",
    }
    assert expected == {x.node: x.reason for x in mapping.missing}


def test_a_node_that_nothing_explains_stays_visible_as_unknown() -> None:
    """An invented place would be worse than none."""
    m = tiny_model()
    mapping = relate(m, m, engine(layer(0, ("stem/Conv",)), layer(1, ("head/Gemm",))))
    missing = {x.node: x.reason for x in mapping.missing}
    assert "unknown" == missing["head/GlobalAveragePool"]


def test_layers_between_two_values_hold_the_nodes_between_them() -> None:
    """A compiler without labels still tells by its tensors what it replaced."""
    m = tiny_model()
    layers = (
        layer(0, reads=("x",), writes=("act",), name="fused"),
        layer(1, reads=("act",), writes=("sum",), name="rest"),
    )
    mapping = relate(m, m, engine(*layers))
    assert ("stem/Conv", "stem/BatchNormalization", "stem/Relu") == mapping.nodes("L0")
    assert {"left/Conv", "right/Conv", "join/Concat", "join/Add"} == set(mapping.nodes("L1"))


def test_inner_steps_of_a_recurrence_belong_to_its_node() -> None:
    """Unrolled steps lose their labels, except at the ends."""
    m = tiny_model()
    layers = (
        layer(0, ("stem/Conv",), reads=("x",), writes=("t0",)),
        layer(1, reads=("t0",), writes=("t1",)),
        layer(2, ("stem/Conv",), reads=("t1",), writes=("t2",)),
    )
    mapping = relate(m, m, engine(*layers))
    assert ("L0", "L1", "L2") == mapping.layers("stem/Conv")


def test_a_layout_move_holds_no_node() -> None:
    """Reformatting is the compiler's own overhead and must stand out as such."""
    m = tiny_model()
    layers = (layer(0, name="__myl_Move_myl0_0", reads=("x",), writes=("t",)), layer(1, ("stem/Conv",)))
    assert () == relate(m, m, engine(*layers)).nodes("L0")


def test_a_kept_node_whose_output_was_renamed_is_not_taken_into_its_reader() -> None:
    """An optimizer that splits a value renames it; the node that writes it stays a layer of its own."""
    m = tiny_model()
    layers = (
        layer(0, name="stem/Conv", kind="Conv", reads=("x",), writes=("renamed",)),
        layer(1, name="rest", reads=("renamed",), writes=("act",)),
    )
    mapping = relate(m, m, engine(*layers))
    assert ("stem/Conv",) == mapping.nodes("L0")
    assert ("stem/BatchNormalization", "stem/Relu") == mapping.nodes("L1")


def held(mapping: Mapping, e: Engine) -> dict[str, set[str]]:
    """The nodes of each layer, by the layer's name."""
    return {y.name: set(mapping.nodes(y.id)) for y in e.layers}


def test_a_quantized_engine_without_labels_maps_as_its_names_and_tensors_say() -> None:
    """TensorRT 8.4: a name lists a weight, the pair on it and what computes; the pairs around it fold in unnamed."""
    n = Net()
    w = n.weight("c0", (16, 16, 3, 3), quantized=False)
    conv = n.op("Conv", [n.pair("x", "p0"), n.pair(w, "w")], "c0", pads=[1] * 4)
    m = n.model(n.pair(n.op("Relu", [conv], "r0"), "p1"))
    quantized = [node.outputs[0] for node in m.top if node.id in {"p0_q", "p1_q"}]
    e = engine(
        layer(0, name="p0_q", kind="Reformat", reads=("x",), writes=quantized[:1]),
        layer(
            1, name=f"{w} + w_q + c0 + r0", kind="CaskConvolution", reads=quantized[:1], writes=quantized[1:]
        ),
        layer(2, name="p1_dq", kind="Reformat", reads=quantized[1:], writes=m.outputs),
    )
    mapping = relate(m, m, e)
    expected = [{"p0_q"}, {"p0_dq", "c0", "w_q", "w_dq", "r0", "p1_q"}, {"p1_dq"}]
    # Both nodes of the weight's pair are constant, but one is named.
    assert [expected[0], expected[1] - {"w_dq"}, expected[2]] == list(held(mapping, e).values())
    assert ("folded", {"inferred"}) == (mapping.why("w_dq").reason, {p.evidence for p in mapping.pairs})
    notes = {p.node: p.note for p in mapping.pairs}
    assert (
        "The layer's name lists the node.",
        "It lies between the values that the layer reads and writes.",
    ) == (
        notes["c0"],
        notes["p1_q"],
    )


def test_names_alone_give_the_nodes_that_they_list_and_no_others() -> None:
    """A file with names only has no tensors to say more."""
    m = tiny_model()
    e = engine(
        layer(0, name="stem/Conv + stem/Relu", kind=""),
        layer(1, name="left/Conv || right/Conv", kind=""),
        layer(2, name="PWN(join/Add)", kind=""),
        layer(3, name="head/Gemm", kind=""),
    )
    mapping = relate(m, m, e)
    assert {"stem/Conv", "stem/Relu"} <= set(mapping.nodes("L0"))
    assert ("left/Conv", "right/Conv") == mapping.nodes("L1")
    assert ("L2",) == mapping.layers("join/Add")
    # The normalization between two listed nodes of one layer cannot be anywhere else.
    assert ("L0",) == mapping.layers("stem/BatchNormalization")


def test_the_subgraph_between_values_does_not_take_what_another_layer_names() -> None:
    """Tensors are renamed more freely than layers: the way back to a known value may lead through other layers."""
    m = tiny_model()
    e = engine(
        layer(0, name="stem/Conv + stem/Relu", reads=("x",), writes=("made up",)),
        layer(1, name="left/Conv || right/Conv", reads=("made up",), writes=("l", "r")),
        layer(2, name="__myl_Kernel_myl0_2", reads=("l", "r"), writes=("sum",)),
    )
    mapping = relate(m, m, e)
    assert {"stem/Conv", "stem/BatchNormalization", "stem/Relu"} == set(mapping.nodes("L0"))
    assert {"left/Conv", "right/Conv"} == set(mapping.nodes("L1"))
    assert {"join/Concat", "join/Add"} == set(mapping.nodes("L2"))


def test_an_engine_of_another_model_does_not_claim_this_one() -> None:
    """Inputs and outputs have the same names in many models: between them lies the whole of this one."""
    m = tiny_model()
    e = engine(
        layer(0, name="conv1", kind="CaskConvolution", reads=(m.inputs[0],), writes=("conv1_out",)),
        layer(1, name="prob", kind="CaskSoftMaxV2", reads=("conv1_out",), writes=(m.outputs[0],)),
    )
    assert () == relate(m, m, e).pairs


def test_a_label_that_is_no_id_finds_the_node_by_its_name() -> None:
    """Names with log separators get an id of their own; the engine's file has the author's."""
    relu = helper.make_node
    m = model(
        [relu("Relu", ["x"], ["a"], name="one|two"), relu("Neg", ["a"], ["y"], name="same"),
         relu("Abs", ["a"], ["z"], name="same")],
        [("x", F, [4])], [("y", F, [4]), ("z", F, [4])],
    )  # fmt: skip
    e = engine(layer(0, ("one|two",)), layer(1, ("same",), reads=("a",), writes=("z",)))
    mapping = relate(m, m, e)
    by_op = {n.op: n.id for n in m.nodes}
    assert {"declared"} == evidence(mapping, by_op["Relu"])
    # Both nodes of one name read "a"; what the layer writes tells them apart.
    declared = {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}
    assert {(by_op["Relu"], "L0"), (by_op["Abs"], "L1")} == declared


def test_a_pooling_of_one_element_needs_no_layer() -> None:
    """Adaptive pooling is exported so where the sizes are equal already; a larger window is a pooling."""
    n = helper.make_node
    m = model(
        [n("AveragePool", ["x"], ["a"], name="idle", kernel_shape=[1, 1], strides=[1, 1]),
         n("AveragePool", ["a"], ["b"], name="stride", kernel_shape=[1, 1], strides=[2, 2]),
         n("AveragePool", ["b"], ["y"], name="window", kernel_shape=[2, 2])],
        [("x", F, [1, 2, 4, 4])], [("y", F, [1, 2, 1, 1])],
    )  # fmt: skip
    missing = relate(m, m, engine()).missing
    assert ["view", "unknown", "unknown"] == [x.reason for x in missing]


def test_coverage_counts_nodes_layers_and_moves() -> None:
    """The one number that tells whether files and model belong together."""
    m = tiny_model()
    e = engine(
        layer(0, name="Reformatting CopyNode for Input Tensor 0 to stem/Conv", kind="Reformat"),
        layer(1, ("stem/Conv", "stem/BatchNormalization", "stem/Relu")),
        layer(2, name="left/Conv", kind="CaskConvolution"),
        layer(3, name="event", kind="signal"),
        layer(4, name="head/Flatten", kind="NoOp"),
    )
    mapping = relate(m, m, e)
    assert "unknown" == mapping.why("head/Gemm").reason
    expected = Coverage(
        nodes=5, all_nodes=10, explained=1, layers=3, all_layers=5, moves=1, declared=3, pairs=5
    )
    assert ["join/Concat"] == [x.node for x in mapping.missing if x.reason != "unknown"]
    assert expected == coverage(mapping, m, e)


def test_without_a_model_nothing_is_related_and_nothing_fails() -> None:
    """An engine whose model nobody has is still an engine."""
    nothing = wrap(helper.make_model(helper.make_graph([], "", [], [])), name="")
    e = engine(layer(0, ("conv",), name="conv"), layer(1, name="{ForeignNode[a...b]}"))
    mapping = relate(nothing, nothing, e)
    assert ((), ()) == (mapping.pairs, mapping.missing)
    assert Coverage(0, 0, 0, 0, 2, 0, 0, 0) == coverage(mapping, nothing, e)


@pytest.mark.skipif(not RECORDED.is_dir(), reason="no ../shared/recorded beside the checkout")
@pytest.mark.parametrize(("name", "nodes", "of"), [("alexnet", 19, 20), ("mobilenet_v2", 99, 170)])
def test_every_label_of_a_recorded_engine_is_resolved(name: str, nodes: int, of: int) -> None:
    """TensorRT 10.4 with the graph that it was built from: labels are exact, and names alone say nearly as much."""
    folder = RECORDED / f"fuzzy-{name}-rtx3060laptop-fp16"
    proto = onnx.load(folder / "model.structure-only.onnx", load_external_data=False)
    m = wrap(proto, name=name)
    e = Trtexec().read({"layers": folder / "engine.graph.json"}).engine
    mapping = relate(m, m, e)
    labels = {(i, y.id) for y in e.layers for i in y.origins}
    assert labels
    assert labels == {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}
    found = coverage(mapping, m, e)
    assert (nodes, of, of - nodes) == (found.nodes, found.all_nodes, found.explained)

    # What names and tensors say without the labels agrees with them, node by node.
    silent = dataclasses.replace(e, layers=tuple(dataclasses.replace(y, origins=()) for y in e.layers))
    inferred = {(p.node, p.layer) for p in relate(m, m, silent).pairs}
    flat = {x for x in labels | inferred if x[0] == "/Flatten"}
    assert labels - flat == inferred - flat


def window(inputs: tuple, index: list[int] | None = None) -> Model:
    """A mask whose sizes are asked of a reshaped value, as a windowed attention is exported, and one picked element."""
    nodes = [
        helper.make_node("Reshape", ["x", "to"], ["r"], name="reshape"),
        helper.make_node("Shape", ["r"], ["s"], name="shape"),
        helper.make_node("ConstantOfShape", ["s"], ["m"], name="mask"),
        helper.make_node("Add", ["r", "m"], ["a"], name="add"),
        helper.make_node("Gather", ["a", "i"], ["y"], name="pick", axis=0),
    ]
    weights = {"to": np.array([-1, 8], np.int64), "i": np.array(1 if index is None else index, np.int64)}
    return model(nodes, [("x", F, list(inputs))], [("y", F, ["k", "n"][index is None :])], weights)


def test_what_is_made_of_sizes_that_the_inputs_fix_is_constant() -> None:
    """Nothing is asked for at run time, though the exporter wrote it as a computation."""
    m = window((4, 4))
    found = {x.node: x.reason for x in relate(m, m, engine(layer(0, ("add",)))).missing}
    assert {"reshape": "view", "shape": "shape", "mask": "folded", "pick": "view"} == found


def test_what_is_made_of_sizes_that_the_inputs_leave_open_is_not_known_to_be_constant() -> None:
    """The compiler may fill it anew for every batch; what it did is not told."""
    m = window(("batch", 4))
    assert "unknown" == next(
        x.reason for x in relate(m, m, engine(layer(0, ("add",)))).missing if x.node == "mask"
    )


def test_several_picked_elements_are_no_view() -> None:
    """They lie apart, so that they have to be copied."""
    m = window((4, 4), [1, 0, 1])
    assert "unknown" == next(
        x.reason for x in relate(m, m, engine(layer(0, ("add",)))).missing if x.node == "pick"
    )


def chain(*ops: str) -> Model:
    """Nodes one after the other, called a, b, c."""
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name="abcdef"[i]) for i, op in enumerate(ops)]
    return model(nodes, [("v0", F, [4, 4])], [(f"v{len(ops)}", F, [4, 4])])


def test_a_jump_belongs_to_the_node_whose_steps_it_repeats() -> None:
    """The first turns back over two nodes and belongs to neither; the second over one."""
    m = chain("Softmax", "Relu", "Softmax")
    steps = engine(
        layer(0, kind="memset"),
        layer(1, ("a",), reads=["v0"], writes=["v1"]),
        layer(2, ("b",), reads=["v1"], writes=["v2"]),
        layer(3, kind="cjmp"),
        layer(4, kind="memset"),
        layer(5, ("c",), reads=["v2"], writes=["v3"]),
        layer(6, kind="cjmp"),
    )
    found = [p for p in relate(m, m, steps).pairs if p.layer in {"L3", "L6"}]
    assert [("c", "L6", "inferred", "control")] == [(p.node, p.layer, p.evidence, p.role) for p in found]


def test_a_step_that_one_node_alone_reads_belongs_to_it() -> None:
    """The products of a recurrence bear no label, nor do the first steps of a softmax."""
    m = chain("Softmax", "Relu")
    steps = engine(
        layer(0, reads=["v0"], writes=["max"], kind="gemm"),
        layer(1, reads=["v0", "max"], writes=["exp"]),
        layer(2, ("a",), reads=["exp"], writes=["t"]),
        layer(3, ("b",), reads=["t"], writes=["v2"]),
    )
    mapping = relate(m, m, steps)
    assert {"step0": {"a"}, "step1": {"a"}, "step2": {"a"}, "step3": {"b"}} == held(mapping, steps)
    assert {"inferred"} == {p.evidence for p in mapping.pairs if p.layer in {"L0", "L1"}}
    assert "All that reads the unlabelled step runs this node." == mapping.of("L0")[0].note


def test_a_step_that_two_nodes_read_belongs_to_neither() -> None:
    """A guess would be as often wrong as right."""
    m = model(
        [
            helper.make_node("Softmax", ["x"], ["s"], name="a"),
            helper.make_node("Erf", ["x"], ["y"], name="b"),
        ],
        [("x", F, [4, 4])],
        [("s", F, [4, 4]), ("y", F, [4, 4])],
    )
    steps = engine(
        layer(0, reads=["x"], writes=["t"]),
        layer(1, ("a",), reads=["t"], writes=["s"]),
        layer(2, ("b",), reads=["t"], writes=["y"]),
    )
    assert {"step0": set(), "step1": {"a"}, "step2": {"b"}} == held(relate(m, m, steps), steps)


def test_a_step_belongs_to_the_node_that_all_its_readers_have_in_common() -> None:
    """The last step of a recurrence is fused with what follows it, and still reads its products."""
    m = chain("Softmax", "Erf")
    steps = engine(
        layer(0, reads=["v0"], writes=["t"]),
        layer(1, ("a",), reads=["t"], writes=["u"]),
        layer(2, ("a", "b"), reads=["t", "u"], writes=["v2"]),
    )
    assert ("a",) == relate(m, m, steps).nodes("L0")


def test_a_step_behind_a_node_is_not_taken_from_a_reader_that_has_no_layer() -> None:
    """It may well be the unlabelled reader."""
    lone = chain("Softmax")
    steps = (layer(0, ("a",), reads=["v0"], writes=["t"]), layer(1, reads=["t"], writes=["u"]))
    mapping = relate(lone, lone, engine(*steps))
    assert "All that the unlabelled step reads comes from this node." == mapping.of("L1")[0].note
    m = model(
        [
            helper.make_node("Softmax", ["x"], ["s"], name="a"),
            helper.make_node("TopK", ["s", "k"], ["y", "i"], name="b"),
        ],
        [("x", F, [4, 4])],
        [("y", F, [4, 2])],
        {"k": np.array([2], np.int64)},
    )
    behind = (
        layer(0, ("a",), reads=["x"], writes=["t"]),
        layer(1, reads=["t", "other"], writes=["u"]),
        layer(2, reads=["u"], writes=["w"]),
    )
    assert "a" not in relate(m, m, engine(*behind)).nodes("L1")


def test_layers_that_count_and_jump_belong_to_the_if_or_the_recurrence_that_they_turn() -> None:
    """Only moves are without a node, and numbers that no layer reads; the jump of the If compares by itself."""
    for name, owner in (("control_flow", "If"), ("digits_gru", "GRU")):
        sample = load_sample(name)
        study = Study(sample.model)
        study.add("fp32", target="sm89", backend="tensorrt-rtx")
        result = study.run(compare=False)["fp32"]
        read = {t.name for y in result.engine.layers for t in y.inputs}
        unread = {y.id for y in result.engine.layers if y.outputs and not read & {t.name for t in y.outputs}}
        control = [y for y in result.engine.layers if work(y) == "control" and y.id not in unread]
        assert control
        for step in control:
            pairs = result.mapping.of(step.id)
            assert {"control"} == {p.role for p in pairs if sample.model.by_id[p.node].op == owner}, step.name
        assert not [x for x in result.mapping.missing if x.reason == "unknown"]
        idle = {y.id for y in result.engine.layers if moves(y)} | unread
        bare = [y.name for y in result.engine.layers if not result.mapping.of(y.id) and y.id not in idle]
        assert [] == bare


def test_what_the_kernel_of_a_producer_names_runs_there() -> None:
    """A product and the GELU behind it in one kernel, whose label has the product alone."""
    n = helper.make_node
    nodes = [n("MatMul", ["x", "w"], ["p"], name="first"), n("Div", ["p", "root"], ["d"], name="div"),
             n("Erf", ["d"], ["e"], name="erf"), n("Add", ["e", "one"], ["s"], name="add"),
             n("Mul", ["p", "s"], ["m"], name="mul"), n("MatMul", ["m", "w"], ["y"], name="second")]  # fmt: skip
    weights = {
        "w": np.ones((4, 4), np.float32),
        "root": np.float32([2**0.5]),
        "one": np.ones(1, np.float32),
    }
    m = model(nodes, [("x", F, [4, 4])], [("y", F, [4, 4])], weights)

    def related(name: str) -> Mapping:
        first = layer(0, ("first",), name=name, reads=["x"], writes=["t"])
        return relate(m, m, engine(first, layer(1, ("second",), reads=["t"], writes=["y"])))

    gelu = related("__myl_FcDivCastErfCastAddMul_myl0_0")
    assert {"first", "div", "erf", "add", "mul"} == set(gelu.nodes("L0"))
    note = "The kernel that runs its producer names this operation, and no other node of it."
    assert [note] == [p.note for p in gelu.pairs if p.node == "erf"]
    for name in ("__myl_FcDivCastTanhCastAddMul_myl0_0", "gemm_0"):
        assert "unknown" == related(name).why("erf").reason


def test_an_operation_that_a_kernel_names_once_is_that_of_one_node() -> None:
    """The second of two is not in the kernel of the first, and a rounding that quantizes is nobody's Round."""
    m = chain("Relu", "Erf", "Erf", "Relu")

    def related(name: str, dtype: str = "") -> Mapping:
        first = layer(0, ("a",), name=name, reads=["v0"], writes=["t"])
        if dtype:
            first = dataclasses.replace(first, outputs=(Tensor("t", dtype),))
        return relate(m, m, engine(first, layer(1, ("d",), reads=["t"], writes=["v4"])))

    once, twice = related("__myl_ReluErf_myl0_0"), related("__myl_ReluErfErf_myl0_0")
    assert ("L0",) == once.layers("b")
    assert "unknown" == once.why("c").reason
    assert ("L0",) == twice.layers("b") == twice.layers("c")
    m = chain("Relu", "Round", "Round", "Relu")
    assert "unknown" == related("__myl_ReluMulRounCast_myl0_0", "int8").why("b").reason


def called(calls: int) -> Model:
    """A function of two nodes, called so often, one call after the other."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    body = [
        helper.make_node("Relu", ["a"], ["t"], name="relu"),
        helper.make_node("Neg", ["t"], ["b"], name="neg"),
    ]
    nodes = [
        helper.make_node("Block", [f"v{i}"], [f"v{i + 1}"], name=f"call{i}", domain="local")
        for i in range(calls)
    ]
    ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [2]) for i in (0, calls)]
    graph = helper.make_graph(nodes, "called", ends[:1], ends[1:])
    function = helper.make_function("local", "Block", ["a"], ["b"], body, opsets)
    return load(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9))


def test_a_node_of_a_function_has_the_layers_of_each_call_where_these_are_known() -> None:
    """By hand: two calls, whose layers L0 and L1 the nodes share; a layer L2 that no call is known to have."""
    model = called(2)
    pairs = [Pair("call0", "L0", "declared"), Pair("call1", "L1", "declared")]
    pairs += [
        Pair(n, y, "declared") for y in ("L0", "L1", "L2") for n in ("relu", "neg") if (n, y) != ("neg", "L1")
    ]
    found = placed(Mapping(tuple(pairs), ()), model)
    told = {(p.node, p.layer) for p in found.pairs}
    expected = {
        ("call0", "L0"),
        ("call1", "L1"),
        ("call0/relu", "L0"),
        ("call1/relu", "L1"),
        ("call0/neg", "L0"),
    }
    # The second call's Neg has no layer that is known to be of that call, so any of the node's may be.
    expected |= {("call1/neg", "L0"), ("call1/neg", "L2")}
    assert expected == told


def test_to_place_twice_the_calls_takes_twice_the_steps(monkeypatch) -> None:
    """Each call was compared with the layers of all others, and 256 calls took minutes."""
    steps: list[int] = []
    layers, merge = Mapping.layers, heapq.merge
    monkeypatch.setattr(Mapping, "layers", lambda self, n: steps.append(len(f := layers(self, n))) or f)
    monkeypatch.setattr(heapq, "merge", lambda *s: (steps.append(sum(map(len, s))), merge(*s))[1])

    def taken(calls: int) -> int:
        model = called(calls)
        pairs = [Pair(n, f"L{i}", "declared") for i in range(calls) for n in (f"call{i}", "relu", "neg")]
        steps.clear()
        assert 3 * calls == len(placed(Mapping(tuple(pairs), ()), model).pairs)
        return sum(steps)

    assert taken(64) <= 2.1 * taken(32)
