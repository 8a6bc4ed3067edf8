"""Well-known architectures with synthetic weights, and chains of any length.

The weights are random, but fitted while the graph is written: each layer runs on a few pictures, and its
output is standardised by what it really is.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

from rtlab.core.model import Model, wrap

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

#: Where all random weights start from, so that a sample is the same everywhere.
SEED = 20


class SampledValue(NamedTuple):
    """A value of the graph with what it holds for the samples that the weights are fitted to."""

    name: str
    data: Array


class Writer:
    """Collects nodes and weights of an ONNX graph under readable names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer; ``/conv1/weight`` becomes ``conv1.weight`` as PyTorch's exporter writes it."""
        title = name.strip("/").replace("/", ".")
        self.weights[title] = numpy_helper.from_array(array, title)
        return title

    def node(self, op: str, inputs: Sequence[str], where: str, **attributes: Any) -> str:
        """Add a node ``where/op`` with one output and return the output's name."""
        name = f"{where}/{op}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def rename(self, rules: Mapping[str, str]) -> None:
        """Give nodes, and the values they write, other names: patterns of whole names with what takes their place."""
        for node in self.nodes:
            for pattern, text in rules.items():
                if re.fullmatch(pattern, node.name):
                    node.name = re.sub(pattern, text, node.name)
                    break
        fresh = {o: n.name for n in self.nodes for o in n.output}
        for node in self.nodes:
            node.input[:] = [fresh.get(i, i) for i in node.input]
            node.output[:] = [fresh[o] for o in node.output]

    def model(
        self,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, tuple[str, Sequence[int | str]]],
        *,
        integers: Container[str] = (),
        shapes: Mapping[str, int] | None = None,
    ) -> Model:
        """The finished model.

        Args:
            inputs: The shape of each input by its name.
            outputs: The value that becomes an output, and its shape, by the output's name.
            integers: The inputs that are INT64; the others are FP32.
            shapes: Sizes of dynamic dimensions by their symbol.
        """
        fresh = {value: name for name, (value, _) in outputs.items()}
        for node in self.nodes:
            node.input[:] = [fresh.get(v, v) for v in node.input]
            node.output[:] = [fresh.get(v, v) for v in node.output]
        kinds = {n: onnx.TensorProto.INT64 if n in integers else onnx.TensorProto.FLOAT for n in inputs}
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(n, kinds[n], shape) for n, shape in inputs.items()],
            [
                helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape)
                for n, (_, shape) in outputs.items()
            ],
            list(self.weights.values()),
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="rtlab"
        )
        return wrap(proto, name=self.name, shapes=shapes)


#: ImageNet's channel means and deviations, by which its networks normalise pictures of 0 to 1.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Pictures that the weights are fitted to. Four of 224x224 leave 196 positions per channel in the smallest
#: maps, enough for deviations within a few percent.
_PICTURES = 4
#: Patches mixed into a filter, and the share of a filter's power that comes from them.
_MIXED, _ALIGNED = 256, 0.9
#: Bias of a normalisation before ReLU, in deviations: about 60 % of the elements pass.
_BETA = 0.25
_EPSILON = 1e-5
#: Below this part of the deviation a mean is taken to be zero.
_CENTRED = 1e-5
#: From our names of nodes to those of bvlc_googlenet.
_CAFFE = {
    "/conv1/conv/Conv": "conv1/7x7_s2",
    "/conv1/relu/Relu": "conv1/relu_7x7",
    "/lrn1/LRN": "pool1/norm1",
    "/lrn2/LRN": "conv2/norm2",
    "/conv2/reduce/conv/Conv": "conv2/3x3_reduce",
    "/conv2/reduce/relu/Relu": "conv2/relu_3x3_reduce",
    "/conv2/conv/Conv": "conv2/3x3",
    "/conv2/relu/Relu": "conv2/relu_3x3",
    r"/(pool[1-4])/MaxPool": r"\1/3x3_s2",
    r"/inception(\w+)/branch(\dx\d)/reduce/conv/Conv": r"inception_\1/\2_reduce",
    r"/inception(\w+)/branch(\dx\d)/reduce/relu/Relu": r"inception_\1/relu_\2_reduce",
    r"/inception(\w+)/branch(\dx\d)/conv/Conv": r"inception_\1/\2",
    r"/inception(\w+)/branch(\dx\d)/relu/Relu": r"inception_\1/relu_\2",
    r"/inception(\w+)/branch_pool/MaxPool": r"inception_\1/pool",
    r"/inception(\w+)/branch_pool/conv/Conv": r"inception_\1/pool_proj",
    r"/inception(\w+)/branch_pool/relu/Relu": r"inception_\1/relu_pool_proj",
    r"/inception(\w+)/Concat": r"inception_\1/output",
    "/pool/GlobalAveragePool": "pool5/7x7_s1",
    "/flatten/Flatten": "pool5/flatten",
    "/classifier/Gemm": "loss3/classifier",
}


