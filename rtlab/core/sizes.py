"""The shape of every value of a model at given shapes of its inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core import trt_operators
from rtlab.core.external_data import DetachedWeight
from rtlab.core.node import ONNX_DOMAINS, bodies
from rtlab.core.value import dtype_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.node_instances import Subgraph

#: A whole shape.
Shape: TypeAlias = tuple[int, ...]
#: With None for a dimension that is not known.
Dims: TypeAlias = "tuple[int | None, ...] | None"


class Kind(NamedTuple):
    """The known part of a value's type; ``other`` is a serialized ``TypeProto`` of a sequence, an optional or a map."""

    dtype: int
    dims: Dims
    other: bytes = b""


UNKNOWN = Kind(0, None)
#: Of the number of a turn, and of the condition of a Loop.
_COUNT, _FLAG = Kind(onnx.TensorProto.INT64, ()), Kind(onnx.TensorProto.BOOL, ())
#: Elements of values that are computed, since shapes may follow from them, and of those that ONNX's inference reads.
_COMPUTED, _INFERENCE_LIMIT = 1 << 14, 64
#: Inputs of recurrent nodes with initial states: directions, batch, width.
_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
#: Operators that move a window over their input.
_WINDOWS = {"Conv", "ConvInteger", "AveragePool", "MaxPool", "LpPool"}
#: Operators whose inputs have one size in each dimension, or 1.
_BROADCASTING = {
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Sum", "Mean", "Max", "Min", "Where", "And", "Or", "Xor"),
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
}
#: Values of these differ from run to run.
_RANDOM_OPS = {"Bernoulli", "Multinomial", "Dropout"} | {
    f"Random{kind}{like}" for kind in ("Normal", "Uniform") for like in ("", "Like")
}


