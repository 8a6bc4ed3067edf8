"""Train ``digits_lstm.onnx`` and ``digits_gru.onnx``, which read scikit-learn's digits row by row.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_recurrent.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from digits_common import Writer, agree, folder, halves, report, reproducible, save, train
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Which of PyTorch's blocks of rows, i f g o and r z n, stand where in ONNX's, i o f c and z r h.
ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


class Rows(nn.Module):
    """A recurrence over the rows of a picture of ``size`` by ``size``, and a linear classifier of its last state."""

    def __init__(self, kind: str, size: int, hidden: int) -> None:
        super().__init__()
        self.kind, self.size = kind, size
        self.rnn = getattr(nn, kind)(size, hidden)
        self.classifier = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        if self.size < 32:
            x = functional.avg_pool2d(x, 32 // self.size)
        states, _ = self.rnn(x.squeeze(1).transpose(0, 1))
        return self.classifier(states[-1])


class RowsWriter(Writer):
    """Writes the network with ONNX's own operator for the recurrence."""

    def blocks(self, name: str, order: tuple[int, ...]) -> NDArray[np.float32]:
        """A tensor of the recurrence, its blocks as ONNX orders them."""
        array = self.state[f"rnn.{name}_l0"]
        return np.concatenate([np.split(array, len(order))[i] for i in order])

    def rows(self, net: Rows) -> None:
        """Write the whole network."""
        order, hidden = ORDER[net.kind], net.rnn.hidden_size
        x = "image"
        if net.size < 32:
            factor = [32 // net.size] * 2
            x = self.node("AveragePool", [x], "/rows", kernel_shape=factor, strides=factor)
        x = self.node("Squeeze", [x, self.constant("axis1", np.array([1], np.int64))], "/rows")
        x = self.node("Transpose", [x], "/rows", perm=[1, 0, 2])
        bias = np.concatenate([self.blocks("bias_ih", order), self.blocks("bias_hh", order)])
        weights = [
            self.constant("rnn.W", self.blocks("weight_ih", order)[None]),
            self.constant("rnn.R", self.blocks("weight_hh", order)[None]),
            self.constant("rnn.B", bias[None]),
        ]
        attributes = {"linear_before_reset": 1} if net.kind == "GRU" else {}
        self.node(net.kind, [x, *weights], "/rnn", hidden_size=hidden, **attributes)
        self.nodes[-1].output.append(f"/rnn/{net.kind}_output_1")
        x = self.node(
            "Squeeze", [self.nodes[-1].output[1], self.constant("axis0", np.array([0], np.int64))], "/last"
        )
        self.node("Gemm", [x], "/classifier", "weight", "bias", transB=1)


def main() -> None:
    """Train each from the same seed, write it, and print the scores of what was written."""
    out = folder(__doc__)
    fit, test = halves()
    for kind, size in (("LSTM", 8), ("GRU", 32)):
        reproducible()
        net = Rows(kind, size, hidden=48)
        train(net, fit, epochs=150, clean=15)
        writer = RowsWriter(net)
        writer.rows(net)
        model = writer.model(f"digits_{kind.lower()}")
        agree(model, net, test)
        save(model, out)
        report(model, fit, test)


if __name__ == "__main__":
    main()
