"""Networks in which one thing is wrong with the numbers, and that in one known place.

The faults are those that people meet: a channel that is large, with the layer behind it made for that; a stretch whose
values leave FP16; a scale of another tensor; a sample that does not belong; a calibration on a few; or, in a model that
comes with its own quantization, a pair where none belongs, or one with the scale of another tensor. FP32 computes the
same as without the fault, so that the fault costs nothing until a variant rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import answers
import rtlab
from nets import fp32_proto
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model, wrap

CLASSES = 10
KINDS = ("channel", "overflow", "far", "clip", "sample", "weights", "misplaced", "stored")


@dataclasses.dataclass(frozen=True)
class Block:
    """A convolution with its activation, and the convolution that alone reads it."""

    weight: str
    bias: str
    value: str
    next_weight: str
    next_node: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Fault:
    """A network with a fault.

    ``nodes`` are those where it may be told, ``rules`` are its causes; ``which`` is the channel or sample. ``choice``
    is what ``Study.add`` takes, ``amax`` a threshold to put in the place of the observed one, by value, as a factor.
    """

    kind: str
    model: Model
    data: CalibrationData
    fresh: np.ndarray
    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    which: tuple[int, ...] = ()
    choice: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    amax: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> np.ndarray:
        """Nobody says what is seen in these pictures; the labels are there to be counted."""
        return np.zeros(len(self.fresh), np.int64)


class Writer:
    """A convolutional network drawn by a seed: plain chains, residuals, pools, one linear layer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.blocks: list[Block] = []
        self.channels = int(self.rng.integers(2, 5))
        self._write()

    def _constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, np.float32)
        return name

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        at = len(self.nodes)
        self.nodes.append(
            helper.make_node(op, [*inputs], [f"v{at}"], name=f"/{op.lower()}_{at}", **attributes)
        )
        return f"v{at}"

    def _conv(self, x: str, inputs: int, outputs: int) -> str:
        side = int(self.rng.choice([1, 3]))
        kernel = self.rng.standard_normal((outputs, inputs, side, side)) * (2 / (inputs * side * side)) ** 0.5
        bias = 0.1 * self.rng.standard_normal(outputs)
        return self._node("Conv", x, self._constant(kernel), self._constant(bias), pads=[side // 2] * 4)

    def _write(self) -> None:
        rng, x, width = self.rng, "x", self.channels
        before: tuple[int, str] | None = None
        for _ in range(int(rng.integers(4, 8))):
            kind = rng.choice(["plain", "plain", "residual", "pool"])
            outputs = width if kind == "residual" else int(rng.integers(8, 25))
            first = len(self.nodes)
            y = self._conv(x, width, outputs)
            if before is not None:
                self._block(before[0], x, first)
            if kind == "residual":
                x, before = self._node("Relu", self._node("Add", y, x)), None
            else:
                x, before = self._node("Relu", y), (first, "")
            width = outputs
            if kind == "pool":
                x, before = self._node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), None
        x = self._node("Flatten", self._node("GlobalAveragePool", x))
        self._node("Gemm", x, self._constant(rng.standard_normal((width, CLASSES)) * width**-0.5),
                   self._constant(np.zeros(CLASSES)))  # fmt: skip
        self.nodes[-1].output[0] = "y"

    def _block(self, conv: int, value: str, reader: int) -> None:
        """Note that ``reader`` alone reads what the convolution at this position and its Relu wrote."""
        node, after = self.nodes[conv], self.nodes[reader]
        names = tuple(n.name for n in self.nodes[conv : reader + 1])
        self.blocks.append(Block(*node.input[1:3], value, after.input[1], after.name, names))

    def lone(self) -> list[Block]:
        readers: dict[str, int] = {}
        for node in self.nodes:
            for value in node.input:
                readers[value] = readers.get(value, 0) + 1
        return [b for b in self.blocks if readers[b.value] == 1]

    def scale_back(self, block: Block, factor: float) -> int:
        """Multiply one output channel of a block's weight, and divide what it writes by as much; gives the channel."""
        at = int(self.rng.integers(len(self.weights[block.bias])))
        self.weights[block.weight][at] *= factor
        self.weights[block.bias][at] *= factor
        back = np.ones((1, len(self.weights[block.bias]), 1, 1), np.float32)
        back[0, at] = 1 / factor
        conv = next(i for i, n in enumerate(self.nodes) if n.name == block.nodes[0])
        written = self.nodes[conv].output[0]
        self.nodes[conv].output[0] = f"{written}/wide"
        name = self._constant(back)
        self.nodes.insert(
            conv + 1, helper.make_node("Mul", [f"{written}/wide", name], [written], name=f"{written}/back")
        )
        return at

    def model(self) -> Model:
        edges = {"x": ["N", self.channels, 12, 12]}, {"y": ["N", CLASSES]}
        return wrap(fp32_proto(self.nodes, *edges, self.weights, name="planted"), name="planted")

    def samples(self, count: int) -> np.ndarray:
        small = self.rng.standard_normal((count, self.channels, 4, 4))
        wide = small.repeat(3, axis=2).repeat(3, axis=3) + 0.3 * self.rng.standard_normal(
            (count, self.channels, 12, 12)
        )
        return wide.astype(np.float32)


def healthy(seed: int, samples: int = 48) -> tuple[Model, CalibrationData, np.ndarray]:
    writer = Writer(seed)
    model, data = writer.model(), CalibrationData({"x": writer.samples(samples)}, "pictures")
    return model, data, writer.samples(samples)


def planted(kind: str, seed: int, samples: int = 48) -> Fault | None:
    """A network with a fault of a kind; None where the one of this seed has no place for it."""
    writer = Writer(seed)
    blocks, rng = writer.lone(), writer.rng
    if not blocks:
        return None
    block = blocks[int(rng.integers(len(blocks)))]
    weights = writer.weights
    given, fresh = writer.samples(samples), writer.samples(samples)

    def made(
        nodes: tuple[str, ...], rules: tuple[str, ...], which: tuple[int, ...] = (), **more: Any
    ) -> Fault:
        data = CalibrationData({"x": given}, "pictures")
        return Fault(kind, writer.model(), data, fresh, nodes, rules, which, **more)

    minmax = {"precision": "int8", "calibrator": "minmax"}
    if kind in {"misplaced", "stored"}:
        proto, amax = quantized(writer.model(), CalibrationData({"x": given}, "pictures"))
        plant = _misplaced if kind == "misplaced" else _stored
        nodes, rules = plant(proto, amax, block, rng)
        return dataclasses.replace(
            made(nodes, rules, choice={"precision": "int8"}), model=wrap(proto, name="planted")
        )
    if kind == "channel":
        factor = float(2.0 ** rng.integers(6, 9))
        at = int(rng.integers(weights[block.bias].shape[0]))
        weights[block.weight][at] = np.abs(weights[block.weight][at]) * factor
        weights[block.bias][at] *= factor
        weights[block.next_weight][:, at] /= factor
        return made((block.next_node,), ("outlier-channels", "unequal-channels"), (at,), choice=minmax)
    if kind == "weights":
        writer.scale_back(block, float(2.0 ** rng.integers(7, 10)))
        return made(block.nodes[:1], ("unequal-channels",), choice={**minmax, "weights": "tensor"})
    if kind == "overflow":
        factor = 2.0**18
        weights[block.weight] *= np.float32(factor)
        weights[block.bias] *= np.float32(factor)
        weights[block.next_weight] /= np.float32(factor)
        return made(block.nodes, ("fp16-overflow",), choice={"precision": "fp16"})
    if kind == "sample":
        at = int(rng.integers(samples))
        given[at] *= 40
        return made((), ("one-sample-range",), (at,), choice=minmax)
    amount, rule = (64.0, "threshold-far-off") if kind == "far" else (1 / 24, "clipping")
    return made((block.next_node,), (rule,), choice=minmax, amax={block.value: amount})


def quantized(model: Model, data: CalibrationData) -> tuple[Any, Mapping[str, float]]:
    """A network with its quantization in the graph, as a stranger's file has it, and the magnitudes of its values."""
    study = rtlab.Study(model, data=data)
    ready = study.calibration.prepare("int8", precision="int8", calibrator="minmax", backend="onnxruntime")
    written = answers.values(model, [o for n in model.proto().graph.node for o in n.output], [data.arrays])
    proto = ready.model.proto()
    # What made it leaves no word of it.
    for node in proto.graph.node:
        del node.metadata_props[:]
    return proto, {n: float(np.abs(a).max()) for n, a in written.items()}


def _pair(proto: Any, value: str, out: str, amax: float, at: int) -> tuple[str, str]:
    """Put a pair at a place among the nodes; gives the names of its nodes."""
    scale, names = f"planted/{value}/scale", (f"planted/{value}/Q", f"planted/{value}/DQ")
    numbers = {scale: np.array(amax / 127, np.float32), f"{scale}/zero": np.array(0, np.int8)}
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in numbers.items())
    parameters = [scale, f"{scale}/zero"]
    made = [
        helper.make_node("QuantizeLinear", [value, *parameters], [f"{out}/stored"], name=names[0]),
        helper.make_node("DequantizeLinear", [f"{out}/stored", *parameters], [out], name=names[1]),
    ]
    for i, node in enumerate(made):
        proto.graph.node.insert(at + i, node)
    return names


