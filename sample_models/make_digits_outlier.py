"""Train ``digits_outlier.onnx``: a depthwise-separable network with rare, large activations.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_outlier.py

How its outliers come about, in three steps:

1. Training, as for the other samples.
2. In every block but the last, one channel becomes a rare feature: the channel with the heaviest tail gets
   its threshold raised, by the bias of its batch normalisation, until it fires at one position in a thousand of
   the training half. A short further training lets the rest of the network make up for that.
3. Exact rescaling: these channels are multiplied by a power of two, in scale and bias of the normalisation, and
   the depthwise filter that reads each of them is divided by it. A ReLU lies between, so FP32 computes the
   same logits to the bit; the channel's range is no longer that of its neighbours.

Such channels arise by themselves where batch normalisation divides by the tiny deviation of a nearly dead
channel (T. Sheng et al., "A Quantization-Friendly Separable Convolution for MobileNets", 2018); here they are
put in on purpose, because scikit-learn's digits are too easy to produce them in a network this small.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from digits_common import Digits, Writer, agree, folder, halves, report, reproducible, run, save, train
from torch import nn

#: Channels of the stem and of each block, and each block's stride.
WIDTHS, STRIDES = (16, 24, 32, 32, 48, 48, 64), (1, 2, 1, 2, 1, 1)
#: Share of positions at which a rare channel fires, and the largest value that rescaling may give it.
RARE, PEAK = 1e-3, 256


class Separable(nn.Module):
    """Depthwise 3x3 and pointwise convolution, each with batch normalisation and ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return torch.relu(self.norm2(self.pointwise(torch.relu(self.norm1(self.depthwise(x))))))


class DigitsOutlier(nn.Module):
    """Stem, six separable blocks, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTHS[0], 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        self.blocks = nn.Sequential(
            *(Separable(a, b, s) for (a, b), s in zip(pairwise(WIDTHS), STRIDES, strict=True))
        )
        self.classifier = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.classifier(self.blocks(torch.relu(self.norm(self.stem(x)))).mean((2, 3)))


@torch.no_grad()
def make_rare(net: DigitsOutlier, data: Digits) -> list[int]:
    """Raise the threshold of the heaviest-tailed channel of every block but the last; return these channels."""
    chosen = []
    x = torch.relu(net.norm(net.stem(data.tensors()[0])))
    for block in net.blocks[:-1]:
        y = block(x)
        channel = int((y.amax((0, 2, 3)) / y.square().mean((0, 2, 3)).sqrt()).argmax())
        block.norm2.bias[channel] -= torch.quantile(y[:, channel], 1 - RARE)
        chosen.append(channel)
        x = block(x)
    return chosen


@torch.no_grad()
def rescale(net: DigitsOutlier, channels: list[int], data: Digits) -> None:
    """Multiply each rare channel by the largest power of two that keeps it below ``PEAK``, and divide it again."""
    x = torch.relu(net.norm(net.stem(data.tensors()[0])))
    for (block, reader), channel in zip(pairwise(net.blocks), channels, strict=True):
        y = block(x)[:, channel]
        factor = 2.0 ** math.floor(math.log2(PEAK / float(y.max())))
        print(
            f"channel {channel} fires at {float((y > 0).float().mean()):.2%} and is multiplied by {factor:g}"
        )
        block.norm2.weight[channel] *= factor
        block.norm2.bias[channel] *= factor
        reader.depthwise.weight[channel] /= factor
        x = block(x)


def write(net: DigitsOutlier) -> Writer:
    """Write the network, batch normalisation unfolded."""
    writer = Writer(net)
    three = {"kernel_shape": [3, 3], "pads": [1] * 4}
    x = writer.node("Conv", ["image"], "/stem", "weight", strides=[2, 2], **three)
    x = writer.node("Relu", [writer.norm(x, "/norm")], "/stem")
    for i, (width, stride) in enumerate(zip(WIDTHS[:-1], STRIDES, strict=True)):
        at = f"/blocks/{i}"
        x = writer.node("Conv", [x], f"{at}/depthwise", "weight", strides=[stride] * 2, group=width, **three)
        x = writer.node("Relu", [writer.norm(x, f"{at}/norm1")], f"{at}/depthwise")
        x = writer.node("Conv", [x], f"{at}/pointwise", "weight", kernel_shape=[1, 1])
        x = writer.node("Relu", [writer.norm(x, f"{at}/norm2")], f"{at}/pointwise")
    writer.head(x)
    return writer


def main() -> None:
    """Train, rescale, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsOutlier()
    train(net, fit, epochs=60, clean=8, decay=0.05)
    channels = make_rare(net, fit)
    train(net, fit, epochs=20, clean=8, rate=0.002, decay=0.05)
    before = run(write(net).model("before"), test.images)[0]
    rescale(net, channels, fit)
    model = write(net).model("digits_outlier")
    agree(model, net, test)
    if (run(model, test.images)[0] != before).any():
        raise ArithmeticError("Rescaling by powers of two changed the logits.")
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
