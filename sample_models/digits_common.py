"""What the scripts of the digits samples share: the data, the training loop, writing ONNX, and the scores.

Every sample is trained on the training half of scikit-learn's digits and scored on the held-out half. Nothing
is selected by the held-out half: one seed, a fixed number of epochs, the last weights.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits
from torch.nn import functional

from rtlab import CalibrationData, Variant, quantize
from rtlab.core.model import wrap
from rtlab.core.progress import Silent
from rtlab.samples import digits_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray
    from torch import nn

SEED = 0
TRAIN = 898
BATCH = 64
#: Every variant that ``report`` scores unless told otherwise.
VARIANTS = (
    *(("int8", c) for c in ("auto", "minmax", "entropy", "entropy2", "percentile", "mse")),
    ("fp16", None),
    ("bf16", None),
)


@dataclasses.dataclass(frozen=True)
class Digits:
    """Images of shape ``(N, 1, 32, 32)`` as the networks read them, and labels of 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.uint8]

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both for PyTorch."""
        return torch.as_tensor(self.images), torch.as_tensor(self.labels.astype(np.int64))


def split() -> dict[str, NDArray[np.uint8]]:
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


def halves() -> tuple[Digits, Digits]:
    """The training half and the held-out half."""
    data = split()
    fit = data["train_images"]
    return (
        Digits(digits_input(fit, fit), data["train_labels"]),
        Digits(digits_input(data["test_images"], fit), data["test_labels"]),
    )


def jiggle(x: torch.Tensor) -> torch.Tensor:
    """Turn by up to 14 degrees, scale by up to 15 percent and shift by up to a tenth of the width."""
    count = len(x)
    angle, scale = (torch.rand(count) - 0.5) * 0.5, 1 + (torch.rand(count) - 0.5) * 0.3
    shift = (torch.rand(count, 2) - 0.5) * 0.4
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    rows = [torch.stack([cosine, -sine, shift[:, 0]], 1), torch.stack([sine, cosine, shift[:, 1]], 1)]
    grid = functional.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False, padding_mode="border")


def reproducible() -> None:
    """The same numbers in every run on one machine."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)


def train(
    net: nn.Module,
    data: Digits,
    *,
    epochs: int = 100,
    clean: int = 12,
    rate: float = 0.01,
    decay: float = 1e-3,
    after_step: Callable[[], None] | None = None,
) -> None:
    """Train with AdamW on one cycle; the last ``clean`` epochs see unchanged pictures, to settle the statistics."""
    images, labels = data.tensors()
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=decay)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * steps)
    net.train()
    for epoch in range(epochs):
        order = torch.randperm(len(images))
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            x = images[chosen] if epoch >= epochs - clean else jiggle(images[chosen])
            loss = functional.cross_entropy(net(x), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if after_step is not None:
                after_step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {float(loss.detach()):.4f}")
    net.eval()


class Writer:
    """Writes ONNX nodes whose names are paths and whose weights keep PyTorch's names."""

    def __init__(self, net: nn.Module) -> None:
        self.state = {k: v.detach().numpy() for k, v in net.state_dict().items()}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer, once."""
        self.weights.setdefault(name, numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def node(self, op: str, inputs: list[str], where: str, *weights: str, **attributes: object) -> str:
        """Add ``where/op``; ``weights`` are entries of the state below the module at ``where``."""
        names = [f"{where.strip('/').replace('/', '.')}.{w}" for w in weights]
        for name in names:
            self.constant(name, self.state[name])
        name = f"{where}/{op}"
        self.nodes.append(helper.make_node(op, inputs + names, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def norm(self, x: str, where: str) -> str:
        """Batch normalisation, as a node of its own."""
        statistics = ("weight", "bias", "running_mean", "running_var")
        return self.node("BatchNormalization", [x], where, *statistics, epsilon=1e-5)

    def head(self, x: str) -> None:
        """Mean over positions and a linear classifier, which writes ``logits``."""
        x = self.node("GlobalAveragePool", [x], "/pool")
        x = self.node("Flatten", [x], "/flatten", axis=1)
        self.node("Gemm", [x], "/classifier", "weight", "bias", transB=1)

    def model(self, name: str) -> onnx.ModelProto:
        """The graph from ``image`` to ``logits``, the last node's output."""
        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 1, 32, 32])],
            [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", 10])],
            list(self.weights.values()),
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="rtlab")
        onnx.checker.check_model(model, full_check=True)
        return model


def run(model: onnx.ModelProto, images: NDArray[np.float32], *values: str) -> list[NDArray[np.float32]]:
    """Compute ``values``, or the logits, as ONNX Runtime's CPU does at level BASIC."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=v) for v in values if v not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(
        copy.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[NDArray[np.float32]] = session.run(list(values) or ["logits"], {"image": images})
    return found


def right(logits: NDArray[np.float32], data: Digits) -> float:
    """Percent of pictures whose largest logit is that of the label."""
    return 100 * float((logits.argmax(1) == data.labels).mean())


def agree(model: onnx.ModelProto, net: nn.Module, data: Digits) -> None:
    """Fail unless the written model computes what PyTorch does."""
    with torch.no_grad():
        expected = net(torch.as_tensor(data.images)).numpy()
    np.testing.assert_allclose(run(model, data.images)[0], expected, rtol=1e-3, atol=1e-3)


def scores(
    model: onnx.ModelProto,
    fit: Digits,
    test: Digits,
    variants: Iterable[tuple[str, str | None]] = VARIANTS,
) -> Iterator[tuple[str, float, float]]:
    """Each variant's name, percent right and SQNR of the logits in dB, with rtlab's own preparation."""
    source = wrap(model, name=model.graph.name)
    values = list(quantize.quantizable(source))
    inner = [v for v in values if v not in source.inputs]
    collector = quantize.Collector(values)
    collector.run(
        CalibrationData({"image": fit.images}).batches(source, 64),
        lambda batch: dict(zip(inner, run(model, batch["image"], *inner), strict=True)),
        Silent(),
    )
    reference = run(model, test.images)[0]
    yield "fp32", right(reference, test), np.inf
    for precision, calibrator in variants:
        variant = Variant.of(precision, calibrator=calibrator)
        ready = quantize.prepare(source, variant, collector.ranges).emulation
        logits = run(onnx.load_from_string(ready.bytes()), test.images)[0]
        with np.errstate(all="ignore"):
            error = np.square(logits.astype(np.float64) - reference).sum()
            decibel = 10 * np.log10(np.square(reference.astype(np.float64)).sum() / error)
        yield f"{precision} {calibrator or ''}".strip(), right(logits, test), float(decibel)


def report(model: onnx.ModelProto, fit: Digits, test: Digits) -> None:
    """Print what ``scores`` finds."""
    for name, percent, decibel in scores(model, fit, test):
        print(f"{model.graph.name}: {name:16} {percent:6.2f} % right {decibel:6.1f} dB")


def save(model: onnx.ModelProto, out: Path) -> None:
    """Write ``<name>.onnx``."""
    path = out / f"{model.graph.name}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path.name}: {len(model.graph.node)} nodes, {path.stat().st_size / 1000:.0f} kB")


def folder(doc: str | None) -> Path:
    """Where to write, from the command line."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the model")
    out: Path = parser.parse_args().out
    return out
