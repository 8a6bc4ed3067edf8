"""Editing a model's graph with ONNX GraphSurgeon while every node keeps its way back to its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.model import Model, wrap
from rtlab.core.node import ORIGIN
from rtlab.core.outline import LARGE, stub
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Longest start of an id that a new node's name repeats.
_LONGEST = 140
#: First IR version in which an initializer need not be a graph input as well.
_MIN_IR = 8
_BYTE = 8


class Edit:
    """A copy of a model under edit.

    Nodes and tensors are GraphSurgeon's. New nodes name the source node that they serve and are placed before
    or after an existing one, so the order stays topological without sorting. Bodies and functions are carried
    over byte for byte, and large weights are those of the model, not copies. ``opset`` is raised to if it is lower,
    ``why`` says what for; ``later`` means that an earlier edit made the model, whose inserted nodes keep their origin.
    """

    def __init__(self, model: Model, *, opset: int = 0, why: str = "", later: bool = False) -> None:
        import onnx_graphsurgeon as gs

        self._gs = gs
        self._model = model
        self._source, held = model.outline()
        #: The numbers of large weights by name; the protos have their types and shapes.
        self._weights = dict(held)
        # Without ``later`` the model is a source, even if it is a prepared model that was loaded again.
        self._origins = {node.name: node.name for node in self._source.graph.node}
        if later:
            self._origins.update((n.id, n.origin) for n in model.top)
        if model.opset < opset:
            self._convert(opset, why)
        self._properties = {
            node.name: [(p.key, p.value) for p in node.metadata_props] for node in self._source.graph.node
        }
        with gs.logger.G_LOGGER.suppress():
            self.graph = gs.import_onnx(self._source)
            # It warns of each constant whose type NumPy alone does not have.
            self.tensors: dict[str, Any] = self.graph.tensors()
        self.graph.ir_version = max(self._source.ir_version, _MIN_IR)
        self.nodes: Mapping[str, Any] = {n.name: n for n in self.graph.nodes}
        self._used = {n.id for n in model.nodes} | set(self.nodes)
        self._names = set(model.values) | set(self.tensors)
        self._changed: set[str] = set()
        self._before: dict[str, list[Any]] = {}
        self._after: dict[str, list[Any]] = {}

    def constant(self, name: str, values: NDArray[Any]) -> Any:
        """A new initializer with a name made unique; a scalar stays one."""
        unique = self._fresh(name, self._names)
        array = np.asarray(values, order="C")
        kind = ir.DataType.from_numpy(array.dtype)
        if array.size > LARGE and kind.bitwidth >= _BYTE:
            self._weights[unique] = held = ir.Tensor(array, dtype=kind, name=unique)
            tensor = stub(held, unique).raw
        else:
            # As a tensor of ONNX, because GraphSurgeon cannot pack types smaller than a byte.
            tensor = onnx.numpy_helper.from_array(array, unique)
        with self._gs.logger.G_LOGGER.suppress():
            return self._gs.Constant(unique, self._gs.ir.tensor.LazyValues(tensor))

    def variable(self, name: str) -> Any:
        """A new value with a name made unique."""
        return self._gs.Variable(self._fresh(name, self._names))

    def set_attribute(self, node: Any, name: str, value: object) -> None:
        """Change an attribute; those of all other nodes are carried over byte for byte."""
        node.attrs[name] = value
        self._changed.add(node.name)

    def insert(
        self,
        op: str,
        name: str,
        inputs: list[Any],
        *,
        origin: str,
        before: str = "",
        after: str = "",
        output: Any = None,
        attrs: Mapping[str, object] | None = None,
    ) -> Any:
        """Add a node with one output and return that output.

        Args:
            op: Operator.
            name: Readable name; made unique.
            inputs: Tensors.
            origin: Id of the source node that this one serves.
            before: Place it before the node of this id.
            after: Place it after the node of this id; one of the two is given.
            output: The tensor it writes; a new one by default.
            attrs: Attributes.
        """
        unique = self._fresh(name, self._used)
        out = output if output is not None else self.variable(f"{unique}/output")
        node = self._gs.Node(op, unique, dict(attrs or {}), inputs=inputs, outputs=[out])
        self._origins[unique] = origin
        places = self._after if after else self._before
        places.setdefault(after or before, []).append(node)
        return out

    def finish(self) -> Model:
        """Export the edited graph as a model of its own."""
        nodes: list[Any] = []
        for node in self.graph.nodes:
            nodes += [*self._before.get(node.name, []), node, *self._after.get(node.name, [])]
        self.graph.nodes = nodes
        # GraphSurgeon knows tensors only, and bodies need not pass through it: both are restored afterwards.
        self.graph.functions = []
        for node in nodes:
            for name in [k for k, v in node.attrs.items() if isinstance(v, self._gs.Graph)]:
                del node.attrs[name]
        gs = self._gs
        with gs.logger.G_LOGGER.suppress():
            for tensor in self.graph.tensors().values():
                if getattr(tensor, "type", "tensor_type") != "tensor_type":
                    tensor.dtype = tensor.shape = None
                    tensor.type = "tensor_type"
            proto = gs.export_onnx(self.graph, do_type_check=False)
        # GraphSurgeon before 0.6 writes the newest one, which ONNX Runtime may not know.
        proto.ir_version = self.graph.ir_version
        self._restore(proto)
        return wrap(proto, name=self._model.name, shapes=self._model.shapes, weights=self._weights)

    def _restore(self, proto: onnx.ModelProto) -> None:
        """Put back what GraphSurgeon does not carry, and write each node's origin."""
        source = self._source
        old = {node.name: node for node in source.graph.node}
        for node in proto.graph.node:
            was = old.get(node.name)
            if was is not None:
                node.overload, node.doc_string = was.overload, was.doc_string
                if node.name not in self._changed:
                    _replace(node.attribute, was.attribute)
            properties = dict(self._properties.get(node.name, []))
            properties[ORIGIN] = self._origins[node.name]
            entries = [onnx.StringStringEntryProto(key=k, value=v) for k, v in properties.items()]
            _replace(node.metadata_props, entries)
        _replace(proto.functions, source.functions)
        # A body reads an outer constant by name; GraphSurgeon sees it only where a main-graph node reads it too.
        have = {t.name for t in proto.graph.initializer}
        made = {out for node in proto.graph.node for out in node.output}
        read = set(_read_in_bodies(proto.graph))
        proto.graph.initializer.extend(
            t for t in source.graph.initializer if t.name in read and t.name not in have | made
        )
        # Inputs and outputs never change, whatever their type.
        names = {t.name for t in source.graph.initializer}
        _replace(proto.graph.input, [v for v in source.graph.input if v.name not in names])
        _replace(proto.graph.output, source.graph.output)
        proto.graph.value_info.extend(
            v for v in source.graph.value_info if not v.type.HasField("tensor_type")
        )
        _replace(proto.metadata_props, source.metadata_props)
        _replace(proto.opset_import, source.opset_import)
        proto.domain, proto.doc_string = source.domain, source.doc_string

    def _convert(self, opset: int, why: str) -> None:
        """Raise the opset; nodes and values keep their names, and a node the converter adds takes an owner's id."""
        before = self._source
        light, weights = _without_weights(before)
        try:
            after = onnx.version_converter.convert_version(light, opset)
            # The converter loses local functions; whether they fit the new opset, the checker tells.
            if not after.functions:
                after.functions.extend(before.functions)
            _rename_back(before, after)
            onnx.checker.check_model(after, full_check=True)
        except Exception as error:
            raise VariantError(
                f'Cannot prepare model "{self._model.name}" {why}: it uses opset {self._model.opset}, and the ONNX '
                f"converter to opset {opset} refuses it. Export the model at opset {opset} or later.",
                details=str(error),
            ) from error
        # The converter leaves it, but later opsets bring types that earlier IR versions do not have.
        least = onnx.helper.find_min_ir_version_for(list(after.opset_import), ignore_unknown=True)
        after.ir_version = max(after.ir_version, least)
        _replace(after.graph.input, [v for v in after.graph.input if v.name not in weights])
        after.graph.initializer.extend(weights.values())
        properties = {n.name: n.metadata_props for graph in _graphs(before.graph) for n in graph.node}
        written = {out: n.name for graph in _graphs(before.graph) for n in graph.node for out in n.output}
        present = {n.name for graph in _graphs(after.graph) for n in graph.node}
        seen: set[str] = set()
        for graph in _graphs(after.graph):
            owner = {out: n.name for n in graph.node for out in n.output if n.name in properties}
            # From the end, so that a helper finds the node that it helps.
            for node in reversed(graph.node):
                # The converter may put a new operator in the place of an old one, without its name.
                replaced = next(
                    (written[v] for v in node.output if written.get(v, node.name) not in present), ""
                )
                origin = replaced or node.name
                if origin in properties and origin not in seen:
                    node.name = origin
                    del node.metadata_props[:]
                    node.metadata_props.extend(properties[origin])
                else:
                    origin = next((owner[v] for v in (*node.output, *node.input) if v in owner), "")
                    node.name = self._fresh(f"{origin}/{node.op_type}", seen | set(properties))
                    if origin:
                        node.metadata_props.add(key=ORIGIN, value=origin)
                seen.add(node.name)
                self._origins[node.name] = origin or node.name
                for name in node.input:
                    owner.setdefault(name, self._origins[node.name])
        lost = next((n for n in properties if n not in seen), None)
        if lost is not None:
            raise VariantError(
                f'Cannot prepare model "{self._model.name}" {why}: it uses opset {self._model.opset}, and the ONNX '
                f'converter to opset {opset} loses node "{lost}". Export the model at opset {opset} or later.'
            )
        self._source = after

    @staticmethod
    def _fresh(name: str, used: set[str]) -> str:
        start, tail = (name, "") if len(name) <= _LONGEST + 50 else (name[:_LONGEST], "~")
        unique, count = start + tail, 1
        while unique in used:
            count += 1
            unique = f"{start}~{count}"
        used.add(unique)
        return unique