class Sizes:
    """Shapes of the values of a model at ``inputs``, the shapes of its inputs, with None where unknown.

    ONNX infers outputs of nodes from shapes and small constants of inputs; shape arithmetic is computed. Bodies are
    followed, and functions once per call. ``learn`` adds shapes of a run. ``scopes`` are those of ``Model.scopes``.
    """

    def __init__(self, model: ir.Model, scopes: Sequence[Subgraph], inputs: Mapping[str, Dims]) -> None:
        self.inputs = inputs
        self._scopes = scopes
        self._table = _Evaluation(model, scopes, inputs).kinds
        graph = model.graph
        node_outputs = (o for n in graph for o in n.outputs)
        values = (*graph.inputs, *graph.initializers.values(), *node_outputs)
        self._names = {v.name: (0, id(v)) for v in values if v.name}
        #: Number of calls of ``learn``.
        self.learned = 0

    def of(self, value: ir.Value, space: int = 0) -> Shape | None:
        """The shape of a value; ``space`` is that of the scope where it stands (``Model.scopes``)."""
        return to_static_shape(self._table.get((space, id(value)), UNKNOWN).dims)

    def dtype(self, value: ir.Value, space: int = 0) -> str:
        """The type of a value, in rtlab's names; empty where it is not known, or no tensor."""
        return dtype_text(ir.DataType(self._table.get((space, id(value)), UNKNOWN).dtype))

    def get(self, name: str) -> Shape | None:
        """The shape of a value of the main graph; None where it is not known, or there is none."""
        key = self._names.get(name)
        return None if key is None else to_static_shape(self._table.get(key, UNKNOWN).dims)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Tensors that nodes of the main graph write, and whose shape is not known."""
        return tuple(
            v.name
            for n in self._scopes[0].nodes
            for v in n.outputs
            if v.name and self.get(v.name) is None and not self._table.get((0, id(v)), UNKNOWN).other
        )

    @property
    def misfits(self) -> int:
        """Number of nodes, in bodies too, whose outputs have no known shape or no element, or whose input does not fit.

        It is higher at input sizes that the model does not accept.
        """
        nodes = ((node, s.space) for s in self._scopes for node in s.nodes if node.op_type != "Constant")
        return sum(
            not all(self._has_size(v, space) for v in node.outputs if v.name)
            or self._is_narrow(node, space)
            or self._changes_count(node, space)
            for node, space in nodes
        )

    def list_conflicts(self) -> set[tuple[int, int]]:
        """Pairs of sizes, each the smaller first, of which a node needs one size, so that its outputs have none."""
        conflicts: set[tuple[int, int]] = set()
        for scope in self._scopes:
            for node in scope.nodes:
                shapes = [self.of(v, scope.space) for v in node.inputs if v is not None]
                full = [shape for shape in shapes if shape is not None]
                if len(full) < len(shapes) or all(self._has_size(v, scope.space) for v in node.outputs):
                    continue
                for sizes in _list_joined(node, full):
                    different = sorted({size for size in sizes if size > 1})
                    if len(different) == 2:
                        conflicts.add((different[0], different[1]))
        return conflicts

    def _has_size(self, value: ir.Value, space: int) -> bool:
        kind = self._table.get((space, id(value)), UNKNOWN)
        shape = to_static_shape(kind.dims)
        return bool(kind.other) or (shape is not None and 0 not in shape)

    def _changes_count(self, node: ir.Node, space: int) -> bool:
        """Whether a Reshape would write more or fewer elements than it reads; ONNX infers what its constant says."""
        if node.domain not in ONNX_DOMAINS or node.op_type != "Reshape" or node.inputs[0] is None:
            return False
        read, written = self.of(node.inputs[0], space), self.of(node.outputs[0], space)
        return read is not None and written is not None and math.prod(read) != math.prod(written)

    def _is_narrow(self, node: ir.Node, space: int) -> bool:
        """Whether the window of a convolution or a pool is wider than its input; ONNX infers a size all the same."""
        if node.domain not in ONNX_DOMAINS or node.op_type not in _WINDOWS or not node.inputs[0]:
            return False
        read = self.of(node.inputs[0], space)
        if any(a.is_ref() for a in node.attributes.values()):
            return False
        weight = next((self.of(v, space) for v in node.inputs[1:2] if v is not None), None)
        window = tuple(node.attributes.get_ints("kernel_shape", (weight or ())[2:]))
        padded = node.attributes.get_string("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}
        if read is None or len(read) != len(window) + 2 or padded:
            return False
        rank = len(window)
        pads = node.attributes.get_ints("pads", (0,) * 2 * rank)
        steps = node.attributes.get_ints("dilations", (1,) * rank)
        return any(
            size + pads[i] + pads[i + rank] < (window[i] - 1) * steps[i] + 1
            for i, size in enumerate(read[2:])
        )

    def learn(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Add shapes of main-graph values from a run; known ones stay."""
        for name, shape in shapes.items():
            if name in self._names and self.get(name) is None:
                key = self._names[name]
                self._table[key] = self._table.get(key, UNKNOWN)._replace(dims=tuple(int(d) for d in shape))
        self.learned += 1


