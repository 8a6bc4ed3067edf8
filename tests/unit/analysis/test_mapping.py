"""Mapping: every node is accounted for, each pair with its evidence."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rtlab.analysis.mapping import relate
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load
from rtlab.core.variant import Target
from rtlab.testing import tiny_model


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


F, I64 = TensorProto.FLOAT, TensorProto.INT64


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
