"""The compilers that rtlab knows, as their engines tell of them."""

from __future__ import annotations

from rtlab.core.compiler_info import TENSORRT as FAMILY
from rtlab.core.compiler_info import Maker

TENSORRT = Maker(
    "TensorRT", FAMILY, flags=True, tunes="build", memory="planned",
    reports=frozenset({"memory", "streams", "tactics", "sparsity"}),
)  # fmt: skip
#: Versions 1.x; numbers of releases are its own, and so is the listing in its log.
TENSORRT_RTX = Maker(
    "TensorRT-RTX", FAMILY, typed=True, tunes="load", memory="planned", reserves=True,
    reports=frozenset({"memory", "streams", "tactics"}), float_ops=frozenset({"ConvTranspose"}),
)  # fmt: skip
ONNX_RUNTIME = Maker("ONNX Runtime", step="ONNX Runtime node", memory="running")
CLASSIC = Maker("Predicted TensorRT", FAMILY, predicts=True)