class _Evaluation:
    """One pass over a model; ``kinds`` are types and shapes by space and identity of the value."""

    def __init__(self, model: ir.Model, scopes: Sequence[Subgraph], inputs: Mapping[str, Dims]) -> None:
        self.kinds: dict[tuple[int, int], Kind] = {}
        self._values: dict[tuple[int, int], NDArray[Any]] = {}
        self._model = model
        self._inside = {(s.owner, id(s.graph)): s for s in scopes}
        #: Outputs of equal nodes with equal inputs.
        self._inferred: dict[tuple[Any, ...], list[Kind]] = {}
        self._computed: dict[tuple[Any, ...], list[Any]] = {}
        #: Loaded shapes of inner values are valid for the sizes in the file alone.
        self._fixed = all(
            isinstance(d, int) for v in model.graph.inputs if v.name in inputs for d in v.shape or (None,)
        )
        if self._fixed and len(scopes) == 1 and self._load_kinds(model.graph):
            return
        for value in model.graph.inputs:
            self.kinds[0, id(value)] = get_declared_kind(value)._replace(dims=inputs.get(value.name or ""))
        self._infer_scope(scopes[0], {})

    def _load_kinds(self, graph: ir.Graph) -> bool:
        """Take the loaded shapes, and return whether all are known, as in most models of fixed sizes."""
        values = [*graph.inputs, *(v for n in graph for v in n.outputs if v.name)]
        self.kinds = {(0, id(v)): get_declared_kind(v) for v in values}
        complete = all(is_complete(k) for k in self.kinds.values())
        for value in graph.initializers.values():
            if value.const_value is not None:
                tensor = value.const_value
                self.kinds[0, id(value)] = Kind(int(tensor.dtype), tuple(tensor.shape.numpy()))
        return complete

    def _infer_scope(self, scope: Subgraph, attributes: Mapping[str, ir.Attr]) -> None:
        """Every node of a scope whose inputs are known."""
        graph, space = scope.graph, scope.space
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                self._set_constant((space, id(value)), value.const_value)
        imports = dict(graph.opset_imports) or dict(self._model.graph.opset_imports)
        for node, place in zip(scope.nodes, scope.places, strict=True):
            version = imports.get(node.domain, 0) or imports.get("" if node.domain else "ai.onnx", 0)
            call = _Call(node, place.id, space, attributes, version)
            for value, kind in zip(node.outputs, self._infer_node(call), strict=False):
                self.kinds[space, id(value)] = kind

    def _infer_node(self, call: _Call) -> Sequence[Kind]:
        """The kinds of a node's outputs, as declared where nothing else is known."""
        node, space = call.node, call.space
        if node.op_identifier() in self._model.functions:
            return self._infer_function(call)
        if bodies(node):
            return self._infer_body_node(call)
        if call.plain and node.op_type == "Constant" and (tensor := _get_constant(call)) is not None:
            self._set_constant((space, id(node.outputs[0])), tensor)
            return [self.kinds[space, id(node.outputs[0])]]
        loaded = [get_declared_kind(v) for v in node.outputs]
        settled = self._fixed and space == 0 and all(is_complete(k) for k in loaded)
        kinds = loaded if settled else self._infer(call, loaded)
        self._compute(call, kinds)
        return kinds

    def _get_kind(self, value: ir.Value | None, space: int) -> Kind:
        if value is None:
            return UNKNOWN
        kind = self.kinds.get((space, id(value)))
        return get_declared_kind(value)._replace(dims=None) if kind is None else kind

    def _get_value(self, value: ir.Value | None, space: int) -> NDArray[Any] | None:
        return None if value is None else self._values.get((space, id(value)))

    def _set_constant(self, key: tuple[int, int], tensor: ir.TensorProtocol | None) -> None:
        if tensor is None:
            return
        dims = tuple(tensor.shape.numpy())
        self.kinds[key] = Kind(int(tensor.dtype), dims)
        # What a saved graph lacks decides about no size.
        is_number = tensor.dtype != ir.DataType.STRING and not isinstance(tensor, DetachedWeight)
        if math.prod(dims) <= _COMPUTED and is_number:
            # Its file may be missing.
            with contextlib.suppress(Exception):
                self._values[key] = np.asarray(tensor.numpy())

    def _infer(self, call: _Call, loaded: Sequence[Kind]) -> list[Kind]:
        """What ONNX infers of the outputs of one node."""
        node, space = call.node, call.space
        reads = [self._get_kind(v, space) for v in node.inputs]
        constants = {
            i: value
            for i, v in enumerate(node.inputs)
            if (value := self._get_value(v, space)) is not None and value.size <= _INFERENCE_LIMIT
        }
        proto = call.proto
        data = tuple((i, v.dtype.str, v.shape, v.tobytes()) for i, v in constants.items())
        key = (call.version, node.domain, proto.SerializeToString(), tuple(reads), data)
        if key not in self._inferred:
            self._inferred[key] = _infer_outputs(proto, call.version, reads, constants)
        kinds = self._inferred[key] or [UNKNOWN] * len(loaded)
        return [
            m if m.dtype or m.other else Kind(k.dtype, m.dims, k.other)
            for m, k in zip(kinds, loaded, strict=True)
        ]

    def _compute(self, call: _Call, kinds: list[Kind]) -> None:
        """The values of a node's outputs, and with them their shapes, where they are small and all inputs are known."""
        node, space = call.node, call.space
        if not call.plain or node.op_type in _RANDOM_OPS or any(k.other or _is_large(k) for k in kinds):
            return
        if node.op_type in {"Shape", "Size"}:
            values = _evaluate_shape(call.proto, self._get_kind(node.inputs[0], space))
        else:
            reads = [self._get_value(v, space) for v in node.inputs]
            if any(r is None and v is not None for r, v in zip(reads, node.inputs, strict=True)):
                return
            parts = tuple(None if r is None else (r.dtype.str, r.shape, r.tobytes()) for r in reads)
            key = (call.version, call.proto.SerializeToString(), parts)
            if key not in self._computed:
                self._computed[key] = _evaluate(call.proto, call.version, reads)
            values = self._computed[key]
        for i, (value, array) in enumerate(zip(node.outputs, values, strict=False)):
            if isinstance(array, np.ndarray) and array.size <= _COMPUTED:
                self._values[space, id(value)] = array
                kinds[i] = kinds[i]._replace(dims=array.shape)

    def _infer_function(self, call: _Call) -> list[Kind]:
        """A local function at one of its calls."""
        function = self._model.functions[call.node.op_identifier()]
        scope = self._inside.get((call.place, id(function)))
        if scope is None:
            return [get_declared_kind(v)._replace(dims=None) for v in call.node.outputs]
        for value, source in zip(function.inputs, call.node.inputs, strict=False):
            self._bind(source, call.space, value, scope.space)
        attributes = {name: a for name, a in function.attributes.items() if a.value is not None}
        attributes |= {name: call.attribute(a) or a for name, a in call.node.attributes.items()}
        self._infer_scope(scope, attributes)
        for value, source in zip(call.node.outputs, function.outputs, strict=False):
            self._bind(source, scope.space, value, call.space)
        return [self._get_kind(v, call.space) for v in call.node.outputs]

    def _bind(self, source: ir.Value | None, space: int, target: ir.Value, into: int) -> None:
        """Copy kind and value of a value to another one."""
        self.kinds[into, id(target)] = self._get_kind(source, space)
        value = self._get_value(source, space)
        self._values.pop((into, id(target)), None)
        if value is not None:
            self._values[into, id(target)] = value

    def _infer_body_node(self, call: _Call) -> list[Kind]:
        """A node with bodies: If, Loop, Scan; of any other nothing is known."""
        node = call.node
        found = {a.name: self._inside.get((call.place, id(a.as_graph()))) for a in bodies(node)}
        scopes = {name: scope for name, scope in found.items() if scope is not None}
        if node.op_type == "If" and len(scopes) == 2:
            return self._infer_if(call, scopes)
        if node.op_type in {"Loop", "Scan"} and len(scopes) == 1:
            return self._infer_loop(call, scopes["body"])
        return [get_declared_kind(v)._replace(dims=None) for v in node.outputs]

    def _infer_if(self, call: _Call, scopes: Mapping[str, Subgraph]) -> list[Kind]:
        chosen = self._get_value(call.node.inputs[0], call.space)
        ends = {}
        for name, scope in scopes.items():
            self._infer_scope(scope, call.attributes)
            ends[name] = [self._get_kind(v, call.space) for v in scope.graph.outputs]
        if chosen is not None and chosen.size == 1:
            return ends["then_branch" if bool(chosen.reshape(-1)[0]) else "else_branch"]
        return [
            merge_kinds(one, two) for one, two in zip(ends["then_branch"], ends["else_branch"], strict=False)
        ]

    def _infer_loop(self, call: _Call, scope: Subgraph) -> list[Kind]:
        """A Loop or a Scan: carried values have their initial shapes where the body keeps them."""
        node, space = call.node, call.space
        scanned = node.op_type == "Scan"
        count = node.attributes.get_int("num_scan_inputs", 0) if scanned else 0
        begins = [self._get_kind(v, space) for v in (node.inputs if scanned else node.inputs[2:])]
        carried, read = begins[: len(begins) - count], begins[len(begins) - count :]
        axes = _get_axes(node, "scan_input_axes", count)
        spans = {
            k.dims[a] for k, a in zip(read, axes, strict=True) if k.dims and -len(k.dims) <= a < len(k.dims)
        }
        turns = spans.pop() if len(spans) == 1 else None
        parts = [remove_axis(k, a) for k, a in zip(read, axes, strict=True)]
        # Dimensions that an iteration changes are unknown in the next one.
        for _ in range(3):
            starts = [*carried, *parts] if scanned else [_COUNT, _FLAG, *carried]
            for value, kind in zip(scope.graph.inputs, starts, strict=False):
                self.kinds[space, id(value)] = kind
                self._values.pop((space, id(value)), None)
            self._infer_scope(scope, call.attributes)
            ends = [self._get_kind(v, space) for v in scope.graph.outputs[0 if scanned else 1 :]]
            again = [merge_kinds(one, two) for one, two in zip(carried, ends, strict=False)]
            if again == carried:
                break
            carried = again
        out = _get_axes(node, "scan_output_axes", len(ends) - len(carried))
        return [*carried, *(add_axis(k, a, turns) for k, a in zip(ends[len(carried) :], out, strict=True))]


