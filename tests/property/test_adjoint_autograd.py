"""Gradients of whole models beside those of PyTorch, in a development environment that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import rtlab
from rtlab.adjoint import Tape, differentiate
from rtlab.quantize.edit import Edit

torch = pytest.importorskip(
    "torch", reason="whole models are compared with PyTorch's gradients: pip install torch"
)


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def padded(x: Any, node: ir.Node, rank: int, value: float) -> Any:
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    around = [n for i in reversed(range(rank)) for n in (pads[i], pads[i + rank])]
    return torch.nn.functional.pad(x, around, value=value)


def conv(node: ir.Node, x: Any, w: Any, b: Any = None) -> Any:
    rank = w.ndim - 2
    names = {k: attribute(node, n, [1] * rank) for k, n in (("stride", "strides"), ("dilation", "dilations"))}
    return torch.nn.functional.conv2d(
        padded(x, node, rank, 0.0), w, b, groups=attribute(node, "group", 1), **names
    )


def pooled(node: ir.Node, x: Any) -> Any:
    kernel = attribute(node, "kernel_shape")
    x = padded(x, node, len(kernel), -torch.inf)
    return torch.nn.functional.max_pool2d(
        x,
        kernel,
        attribute(node, "strides", [1] * len(kernel)),
        ceil_mode=bool(attribute(node, "ceil_mode", 0)),
    )


def normalized(node: ir.Node, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return torch.nn.functional.batch_norm(
        x, mean, variance, scale, bias, eps=attribute(node, "epsilon", 1e-5)
    )


def layered(node: ir.Node, x: Any, scale: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, scale.shape, scale, bias, attribute(node, "epsilon", 1e-5))


def gemm(node: ir.Node, a: Any, b: Any, c: Any) -> Any:
    a = a.T if attribute(node, "transA", 0) else a
    return a @ (b.T if attribute(node, "transB", 0) else b) + c


def reshaped(_: ir.Node, x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape.tolist())])


def resized(_: ir.Node, x: Any, __: Any, scales: Any) -> Any:
    return torch.nn.functional.interpolate(x, scale_factor=[float(s) for s in scales[2:]], mode="nearest")


def responded(node: ir.Node, x: Any) -> Any:
    names = {k: attribute(node, n) for k, n in (("alpha", "alpha"), ("beta", "beta"), ("k", "bias"))}
    return torch.nn.functional.local_response_norm(
        x, attribute(node, "size"), **{k: v for k, v in names.items() if v is not None}
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "Conv": conv, "MaxPool": pooled, "BatchNormalization": normalized, "LayerNormalization": layered, "Gemm": gemm,
    "Reshape": reshaped, "Resize": resized, "LRN": responded,
    "Relu": lambda _, x: torch.relu(x), "Sigmoid": lambda _, x: torch.sigmoid(x), "Erf": lambda _, x: torch.erf(x),
    "Sqrt": lambda _, x: torch.sqrt(x), "Add": lambda _, a, b: a + b, "Sub": lambda _, a, b: a - b,
    "Mul": lambda _, a, b: a * b, "Div": lambda _, a, b: a / b, "MatMul": lambda _, a, b: a @ b,
    "Clip": lambda _, x, low=None, high=None: torch.clamp(x, low, high),
    "Flatten": lambda _, x: x.flatten(1),
    "Transpose": lambda n, x: x.permute(attribute(n, "perm")),
    "Concat": lambda n, *xs: torch.cat(xs, attribute(n, "axis")),
    "Softmax": lambda n, x: torch.softmax(x, attribute(n, "axis", -1)),
    "ReduceMean": lambda n, x: x.mean(attribute(n, "axes"), keepdim=bool(attribute(n, "keepdims", 1))),
    "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
    "Gather": lambda n, x, i: x.index_select(attribute(n, "axis", 0), i.flatten()).reshape(
        *x.shape[: attribute(n, "axis", 0)], *i.shape, *x.shape[attribute(n, "axis", 0) + 1 :]
    ),
    "Unsqueeze": lambda _, x, axes: x[(slice(None), None, None)] if axes.tolist() == [1, 2] else x.unsqueeze(int(axes)),
    "Cast": lambda _, x: x.double(),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "resnet50",
        "mobilenet_v2",
        "googlenet",
        "csp_detector",
        "bert",
        "digits_vit",
        "sentences",
        "digits_dark",
    ],
)
def test_every_gradient_of_a_model_is_that_of_pytorch(name: str) -> None:
    """PyTorch's in double precision, at every value that a node reads."""
    sample = rtlab.samples.load(name, samples=2)
    model, batch = sample.model, next(sample.calibration.batches(sample.model, 2))
    edit = Edit(model)
    tape, forward = Tape(edit.graph, model.opset, model.known), list(edit.graph)
    values: dict[ir.Value, Any] = {}
    for value in (*edit.graph.initializers.values(), *edit.graph.inputs):
        held = batch[value.name] if value.name in batch else value.const_value.numpy()
        read = torch.from_numpy(np.array(held))
        values[value] = read.double() if read.is_floating_point() else read
        if value.name in batch and read.is_floating_point():
            values[value].requires_grad_()
    for node in forward:
        values[node.outputs[0]] = (
            torch.from_numpy(np.array(node.attributes["value"].value.numpy()))
            if node.op_type == "Constant"
            else OPERATORS[node.op_type](node, *(None if v is None else values[v] for v in node.inputs))
        )
        made = values[node.outputs[0]]
        if made.is_floating_point():
            # What is looked up, or was no number with a fraction before, begins here.
            made.requires_grad_() if made.is_leaf else made.retain_grad()
    rng, seeds, feed = np.random.default_rng(0), {}, dict(batch)
    for k, end in enumerate(list(edit.graph.outputs)):
        weight = rng.standard_normal(values[end].shape).astype(np.float32)
        seeds[end] = ir.Value(name=f"seed{k}", type=ir.TensorType(ir.DataType.FLOAT), shape=end.shape)
        edit.graph.inputs.append(seeds[end])
        feed[f"seed{k}"] = weight
        (values[end] * torch.from_numpy(weight).double()).sum().backward(retain_graph=True)
    found = differentiate(tape, forward, seeds, beyond=lambda _: False)
    assert not found.stopped
    edit.graph.outputs[:] = list(found.values.values())
    edit.settle()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(edit.finish().bytes(), options, providers=["CPUExecutionProvider"])
    slopes = session.run(None, feed)
    errors = {}
    for value, slope in zip(found.values, slopes, strict=True):
        true = values[value].grad.numpy()
        assert slope.shape == true.shape
        # A mask of the lowest number there is makes gradients that FP32 does not hold.
        if np.abs(true).max() < np.finfo(np.float32).max:
            errors[value.name] = float(np.linalg.norm(slope - true) / max(np.linalg.norm(true), 1e-30))
    worst = max(errors, key=lambda n: errors[n])
    assert errors[worst] < 2e-3, worst
    assert np.median(list(errors.values())) < 1e-4
