"""Attention with a guard behind the softmax on the real builder."""

from __future__ import annotations

import numpy as np
import pytest

import rtlab
from decoders import Decoder
from guarded import LOWEST, guarded
from rtlab import backends

needs_rtx = pytest.mark.skipif(not backends.get("tensorrt-rtx").availability().ok, reason="not installed")
SIZES = Decoder(layers=1, width=256)


@needs_rtx
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_attention_is_one_layer_whatever_its_guard(precision: str) -> None:
    """Between Q/DQ pairs a guard makes a layer of each product: it is left out, or attention stays in 16 bits."""
    for lowest, dtype in ((LOWEST, precision), (-np.inf, "fp16")):
        model = guarded(SIZES.make(), lowest)
        study = rtlab.Study(model, data=rtlab.CalibrationData.of({"ids": SIZES.ids(2)}, model=model))
        study.add(precision, target="sm89", backend="tensorrt-rtx")
        study.run(compare=False, budget_s=0)
        (layer,) = [y for y in study[precision].engine.layers if "_mha_v" in y.name]
        assert dtype == layer.inputs[0].dtype
        assert not [m for m in study[precision].mapping.missing if m.reason == "unknown"]
