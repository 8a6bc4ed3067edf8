"""Published architectures as small ONNX files: the layers, their order and their windows; an eighth of the width.

What passes over a graph decide depends on neither widths nor numbers. Layers bear the names of the publications where
these have some: GoogLeNet those of bvlc_googlenet (Caffe).
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.model import Model, load

#: One channel of so many is kept.
_SHARE = 8


class PublishedNet:
    """Writes a network layer by layer; values bear the names of what writes them."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.width = {"data": 3}
        self.size = size

    def node(
        self, op: str, name: str, inputs: list[str], width: int, out: str = "", **attributes: object
    ) -> str:
        out = out or name
        self.nodes.append(helper.make_node(op, inputs, [out], name=name, **attributes))
        self.width[out] = width
        return out

    def weight(self, name: str, *shape: int) -> str:
        self.weights.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
        return name

    def conv(
        self, x: str, name: str, width: int, kernel: int | tuple[int, int], *, stride: int = 1,
        pads: int | tuple[int, int] | None = None, out: str = "", bias: bool = True,
    ) -> str:  # fmt: skip
        h, w = (kernel, kernel) if isinstance(kernel, int) else kernel
        ph, pw = (h // 2, w // 2) if pads is None else (pads, pads) if isinstance(pads, int) else pads
        width = max(1, width // _SHARE)
        inputs = [x, self.weight(f"{name}.weight", width, self.width[x], h, w)]
        inputs += [self.weight(f"{name}.bias", width)] if bias else []
        attributes = {"kernel_shape": [h, w], "strides": [stride] * 2, "pads": [ph, pw, ph, pw]}
        return self.node("Conv", name, inputs, width, out, **attributes)

    def norm(self, x: str, name: str) -> str:
        width = self.width[x]
        numbers = [self.weight(f"{name}.{k}", width) for k in ("scale", "beta", "mean", "var")]
        return self.node("BatchNormalization", name, [x, *numbers], width)

    def relu(self, x: str, name: str, *, out: str = "") -> str:
        return self.node("Relu", name, [x], self.width[x], out)

    def pool(
        self,
        x: str,
        name: str,
        kernel: int,
        stride: int,
        pads: tuple[int, int] = (0, 0),
        *,
        op: str = "MaxPool",
    ) -> str:
        a, b = pads
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [a, a, b, b]}
        return self.node(op, name, [x], self.width[x], **attributes)

    def concat(self, parts: list[str], name: str) -> str:
        return self.node("Concat", name, parts, sum(self.width[p] for p in parts), axis=1)

    def model(self, last: str) -> Model:
        given = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, self.size, self.size])
        made = helper.make_empty_tensor_value_info(last)
        graph = helper.make_graph(self.nodes, self.name, [given], [made], self.weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return load(onnx.shape_inference.infer_shapes(proto), name=self.name)


#: Widths of GoogLeNet's blocks in the order of the paper: 1x1, 3x3 (reduce, full), 5x5 (same), pool.
_BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64), "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}  # fmt: skip