def _list_joined(node: ir.Node, shapes: Sequence[Shape]) -> Iterable[Sequence[int]]:
    """Sizes of a node's inputs that are equal, or 1: where they are added, multiplied or joined."""
    if node.domain not in ONNX_DOMAINS:
        return ()
    if node.op_type == "MatMul" and len(shapes) == 2 and all(len(shape) > 1 for shape in shapes):
        one, two = shapes
        return [(one[-1], two[-2]), *zip(reversed(one[:-2]), reversed(two[:-2]), strict=False)]
    if node.op_type == "Concat" and len({len(shape) for shape in shapes}) == 1:
        columns = list(zip(*shapes, strict=True))
        axis = node.attributes.get_int("axis", 0) % max(1, len(columns))
        return columns[:axis] + columns[axis + 1 :]
    if node.op_type in _BROADCASTING:
        return itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return ()


@dataclasses.dataclass
class _Call:
    """A node at its place, with the attributes of its function call, and the version of its operator."""

    node: ir.Node
    place: str
    space: int
    attributes: Mapping[str, ir.Attr]
    version: int

    @property
    def plain(self) -> bool:
        """Whether it is one of ONNX's own operators."""
        return self.node.domain in ONNX_DOMAINS

    def attribute(self, attribute: ir.Attr) -> ir.Attr | None:
        """An attribute of the node, resolved where it refers to one of the call; None where that has none."""
        definition = self.attributes.get(attribute.ref_attr_name or "") if attribute.is_ref() else attribute
        return None if definition is None or definition.is_ref() else definition

    @functools.cached_property
    def proto(self) -> onnx.NodeProto:
        """The node with positions for names, so that equal nodes are equal."""
        node = self.node
        node_proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
        node_proto.input.extend(
            f"i{i}" if v is not None and v.name else "" for i, v in enumerate(node.inputs)
        )
        node_proto.output.extend(f"o{i}" if v.name else "" for i, v in enumerate(node.outputs))
        for name, attribute in node.attributes.items():
            definition = self.attribute(attribute)
            if definition is not None:
                proto = ir.serde.serialize_attribute(definition)
                proto.name = name
                node_proto.attribute.append(proto)
        return node_proto