def _misplaced(
    proto: Any, amax: Mapping[str, float], block: Block, rng: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A pair between a convolution and its Relu, on the output, or behind another pair."""
    nodes = proto.graph.node
    where = {n.name: i for i, n in enumerate(nodes)}
    kind = rng.choice(["before", "output", "twice"])
    if kind == "output":
        last = next(n for n in nodes if n.output[0] == "y")
        last.output[0] = "y/exact"
        return _pair(proto, "y/exact", "y", amax["y"], len(nodes)), ("output",)
    if kind == "before":
        conv = nodes[where[block.nodes[0]]]
        at = where[block.nodes[0]] + 1
        relu = next(n for n in nodes if conv.output[0] in n.input)
        value = relu.input[0]
        relu.input[0] = f"{value}/rounded"
        told = _pair(proto, value, f"{value}/rounded", amax[value], at)
        return (*told, block.nodes[0], relu.name), ("before-activation",)
    reader = nodes[where[block.next_node]]
    value, before = reader.input[0], next(n for n in nodes if n.output[0] == reader.input[0])
    reader.input[0] = f"{value}/twice"
    told = _pair(proto, value, f"{value}/twice", 1.7 * amax[block.value], where[block.next_node])
    return (*told, before.name, block.next_node), ("chain",)


def _stored(
    proto: Any, amax: Mapping[str, float], block: Block, rng: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    far = bool(rng.integers(2))
    reader = next(n for n in proto.graph.node if n.name == block.next_node)
    dq = next(n for n in proto.graph.node if n.output[0] == reader.input[0])
    q = next(n for n in proto.graph.node if n.output[0] == dq.input[0])
    step = amax[block.value] * (64.0 if far else 1 / 24) / 127
    proto.graph.initializer.append(numpy_helper.from_array(np.array(step, np.float32), "planted/scale"))
    q.input[1] = dq.input[1] = "planted/scale"
    return (block.next_node, *(n.name for n in proto.graph.node if dq.output[0] in n.input)), (
        ("threshold-far-off",) if far else ("clipping",)
    )