def googlenet() -> Model:
    """C. Szegedy et al., Going deeper with convolutions, CVPR 2015, table 1, by the names of bvlc_googlenet.

    Its rectifiers work in place, so that what they write bears the name of the convolution. Its classifier reads
    C×1×1, which only a convolution over one position does in ONNX.
    """
    net = PublishedNet("googlenet", 224)

    def block(x: str, name: str, relu: str, width: int, kernel: int, *, stride: int = 1) -> str:
        raw = net.conv(x, name, width, kernel, stride=stride, out=f"{name}.raw")
        return net.relu(raw, relu, out=name)

    x = block("data", "conv1/7x7_s2", "conv1/relu_7x7", 64, 7, stride=2)
    x = net.pool(x, "pool1/3x3_s2", 3, 2, (0, 1))
    x = net.node("LRN", "pool1/norm1", [x], net.width[x], size=5)
    x = block(x, "conv2/3x3_reduce", "conv2/relu_3x3_reduce", 64, 1)
    x = block(x, "conv2/3x3", "conv2/relu_3x3", 192, 3)
    x = net.node("LRN", "conv2/norm2", [x], net.width[x], size=5)
    x = net.pool(x, "pool2/3x3_s2", 3, 2, (0, 1))
    for name, (a, b, c, d, e, f) in _BLOCKS.items():
        at = f"inception_{name}"
        if name in {"4a", "5a"}:
            number = int(name[0]) - 1
            x = net.pool(x, f"pool{number}/3x3_s2", 3, 2, (0, 1))
        one = block(x, f"{at}/1x1", f"{at}/relu_1x1", a, 1)
        three = block(x, f"{at}/3x3_reduce", f"{at}/relu_3x3_reduce", b, 1)
        three = block(three, f"{at}/3x3", f"{at}/relu_3x3", c, 3)
        five = block(x, f"{at}/5x5_reduce", f"{at}/relu_5x5_reduce", d, 1)
        five = block(five, f"{at}/5x5", f"{at}/relu_5x5", e, 5)
        pool = net.pool(x, f"{at}/pool", 3, 1, (1, 1))
        pool = block(pool, f"{at}/pool_proj", f"{at}/relu_pool_proj", f, 1)
        x = net.concat([one, three, five, pool], f"{at}/output")
    x = net.pool(x, "pool5/7x7_s1", 7, 1, op="AveragePool")
    x = net.conv(x, "loss3/classifier", 1000, 1)
    return net.model(net.node("Softmax", "prob", [x], net.width[x], axis=1))


def vgg19() -> Model:
    """K. Simonyan and A. Zisserman, Very deep convolutional networks, ICLR 2015, table 1, column E.

    Dropout, which does nothing, is left out; fully connected layers are convolutions over all that they read.
    """
    net, x = PublishedNet("vgg19", 224), "data"
    for stage, (width, count) in enumerate(((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)), start=1):
        for i in range(1, count + 1):
            x = net.relu(net.conv(x, f"conv{stage}_{i}", width, 3), f"relu{stage}_{i}")
        x = net.pool(x, f"pool{stage}", 2, 2)
    for name, kernel in (("6", 7), ("7", 1)):
        x = net.relu(net.conv(x, f"fc{name}", 4096, kernel, pads=0), f"relu{name}")
    x = net.conv(x, "fc8", 1000, 1)
    return net.model(net.node("Softmax", "prob", [x], net.width[x], axis=1))


def resnet152() -> Model:
    """K. He et al., Deep residual learning, CVPR 2016, table 1, as its authors published it for Caffe.

    There a normalization and its scale are two layers, which are two normalizations here.
    """
    net = PublishedNet("resnet152", 224)

    def conv(x: str, name: str, width: int, kernel: int, stride: int = 1) -> str:
        x = net.conv(x, f"res{name}", width, kernel, stride=stride, bias=False)
        return net.norm(net.norm(x, f"bn{name}"), f"scale{name}")

    x = net.relu(conv("data", "conv1", 64, 7, 2), "conv1_relu")
    x = net.pool(x, "pool1", 3, 2, (1, 1))
    for stage, (width, blocks) in enumerate(((64, 3), (128, 8), (256, 36), (512, 3)), start=2):
        for block in range(blocks):
            at, stride = f"{stage}b{block}", 2 if stage > 2 and block == 0 else 1
            short = conv(x, f"{at}_branch1", 4 * width, 1, stride) if block == 0 else x
            y = net.relu(conv(x, f"{at}_branch2a", width, 1, stride), f"res{at}_branch2a_relu")
            y = net.relu(conv(y, f"{at}_branch2b", width, 3), f"res{at}_branch2b_relu")
            y = conv(y, f"{at}_branch2c", 4 * width, 1)
            x = net.relu(net.node("Add", f"res{at}", [short, y], net.width[y]), f"res{at}_relu")
    x = net.conv(net.pool(x, "pool5", 7, 1, op="AveragePool"), "fc1000", 1000, 1)
    return net.model(net.node("Softmax", "prob", [x], net.width[x], axis=1))