_GRAPHS = {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS}


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and every body in it, at any depth."""
    stack = [graph]
    while stack:
        body = stack.pop()
        yield body
        stack += [
            g
            for node in body.node
            for attribute in node.attribute
            if attribute.type in _GRAPHS
            for g in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ()))
        ]


def _without_weights(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, Mapping[str, onnx.TensorProto]]:
    """A copy whose large initializers are inputs, and these: the converter and the checker copy a model often."""
    listed = {v.name for v in proto.graph.input} | {v.name for v in proto.graph.output}
    large = {t.name: t for t in proto.graph.initializer if math.prod(t.dims) > LARGE and t.name not in listed}
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    _replace(light.graph.initializer, [t for t in light.graph.initializer if t.name not in large])
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large.values()
    )
    return light, large


def _rename_back(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Give values that the converter wrote anew, with a new operator, the names that their readers knew them by."""
    known = {out for graph in _graphs(before.graph) for n in graph.node for out in n.output}
    nodes = [n for graph in _graphs(after.graph) for n in graph.node]
    made = {out for n in nodes for out in n.output}
    readers = {n.name: n for graph in _graphs(before.graph) for n in graph.node}
    renamed: dict[str, str] = {}
    for node in nodes:
        was = readers.get(node.name)
        pairs = zip(was.input, node.input, strict=False) if was is not None else ()
        renamed.update((new, old) for old, new in pairs if old in known - made and new in made - known)
    for node in nodes:
        _replace(node.input, [renamed.get(name, name) for name in node.input])
        _replace(node.output, [renamed.get(name, name) for name in node.output])
    for graph in _graphs(after.graph):
        for value in (*graph.output, *graph.value_info):
            value.name = renamed.get(value.name, value.name)


def _read_in_bodies(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name that a body reads or hands out, at any depth."""
    for body in _graphs(graph):
        if body is not graph:
            yield from (name for node in body.node for name in node.input)
            yield from (out.name for out in body.output)


def _replace(field: Any, items: Iterable[Any]) -> None:
    kept = list(items)
    del field[:]
    field.extend(kept)
