"""Small random networks of the operators that people's networks have, weights as at the start of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import checker, helper, numpy_helper

from nets import fp32_proto
from rtlab.core.model import Model, wrap

#: Activations between layers, the usual ones more often.
ACTIVATIONS = ("Relu", "Relu", "Relu", "Relu", "LeakyRelu", "HardSwish", "Gelu", "Clip", "Softmax", "")
#: Those that hide what is large: a clipped number may come out as if it were whole.
SATURATING = ("Tanh", "Sigmoid")
CLASSES = 10


class Net:
    def __init__(self, seed: int, activations: Sequence[str] = ACTIVATIONS) -> None:
        self.rng, self.activations = np.random.default_rng(seed), activations
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        return self.constant(gain * self.rng.standard_normal(shape))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [out], name=f"n{len(self.nodes)}", **attributes))
        return out

    def activation(self, x: str) -> str:
        op = str(self.rng.choice(self.activations))
        if op == "Gelu":
            gate = self.node("Erf", self.node("Mul", x, self.constant(0.5**0.5)))
            half = self.node("Mul", x, self.constant(0.5))
            return self.node("Mul", half, self.node("Add", gate, self.constant(1.0)))
        if op == "Clip":
            return self.node("Clip", x, self.constant(0.0), self.constant(6.0))
        if op == "Softmax":
            return self.node("Softmax", x, axis=1)
        return self.node(op, x) if op else x

    def gate(self, x: str, width: int) -> str:
        y = self.node("GlobalAveragePool", x)
        y = self.node("Relu", self.node("Conv", y, self.weight(4, width, 1, 1, gain=2 * width**-0.5)))
        y = self.node("Conv", y, self.weight(width, 4, 1, 1), self.weight(width))
        return self.node("Mul", x, self.node("Sigmoid", y))

    def convolution(self, x: str, inputs: int) -> tuple[str, int]:
        """A plain, pointwise or depthwise convolution; sometimes normalised, its channels then of unlike size."""
        rng, kind = self.rng, self.rng.choice(["plain", "plain", "depthwise", "pointwise"])
        outputs = inputs if kind == "depthwise" else int(rng.integers(6, 17))
        side, groups = (1 if kind == "pointwise" else 3), (inputs if kind == "depthwise" else 1)
        fan = side * side * inputs // groups
        kernel = self.weight(outputs, inputs // groups, side, side, gain=(2 / fan) ** 0.5)
        bias = self.weight(outputs, gain=0.1)
        x = self.node("Conv", x, kernel, bias, pads=[side // 2] * 4, group=groups)
        if rng.random() < 0.4:
            gain = np.exp(0.5 * rng.standard_normal(outputs))
            if rng.random() < 0.3:
                gain[rng.integers(outputs)] *= 10
            x = self.node("Mul", x, self.constant(gain.reshape(1, -1, 1, 1)))
            x = self.node("Add", x, self.weight(1, outputs, 1, 1, gain=0.5))
        return x, outputs

    def convolutional(self, width: int) -> int:
        x, rng = "x", self.rng
        for _ in range(int(rng.integers(2, 5))):
            x, width = self.convolution(x, width)
            y = self.activation(x)
            if rng.random() < 0.35:
                y = self.gate(y, width)
            if rng.random() < 0.2:
                y = self.node("Add", x, y)
            x = self.node("MaxPool", y, kernel_shape=[2, 2]) if rng.random() < 0.2 else y
        self.node("Flatten", self.node("GlobalAveragePool", x))
        return width

    def dense(self, width: int) -> int:
        x = "x"
        for _ in range(int(self.rng.integers(1, 4))):
            outputs = int(self.rng.integers(12, 33))
            x = self.node("MatMul", x, self.weight(width, outputs, gain=(2 / width) ** 0.5))
            x = self.activation(self.node("Add", x, self.weight(outputs, gain=0.1)))
            width = outputs
        return width


def small_net(seed: int, activations: Sequence[str] = ACTIVATIONS) -> tuple[Model, tuple[int, ...]]:
    net = Net(seed, activations)
    shape: tuple[int, ...]
    if net.rng.random() < 0.7:
        shape = (48, int(net.rng.integers(3, 7)), 12, 12)
        width = net.convolutional(shape[1])
    else:
        shape = (256, int(net.rng.integers(12, 33)))
        width = net.dense(shape[1])
    last = net.nodes[-1].output[0]
    net.node("Gemm", last, net.weight(width, CLASSES, gain=width**-0.5), net.constant(np.zeros(CLASSES)))
    net.nodes[-1].output[0] = "y"
    model = fp32_proto(net.nodes, {"x": ["N", *shape[1:]]}, {"y": ["N", CLASSES]}, net.weights, name="net")
    checker.check_model(model, full_check=True)
    return wrap(model, name="net"), shape
