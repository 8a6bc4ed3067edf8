"""Recurrent models of any size with random weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nets import fp32_proto, session
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, wrap
from rtlab.core.variant import Target

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent_model(
    op: str = "LSTM",
    steps: int = 8,
    *,
    inputs: int = 8,
    hidden: int = 16,
    batch: int | str = 1,
    direction: str = "forward",
    linear: int = 0,
    head: bool = True,
    layers: int = 1,
    seed: int = 0,
) -> Model:
    """``x`` of ``(steps, batch, inputs)`` through nodes ``/rnn0``, ...; a product of the last state, or all states."""
    rng = np.random.default_rng(seed)
    count, gates = (2 if direction == "bidirectional" else 1), GATES[op]
    weights, nodes, value, width = {}, [], "x", inputs
    for i in range(layers):
        weights |= {
            f"w{i}": rng.normal(size=(count, gates * hidden, width)) / np.sqrt(width),
            f"r{i}": rng.normal(size=(count, gates * hidden, hidden)) / np.sqrt(hidden),
            f"b{i}": rng.normal(size=(count, 2 * gates * hidden)) / 4,
        }
        more = {"linear_before_reset": linear} if op == "GRU" else {}
        names = [value, f"w{i}", f"r{i}", f"b{i}"]
        nodes.append(
            helper.make_node(
                op, names, [f"y{i}", f"h{i}"], f"/rnn{i}", hidden_size=hidden, direction=direction, **more
            )
        )
        if i < layers - 1:
            nodes.append(helper.make_node("Squeeze", [f"y{i}", "one"], [f"s{i}"], f"/squeeze{i}"))
            value, width = f"s{i}", hidden
    last = layers - 1
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    if head:
        matrix = rng.normal(size=(hidden, 10)).astype(np.float32)
        constants.append(numpy_helper.from_array(matrix, "matrix"))
        nodes.append(helper.make_node("MatMul", [f"h{last}", "matrix"], ["out"], "/head"))
    output = {"out": [count, batch, 10]} if head else {f"y{last}": [steps, count, batch, hidden]}
    proto = fp32_proto(nodes, {"x": [steps, batch, inputs]}, output, constants, name="recurrent")
    onnx.checker.check_model(proto, full_check=True)
    return wrap(proto, name="recurrent")


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, "fp32", shape)


def listing(steps: int, layers: int = 1, *, inputs: int = 8, hidden: int = 16, batch: int = 4) -> Engine:
    """What TensorRT-RTX lists of LSTMs in a row, all steps unrolled: only the last layer of each is labelled."""
    made: list[Layer] = []

    def add(name, kind, reads, weights, writes, origins=()) -> None:
        at, called = len(made), f"{name}_myl0_{len(made)}"
        made.append(Layer(f"{at}:{called}", called, kind, at, reads, writes, weights, name, origins=origins))

    value, width, gates = "x", inputs, 4 * hidden
    kernel = "__myl_AddAddSlicSlicSlicSlicSigmSigmTanhSigmMulMulAddTanhMul"
    for n in range(layers):
        state: tuple[Tensor, ...] = ()
        kept: tuple[Tensor, ...] = ()
        for t in range(steps):
            given, carried = tensor(f"a{n}_{t}", 1, batch, gates), tensor(f"b{n}_{t}", 1, batch, gates)
            rows = (tensor(value, 1, batch, width),)
            add(f"input_unroll{t}", "gemm", rows, (tensor(f"w{n}", 1, width, gates),), (given,))
            add(f"state_unroll{t}", "gemm", state, (tensor(f"r{n}", 1, hidden, gates),), (carried,))
            label = (f"/rnn{n}",) if t == steps - 1 else ()
            reads = (given, carried, *kept)
            state, kept = (tensor(f"h{n}_{t}", 1, batch, hidden),), (tensor(f"c{n}_{t}", 1, batch, hidden),)
            add(kernel, "kgen", reads, (), (*state, *kept, tensor(f"y{n}", 1, batch, hidden)), label)
        value, width = f"y{n}", hidden
    return Engine(
        "tensorrt-rtx", "1.7", Target("sm86"), tuple(made),
        (tensor("x", steps, batch, inputs),), (tensor(value, steps, batch, hidden),),
        maker=TENSORRT_RTX,
    )  # fmt: skip


class Session:
    """A form in ONNX Runtime as it stands, whose runs take as many milliseconds as it has nodes."""

    def __init__(self, model: bytes, batch) -> None:
        self.session = session(model)
        self.batch, self.nodes = batch, len(onnx.load_from_string(model).graph.node)

    def outputs(self):
        return {"Y": self.session.run(["Y"], self.batch)[0]}

    def time(self, repeats: int = 1) -> float:
        assert repeats > 0
        return float(self.nodes)
