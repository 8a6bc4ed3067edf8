"""Small models of tame operators, of which only the wiring matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.model import Model, load, wrap

Shapes = Mapping[str, Sequence[int | str] | None]


def passing(**inputs: tuple[int, list[int | str]]) -> Model:
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{n}_out", kind, shape) for n, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "net", values, outputs)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def session(content: bytes, level: str = "ORT_DISABLE_ALL") -> onnxruntime.InferenceSession:
    """Threads that wait for each other would take the processor from the other worker: there is one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(content: bytes, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    opened = session(content)
    return opened.run(None, {i.name: feed[i.name] for i in opened.get_inputs()})


def fp32_proto(
    nodes: Sequence[onnx.NodeProto], inputs: Shapes, outputs: Shapes, weights: Any = (), *,
    name: str = "g", opset: int = 17, ir_version: int = 8,
) -> onnx.ModelProto:  # fmt: skip
    """A model whose inputs and outputs are FP32, with their shapes; weights as tensors or as arrays by name."""
    if isinstance(weights, Mapping):
        weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in side.items()]
            for side in (inputs, outputs)]  # fmt: skip
    made = helper.make_graph(nodes, name, *ends, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def graph(nodes: list, inputs: list, outputs: list, weights: dict, opset: int = 17) -> Model:
    """A model named "m"; inputs and outputs as name, ONNX type and shape, weights as arrays by name."""
    return load(graph_proto(nodes, inputs, outputs, weights, opset), name="m")


def graph_proto(nodes: list, inputs: list, outputs: list, weights: dict, opset: int = 17) -> onnx.ModelProto:
    """The same, unchecked: the shape of an output may be None."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    others = sorted({n.domain for n in nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in others)]
    return helper.make_model(made, opset_imports=imports, ir_version=9)


def chain(*names: str) -> Model:
    flow, nodes = "x", []
    for name in names:
        nodes.append(helper.make_node("Neg", [flow], [f"{name}_out"], name))
        flow = f"{name}_out"
    return wired(nodes, flow)


def wired(nodes: list[onnx.NodeProto], *outputs: str) -> Model:
    return wrap(fp32_proto(nodes, {"x": [1, 4]}, dict.fromkeys(outputs, (1, 4)), ir_version=9), name="m")


def detector(size: int = 64) -> onnx.ModelProto:
    """What a YOLO is made of: convolutions with SiLU, a split, a pool, a resized pyramid, heads that reshape."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def constant(array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    def op(kind: str, *reads: str, outputs: int = 1, **attributes: object) -> list[str]:
        made = [f"{kind.lower()}{len(nodes)}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(kind, reads, made, f"/model/{kind}_{len(nodes)}", **attributes))
        return made

    def conv(x: str, reads: int, writes: int, kernel: int = 3, stride: int = 1) -> str:
        weight = rng.standard_normal((writes, reads, kernel, kernel)) / (reads * kernel**2) ** 0.5
        at = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        (y,) = op(
            "Conv", x, constant(weight.astype(np.float32)), constant(np.zeros(writes, np.float32)), **at
        )
        return op("Mul", y, *op("Sigmoid", y))[0]

    x = conv(conv("images", 3, 16, stride=2), 16, 32, stride=2)
    kept, used = op("Split", conv(x, 32, 32, 1), constant(np.array([16, 16])), outputs=2, axis=1)
    (added,) = op("Add", used, conv(conv(used, 16, 16), 16, 16))
    fine = conv(*op("Concat", kept, used, added, axis=1), 48, 32, 1)
    deep = conv(fine, 32, 64, stride=2)
    (pooled,) = op("MaxPool", deep, kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
    deep = conv(*op("Concat", deep, pooled, axis=1), 128, 64, 1)
    (up,) = op("Resize", deep, "", constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    heads = ((conv(*op("Concat", up, fine, axis=1), 96, 80, 1)), conv(deep, 64, 80, 1))
    flat = [op("Reshape", h, constant(np.array([1, 80, -1])))[0] for h in heads]
    (found,) = op("Concat", *flat, axis=2)
    edges = {"images": [1, 3, size, size]}, {found: [1, 80, 5 * (size // 8) ** 2]}
    return fp32_proto(nodes, *edges, weights, name="detector")
