"""Nodes written out as the nodes of the function that defines their operator, in the standard or in the model itself.

Functions of the standard are asked of ``onnx.defs`` with the types of what a node reads, on which some depend:
``onnx.inliner`` (1.23) knows only the types that a file declares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from rtlab.core.model import Model
from rtlab.core.node import ONNX_DOMAINS, ORIGIN, Node, bodies, walk
from rtlab.errors import VariantError
from rtlab.quantize.assign import matches
from rtlab.quantize.edit import Edit


def check(model: Model, patterns: Sequence[str]) -> None:
    """Raise VariantError where patterns mean no node that can be written out.

    A pattern is that of a pin: an id, a name, or ``op:`` and an operator. Beside others that mean some, it may mean
    nodes of their functions alone.
    """
    readable, chosen_ops = set[str](), dict[str, str]()
    for inner, node in _iter_nodes(model):
        for pattern in patterns:
            if matches(pattern, node):
                chosen_ops[pattern] = node.op
                if _read_function(model.ir, inner) is not None:
                    readable.add(pattern)
    for pattern in patterns:
        if pattern not in readable and (pattern in chosen_ops or not readable):
            op = chosen_ops.get(pattern)
            reason = (
                f"in opset {model.opset}, neither ONNX nor the model itself defines {op} by other operators"
                if op
                else "no node has an id, a name or an operator like this"
            )
            raise VariantError(
                f'Cannot inline "{pattern}" in model "{model.name}": {reason}. Leave it out, or choose another node.'
            )


def list_patterns(model: Model, nodes: Collection[str]) -> tuple[str, ...]:
    """The operators of some nodes, by id, that can be written out, as patterns.

    A node of a local function stands for the calls that run it, where the standard defines it by others.
    """
    reachable = {node.id: (inner, node.op) for inner, node in _iter_nodes(model)}
    chosen: dict[str, None] = {}
    for id_ in nodes:
        if id_ in reachable:
            chosen[id_] = None
        elif _is_composite(model.by_id[id_], model.opset):
            chosen.update(dict.fromkeys(_iter_callers(model, id_)))
    calls = (reachable[n] for n in chosen if n in reachable)
    return tuple(dict.fromkeys(f"op:{op}" for inner, op in calls if _read_function(model.ir, inner)))


def list_calls(model: Model, nodes: Iterable[str]) -> tuple[str, ...]:
    """The local functions that some nodes, by id, stand in, as patterns of their calls."""
    local = {(domain, name) for domain, name, _ in model.ir.functions}
    owners = (model.by_id[o] for n in nodes for o in _iter_callers(model, n))
    return tuple(dict.fromkeys(f"op:{o.op}" for o in owners if (o.domain, o.op) in local))


def _is_composite(node: Node, opset: int) -> bool:
    """Whether the standard has a function for an operator, on whatever that depends."""
    schema = _get_schema(node.op, opset, node.domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _iter_callers(model: Model, node: str) -> Iterator[str]:
    """The nodes that own what a node stands in, wherever it runs."""
    for place in model.where(node):
        owner = model.owners[place]
        while owner:
            yield model.places[owner].node.id
            owner = model.owners[owner]


def inline(edit: Edit, patterns: Sequence[str]) -> None:
    """Write out the nodes of the main graph and of bodies that patterns mean, and those that come to light so.

    A new node is called after the one that it is of, which is its origin; a node of a local function is its own.
    """
    fresh: set[str] = set()
    count = 1
    while count:
        # From here on the model is the graph under edit, and no longer the source.
        edit.sort_and_reindex()
        model, count = edit.model, 0
        for inner, node in list(_iter_nodes(model)):
            if any(matches(p, node) for p in patterns) and (function := _read_function(model.ir, inner)):
                origin = node.origin if node.id in fresh else node.id
                is_local = inner.op_identifier() in model.ir.functions
                fresh.update(_write_out(edit, inner, function, "" if is_local else origin))
                count += 1
        _drop_unused_functions(model.ir)
        # Functions within these may depend on types.
        edit.infer()


def _iter_nodes(model: Model) -> Iterator[tuple[ir.Node, Node]]:
    """The nodes of the main graph and its bodies; those of a function are written out by their calls."""
    for (inner, owners), node in zip(walk(model.ir), model.nodes, strict=True):
        if not owners or not isinstance(owners[0], str):
            yield inner, node


def _read_function(model: ir.Model, node: ir.Node) -> ir.Function | None:
    """A copy of the function that defines a node's operator in the model's opset; None where there is none.

    The checker refuses local functions of an opset in which an operator means something else.
    """
    if (local := model.functions.get(node.op_identifier())) is not None:
        proto = ir.serde.serialize_function(local)
    else:
        proto = _read_standard(node, model.graph.opset_imports)
    if not proto.node:
        return None
    # A function of the standard has all outputs, also those that are not computed for this node.
    computed = {*proto.input, *(v for n in proto.node for v in n.output)}
    outputs = [v if v in computed else proto.output[0] for v in proto.output[: len(node.outputs)]]
    del proto.output[:]
    proto.output.extend(outputs)
    return ir.serde.deserialize_function(proto)


def _read_standard(node: ir.Node, opsets: Mapping[str, int]) -> onnx.FunctionProto:
    """The function of the standard, with the defaults of its attributes; one without nodes where there is none."""
    version = opsets.get("" if node.domain in ONNX_DOMAINS else node.domain, 0)
    function = onnx.FunctionProto()
    schema = _get_schema(node.op_type, version, node.domain)
    if schema is None:
        return function
    if any(v <= version for v in schema.function_opset_versions):
        function.ParseFromString(schema.get_function_with_opset_version(version))
    elif versions := [v for v in schema.context_dependent_function_opset_versions if v <= version]:
        types = [_serialize_type(v) for v in node.inputs]
        content = ir.serde.serialize_node(node).SerializeToString()
        # Empty where it depends on types that are not inferred.
        function.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(max(versions), content, types)
        )
    defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    required = [n for n in function.attribute if n not in defaults]
    function.attribute_proto.extend(defaults[n] for n in function.attribute if n in defaults)
    del function.attribute[:]
    function.attribute.extend(required)
    return function


def _get_schema(op: str, version: int, domain: str) -> Any:
    """The schema of an operator, None where there is none; the types that onnx ships lack its functions."""
    try:
        return onnx.defs.get_schema(op, version, "" if domain in ONNX_DOMAINS else domain)
    except onnx.defs.SchemaError:
        return None


def _serialize_type(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return b""
    kind = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(kind, value.shape)
    return bytes(kind.SerializeToString())


def _write_out(edit: Edit, node: ir.Node, function: ir.Function, origin: str) -> list[str]:
    """Put the nodes of a function into a node's place; returns their names.

    Their origin is ``origin``, or each of their own, by the name that it has in the function, where that is empty.
    """
    graph, name = node.graph, node.name or ""
    assert isinstance(graph, ir.Graph)  # noqa: S101 - it stands in the main graph or in a body
    _resolve_attributes(function, node)
    nodes, results = _bind(function, node)
    names: list[str] = []
    for new in _iter_all(nodes):
        new.metadata_props[ORIGIN] = origin or new.name or name
        new.name = edit.make_node_name(f"{name}/{new.name or new.op_type}")
        names.append(new.name)
        for value in (*new.outputs, *(v for b in bodies(new) for v in b.as_graph().inputs)):
            value.name = edit.make_value_name(f"{name}/{value.name or new.op_type}")
    graph.insert_before(node, nodes)
    for old, result in zip(node.outputs, results, strict=False):
        if old.name:
            graph.outputs[:] = [result if end is old else end for end in graph.outputs]
            old.replace_all_uses_with(result)
            result.type, result.shape, result.name, old.name = old.type, old.shape, old.name, None
    graph.remove(node, safe=True)
    for new in reversed(nodes):
        # What an output that the node does not have was computed from.
        if not any(v.uses() or v in graph.outputs for v in new.outputs):
            graph.remove(new, safe=True)
    return names


def _bind(function: ir.Function, node: ir.Node) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes of a function, taken out of it, that read what a node reads; and its results."""
    nodes, results = list(function), list(function.outputs)
    function.outputs.clear()
    function.remove(nodes)
    for i, result in enumerate(results):
        if result.producer() is None or any(result is r for r in results[:i]):
            # An input that the function returns as it is, or a value that it returns twice.
            nodes.append(ir.Node("", "Identity", [result]))
            results[i] = nodes[-1].outputs[0]
    missing = [None] * (len(function.inputs) - len(node.inputs))
    for formal, value in zip(function.inputs, (*node.inputs, *missing), strict=True):
        for user, position in tuple(formal.uses()):
            user.replace_input_with(position, value)
    return nodes, results


def _iter_all(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Nodes and those of their bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _iter_all(body.as_graph())


def _resolve_attributes(function: ir.Function, node: ir.Node) -> None:
    """Give the nodes of a function the attributes of a call, or their defaults."""
    for inner in _iter_all(function):
        for name, attribute in list(inner.attributes.items()):
            if attribute.is_ref():
                value = node.attributes.get(attribute.ref_attr_name or "")
                value = value or function.attributes.get(attribute.ref_attr_name or "")
                del inner.attributes[name]
                if value is not None and value.value is not None:
                    inner.attributes[name] = ir.Attr(name, value.type, value.value)


def _drop_unused_functions(model: ir.Model) -> None:
    """Remove the local functions that nothing calls any more."""
    calls = {n.op_identifier() for n, _ in walk(model)}
    while unused := model.functions.keys() - calls:
        for key in unused:
            del model.functions[key]
        calls = {n.op_identifier() for n, _ in walk(model)}