def googlenet() -> Model:
    """Inception v1 (Szegedy et al., 2015, table 1), without the auxiliary classifiers of training.

    Its nodes bear the names of the Caffe model, so that build logs of that network can be replayed on it.
    """
    net = _Network("googlenet", pictures(_PICTURES, 224))
    conv = functools.partial(net.convolve, norm=False)
    shrink = functools.partial(net.pool, stride=2, pads=(0, 1))
    x = shrink(conv(net.input, "/conv1", 64, 7, stride=2), "/pool1")
    x = conv(net.normalise_locally(x, "/lrn1"), "/conv2/reduce", 64, 1)
    x = net.normalise_locally(conv(x, "/conv2", 192, 3), "/lrn2")
    blocks = {
        "3a": (64, 96, 128, 16, 32, 32),
        "3b": (128, 128, 192, 32, 96, 64),
        "4a": (192, 96, 208, 16, 48, 64),
        "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64),
        "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128),
        "5a": (256, 160, 320, 32, 128, 128),
        "5b": (384, 192, 384, 48, 128, 128),
    }
    for name, widths in blocks.items():
        if name.endswith("a"):
            x = shrink(x, f"/pool{int(name[0]) - 1}")
        x = net.inception(x, f"/inception{name}", widths, norm=False)
    return net.classify(x, 1000, names=_CAFFE)


def resnet50() -> Model:
    """ResNet-50 (He et al., 2016, table 1), version 1.5: the stride is on the 3x3 convolution of a block."""
    net = _Network("resnet50", pictures(_PICTURES, 224))
    x = net.pool(net.convolve(net.input, "/stem", 64, 7, stride=2), "/stem", stride=2, pads=(1, 1))
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            at, stride = f"/layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            short = x
            if block == 0:
                short = net.convolve(x, f"{at}/shortcut", 4 * width, 1, stride=stride, relu=False)
            y = net.convolve(x, f"{at}/conv1", width, 1)
            y = net.convolve(y, f"{at}/conv2", width, 3, stride=stride)
            # Half the deviation of the shortcut, as after training; with equal shares the sum would grow
            # with every block of a stage.
            y = net.convolve(y, f"{at}/conv3", 4 * width, 1, relu=False, gamma=0.5)
            x = net.relu(net.add(y, short, at), at)
    return net.classify(x, 1000)


def mobilenet_v2() -> Model:
    """MobileNetV2 (Sandler et al., 2018, table 2) of width 1."""
    net = _Network("mobilenet_v2", pictures(_PICTURES, 224))
    conv = functools.partial(net.convolve, ceiling=6.0)
    x = conv(net.input, "/stem", 32, 3, stride=2)
    width, number = 32, 0
    for expansion, channels, blocks, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            at, stride, y = f"/block{(number := number + 1)}", first if block == 0 else 1, x
            if expansion > 1:
                y = conv(y, f"{at}/expand", expansion * width, 1)
            y = net.filter_channels(y, f"{at}/depthwise", stride=stride, ceiling=6.0)
            short = stride == 1 and channels == width
            y = net.convolve(y, f"{at}/project", channels, 1, relu=False, gamma=0.5 if short else 1.0)
            x, width = net.add(y, x, at) if short else y, channels
    return net.classify(conv(x, "/last", 1280, 1), 1000)


