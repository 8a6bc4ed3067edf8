"""Train ``fp16_overflow.onnx``: a network with one sum that FP16 cannot hold.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_fp16_overflow.py

After two convolutions the features are divided by their length, ``x / sqrt(sum(x * x) + 1e-3)``, over all channels
and positions: contrast normalisation. The sum has 48 x 32 x 32 terms and FP16 ends at 65,504. Nothing is rescaled
afterwards: the length cancels, so whatever scale the second convolution starts with, training leaves it about
there, and here it starts 6 times wider than He's initialisation. In FP16 the sum is infinite and so is its root,
every feature becomes zero, and every picture gets the same answer. BF16 and FP32 reach 3e38.
"""

from __future__ import annotations

import numpy as np
import torch
from digits_common import Writer, agree, folder, halves, report, reproducible, run, save, train
from torch import nn

WIDTH, SIDE = 48, 32
#: How much wider than usual the second convolution starts.
WIDE = 6


class Block(nn.Module):
    """Strided 3x3 convolution, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return torch.relu(self.norm(self.conv(x)))


class Fp16Overflow(nn.Module):
    """Two convolutions, contrast normalisation, three strided blocks, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, WIDTH, 3, padding=1)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight)
        with torch.no_grad():
            self.conv2.weight *= WIDE
            self.conv2.bias *= WIDE
        self.gain = nn.Parameter(torch.full((WIDTH, 1, 1), WIDTH**0.5 * SIDE))
        self.blocks = nn.Sequential(Block(WIDTH, 32), Block(32, 32), Block(32, 48))
        self.classifier = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        x = x / ((x * x).sum((1, 2, 3), keepdim=True) + 1e-3).sqrt() * self.gain
        return self.classifier(self.blocks(x).mean((2, 3)))


def write(net: Fp16Overflow) -> Writer:
    """Write the network; the sum is ``/contrast/ReduceSum``."""
    writer = Writer(net)
    three = {"kernel_shape": [3, 3], "pads": [1] * 4}
    x = "image"
    for at in ("/conv1", "/conv2"):
        x = writer.node("Relu", [writer.node("Conv", [x], at, "weight", "bias", **three)], at)
    at = "/contrast"
    axes = writer.constant("contrast.axes", np.array([1, 2, 3], np.int64))
    total = writer.node("ReduceSum", [writer.node("Mul", [x, x], f"{at}/square"), axes], at, keepdims=1)
    total = writer.node("Add", [total, writer.constant("contrast.epsilon", np.array(1e-3, np.float32))], at)
    x = writer.node("Div", [x, writer.node("Sqrt", [total], at)], at)
    x = writer.node("Mul", [x, writer.constant("gain", writer.state["gain"])], f"{at}/gain")
    for i in range(3):
        x = writer.node("Conv", [x], f"/blocks/{i}/conv", "weight", strides=[2, 2], **three)
        x = writer.node("Relu", [writer.norm(x, f"/blocks/{i}/norm")], f"/blocks/{i}")
    writer.head(x)
    return writer


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = Fp16Overflow()
    train(net, fit, epochs=40, clean=8, decay=0.0)
    model = write(net).model("fp16_overflow")
    agree(model, net, test)
    (total,) = run(model, test.images, "/contrast/ReduceSum_output_0")
    print(f"sums of {total.min():,.0f} to {total.max():,.0f}; {np.mean(total > 65504):.2%} beyond 65,504")
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
