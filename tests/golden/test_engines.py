"""What answers about engines stand on, told by somebody else: labels, kernels' names, lists of layers, textbooks.

The compiler's labels are read here once more from its print; that a node is constant or reaches no output is found by
walking over the file. What a kernel does is told by its name. Lives of tensors are found from the list of layers alone,
and work is counted from the arrays of a run by the formulas of textbooks.
"""

from __future__ import annotations

import collections
import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import answers
import scenes
from rtlab.analyses.cards.picture import Box
from rtlab.analyses.difference import build_side, compute_difference
from rtlab.core.engine import Layer
from rtlab.errors import VariantError
from rtlab.relation.layerwork import layer_works
from rtlab.relation.work import works
from rtlab.web.page.graph import engine_view
from scenes import multiplies, steps

PRODUCTS = {
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "Gemm", "MatMul", "MatMulInteger", "Einsum",
}  # fmt: skip
#: What only renames or re-indexes memory, or hands it on.
VIEWS = {
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Split", "Concat", "Expand",
    "Gather", "Dropout", "DepthToSpace", "SpaceToDepth", "Cast",
}  # fmt: skip
#: What a kernel that only moves numbers can be called by.
MOVES = {
    "Transpose", "Reshape", "Flatten", "Concat", "Slice", "Split", "Cast", "Squeeze", "Unsqueeze", "Expand", "Pad",
}  # fmt: skip
#: Operations in kernels' names and the operators one of which must then stand on the card.
TELLING = {
    "Relu": {"ReLU"}, "Erf": {"Erf", "Gelu"}, "Exp": {"Softmax", "Exp"}, "Tanh": {"LSTM", "GRU", "Tanh"},
    "Mean": {"LN", "GAP", "ReduceMean"},
}  # fmt: skip
SIZES = {"fp32": 4, "fp16": 2, "int8": 1, "fp8": 1, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "bf16": 2}
ALIGN = 256
#: Operations for each number of the output. A sigmoid is an exponential, a sum and a division; a softmax a largest, a
#: difference, an exponential, a sum and a division; a normalization mean, difference, square, its sum, scale, gamma and
#: beta.
STEPS = {
    "Relu": 1, "Add": 1, "Mul": 1, "Sub": 1, "Div": 1, "Erf": 1, "Sqrt": 1, "Greater": 1, "Sigmoid": 3, "Softmax": 5,
    "QuantizeLinear": 2, "DequantizeLinear": 2, "BatchNormalization": 2, "LayerNormalization": 7, "Clip": 2,
}  # fmt: skip
FREE = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape"}
#: Gates of a recurrence, and the operations of each unit at each step beside its products and biases.
#: LSTM: input, output and forget gates are sigmoids; tanh of candidate and cell; f * c, i * g, their sum, o * h.
#: GRU: update and reset gates are sigmoids; tanh of the candidate; r * h; 1 - z, times n, z * h, their sum.
RECURRENT = {"LSTM": (4, 3 * 3 + 2 + 4), "GRU": (3, 2 * 3 + 1 + 1 + 4)}

Arrays = Mapping[str, np.ndarray]


def label(title: str) -> Iterator[str]:
    """The nodes that a label names: ``[ONNX Layer: a][ONNX Layer: b | body (then_branch) | owner (If)]``.

    Parts that TensorRT joined stand behind separators, and may have a word behind their bracket; a node without a name
    is called by its position.
    """
    for part in re.split("[\x1e\x1f]", title):
        for name in re.findall(r"\[ONNX Layer: (.*?)\](?=\[ONNX Layer: |[^\[\]]*$)", part):
            yield re.sub(r"^node_(\d+)$", r"#\1", name.partition(" | ")[0])


