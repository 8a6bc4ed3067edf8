"""The rules of pairs of layers as data: what is joined with what, under which conditions, and who says so.

A rule is a name, the operators before and after, its source, and functions that say what hinders it. Adding one takes
a line or two in ``SCALES``, ``VERTICAL`` or ``POINTWISE``; the first rule that fits counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rtlab.backends.classic.network import Network, NetworkLayer, sole

#: Why a rule does not hold for two neighbours, the one that writes first; empty where nothing is in the way.
Hinder = Callable[[Network, NetworkLayer, NetworkLayer], str]

CATALOG = (
    "TensorRT documentation, Layer Fusion Catalog "
    "(docs.nvidia.com/deeplearning/tensorrt/latest/performance/fusion-catalog.html)"
)
PAIRS = (
    "TensorRT documentation, Working with Quantized Types, Q/DQ Layer-Placement Recommendations "
    "(docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html)"
)
GUIDE = (
    "TensorRT documentation, Architecture Overview, Builder "
    "(docs.nvidia.com/deeplearning/tensorrt/latest/architecture/architecture-overview.html)"
)
LOG_5 = "a recorded log of TensorRT 5.1, GoogLeNet in fp32"
LOG_8 = "a published log of TensorRT 8, YOLOv8 with Q/DQ pairs"


@dataclasses.dataclass(frozen=True)
class FusionRule:
    """What becomes one layer: an operator of ``first`` and its reader, one of ``second``, unless something hinders it.

    ``name`` is TensorRT's own where a log tells it. ``source`` is where it is documented, or which log shows it.
    """

    name: str
    first: frozenset[str]
    second: frozenset[str]
    source: str
    hinders: tuple[Hinder, ...] = (sole,)

    def hinder(self, network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
        """Why it does not hold; empty where it does."""
        return next((why for h in self.hinders if (why := h(network, first, second))), "")


# --- conditions -------------------------------------------------------------------------------------------------------


def constant_weights(network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has weights that are constant."""
    if first.kind in CONVOLUTIONS or first.int8:
        return ""
    return (
        "" if any(v in network.constants for v in first.node.inputs[1:2]) else "its weights are not constant"
    )