def _is_large(kind: Kind) -> bool:
    """Whether it has more elements than are computed."""
    shape = to_static_shape(kind.dims)
    return shape is not None and math.prod(shape) > _COMPUTED


def _infer_outputs(
    proto: onnx.NodeProto, version: int, reads: Sequence[Kind], constants: Mapping[int, NDArray[Any]]
) -> list[Kind]:
    """Types of the outputs; empty where ONNX cannot infer them."""
    with contextlib.suppress(Exception):
        if (function := trt_operators.make_function(proto)) is not None:
            read_types = [to_type_proto(kind) for kind in reads]
            written = onnx.shape_inference.infer_function_output_types(function, read_types, [])
            return [from_type_proto(t) for t in written]
        schema = onnx.defs.get_schema(proto.op_type, version, proto.domain)
        types = {name: to_type_proto(kind) for name, kind in zip(proto.input, reads, strict=True) if name}
        data = {proto.input[i]: onnx.numpy_helper.from_array(value) for i, value in constants.items()}
        imports = [onnx.helper.make_opsetid(proto.domain, version)]
        inferred = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
        return [from_type_proto(inferred[n]) if n in inferred else UNKNOWN for n in proto.output]
    return []


def _evaluate_shape(proto: onnx.NodeProto, read: Kind) -> list[Any]:
    """The output of Shape or Size, if known."""
    if proto.op_type == "Size":
        shape = to_static_shape(read.dims)
        return [] if shape is None else [np.array(math.prod(shape), np.int64)]
    numbers = {a.name: a.i for a in proto.attribute}
    part = (read.dims or ())[numbers.get("start", 0) : numbers.get("end")]
    part_shape = to_static_shape(part) if read.dims is not None else None
    return [] if part_shape is None else [np.array(part_shape, np.int64)]


