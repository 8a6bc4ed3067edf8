"""Engines and layers: what every picture says of them."""

from __future__ import annotations

import pytest

from rtlab.backends.makers import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target


def layer(*types: str) -> Layer:
    """A layer that writes the first type and reads the others."""
    return Layer(
        id="l0",
        name="step",
        kind="kgen",
        index=0,
        inputs=tuple(Tensor(f"i{i}", t) for i, t in enumerate(types[1:])),
        outputs=(Tensor("o", types[0]),),
    )


@pytest.mark.parametrize(
    ("types", "precision"),
    [
        (["fp32", "fp32"], "fp32"),
        (["fp32", "int8", "fp32"], "int8"),
        (["fp16", "fp32"], "fp16"),
        (["fp32", "bf16"], "bf16"),
        (["fp16", "fp8"], "fp8"),
        (["int64", "bool"], "bool"),
        ([""], ""),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, list) else None,
)
def test_a_layer_has_the_precision_of_its_narrowest_data(types, precision):
    """A convolution that reads int8 and writes fp32 computes in int8; its tag must say so."""
    assert precision == layer(*types).precision


def test_an_engine_says_compiler_version_and_target():
    """A plan for one card is not a plan for another."""
    engine = Engine("tensorrt-rtx", "1.7.1", Target("sm86"), (layer("fp32"),), maker=TENSORRT_RTX)

    assert "TensorRT-RTX 1.7.1 · sm86" == engine.title
    assert "<Engine tensorrt-rtx 1.7.1 sm86: 1 layers>" == repr(engine)
    assert engine.layers[0] is engine.layer("l0")
    with pytest.raises(KeyError, match="l9"):
        engine.layer("l9")