def labels_printed(log: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = collections.defaultdict(set)
    for line in log.splitlines():
        if told := re.match(r"Name: (.*?), LayerType: .*?Metadata: ?(.*)$", line):
            found[told[1]].update(label(told[2]))
    return found


def check_labels(result: Any) -> None:
    """Each node that the compiler's own label names is declared for that layer, and no other is."""
    if not result.engine.log or result.engine.backend != "tensorrt-rtx":
        return
    printed = labels_printed(result.engine.log)
    assert len(printed) == len({y.name for y in result.engine.layers})
    for name, told in printed.items():
        found = {o for y in result.engine.layers if y.name == name for o in y.origins}
        assert told == found, name


def check_reasons(result: Any, model: Any) -> None:
    """A folded node hangs on constants alone, a dead one reaches no output, and a view computes nothing."""
    graph = ir.to_proto(model.ir).graph
    by_name = {n.name: n for n in graph.node}
    constant, wanted = constants(graph), reaching(graph)
    for missing in result.mapping.missing:
        node = by_name.get(missing.node)
        if node is None:
            continue
        if missing.reason == "folded":
            assert {*node.output} <= constant, missing.node
        if missing.reason == "dead":
            assert not wanted & {*node.output}, missing.node
        if missing.reason == "view":
            window = next((a.ints for a in node.attribute if a.name == "kernel_shape"), [0])
            assert node.op_type in VIEWS or (node.op_type == "AveragePool" and {1} == {*window}), missing.node


def constants(graph: onnx.GraphProto) -> set[str]:
    found = {"", *(w.name for w in graph.initializer)}
    for node in graph.node:
        if node.op_type == "Constant" or (node.input and found >= {*node.input}):
            found.update(node.output)
    return found


def reaching(graph: onnx.GraphProto) -> set[str]:
    found = {o.name for o in graph.output}
    for node in reversed(graph.node):
        if found & {*node.output}:
            found.update(node.input)
            found.update(i for g in _bodies(node) for n in g.node for i in n.input)
    return found


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
            for inner in attribute.g.node:
                yield from _bodies(inner)


def check_products(result: Any, model: Any) -> None:
    """A product works where a kernel multiplies: in one layer, unless it was unrolled or no kernel tells."""
    for node in model.nodes:
        pairs = [p for layer in result.mapping.layers(node.id) for p in result.mapping.of(layer)]
        work = [result.engine.layer(p.layer) for p in pairs if p.node == node.id and p.role == "work"]
        if node.op in PRODUCTS and work:
            assert any(scenes.multiplies(y) is not False for y in work), node.id


def check_card(layer: Layer, box: Box, *, linked: bool) -> None:
    where = f"{layer.name}: {box['title']} {[c['title'] for c in box['chips']]}"
    work = {c["op"] for c in box["chips"] if c["role"] == "work"}
    said = {*([box["title"]] if box["slim"] else []), *(c["role"] for c in box["chips"])}
    told = steps(layer)
    assert box["slim"] == (not box["chips"]), where
    assert not box["slim"] or box["title"] not in PRODUCTS, where
    if multiplies(layer) is False and linked:
        assert set() == work & PRODUCTS, where
    if linked and layer.kind in {"correlation", "deconv", "Conv", "FusedConv"}:
        assert {"Conv", "ConvTranspose"} & work, where
    if linked and "Corr" in told:
        assert {"Conv", "ConvTranspose"} & work, where
    rounds = "RounCast" in "".join(told) or layer.kind == "QuantizeLinear"
    if rounds:
        assert any(re.match("Q", word) for word in said), where
    if layer.kind == "DequantizeLinear":
        assert any(word.startswith(("DQ", "Q/DQ")) for word in said), where
    if told and {*told} <= {"Move", "Cast", "Resh", "Tran", "Conc", "Slic", "Copy", "Repl"}:
        assert {w for w in work if not w.startswith("Reduce")} <= MOVES, where
    if linked and box["chips"] and any(c["node"] for c in box["chips"]):
        for step in {*told} & {*TELLING}:
            assert TELLING[step] & work, where


def plain(engine: Any) -> bool:
    written = Counter(t.name for y in engine.layers for t in y.outputs)
    return (
        engine.backend == "tensorrt-rtx"
        and 1 == len({y.stream for y in engine.layers})
        and {1} == {*written.values()}
        and not any(y.kind in {"NoOp", "jmp", "cjmp", "signal", "wait"} for y in engine.layers)
        and all(
            t.shape is not None and t.dtype in SIZES and "wide" not in t.format
            for y in engine.layers
            for t in y.outputs
        )
    )


def spans(engine: Any) -> dict[str, tuple[int, int, int]]:
    outside = {t.name for t in (*engine.inputs, *engine.outputs)}
    found: dict[str, tuple[int, int, int]] = {}
    for at, layer in enumerate(engine.layers):
        for t in layer.outputs:
            if t.name not in outside:
                found[t.name] = (at, at, math.prod(t.shape) * SIZES[t.dtype])
    for at, layer in enumerate(engine.layers):
        for t in layer.inputs:
            if t.name in found:
                first, last, size = found[t.name]
                found[t.name] = (first, max(last, at), max(size, math.prod(t.shape) * SIZES[t.dtype]))
    return found


def rounded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def check_plan(engine: Any, plan: Any) -> None:
    """Nothing lies where something else still is, and the sums are those of the tensors."""
    placed = plan.allocations
    assert plan.peak == max((a.offset + rounded(a.nbytes) for a in placed), default=0)
    assert plan.naive == sum(rounded(a.nbytes) for a in placed)
    assert plan.bound <= plan.peak <= plan.naive
    for a, life in zip(placed, plan.lives, strict=True):
        assert 0 == a.offset % ALIGN
        for b, other in zip(placed, plan.lives, strict=True):
            if a is not b and not life.frees(other) and not other.frees(life):
                apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
                assert apart, (a.value, b.value)
    if plain(engine):
        right = spans(engine)
        assert right == {a.value: (a.first, a.last, a.nbytes) for a in placed}
        alive = [
            sum(rounded(size) for first, last, size in right.values() if first <= at <= last)
            for at in range(len(engine.layers))
        ]
        assert alive == plan.alive.tolist()
        assert plan.bound == max(alive)


def check_schedule(engine: Any, found: Any) -> None:
    """Every step begins when the last one that it waits for has ended, and the longest way takes the whole."""
    steps = {s.layer: s for s in found.steps}
    ends: dict[int, float] = {}
    events: dict[Any, float] = {}
    for layer in engine.layers:
        step = steps[layer.id]
        ready = [ends.get(layer.stream, 0.0), *(steps[w].end for w in step.waits_on)]
        if layer.kind == "wait" and layer.event in events:
            ready.append(events[layer.event])
        assert max(ready) == pytest.approx(step.start), layer.name
        ends[layer.stream] = step.end
        if layer.kind == "signal":
            events[layer.event] = step.end
    assert found.makespan == pytest.approx(max(ends.values(), default=0.0))
    assert found.serial == pytest.approx(sum(s.duration for s in found.steps if not s.sync))
    assert found.chain <= found.makespan + 1e-9
    assert found.makespan <= found.serial + 1e-9
    assert sum(steps[i].duration for i in found.path) == pytest.approx(found.makespan)
    for step in found.steps:
        assert step.slack >= 0.0
        assert not step.critical or 0.0 == pytest.approx(step.slack)


def check_difference(found: Any) -> None:
    """The groups hold every layer of both engines once, whatever they call what differs."""
    for side, half in ((found.first, "first"), (found.second, "second")):
        grouped = [i for g in found.groups for i in getattr(g, half).layers]
        assert len({*grouped}) == len(grouped)
        silent = {y.id for y in side.engine.layers} - {*grouped}
        assert not {i for i in silent if scenes.multiplies(side.engine.layer(i))}
    nodes = [n for g in found.groups for n in g.nodes]
    assert len({*nodes}) == len(nodes)
    for group in found.groups:
        for half, side in ((group.first, found.first), (group.second, found.second)):
            for layer in half.layers:
                work = {p.node for p in side.mapping.of(layer) if p.role in {"work", "bias", "scale"}}
                assert not group.nodes or work <= {*group.nodes}, (group.title, layer)


def check_findings(result: Any, model: Any) -> None:
    """Nodes and layers that a finding names are there, and the types that it quotes are those of the layer."""
    known = {n.id for n in model.nodes}
    for finding in result.findings:
        assert {*finding.layers} <= {y.id for y in result.engine.layers}, finding.id
        assert not model.nodes or {*finding.nodes} <= known, finding.id
        for name, reads, writes in re.findall(
            r'"([^"]+)" \([\w ]+\) reads (\w+) [^;]*? and writes (\w+)', finding.evidence
        ):
            start, _, end = name.partition("…")
            layers = [y for y in result.engine.layers if y.name.startswith(start) and y.name.endswith(end)]
            assert any(
                reads in {t.dtype for t in y.inputs} and writes in {t.dtype for t in y.outputs}
                for y in layers
            ), finding.id


@functools.cache
def arrays(name: str) -> Arrays:
    model = scenes.study(name).model
    proto = model.proto()
    given = {v.name for v in (*proto.graph.output, *proto.graph.input)} | {
        w.name for w in proto.graph.initializer
    }
    made = [o for n in proto.graph.node for o in n.output if o and o not in given] + list(model.outputs)
    kinds = {1: np.float32, 7: np.int64}
    feed = {
        i.name: np.ones(model.input_shape(i.name), kinds[i.type.tensor_type.elem_type])
        for i in proto.graph.input
    }
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in proto.graph.initializer}
    return {**weights, **feed, **answers.values(model, made, [feed])}


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


