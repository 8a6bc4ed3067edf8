"""Block formats against ModelOpt itself, where somebody has installed it; rtlab needs it nowhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import trt_nets
from rtlab.core.variant import Precision
from rtlab.quantize.weights import ScaleLayout, quantize_to_four_bits

torch = pytest.importorskip("torch", reason="ModelOpt needs PyTorch")
qtensor = pytest.importorskip("modelopt.torch.quantization.qtensor", reason="ModelOpt is not installed")
quant_utils = pytest.importorskip(
    "modelopt.onnx.quantization.quant_utils", reason="ModelOpt lacks its ONNX part", exc_type=ImportError
)


def weight() -> np.ndarray:
    """Blocks of many magnitudes, one of zeros, and one too small for a scale of its own."""
    w = np.random.default_rng(4).standard_normal((96, 256)).astype(np.float32)
    w *= np.exp2(np.random.default_rng(5).integers(-12, 6, (96, 16))).repeat(16, axis=1).astype(np.float32)
    w[0, :16], w[1, :16] = 0, 1e-9
    return w


def test_nvfp4_is_modelopts_to_the_bit() -> None:
    w = weight()
    packed, scales, whole = qtensor.NVFP4QTensor.quantize(torch.from_numpy(w.copy()), 16)
    bits = packed._quantized_data.numpy()
    codes = np.stack([bits & 15, bits >> 4], axis=-1).reshape(w.shape)
    ours = quantize_to_four_bits(w, ScaleLayout(1, 16), Precision.FP4)
    assert float(whole) == float(ours.tensor_scale)
    np.testing.assert_array_equal(scales.view(torch.uint8).numpy(), ours.scale.view(np.uint8))
    theirs = codes.view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(theirs.astype(np.float32), ours.values.astype(np.float32))


def test_scales_of_modelopts_onnx_export_are_the_same() -> None:
    w = weight()
    whole = quant_utils.get_weights_scaling_factor_2(w)
    blocks = quant_utils.get_weights_scaling_factor(w, 16, whole)
    ours = quantize_to_four_bits(w, ScaleLayout(1, 16), Precision.FP4)
    assert whole == ours.tensor_scale
    stored = np.clip(blocks, 2**-9, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(stored.view(np.uint8), ours.scale.view(np.uint8))


def test_mxfp8_of_the_models_of_the_tests_is_modelopts_to_the_bit() -> None:
    w = weight()
    data, scales = qtensor.MXFP8QTensor.quantize(torch.from_numpy(w.copy()))
    numbers, exponents = trt_nets.mxfp8(w)
    np.testing.assert_array_equal(scales.numpy(), exponents)
    np.testing.assert_array_equal(data._quantized_data.view(torch.uint8).numpy(), numbers.view(np.uint8))


def test_the_codes_of_modelopts_onnx_export_are_as_near_or_farther() -> None:
    """It divides by the scales of blocks before these are rounded; ModelOpt's tensors and rtlab by what is stored."""
    w = weight()
    whole = quant_utils.get_weights_scaling_factor_2(w)
    blocks = quant_utils.get_weights_scaling_factor(w, 16, whole)
    steps = quant_utils.quantize(w, 16, blocks, whole)
    codes = np.clip(steps, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    ours = quantize_to_four_bits(w, ScaleLayout(1, 16), Precision.FP4)
    scales = (ours.scale.astype(np.float32) * ours.tensor_scale).repeat(16, axis=1)
    mine, theirs = (np.square(v - w).sum() for v in (ours.dequantize(), codes * scales))
    assert 0 < (codes != ours.values.astype(np.float32)).mean() < 0.1
    assert mine < theirs
