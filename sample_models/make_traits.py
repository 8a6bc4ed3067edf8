"""Write the small models with one trait each beside this script: ``python sample_models/make_traits.py``.

Weights are random with a fixed seed; two runs write the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOAT = onnx.TensorProto.FLOAT
RNG = np.random.default_rng(20)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Normal weights that keep the variance of their input; the last dimensions are summed over."""
    fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:])) or 1
    values = RNG.standard_normal(shape) * np.sqrt(2 / fan_in) if len(shape) > 1 else np.zeros(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def integers(name: str, *values: int) -> onnx.TensorProto:
    """A vector of INT64."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto],
    source: tuple[str, Sequence[int | str]],
    target: tuple[str, Sequence[int | str]],
) -> onnx.ModelProto:
    """A checked model with one FP32 input and output."""
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(source[0], FLOAT, source[1])],
        [helper.make_tensor_value_info(target[0], FLOAT, target[1])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="rtlab")
    onnx.checker.check_model(made, full_check=True)
    return made


def dynamic_shapes() -> onnx.ModelProto:
    """Self-attention over ``N×length×32`` as exporters write it: computed shapes, constants to fold."""

    def node(op: str, inputs: str, output: str, where: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(op, inputs.split(), [output], name=f"/attention/{where}/{op}", **attributes)

    nodes = [
        node("LayerNormalization", "tokens norm.scale norm.bias", "normed", "norm", axis=-1, epsilon=1e-5),
        node("Shape", "normed", "shape", "shape"),
        node("Gather", "shape axis.batch", "batch", "shape/batch", axis=0),
        node("Gather", "shape axis.length", "length_", "shape/length", axis=0),
        node("Concat", "batch length_ heads width", "split", "shape/split", axis=0),
        node("Concat", "batch length_ full", "merge", "shape/merge", axis=0),
        node("Cast", "width", "width_float", "scale", to=FLOAT),
        node("Sqrt", "width_float", "width_root", "scale"),
    ]
    for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
        nodes += [
            node("MatMul", f"normed {part}.weight", f"{part}_flat", part),
            node("Reshape", f"{part}_flat split", f"{part}_heads", part),
            node("Transpose", f"{part}_heads", part, part, perm=order),
        ]
    nodes += [
        node("MatMul", "query key", "scores", "scores"),
        node("Div", "scores width_root", "scaled", "scores"),
        node("Softmax", "scaled", "weights", "scores", axis=-1),
        node("MatMul", "weights value", "mixed", "context"),
        node("Transpose", "mixed", "mixed_tokens", "context", perm=(0, 2, 1, 3)),
        node("Reshape", "mixed_tokens merge", "context", "context"),
        node("MatMul", "context output.weight", "projected", "output"),
        node("Add", "projected tokens", "attended", "output"),
    ]
    scale = numpy_helper.from_array(np.ones(32, np.float32), "norm.scale")
    names = ("query.weight", "key.weight", "value.weight", "output.weight")
    sizes = {"axis.batch": 0, "axis.length": 1, "heads": 4, "width": 8, "full": 32}
    weights = [scale, weight("norm.bias", 32), *(weight(n, 32, 32) for n in names)]
    weights += [integers(n, v) for n, v in sizes.items()]
    shape = ("N", "length", 32)
    return model("dynamic_shapes", nodes, weights, ("tokens", shape), ("attended", shape))


def hostile_names() -> onnx.ModelProto:
    """A convolution per name: missing, repeated, very long, with separators, markup, control bytes."""
    names = (
        "",
        "",
        "conv",
        "conv",
        "#3",
        "left|right",
        "a] [ONNX Layer: b",
        "line\nbreak\ttab",
        "unit\x1fseparator\x1e",
        "<img src=x onerror=alert(1)>",
        "__proto__",
        "größe 大小 📐",
        "/".join(["deep"] * 80),
    )
    nodes, weights, x = [], [], "image"
    for i, name in enumerate(names):
        weights.append(weight(f"w|{i}]", 8, 8 if i else 3, 3, 3))
        value = "logits" if i == len(names) - 1 else f"{name} → {i}"
        layout = {"pads": [1] * 4, "strides": [2 if i in {3, 7} else 1] * 2}
        nodes.append(helper.make_node("Conv", [x, f"w|{i}]"], [f"raw {value}"], name=name, **layout))
        nodes.append(helper.make_node("Relu", [f"raw {value}"], [value], name=name and f"{name}.relu"))
        x = value
    return model("hostile_names", nodes, weights, ("image", ("N", 3, 32, 32)), ("logits", ("N", 8, 8, 8)))


def control_flow() -> onnx.ModelProto:
    """One of two convolutions, chosen by the mean: an If whose bodies read values of the outer graph."""

    def body(name: str, op: str, kernel: int) -> onnx.GraphProto:
        layout = {"pads": [kernel // 2] * 4}
        nodes = [
            helper.make_node(
                "Conv", ["stem", f"{name}.weight"], [f"{name}_raw"], name=f"/{name}/Conv", **layout
            ),
            helper.make_node(op, [f"{name}_raw"], [f"{name}_out"], name=f"/{name}/{op}"),
        ]
        result = helper.make_tensor_value_info(f"{name}_out", FLOAT, ("N", 8, 16, 16))
        return helper.make_graph(nodes, name, [], [result], [weight(f"{name}.weight", 8, 8, kernel, kernel)])

    nodes = [
        helper.make_node("Conv", ["image", "stem.weight"], ["stem"], name="/stem/Conv", pads=[1] * 4),
        helper.make_node("ReduceMean", ["stem"], ["mean"], name="/choose/ReduceMean", keepdims=0),
        helper.make_node("Greater", ["mean", "limit"], ["bright"], name="/choose/Greater"),
        helper.make_node(
            "If",
            ["bright"],
            ["chosen"],
            name="/choose/If",
            then_branch=body("bright_body", "Relu", 3),
            else_branch=body("dark_body", "Sigmoid", 5),
        ),
        helper.make_node("Add", ["chosen", "stem"], ["sum"], name="/residual/Add"),
        helper.make_node("GlobalAveragePool", ["sum"], ["pooled"], name="/pool/GlobalAveragePool"),
        helper.make_node("Flatten", ["pooled"], ["features"], name="/pool/Flatten"),
    ]
    limit = numpy_helper.from_array(np.array(0, np.float32), "limit")
    weights = [weight("stem.weight", 8, 3, 3, 3), limit]
    return model("control_flow", nodes, weights, ("image", ("N", 3, 16, 16)), ("features", ("N", 8)))


def main() -> None:
    """Write each model and print its size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the files")
    out = parser.parse_args().out
    for make in (dynamic_shapes, hostile_names, control_flow):
        made = make()
        path = out / f"{make.__name__}.onnx"
        onnx.save(made, path)
        print(f"{path.name}: {len(made.graph.node)} nodes, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
