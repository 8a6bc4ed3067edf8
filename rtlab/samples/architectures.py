"""Well-known architectures with synthetic weights, and chains of any length.

The weights are random, but fitted while the graph is written: each layer runs on a few pictures, and its
output is standardised by what it really is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

from rtlab.core.model import Model, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

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
_SEED = 20


def googlenet() -> Model:
    """Inception v1 (Szegedy et al., 2015, table 1), without the auxiliary classifiers of training."""
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
    return net.classify(x, 1000)


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


def inception_chain(*, nodes: int = 1000) -> Model:
    """A runnable chain of small Inception blocks with about ``nodes`` nodes (20 to a block), for graph tests.

    Input ``image``: ``N×3×16×16``, normal noise fits; ten logits.
    """
    noise = np.random.default_rng(_SEED).standard_normal((32, 3, 16, 16), np.float32)
    net = _Network("inception_chain", noise)
    x = net.convolve(net.input, "/stem", 16, 3)
    for i in range(max(1, round((nodes - 6) / 20))):
        x = net.inception(x, f"/inception{i + 1}", (4, 4, 4, 2, 4, 4), norm=True)
    return net.classify(x, 10)


def transformer_stack(*, nodes: int = 1000) -> Model:
    """A runnable stack of small transformer encoder layers with about ``nodes`` nodes (33 to a layer).

    Input ``hidden``: ``N×16×32`` embeddings of 16 tokens; four heads; the output has the same shape. Weights
    are scaled as GPT-2 scales them, so that the residual stream stays of order one at any depth.
    """
    width, heads, tokens = 32, 4, 16
    layers = max(1, round((nodes - 1) / 33))
    writer = _Writer("transformer_stack")
    rng = np.random.default_rng(_SEED)
    x = "hidden"

    def constant(name: str, value: float) -> str:
        return writer.weight(name, np.array(value, np.float32))

    def dense(x: str, where: str, fan_in: int, fan_out: int, gain: float = 1.0) -> str:
        scale = gain / np.sqrt(fan_in)
        weight = rng.standard_normal((fan_in, fan_out), np.float32) * np.float32(scale)
        x = writer.node("MatMul", [x, writer.weight(f"{where}/weight", weight)], where)
        return writer.node("Add", [x, writer.weight(f"{where}/bias", np.zeros(fan_out, np.float32))], where)

    def norm(x: str, where: str) -> str:
        scale = writer.weight(f"{where}/scale", np.ones(width, np.float32))
        bias = writer.weight(f"{where}/bias", np.zeros(width, np.float32))
        return writer.node("LayerNormalization", [x, scale, bias], where, axis=-1, epsilon=1e-5)

    split = writer.weight("split_heads", np.array([0, tokens, heads, width // heads]))
    merge = writer.weight("merge_heads", np.array([0, tokens, width]))
    shrink = constant("head_scale", np.sqrt(width // heads))
    root, one, half = constant("sqrt_two", np.sqrt(2)), constant("one", 1), constant("half", 0.5)
    for i in range(layers):
        at, branch = f"/layer{i}", 1 / np.sqrt(2 * layers)
        h = norm(x, f"{at}/attention/norm")
        parts: list[str] = []
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            where = f"{at}/attention/{part}"
            p = writer.node("Reshape", [dense(h, where, width, width), split], where)
            parts.append(writer.node("Transpose", [p], where, perm=order))
        where = f"{at}/attention"
        h = writer.node("MatMul", parts[:2], f"{where}/scores")
        h = writer.node("Div", [h, shrink], f"{where}/scores")
        h = writer.node("Softmax", [h], where, axis=-1)
        h = writer.node("MatMul", [h, parts[2]], f"{where}/context")
        h = writer.node("Transpose", [h], f"{where}/context", perm=(0, 2, 1, 3))
        h = writer.node("Reshape", [h, merge], f"{where}/context")
        x = writer.node("Add", [x, dense(h, f"{where}/output", width, width, branch)], where)
        h = dense(norm(x, f"{at}/mlp/norm"), f"{at}/mlp/up", width, 4 * width)
        where = f"{at}/mlp/gelu"
        e = writer.node("Erf", [writer.node("Div", [h, root], where)], where)
        e = writer.node("Mul", [h, writer.node("Add", [e, one], where)], where)
        h = writer.node("Mul", [e, half], f"{where}/half")
        x = writer.node("Add", [x, dense(h, f"{at}/mlp/down", 4 * width, width, branch)], f"{at}/mlp")
    x = norm(x, "/norm")
    return writer.model(("hidden", ("N", tokens, width)), x, ("encoded", ("N", tokens, width)))


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
        white = np.random.default_rng((_SEED, i)).standard_normal((4, size, size))
        noise = np.fft.irfft2(np.fft.rfft2(white) / frequency, s=(size, size))
        noise /= noise.std(axis=(1, 2), keepdims=True)
        picture = np.clip(mean + 0.25 * (0.95 * noise[0] + 0.3 * noise[1:]), 0, 1)
        result[i] = (picture - mean) / deviation
    return result


class _Writer:
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

    def model(
        self,
        source: tuple[str, Sequence[int | str]],
        result: str,
        target: tuple[str, Sequence[int | str]],
    ) -> Model:
        """The finished model; the value ``result`` becomes the graph output ``target``."""
        last = next(n for n in self.nodes if result in n.output)
        last.output[:] = [target[0]]
        info = functools.partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [info(source[0], shape=source[1])],
            [info(target[0], shape=target[1])],
            list(self.weights.values()),
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="rtlab"
        )
        return wrap(proto, name=self.name)


class _Tensor(NamedTuple):
    """A value of the graph with what it holds for the pictures that the weights are fitted to."""

    name: str
    data: Array


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
        self.writer = _Writer(name)
        self.rng = np.random.default_rng(_SEED)
        self.input = _Tensor("image", pictures)

    def convolve(
        self,
        x: _Tensor,
        where: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        norm: bool = True,
        relu: bool = True,
        gamma: float = 1.0,
    ) -> _Tensor:
        """Convolution with batch normalisation (or a bias) and, unless told otherwise, ReLU."""
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
        layout = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        put, at = self.writer.weight, f"{where}/conv"
        if norm:
            name = self.writer.node("Conv", [x.name, put(f"{at}/weight", weight)], at, **layout)
            ones, at = np.ones(channels, np.float32), f"{where}/norm"
            parts = {"scale": gamma * ones, "bias": beta * ones, "mean": mean, "var": variance - _EPSILON}
            inputs = [name, *(put(f"{at}/{k}", v.astype(np.float32)) for k, v in parts.items())]
            name = self.writer.node("BatchNormalization", inputs, at, epsilon=_EPSILON)
        else:
            weight = weight * scale[:, None, None, None]
            inputs = [x.name, put(f"{at}/weight", weight), put(f"{at}/bias", beta - mean * scale)]
            name = self.writer.node("Conv", inputs, at, **layout)
        y = _Tensor(name, raw)
        return self.relu(y, where) if relu else y

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

    def relu(self, x: _Tensor, where: str) -> _Tensor:
        """Rectify."""
        return _Tensor(self.writer.node("Relu", [x.name], f"{where}/relu"), np.maximum(x.data, 0))

    def add(self, x: _Tensor, y: _Tensor, where: str) -> _Tensor:
        """Add a residual branch and its shortcut."""
        return _Tensor(self.writer.node("Add", [x.name, y.name], where), x.data + y.data)

    def pool(self, x: _Tensor, where: str, *, stride: int, pads: tuple[int, int]) -> _Tensor:
        """Maximum over 3x3; ``pads`` before and after, the same for rows and columns."""
        edges = ((0, 0), (0, 0), pads, pads)
        data = np.pad(x.data, edges, constant_values=-np.inf)
        # Along one axis, then along the other: a maximum over windows takes twenty times as long.
        for axis in (2, 3):
            windows = np.moveaxis(sliding_window_view(data, 3, axis=axis), -1, 0)
            data = np.maximum.reduce(windows)
            data = data[:, :, ::stride] if axis == 2 else data[:, :, :, ::stride]
        layout = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [pads[0]] * 2 + [pads[1]] * 2}
        return _Tensor(self.writer.node("MaxPool", [x.name], where, **layout), data)

    def normalise_locally(self, x: _Tensor, where: str) -> _Tensor:
        """Local response normalisation over five channels (Krizhevsky et al., 2012)."""
        padded = np.pad(x.data**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
        energy = sliding_window_view(padded, 5, axis=1).sum(axis=-1)
        data = x.data / (1 + np.float32(1e-4 / 5) * energy) ** np.float32(0.75)
        name = self.writer.node("LRN", [x.name], where, size=5, alpha=1e-4, beta=0.75, bias=1.0)
        return _Tensor(name, data)

    def inception(
        self, x: _Tensor, where: str, widths: tuple[int, int, int, int, int, int], *, norm: bool
    ) -> _Tensor:
        """An Inception block; ``widths`` in the paper's order: 1x1, 3x3 (reduce, full), 5x5 (same), pool."""
        one, reduce3, three, reduce5, five, pooled = widths
        conv = functools.partial(self.convolve, norm=norm)
        branches = [conv(x, f"{where}/branch1x1", one, 1)]
        for size, reduce, width in ((3, reduce3, three), (5, reduce5, five)):
            at = f"{where}/branch{size}x{size}"
            branches.append(conv(conv(x, f"{at}/reduce", reduce, 1), at, width, size))
        at = f"{where}/branch_pool"
        branches.append(conv(self.pool(x, at, stride=1, pads=(1, 1)), at, pooled, 1))
        name = self.writer.node("Concat", [b.name for b in branches], where, axis=1)
        return _Tensor(name, np.concatenate([b.data for b in branches], axis=1))

    def classify(self, x: _Tensor, classes: int) -> Model:
        """Global average pooling and a dense layer with standardised logits; ends the network."""
        pooled = x.data.mean(axis=(2, 3))
        centre = pooled.mean(axis=0)
        weight = self.rng.standard_normal((classes, pooled.shape[1]), np.float32)
        weight /= ((pooled - centre) @ weight.T).std()
        name = self.writer.node("GlobalAveragePool", [x.name], "/pool")
        name = self.writer.node("Flatten", [name], "/flatten", axis=1)
        put = self.writer.weight
        inputs = [name, put("classifier/weight", weight), put("classifier/bias", -(centre @ weight.T))]
        name = self.writer.node("Gemm", inputs, "/classifier", transB=1)
        shape = ("N", *self.input.data.shape[1:])
        return self.writer.model(("image", shape), name, ("logits", ("N", classes)))


def _unfold(x: Array, kernel: int, stride: int) -> tuple[Array, tuple[int, int]]:
    """Patches under an odd kernel with "same" padding, and the size of the map that they make.

    Shape of the patches: ``(N, C * kernel**2, rows * columns)``.
    """
    pad = kernel // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) if pad else x
    windows = sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    size = windows.shape[2:4]
    patches = np.ascontiguousarray(windows.transpose(0, 1, 4, 5, 2, 3))
    return patches.reshape(len(x), x.shape[1] * kernel**2, size[0] * size[1]), size
