"""What every node of every sample computes and moves, and what every layer does of it.

Sizes come from a run of ONNX Runtime that hands out every value. From these arrays multiply-accumulates, operations and
bytes of the operators below are counted once more, by the formulas of textbooks. What the layers compute is what their
nodes do: nothing is lost or counted twice on the way. What else a table holds was read by eyes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import scenes
from rtlab.relation.layerwork import layer_works
from rtlab.relation.work import works

#: Operations for each number of the output. A sigmoid is an exponential, a sum and a division; a softmax a largest, a
#: difference, an exponential, a sum and a division; a normalization mean, difference, square, its sum, scale, gamma and
#: beta.
STEPS = {
    "Relu": 1, "Add": 1, "Mul": 1, "Sub": 1, "Div": 1, "Erf": 1, "Sqrt": 1, "Greater": 1, "Sigmoid": 3, "Softmax": 5,
    "QuantizeLinear": 2, "DequantizeLinear": 2, "BatchNormalization": 2, "LayerNormalization": 7, "Clip": 2,
}  # fmt: skip
#: They rename memory.
FREE = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape"}
MOVES = {"Transpose", "Concat", "Gather", "Cast", "Slice", "Split"}
#: Gates of a recurrence, and the operations of each unit at each step beside its products and biases.
#: LSTM: input, output and forget gates are sigmoids; tanh of candidate and cell; f * c, i * g, their sum, o * h.
#: GRU: update and reset gates are sigmoids; tanh of the candidate; r * h; 1 - z, times n, z * h, their sum.
RECURRENT = {"LSTM": (4, 3 * 3 + 2 + 4), "GRU": (3, 2 * 3 + 1 + 1 + 4)}

Arrays = Mapping[str, np.ndarray]


@functools.cache
def arrays(name: str) -> Arrays:
    """Every value of a sample for one element of a batch, as ONNX Runtime computes it."""
    model = scenes.study(name).model
    proto = model.proto()
    given = {v.name for v in (*proto.graph.output, *proto.graph.input)} | {
        w.name for w in proto.graph.initializer
    }
    made = [o for n in proto.graph.node for o in n.output if o and o not in given]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(o) for o in made)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}
    feed = {i.name: np.ones(model.input_shape(i.name), types[i.type]) for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in proto.graph.initializer}
    return {**weights, **feed, **dict(zip(names, session.run(names, feed), strict=True))}


def counted(node: onnx.NodeProto, known: Arrays) -> tuple[int, int] | None:
    """Multiply-accumulates and operations of a node; None where its formula does not stand here."""
    ins = [known[i].shape if i else () for i in node.input]
    out = known[node.output[0]]
    biased = len(node.input) > 2 and bool(node.input[2])
    if node.op_type in FREE | MOVES:
        return 0, 0
    if node.op_type in STEPS:
        return 0, STEPS[node.op_type] * out.size
    if node.op_type == "Conv":
        # Each number of the output is a sum over the kernel and the channels of its group.
        _, channels, *kernel = ins[1]
        macs = out.size * channels * math.prod(kernel)
        return macs, 2 * macs + (out.size if biased else 0)
    if node.op_type in {"Gemm", "MatMul"}:
        turned = any(a.name == "transA" and a.i for a in node.attribute)
        macs = out.size * ins[0][-2 if turned else -1]
        return macs, 2 * macs + (out.size if biased and node.op_type == "Gemm" else 0)
    if node.op_type in RECURRENT:
        gates, beside = RECURRENT[node.op_type]
        (length, batch, width), hidden, directions = ins[0], ins[2][-1], ins[1][0]
        units = length * batch * hidden * directions
        macs = units * gates * (width + hidden)
        return macs, 2 * macs + units * (beside + (2 * gates if len(ins) > 3 and ins[3] else 0))
    if node.op_type in {"GlobalAveragePool", "ReduceMean", "ReduceSum"}:
        return 0, math.prod(ins[0])
    if node.op_type in {"MaxPool", "AveragePool"}:
        return 0, out.size * math.prod(next(a.ints for a in node.attribute if a.name == "kernel_shape"))
    return None


def check_nodes(name: str, found: Mapping[str, Any]) -> int:
    """How many nodes were counted twice, each time to the same number."""
    model, known = scenes.study(name).model, arrays(name)
    checked = 0
    by_name = {n.name: n for n in model.proto().graph.node if n.name}
    for told in model.top:
        node = by_name.get(told.id)
        if node is None:
            continue
        assert node.op_type == told.op
        if any(o not in known for o in (*node.output, *(i for i in node.input if i))):
            continue
        work = found[told.id]
        if (right := counted(node, known)) is None:
            continue
        assert right == (work.macs, work.flops), told.id
        checked += 1
        if node.op_type in FREE:
            assert (0, 0) == (work.read, work.written), told.id
            continue
        assert sum(known[o].nbytes for o in node.output if o) == work.written, told.id
        if node.op_type != "Gather":
            assert sum(known[i].nbytes for i in node.input if i) == work.read, told.id
    return checked


def check_layers(result: Any, model: Any, found: Mapping[str, Any], done: Mapping[str, Any]) -> None:
    """The layers compute what their nodes do, and move the tensors that the compiler lists for them."""
    placed = {p.node for p in result.mapping.pairs}
    wanted = sum(w.macs or 0 for node, w in found.items() if node in placed)
    got = sum(w.macs or 0 for w in done.values())
    # A node whose work is divided among layers may lose less than one for each of them.
    assert got == pytest.approx(wanted, abs=len(done)), "multiply-accumulates of nodes and layers"
    sizes = {
        "fp32": 4,
        "fp16": 2,
        "int8": 1,
        "fp8": 1,
        "int32": 4,
        "int64": 8,
        "bool": 1,
        "uint8": 1,
        "bf16": 2,
    }
    for layer in result.engine.layers:
        reads, writes = (*layer.inputs, *layer.constants), layer.outputs
        if result.engine.backend != "tensorrt-rtx" or done[layer.id].still:
            continue
        if any("wide" in t.format or not t.shape or t.dtype not in sizes for t in (*reads, *writes)):
            continue
        # Two parts of one buffer are two tensors; the same part twice is one.
        moved = [
            sum(
                math.prod(shape) * sizes[dtype]
                for _, shape, dtype in {(t.name, t.shape, t.dtype) for t in side}
            )
            for side in (reads, writes)
        ]
        assert moved == [done[layer.id].read, done[layer.id].written], layer.name


def text(work: Any) -> str:
    """Multiply-accumulates, operations, bytes in and out; a question mark where it is not known."""
    parts = [("macs", work.macs), ("ops", work.flops), ("read", work.read), ("written", work.written)]
    return "  ".join(f"{k} {'?' if v is None else v}" for k, v in parts)


@scenes.samples
def test_work_of_a_sample_is_what_its_sizes_say(name: str, golden: Any) -> None:
    """Rooflines, estimates and differences all rest on these numbers."""
    model = scenes.study(name).model
    found = works(model)
    checked = check_nodes(name, found)
    assert checked >= 0.8 * len([n for n in model.top if n.op not in {"Constant", "If"}])
    tables = {
        "# nodes": [
            f"{n.id} {n.op}: {text(found[n.id])}  parameters {found[n.id].parameters}" for n in model.nodes
        ]
    }
    for head, result in scenes.results(name):
        tables[head] = []
        if result:
            done = layer_works(result.engine, result.mapping, model)
            check_layers(result, model, found, done)
            for layer in result.engine.layers:
                work = done[layer.id]
                units = f"{work.precision}{' matrix' if work.matrix else ''}"
                tables[head].append(
                    f"{layer.index + 1:4} {scenes.spoken(layer)}: {text(work)}  {units}".rstrip()
                )
    golden(f"work/{name}.txt", tables)


@scenes.recorded
def test_work_of_a_recorded_engine(folder: Any, golden: Any) -> None:
    """Of most no model was recorded: what their layers tell of themselves."""
    result, model = scenes.engine(folder)
    done = layer_works(result.engine, result.mapping, model)
    if folder.name in scenes.UNKEPT:
        return
    told = [
        f"{y.index + 1:4} {y.kind} {scenes.spoken(y)[:50]}: {text(done[y.id])}  {done[y.id].precision}".rstrip()
        for y in result.engine.layers
    ]
    golden(f"work/recorded-{folder.name}.txt", {f"# {result.engine.title}": told})


@scenes.built
def test_work_of_a_kept_build(path: Any, golden: Any) -> None:
    """The sums of its layers are those of the nodes of the sample."""
    result, model = scenes.listing(path)
    done = layer_works(result.engine, result.mapping, model)
    check_layers(result, model, works(model), done)
    told = [
        f"{y.index + 1:4} {scenes.spoken(y)}: {text(done[y.id])}  {done[y.id].precision}".rstrip()
        for y in result.engine.layers
    ]
    golden(f"work/built-{path.stem}.txt", {f"# {path.stem}": told})
