"""Editing a copy of a model's graph in onnx-ir's form; tensors are shared, and every node keeps its origin."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.check import infer_types
from rtlab.core.external_data import LARGE, copy_graph, read_small_constants, strip_weights
from rtlab.core.model import Model, of, wrap
from rtlab.core.node import ORIGIN, bodies, walk
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
            f"{message_prefix} refuses it. Export the model at opset {opset} or later.", details=str(error)
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


#: First IR version in which an initializer need not be a graph input as well.
_MIN_IR = 8


class Edit:
    """A copy of a model under edit.

    ``nodes`` and ``values`` are those of the main graph by name. New nodes name the source node that they serve, their
    origin. With ``keep_origins`` an earlier edit made the model, whose nodes keep their origin; without, each node is
    its own. With ``source`` the result is a source again: inputs with defaults stay, and old nodes get no origin.
    """

    def __init__(self, model: Model, *, keep_origins: bool = False, source: bool = False) -> None:
        self._model, self._source = model, source
        work = read_small_constants(model.ir)
        self._load_graph(copy_graph(work) if work is model.ir else work)
        self._view: Model | None = model
        if source:
            return
        same = not self._dropped
        for node in self.nodes.values():
            origin = node.metadata_props.get(ORIGIN, node.name)
            node.metadata_props[ORIGIN] = (origin if keep_origins else node.name) or ""
            same &= keep_origins or origin == node.name
        self._work.ir_version = max(self._work.ir_version, _MIN_IR)
        if not same:
            self._view = None

    def _load_graph(self, work: ir.Model) -> None:
        self._work, graph = work, work.graph
        input_names = {v.name for v in graph.inputs}
        self._dropped = bool(input_names & graph.initializers.keys()) and not self._source
        if self._dropped:
            graph.inputs[:] = [v for v in graph.inputs if v.name not in graph.initializers]
        self.nodes: dict[str, ir.Node] = {n.name or "": n for n in graph}
        self.values: dict[str, ir.Value] = {v.name or "": v for v in graph.inputs}
        self.values.update(graph.initializers)
        self.values.update((v.name, v) for n in graph for v in n.outputs if v.name)
        inner = [n for n, owners in walk(work) if owners]
        self._bodies = [b.as_graph() for n in (*graph, *inner) for b in bodies(n)]
        self._used = {*self.nodes, *(n.name or "" for n in inner)}
        self._names = {*self.values, *(v.name or "" for n in inner for v in n.outputs)}
        self._names |= {v.name or "" for b in self._bodies for v in (*b.inputs, *b.initializers.values())}
        #: The last of the nodes that were put behind another one.
        self._last_inserted_after: dict[ir.Node, ir.Node] = {}

    @property
    def graph(self) -> ir.Graph:
        """The main graph itself, to change by onnx-ir's own methods; call ``sort_and_reindex`` afterwards."""
        self._view = None
        return self._work.graph

    def sort_and_reindex(self) -> None:
        """Sort the nodes where one comes before what it reads, and index nodes and values anew."""
        visited: set[ir.Node] = set()
        for node in self._work.graph:
            makers = (v.producer() for v in node.inputs if v is not None)
            if any(m is not None and m.graph is self._work.graph and m not in visited for m in makers):
                self._work.graph.sort()
                break
            visited.add(node)
        self._load_graph(self._work)
        self._view = None

    @property
    def model(self) -> Model:
        """The graph as it is now; after the next change it is another model."""
        if self._view is None:
            graph = self._work.graph
            ends = {id(v) for g in (graph, *self._bodies) for v in g.outputs}
            for name, value in list(graph.initializers.items()):
                if not value.uses() and id(value) not in ends:
                    del graph.initializers[name]
            self._view = of(self._work, name=self._model.name, shapes=self._model.shapes)
            # Read now: once the graph has changed, these would be the constants of the changed one.
            _ = self._view.known
        return self._view

    def raise_opset(self, opset: int, why: str) -> None:
        """Convert the graph to an opset if its own is lower; arguments and errors are those of ``convert_opset``."""
        if self.model.opset < opset:
            self._load_graph(convert_opset(of(self._work, name=self._model.name), opset, why).ir)
            for node in self.nodes.values():
                node.metadata_props.setdefault(ORIGIN, node.name or "")
            self._view = None

    def infer(self) -> None:
        """Let ONNX infer types and shapes where it can, from a proto without large weights."""
        light, _ = strip_weights(self._work)
        with contextlib.suppress(Exception):
            infer_types(self._work, light)
        self._view = None

    def get_origin(self, node: str) -> str:
        """Id of the source node that a node serves; of a source node, its own."""
        return self.nodes[node].metadata_props[ORIGIN]

    def add_constant(self, name: str, values: NDArray[Any] | ir.LazyTensor) -> ir.Value:
        """A new initializer with a name made unique; a scalar stays one."""
        unique = self.make_value_name(name)
        if isinstance(values, ir.LazyTensor):
            tensor: ir.Tensor[Any] | ir.LazyTensor = values
            tensor.name = unique
        else:
            array = np.asarray(values, order="C")
            kind = ir.DataType.from_numpy(array.dtype)
            tensor = ir.Tensor(array, dtype=kind, shape=ir.Shape(array.shape), name=unique)
        value = self._make_value(unique, ir.TensorType(tensor.dtype), tensor.shape)
        value.const_value = tensor
        self._work.graph.register_initializer(value)
        self._view = None
        return value

    def make_node_name(self, name: str) -> str:
        """A unique name for a new node."""
        return make_unique_name(name, self._used)

    def make_value_name(self, name: str) -> str:
        """A unique name for a new value."""
        return make_unique_name(name, self._names)

    def set_input(self, node: str, position: int, value: ir.Value) -> None:
        """Let an input of a node read this value; one that the node left out is added."""
        if position >= len(self.nodes[node].inputs):
            self.nodes[node].resize_inputs(position + 1)
        self.nodes[node].replace_input_with(position, value)
        self._view = None

    def retype(self, value: str, kind: ir.DataType) -> None:
        """Say that a value has another element type now."""
        self.values[value].type = ir.TensorType(kind)
        self._view = None

    def set_attribute(self, node: str, name: str, value: Any) -> None:
        """Change an attribute of a node, or give it one."""
        self.nodes[node].attributes[name] = ir.convenience.convert_attribute(name, value)
        self._view = None

    def split(self, value: str, name: str) -> tuple[ir.Value, ir.Value]:
        """A value under a new name, and another one with its old name, readers and place among the outputs.

        The caller inserts the node that writes the second.
        """
        inner = self.values[value]
        outer = self._make_value(value, inner.type, inner.shape)
        for graph in (self._work.graph, *self._bodies):
            for i, end in enumerate(graph.outputs):
                if end is inner:
                    graph.outputs[i] = outer
        inner.replace_all_uses_with(outer)
        inner.name = self.make_value_name(name)
        self.values[inner.name] = inner
        self._view = None
        return inner, outer

    def insert(
        self,
        op: str,
        name: str,
        inputs: Sequence[ir.Value],
        *,
        origin: str,
        like: ir.Value | None = None,
        kind: ir.DataType | None = None,
        before: str = "",
        after: str = "",
        output: ir.Value | None = None,
        attrs: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Add a node with one output, before or after the node of an id, and return that output.

        Its name is made unique. The output has the shape of ``like``, by default the first input, and its type unless
        ``kind`` is another; or it is ``output``. ``origin`` is the id of the source node that it serves; of another
        ``domain`` than ONNX's the graph imports the first version.
        """
        unique = self.make_node_name(name)
        like = inputs[0] if like is None else like
        output_type = like.type if kind is None else ir.TensorType(kind)
        if output is None:
            output = self._make_value(self.make_value_name(f"{unique}/output"), output_type, like.shape)
        attributes = ir.convenience.convert_attributes(dict(attrs or {}))
        node = ir.Node(domain, op, inputs, attributes, outputs=[output], name=unique)
        if domain:
            self._work.graph.opset_imports.setdefault(domain, 1)
        node.metadata_props[ORIGIN] = origin
        anchor = self.nodes[after or before]
        if after:
            self._work.graph.insert_after(self._last_inserted_after.get(anchor, anchor), node)
            self._last_inserted_after[anchor] = node
        else:
            self._work.graph.insert_before(anchor, node)
        self.nodes[unique] = node
        self._view = None
        return output

    def add_output(self, value: ir.Value, kind: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        """One more output of the node that writes a value."""
        node = value.producer()
        assert node is not None  # noqa: S101 - the caller has inserted it
        node.resize_outputs(len(node.outputs) + 1)
        output = node.outputs[-1]
        output.name = self.make_value_name(f"{value.name}{len(node.outputs) - 1}")
        output.type, output.shape = ir.TensorType(kind), shape
        self.values[output.name] = output
        self._view = None
        return output

    def substitute(self, value: ir.Value, node: ir.Node) -> None:
        """Let a value replace a node's first output, under its name, and remove the node."""
        graph, old = self.graph, node.outputs[0]
        name = old.name
        for i, end in enumerate(graph.outputs):
            if end is old:
                graph.outputs[i] = value
        old.replace_all_uses_with(value)
        graph.remove(node, safe=True)
        value.type, value.shape, old.name, value.name = old.type, old.shape, None, name
        self.sort_and_reindex()

    def _make_value(self, name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> ir.Value:
        value = ir.Value(name=name, type=kind, shape=None if shape is None else shape.copy())
        self.values[name] = value
        return value
