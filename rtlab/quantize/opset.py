"""Raising a model's opset with ONNX's own converter, which works on protos; nodes and values keep their names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import onnx

from rtlab.core.external_data import LARGE
from rtlab.core.model import wrap
from rtlab.core.node import ORIGIN
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model


#: Longest name that a new one repeats.
_LONGEST = 190


def convert_opset(model: Model, opset: int, why: str) -> Model:
    """The model at a higher opset; a node that the converter adds names the one that it helps as its origin.

    Raises:
        VariantError: the converter refuses the model, or loses a node; ``why`` says what the opset is needed for.
    """
    before, detached_weights = model.outline()
    light, weights = _move_weights_to_inputs(before)
    uses = f"it uses opset {model.opset}, and the ONNX converter to opset {opset}"
    message_prefix = f'Cannot prepare model "{model.name}" {why}: {uses}'
    try:
        after = onnx.version_converter.convert_version(light, opset)
        # The converter loses local functions; the checker refuses those that do not fit the new opset.
        if not after.functions:
            after.functions.extend(before.functions)
        _restore_value_names(before, after)
        onnx.checker.check_model(after, full_check=True)
    except Exception as error:
        raise VariantError(
            f"{message_prefix} refuses it. Export the model at opset {opset} or later.",
            details=str(error),
        ) from error
    # The converter leaves it, but later opsets bring types that earlier IR versions do not have.
    min_ir_version = onnx.helper.find_min_ir_version_for(list(after.opset_import), ignore_unknown=True)
    after.ir_version = max(after.ir_version, min_ir_version)
    _replace_entries(after.graph.input, [v for v in after.graph.input if v.name not in weights])
    after.graph.initializer.extend(weights.values())
    # What it infers of outputs may have other symbols.
    _replace_entries(after.graph.output, before.graph.output)
    missing_node = _restore_node_names(before, after)
    if missing_node is not None:
        raise VariantError(
            f'{message_prefix} loses node "{missing_node}". Export the model at opset {opset} or later.'
        )
    return wrap(after, name=model.name, shapes=model.shapes, weights=detached_weights)


def _restore_node_names(before: onnx.ModelProto, after: onnx.ModelProto) -> str | None:
    """Give the nodes of the converted model their ids, and new ones an origin; return an old node that is gone."""
    old_nodes = [n for graph in _iter_graphs(before.graph) for n in graph.node]
    properties = {n.name: n.metadata_props for n in old_nodes}
    producer_names = {out: n.name for n in old_nodes for out in n.output}
    present = {n.name for graph in _iter_graphs(after.graph) for n in graph.node}
    origins: dict[str, str] = {}
    for graph in _iter_graphs(after.graph):
        owner = {out: n.name for n in graph.node for out in n.output if n.name in properties}
        # From the end, so that a helper finds the node that it helps.
        for node in reversed(graph.node):
            # The converter may put a new operator in the place of an old one, without its name.
            names = (producer_names.get(v, node.name) for v in node.output)
            origin = next((n for n in names if n not in present), node.name)
            if origin in properties and origin not in origins:
                node.name = origin
                _replace_entries(node.metadata_props, list(properties[origin]))
            else:
                origin = next((owner[v] for v in (*node.output, *node.input) if v in owner), "")
                node.name = make_unique_name(f"{origin}/{node.op_type}", {*origins, *properties})
                if origin:
                    node.metadata_props.add(key=ORIGIN, value=origin)
            origins[node.name] = origin or node.name
            for name in node.input:
                owner.setdefault(name, origins[node.name])
    return next((n for n in properties if n not in origins), None)


def make_unique_name(name: str, used: set[str]) -> str:
    """The name, shortened where it is long and numbered where it is in ``used``; it is added to these."""
    start, tail = (name, "") if len(name) <= _LONGEST else (name[:_LONGEST], "~")
    unique, count = start + tail, 1
    while unique in used:
        count += 1
        unique = f"{start}~{count}"
    used.add(unique)
    return unique


def _iter_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and every body in it, at any depth."""
    stack = [graph]
    while stack:
        body = stack.pop()
        yield body
        for attribute in (a for node in body.node for a in node.attribute):
            stack += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def _move_weights_to_inputs(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, Mapping[str, onnx.TensorProto]]:
    """A copy whose large initializers are inputs, and these: the converter and the checker copy a model often."""
    interface = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    large = {
        t.name: t for t in proto.graph.initializer if math.prod(t.dims) > LARGE and t.name not in interface
    }
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    _replace_entries(light.graph.initializer, [t for t in light.graph.initializer if t.name not in large])
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large.values()
    )
    return light, large


def _restore_value_names(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Give values of new operators the names that their readers had for them."""
    readers = {n.name: n for graph in _iter_graphs(before.graph) for n in graph.node}
    old_outputs = {out for n in readers.values() for out in n.output}
    nodes = [n for graph in _iter_graphs(after.graph) for n in graph.node]
    new_outputs = {out for n in nodes for out in n.output}
    new_names: dict[str, str] = {}
    for node in nodes:
        old_node = readers.get(node.name)
        pairs = zip(old_node.input, node.input, strict=False) if old_node is not None else ()
        new_names.update(
            (new, old)
            for old, new in pairs
            if old in old_outputs - new_outputs and new in new_outputs - old_outputs
        )
    for node in nodes:
        _replace_entries(node.input, [new_names.get(name, name) for name in node.input])
        _replace_entries(node.output, [new_names.get(name, name) for name in node.output])
    for graph in _iter_graphs(after.graph):
        for value in (*graph.output, *graph.value_info):
            value.name = new_names.get(value.name, value.name)


def _replace_entries(field: Any, items: Iterable[Any]) -> None:
    entries = list(items)
    del field[:]
    field.extend(entries)