def find_taken(result: Any, model: Any, layer: Any) -> dict[int, int]:
    """By how many numbers a constant table has, how many a layer takes out of it: of an embedding, its rows."""
    nodes = [model.by_id[p.node] for p in result.mapping.of(layer.id) if p.node in model.by_id]
    return {
        math.prod(model.known[n.inputs[0]].shape): math.prod(model.sizes().get(n.outputs[0]))
        for n in nodes
        if n.op == "Gather" and n.inputs[0] in model.known
    }


def check_layers(result: Any, model: Any, found: Mapping[str, Any], done: Mapping[str, Any]) -> None:
    """The layers compute what their nodes do, and move the tensors that the compiler lists for them."""
    placed = {p.node for p in result.mapping.pairs}
    wanted = sum(w.macs or 0 for node, w in found.items() if node in placed)
    got = sum(w.macs or 0 for w in done.values())
    # A node whose work is divided among layers may lose less than one for each of them.
    assert got == pytest.approx(wanted, abs=len(done)), "multiply-accumulates of nodes and layers"
    for layer in result.engine.layers:
        reads, writes = (*layer.inputs, *layer.constants), layer.outputs
        if result.engine.backend != "tensorrt-rtx" or done[layer.id].still:
            continue
        if any("wide" in t.format or not t.shape or t.dtype not in SIZES for t in (*reads, *writes)):
            continue
        # Two parts of one buffer are two tensors; the same part twice is one.
        sides = ({(t.name, t.shape, t.dtype) for t in side} for side in (reads, writes))
        taken = find_taken(result, model, layer)
        moved = [
            sum(
                min(count := math.prod(shape), taken.get(count, count)) * SIZES[dtype]
                for _, shape, dtype in side
            )
            for side in sides
        ]
        assert moved == [done[layer.id].read, done[layer.id].written], layer.name


