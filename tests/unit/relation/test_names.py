"""TensorRT's names of layers: split into words, and each word related to nodes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import strategies
from rtlab.core.model import Model, load
from rtlab.relation.flow import Flow
from rtlab.relation.names import Names, words


def chain(*nodes: tuple[str, str], values: dict[str, str] | None = None) -> Model:
    """Operators one after the other, by name; ``values`` names the outputs of some."""
    made, at = [], "x"
    for i, (name, op) in enumerate(nodes):
        out = "y" if i == len(nodes) - 1 else (values or {}).get(name, f"{name or i}_out")
        reads = [at, at] if op in {"Add", "Mul", "Concat"} else [at]
        made.append(helper.make_node(op, reads, [out], name=name))
        if op == "Concat":
            made[-1].attribute.append(helper.make_attribute("axis", 0))
        at = out
    return load(strategies.of_nodes(made, result=["N", 4]), name="m")


def named(model: Model, name: str) -> list[str]:
    """Ids of the nodes that a layer's name tells, regions included, candidates left out."""
    names = Names(model, Flow(model))
    found = [n.id for f in names.find_explicit(name) if f.sure for n in f.nodes]
    found += [n.id for f in names.find_regions(name, ()) for n in f.nodes if n.id not in found]
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a + b || c + d", ["a", "b", "c", "d"]),
        ("PWN(PWN(Softplus_144, PWN(Tanh_145)), Mul_146)", ["Softplus_144", "Tanh_145", "Mul_146"]),
        ("c + PWN(PWN(PWN(s), PWN(m)), PWN(/cv2/Add))", ["c", "s", "m", "/cv2/Add"]),
        ("PWN(w + (Unnamed Layer* 286) [Shuffle], p)", ["w", "(Unnamed Layer* 286) [Shuffle]", "p"]),
        ("a + {ForeignNode[b + d...c]}", ["a", "{ForeignNode[b + d...c]}"]),
        ("{ForeignNode[(Unnamed Layer* 0) [X]]}", ["{ForeignNode[(Unnamed Layer* 0) [X]]}"]),
    ],
)
def test_a_fused_name_falls_into_its_words(name: str, expected: list[str]) -> None:
    assert expected == words(name)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("a + b + a", ("a + b", "a"), ["a + b", "a"]), ("PWN(PWN(f(x)), c, d)", ("f(x)", "c, d"), ["f(x)", "c, d"]),
        ("PWN(odd + a", ("PWN(odd", "a"), ["PWN(odd", "a"]), ("conv  + relu ", (), ["conv", "relu"]),
        # Blanks are part of a name that somebody gave.
        ("conv  + relu ", ("conv ", "relu "), ["conv ", "relu "]), ("conv  + relu ", ("conv",), ["conv", "relu"]),
    ],
)  # fmt: skip
def test_a_known_name_stays_whole_even_where_it_contains_what_joins_names(name, known, expected) -> None:
    joined = any(sign in k for k in known for sign in (" + ", ", "))
    assert expected == words(name, dict.fromkeys(known), longest=1 + joined)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv.weight + q_7 + conv", ["conv"]), ("Reformatting CopyNode for Input Tensor 0 to conv + relu", []),
        ("conv_myl7_1", ["conv"]), ("conv [profile 1]", ["conv"]),
        ("/m_10/attn/MatMul_myl109_2", ["/m.10/attn/MatMul"]), ("PWN(relu_2)", ["relu"]),
        ("PWN(PWN(relu), relu_2)", ["relu", "relu"]), ("__mye258_0_myl7_0", []), ("__myl_MulSum_myl4_1", []),
        ("(Unnamed Layer* 3) [Shuffle] + relu", ["relu"]),
        ("ONNXTRT_Broadcast_4 + relu + ONNXTRT_castHelper_9", ["relu"]), ("copied_squeeze_after_relu", []),
    ],
)  # fmt: skip
def test_each_era_writes_its_own_form_of_a_node_s_name(name: str, expected: list[str]) -> None:
    model = chain(("conv", "Neg"), ("relu", "Relu"), ("/m.10/attn/MatMul", "Exp"))
    assert expected == named(model, name)


REGION = chain(*((n, "Relu") for n in ("a", "b.", ".c", "d", "e")))
UNNAMED = chain(("", "Relu"), ("b", "Neg"), values={"": "v7"})


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        # The parser numbers what it makes of one node, and exporters number nodes.
        (chain(("relu", "Relu"), ("relu_2", "Relu")), "PWN(relu_2)", ["relu_2"]),
        # Of a region the first and the last node are named; what helps TensorRT is no end.
        (REGION, "{ForeignNode[b....d]}", ["b.", "d", ".c"]), (REGION, "{ForeignNode[a....c]}", ["a", ".c", "b."]),
        (REGION, "{ForeignNode[d]}", ["d"]), (REGION, "{ForeignNode[b....ONNXTRT_castHelper_9]}", ["b."]),
        # The parser calls a node without a name by its first output.
        (UNNAMED, "node_of_v7 + b", [UNNAMED.nodes[0].id, "b"]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_numbers_regions_copies_and_nodes_without_names(model: Model, name: str, expected: list[str]) -> None:
    assert expected == named(model, name)


def test_a_region_does_not_lead_through_what_another_layer_names() -> None:
    """No region of a compiler encloses a layer that it runs outside."""
    model = chain(*((n, "Relu") for n in ("a", "b", "c", "d")))
    found = Names(model, Flow(model)).find_regions("{ForeignNode[a...d]}", {"a", "c", "d"})
    assert [] == list(found)


def test_a_region_that_begins_with_a_weight_begins_with_its_reader() -> None:
    """Myelin's regions list the weights of their first layer."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="mul"),
        helper.make_node("Relu", ["b"], ["c"], name="between"),
        helper.make_node("Neg", ["c"], ["y"], name="last"),
    ]
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")]
    model = load(strategies.of_nodes(nodes, weights=weights), name="m")
    assert ["mul", "last", "between"] == named(model, "{ForeignNode[w...last]}")


def test_two_nodes_of_one_name_are_only_candidates() -> None:
    model = chain(("twin", "Relu"), ("other", "Neg"), ("twin", "Relu"))
    found = list(Names(model, Flow(model)).find_explicit("twin + other"))
    told = [([n.id for n in f.nodes], f.sure) for f in found]
    assert [(["#0", "#2"], False), (["other"], True)] == told
