"""Makes the corpus: engines written by hand, and what compilers print here. ``python tests/corpus/make.py [--builds]``.

The engines are of no GPU. They are layer lists as TensorRT's inspector and trtexec write them, with shapes and times so
small that each answer is arithmetic by hand; the times of the largest follow from its shapes. ``--builds`` compiles
samples with TensorRT-RTX too, runs them on ONNX Runtime, and keeps what those print.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
BATCH, RUNS = 4, 100
#: The network that all of the written engines are of: by the name of a value, its shape.
SHAPES = {
    "image": (BATCH, 3, 16, 16), "stem": (BATCH, 16, 16, 16), "pooled": (BATCH, 16, 8, 8), "inner": (BATCH, 16, 8, 8),
    "joined": (BATCH, 16, 8, 8), "means": (BATCH, 16, 1, 1), "scores": (BATCH, 10), "classes": (BATCH, 10),
}  # fmt: skip
#: The words of a layout, by its type.
LINEAR = {
    "fp32": "Row major linear FP32",
    "fp16": "Row major linear FP16 format",
    "int8": "Row major Int8 format",
}
PACKED = {
    "fp16": "Channel major FP16 format where channel % 8 == 0",
    "int8": "Thirty-two wide channel vectorized row major Int8 format",
    "fp32": "Row major linear FP32",
}
_MANY = {"fp32": "Float", "fp16": "Half", "int8": "Int8"}


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of an engine: its name, its type, and the words of its layout."""

    name: str
    dtype: str
    words: str
    shape: tuple[int, ...] = ()

    def document(self, *, old: bool) -> dict[str, Any]:
        """As the inspector writes it; before TensorRT 8.6, and by Myelin, without a location."""
        place = {} if old or self.words in _MANY.values() else {"Location": "Device"}
        shape = self.shape or SHAPES[self.name]
        return {"Name": self.name, **place, "Dimensions": [*shape], "Format/Datatype": self.words}


@dataclasses.dataclass(frozen=True)
class Step:
    """A layer: the nodes that it runs, its microseconds, and what else the inspector tells of it."""

    kind: str
    nodes: tuple[str, ...]
    reads: tuple[Value, ...]
    writes: Value | None
    microseconds: float
    told: Mapping[str, Any]
    name: str = ""
    tactic: str = ""
    stream: int = 0

    @property
    def title(self) -> str:
        """Its name, as TensorRT joins those of nodes."""
        return self.name or " + ".join(self.nodes)


def value(name: str, dtype: str, *, packed: bool = False) -> Value:
    """A tensor of the network in a type, in the layout that kernels of that type like or row by row."""
    return Value(name, dtype, (PACKED if packed else LINEAR)[dtype])