def csp_detector() -> Model:
    """A detector of CSP blocks (Wang et al., 2020) with SiLU, of the layers and widths of YOLOv5n for 80 classes.

    It gives the raw numbers of three anchors at each place of three maps; boxes are not decoded.
    """
    net = _Network("csp_detector", pictures(_PICTURES, 256))
    conv = functools.partial(net.convolve, silu=True)
    x = conv(net.input, "/stem", 16, 6, stride=2)
    stage_outputs = []
    for stage, (width, blocks) in enumerate(((32, 1), (64, 2), (128, 3), (256, 1)), start=1):
        x = conv(x, f"/stage{stage}/down", width, 3, stride=2)
        x = net.cross_stage(x, f"/stage{stage}", width, blocks, short=True)
        stage_outputs.append(x)
    pooled = [conv(x, "/pyramid/reduce", 128, 1)]
    for i in range(3):
        pooled.append(net.pool(pooled[-1], f"/pyramid/pool{i + 1}", stride=1, pads=(2, 2), kernel=5))
    x = conv(net.concatenate(pooled, "/pyramid"), "/pyramid/expand", 256, 1)
    tops = []
    for level, (width, short) in enumerate(((128, stage_outputs[2]), (64, stage_outputs[1])), start=1):
        top = conv(x, f"/up{level}/reduce", width, 1)
        tops.append(top)
        x = net.concatenate([net.double(top, f"/up{level}"), short], f"/up{level}")
        x = net.cross_stage(x, f"/up{level}", width, 1, short=False)
    maps = [x]
    for level, (width, top) in enumerate(((64, tops[1]), (128, tops[0])), start=1):
        x = net.concatenate([conv(x, f"/down{level}/down", width, 3, stride=2), top], f"/down{level}")
        x = net.cross_stage(x, f"/down{level}", 2 * width, 1, short=False)
        maps.append(x)
    return net.detect(maps, 3 * (80 + 5))


def inception_chain(*, nodes: int = 1000) -> Model:
    """A runnable chain of small Inception blocks with about ``nodes`` nodes (20 to a block), for graph tests.

    Input ``image``: ``N×3×16×16``, normal noise fits; ten logits.
    """
    noise = np.random.default_rng(SEED).standard_normal((32, 3, 16, 16), np.float32)
    net = _Network("inception_chain", noise)
    x = net.convolve(net.input, "/stem", 16, 3)
    for i in range(max(1, round((nodes - 6) / 20))):
        x = net.inception(x, f"/inception{i + 1}", (4, 4, 4, 2, 4, 4), norm=True)
    return net.classify(x, 10)


def pictures(count: int, size: int) -> Array:
    """Pictures of 1/f noise, normalised as ImageNet's; shape ``(count, 3, size, size)``.

    Natural images have an amplitude spectrum close to 1/f (Field, 1987) and channels that mostly agree, so a
    shared brightness is mixed with a weaker noise per channel. Picture i is the same for any ``count``.
    """
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size))
    frequency[0, 0] = np.inf
    mean, deviation = (np.array(v)[:, None, None] for v in (_MEAN, _DEVIATION))
    result = np.empty((count, 3, size, size), np.float32)
    for i in range(count):
        white = np.random.default_rng((SEED, i)).standard_normal((4, size, size))
        noise = np.fft.irfft2(np.fft.rfft2(white) / frequency, s=(size, size))
        noise /= noise.std(axis=(1, 2), keepdims=True)
        picture = np.clip(mean + 0.25 * (0.95 * noise[0] + 0.3 * noise[1:]), 0, 1)
        result[i] = (picture - mean) / deviation
    return result


