"""Train ``digits_mobilenet.onnx``: MobileNetV2's inverted residuals on scikit-learn's digits.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_mobilenet.py

Each block expands its channels by a 1x1 convolution, filters each of them by a depthwise 3x3 one, and projects
them back without an activation; where stride and width allow, the input is added (M. Sandler et al., 2018,
arXiv:1801.04381). ReLU6 is a Clip, batch normalisation is a node of its own.
"""

from __future__ import annotations

import numpy as np
import torch
from digits_common import Writer, agree, folder, halves, report, reproducible, save, train
from torch import nn
from torch.nn import functional

STEM, EXPANSION, LAST = 16, 4, 96
#: Output channels and stride of each block.
BLOCKS = ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1))


class InvertedResidual(nn.Module):
    """Expand, filter, project; add the input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = EXPANSION * inputs
        self.residual = inputs == outputs and stride == 1
        self.expand = nn.Conv2d(inputs, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.project = nn.Conv2d(inner, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        y = functional.relu6(self.norm1(self.expand(x)))
        y = self.norm3(self.project(functional.relu6(self.norm2(self.depthwise(y)))))
        return x + y if self.residual else y


class DigitsMobilenet(nn.Module):
    """Stem, five inverted residuals, a wide 1x1 convolution, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, STEM, 3, 2, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(STEM)
        widths = (STEM, *(w for w, _ in BLOCKS))
        self.blocks = nn.Sequential(
            *(InvertedResidual(i, o, s) for i, (o, s) in zip(widths, BLOCKS, strict=False))
        )
        self.last = nn.Conv2d(widths[-1], LAST, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(LAST)
        self.classifier = nn.Linear(LAST, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.blocks(functional.relu6(self.norm1(self.stem(x))))
        return self.classifier(functional.relu6(self.norm2(self.last(x))).mean((2, 3)))


class MobilenetWriter(Writer):
    """Adds ReLU6 and the block."""

    def relu6(self, x: str, where: str) -> str:
        """Clip to 0 to 6."""
        bounds = [
            self.constant(f"relu6.{name}", np.array(value, np.float32))
            for name, value in (("min", 0), ("max", 6))
        ]
        return self.node("Clip", [x, *bounds], where)

    def block(self, x: str, where: str, block: InvertedResidual) -> str:
        """Write one inverted residual."""
        conv = block.depthwise
        y = self.node("Conv", [x], f"{where}/expand", "weight", kernel_shape=[1, 1])
        y = self.relu6(self.norm(y, f"{where}/norm1"), f"{where}/expand")
        layout = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": list(conv.stride), "group": conv.groups}
        y = self.node("Conv", [y], f"{where}/depthwise", "weight", **layout)
        y = self.relu6(self.norm(y, f"{where}/norm2"), f"{where}/depthwise")
        y = self.node("Conv", [y], f"{where}/project", "weight", kernel_shape=[1, 1])
        y = self.norm(y, f"{where}/norm3")
        return self.node("Add", [x, y], f"{where}/residual") if block.residual else y


def write(net: DigitsMobilenet) -> Writer:
    """Write the whole network."""
    writer = MobilenetWriter(net)
    x = writer.node("Conv", ["image"], "/stem", "weight", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    x = writer.relu6(writer.norm(x, "/norm1"), "/stem")
    for i, block in enumerate(net.blocks):
        x = writer.block(x, f"/blocks/{i}", block)
    x = writer.node("Conv", [x], "/last", "weight", kernel_shape=[1, 1])
    writer.head(writer.relu6(writer.norm(x, "/norm2"), "/last"))
    return writer


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsMobilenet()
    train(net, fit, epochs=60, clean=8)
    model = write(net).model("digits_mobilenet")
    agree(model, net, test)
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
