"""What a layer does by its name alone: the signs of TensorRT, and the operators that names join."""

from __future__ import annotations

import dataclasses

import pytest

import engines
from rtlab.analyses.cards.card import _parse_name_chips
from rtlab.analyses.engine import by_kind
from rtlab.backends.compiler_info import TENSORRT, TENSORRT_RTX
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation import trtexec_flags
from rtlab.relation.names import infer_work


def named(name: str) -> Layer:
    return Layer(f"0:{name}", name, "", 0)


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("Reformatting CopyNode for Input Tensor 0 to /fc/MatMul", "reformat"), ("inception_3a/1x1 copy", "reformat"),
        ("/layer1/0/conv1/Conv + onnx::Mul_1 + /bn/Mul + /bn/Add + /relu/Relu", "convolution"),
        ("/fc1/MatMul + /fc1/Add", "matrix product"), ("reshape_before_/fc1/MatMul", "shuffle"),
        ("reshape_after_/conv/Conv + /attn/Reshape + /attn/Transpose", "shuffle"),
        ("/attn/Reshape_9 + reshape_before_/out_proj/MatMul", "shuffle"),
        ("copied_squeeze_after_(Unnamed Layer* 3) [ElementWise]", "shuffle"),
        ("PWN(PWN(/Sub), PWN(/Div))", "pointwise"), ("/attn/Softmax", "softmax"),
        ("__myl_MoveMeanSubMul_myl98_0", "myelin"), ("{ForeignNode[/attn/MatMul.../attn/Softmax]}", "myelin"),
        ("onnx::Expand_4941_clone_1", "constant"), ("/ArgMax", "reduction"), ("/Slice", "slice or concatenation"),
        ("loss3/classifier", ""),
    ],
)  # fmt: skip
def test_a_name_tells_what_a_layer_does(name: str, work: str) -> None:
    assert work == infer_work(named(name))


def test_a_name_is_not_asked_where_more_is_told() -> None:
    for kind, *ends in (("CaskPooling",), ("", (Tensor("x"),)), ("", (), (Tensor("y"),))):
        layer = Layer("0:a", "/a/Conv", kind, 0, *ends)
        assert not infer_work(layer)
        assert all("by its name" not in c["title"] for c in _parse_name_chips(layer, None))


def test_an_engine_is_told_apart_by_its_names() -> None:
    """Without kinds and tensors: convolutions by their operator, copies and Myelin by the builder's own words."""
    engine, timing = engines.read(engines.MOBILE)
    bare = tuple(dataclasses.replace(y, kind="", inputs=(), outputs=(), origins=()) for y in engine.layers)
    told = by_kind(dataclasses.replace(engine, layers=bare), timing)
    expected = {"convolution": 52, "myelin": 4, "reformat": 2, "pooling": 1}
    found = {s.name.removesuffix(" (by its name)"): len(s.layers) for s in told}
    assert expected == found
    assert timing is not None
    assert timing.summed == pytest.approx(sum(s.milliseconds or 0 for s in told))


def engine(version: str, maker: Maker = TENSORRT) -> Engine:
    return Engine("any", version, Target("sm80"), (), maker=maker)


@pytest.mark.parametrize(
    ("found", "release", "by_model"),
    [
        (engine("8.2.1"), (8, 2), False), (engine("10.16.1.11"), (10, 16), False), (engine("11.4.0"), (11, 4), True),
        (engine(""), None, None), (engine("1.7.1", TENSORRT_RTX), None, True),
    ],
)  # fmt: skip
def test_types_are_the_model_s_from_tensorrt_11_on_and_in_rtx(found, release, by_model) -> None:
    assert (release, by_model) == (trtexec_flags.release(found), trtexec_flags.is_typed_by_model(found))
    assert ("--layerPrecisions" in trtexec_flags.retype(found)) == (by_model is not True)
    assert ("--fp16" in trtexec_flags.allow_half(found)) == (by_model is not True)
    # Where the release is not told, the remedy says until when it holds.
    assert ("up to TensorRT 10" in trtexec_flags.retype(found)) == (by_model is None)
