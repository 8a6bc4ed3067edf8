"""Train ``digits_qat.onnx`` and ``digits_qat_misplaced.onnx``: one network trained with INT8 in the loop.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_qat.py

The residual network is trained in FP32, its batch normalisations are folded, and it is trained further with
fake quantization: weights per output channel with scale amax / 127, activations per tensor with a scale that
is learned (S. Esser et al., "Learned Step Size Quantization", 2020), both symmetric, gradients straight through.

``digits_qat`` has its pairs where TensorRT wants them (``digits_resnet.py`` says where), with FP32 weights ahead
of theirs, as PyTorch's exporter leaves them. ``digits_qat_misplaced`` holds the same weights and biases, without
pairs handed to ``onnxruntime.quantization.quantize_static`` with its defaults except for what TensorRT cannot do
without (symmetric INT8, per channel, FP32 biases): it also quantizes what convolutions, additions and the classifier
write, both sides of a residual addition among them. One shortcut is excluded with the addition behind it, as people
do for accuracy: there the pair is missing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from digits_common import Digits, folder, halves, reproducible, right, run, save, scores, train
from digits_resnet import ConvNorm, DigitsResnet, ResnetWriter
from onnxruntime import quantization
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

#: What quantize_static is told to leave alone: the shortcut by a convolution, and the addition that reads it.
EXCLUDED = ("/blocks/1/shortcut/Conv", "/blocks/1/residual/Add")


def fake_quantize(x: torch.Tensor, scale: torch.Tensor, low: int) -> torch.Tensor:
    """Round to ``low`` to 127 steps of ``scale`` and back; rounding passes gradients, saturation to the scale."""
    level = torch.clamp(x / scale, low, 127)
    return (level + (level.round() - level).detach()) * scale


class Quantizer(nn.Module):
    """Quantizes an activation; until ``scale`` is set it only remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        if not self.scale:
            # 99.9 % of the magnitudes, from where training moves it.
            seen = x.detach().abs().flatten().sort().values
            self.scale.data = seen[int(0.999 * len(seen))] / 127
        return fake_quantize(x, self.scale, -128)


def steps(weight: torch.Tensor) -> torch.Tensor:
    """One step per output channel."""
    return weight.detach().abs().flatten(1).amax(1) / 127


class QuantizedConv(nn.Conv2d):
    """A convolution whose weight is quantized per output channel."""

    @classmethod
    def of(cls, conv: nn.Conv2d) -> QuantizedConv:
        """The same convolution, quantized."""
        new = cls(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)
        new.load_state_dict(conv.state_dict())
        return new

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        weight = fake_quantize(self.weight, steps(self.weight)[:, None, None, None], -127)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class QuantizedLinear(nn.Linear):
    """A dense layer whose weight is quantized per output channel."""

    @classmethod
    def of(cls, linear: nn.Linear) -> QuantizedLinear:
        """The same layer, quantized."""
        new = cls(linear.in_features, linear.out_features)
        new.load_state_dict(linear.state_dict())
        return new

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return functional.linear(x, fake_quantize(self.weight, steps(self.weight)[:, None], -127), self.bias)


def replace(net: nn.Module, kind: type[nn.Module], make: Callable[[nn.Module], nn.Module]) -> None:
    """Put ``make(module)`` in the place of every module of a kind."""
    for parent in list(net.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, kind):
                setattr(parent, name, make(module))


class QatWriter(ResnetWriter):
    """Writes a pair where a quantizer stands, and one for each weight."""

    def pair(self, x: str, where: str, scale: NDArray[np.float32], **attributes: object) -> str:
        """QuantizeLinear and DequantizeLinear with zero point 0."""
        at = self.key(where)
        inputs = [
            self.constant(f"{at}.scale", scale),
            self.constant(f"{at}.zero_point", np.zeros(scale.shape, np.int8)),
        ]
        x = self.node("QuantizeLinear", [x, *inputs], where, **attributes)
        return self.node("DequantizeLinear", [x, *inputs], where, **attributes)

    def quantizer(self, x: str, where: str, module: nn.Module) -> str:
        """A pair with one scale."""
        if not isinstance(module, Quantizer):
            return super().quantizer(x, where, module)
        return self.pair(x, where, module.scale.detach().numpy())

    def weight(self, where: str) -> str:
        """An FP32 weight behind a pair with a scale per output channel."""
        scale = steps(self.net.get_submodule(self.key(where)).weight).numpy()
        return self.pair(super().weight(where), f"{where}/weight", scale, axis=0)


class Reader:
    """Gives the training half to quantize_static, as its calibration reader."""

    def __init__(self, data: Digits) -> None:
        self.batches: Iterator[NDArray[np.float32]] = iter(np.array_split(data.images, 14))

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """The next batch."""
        batch = next(self.batches, None)
        return None if batch is None else {"image": batch}


def misplaced(model: onnx.ModelProto, data: Digits) -> onnx.ModelProto:
    """What quantize_static writes."""
    options = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "quantized.onnx"
        quantization.quantize_static(
            model,
            path,
            Reader(data),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            nodes_to_exclude=list(EXCLUDED),
            extra_options=options,
        )
        found = onnx.load(path)
    found.graph.name = "digits_qat_misplaced"
    return found


def main() -> None:
    """Train, write both, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsResnet()
    train(net, fit, epochs=50, clean=8)
    replace(net, ConvNorm, ConvNorm.folded)
    plain = ResnetWriter(net).write().model("post-training")
    for name, percent, decibel in scores(plain, fit, test):
        print(f"post-training {name:16} {percent:6.2f} % right {decibel:6.1f} dB")
    replace(net, nn.Conv2d, QuantizedConv.of)
    replace(net, nn.Linear, QuantizedLinear.of)
    replace(net, nn.Identity, lambda _: Quantizer())
    train(net, fit, epochs=20, clean=8, rate=0.001, decay=0.0)
    with torch.no_grad():
        expected = net(torch.as_tensor(test.images)).numpy()
    model = QatWriter(net).write().model("digits_qat")
    # A sum on the edge between two steps may round either way, so some logits differ by a little.
    logits = run(model, test.images)[0]
    np.testing.assert_allclose(logits, expected, atol=0.5)
    print(f"trained with INT8: {right(expected, test):.2f} % in PyTorch, {right(logits, test):.2f} % in ONNX")
    save(model, out)
    replace(net, Quantizer, lambda _: nn.Identity())
    model = misplaced(ResnetWriter(net).write().model("digits_qat"), fit)
    print(f"misplaced: {right(run(model, test.images)[0], test):.2f} % right")
    save(model, out)


if __name__ == "__main__":
    main()
