"""What a layer does by its name alone: the signs of TensorRT, and the operators that names join."""

from __future__ import annotations

import dataclasses

import pytest

import engines
from rtlab.core.engine import Layer, Tensor
from rtlab.questions.cards.card import _told
from rtlab.questions.engine.breakdown import by_kind
from rtlab.relation.named import by_name


def named(name: str) -> Layer:
    return Layer(f"0:{name}", name, "", 0)


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("Reformatting CopyNode for Input Tensor 0 to /fc/MatMul", "reformat"),
        ("inception_3a/1x1 copy", "reformat"),
        ("/layer1/0/conv1/Conv + onnx::Mul_1 + /bn/Mul + /bn/Add + /relu/Relu", "convolution"),
        ("/fc1/MatMul + /fc1/Add", "matrix product"),
        ("reshape_before_/fc1/MatMul", "shuffle"),
        ("reshape_after_/conv/Conv + /attn/Reshape + /attn/Transpose", "shuffle"),
        ("/attn/Reshape_9 + reshape_before_/out_proj/MatMul", "shuffle"),
        ("copied_squeeze_after_(Unnamed Layer* 3) [ElementWise]", "shuffle"),
        ("PWN(PWN(/Sub), PWN(/Div))", "pointwise"),
        ("/attn/Softmax", "softmax"),
        ("__myl_MoveMeanSubMul_myl98_0", "myelin"),
        ("{ForeignNode[/attn/MatMul.../attn/Softmax]}", "myelin"),
        ("onnx::Expand_4941_clone_1", "constant"),
        ("/ArgMax", "reduction"),
        ("/Slice", "slice or concatenation"),
        ("loss3/classifier", ""),
    ],
)
def test_a_name_tells_what_a_layer_does(name: str, work: str) -> None:
    assert work == by_name(named(name))


def test_a_name_is_not_asked_where_more_is_told() -> None:
    """A kind, or a tensor, says it better."""
    for layer in (
        Layer("0:a", "/a/Conv", "CaskPooling", 0),
        Layer("0:a", "/a/Conv", "", 0, (Tensor("x"),)),
        Layer("0:a", "/a/Conv", "", 0, (), (Tensor("y"),)),
    ):
        assert not by_name(layer)
        assert all("by its name" not in c["title"] for c in _told(layer, None))


def test_a_card_says_that_a_name_was_read() -> None:
    """And a layer that only stands before a product is none."""
    (chip,) = _told(named("reshape_before_/fc1/MatMul"), None)
    assert ("shuffle", "shuffle (by its name)", "shape") == (chip["op"], chip["title"], chip["family"])
    assert ["MatMul (by its name)", "Add (by its name)"] == [
        c["title"] for c in _told(named("/fc1/MatMul + /fc1/Add"), None)
    ]
    (nothing,) = _told(named("loss3/classifier"), None)
    assert ("layer", "layer") == (nothing["op"], nothing["title"])


def test_an_engine_is_told_apart_by_its_names() -> None:
    """Without kinds and tensors: convolutions by their operator, copies and Myelin by the builder's own words."""
    engine, timing = engines.read(engines.MOBILE)
    bare = tuple(dataclasses.replace(y, kind="", inputs=(), outputs=(), origins=()) for y in engine.layers)
    told = by_kind(dataclasses.replace(engine, layers=bare), timing)
    expected = {"convolution": 52, "myelin": 4, "reformat": 2, "pooling": 1}
    assert {f"{kind} (by its name)": n for kind, n in expected.items()} == {
        s.name: len(s.layers) for s in told
    }
    assert timing is not None
    assert timing.summed == pytest.approx(sum(s.milliseconds or 0 for s in told))