def _evaluate(proto: onnx.NodeProto, version: int, reads: Sequence[NDArray[Any] | None]) -> list[Any]:
    """The outputs by ONNX's reference evaluator; empty where it fails."""
    from onnx.reference import ReferenceEvaluator

    feeds = {n: value for n, value in zip(proto.input, reads, strict=True) if n and value is not None}
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        evaluator = ReferenceEvaluator(proto, opsets={proto.domain: version})
        return [np.asarray(v) for v in evaluator.run(None, feeds)]
    return []


def _get_constant(call: _Call) -> ir.TensorProtocol | None:
    """The numbers of a Constant node."""
    for name, attribute in call.node.attributes.items():
        definition = call.attribute(attribute)
        if definition is not None and name == "value":
            # ``as_tensor`` checks a protocol, which takes longer than all the rest.
            tensor: ir.TensorProtocol = definition.value
            return tensor
        if definition is not None and name in {"value_int", "value_ints"}:
            return ir.Tensor(np.array(definition.value, np.int64))
        if definition is not None and name in {"value_float", "value_floats"}:
            return ir.Tensor(np.array(definition.value, np.float32))
    return None


def _get_axes(node: ir.Node, name: str, count: int) -> Sequence[int]:
    axes = node.attributes.get_ints(name, ())
    return axes if len(axes) == count else (0,) * count


def to_static_shape(dims: Dims) -> Shape | None:
    """The shape, where every dimension is known."""
    if dims is None:
        return None
    sizes = tuple(d for d in dims if d is not None)
    return sizes if len(sizes) == len(dims) else None


def get_declared_kind(value: ir.Value) -> Kind:
    """The loaded type and shape of a value."""
    if isinstance(value.type, ir.TensorType):
        dims = None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
        return Kind(int(value.type.dtype), dims)
    if value.type is None:
        return UNKNOWN
    return Kind(0, None, ir.serde.serialize_type(value.type).SerializeToString())


def is_complete(kind: Kind) -> bool:
    """Whether the shape is known, or it is no tensor."""
    return bool(kind.other) or to_static_shape(kind.dims) is not None


def to_type_proto(kind: Kind) -> onnx.TypeProto:
    """The type for ONNX."""
    type_proto: onnx.TypeProto = onnx.TypeProto.FromString(kind.other)
    return type_proto if kind.other else onnx.helper.make_tensor_type_proto(kind.dtype, kind.dims)


def from_type_proto(type_proto: onnx.TypeProto) -> Kind:
    """The kind of ONNX's type."""
    if not type_proto.HasField("tensor_type"):
        return Kind(0, None, type_proto.SerializeToString())
    tensor_type = type_proto.tensor_type
    if not tensor_type.HasField("shape"):
        return Kind(tensor_type.elem_type, None)
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor_type.shape.dim)
    return Kind(tensor_type.elem_type, tuple(d if d is None or d >= 0 else None for d in dims))


