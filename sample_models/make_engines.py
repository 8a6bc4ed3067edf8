"""Write the builds of engines/ from published figures: ``python sample_models/make_engines.py``.

The figures are those of real engines: what each step reads and writes, in which type and layout, the tile and the
instruction of its kernel, and its time. engines/NOTICE.md says who published them. The networks are written here, and
all names are theirs. ``--log`` writes the log of a build with the TensorRT-RTX that is installed instead.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import rtlab
from rtlab.backends import compiler_info
from rtlab.backends.readers import build
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.trace import Profile
from rtlab.core.variant import Target
from rtlab.samples.architectures import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rtlab.core.model import Model
    from rtlab.core.node import Node

FOLDER = Path(__file__).parent / "engines"
LOG = "digits_sparse24-log/build.log"
#: A GPU counts time in steps of so many milliseconds.
TICK = 0.001024
TYPES = {"f": "fp32", "h": "fp16", "b": "int8"}
#: TensorRT's names of the layouts.
LAYOUTS = {
    "": "",
    "r": "Row major linear",
    **{f"c{n}": f"Channel major format where channel % {n} == 0" for n in (4, 8, 16)},
    "p2": "Two wide channel vectorized row major",
    "p4": "Four wide channel vectorized row major",
    "p32": "Thirty-two wide channel vectorized row major",
}
#: TensorRT's names of types of weights.
WEIGHTS = {"fp32": "Float", "fp16": "Half", "int8": "Int8"}
#: And of activations.
ACTIVATIONS = {"Relu": "RELU", "Clip": "CLIPPED_RELU"}


class Network(Writer):
    """Writes a convolutional network without numbers, whose shapes its nodes decide.

    ``pairs`` says where Q/DQ pairs stand: nowhere, at the inputs of ``convolutions``, or on the residual connections
    too (``residual``). The pairs of a value share one QuantizeLinear.
    """

    def __init__(self, name: str, pairs: str = "") -> None:
        super().__init__(name)
        self.pairs = pairs
        self.channels = {"image": 3}
        self.quantized: dict[str, str] = {}

    def put(self, op: str, inputs: Sequence[str], where: str, channels: int = 0, **attributes: object) -> str:
        """Add a node, whose output has as many channels as its first input unless told."""
        value = self.node(op, inputs, where, **attributes)
        self.channels[value] = channels or self.channels.get(inputs[0], 0)
        return value

    def pair(self, value: str, where: str, channels: int = 0) -> str:
        """A value behind a Q/DQ pair for the node at ``where``; weights have a scale for each channel."""
        shape = (channels,) if channels else ()
        axis = {"axis": 0} if channels else {}
        if value not in self.quantized:
            at = f"{where}/weight" if channels else value.rsplit("/", 1)[0] if "/" in value else f"/{value}"
            scale = self.weight(f"{at}/scale", np.full(shape, 0.02, np.float32))
            zero = self.weight(f"{at}/zero", np.zeros(shape, np.int8))
            self.quantized[value] = self.put("QuantizeLinear", [value, scale, zero], f"{at}/quantize", **axis)
        quantized = self.quantized[value]
        scale, zero = next(list(n.input)[1:] for n in self.nodes if quantized in n.output)
        at = f"{where}/weight" if channels else where
        channels = 0 if channels else self.channels[value]
        return self.put("DequantizeLinear", [quantized, scale, zero], f"{at}/dequantize", channels, **axis)

    def conv(
        self, x: str, where: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution with a bias."""
        shape = (channels, self.channels[x] // groups, kernel, kernel)
        weight = self.weight(f"{where}/weight", np.zeros(shape, np.float32))
        bias = self.weight(f"{where}/bias", np.zeros(channels, np.float32))
        if self.pairs:
            x, weight = self.pair(x, where), self.pair(weight, where, channels)
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.put("Conv", [x, weight, bias], where, channels, group=groups, **attributes)

    def clip(self, x: str, where: str) -> str:
        """ReLU6."""
        limits = [self.weight(f"{where}/{n}", np.array(v, np.float32)) for n, v in (("min", 0), ("max", 6))]
        return self.put("Clip", [x, *limits], where)

    def add(self, x: str, short: str, where: str) -> str:
        """The addition of a residual connection."""
        if self.pairs == "residual":
            short = self.pair(short, where)
        return self.put("Add", [x, short], where)

    def finish(self, x: str, batch: int) -> Model:
        """Mean, classifier and the model."""
        x = self.put("Flatten", [self.put("GlobalAveragePool", [x], "/pool")], "/flatten")
        weight = self.weight("/classifier/weight", np.zeros((1000, self.channels[x]), np.float32))
        bias = self.weight("/classifier/bias", np.zeros(1000, np.float32))
        if self.pairs:
            x, weight = self.pair(x, "/classifier"), self.pair(weight, "/classifier", 1000)
        x = self.put("Gemm", [x, weight, bias], "/classifier", transB=1)
        return self.model({"image": [batch, 3, 224, 224]}, {"logits": (x, [batch, 1000])})


def resnet18(pairs: str = "") -> Model:
    """ResNet-18 (He et al., 2016, table 1), normalisation folded, for a batch of 32."""
    net = Network("resnet18", pairs)
    x = net.put("Relu", [net.conv("image", "/stem/conv", 64, 7, stride=2)], "/stem/relu")
    x = net.put("MaxPool", [x], "/stem/pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, width in enumerate((64, 64, 128, 128, 256, 256, 512, 512), start=1):
        at, stride = f"/block{number}", 2 if net.channels[x] != width else 1
        y = net.put("Relu", [net.conv(x, f"{at}/conv1", width, 3, stride=stride)], f"{at}/relu1")
        y = net.conv(y, f"{at}/conv2", width, 3)
        short = net.conv(x, f"{at}/shortcut", width, 1, stride=2) if stride == 2 else x
        x = net.put("Relu", [net.add(y, short, f"{at}/add")], f"{at}/relu2")
    return net.finish(x, 32)


def mobilenet_v2() -> Model:
    """MobileNetV2 (Sandler et al., 2018, table 2) of width 1, normalisation folded, for one picture."""
    net = Network("mobilenet_v2")
    x = net.clip(net.conv("image", "/stem/conv", 32, 3, stride=2), "/stem/clip")
    number = 0
    for expansion, width, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first, *[1] * (blocks - 1)):
            at, y, wide = f"/block{(number := number + 1)}", x, expansion * net.channels[x]
            if expansion > 1:
                y = net.clip(net.conv(y, f"{at}/expand", wide, 1), f"{at}/expand_clip")
            y = net.conv(y, f"{at}/depthwise", wide, 3, stride=stride, groups=wide)
            y = net.conv(net.clip(y, f"{at}/depthwise_clip"), f"{at}/project", width, 1)
            x = net.add(y, x, f"{at}/add") if stride == 1 and width == net.channels[x] else y
    return net.finish(net.clip(net.conv(x, "/last/conv", 1280, 1), "/last/clip"), 1)


@dataclasses.dataclass(frozen=True)
class Figures:
    """What is known of an engine.

    ``rows`` has a step a line: kind; what it computes, ``a>b`` where it writes another value than it reads; types and
    layouts that it reads and writes; tile and instruction of its kernel; time in ticks. ``runs`` is over how many
    inferences that is. ``whole`` are times of single inferences in steps of ``step`` milliseconds.
    """

    gpu: str
    target: str
    version: str
    source: str
    runs: int
    step: float
    rows: str
    whole: str
    pairs: str = ""

    def models(self) -> tuple[Model, Model]:
        """The network, and with its pairs as the compiler got it."""
        if "MobileNetV2" in self.source:
            return (mobilenet_v2(),) * 2
        return resnet18(), resnet18(self.pairs)


class Assembler:
    """Makes the layers of an engine from rows."""

    def __init__(self, model: Model, last: str) -> None:
        #: In what form the network's output leaves.
        self.model, self.last = model, last
        self.at = {node.name.rsplit("/", 1)[0]: node for node in model.top}
        #: The tensors that hold a value, by the type and layout of each.
        self.tensors: dict[str, dict[str, Tensor]] = {}
        self.layers: list[Layer] = []

    def follow(self, value: str) -> str:
        """The value that a pair or a Flatten passes on."""
        node = self.model.producers.get(value)
        passes = node is not None and node.op in {"QuantizeLinear", "DequantizeLinear", "Flatten"}
        return self.follow(node.inputs[0]) if node is not None and passes else value

    def find_value(self, word: str) -> str:
        """The value that a word of a row names."""
        if word in {"image", "logits"}:
            return word
        node = self.at[f"/{word.replace('.', '/')}"]
        return "classifier" if node.op == "Gemm" else node.outputs[0]

    def find_nodes(self, word: str) -> list[Node]:
        """The nodes that a step computes; all but the first are named by what differs."""
        first, *more = word.split("+")
        prefix = first.rpartition(".")[0]
        return [self.at[f"/{w.replace('.', '/')}"] for w in (first, *(f"{prefix}.{m}" for m in more))]

    def add_tensor(self, value: str, code: str, shape: tuple[int, ...], name: str = "") -> Tensor:
        """A tensor that holds a value; the first of a value bears its name."""
        forms = self.tensors.setdefault(value, {})
        dtype, layout = TYPES[code[0]], LAYOUTS[code[1:]]
        other = code != self.last if value == "logits" else bool(forms)
        name = name or (f"{value} as {dtype} {code[1:]}" if other else value)
        forms[code] = Tensor(name, dtype, shape, layout)
        return forms[code]

    def shape(self, value: str) -> tuple[int, ...]:
        """The dimensions of a value; a classifier that is a convolution writes four."""
        if value == "classifier":
            return (*self.shape("logits"), 1, 1)
        return tuple(int(n) for n in self.model.values[value].shape or ())

    def add_row(self, kind: str, what: str, types: str, kernel: str) -> Layer:
        """The layer of a row."""
        reads, _, writes = types.partition(">")
        if kind == "shape_call":
            return self.add_layer(kind, "shape call")
        if kind in {"Reformat", "NoOp", "quantize", "dequantize"}:
            return self.add_move(kind, what, reads, writes)
        nodes = self.find_nodes(what)
        own = {v for n in nodes for v in n.outputs}
        values = [self.follow(v) for n in nodes for v in n.inputs]
        read = [v for v in values if v not in own and (v in self.model.inputs or v in self.model.producers)]
        inputs = [self.tensors[v][code] for v, code in zip(read, reads.split("+"), strict=True)]
        value = "classifier" if nodes[0].op == "Gemm" and kind != "gemm" else nodes[-1].outputs[0]
        quantizer = next((n for n in self.model.consumers.get(value, ()) if n.op == "QuantizeLinear"), None)
        name = quantizer.outputs[0] if quantizer is not None and writes[0] == "b" else ""
        output = self.add_tensor(value, writes, self.shape(value), name)
        if kind == "gemm":
            # Weights, transposed, and bias are among the inputs of a matrix product.
            flat = dataclasses.replace(inputs[0], shape=inputs[0].shape[:2])
            inputs = [flat, *(Tensor(v, flat.dtype, self.shape(v)[::-1]) for v in nodes[0].inputs[1:])]
        tile, _, instruction = kernel.partition("/")
        mma = f"_mma{instruction}" if instruction[:1].isdigit() else f"_{instruction}" * bool(instruction)
        tactic = "" if kernel == "-" else f"{inputs[0].dtype}_{tile}{mma}"
        return self.add_layer(
            kind, " + ".join(n.name for n in nodes), inputs, [output], tactic=tactic,
            origins=tuple(n.id for n in nodes), attributes=self.describe(kind, nodes, inputs[0]),
        )  # fmt: skip

    def add_move(self, kind: str, what: str, reads: str, writes: str) -> Layer:
        """A step that changes the type or the layout of a value."""
        words = what.split(">")
        before, after = self.find_value(words[0]), self.find_value(words[-1])
        source = self.tensors[before][reads]
        origins: tuple[str, ...] = ()
        name, tensor = f"reformat {source.name}" if before == after else f"reshape {before}", ""
        if kind.endswith("quantize"):
            # A value that is read in floating point behind its pair is the shortcut's.
            word = f"/add/{kind}/" if kind == "dequantize" else f"/{kind}/"
            node = next(n for n in self.model.top if word in n.name and self.follow(n.outputs[0]) == before)
            name, tensor, origins = node.name, node.outputs[0], (node.id,)
        output = self.add_tensor(after, writes, self.shape(after), tensor)
        attributes = {"ParameterType": "Reformat", "Origin": "QDQ" if origins else "REFORMAT"}
        if kind == "NoOp":
            return self.add_layer(kind, name, [source], [output])
        return self.add_layer("Reformat", name, [source], [output], origins=origins, attributes=attributes)

    def describe(self, kind: str, nodes: Sequence[Node], read: Tensor) -> dict[str, object]:
        """What a convolution or a pooling does, in TensorRT's words."""
        words: dict[str, object] = {}
        fused = kind == "ConvActPool"
        activation = next((ACTIVATIONS[n.op] for n in nodes if n.op in ACTIVATIONS), "NONE")
        for node in nodes:
            pads = node.attributes.get("pads", [0] * 4)
            frame = {
                "PrePadding": pads[:2],
                "PostPadding": pads[2:],
                "Stride": node.attributes.get("strides", [1, 1]),
            }
            if "Pool" in node.op:
                window = node.attributes.get("kernel_shape", self.shape(node.inputs[0])[2:])
                pool = {
                    "PoolingType": "MAX" if node.op == "MaxPool" else "AVERAGE",
                    "WindowSize": [*window],
                    **frame,
                }
                words |= {
                    ("Pooling" if fused else "") + k: v
                    for k, v in {"ParameterType": "Pooling", **pool}.items()
                }
            elif node.op in {"Conv", "Gemm"} and kind != "gemm":
                shape = self.shape(self.follow(node.inputs[1]))
                count = int(np.prod(shape))
                conv = {
                    "ParameterType": "Convolution", "Kernel": [*shape[2:]] or [1, 1], **frame, "Dilation": [1, 1],
                    "OutMaps": shape[0], "Groups": node.attributes.get("group", 1),
                    "Weights": {"Type": WEIGHTS[read.dtype], "Count": count},
                    "Bias": {"Type": "Half" if read.dtype == "fp16" else "Float", "Count": shape[0]},
                    "HasSparseWeights": 0,
                    "Activation": activation,
                }  # fmt: skip
                words |= {("Conv" if fused else "") + k: v for k, v in conv.items()}
        return words | ({"ParameterType": kind} if fused else {})

    def add_layer(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        **more: object,
    ) -> Layer:
        """The next layer."""
        index = len(self.layers)
        layer = Layer(f"{index}:{name}", name, kind, index, tuple(inputs), tuple(outputs), **more)
        self.layers.append(layer)
        return layer


#: Whose figures they are.
TREX = "trt-engine-explorer of NVIDIA/TensorRT, Apache-2.0; TensorRT about 8.4 on an A100 80GB PCIe"
FUZZY = "fuzzylabs/edge-vision-power-estimation, Apache-2.0; TensorRT 10.4 on a GeForce RTX 3060 Laptop"
ENGINES = {
    "resnet18-a100-fp16": Figures(
        "NVIDIA A100 80GB PCIe", "sm80", "", f"ResNet-18 in FP16, {TREX}", 1, TICK,
        """
Reformat         image                      fr>hc4          -                   79
CaskConvolution  stem.conv+relu             hc4>hc8         image/hmma          109
CudaPooling      stem.pool                  hc8>hc8         -                   61
CaskConvolution  block1.conv1+relu1         hc8>hc8         256x64x32/16x8x16   52
NoOp             block1.relu1               hc8>hc16        -                   0
NoOp             stem.pool                  hc8>hc16        -                   0
CaskConvolution  block1.conv2+add+relu2     hc16+hc16>hc16  256x64x32/16x8x16   52
NoOp             block1.relu2               hc16>hc8        -                   0
CaskConvolution  block2.conv1+relu1         hc8>hc8         256x64x32/16x8x16   50
NoOp             block2.relu1               hc8>hc16        -                   0
CaskConvolution  block2.conv2+add+relu2     hc16+hc16>hc16  256x64x32/16x8x16   53
CaskConvolution  block3.conv1+relu1         hc16>hc16       256x128x32/16x8x16  28
CaskConvolution  block3.conv2               hc16>hc16       256x128x32/16x8x16  40
CaskConvolution  block3.shortcut+add+relu2  hc16+hc16>hc16  128x128x32/16x8x8   17
CaskConvolution  block4.conv1+relu1         hc16>hc16       256x128x32/16x8x16  39
CaskConvolution  block4.conv2+add+relu2     hc16+hc16>hc16  256x128x32/16x8x16  41
NoOp             block4.relu2               hc16>hc8        -                   0
CaskConvolution  block5.conv1+relu1         hc8>hc8         128x128x64/16x8x16  26
NoOp             block5.relu1               hc8>hc16        -                   0
CaskConvolution  block5.conv2               hc16>hc16       256x64x64/16x8x16   40
CaskConvolution  block5.shortcut+add+relu2  hc16+hc16>hc16  64x128x32/16x8x8    14
NoOp             block5.relu2               hc16>hc8        -                   0
CaskConvolution  block6.conv1+relu1         hc8>hc8         256x64x64/16x8x16   39
CaskConvolution  block6.conv2+add+relu2     hc8+hc8>hc8     128x128x32/16x8x16  42
CaskConvolution  block7.conv1+relu1         hc8>hc8         128x64x64/16x8x16   27
CaskConvolution  block7.conv2               hc8>hc8         128x64x64/16x8x16   47
CaskConvolution  block7.shortcut+add+relu2  hc8+hc8>hc8     64x128x32/16x8x16   13
NoOp             block7.relu2               hc8>hc16        -                   0
CaskConvolution  block8.conv1+relu1         hc16>hc16       128x64x64/16x8x16   48
NoOp             block8.relu1               hc16>hc8        -                   0
CaskConvolution  block8.conv2+add+relu2     hc8+hc8>hc8     128x64x64/16x8x16   49
CaskPooling      pool                       hc8>hc8         -                   9
CaskConvolution  classifier                 hc8>hc8         64x32x64/16x8x16    11
NoOp             classifier                 hc8>hr          -                   0
NoOp             classifier>logits          hr>hr           -                   0
Reformat         logits                     hr>fr           -                   7
""",
        """
853 825 824 824 824 826 824 824 823 824 825 825 824 824 823 824 823 824 824 824 823 824 824 824 824 823 823
824 825 824 824 823 823 824 823 823 824 824 823 825 824 824 823 825 824 824 824 824 825 825 824 824 823 823
825 824 823 824 824 823 824 824 823 825 824 825 824 823 823 823 823 823 828 830 833 833 832 832 831 832 832
832 832 832 832 832 832 831 834 834 834 834 836 835 834 834 838 843 843 844 844 845 845 842 845 844 846 843
844 844 845 845 845 845 844 843 843 843 844 843 846 845 843 843 845 844 845 844 843 845 844 844 844 844 845
844 844 844 844 846 846 844 844 845 844 845 843 845 844 845 844 844 844 845 845 845 844 842 845 844 843 845
846 843 846 844 846 845 843 845 844 845 844 844 844 844 845 844 843 843 844 843 843 845 845 846 845 845 844
846 844 845 844 842 845 845 843 843 845 843
""",
    ),
    "resnet18-a100-int8": Figures(
        "NVIDIA A100 80GB PCIe", "sm80", "", f"ResNet-18 trained for INT8, {TREX}", 1, TICK,
        """
quantize         image                      fr>bp4          -                   60
CaskConvolution  stem.conv+relu             bp4>fr          128x64/int8x4       197
TiledPooling     stem.pool                  fr>fr           -                   93
Reformat         stem.pool                  fr>hp32         -                   36
quantize         stem.pool                  hp32>bp32       -                   27
CaskConvolution  block1.conv1+relu1         bp32>bp32       192x64x64/16x8x32   32
CaskConvolution  block1.conv2+add+relu2     bp32+hp32>hp32  256x64x64/16x8x32   36
quantize         block1.relu2               hp32>bp32       -                   27
CaskConvolution  block2.conv1+relu1         bp32>bp32       192x64x64/16x8x32   32
CaskConvolution  block2.conv2+add+relu2     bp32+hp32>hp32  256x64x64/16x8x32   36
quantize         block2.relu2               hp32>bp32       -                   27
CaskConvolution  block3.conv1+relu1         bp32>bp32       256x128x64/16x8x32  21
CaskConvolution  block3.conv2               bp32>hp32       128x128x64/16x8x32  27
CaskConvolution  block3.shortcut+add+relu2  bp32+hp32>hp32  128x128x64/16x8x32  16
quantize         block3.relu2               hp32>bp32       -                   18
CaskConvolution  block4.conv1+relu1         bp32>bp32       256x128x64/16x8x32  26
CaskConvolution  block4.conv2+add+relu2     bp32+hp32>hp32  128x128x64/16x8x32  30
quantize         block4.relu2               hp32>bp32       -                   18
CaskConvolution  block5.conv1+relu1         bp32>bp32       128x128x64/16x8x32  20
CaskConvolution  block5.conv2               bp32>hp32       128x128x64/16x8x32  25
CaskConvolution  block5.shortcut+add+relu2  bp32+hp32>hp32  64x128x64/16x8x32   13
quantize         block5.relu2               hp32>bp32       -                   14
CaskConvolution  block6.conv1+relu1         bp32>bp32       128x128x64/16x8x32  26
CaskConvolution  block6.conv2+add+relu2     bp32+hp32>hp32  128x128x64/16x8x32  26
quantize         block6.relu2               hp32>bp32       -                   15
CaskConvolution  block7.conv1+relu1         bp32>bp32       64x128x64/16x8x32   20
CaskConvolution  block7.conv2               bp32>hp32       128x64x64/16x8x32   29
CaskConvolution  block7.shortcut+add+relu2  bp32+hp32>hp32  64x128x64/16x8x32   11
quantize         block7.relu2               hp32>bp32       -                   14
CaskConvolution  block8.conv1+relu1         bp32>bp32       64x128x64/16x8x32   28
CaskConvolution  block8.conv2+add+relu2     bp32+hp32>hp32  64x128x64/16x8x32   30
Reformat         block8.relu2               hp32>hp2        -                   9
TiledPooling     pool                       hp2>hp2         -                   11
quantize         pool                       hp2>bp4         -                   7
NoOp             pool                       bp4>bp32        -                   0
CaskConvolution  classifier                 bp32>fr         64x32x64/16x8x32    13
NoOp             classifier>logits          fr>fr           -                   0
""",
        """
888 863 862 862 861 863 863 862 863 863 862 861 861 862 861 862 863 862 863 862 862 862 862 863 863 863 862
861 862 862 863 862 861 862 862 861 861 861 861 861 861 861 862 862 862 863 863 863 861 862 861 862 861 861
861 861 862 863 863 861 862 861 861 862 861 863 862 862 860 861 862 861 861 860 861 860 861 862 860 859 862
861 861 861 861 863 861 861 862 861 860 861 862 861 862 861 860 861 863 862 861 863 860 861 860 862 862 862
860 861 861 861 863 864 861 862 861 861 863 862 860 861 861 862 862 862 860 861 861 861 862 861 861 861 861
862 860 861 861 862 862 863 862 863 862 861 860 860 862 861 861 862 863 861 861 861 862 860 862 863 862 863
861 862 862 860 862 861 861 862 863 862 860 861 862 859 862 861 863 862 861 863 861 861 862 861 861 862 862
862 861 862 863 862 862 862 862 860 861 863
""",
        "convolutions",
    ),
    "resnet18-a100-int8-residual": Figures(
        "NVIDIA A100 80GB PCIe", "sm80", "", f"ResNet-18 trained for INT8, shortcuts too, {TREX}", 1, TICK,
        """
quantize         image                   fr>br           -                   93
ConvActPool      stem.conv+relu+pool     br>bp32         -                   71
CaskConvolution  block1.conv1+relu1      bp32>bp32       192x64x64/16x8x32   31
CaskConvolution  block1.conv2+add+relu2  bp32+bp32>bp32  192x64x64/16x8x32   34
CaskConvolution  block2.conv1+relu1      bp32>bp32       192x64x64/16x8x32   30
CaskConvolution  block2.conv2+add+relu2  bp32+bp32>bp32  192x64x64/16x8x32   34
CaskConvolution  block3.conv1+relu1      bp32>bp32       256x128x64/16x8x32  21
CaskConvolution  block3.shortcut         bp32>bp32       256x128x64/16x8x32  12
CaskConvolution  block3.conv2+add+relu2  bp32+bp32>bp32  256x128x64/16x8x32  28
CaskConvolution  block4.conv1+relu1      bp32>bp32       256x128x64/16x8x32  27
CaskConvolution  block4.conv2+add+relu2  bp32+bp32>bp32  256x128x64/16x8x32  27
CaskConvolution  block5.conv1+relu1      bp32>bp32       128x128x64/16x8x32  19
CaskConvolution  block5.shortcut         bp32>bp32       128x64x64/16x8x32   12
CaskConvolution  block5.conv2+add+relu2  bp32+bp32>bp32  128x128x64/16x8x32  26
CaskConvolution  block6.conv1+relu1      bp32>bp32       128x128x64/16x8x32  24
CaskConvolution  block6.conv2+add+relu2  bp32+bp32>bp32  128x128x64/16x8x32  27
CaskConvolution  block7.conv1+relu1      bp32>bp32       64x128x64/16x8x32   20
CaskConvolution  block7.shortcut         bp32>bp32       64x128x64/16x8x32   11
CaskConvolution  block7.conv2+add+relu2  bp32+bp32>bp32  64x128x64/16x8x32   29
dequantize       block7.relu2            bp32>fr         -                   13
CaskConvolution  block8.conv1+relu1      bp32>bp32       64x128x64/16x8x32   28
CaskConvolution  block8.conv2+add+relu2  bp32+fr>fr      128x64x64/16x8x32   68
CaskPooling      pool                    fr>fr           -                   9
quantize         pool                    fr>bp32         -                   7
CaskConvolution  classifier              bp32>fr         64x32x64/16x8x32    13
NoOp             classifier>logits       fr>fr           -                   0
""",
        """
563 535 533 532 532 533 534 534 533 533 533 532 534 533 533 532 532 532 533 534 534 532 533 533 533 533 532
533 533 533 533 533 534 532 533 533 532 533 533 533 533 533 533 533 532 532 533 533 533 533 533 532 533 534
533 532 532 532 534 533 533 533 533 533 532 532 533 533 533 533 534 532 533 533 533 533 533 532 533 533 533
533 533 532 533 533 533 532 532 533 532 533 533 533 532 532 533 534 532 533 533 533 533 533 533 533 533 533
533 533 533 532 532 532 533 532 533 532 533 533 532 534 533 534 533 533 533 533 534 533 532 533 533 533 533
533 533 532 532 533 533 532 534 533 532 532 532 532 532 533 533 534 532 534 533 533 533 533 532 532 532 533
532 533 532 534 533 533 533 533 532 532 534 531 532 533 533 534 532 533 532 533 533 533 532 533 533 533 532
533 532 534 533 533 533 532 532 532 532 533
""",
        "residual",
    ),
    "mobilenet_v2-rtx3060": Figures(
        "NVIDIA GeForce RTX 3060 Laptop GPU", "sm86", "10.4", f"MobileNetV2 in FP16, {FUZZY}", 18488, 1e-4,
        """
Reformat             image                             hr>hc4       -                  8
CaskConvolution      stem.conv+clip                    hc4>hc8      128x32x64/16x8x16  8
CaskConvolution      block1.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     9.625
CaskConvolution      block1.project                    hc8>hc8      128x16x32/16x8x16  6
CaskConvolution      block2.expand+expand_clip         hc8>hc8      128x32x16/16x8x16  11
CaskConvolution      block2.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     10
CaskConvolution      block2.project                    hc8>hc8      128x32x32/16x8x16  7
CaskConvolution      block3.expand+expand_clip         hc8>hc8      128x32x16/16x8x16  8.84375
CaskConvolution      block3.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     12
CaskConvolution      block3.project+add                hc8+hc8>hc8  128x32x32/16x8x16  8
CaskConvolution      block4.expand+expand_clip         hc8>hc8      128x32x16/16x8x16  9
CaskConvolution      block4.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     7
CaskGemmConvolution  block4.project                    hc8>hc8      32x32x64/16x8x16   8
CaskConvolution      block5.expand+expand_clip         hc8>hc8      128x16x32/16x8x16  7
CaskConvolution      block5.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block5.project+add                hc8+hc8>hc8  32x32x64/16x8x16   7
CaskConvolution      block6.expand+expand_clip         hc8>hc8      128x16x32/16x8x16  7.96875
CaskConvolution      block6.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block6.project+add                hc8+hc8>hc8  32x32x64/16x8x16   6
CaskConvolution      block7.expand+expand_clip         hc8>hc8      128x16x32/16x8x16  7
CaskConvolution      block7.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block7.project                    hc8>hc8      32x32x64/16x8x16   6
CaskGemmConvolution  block8.expand+expand_clip         hc8>hc8      64x64x64/16x8x16   7
CaskConvolution      block8.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     5.15625
CaskGemmConvolution  block8.project+add                hc8+hc8>hc8  32x32x64/16x8x16   7
CaskGemmConvolution  block9.expand+expand_clip         hc8>hc8      64x64x64/16x8x16   6
CaskConvolution      block9.depthwise+depthwise_clip   hc8>hc8      depthwise/hmma     5
CaskGemmConvolution  block9.project+add                hc8+hc8>hc8  32x32x64/16x8x16   6
CaskGemmConvolution  block10.expand+expand_clip        hc8>hc8      64x64x64/16x8x16   7
CaskConvolution      block10.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     5
CaskGemmConvolution  block10.project+add               hc8+hc8>hc8  32x32x64/16x8x16   7
CaskGemmConvolution  block11.expand+expand_clip        hc8>hc8      64x64x64/16x8x16   6
CaskConvolution      block11.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block11.project                   hc8>hc8      32x32x64/16x8x16   7
CaskGemmConvolution  block12.expand+expand_clip        hc8>hc8      64x128x32/16x8x16  7.25
CaskConvolution      block12.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block12.project+add               hc8+hc8>hc8  32x32x64/16x8x16   8
CaskGemmConvolution  block13.expand+expand_clip        hc8>hc8      64x128x32/16x8x16  7
CaskConvolution      block13.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     6
CaskGemmConvolution  block13.project+add               hc8+hc8>hc8  32x32x64/16x8x16   7
CaskGemmConvolution  block14.expand+expand_clip        hc8>hc8      64x128x32/16x8x16  8
CaskConvolution      block14.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     5
CaskGemmConvolution  block14.project                   hc8>hc8      32x32x64/16x8x16   7
CaskGemmConvolution  block15.expand+expand_clip        hc8>hc8      64x32x64/16x8x16   7
CaskConvolution      block15.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     5.84375
CaskGemmConvolution  block15.project+add               hc8+hc8>hc8  32x32x64/16x8x16   8
CaskGemmConvolution  block16.expand+expand_clip        hc8>hc8      64x32x64/16x8x16   7
CaskConvolution      block16.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     5
CaskGemmConvolution  block16.project+add               hc8+hc8>hc8  32x32x64/16x8x16   8
CaskGemmConvolution  block17.expand+expand_clip        hc8>hc8      64x32x64/16x8x16   7
CaskConvolution      block17.depthwise+depthwise_clip  hc8>hc8      depthwise/hmma     5
CaskGemmConvolution  block17.project                   hc8>hc8      32x32x64/16x8x16   8
CaskGemmConvolution  last.conv+clip                    hc8>hc8      64x64x64/16x8x16   10
CaskPooling          pool                              hc8>hc8      -                  5
NoOp                 pool                              hc8>hr       -                  0
shape_call           -                                 -            -                  1
gemm                 classifier                        hr>h         gemv               16
""",
        """
2251 2246 2251 2314 2363 2344 2334 2334 2246 2231 2256 2241 2324 2334 2246 2280 2334 2378 2251 2256 2334
2339 2261 2256 2241 2285 2256 2241 2256 2251 2251 2256 2344 2334 2231 2344 2285 2417 2305 2246 2334 2266
2251 2354 2397 2241 2334 2241 2324 2334 2344 2349 2334 2334 2271 2251 2334 2339 2241 2256 2305 2241 2339
2334 2324 2246 2334 2334 2383 2246 2314 2256 2251 2305 2256 2241 2266 2241 2251 2334 2334 2285 2344 2349
2271 2349 2344 2324 2295 2295 2358 2344 2344 2251 2334 2324 2334 2246 2334 2334 2334 2241 2241 2388 2295
2334 2334 2344 2334 2339 2251 2388 2407 2368 2344 2324 2334 2324 2295 2256 2295 2305 2334 2324 2349 2344
2324 2344 2324 2334 2261 2358 2334 2256 2324 2344 2334 2241 2251 2241 2334 2231 2334 2261 2344 2378 2324
2354 2241 2388 2251 2373 2246 2344 2339 2251 2329 2251 2324 2334 2295 2407 2417 2344 2349 2334 2344 2349
2344 2256 2251 2344 2334 2349 2314 2354 2241 2241 2363 2256 2241 2256 2324 2256 2251 2285 2344 2344 2344
2378 2344 2290 2310 2383 2349 2251 2256 2344 2344 2241
""",
    ),
}  # fmt: skip


def assemble(figures: Figures, built: Model, notes: tuple[str, ...]) -> tuple[Engine, Profile]:
    """The engine of some figures, and its times."""
    rows = [line.split() for line in figures.rows.strip().splitlines()]
    assembler = Assembler(built, rows[-1][2].partition(">")[2])
    first = assembler.add_tensor("image", rows[0][2].partition(">")[0], assembler.shape("image"))
    for kind, what, types, kernel, _ in rows:
        assembler.add_row(kind, what, types, kernel)
    engine = Engine(
        "trtexec", figures.version, Target(figures.target), tuple(assembler.layers), (first,),
        assembler.layers[-1].outputs, device=figures.gpu, notes=notes, maker=compiler_info.TENSORRT,
    )  # fmt: skip
    profile = Profile(
        source=f"trtexec on {figures.gpu}",
        device="",
        samples={
            y.id: np.array([round(float(r[4]) * TICK, 6)])
            for y, r in zip(assembler.layers, rows, strict=True)
        },
        total=np.array([round(int(n) * figures.step, 6) for n in figures.whole.split()]),
        warmup=0,
        taken=None,
        processor="GPU",
        runs=figures.runs,
    )
    return engine, profile


def make_builds() -> Iterator[tuple[str, bytes]]:
    """The content of each build by its name."""
    for name, figures in ENGINES.items():
        source, built = figures.models()
        engine, profile = assemble(figures, built, (f"Figures of {figures.source}; names are rtlab's.",))
        yield name, build.encode(engine, source=source, graph=built, profile=profile)


def write_log() -> bytes:
    """The log of a build of digits_sparse24 in FP16 with 2:4 sparse weights allowed, without places of this machine."""
    study = rtlab.Study(rtlab.samples.load("digits_sparse24").model)
    study.add("fp16", target="sm86", sparsity=True, backend="tensorrt-rtx")
    study.run(compare=False, budget_s=0)
    return build.remove_folders(study["fp16"].engine.log).encode()


def main() -> None:
    """Write the builds, or the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    parser.add_argument(
        "--log", action="store_true", help="write the log, with the TensorRT-RTX that is installed"
    )
    arguments = parser.parse_args()
    files = (
        {LOG: write_log()}
        if arguments.log
        else {f"{name}/build.json": content for name, content in make_builds()}
    )
    for name, content in files.items():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{path}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