def inception_v3(*, nested: bool = False) -> Model:
    """C. Szegedy et al., Rethinking the Inception architecture, CVPR 2016, without the auxiliary classifier.

    The widest blocks have one Concat of six, as in the first release for TensorFlow and its conversions for Caffe;
    ``nested`` has the pairs of a 1x3 and a 3x1 concatenated before, as TF-Slim, Keras and torchvision do.
    """
    net = PublishedNet("inception_v3", 299)

    def conv(
        x: str, name: str, width: int, kernel: int | tuple[int, int], stride: int = 1, *, valid: bool = False
    ) -> str:
        x = net.conv(x, name, width, kernel, stride=stride, pads=0 if valid else None, bias=False)
        return net.relu(net.norm(x, f"{name}_bn"), f"{name}_relu")

    def chain(x: str, at: str, *steps: tuple[int, int | tuple[int, int]]) -> str:
        for i, (width, kernel) in enumerate(steps, start=1):
            x = conv(x, f"{at}_{i}", width, kernel)
        return x

    def mean(x: str, at: str) -> str:
        return net.pool(x, f"{at}_pool", 3, 1, (1, 1), op="AveragePool")

    x = conv(conv("data", "conv_1a", 32, 3, 2, valid=True), "conv_2a", 32, 3, valid=True)
    x = net.pool(conv(x, "conv_2b", 64, 3), "pool_1", 3, 2)
    x = net.pool(conv(conv(x, "conv_3b", 80, 1), "conv_4a", 192, 3, valid=True), "pool_2", 3, 2)
    for at, width in (("5b", 32), ("5c", 64), ("5d", 64)):
        parts = [conv(x, f"{at}_1x1", 64, 1), chain(x, f"{at}_5x5", (48, 1), (64, 5))]
        parts += [chain(x, f"{at}_dbl", (64, 1), (96, 3), (96, 3)), conv(mean(x, at), f"{at}_proj", width, 1)]
        x = net.concat(parts, f"mixed_{at}")
    y = conv(chain(x, "6a_dbl", (64, 1), (96, 3)), "6a_dbl_3", 96, 3, 2, valid=True)
    x = net.concat([conv(x, "6a_3x3", 384, 3, 2, valid=True), y, net.pool(x, "6a_pool", 3, 2)], "mixed_6a")
    for at, w in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        parts = [conv(x, f"{at}_1x1", 192, 1), chain(x, f"{at}_7x7", (w, 1), (w, (1, 7)), (192, (7, 1)))]
        parts += [chain(x, f"{at}_dbl", (w, 1), (w, (7, 1)), (w, (1, 7)), (w, (7, 1)), (192, (1, 7)))]
        x = net.concat([*parts, conv(mean(x, at), f"{at}_proj", 192, 1)], f"mixed_{at}")
    y = conv(conv(x, "7a_3x3_1", 192, 1), "7a_3x3_2", 320, 3, 2, valid=True)
    z = conv(chain(x, "7a_7x7", (192, 1), (192, (1, 7)), (192, (7, 1))), "7a_7x7_4", 192, 3, 2, valid=True)
    x = net.concat([y, z, net.pool(x, "7a_pool", 3, 2)], "mixed_7a")
    for at in ("7b", "7c"):
        parts = [conv(x, f"{at}_1x1", 320, 1)]
        for y in (conv(x, f"{at}_3x3_1", 384, 1), chain(x, f"{at}_dbl", (448, 1), (384, 3))):
            pair = [conv(y, f"{y}_a", 384, (1, 3)), conv(y, f"{y}_b", 384, (3, 1))]
            parts += [net.concat(pair, f"{y}_pair")] if nested else pair
        x = net.concat([*parts, conv(mean(x, at), f"{at}_proj", 192, 1)], f"mixed_{at}")
    x = net.conv(net.pool(x, "pool_3", 8, 1, op="AveragePool"), "logits", 1000, 1)
    return net.model(net.node("Softmax", "prob", [x], net.width[x], axis=1))
