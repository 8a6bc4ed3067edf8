"""Train ``digits_vit.onnx``: a small vision transformer on scikit-learn's digits.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_vit.py

64 patches of 4x4 are embedded by a strided convolution, a position is added to each, and encoder blocks with the
normalisation first follow (A. Dosovitskiy et al., 2021, arXiv:2010.11929); the classifier reads the mean token.
LayerNormalization is one node (opset 17). Attention is written as MatMul, Softmax, MatMul, and GELU as
Div, Erf, Add, Mul, Mul: both as PyTorch's exporter writes them at this opset.
"""

from __future__ import annotations

import numpy as np
import torch
from digits_common import Writer, agree, folder, halves, report, reproducible, save, train
from torch import nn
from torch.nn import functional

WIDTH, HEADS, BLOCKS, HIDDEN, PATCH = 48, 4, 2, 96, 4
TOKENS = (32 // PATCH) ** 2
EACH = WIDTH // HEADS


class Encoder(nn.Module):
    """Self-attention and two dense layers, each behind a layer normalisation and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to tokens of shape ``(N, TOKENS, WIDTH)``."""
        y = self.norm1(x)
        q, k, v = (
            f(y).reshape(-1, TOKENS, HEADS, EACH).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        y = ((q @ k.transpose(2, 3)) * EACH**-0.5).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(-1, TOKENS, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class DigitsVit(nn.Module):
    """Patch embedding, positions, encoder blocks, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Encoder() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.classifier = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.classifier(self.norm(self.blocks(x)).mean(1))


class VitWriter(Writer):
    """Adds dense layers, layer normalisation, GELU and the encoder block."""

    def dense(self, x: str, where: str) -> str:
        """``x @ weight + bias``, the weight as PyTorch's exporter transposes it."""
        at = where.strip("/").replace("/", ".")
        weight = self.constant(f"{at}.weight_t", self.state[f"{at}.weight"].T)
        y = self.node("MatMul", [x, weight], where)
        return self.node("Add", [self.constant(f"{at}.bias", self.state[f"{at}.bias"]), y], where)

    def layer_norm(self, x: str, where: str) -> str:
        """Over the last axis."""
        return self.node("LayerNormalization", [x], where, "weight", "bias", axis=-1, epsilon=1e-5)

    def shape(self, *sizes: int) -> str:
        """The second input of a Reshape."""
        return self.constant("shape." + "x".join(map(str, sizes)), np.array(sizes, np.int64))

    def scalar(self, name: str, value: float) -> str:
        """An FP32 constant."""
        return self.constant(name, np.array(value, np.float32))

    def gelu(self, x: str, where: str) -> str:
        """``x / 2 * (1 + erf(x / sqrt(2)))``."""
        y = self.node("Erf", [self.node("Div", [x, self.scalar("gelu.root", 2**0.5)], where)], where)
        y = self.node("Mul", [x, self.node("Add", [y, self.scalar("gelu.one", 1)], where)], where)
        return self.node("Mul", [y, self.scalar("gelu.half", 0.5)], f"{where}/half")

    def attention(self, x: str, where: str) -> str:
        """Self-attention with its four dense layers."""
        heads = []
        for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            at = f"{where}/{name}"
            y = self.node("Reshape", [self.dense(x, at), self.shape(0, TOKENS, HEADS, EACH)], at)
            heads.append(self.node("Transpose", [y], at, perm=order))
        query, key, value = heads
        at = f"{where}/attention"
        y = self.node("MatMul", [query, key], f"{at}/scores")
        y = self.node("Mul", [y, self.scalar("attention.scale", EACH**-0.5)], f"{at}/scale")
        y = self.node("MatMul", [self.node("Softmax", [y], at, axis=-1), value], f"{at}/context")
        y = self.node("Transpose", [y], at, perm=[0, 2, 1, 3])
        return self.dense(self.node("Reshape", [y, self.shape(0, TOKENS, WIDTH)], at), f"{where}/out")

    def encoder(self, x: str, where: str) -> str:
        """Write one block."""
        y = self.attention(self.layer_norm(x, f"{where}/norm1"), where)
        x = self.node("Add", [x, y], f"{where}/residual1")
        y = self.gelu(self.dense(self.layer_norm(x, f"{where}/norm2"), f"{where}/up"), f"{where}/gelu")
        return self.node("Add", [x, self.dense(y, f"{where}/down")], f"{where}/residual2")


def write(net: DigitsVit) -> Writer:
    """Write the whole network."""
    writer = VitWriter(net)
    patch = [PATCH] * 2
    x = writer.node("Conv", ["image"], "/patches", "weight", "bias", kernel_shape=patch, strides=patch)
    x = writer.node("Reshape", [x, writer.shape(0, WIDTH, TOKENS)], "/patches")
    x = writer.node("Transpose", [x], "/patches", perm=[0, 2, 1])
    x = writer.node("Add", [x, writer.constant("positions", writer.state["positions"])], "/positions")
    for i in range(BLOCKS):
        x = writer.encoder(x, f"/blocks/{i}")
    x = writer.node("ReduceMean", [writer.layer_norm(x, "/norm")], "/pool", axes=[1], keepdims=0)
    writer.node("Gemm", [x], "/classifier", "weight", "bias", transB=1)
    return writer


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsVit()
    train(net, fit, epochs=150, clean=15, rate=0.003, decay=0.05)
    model = write(net).model("digits_vit")
    agree(model, net, test)
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
