"""The families of operators that the page colours, and the short names of operators."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rtlab.analyses.cards.picture import Family

#: Netron's families of operators, after its own grouping of ONNX.
_FAMILIES: Mapping[Family, str] = {
    "convolution": "Conv ConvTranspose ConvInteger QLinearConv FusedConv DeformConv NhwcFusedConv QLinearConvTranspose",
    "matmul": "Gemm MatMul MatMulInteger QLinearMatMul FusedMatMul FusedGemm LSTM GRU RNN Attention Einsum "
    "MultiHeadAttention QGemm MatMulNBits DynamicQuantizeMatMul",
    "activation": "Relu LeakyRelu PRelu Sigmoid Tanh Clip Softmax LogSoftmax HardSigmoid HardSwish Elu Selu Celu "
    "Gelu Softplus Softsign ThresholdedRelu Mish QuickGelu BiasGelu FastGelu QLinearSigmoid QLinearLeakyRelu Swish",
    "pool": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool MaxUnpool ReduceMean "
    "QLinearAveragePool QLinearGlobalAveragePool",
    "normalization": "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization LRN "
    "LpNormalization MeanVarianceNormalization SkipLayerNormalization RMSNormalization",
    "shape": "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Concat Expand Tile Gather GatherElements "
    "GatherND Pad Shape Size Resize Upsample DepthToSpace SpaceToDepth ReorderInput ReorderOutput QLinearConcat",
    "quantize": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear Cast CastLike",
    "control": "If Loop Scan SequenceMap",
}
_FAMILY: Mapping[str, Family] = {op: f for f, ops in _FAMILIES.items() for op in ops.split()}
_SHORT = {"BatchNormalization": "BN", "GlobalAveragePool": "GAP", "LayerNormalization": "LN", "Relu": "ReLU",
          "QuantizeLinear": "Q", "DequantizeLinear": "DQ", "MaxPool": "MaxPool"}  # fmt: skip
#: Words in a compiler's kinds of layers that compute something, with the family of what it is.
_COMPUTES: Mapping[str, Family] = {
    "conv": "convolution", "gemm": "matmul", "matmul": "matmul", "matrix": "matmul", "pool": "pool",
    "scale": "normalization", "norm": "normalization", "softmax": "activation", "activation": "activation",
    "elementwise": "other", "pointwise": "other", "reduce": "pool", "resize": "shape", "padding": "shape",
}  # fmt: skip


def get_family(op: str) -> Family:
    """The colour family of an operator."""
    return _FAMILY.get(op, "other")


def shorten_op(op: str) -> str:
    """An operator's name as cards write it, such as BN for BatchNormalization."""
    return _SHORT.get(op, op)


@functools.lru_cache(1024)
def get_kind_family(word: str) -> Family | None:
    """The family of what a compiler's word for a kind of layer computes; None where it tells no such kind."""
    return next((f for part, f in _COMPUTES.items() if part in word.lower()), None)