def plain(_network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has no activation and no sum of its own yet."""
    taken = next((o for o in first.ops if o in ACTIVATIONS or o in SUMS or o in POOLS), "")
    return f"the layer before already ends with {taken}" if taken else ""


def inactive(_network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has no activation of its own yet; a sum it may have."""
    taken = next((o for o in first.ops if o in ACTIVATIONS), "")
    return f"the layer before already ends with {taken}" if taken else ""


def per_channel(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """A scale whose numbers are constant: one for all, or one for each channel."""
    if second.kind == "BatchNormalization":
        known = all(v in network.constants for v in second.node.inputs[1:5] if v)
        return (
            ""
            if known and not second.node.attributes.get("training_mode")
            else "its numbers are not constant"
        )
    others = [v for v in second.node.inputs if v not in first.writes]
    if not others or not all(v in network.constants for v in others):
        return "its other operand is not constant"
    shape = network.shape(others[0]) or ()
    wide = [(len(shape) - i, d) for i, d in enumerate(shape) if d != 1]
    rank = len(network.shape(first.writes[0]) or ())
    # Counted from the back, the channel of N×C×H×W is the third; of N×C the last.
    if not wide or (len(wide) == 1 and wide[0][0] == (rank - 1 if rank else 3)):
        return ""
    return "its numbers are neither one for all nor one for each channel"


def constant_operand(network: Network, _: NetworkLayer, second: NetworkLayer) -> str:
    """One operand of the second layer is a constant."""
    known = any(v in network.constants for v in second.node.inputs)
    return "" if known else "its other operand is not constant"


def half(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """The layers compute in FP16 or INT8."""
    known = network.model.values.get(second.writes[0])
    narrow = first.int8 or (known is not None and known.dtype in {"fp16", "bf16"})
    return "" if narrow else "it is fused in FP16 and INT8 only"


def permuting(_network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """A Shuffle that permutes without reshaping."""
    return "" if first.kind == "Transpose" else "it reshapes"


def whole_sum(network: Network, _: NetworkLayer, second: NetworkLayer) -> str:
    """Both operands of an elementwise operation are tensors of one shape, perhaps but for the batch."""
    if any(v in network.constants for v in second.node.inputs):
        return "its other operand is a constant"
    shapes = [network.shape(v) for v in second.node.inputs]
    known = [s[1:] for s in shapes if s is not None]
    if len(known) == 2 and known[0] != known[1]:
        return "one operand is broadcast"
    return ""


def later(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Where two convolutions feed a sum, the one that comes later in the graph takes it."""
    for value in second.reads:
        rival = network.writer.get(value)
        if (
            rival is not None and rival is not first and rival.kind in LINEAR
            and rival.node.index > first.node.index
            and not sole(network, rival, second) and not plain(network, rival, second)
        ):  # fmt: skip
            return f'"{rival.name}", which comes later, takes it'
    return ""


def integers(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Both layers compute on integers."""
    after = network.following(second)
    narrow = first.narrow or (bool(after) and all(a.kind == "QuantizeLinear" for a in after))
    return "" if first.int8 and narrow else "the two do not both run in INT8"


def zero_padding(network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """A Pad by constant zeros."""
    mode = first.node.attributes.get("mode", "constant")
    known = all(v in network.constants for v in first.node.inputs[1:] if v)
    return "" if mode == "constant" and known and len(first.node.inputs) < 3 else "it does not pad with zeros"


def small(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Operands of pointwise layers are tensors of one shape, or constants of one element."""
    size = network.count(second.writes[0]) if second.writes else None
    for value in second.node.inputs:
        if value in network.constants and (network.count(value) or 1) > 1:
            return f'its constant "{value}" has more than one element'
        other = network.count(value)
        if value and value not in network.constants and None not in {size, other} and size != other:
            return f'"{value}" is broadcast'
    if len(first.ops) + len(second.ops) > _LONGEST:
        return f"a chain has at most {_LONGEST} operations"
    return ""


# --- operators --------------------------------------------------------------------------------------------------------

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
#: Products with weights: TensorRT makes them convolutions where their weights are constant.
LINEAR = CONVOLUTIONS | {"Gemm", "MatMul"}
ACTIVATIONS = frozenset({
    "Relu", "Clip", "Gelu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "HardSigmoid",
    "ThresholdedRelu", "HardSwish", "Mish", "PRelu",
})  # fmt: skip
SUMS = frozenset({"Add", "Sum", "Min", "Max"})
SCALINGS = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div"})
POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool"})
REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})
SHUFFLES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"})
POINTWISE_OPS = ACTIVATIONS | frozenset({
    "PointWise", "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Exp", "Log", "Sqrt", "Reciprocal", "Abs",
    "Neg", "Ceil", "Floor", "Erf", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Sign", "Round", "Not",
    "And", "Or", "Xor", "Equal", "Greater", "Less", "Where", "BatchNormalization",
})  # fmt: skip
#: Operations in one pointwise layer; the documentation says that there is a limit, and not which.
_LONGEST = 64


def of(*names: str) -> frozenset[str]:
    """Operators."""
    return frozenset(names)


# --- rules ------------------------------------------------------------------------------------------------------------

#: Scales into the weights before them.
SCALES = (
    FusionRule("ConvScaleFusion", CONVOLUTIONS | {"Gemm"}, SCALINGS, f"{CATALOG}: Convolution and Scale",
               (sole, constant_weights, plain, per_channel)),
    FusionRule("MatMulBiasFusion", of("MatMul"), of("Add"), f"{CATALOG}: FullyConnected, Convolution and Scale",
               (sole, constant_weights, plain, constant_operand)),
    FusionRule("ScaleScaleFusion", of("BatchNormalization"), of("BatchNormalization"),
               "NVIDIA/TensorRT issue 252, log of TensorRT 6: Fusing [Scale] with [Scale]", (sole, per_channel)),
)  # fmt: skip

#: Activations and sums into the layer before them.
VERTICAL = (
    FusionRule("PaddingConvFusion", of("Pad"), CONVOLUTIONS, f"{CATALOG}: Padding and Convolution/Deconvolution",
               (sole, zero_padding)),
    FusionRule("ConvEltwiseSumFusion", LINEAR, SUMS, f"{CATALOG}: Convolution and ElementWise Operation",
               (sole, constant_weights, plain, whole_sum, later)),
    FusionRule("ConvReluFusion", LINEAR, of("Relu", "Clip"),
               f"{CATALOG}: Convolution and ReLU Activation, Clip; {LOG_5}", (sole, constant_weights, inactive)),
    FusionRule("ConvGeluFusion", LINEAR, of("Gelu"), f"{CATALOG}: Convolution and GELU Activation",
               (sole, constant_weights, inactive, half)),
    FusionRule("ConvPoolFusion", CONVOLUTIONS, of("MaxPool", "AveragePool"), f"{CATALOG}: Convolution and Pooling",
               (sole, integers)),
    FusionRule("ReluReluFusion", of("Relu"), of("Relu"), f"{CATALOG}: ReLU and ReLU Activation"),
    FusionRule("ScaleActivationFusion", of("BatchNormalization"), ACTIVATIONS,
               f"{CATALOG}: Scale and Activation; {LOG_8}", (sole, inactive)),
    FusionRule("LogSoftmaxFusion", of("Softmax"), of("Log"), f"{CATALOG}: SoftMax and Log"),
    FusionRule("SoftmaxTopKFusion", of("Softmax", "LogSoftmax"), of("TopK", "ArgMax"),
               f"{CATALOG}: SoftMax and TopK; a recorded log of TensorRT 10.16 (LogSoftmaxTopKFusion)"),
)  # fmt: skip

#: Chains of what computes each element for itself.
POINTWISE = (
    FusionRule(
        "PointWiseFusion", POINTWISE_OPS, POINTWISE_OPS, f"{CATALOG}: PointWise Fusion", (sole, small)
    ),
)

#: Views of memory one after the other.
VIEWS = (
    FusionRule("ShuffleShuffleFusion", SHUFFLES, SHUFFLES, f"{CATALOG}: Shuffle and Shuffle; {LOG_8}"),
    FusionRule("ShuffleReduceFusion", SHUFFLES, REDUCTIONS,
               f"{CATALOG}: Shuffle and Reduce", (sole, permuting)),
)  # fmt: skip

#: What passes do that is not the fusion of a pair, by the name that stands in the log or beside a layer.
OTHERS = {
    "constant folding": f"{GUIDE}: precomputing constants",
    "dead-layer removal": f"{GUIDE}: eliminating dead computations",
    "identity removal": f"{CATALOG}: Scale (adding 0, multiplying by 1, and powers to the 1); {GUIDE}",
    "tensor merging": f"{GUIDE}: combining layers with equal inputs and parameters; {LOG_5}, Merging layers",
    "concat removal": f"{GUIDE}: eliminating concatenations; {LOG_5}, Eliminating concatenation",
    "slice removal": "logs of TensorRT 8 and later: After slice removal",
    "VanillaSwapWithFollowingQ": f"{PAIRS}; {LOG_8}",
    "VanillaSwapWithPrecedingDQ": PAIRS,
    "HorizontalMergeQNodes": f"{LOG_8}: Eliminating ... which duplicates (Q) ...",
    "ConstWeightsFusion": f"{PAIRS}; {LOG_8}",
    "QuantizeDoubleInputNodes": f"{PAIRS}; {LOG_8}",
    "QuantizeSingleInputNodes": PAIRS,
    "ReduceToPooling": f"{CATALOG}: Reduce that performs average pooling over height and width",
    "reduction fusion": f"{CATALOG}: Reduction Operation Fusions",
}  # fmt: skip


def source(name: str) -> str:
    """Where a rule is documented, or which log shows it."""
    for rule in (*SCALES, *VERTICAL, *POINTWISE, *VIEWS):
        if rule.name == name:
            return rule.source
    return OTHERS.get(name, CATALOG)


def between(first: str, second: str) -> tuple[FusionRule, ...]:
    """The rules that join two operators."""
    rules = (*SCALES, *VERTICAL, *POINTWISE, *VIEWS)
    return tuple(r for r in rules if first in r.first and second in r.second)
