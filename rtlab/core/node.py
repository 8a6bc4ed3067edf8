"""Nodes of a graph and their stable ids."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from rtlab.core.module_path import read_module_path
from rtlab.core.value import Value, ValueKind, describe, dtype_text, shape_text

#: What ONNX's own operators have as their domain.
ONNX_DOMAINS = frozenset({"", "ai.onnx"})
#: Metadata property that names the source node of an inserted or changed node.
ORIGIN = "rtlab.origin"
#: Metadata property that keeps the author's name where the id differs.
NAME = "rtlab.name"

# Compilers list labels between these characters and print them unescaped, so an id must not contain them.
_SAFE = re.compile(r"(?!\s)(?!.*, )[^\x00-\x1f\x7f|\[\]]{1,200}(?<!\s)")


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of the graph.

    ``id`` is the name when that is unique and safe to print, otherwise ``#`` and the position. ``scope``
    holds the ids of the enclosing nodes (If, Loop, Scan) or ``function NAME``, outermost first. ``origin`` is
    the id of the source node when this one was inserted or changed by a preparation, otherwise its own id.
    ``module_name`` is its operator behind the path of its PyTorch module, ``layers.0/self_attn/MatMul_1``, where the
    exporter wrote the path.
    """

    id: str
    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]
    scope: tuple[str, ...]
    index: int
    origin: str
    module_name: str = ""

    @property
    def title(self) -> str:
        """What to call this node on screen: by its module, else its name, or operator and position."""
        return self.module_name or self.name or f"{self.op} {self.index}"


def bodies(node: ir.Node) -> list[ir.Attr]:
    """The attributes that hold a graph, in their order; those of most nodes hold none."""
    # The dictionary below is many times faster than the methods that a UserDict inherits from Mapping.
    return [a for a in node.attributes.data.values() if a.type == ir.AttributeType.GRAPH and not a.is_ref()]


def walk(model: ir.Model) -> Iterator[tuple[ir.Node, tuple[ir.Node | str, ...]]]:
    """Every node with the chain of its owners, in graph order, without recursion into Python's stack."""
    stack: list[tuple[Iterator[ir.Node], tuple[ir.Node | str, ...]]] = [
        (iter(f), (f"function {f.name}",)) for f in reversed(list(model.functions.values()))
    ]
    stack.append((iter(model.graph), ()))
    while stack:
        nodes, owners = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            continue
        yield node, owners
        stack.extend((iter(body.as_graph()), (*owners, node)) for body in reversed(bodies(node)))


def assign_ids(model: ir.Model) -> None:
    """Name every node by its id. An earlier id, as in a prepared model, stays."""
    counts = Counter(node.name or "" for node, _ in walk(model))
    taken = {name for name, count in counts.items() if count == 1 and _SAFE.fullmatch(name)}
    for index, (node, _) in enumerate(walk(model)):
        name = node.name or ""
        if name in taken and counts[name] == 1:
            continue
        node.metadata_props.setdefault(NAME, name)
        numbered = (f"#{index}.{k}" for k in itertools.count(1))
        node.name = next(i for i in itertools.chain([f"#{index}"], numbered) if i not in taken)
        taken.add(node.name)


def project(model: ir.Model) -> Iterator[Node]:
    """The nodes of a graph whose ids are given, in the order of ``walk``."""
    counts: Counter[str] = Counter()
    for index, (node, owners) in enumerate(walk(model)):
        id_ = node.name or ""
        module_name = ""
        if (path := read_module_path(node)) is not None:
            # Numbered as the older exporter numbers the names that it writes.
            name = "/".join([*path, node.op_type])
            module_name = f"{name}_{counts[name]}" if counts[name] else name
            counts[name] += 1
        yield Node(
            id=id_,
            name=node.metadata_props.get(NAME, id_),
            op=node.op_type,
            domain=node.domain,
            inputs=tuple(v.name or "" if v is not None else "" for v in node.inputs),
            outputs=tuple(v.name or "" for v in node.outputs),
            attributes={k: _to_json(a) for k, a in node.attributes.items()},
            scope=tuple(o if isinstance(o, str) else o.name or "" for o in owners),
            index=index,
            origin=node.metadata_props.get(ORIGIN, id_),
            module_name=module_name,
        )


def _to_json(attribute: ir.Attr) -> object:
    """An attribute as JSON can carry it; tensors and graphs as a description."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        if value.size <= 16:
            return value.numpy().tolist()
        return f"{dtype_text(value.dtype)} {shape_text(tuple(value.shape))}"
    if attribute.type == ir.AttributeType.GRAPH:
        return f"graph of {len(value)} nodes"
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(v, (str, int, float)) for v in value):
        return list(value)
    return str(attribute.type).rsplit(".", maxsplit=1)[-1].lower()


def values_of(model: ir.Model, inputs: set[str]) -> dict[str, Value]:
    """Values of the main graph, then those of bodies and functions, by name; ``inputs`` are those without constants."""
    table: dict[str, Value] = {}

    def put(value: ir.Value | None, kind: ValueKind) -> None:
        if value is not None and value.name and value.name not in table:
            table[value.name] = describe(value, kind)

    for graph_input in model.graph.inputs:
        put(graph_input, "input" if graph_input.name in inputs else "constant")
    for initializer in model.graph.initializers.values():
        put(initializer, "constant")
    for result in model.graph.outputs:
        put(result, "output")
    for node, _ in walk(model):
        for value in (*node.outputs, *node.inputs):
            put(value, "constant" if value is not None and value.const_value is not None else "activation")
    return table


def find_constant_values(graph: ir.Graph, inputs: Collection[str]) -> Mapping[str, ir.TensorProtocol]:
    """Tensors of initializers that are no ``inputs`` and of Constant nodes, also through Identity, by value."""
    table = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.const_value is not None and name not in inputs
    }
    for node in graph:
        if node.domain not in ONNX_DOMAINS or not node.outputs:
            continue
        out = node.outputs[0].name or ""
        if (tensor := read_constant(node)) is not None:
            table[out] = tensor
        elif node.op_type == "Identity" and node.inputs and node.inputs[0] is not None:
            source = node.inputs[0].name or ""
            if source in table:
                table[out] = table[source]
    return table


def read_constant(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None of other nodes, and of text."""
    for name, attribute in node.attributes.items() if node.op_type == "Constant" else ():
        if attribute.is_ref():
            continue
        if name == "value":
            return attribute.as_tensor()
        if name in {"value_float", "value_floats", "value_int", "value_ints"}:
            return ir.Tensor(np.array(attribute.value, np.float32 if "float" in name else np.int64))
    return None
