"""Train ``digits_dark.onnx`` and ``digits_light.onnx``: gated networks on pictures as files hold them.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_gate.py

Nothing is standardised: a picture is bytes divided by 255, bright ink on black or black ink on white, as most
people feed their networks. Each block is depthwise-separable and scales its channels by a gate (squeeze and
excitation, J. Hu et al., 2018, arXiv:1709.01507): the mean over positions, two 1x1 convolutions, a sigmoid.
Both files are one network, trained anew on either ground.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from digits_common import Digits, Writer, agree, folder, report, reproducible, save, split, train
from torch import nn

from rtlab.samples import digits_picture

#: Channels of the stem and of each block, each block's stride, and by what a gate narrows its channels.
WIDTHS, STRIDES, SQUEEZE = (16, 24, 32, 48), (2, 1, 2), 4


class Gate(nn.Module):
    """Scale each channel by what the means of all of them say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width, width // SQUEEZE, 1)
        self.excite = nn.Conv2d(width // SQUEEZE, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return x * self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))).sigmoid()


class Separable(nn.Module):
    """Depthwise 3x3 convolution, gate, pointwise convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.gate = Gate(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        x = self.gate(torch.relu(self.norm1(self.depthwise(x))))
        return torch.relu(self.norm2(self.pointwise(x)))


class DigitsGate(nn.Module):
    """Stem, three gated blocks, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTHS[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        self.blocks = nn.Sequential(
            *(Separable(a, b, s) for (a, b), s in zip(pairwise(WIDTHS), STRIDES, strict=True))
        )
        self.classifier = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.classifier(self.blocks(torch.relu(self.norm(self.stem(x)))).mean((2, 3)))


class GateWriter(Writer):
    """Adds the gate and the block."""

    def gate(self, x: str, where: str) -> str:
        """Write squeeze and excitation."""
        y = self.node("GlobalAveragePool", [x], where)
        y = self.node("Conv", [y], f"{where}/squeeze", "weight", "bias", kernel_shape=[1, 1])
        y = self.node("Relu", [y], f"{where}/squeeze")
        y = self.node("Conv", [y], f"{where}/excite", "weight", "bias", kernel_shape=[1, 1])
        return self.node("Mul", [x, self.node("Sigmoid", [y], f"{where}/excite")], where)

    def block(self, x: str, where: str, conv: nn.Conv2d) -> str:
        """Write one gated block."""
        layout = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": list(conv.stride), "group": conv.groups}
        x = self.node("Conv", [x], f"{where}/depthwise", "weight", **layout)
        x = self.node("Relu", [self.norm(x, f"{where}/norm1")], f"{where}/depthwise")
        x = self.gate(x, f"{where}/gate")
        x = self.node("Conv", [x], f"{where}/pointwise", "weight", kernel_shape=[1, 1])
        return self.node("Relu", [self.norm(x, f"{where}/norm2")], f"{where}/pointwise")


def write(net: DigitsGate) -> Writer:
    """Write the whole network."""
    writer = GateWriter(net)
    x = writer.node("Conv", ["image"], "/stem", "weight", kernel_shape=[3, 3], pads=[1] * 4)
    x = writer.node("Relu", [writer.norm(x, "/norm")], "/stem")
    for i, block in enumerate(net.blocks):
        x = writer.block(x, f"/blocks/{i}", block.depthwise)
    writer.head(x)
    return writer


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    data = split()
    for ground in ("dark", "light"):
        fit, test = (
            Digits(digits_picture(data[f"{half}_images"], ground=ground), data[f"{half}_labels"])
            for half in ("train", "test")
        )
        reproducible()
        net = DigitsGate()
        train(net, fit, epochs=100, clean=8)
        model = write(net).model(f"digits_{ground}")
        agree(model, net, test)
        save(model, out)
        report(model, fit, test)


if __name__ == "__main__":
    main()