class _Network:
    """Writes a convolutional network while running it, so that random weights fit what each layer receives.

    Batch normalisation gets the mean and variance that its input really has; where a network has none, the
    convolution itself is scaled and biased. Either way each channel has deviation 1 before its activation.

    That alone would not do: with independent weights each normalised layer amplifies a disturbance more than
    the signal (Yang et al., 2019), and INT8 leaves 4 dB at the end of ResNet-50. Filters are therefore mixed
    from patches of their own input (Krähenbühl et al., 2016), so that they answer to signal more than to
    rounding, and get a small positive bias; together this leaves about 28 dB.
    """

    def __init__(self, name: str, pictures: Array) -> None:
        self.writer = Writer(name)
        self.rng = np.random.default_rng(SEED)
        self.input = SampledValue("image", pictures)

    def convolve(
        self,
        x: SampledValue,
        where: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        norm: bool = True,
        relu: bool = True,
        silu: bool = False,
        ceiling: float = np.inf,
        gamma: float = 1.0,
    ) -> SampledValue:
        """Convolution with batch normalisation (or a bias) and, unless told otherwise, ReLU to a ceiling or SiLU."""
        patches, size = _unfold(x.data, kernel, stride)
        weight = self._filters(patches, channels)
        raw: Array = weight @ patches
        # One factor for the whole layer; channels keep their differences, which normalisation removes.
        level = raw.std()
        weight, raw = weight / level, raw / level
        mean, variance = raw.mean(axis=(0, 2)), raw.var(axis=(0, 2)) + np.float32(_EPSILON)
        scale = (gamma / np.sqrt(variance)).astype(np.float32)
        beta = np.float32(_BETA if relu else 0)
        raw = (raw - mean[:, None]) * scale[:, None] + beta
        raw = raw.reshape(len(raw), channels, *size)
        weight = weight.reshape(channels, -1, kernel, kernel)
        put, at, layout = self.writer.weight, f"{where}/conv", _layout(kernel, stride)
        if norm:
            name = self.writer.node("Conv", [x.name, put(f"{at}/weight", weight)], at, **layout)
            name = self._normalise(name, where, (gamma, beta, mean, variance))
        else:
            weight = weight * scale[:, None, None, None]
            inputs = [x.name, put(f"{at}/weight", weight), put(f"{at}/bias", beta - mean * scale)]
            name = self.writer.node("Conv", inputs, at, **layout)
        y = SampledValue(name, raw)
        if silu:
            return self.silu(y, where)
        return self.relu(y, where, ceiling=ceiling) if relu else y

    def filter_channels(self, x: SampledValue, where: str, *, stride: int, ceiling: float) -> SampledValue:
        """Depthwise convolution, one 3x3 filter to each channel, with batch normalisation and ReLU."""
        count, channels = x.data.shape[:2]
        padded = np.pad(x.data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
        rows, columns = windows.shape[2:4]
        # As in _filters, with patches of one channel each.
        images, tops, lefts = (self.rng.integers(0, n, _MIXED) for n in (count, rows, columns))
        chosen = windows[images, :, tops, lefts].reshape(_MIXED, channels, 9)
        chosen -= chosen.mean(axis=0)
        mixture = np.einsum("mc,mcp->cp", self.rng.standard_normal((_MIXED, channels), np.float32), chosen)
        mixture /= mixture.std(axis=1, keepdims=True) + np.float32(_EPSILON)
        noise = self.rng.standard_normal((channels, 9), np.float32)
        weight = np.float32(np.sqrt(_ALIGNED)) * mixture + np.float32(np.sqrt(1 - _ALIGNED)) * noise
        raw: Array = np.zeros((count, channels, rows, columns), np.float32)
        for i in range(9):
            raw += weight[:, i, None, None] * windows[..., i // 3, i % 3]
        level = raw.std()
        weight, raw = weight / level, raw / level
        mean, variance = raw.mean(axis=(0, 2, 3)), raw.var(axis=(0, 2, 3)) + np.float32(_EPSILON)
        raw = (raw - mean[:, None, None]) / np.sqrt(variance)[:, None, None] + np.float32(_BETA)
        inputs = [x.name, self.writer.weight(f"{where}/conv/weight", weight.reshape(channels, 1, 3, 3))]
        name = self.writer.node("Conv", inputs, f"{where}/conv", group=channels, **_layout(3, stride))
        name = self._normalise(name, where, (1.0, np.float32(_BETA), mean, variance))
        return self.relu(SampledValue(name, raw), where, ceiling=ceiling)

    def _normalise(self, x: str, where: str, by: tuple[float, np.float32, Array, Array]) -> str:
        gamma, beta, mean, variance = by
        # Behind a projection, which is centred, a mean is what rounding leaves: other numbers with another count of
        # threads, some of which FP16 makes zero. Recorded builds are found by such differences.
        mean = np.where(np.abs(mean) < _CENTRED * np.sqrt(variance), np.float32(0), mean)
        ones, at = np.ones(len(mean), np.float32), f"{where}/norm"
        parts = {"scale": gamma * ones, "bias": beta * ones, "mean": mean, "var": variance - _EPSILON}
        inputs = [x, *(self.writer.weight(f"{at}/{k}", v.astype(np.float32)) for k, v in parts.items())]
        return self.writer.node("BatchNormalization", inputs, at, epsilon=_EPSILON)

    def _filters(self, patches: Array, channels: int) -> Array:
        """Random filters that mostly look at what varies in ``patches``; shape ``(channels, fan_in)``."""
        count, fan_in, places = patches.shape
        noise = self.rng.standard_normal((channels, fan_in), np.float32) * np.float32(np.sqrt(2 / fan_in))
        chosen = patches[self.rng.integers(0, count, _MIXED), :, self.rng.integers(0, places, _MIXED)]
        chosen -= chosen.mean(axis=0)
        mixture = self.rng.standard_normal((channels, _MIXED), np.float32) @ chosen
        mixture *= np.float32(np.sqrt(2 / fan_in)) / mixture.std()
        filters: Array = np.float32(np.sqrt(_ALIGNED)) * mixture + np.float32(np.sqrt(1 - _ALIGNED)) * noise
        return filters

    def relu(self, x: SampledValue, where: str, *, ceiling: float = np.inf) -> SampledValue:
        """Rectify, and cut off what exceeds the ceiling."""
        if np.isfinite(ceiling):
            put, top = self.writer.weight, np.float32(ceiling)
            ends = [put("floor", np.array(0, np.float32)), put("ceiling", np.array(top))]
            return SampledValue(self.writer.node("Clip", [x.name, *ends], where), np.clip(x.data, 0, top))
        return SampledValue(self.writer.node("Relu", [x.name], f"{where}/relu"), np.maximum(x.data, 0))

    def silu(self, x: SampledValue, where: str) -> SampledValue:
        """Multiply by the own sigmoid (Elfwing et al., 2018), as exporters write it."""
        gate = self.writer.node("Sigmoid", [x.name], f"{where}/act")
        name = self.writer.node("Mul", [x.name, gate], f"{where}/act")
        return SampledValue(name, x.data / (1 + np.exp(-x.data)))

    def cross_stage(
        self, x: SampledValue, where: str, channels: int, blocks: int, *, short: bool
    ) -> SampledValue:
        """A CSP block: half of the channels go through bottlenecks, half around them; ``short`` adds shortcuts."""
        conv = functools.partial(self.convolve, silu=True)
        y = conv(x, f"{where}/through", channels // 2, 1)
        for i in range(blocks):
            at = f"{where}/block{i + 1}"
            deep = conv(conv(y, f"{at}/conv1", channels // 2, 1), f"{at}/conv2", channels // 2, 3)
            y = self.add(deep, y, at) if short else deep
        around = conv(x, f"{where}/around", channels // 2, 1)
        return conv(self.concatenate([y, around], f"{where}/halves"), f"{where}/join", channels, 1)

    def concatenate(self, parts: Sequence[SampledValue], where: str) -> SampledValue:
        """Put the channels of several maps behind each other."""
        name = self.writer.node("Concat", [p.name for p in parts], where, axis=1)
        return SampledValue(name, np.concatenate([p.data for p in parts], axis=1))

    def double(self, x: SampledValue, where: str) -> SampledValue:
        """A map of twice the size, each number four times."""
        scales = self.writer.weight("twice", np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name = self.writer.node("Resize", [x.name, "", scales], where, mode="nearest", **modes)
        return SampledValue(name, x.data.repeat(2, axis=2).repeat(2, axis=3))

    def detect(self, maps: Sequence[SampledValue], numbers: int) -> Model:
        """So many numbers for each place of each map, behind each other; ends the network."""
        shape = self.writer.weight("places", np.array([0, numbers, -1], np.int64))
        flat, places = [], 0
        for i, x in enumerate(maps):
            head = self.convolve(x, f"/detect{i + 1}", numbers, 1, norm=False, relu=False)
            flat.append(self.writer.node("Reshape", [head.name, shape], f"/detect{i + 1}"))
            places += head.data[0, 0].size
        name = self.writer.node("Concat", flat, "/detect", axis=2)
        input_shape = ("N", *self.input.data.shape[1:])
        return self.writer.model({"image": input_shape}, {"detections": (name, ("N", numbers, places))})

    def add(self, x: SampledValue, y: SampledValue, where: str) -> SampledValue:
        """Add a residual branch and its shortcut."""
        return SampledValue(self.writer.node("Add", [x.name, y.name], where), x.data + y.data)

    def pool(
        self, x: SampledValue, where: str, *, stride: int, pads: tuple[int, int], kernel: int = 3
    ) -> SampledValue:
        """Maximum over a square; ``pads`` before and after, the same for rows and columns."""
        edges = ((0, 0), (0, 0), pads, pads)
        data = np.pad(x.data, edges, constant_values=-np.inf)
        # Along one axis, then along the other: a maximum over windows takes twenty times as long.
        for axis in (2, 3):
            windows = np.moveaxis(sliding_window_view(data, kernel, axis=axis), -1, 0)
            data = np.maximum.reduce(windows)
            data = data[:, :, ::stride] if axis == 2 else data[:, :, :, ::stride]
        layout = _layout(kernel, stride) | {"pads": [pads[0]] * 2 + [pads[1]] * 2}
        return SampledValue(self.writer.node("MaxPool", [x.name], where, **layout), data)

    def normalise_locally(self, x: SampledValue, where: str) -> SampledValue:
        """Local response normalisation over five channels (Krizhevsky et al., 2012)."""
        padded = np.pad(x.data**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
        energy = sliding_window_view(padded, 5, axis=1).sum(axis=-1)
        data = x.data / (1 + np.float32(1e-4 / 5) * energy) ** np.float32(0.75)
        name = self.writer.node("LRN", [x.name], where, size=5, alpha=1e-4, beta=0.75, bias=1.0)
        return SampledValue(name, data)

    def inception(
        self, x: SampledValue, where: str, widths: tuple[int, int, int, int, int, int], *, norm: bool
    ) -> SampledValue:
        """An Inception block; ``widths`` in the paper's order: 1x1, 3x3 (reduce, full), 5x5 (same), pool."""
        one, reduce3, three, reduce5, five, pooled = widths
        conv = functools.partial(self.convolve, norm=norm)
        branches = [conv(x, f"{where}/branch1x1", one, 1)]
        for size, reduce, width in ((3, reduce3, three), (5, reduce5, five)):
            at = f"{where}/branch{size}x{size}"
            branches.append(conv(conv(x, f"{at}/reduce", reduce, 1), at, width, size))
        at = f"{where}/branch_pool"
        branches.append(conv(self.pool(x, at, stride=1, pads=(1, 1)), at, pooled, 1))
        return self.concatenate(branches, where)

    def classify(self, x: SampledValue, classes: int, *, names: Mapping[str, str] | None = None) -> Model:
        """Global average pooling and a dense layer, ends the network; ``names`` as of ``Writer.rename``."""
        pooled = x.data.mean(axis=(2, 3))
        centre = pooled.mean(axis=0)
        weight = self.rng.standard_normal((classes, pooled.shape[1]), np.float32)
        weight /= ((pooled - centre) @ weight.T).std()
        name = self.writer.node("GlobalAveragePool", [x.name], "/pool")
        name = self.writer.node("Flatten", [name], "/flatten", axis=1)
        put = self.writer.weight
        inputs = [name, put("classifier/weight", weight), put("classifier/bias", -(centre @ weight.T))]
        name = self.writer.node("Gemm", inputs, "/classifier", transB=1)
        if names:
            self.writer.rename(names)
            name = self.writer.nodes[-1].name
        shape = ("N", *self.input.data.shape[1:])
        return self.writer.model({"image": shape}, {"logits": (name, ("N", classes))})


def _layout(kernel: int, stride: int) -> dict[str, list[int]]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [(kernel - 1) // 2] * 4}


def _unfold(x: Array, kernel: int, stride: int) -> tuple[Array, tuple[int, int]]:
    """Patches under a kernel, ``(N, C * kernel**2, rows * columns)``, with "same" padding; the size of their map."""
    pad = (kernel - 1) // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) if pad else x
    windows = sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    size = windows.shape[2:4]
    patches = np.ascontiguousarray(windows.transpose(0, 1, 4, 5, 2, 3))
    return patches.reshape(len(x), x.shape[1] * kernel**2, size[0] * size[1]), size
