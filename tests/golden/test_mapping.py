"""Where every node of every sample and recorded engine went: to which layers, and how we know.

The labels of the compiler are read here once more, from the text that it printed. That a node with a reason in place of
a layer is constant, or reaches no output, is found here by walking over the file. A convolution or matrix product does
its work where the kernel multiplies. The rest of each table was read by eyes.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

import scenes

PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
#: What only renames or re-indexes memory, or hands it on.
VIEWS = {
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Split", "Concat", "Expand",
    "Gather", "Dropout", "DepthToSpace", "SpaceToDepth", "Cast",
}  # fmt: skip


def label(title: str) -> Iterator[str]:
    """The nodes that a label names: ``[ONNX Layer: a][ONNX Layer: b | body (then_branch) | owner (If)]``.

    Parts that TensorRT joined stand behind separators, and may have a word behind their bracket; a node without a name
    is called by its position.
    """
    for part in re.split("[\x1e\x1f]", title):
        for name in re.findall(r"\[ONNX Layer: (.*?)\](?=\[ONNX Layer: |[^\[\]]*$)", part):
            yield re.sub(r"^node_(\d+)$", r"#\1", name.partition(" | ")[0])


def labels_printed(log: str) -> dict[str, set[str]]:
    """By the name of a layer, what its lines in the listing of TensorRT-RTX say: copies of a layer share one name."""
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
    """Values that no input of the model reaches."""
    found = {"", *(w.name for w in graph.initializer)}
    for node in graph.node:
        if node.op_type == "Constant" or (node.input and found >= {*node.input}):
            found.update(node.output)
    return found


def reaching(graph: onnx.GraphProto) -> set[str]:
    """Values that an output of the model depends on."""
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


def spans(numbers: list[int]) -> str:
    """``3 5-7``: numbers, those that follow each other as one."""
    told: list[list[int]] = []
    for n in sorted(numbers):
        if told and n == told[-1][1] + 1:
            told[-1][1] = n
        else:
            told.append([n, n])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in told)


def lines(result: Any, model: Any) -> list[str]:
    """A line for every node: its layers by number, with what they do for it and how we know, or why there is none."""
    number = {y.id: y.index + 1 for y in result.engine.layers}
    told = []
    for node in model.nodes:
        missing = result.mapping.why(node.id)
        pairs = [
            p
            for layer in dict.fromkeys(result.mapping.layers(node.id))
            for p in result.mapping.of(layer)
            if p.node == node.id
        ]
        alike: dict[str, list[int]] = {}
        for p in pairs:
            how = (
                f"{p.role} {p.evidence}".replace("work declared", "")
                .replace(" declared", "")
                .replace("work ", "")
            )
            alike.setdefault(how, []).append(number[p.layer])
        where = [f"{spans(found)} {how}".strip() for how, found in alike.items()]
        told.append(f"{node.id} {node.op}: {', '.join(where) or missing.reason}")
    return told


@scenes.samples
def test_every_node_of_a_sample_is_where_the_compiler_put_it(name: str, golden: Any) -> None:
    """Whoever asks where a node went is answered with this."""
    model = scenes.study(name).model
    tables = {}
    for head, result in scenes.results(name):
        tables[head] = []
        if result:
            # Names that no label can hold are given to the compiler as numbers.
            if name != "hostile_names":
                check_labels(result)
            check_reasons(result, model)
            check_products(result, model)
            tables[head] = lines(result, model)
    golden(f"mapping/{name}.txt", tables)


@scenes.recorded
def test_every_node_of_a_recorded_engine_is_where_its_label_says(folder: Any, golden: Any) -> None:
    """Two of them were recorded with their model; the others tell nodes by their labels."""
    result, model = scenes.engine(folder)
    raw = json.loads(next(p for g in ("engine.graph.json", "*info.json") for p in folder.glob(g)).read_text())
    told = raw.get("Layers", raw) if isinstance(raw, dict) else raw
    assert len(told) == len(result.engine.layers)
    for layer, one in zip(result.engine.layers, told, strict=True):
        if isinstance(one, dict) and "ONNX Layer" in (said := str(one.get("Metadata", ""))):
            assert {*label(said)} == {*layer.origins}, layer.name
    if model.nodes:
        check_reasons(result, model)
        check_products(result, model)
        golden(f"mapping/recorded-{folder.name}.txt", {f"# {result.engine.title}": lines(result, model)})


@scenes.built
def test_every_node_of_a_kept_build_is_where_its_print_says(path: Any, golden: Any) -> None:
    """The print of a build, whatever compiler is installed: its labels are read once more, line by line."""
    result, model = scenes.listing(path)
    printed = [x for x in path.read_text().rpartition("Layers:\n")[2].split("\n") if x.startswith("Name: ")]
    assert [{*label(x.partition(", Metadata:")[2])} for x in printed] == [
        {*y.origins} for y in result.engine.layers
    ]
    check_reasons(result, model)
    check_products(result, model)
    golden(f"mapping/built-{path.stem}.txt", {f"# {path.stem}": lines(result, model)})
