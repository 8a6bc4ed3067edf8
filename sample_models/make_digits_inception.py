"""Train ``digits_inception.onnx`` on scikit-learn's digits and write it with its data beside this script.

Run it in an environment that has rtlab, scikit-learn and PyTorch (needed here only):

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_inception.py

Two runs on one machine write the same bytes; another processor may round differently in training. The script
selects nothing by the held-out half: one seed, a fixed number of epochs, the last weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from rtlab.samples import digits_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0
TRAIN = 898
EPOCHS, CLEAN_EPOCHS, BATCH, RATE, DECAY = 100, 12, 64, 0.01, 1e-3


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


def split() -> dict[str, NDArray[np.generic]]:
    """Scikit-learn's digits, shuffled by a fixed seed and halved."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images, labels = digits.images[order].astype(np.uint8), digits.target[order].astype(np.uint8)
    return {
        "train_images": images[:TRAIN],
        "train_labels": labels[:TRAIN],
        "test_images": images[TRAIN:],
        "test_labels": labels[TRAIN:],
    }


def jiggle(x: torch.Tensor) -> torch.Tensor:
    """Turn by up to 14 degrees, scale by up to 15 percent and shift by up to a tenth of the width."""
    count = len(x)
    angle, scale = (torch.rand(count) - 0.5) * 0.5, 1 + (torch.rand(count) - 0.5) * 0.3
    shift = (torch.rand(count, 2) - 0.5) * 0.4
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    rows = [torch.stack([cosine, -sine, shift[:, 0]], 1), torch.stack([sine, cosine, shift[:, 1]], 1)]
    grid = functional.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False, padding_mode="border")


def train(images: torch.Tensor, labels: torch.Tensor) -> DigitsInception:
    """Train with AdamW on one cycle; the last epochs see unchanged pictures, to settle the statistics."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    net = DigitsInception()
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images))
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            x = images[chosen] if epoch >= EPOCHS - CLEAN_EPOCHS else jiggle(images[chosen])
            loss = functional.cross_entropy(net(x), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {float(loss.detach()):.4f}")
    return net.eval()


class Writer:
    """Writes each module as the nodes that stand for it, batch normalisation unfolded."""

    def __init__(self, net: nn.Module) -> None:
        self.state = {k: v.numpy() for k, v in net.state_dict().items()}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], where: str, *weights: str, **attributes: object) -> str:
        """Add ``where/op``; ``weights`` are entries of the state below the module at ``where``."""
        names = [f"{where.strip('/').replace('/', '.')}.{w}" for w in weights]
        self.weights += [numpy_helper.from_array(self.state[n], n) for n in names]
        name = f"{where}/{op}"
        node = helper.make_node(op, inputs + names, [f"{name}_output_0"], name=name, **attributes)
        self.nodes.append(node)
        return f"{name}_output_0"

    def block(self, x: str, where: str, kernel: int) -> str:
        """Convolution, batch normalisation, ReLU."""
        layout = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4}
        x = self.node("Conv", [x], f"{where}/conv", "weight", **layout)
        statistics = ("weight", "bias", "running_mean", "running_var")
        x = self.node("BatchNormalization", [x], f"{where}/norm", *statistics, epsilon=1e-5)
        return self.node("Relu", [x], f"{where}/relu")

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

    def model(self) -> onnx.ModelProto:
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
        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(
            self.nodes,
            "digits_inception",
            [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 1, 32, 32])],
            [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", 10])],
            self.weights,
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="rtlab")


def main() -> None:
    """Train, write, and print the score of what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for both files")
    out = parser.parse_args().out
    data = split()
    fit = data["train_images"]
    labels = torch.as_tensor(data["train_labels"].astype(np.int64))
    net = train(torch.as_tensor(digits_input(fit, fit)), labels)
    model = Writer(net).model()
    onnx.checker.check_model(model, full_check=True)
    test = digits_input(data["test_images"], fit)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": test})[0]
    with torch.no_grad():
        np.testing.assert_allclose(logits, net(torch.as_tensor(test)).numpy(), rtol=1e-3, atol=1e-3)
    np.savez_compressed(out / "digits.npz", **data)
    onnx.save(model, out / "digits_inception.onnx")
    hits = int((logits.argmax(1) == data["test_labels"]).sum())
    print(f"{len(model.graph.node)} nodes; {hits} of {len(test)} right, {100 * hits / len(test):.2f} %")


if __name__ == "__main__":
    main()