def kernel(
    channels: int,
    maps: int,
    dtype: str,
    *,
    relu: bool = True,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
) -> dict[str, Any]:
    """What is told of a convolution whose border keeps the size, but for the stride."""
    border = [size // 2] * 2
    return {
        "ParameterType": "Convolution", "Kernel": [size] * 2, "PaddingMode": "kEXPLICIT_ROUND_DOWN",
        "PrePadding": border, "PostPadding": border, "Stride": [stride] * 2, "Dilation": [1, 1], "OutMaps": maps,
        "Groups": groups, "Weights": {"Type": _MANY[dtype], "Count": maps * channels // groups * size**2},
        "Bias": {"Type": "Float" if dtype == "int8" else _MANY[dtype], "Count": maps},
        "HasSparseWeights": 0, "Activation": "RELU" if relu else "NONE",
    }  # fmt: skip


POOL = {
    "ParameterType": "Pooling", "PoolingType": "MAX", "WindowSize": [2, 2], "PrePadding": [0, 0],
    "PostPadding": [0, 0], "Stride": [2, 2],
}  # fmt: skip
MEANS = {**POOL, "PoolingType": "AVERAGE", "WindowSize": [8, 8], "Stride": [1, 1]}
SOFTMAX = {"ParameterType": "SoftMax", "Axes": 2}
REFORMAT = {"ParameterType": "Reformat", "Origin": "REFORMAT"}


def fully(dtype: str) -> dict[str, Any]:
    """What is told of the matrix product: sixteen numbers in, ten out."""
    return kernel(16, 10, dtype, relu=False, size=1)


def fp32() -> list[Step]:
    """Seven layers of TensorRT 8.4, which knows neither labels nor places: 100 microseconds."""
    v = {n: value(n, "fp32") for n in SHAPES}
    return [
        Step("CaskConvolution", ("conv1", "relu1"), (v["image"],), v["stem"], 32, kernel(3, 16, "fp32")),
        Step("CaskPooling", ("pool",), (v["stem"],), v["pooled"], 8, POOL),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 20, kernel(16, 16, "fp32")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 24,
             kernel(16, 16, "fp32")),
        Step("CaskPooling", ("mean",), (v["joined"],), v["means"], 6, MEANS),
        Step("CaskGemmConvolution", ("fc",), (v["means"],), v["scores"], 6, fully("fp32")),
        Step("CudaSoftMax", ("softmax",), (v["scores"],), v["classes"], 4, SOFTMAX),
    ]  # fmt: skip


def fp16() -> list[Step]:
    """The same in FP16 by TensorRT 10: two copies at the ends, 72 microseconds."""
    v = {n: value(n, "fp16", packed=n not in {"scores", "classes"}) for n in SHAPES}
    image, classes = value("image", "fp32"), value("classes", "fp32")
    first = dataclasses.replace(
        v["image"], name="Reformatted Input Tensor 0 to conv1 + relu1", shape=SHAPES["image"]
    )
    last = dataclasses.replace(
        v["classes"], name="Reformatted Output Tensor 0 to softmax", shape=SHAPES["classes"]
    )
    return [
        Step("Reformat", (), (image,), first, 5, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to conv1 + relu1"),
        Step("CaskConvolution", ("conv1", "relu1"), (first,), v["stem"], 20, kernel(3, 16, "fp16")),
        Step("CaskPooling", ("pool",), (v["stem"],), v["pooled"], 5, POOL),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 12, kernel(16, 16, "fp16")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 14,
             kernel(16, 16, "fp16")),
        Step("CaskPooling", ("mean",), (v["joined"],), v["means"], 4, MEANS),
        Step("CaskGemmConvolution", ("fc",), (v["means"],), v["scores"], 5, fully("fp16")),
        Step("CudaSoftMax", ("softmax",), (v["scores"],), last, 4, SOFTMAX),
        Step("Reformat", (), (last,), classes, 3, REFORMAT,
             name="Reformatting CopyNode for Output Tensor 0 to softmax"),
    ]  # fmt: skip


def int8() -> list[Step]:
    """In INT8 where the pooling stayed in FP16, so that it stands between two copies: 88 microseconds."""
    v = {n: value(n, "int8", packed=True) for n in SHAPES}
    image, means = value("image", "fp32"), value("means", "fp32")
    first = dataclasses.replace(
        v["image"], name="Reformatted Input Tensor 0 to conv1 + relu1", shape=SHAPES["image"]
    )
    wide = Value("Reformatted Input Tensor 0 to pool", "fp16", PACKED["fp16"], SHAPES["stem"])
    kept = Value("Reformatted Output Tensor 0 to pool", "fp16", PACKED["fp16"], SHAPES["pooled"])
    scores, classes = value("scores", "fp32"), value("classes", "fp32")
    return [
        Step("Reformat", (), (image,), first, 6, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to conv1 + relu1"),
        Step("CaskConvolution", ("conv1", "relu1"), (first,), v["stem"], 18, kernel(3, 16, "int8")),
        Step("Reformat", (), (v["stem"],), wide, 9, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to pool"),
        Step("CaskPooling", ("pool",), (wide,), kept, 5, POOL),
        Step("Reformat", (), (kept,), v["pooled"], 7, REFORMAT,
             name="Reformatting CopyNode for Output Tensor 0 to pool"),
        Step("CaskConvolution", ("conv2", "relu2"), (v["pooled"],), v["inner"], 10, kernel(16, 16, "int8")),
        Step("CaskConvolution", ("conv3", "add", "relu3"), (v["inner"], v["pooled"]), v["joined"], 12,
             kernel(16, 16, "int8")),
        Step("CaskPooling", ("mean",), (v["joined"],), means, 8, MEANS),
        Step("CaskGemmConvolution", ("fc",), (means,), scores, 8, fully("fp32")),
        Step("CudaSoftMax", ("softmax",), (scores,), classes, 5, SOFTMAX),
    ]  # fmt: skip


#: Kernels: on tensor cores in INT8 and FP16, four bytes at once on CUDA cores, and depthwise.
IMMA = "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_vect_c_32kcrs_vect_c_32_tilesize64x64x64_tensor16x8x32"
DP4A = "ampere_fp32_icudnn_int8x4_128x32_relu_small_nn_v1"
HMMA = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize{}x{}x32_stage3_tensor16x8x16"
DEPTHWISE = "sm50_xmma_convolution_depthwiseHMMA_FP16NHWCx8_TR3_TS3_STRIDEH{0}_STRIDEW{0}"
CHW4 = "Four wide channel vectorized row major Int8 format"


def residual() -> list[Step]:
    """A residual network with Q/DQ pairs by TensorRT 10, batch 8: 200 microseconds, 11 of them on a second stream.

    The pooling has no pair before it, the first block's shortcut has one and the other two have none, so that they stay
    in FP16; 48 channels fill no vectors of 32, and one convolution wants vectors of 4.
    """

    def at(name: str, dtype: str, channels: int, size: int, words: str = "") -> Value:
        return Value(name, dtype, words or PACKED[dtype], (8, channels, size, size))

    def conv(name: str, more: str, reads: tuple[Value, ...], writes: Value, cost: float, **told: Any) -> Step:
        weight, (_, channels, *_), maps = f"{name}.weight", reads[0].shape, writes.shape[1]
        nodes = (f"{name}_weight_q", name, *more.split())
        tactic, stream = told.pop("tactic", IMMA), told.pop("stream", 0)
        told = kernel(channels, maps, "int8", relu="relu" in more, **told)
        title = " + ".join((weight, *nodes))
        return Step("CaskConvolution", nodes, reads, writes, cost, told, title, tactic, stream)

    def quantize(name: str, reads: Value, writes: Value, cost: float) -> Step:
        return Step("Reformat", (name,), (reads,), writes, cost, {**REFORMAT, "Origin": "QDQ"})

    image, image_q = at("image", "fp32", 3, 32), at("image_q", "int8", 3, 32, CHW4)
    stem, pooled, pooled_q = (
        at("stem", "fp32", 32, 32),
        at("pooled", "fp32", 32, 16),
        at("pooled_q", "int8", 32, 16),
    )
    a_q, one_q, c_q = at("a_q", "int8", 32, 16), at("one_q", "int8", 32, 16), at("c_q", "int8", 48, 8)
    down, two, two_q = at("down", "fp16", 48, 8), at("two", "fp16", 48, 8), at("two_q", "int8", 48, 8)
    e_q, three, means = at("e_q", "int8", 48, 8), at("three", "fp16", 48, 8), at("means", "fp16", 48, 1)
    fours = at("Reformatted Input Tensor 0 to c.weight + c_weight_q + c + c_relu", "int8", 32, 16, CHW4)
    region = "{ForeignNode[fc.weight...softmax]}"
    flat = Value(f"Reformatted Input Tensor 0 to {region}", "fp16", LINEAR["fp16"], (8, 48, 1, 1))
    half, scores = (dataclasses.replace(flat, words="Half", shape=(8, 48)),
                    Value("__myln_k_arg__bb1_2_myl3", "fp16", "Half", (8, 10)))  # fmt: skip
    return [
        quantize("image_quantize", image, image_q, 8),
        conv("stem", "stem_relu", (image_q,), stem, 40, tactic=DP4A),
        Step("CaskPooling", ("pool",), (stem,), pooled, 18, POOL),
        quantize("pooled_quantize", pooled, pooled_q, 6),
        conv("a", "a_relu", (pooled_q,), a_q, 14),
        conv("b", "add1 relu1", (a_q, pooled_q), one_q, 16),
        Step("Reformat", (), (one_q,), fours, 5, REFORMAT,
             name="Reformatting CopyNode for Input Tensor 0 to c.weight + c_weight_q + c + c_relu"),
        conv("c", "c_relu", (fours,), c_q, 13, stride=2),
        conv("down", "", (one_q,), down, 11, size=1, stride=2, stream=1),
        conv("d", "add2 relu2", (c_q, down), two, 15),
        quantize("two_quantize", two, two_q, 4),
        conv("e", "e_relu", (two_q,), e_q, 12),
        conv("f", "add3 relu3", (e_q, two), three, 14),
        Step("CaskPooling", ("mean",), (three,), means, 5, MEANS),
        Step("NoOp", (), (means,), flat, 0, {}, name=f"Reformatting CopyNode for Input Tensor 0 to {region}"),
        Step("shape_call", (), (), None, 2, {}, name="dummy_shape_call__mye88_0_myl3_0"),
        Step("gemm", ("fc",), (half, Value("__mye71_dconst", "fp16", "Half", (48, 10))), scores, 12, {},
             name="fc_myl3_1", tactic="sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_tensor16x8x16"),
        Step("kgen", ("softmax",), (scores,), Value("classes", "fp32", "Float", (8, 10)), 5, {},
             name="__myl_MaxrSubExpSumDivMul_myl3_2", tactic="__myl_MaxrSubExpSumDivMul_0x5f1c"),
    ]  # fmt: skip


#: Of the mobile network: how much wider a block is inside, its channels, how many blocks, the stride of the first.
BLOCKS = (
    (1, 16, 1, 1),
    (4, 24, 2, 2),
    (4, 32, 3, 2),
    (4, 48, 4, 2),
    (4, 64, 3, 1),
    (4, 96, 3, 2),
    (4, 160, 1, 1),
)
SIDE, HEAD, CLASSES = 96, 640, 1000


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution of the mobile network: its path, sizes, and whether a Clip or the sum with a shortcut follows."""

    path: str
    reads: str
    channels: int
    maps: int
    size: int
    side: int
    stride: int = 1
    groups: int = 1
    clip: bool = True
    shortcut: str = ""

    @property
    def writes(self) -> str:
        """The value behind all of it, as PyTorch's exporter names it."""
        last = f"{self.path}/Clip" if self.clip else f"{self.path}/Conv"
        return f"{self.path.rpartition('/')[0]}/Add_output_0" if self.shortcut else f"{last}_output_0"

    @property
    def nodes(self) -> tuple[str, ...]:
        """What runs as one layer."""
        more = (f"{self.path}/Clip",) if self.clip else ()
        return (
            f"{self.path}/Conv",
            *more,
            *((f"{self.path.rpartition('/')[0]}/Add",) if self.shortcut else ()),
        )


def mobile_convs() -> list[Conv]:
    """Blocks of an expansion, a depthwise convolution and a projection, with a shortcut where nothing changes size."""
    side = SIDE // 2
    found = [Conv("/stem/stem.0", "input", 3, 16, 3, side, 2)]
    blocks = [
        (expand, width, stride if i == 0 else 1) for expand, width, n, stride in BLOCKS for i in range(n)
    ]
    for i, (expand, width, stride) in enumerate(blocks):
        at, channels, block = found[-1].writes, found[-1].maps, f"/trunk/trunk.{i}"
        wide = expand * channels
        if expand > 1:
            found.append(Conv(f"{block}/expand", at, channels, wide, 1, side))
        side //= stride
        found.append(Conv(f"{block}/depthwise", found[-1].writes, wide, wide, 3, side, stride, wide))
        shortcut = at if stride == 1 and channels == width else ""
        found.append(
            Conv(f"{block}/project", found[-1].writes, wide, width, 1, side, clip=False, shortcut=shortcut)
        )
    return [*found, Conv("/head/head.0", found[-1].writes, found[-1].maps, HEAD, 1, side)]


def mobile() -> list[Step]:
    """The mobile network in FP16 by TensorRT 10, batch 1, its end in Myelin; the times follow from the shapes."""
    shapes = {"input": (1, 3, SIDE, SIDE)}
    copied = "Reformatted Input Tensor 0 to /stem/stem.0/Conv + /stem/stem.0/Clip"
    fours = "Channel major FP16 format where channel % 4 == 0"
    first = Value(copied, "fp16", fours, shapes["input"])
    given = Value("input", "fp32", LINEAR["fp32"], shapes["input"])
    name = copied.replace("Reformatted", "Reformatting CopyNode for")
    steps = [Step("Reformat", (), (given,), first, 6, REFORMAT, name=name)]
    for c in mobile_convs():
        shapes[c.writes] = (1, c.maps, c.side, c.side)
        source = first if c.reads == "input" else Value(c.reads, "fp16", PACKED["fp16"], shapes[c.reads])
        more = (Value(c.shortcut, "fp16", PACKED["fp16"], shapes[c.shortcut]),) if c.shortcut else ()
        told = {
            **kernel(c.channels, c.maps, "fp16", size=c.size, stride=c.stride, groups=c.groups),
            "Activation": "NONE",
        }
        told |= {"Activation": "CLIPPED_RELU", "ParameterSubType": "[0.000000,6.000000]"} if c.clip else {}
        moved = 2 * (math.prod(source.shape) + math.prod(shapes[c.writes]) + told["Weights"]["Count"])
        macs = c.side**2 * told["Weights"]["Count"]
        tile = HMMA.format(128 if c.side > 12 else 64, 32 if c.maps < 64 else 64)
        steps.append(Step(
            "CaskGemmConvolution" if c.size == c.stride == 1 else "CaskConvolution", c.nodes, (source, *more),
            Value(c.writes, "fp16", PACKED["fp16"], shapes[c.writes]), round(4 + moved / 1e5 + macs / 2e6) / 2,
            told, tactic=DEPTHWISE.format(c.stride) if c.groups > 1 else tile,
        ))  # fmt: skip
    last, side = steps[-1].writes, SIDE // 32
    region = "{ForeignNode[classifier.1.weight.../Softmax]}"
    means = Value("/GlobalAveragePool_output_0", "fp16", PACKED["fp16"], (1, HEAD, 1, 1))
    flat = Value(f"Reformatted Input Tensor 0 to {region}", "fp16", LINEAR["fp16"], means.shape)
    half = dataclasses.replace(flat, words="Half", shape=(1, HEAD))
    scores, shares = (Value(f"__myln_k_arg__bb1_{i}_myl7", "fp16", "Half", (1, CLASSES)) for i in (3, 5))
    constants = tuple(
        Value(n, "fp16", "Half", s)
        for n, s in (
            ("__mye40_dconst", (HEAD, CLASSES)),
            ("classifier_1_bias _ ONNXTRT_Broadcast_constantHalf", (1, CLASSES)),
        )
    )
    return [
        *steps,
        Step("CaskPooling", ("/GlobalAveragePool",), (last,), means, 4, {**MEANS, "WindowSize": [side, side]},
             tactic="sm50_xmma_pooling_fw_4d_FP16FP32NHWC_Average_FastDiv_CAlign4"),
        Step("NoOp", (), (means,), flat, 0, {}, name=f"Reformatting CopyNode for Input Tensor 0 to {region}"),
        Step("shape_call", (), (), None, 2, {}, name="dummy_shape_call__mye52_0_myl7_0"),
        Step("gemm", ("/classifier/classifier.1/Gemm",), (half, *constants), scores, 9, {},
             name="/classifier/classifier_1/Gemm_myl7_1",
             tactic="sm50_xmma_cublas_gemvx_f16f16_f32_f32_tn_n_int32_unit_n_launch_param4x32x32_strided_unit_stride"),
        Step("kgen", ("/Softmax",), (scores,), shares, 3, {}, name="__myl_MaxrSubExpSum_myl7_2",
             tactic="__myl_MaxrSubExpSum_0x41d7"),
        Step("kgen", ("/Softmax",), (shares,), Value("output", "fp32", "Float", (1, CLASSES)), 3, {},
             name="__myl_DivMulCast_myl7_3", tactic="__myl_DivMulCast_0x93aa"),
    ]  # fmt: skip


def layers(steps: Sequence[Step], *, old: bool) -> dict[str, Any]:
    """The document of the inspector; TensorRT 10 tells the nodes and the stream of each layer too."""
    entries = []
    for i, step in enumerate(steps):
        more = {} if old else {
            "StreamId": step.stream, "Metadata": "\x1e".join(f"[ONNX Layer: {n}]" for n in step.nodes),
        }  # fmt: skip
        entries.append({
            "Name": step.title, "LayerType": step.kind, "Inputs": [v.document(old=old) for v in step.reads],
            "Outputs": [step.writes.document(old=old)] if step.writes else [],
            **step.told, "TacticName": step.tactic, "TacticValue": f"0x{i + 1:016x}", **more,
        })  # fmt: skip
    return {"Layers": entries, "Bindings": [steps[0].reads[0].name, steps[-1].writes.name]}


def profile(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Times of a hundred runs, all alike."""
    whole = sum(s.microseconds for s in steps)
    return [{"count": RUNS}] + [
        {
            "name": s.title, "timeMs": s.microseconds * RUNS / 1e3, "averageMs": s.microseconds / 1e3,
            "medianMs": s.microseconds / 1e3, "percentage": 100 * s.microseconds / whole,
        }
        for s in steps
    ]  # fmt: skip


def times(steps: Sequence[Step]) -> list[dict[str, float]]:
    """Five inferences; whole ones take four fifths of what their layers take one by one."""
    whole = 0.8e-3 * sum(s.microseconds for s in steps)
    return [{"computeMs": round(whole + d * 1e-3, 6), "latencyMs": round(whole + d * 1e-3, 6)}
            for d in (0, -1, 1, -2, 2)]  # fmt: skip


def metadata(steps: Sequence[Step], capability: float) -> dict[str, Any]:
    """Least, greatest, mean, median of the same; the GPU is invented, and says so."""
    found = [t["computeMs"] for t in times(steps)]
    least, greatest, middle = min(found), max(found), sorted(found)[2]
    return {
        "performance_summary": {"GPU Compute Time": [least, greatest, middle, middle, greatest]},
        "device_information": {"Selected Device": "Invented GPU", "Compute Capability": capability},
    }


def network() -> onnx.ModelProto:
    """The network as ONNX, with random weights of a seed."""
    draw = np.random.default_rng(0)
    weights: dict[str, Any] = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = draw.standard_normal(shape, np.float32) / math.sqrt(math.prod(shape[1:]) or 1)
        return name

    def conv(name: str, read: str, channels: int, write: str) -> onnx.NodeProto:
        inputs = [read, weight(f"{name}.weight", 16, channels, 3, 3), weight(f"{name}.bias", 16)]
        return helper.make_node("Conv", inputs, [write], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    nodes = [
        conv("conv1", "image", 3, "c1"), helper.make_node("Relu", ["c1"], ["stem"], "relu1"),
        helper.make_node("MaxPool", ["stem"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("conv2", "pooled", 16, "c2"), helper.make_node("Relu", ["c2"], ["inner"], "relu2"),
        conv("conv3", "inner", 16, "c3"), helper.make_node("Add", ["c3", "pooled"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["joined"], "relu3"),
        helper.make_node("GlobalAveragePool", ["joined"], ["means"], "mean"),
        helper.make_node("Flatten", ["means"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", weight("fc.weight", 10, 16), weight("fc.bias", 10)], ["scores"], "fc",
                         transB=1),
        helper.make_node("Softmax", ["scores"], ["classes"], "softmax"),
    ]  # fmt: skip
    return model(nodes, {n: SHAPES[n] for n in ("image", "classes")}, weights)


def model(
    nodes: Sequence[onnx.NodeProto], ends: Mapping[str, Sequence[int]], weights: Mapping[str, Any]
) -> Any:
    """A network of these nodes; of a weight that is given as a shape, only that, since its numbers stayed at home."""
    tensors = []
    for name, given in weights.items():
        if isinstance(given, tuple):
            tensor = TensorProto(
                name=name, dims=given, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
            )
            tensor.external_data.add(key="location", value="model.weights")
        else:
            tensor = numpy_helper.from_array(given, name)
        tensors.append(tensor)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends.items()]
    graph = helper.make_graph(nodes, "written", infos[:1], infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def residual_network() -> onnx.ModelProto:
    """The residual network with the pairs that its engine has; a pair of a weight is named for its convolution."""
    weights: dict[str, Any] = {"scale": np.array(0.05, np.float32), "zero": np.array(0, np.int8)}
    nodes = []

    def add(op: str, name: str, reads: Sequence[str], **more: Any) -> str:
        nodes.append(helper.make_node(op, [*reads], [name if name != "softmax" else "classes"], name, **more))
        return nodes[-1].output[0]

    def pair(name: str, reads: str) -> str:
        return add(
            "DequantizeLinear",
            f"{name}_dequantize",
            [add("QuantizeLinear", f"{name}_quantize", [reads, "scale", "zero"]), "scale", "zero"],
        )

    def conv(name: str, reads: str, channels: int, maps: int, size: int = 3, stride: int = 1) -> str:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = (maps, channels, size, size), (maps,)
        weight = add("QuantizeLinear", f"{name}_weight_q", [f"{name}.weight", "scale", "zero"])
        weight = add("DequantizeLinear", f"{name}_weight_dq", [weight, "scale", "zero"])
        told = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        return add("Conv", name, [reads, weight, f"{name}.bias"], **told)

    def relu(name: str, reads: str) -> str:
        return add("Relu", name, [reads])

    x = relu("stem_relu", conv("stem", pair("image", "image"), 3, 32))
    short = pair("pooled", add("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2]))
    x = conv("b", pair("a", relu("a_relu", conv("a", short, 32, 32))), 32, 32)
    x = pair("one", relu("relu1", add("Add", "add1", [x, short])))
    short = conv("down", x, 32, 48, 1, 2)
    x = conv("d", pair("c", relu("c_relu", conv("c", x, 32, 48, 3, 2))), 48, 48)
    short = relu("relu2", add("Add", "add2", [x, short]))
    x = conv("f", pair("e", relu("e_relu", conv("e", pair("two", short), 48, 48))), 48, 48)
    x = add(
        "Flatten",
        "flatten",
        [add("GlobalAveragePool", "mean", [relu("relu3", add("Add", "add3", [x, short]))])],
    )
    weights["fc.weight"], weights["fc.bias"] = (10, 48), (10,)
    add("Softmax", "softmax", [add("Gemm", "fc", [x, "fc.weight", "fc.bias"], transB=1)])
    return model(nodes, {"image": (8, 3, 32, 32), "classes": (8, 10)}, weights)


def mobile_network() -> onnx.ModelProto:
    """The mobile network as PyTorch exports one, the ends of each Clip as constants of their own."""
    nodes, weights = [], {}

    def add(op: str, name: str, reads: Sequence[str], write: str = "", **more: Any) -> str:
        nodes.append(helper.make_node(op, [*reads], [write or f"{name}_output_0"], name, **more))
        return nodes[-1].output[0]

    for c in mobile_convs():
        home = c.path.removeprefix("/").replace("/", ".")
        weights[f"{home}.weight"], weights[f"{home}.bias"] = (
            (c.maps, c.channels // c.groups, c.size, c.size),
            (c.maps,),
        )
        told = {
            "kernel_shape": [c.size] * 2,
            "strides": [c.stride] * 2,
            "pads": [c.size // 2] * 4,
            "group": c.groups,
        }
        x = add("Conv", f"{c.path}/Conv", [c.reads, f"{home}.weight", f"{home}.bias"], **told)
        if c.clip:
            ends = [
                add("Constant", f"{c.path}/Constant{i}", [], value_float=v)
                for i, v in (("", 0.0), ("_1", 6.0))
            ]
            add("Clip", f"{c.path}/Clip", [x, *ends])
        elif c.shortcut:
            add("Add", c.nodes[-1], [c.shortcut, x])
    weights["classifier.1.weight"], weights["classifier.1.bias"] = (CLASSES, HEAD), (CLASSES,)
    x = add("Flatten", "/Flatten", [add("GlobalAveragePool", "/GlobalAveragePool", [nodes[-1].output[0]])])
    x = add(
        "Gemm", "/classifier/classifier.1/Gemm", [x, "classifier.1.weight", "classifier.1.bias"], transB=1
    )
    add("Softmax", "/Softmax", [x], "output")
    return model(nodes, {"input": (1, 3, SIDE, SIDE), "output": (1, CLASSES)}, weights)


def put(path: Path, document: Any) -> None:
    """Write JSON, a layer or a time on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = document.get("Layers") if isinstance(document, dict) else document
    if rows is None:
        text = json.dumps(document, indent=1)
    else:
        text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        text = (
            text
            if isinstance(document, list)
            else f'{{"Layers": {text}, "Bindings": {json.dumps(document["Bindings"])}}}'
        )
    path.write_text(text + "\n", encoding="utf-8")


def engines() -> None:
    """Write the engines, each in a folder as trtexec and trex leave it."""
    for name, steps, graph, capability in (
        ("written-fp32", fp32(), network(), 8.0), ("written-fp16", fp16(), network(), 8.6),
        ("written-int8", int8(), network(), 8.6), ("written-residual-int8", residual(), residual_network(), 8.9),
        ("written-mobile-fp16", mobile(), mobile_network(), 8.6),
    ):  # fmt: skip
        folder = HERE / "engines" / name
        put(folder / "engine.graph.json", layers(steps, old=name == "written-fp32"))
        put(folder / "engine.profile.json", profile(steps))
        put(folder / "engine.timing.json", times(steps))
        put(folder / "engine.profile.metadata.json", metadata(steps, capability))
        onnx.save(graph, folder / "model.structure-only.onnx")
    folder = HERE / "engines" / "written-names-only"
    put(folder / "engine.graph.json", {"Layers": [s.title for s in fp32()], "Bindings": ["image", "classes"]})
    put(folder / "engine.profile.json", profile(fp32()))


#: What is compiled: samples, precisions and targets, and whether the whole log is kept or what it lists at its end.
BUILDS = (
    ("digits_inception", "fp16", "sm80", False), ("digits_inception", "int8", "sm89", False),
    ("digits_lstm", "fp32", "sm86", True), ("digits_vit", "fp8", "sm120", False),
    ("control_flow", "fp16", "sm86", True),
)  # fmt: skip
#: Where the builder's own listing begins, and the folder of a build in a path.
_LISTED, _FOLDER = "Total Host Persistent Memory:", re.compile(r"/\S*/(?=(?:model\.onnx|weights)\b)")


def builds() -> None:
    """Compile with TensorRT-RTX and keep what it prints."""
    import rtlab

    for name, precision, target, whole in BUILDS:
        sample = rtlab.samples.load(name, samples=8)
        study = rtlab.Study(sample.model, data=sample.calibration)
        calibrator = "minmax" if precision in {"int8", "fp8"} else None
        study.add("built", precision=precision, calibrator=calibrator, target=target, backend="tensorrt-rtx")
        study.run(compare=False)
        engine = study["built"].engine
        log = engine.log if whole else engine.log[engine.log.rindex(_LISTED) :]
        path = HERE / "builds" / f"{name}-{precision}-{target}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_FOLDER.sub("", log), encoding="utf-8")


def onnxruntime() -> None:
    """Run the written network twice on ONNX Runtime and keep its profile and the model that it optimized."""
    import onnxruntime as ort

    folder = HERE / "onnxruntime"
    folder.mkdir(exist_ok=True)
    options = ort.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = ort.InferenceSession(network().SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(2):
        session.run(None, {"image": np.ones(SHAPES["image"], np.float32)})
    Path(session.end_profiling()).replace(folder / "profile.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--builds", action="store_true", help="compile and run too")
    engines()
    if parser.parse_args(arguments).builds:
        builds()
        onnxruntime()
    return 0


if __name__ == "__main__":
    sys.exit(main())
