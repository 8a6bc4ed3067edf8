"""Rules on types: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from judged import CHW32, A, Y, conv, engine, of, step, tensor, timed
from net_text import written
from rtlab.analyses.findings.rules import rank_findings
from rtlab.backends.compiler_info import TENSORRT, TENSORRT_RTX
from rtlab.core.engine import Engine
from rtlab.relation.mapping import Mapping, Pair


def mixed(kind: str, dtype: str, products: str = "fp16") -> Engine:
    a, b, x, y = tensor("a", dtype), tensor("b", dtype), tensor("x", products), tensor("y", products)
    return engine(conv(x, a), step(kind, a, b), conv(b, y, name="next"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (mixed("CudaSoftMax", "fp32"), ["wide-layer:softmax"]),
        (mixed("TiledPooling", "fp32"), ["wide-layer:pooling"]),
        (mixed("TiledPooling", "fp16"), []),
        (mixed("Reformat", "fp32"), []),  # a move, which other rules judge
        (engine(conv(tensor("x", "fp32"), tensor("a", "fp32")), step("Pooling", tensor("a", "fp32"), Y)), []),
    ],
)
def test_wide_layers_in_a_narrow_engine(found, expected) -> None:
    assert expected == [f.id for f in of(found, "wide-layer")]


def test_a_wide_layer_is_told_with_the_first_of_what_it_writes() -> None:
    found = mixed("TiledPooling", "fp32")
    pool = found.layers[1]
    second = tensor("second", "fp32", format_=CHW32)
    layers = (found.layers[0], dataclasses.replace(pool, outputs=(*pool.outputs, second)), *found.layers[2:])
    one, two = (of(dataclasses.replace(found, layers=ls), "wide-layer")[0] for ls in (found.layers, layers))
    assert one.evidence == two.evidence


def test_an_engine_that_is_mostly_wide_was_meant_so() -> None:
    a, b, y = tensor("a", "fp32"), tensor("b", "fp32"), tensor("y", "fp32")
    wide = [conv(a, b, name="two"), conv(b, y, name="three")]
    assert [] == of(engine(conv(tensor("x"), a, name="one"), *wide), "wide-layer")
    narrow = [conv(tensor("x"), A, name="one"), conv(A, Y, name="two"), conv(a, b, name="three")]
    assert 1 == len(of(engine(*narrow), "wide-layer"))


def test_a_wide_layer_that_takes_no_time_is_not_worth_a_word() -> None:
    found = mixed("TiledPooling", "fp32")
    assert [] == of(found, "wide-layer", timed(found, 1000, 1, 1000))
    assert 1 == len(of(found, "wide-layer", timed(found, 1000, 100, 1000)))


def detour(back: str) -> Engine:
    a, b, c, d = tensor("a"), tensor("b", "fp32"), tensor("c", "fp32"), tensor("d", back)
    return engine(
        conv(tensor("x"), a), step("Reformat", a, b), step("Pooling", b, c), step("Reformat", c, d),
        conv(d, tensor("y", back), name="next"),
    )  # fmt: skip


def test_conversions_that_undo_each_other() -> None:
    (found,) = of(detour("fp16"), "back-and-forth")
    assert ("1:Reformat", "3:Reformat") == found.layers
    assert [] == of(detour("int8"), "back-and-forth")


@pytest.mark.parametrize(
    ("products", "kind", "expected"),
    [
        ("int8", "PointWiseV2", "Put a Q/DQ pair"),
        ("fp16", "PointWiseV2", "--layerPrecisions"),
        ("int8", "conv", "Q/DQ pairs"),
    ],
)
def test_the_way_to_a_narrow_type_is_that_of_the_engine(products, kind, expected) -> None:
    a, b = tensor("a", "fp32"), tensor("b", "fp32")
    wide = conv(a, b, name="wide") if kind == "conv" else step(kind, a, b)
    found = engine(
        *(conv(tensor("x", products), tensor(f"t{i}", products), name=f"c{i}") for i in range(3)), wide
    )
    assert expected in of(found, "wide-layer")[0].fix


@pytest.mark.parametrize(
    ("maker", "op", "pairs", "asked"),
    [
        (TENSORRT, "Conv", False, "Put Q/DQ pairs at the inputs"),
        (TENSORRT, "Conv", True, "TensorRT computes Conv in floating point"),
        (TENSORRT_RTX, "ConvTranspose", False, "TensorRT-RTX computes ConvTranspose in floating point"),
        (TENSORRT_RTX, "ConvTranspose", True, "TensorRT-RTX computes ConvTranspose in floating point"),
    ],
)
def test_no_finding_asks_for_pairs_that_are_there_or_do_nothing(
    maker, op: str, pairs: bool, asked: str
) -> None:
    a, b, c = tensor("a", "int8"), tensor("b", "fp32"), tensor("c", "fp32")
    narrow = [conv(tensor("x", "int8"), a, name="one"), conv(a, tensor("d", "int8"), name="two")]
    found = dataclasses.replace(engine(*narrow, conv(b, c, name="wide")), maker=maker)
    reads = "h, k" if pairs else "x, w"
    model = written(
        "x[1, 4, 8, 8]; q: i = QuantizeLinear(x, s); d: h = DequantizeLinear(i, s);"
        f"p: j = QuantizeLinear(w, s); r: k = DequantizeLinear(j, s); it: y = {op}({reads}); y",
        w=np.ones((4, 4, 1, 1), np.float32), s=np.float32(0.1),
    )  # fmt: skip
    layer = next(y.id for y in found.layers if y.name == "wide")
    findings = rank_findings(found, Mapping((Pair("it", layer, "declared"),), ()), model)
    (wide,) = (f for f in findings if f.rule == "wide-layer")
    assert wide.fix.startswith(asked)
