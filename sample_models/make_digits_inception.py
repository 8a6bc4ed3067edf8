"""Train ``digits_inception.onnx`` on scikit-learn's digits, and write them as ``digits.npz``.

Run it in an environment that has rtlab, scikit-learn and PyTorch (needed here only):

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_inception.py

Two runs on one machine write the same bytes; another processor may round differently in training. The script
selects nothing by the held-out half: one seed, a fixed number of epochs, the last weights.
"""

from __future__ import annotations

import numpy as np
import torch
from digits_common import Writer, agree, folder, halves, report, reproducible, save, split, train
from torch import nn
from torch.nn import functional


class ConvBlock(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return functional.relu(self.norm(self.conv(x)))


class Reduced(ConvBlock):
    """A block behind a 1x1 reducer."""

    def __init__(self, inputs: int, reduced: int, outputs: int, kernel: int) -> None:
        super().__init__(reduced, outputs, kernel)
        self.reduce = ConvBlock(inputs, reduced, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return super().forward(self.reduce(x))


class Inception(nn.Module):
    """Parallel 1x1, 3x3 and 5x5 branches, concatenated to 48 channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1x1 = ConvBlock(inputs, 16, 1)
        self.branch3x3 = Reduced(inputs, 16, 24, 3)
        self.branch5x5 = Reduced(inputs, 8, 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return torch.cat([self.branch1x1(x), self.branch3x3(x), self.branch5x5(x)], 1)


class DigitsInception(nn.Module):
    """Stem, Inception, residual Inception, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock(1, 24, 3)
        self.inception1 = Inception(24)
        self.inception2 = Inception(48)
        self.project = nn.Conv2d(48, 48, 1)
        self.classifier = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = functional.max_pool2d(self.stem(x), 2)
        x = functional.max_pool2d(self.inception1(x), 2)
        x = functional.relu(self.project(self.inception2(x)) + x)
        return self.classifier(x.mean((2, 3)))


class InceptionWriter(Writer):
    """Adds the blocks."""

    def block(self, x: str, where: str, kernel: int) -> str:
        """Convolution, batch normalisation, ReLU."""
        layout = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4}
        x = self.node("Conv", [x], f"{where}/conv", "weight", **layout)
        return self.node("Relu", [self.norm(x, f"{where}/norm")], f"{where}/relu")

    def inception(self, x: str, where: str) -> str:
        """Three branches and their concatenation."""
        branches = [self.block(x, f"{where}/branch1x1", 1)]
        for kernel in (3, 5):
            at = f"{where}/branch{kernel}x{kernel}"
            branches.append(self.block(self.block(x, f"{at}/reduce", 1), at, kernel))
        return self.node("Concat", branches, where, axis=1)

    def pool(self, x: str, where: str) -> str:
        """Halve height and width."""
        return self.node("MaxPool", [x], where, kernel_shape=[2, 2], strides=[2, 2])

    def write(self) -> InceptionWriter:
        """Write the whole network."""
        x = self.pool(self.block("image", "/stem", 3), "/pool1")
        x = self.pool(self.inception(x, "/inception1"), "/pool2")
        y = self.node(
            "Conv", [self.inception(x, "/inception2")], "/project", "weight", "bias", kernel_shape=[1, 1]
        )
        x = self.node("Relu", [self.node("Add", [y, x], "/residual")], "/residual")
        x = self.node("GlobalAveragePool", [x], "/pool3")
        x = self.node("Flatten", [x], "/flatten", axis=1)
        self.node("Gemm", [x], "/classifier", "weight", "bias", transB=1)
        return self


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsInception()
    train(net, fit)
    model = InceptionWriter(net).write().model("digits_inception")
    agree(model, net, test)
    np.savez_compressed(out / "digits.npz", **split())
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
