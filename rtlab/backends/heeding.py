"""Loops that compute nothing, made such that ONNX Runtime can end them: it looks at its switch between two nodes only.

The body of such a loop hands on what it gets, or constants. ONNX Runtime folds those, goes round without a single node,
and would do so for 2^62 steps whatever it is told.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from rtlab.core.model import Model

#: Operators whose outputs may be known although their inputs are not.
_KNOWN = {"Shape", "Size"}


def heeding(model: Model, data: bytes) -> bytes:
    """A serialized model with a node in every such body; as it was where there is none."""
    if not any(node.op == "Loop" for node in model.nodes):
        return data
    proto = onnx.load_from_string(data)
    return bytes(proto.SerializeToString()) if amend(proto.graph) else data


def amend(graph: onnx.GraphProto) -> bool:
    """Put a node in every such body of a graph; whether there was one."""
    found = [_amended(body) for body in _bodies(graph)]
    return any(found)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Bodies of loops, those within others too."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _bodies(inner)
                if node.op_type == "Loop" and attribute.name == "body":
                    yield inner


def _amended(body: onnx.GraphProto) -> bool:
    inputs = {i.name for i in body.input}
    alive, made = set(inputs), set()
    for node in body.node:
        made.update(node.output)
        inner = any(a.HasField("g") or a.graphs for a in node.attribute)
        if node.op_type not in _KNOWN and (inner or not alive.isdisjoint(node.input)):
            alive.update(node.output)
    if any(o.name in made and o.name in alive for o in body.output):
        return False
    through = next((o for o in body.output if o.name in inputs), None)
    # Within a body the condition that it gets is true, so that nothing changes.
    output = through if through is not None else body.output[0]
    new = _unused(f"{output.name}/heeded", inputs | made)
    if through is not None:
        body.node.append(helper.make_node("Identity", [output.name], [new], name=new))
    else:
        body.node.append(helper.make_node("And", [body.input[1].name, output.name], [new], name=new))
    output.name = new
    return True


def _unused(name: str, taken: set[str]) -> str:
    return name if name not in taken else _unused(f"{name}_", taken)