@scenes.subjects
def test_layers_are_where_their_labels_and_cards_say(subject: str) -> None:
    """In INT8 a kernel that quantizes bears the label of the convolution; the layer that convolves alone says Conv."""
    study = scenes.study(subject)
    for result in study.values():
        check_labels(result)
        if study.model.nodes:
            check_reasons(result, study.model)
            check_products(result, study.model)
        view = engine_view(result.facts, study.model)
        boxes = {b["id"]: b for b in view["graph"]["boxes"]}
        for layer in result.engine.layers:
            check_card(layer, boxes[layer.id], linked=bool(view["pairs"]))


@scenes.subjects
def test_nothing_overlaps_in_memory_and_no_step_begins_too_early(subject: str) -> None:
    for result in scenes.study(subject).values():
        try:
            check_plan(result.engine, result.memory())
        except VariantError:
            assert not any(t.shape for y in result.engine.layers for t in y.outputs)
        check_schedule(result.engine, result.schedule())


@scenes.subjects
def test_findings_quote_layers_and_differences_hold_each_once(subject: str) -> None:
    study = scenes.study(subject)
    first, *rest = study.values()
    for result in (first, *rest):
        check_findings(result, study.model)
    for result in rest:
        check_difference(compute_difference(build_side(first.facts), build_side(result.facts), study.model))


@scenes.samples
def test_work_is_what_sizes_say(subject: str) -> None:
    study = scenes.study(subject)
    found = works(study.model)
    countable = [n for n in study.model.top if n.op not in {"Constant", "If"}]
    assert check_nodes(subject, found) >= 0.8 * len(countable)
    for result in study.values():
        check_layers(result, study.model, found, layer_works(result.engine, result.mapping, study.model))


@scenes.subjects
def test_the_higher_of_two_roofs_bounds_a_layer(subject: str) -> None:
    """Bytes by the bandwidth or operations by the rate, whichever takes longer; starting it takes all the same."""
    for result in scenes.study(subject).values():
        if (found := result.estimate) is None:
            continue
        starts = set()
        for point in found.layers:
            if point.attainable is None:
                continue
            rates = found.peaks.tensor if point.units == "matrix" else found.peaks.cores
            compute = point.flops / rates[point.precision]
            memory = (point.read + point.written) / found.peaks.bandwidth
            starts.add(round(1e3 * point.attainable - 1e6 * max(compute, memory), 6))
            assert point.bound in {"launch", "compute" if compute > memory else "memory"}
        assert len(starts) <= 1
