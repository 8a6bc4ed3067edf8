"""The compilers that rtlab knows, as their engines tell of them."""

from __future__ import annotations

from rtlab.core.compiler_info import TENSORRT as FAMILY
from rtlab.core.compiler_info import AttentionKernel, Maker
from rtlab.core.precision import Precision

TENSORRT = Maker(
    "TensorRT", FAMILY, flags=True, tunes="build", memory="planned",
    reports=frozenset({"memory", "streams", "tactics", "sparsity"}),
    # https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/transformers-fused-attention.html
    half_attention=True, half_attention_is_documented=True,
)  # fmt: skip
#: Versions 1.x; numbers of releases are its own, and so is the listing in its log.
TENSORRT_RTX = Maker(
    "TensorRT-RTX", FAMILY, typed=True, tunes="load", memory="planned", reserves=True,
    reports=frozenset({"memory", "streams", "tactics"}), float_ops=frozenset({"ConvTranspose"}),
    half_attention=True,
    attention_kernels=(
        AttentionKernel(
            Precision.INT8, frozenset({32, 64}), (2, 512), frozenset({"fp32", "fp16"}), output_pair=True
        ),
        # With BF16 around, heads of 32 channels fuse only where no mask is added.
        AttentionKernel(Precision.INT8, frozenset({64}), (2, 512), frozenset({"bf16"}), output_pair=True),
        AttentionKernel(Precision.FP8, frozenset(range(40, 257, 8)), (32, 1024), frozenset({"fp16", "bf16"})),
        AttentionKernel(
            Precision.FP8, frozenset({16, 24, 32}), (32, 1024), frozenset({"fp16", "bf16"}),
            avoided="FP8 is left out in heads of fewer than 40 channels, for accuracy: with 16 it cost 0.4 % of a "
            "trained decoder's perplexity, and 24 and 32 were not measured",
        ),
    ),
)  # fmt: skip
ONNX_RUNTIME = Maker("ONNX Runtime", step="ONNX Runtime node", memory="running")
CLASSIC = Maker("Predicted TensorRT", FAMILY, predicts=True)
