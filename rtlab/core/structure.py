"""The structure of a model, which decides a compiler's layers: its graph without the numbers of its weights.

Two machines prepare one model alike but for the last bits of its scales, so that recorded builds are found by it.
Layers are the same for other weights and scales in every precision (``tests/backends/test_recorded_builds.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from rtlab.core.external_data import iter_initializers
from rtlab.core.node import walk
from rtlab.core.value import Value

_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Digits of a single number that are the same on all processors.
_DIGITS = 5


def hash_structure(
    graph: ir.Model, shapes: Mapping[str, object], inputs: Iterable[Value], outputs: Iterable[Value]
) -> str:
    """SHA-256 of operators, attributes, names, topology, types, shapes, and constants that decide about shapes.

    ``shapes`` are the sizes that a user named.

    Of a weight's numbers only a common value counts, of scales and quantized weights nothing; integers and single
    numbers count, to five digits.
    """
    work = hashlib.sha256()
    edges = [f"{v.name} {v.dtype} {v.shape}" for v in inputs] + [f"{v.name} {v.dtype} " for v in outputs]
    header = (repr(sorted(graph.graph.opset_imports.items())), repr(sorted(shapes.items())), *edges)
    for piece in (*header, *_iter_pieces(graph)):
        work.update(piece.encode("utf-8", "surrogatepass"))
        work.update(b"\0")
    return work.hexdigest()


def _iter_pieces(graph: ir.Model) -> Iterator[str]:
    """Each node and each constant, in order."""
    nodes = [node for node, _ in walk(graph)]
    roles = _collect_roles(nodes)
    for node in nodes:
        read = [v.name or "" if v is not None else "" for v in node.inputs]
        outputs = [v.name or "" for v in node.outputs]
        yield f"{node.domain} {node.op_type} {node.overload} {node.name} {read} {outputs}"
        for name, attribute in sorted(node.attributes.items()):
            yield f"{name} {_describe_attribute(attribute, roles.get(outputs[0] if outputs else '', set()))}"
    for initializer in iter_initializers(graph):
        name = initializer.name or ""
        yield f"{name} {_describe_constant(initializer.const_value, roles.get(name, set()))}"


def _collect_roles(nodes: Iterable[ir.Node]) -> dict[str, set[int]]:
    """By value, as which of their inputs pairs read it: 0 is what is quantized, 1 the scale, 2 the zero point."""
    roles: dict[str, set[int]] = {}
    for node in nodes:
        for place, value in enumerate(node.inputs if node.op_type in _PAIRS else ()):
            if value is not None and value.name:
                roles.setdefault(value.name, set()).add(place)
    return roles


def _describe_attribute(attribute: ir.Attr, roles: set[int]) -> str:
    """An attribute; the nodes of a graph come by themselves."""
    if attribute.is_ref():
        return f"of the function: {attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        return _describe_constant(attribute.as_tensor(), roles)
    if attribute.type == ir.AttributeType.TENSORS:
        return " ".join(_describe_constant(t, roles) for t in attribute.as_tensors())
    if attribute.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}:
        graphs = [attribute.value] if attribute.type == ir.AttributeType.GRAPH else attribute.as_graphs()
        ends = [([v.name for v in g.inputs], [v.name for v in g.outputs]) for g in graphs]
        return repr(ends)
    return f"{attribute.type} {attribute.value!r}"


def _describe_constant(tensor: ir.TensorProtocol | None, roles: set[int]) -> str:
    """A constant: its type and shape, and as much of its numbers as counts. ``roles`` are its places in pairs."""
    if tensor is None:
        return ""
    description = f"{tensor.dtype} {tensor.shape}"
    if roles & {0, 1}:
        return description
    if tensor.dtype == ir.DataType.STRING:
        return f"{description} {tensor.string_data() if hasattr(tensor, 'string_data') else ''}"
    if not getattr(tensor, "is_there", True):
        return f"{description} not here"
    array = np.asarray(tensor.numpy())
    if array.dtype.kind in "iub":
        return f"{description} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    if not array.size:
        return description
    plain = array.astype(np.float32) if array.dtype.kind not in "fc" else array
    one = plain.reshape(-1)[0]
    if array.size == 1 or bool((plain == one).all()):
        return f"{description} {one:.{_DIGITS}g}"
    return description