def merge_kinds(one: Kind, two: Kind) -> Kind:
    """The common kind of two."""
    if one == two or one.dims is None or one.other:
        return one
    if two.dims is None or len(one.dims) != len(two.dims):
        return one._replace(dims=None)
    return one._replace(dims=tuple(a if a == b else None for a, b in zip(one.dims, two.dims, strict=True)))


def remove_axis(kind: Kind, axis: int) -> Kind:
    """A slice of a tensor along an axis."""
    if not kind.dims or not -len(kind.dims) <= axis < len(kind.dims):
        return kind._replace(dims=None)
    axis %= len(kind.dims)
    return kind._replace(dims=(*kind.dims[:axis], *kind.dims[axis + 1 :]))


def add_axis(kind: Kind, axis: int, size: int | None) -> Kind:
    """Slices of this kind, ``size`` of them, put together along an axis."""
    if kind.dims is None:
        return kind
    axis = axis % (len(kind.dims) + 1)
    return kind._replace(dims=(*kind.dims[:axis], size, *kind.dims[axis:]))


def find_written_batch(
    graph: ir.Graph, constants: Mapping[str, ir.TensorProtocol], sizes: Callable[[int], Sizes]
) -> int:
    """The only batch that a model of an open batch can be run with; 0 where nothing in it fixes one.

    Tracing exporters write the batch of their example into a Reshape, into the initial state of a recurrence, or into a
    constant that is joined to each sample. ``sizes`` returns the shapes of all values at a batch.
    """
    suspects = [n for n in graph if _may_fix(constants, n)]
    if not suspects:
        return 0
    one, two = sizes(1), sizes(2)
    for node in suspects:
        read = [v.name or "" if v is not None else "" for v in node.inputs]
        if node.op_type in _STATES:
            shapes = [
                _get_constant_shape(constants, read[at]) for at in _STATES[node.op_type] if len(read) > at
            ]
            sequence, twice = one.get(read[0]), two.get(read[0])
            if sequence and twice and (sequence[1:2], twice[1:2]) == ((1,), (2,)):
                return next(shape[1] for shape in shapes if shape)
        elif node.op_type == "Concat":
            open_ = [(one.get(v), two.get(v)) for v in read if not _get_constant_shape(constants, v)]
            if any(a and b and (a[0], b[0]) == (1, 2) for a, b in open_):
                return next(shape[0] for v in read if (shape := _get_constant_shape(constants, v)))
        else:
            sample, twice = one.get(read[0]), two.get(read[0])
            target = math.prod(_get_reshape_target(constants, read[1]))
            size = math.prod(sample or ())
            if sample and twice and math.prod(twice) == 2 * size and target % size == 0:
                return target // size
    return 0


def _may_fix(constants: Mapping[str, ir.TensorProtocol], node: ir.Node) -> bool:
    """Whether a node has a constant in which a batch may be written."""
    if node.domain not in ONNX_DOMAINS:
        return False
    read = [v.name or "" if v is not None else "" for v in node.inputs]
    if node.op_type == "Reshape" and len(read) > 1:
        target = _get_reshape_target(constants, read[1])
        return bool(target) and min(target) > 0
    if node.op_type in _STATES:
        return any(
            len(_get_constant_shape(constants, read[at])) == 3
            for at in _STATES[node.op_type]
            if len(read) > at
        )
    axis = node.attributes.get_int("axis", 0) if node.op_type == "Concat" else 0
    return axis != 0 and any(len(_get_constant_shape(constants, v)) > 1 for v in read)


def _get_constant_shape(constants: Mapping[str, ir.TensorProtocol], name: str) -> tuple[int, ...]:
    """The shape of a constant; empty for what is none."""
    constant = constants.get(name)
    return tuple(int(d) for d in constant.shape.numpy()) if constant is not None else ()


def _get_reshape_target(constants: Mapping[str, ir.TensorProtocol], name: str) -> tuple[int, ...]:
    """The numbers of a constant of one dimension; empty for what is none."""
    constant = constants.get(name)
    return (
        tuple(int(n) for n in constant.numpy()) if constant is not None and len(constant.shape) == 1 else ()
    )
