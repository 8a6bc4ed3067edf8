"""The rules of pairs of layers as data: what is joined with what, under which conditions, and who says so.

A rule is a name, the operators before and after, its source, and functions that say what hinders it. Adding one takes
a line or two in ``SCALES``, ``VERTICAL`` or ``POINTWISE``; the first rule that fits counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from rtlab.backends.classic.network import Network, NetworkLayer, check_sole_reader

#: Why a rule does not hold for two neighbours, the one that writes first; empty where nothing is in the way.
FusionCheck = Callable[[Network, NetworkLayer, NetworkLayer], str]

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
    first: AbstractSet[str]
    second: AbstractSet[str]
    source: str
    checks: tuple[FusionCheck, ...] = (check_sole_reader,)

    def find_obstacle(self, network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
        """Why it does not hold; empty where it does."""
        return next((why for h in self.checks if (why := h(network, first, second))), "")


# --- conditions -------------------------------------------------------------------------------------------------------


def check_constant_weights(network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has weights that are constant."""
    if first.kind in CONVOLUTIONS or first.int8:
        return ""
    return (
        "" if any(v in network.constants for v in first.node.inputs[1:2]) else "its weights are not constant"
    )


def check_unfused(_network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has no activation and no sum of its own yet."""
    blocking_op = next((o for o in first.ops if o in ACTIVATIONS or o in SUMS or o in POOLS), "")
    return f"the layer before already ends with {blocking_op}" if blocking_op else ""


def check_no_activation(_network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """The layer before has no activation of its own yet; a sum it may have."""
    blocking_op = next((o for o in first.ops if o in ACTIVATIONS), "")
    return f"the layer before already ends with {blocking_op}" if blocking_op else ""


def check_per_channel(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """A scale whose numbers are constant: one for all, or one for each channel."""
    if second.kind == "BatchNormalization":
        is_constant = all(v in network.constants for v in second.node.inputs[1:5] if v)
        is_constant = is_constant and not second.node.attributes.get("training_mode")
        return "" if is_constant else "its numbers are not constant"
    others = [v for v in second.node.inputs if v not in first.writes]
    if not others or not all(v in network.constants for v in others):
        return "its other operand is not constant"
    shape = network.get_shape(others[0]) or ()
    wide_axes = [(len(shape) - i, d) for i, d in enumerate(shape) if d != 1]
    rank = len(network.get_shape(first.writes[0]) or ())
    # Counted from the back, the channel of N×C×H×W is the third; of N×C the last.
    if not wide_axes or (len(wide_axes) == 1 and wide_axes[0][0] == (rank - 1 if rank else 3)):
        return ""
    return "its numbers are neither one for all nor one for each channel"


def check_constant_operand(network: Network, _: NetworkLayer, second: NetworkLayer) -> str:
    """One operand of the second layer is a constant."""
    has_constant = any(v in network.constants for v in second.node.inputs)
    return "" if has_constant else "its other operand is not constant"


def check_same_shape(network: Network, _: NetworkLayer, second: NetworkLayer) -> str:
    """Both operands of an elementwise operation are tensors of one shape, perhaps but for the batch."""
    if any(v in network.constants for v in second.node.inputs):
        return "its other operand is a constant"
    shapes = [network.get_shape(v) for v in second.node.inputs]
    shapes_without_batch = [s[1:] for s in shapes if s is not None]
    if len(shapes_without_batch) == 2 and shapes_without_batch[0] != shapes_without_batch[1]:
        return "one operand is broadcast"
    return ""


def check_last_conv(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Where two convolutions feed a sum, the one that comes later in the graph takes it."""
    for value in second.reads:
        rival = network.writer.get(value)
        if (
            rival is not None and rival is not first and rival.kind in LINEAR
            and rival.node.index > first.node.index
            and not check_sole_reader(network, rival, second) and not check_unfused(network, rival, second)
        ):  # fmt: skip
            return f'"{rival.name}", which comes later, takes it'
    return ""


def check_int8(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Both layers compute on integers."""
    after = network.get_consumers(second)
    is_int8_output = first.narrow or (bool(after) and all(a.kind == "QuantizeLinear" for a in after))
    return "" if first.int8 and is_int8_output else "the two do not both run in INT8"


def check_zero_padding(network: Network, first: NetworkLayer, _: NetworkLayer) -> str:
    """A Pad by constant zeros."""
    mode = first.node.attributes.get("mode", "constant")
    is_constant = all(v in network.constants for v in first.node.inputs[1:] if v)
    pads_zeros = mode == "constant" and is_constant and len(first.node.inputs) < 3
    return "" if pads_zeros else "it does not pad with zeros"


def check_pointwise(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Operands of pointwise layers are tensors of one shape, or constants of one element."""
    size = _count_elements(network, second.writes[0])
    for value in filter(None, second.node.inputs):
        other = _count_elements(network, value)
        if value in network.constants and (other or 1) > 1:
            return f'its constant "{value}" has more than one element'
        if value not in network.constants and None not in {size, other} and size != other:
            return f'"{value}" is broadcast'
    if len(first.ops) + len(second.ops) > _LONGEST:
        return f"a chain has at most {_LONGEST} operations"
    return ""


def _count_elements(network: Network, value: str) -> int | None:
    """How many elements a value has; None where that is not known."""
    shape = network.get_shape(value)
    return None if shape is None or not all(isinstance(d, int) for d in shape) else math.prod(shape)  # type: ignore[arg-type]


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
SHUFFLES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"})
POINTWISE_OPS = ACTIVATIONS | frozenset({
    "PointWise", "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Exp", "Log", "Sqrt", "Reciprocal", "Abs",
    "Neg", "Ceil", "Floor", "Erf", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Sign", "Round", "Not",
    "And", "Or", "Xor", "Equal", "Greater", "Less", "Where", "BatchNormalization",
})  # fmt: skip
#: Operations in one pointwise layer; the documentation says that there is a limit, and not which.
_LONGEST = 64


# --- rules ------------------------------------------------------------------------------------------------------------

#: Scales into the weights before them.
SCALES = (
    FusionRule("ConvScaleFusion", CONVOLUTIONS | {"Gemm"}, SCALINGS, f"{CATALOG}: Convolution and Scale",
               (check_sole_reader, check_constant_weights, check_unfused, check_per_channel)),
    FusionRule("MatMulBiasFusion", {"MatMul"}, {"Add"}, f"{CATALOG}: FullyConnected, Convolution and Scale",
               (check_sole_reader, check_constant_weights, check_unfused, check_constant_operand)),
    FusionRule("ScaleScaleFusion", {"BatchNormalization"}, {"BatchNormalization"},
               "NVIDIA/TensorRT issue 252, log of TensorRT 6: Fusing [Scale] with [Scale]",
               (check_sole_reader, check_per_channel)),
)  # fmt: skip

#: Activations and sums into the layer before them.
VERTICAL = (
    FusionRule("PaddingConvFusion", {"Pad"}, CONVOLUTIONS, f"{CATALOG}: Padding and Convolution/Deconvolution",
               (check_sole_reader, check_zero_padding)),
    FusionRule("ConvEltwiseSumFusion", LINEAR, SUMS, f"{CATALOG}: Convolution and ElementWise Operation",
               (check_sole_reader, check_constant_weights, check_unfused, check_same_shape, check_last_conv)),
    FusionRule("ConvReluFusion", LINEAR, {"Relu", "Clip"},
               f"{CATALOG}: Convolution and ReLU Activation, Clip; {LOG_5}",
               (check_sole_reader, check_constant_weights, check_no_activation)),
    FusionRule("ReluReluFusion", {"Relu"}, {"Relu"}, f"{CATALOG}: ReLU and ReLU Activation"),
    FusionRule("ScaleActivationFusion", {"BatchNormalization"}, ACTIVATIONS,
               f"{CATALOG}: Scale and Activation; {LOG_8}", (check_sole_reader, check_no_activation)),
    FusionRule("LogSoftmaxFusion", {"Softmax"}, {"Log"}, f"{CATALOG}: SoftMax and Log"),
    FusionRule("SoftmaxTopKFusion", {"Softmax", "LogSoftmax"}, {"TopK", "ArgMax"},
               f"{CATALOG}: SoftMax and TopK; a recorded log of TensorRT 10.16 (LogSoftmaxTopKFusion)"),
)  # fmt: skip

#: Pools into the layer on integers before them.
POOLING = (
    FusionRule("ConvPoolFusion", CONVOLUTIONS, {"MaxPool", "AveragePool"}, f"{CATALOG}: Convolution and Pooling",
               (check_sole_reader, check_int8)),
)  # fmt: skip

#: Chains of what computes each element for itself.
POINTWISE = (
    FusionRule(
        "PointWiseFusion",
        POINTWISE_OPS,
        POINTWISE_OPS,
        f"{CATALOG}: PointWise Fusion",
        (check_sole_reader, check_pointwise),
    ),
)

#: Views of memory one after the other.
VIEWS = (
    FusionRule("ShuffleShuffleFusion", SHUFFLES, SHUFFLES, f"{CATALOG}: Shuffle and Shuffle; {LOG_8}"),
)  # fmt: skip

#: What passes do that is not the fusion of a pair, by the name that stands in the log or beside a layer.
OTHERS = {
    "constant folding": f"{GUIDE}: precomputing constants",
    "dead-layer removal": f"{GUIDE}: eliminating dead computations",
    "identity removal": f"{CATALOG}: Scale (adding 0, multiplying by 1, and powers to the 1); {GUIDE}",
    "tensor merging": f"{GUIDE}: combining layers with equal inputs and parameters; {LOG_5}, Merging layers",
    "concat removal": f"{GUIDE}: eliminating concatenations; {LOG_5}, Eliminating concatenation",
    "VanillaSwapWithFollowingQ": f"{PAIRS}; {LOG_8}",
    "VanillaSwapWithPrecedingDQ": PAIRS,
    "HorizontalMergeQNodes": f"{LOG_8}: Eliminating ... which duplicates (Q) ...",
    "ConstWeightsFusion": f"{PAIRS}; {LOG_8}",
    "QuantizeDoubleInputNodes": f"{PAIRS}; {LOG_8}",
    "QuantizeSingleInputNodes": PAIRS,
    "ReduceToPooling": f"{CATALOG}: Reduce that performs average pooling over height and width",
}  # fmt: skip


_RULES = (*SCALES, *VERTICAL, *POOLING, *POINTWISE, *VIEWS)


def get_source(name: str) -> str:
    """Where a rule is documented, or which log shows it."""
    return next((rule.source for rule in _RULES if rule.name == name), OTHERS.get(name, CATALOG))


def find_rules(first: str, second: str) -> tuple[FusionRule, ...]:
    """The rules that join two operators."""
    return tuple(rule for rule in _RULES if first in rule.first and second in rule.second)
