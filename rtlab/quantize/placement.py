"""Where INT8 and FP8 quantization goes, by rules that keep TensorRT's fusions.

Inputs of weighted nodes are quantized and their outputs are not, so that a compiler can fuse the following nodes
into the same kernel. Placement follows NVIDIA's guidance for explicit quantization and ModelOpt's practice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from rtlab.core.attention import find_attentions, find_operators, read_operator_sizes
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.variant import Precision

if TYPE_CHECKING:
    from rtlab.core.compiler_info import AttentionKernel
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: One input of a node: its id and the position among its inputs.
Edge = tuple[str, int]

VIEWS = {"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Transpose"}
POOLS = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}
_MAXIMA = {"MaxPool", "GlobalMaxPool"}
#: What a compiler fuses behind a weighted node in its type.
_ACTIVATIONS = {"Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Elu", "HardSwish", "HardSigmoid"}
#: Operators that multiply with a weight, their second input.
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
#: Types of what is quantized.
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_FLOAT_TYPES = frozenset({"fp32", "fp16", "bf16"})


@dataclasses.dataclass(frozen=True)
class QuantizationPlan:
    """What to quantize.

    ``activations`` maps a value to the inputs that read its quantized form, in graph order. ``weights`` maps
    a constant and its channel axis to the inputs that read it. Values of one of the ``groups`` share a scale.
    ``skipped_nodes`` are weighted nodes that are not quantized, by reason. ``thresholds`` are those of values whose
    largest magnitude is known without data.
    """

    activations: Mapping[str, tuple[Edge, ...]]
    weights: Mapping[tuple[str, int], tuple[Edge, ...]]
    groups: tuple[tuple[str, ...], ...]
    skipped_nodes: Mapping[str, tuple[str, ...]]
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of the nodes that read something quantized."""
        edges = (*self.activations.values(), *self.weights.values())
        return frozenset(node for readers in edges for node, _ in readers)


def plan(
    model: Model,
    nodes: Collection[str] | None = None,
    precision: Precision = Precision.INT8,
    kernels: Iterable[AttentionKernel] = (),
) -> QuantizationPlan:
    """Decide which inputs of which main-graph nodes are quantized. Bodies and functions are left as they are.

    Args:
        model: Any loaded model.
        nodes: Ids of the nodes that may be; all by default. A part needs only scales that the whole model needs.
        precision: INT8, or FP8, which has kernels for products alone: sums and pools are left as they are.
        kernels: What a compiler has for whole attentions; attention that none of them takes is left as it is.
    """
    if nodes is not None and not nodes:
        return QuantizationPlan({}, {}, (), {})
    kernels = tuple(k for k in kernels if k.precision is precision)
    full_plan = _Planner(model, precision, {n.id for n in model.top}, None, kernels).plan()
    if nodes is None or len({*nodes}) == len(model.top):
        return full_plan
    return _Planner(model, precision, nodes, frozenset(full_plan.activations), kernels).plan()


def quantizable(model: Model) -> tuple[str, ...]:
    """Names of the activations that INT8, FP8 and mixes of them need ranges of, in graph order.

    Those of attention are among them where its sizes are static: which compilers quantize it is not known here.
    """
    planned_values = dict.fromkeys(plan(model).activations)
    for attention in find_attentions(model):
        if attention.sizes.are_static:
            # A guard between the softmax and the second product may be left out.
            shares = model.by_id[attention.softmax].outputs if attention.sizes.is_guarded else ()
            planned_values |= dict.fromkeys((*attention.factors, *shares, attention.context.outputs[0]))
    for node in find_operators(model):
        if read_operator_sizes(model, node).are_static:
            values = (*node.inputs[:3], node.outputs[0])
            planned_values |= dict.fromkeys(v for v in values if v not in model.known)
    return tuple(_sort_values(model, planned_values))


def explain_nonconstant(model: Model, weight: str) -> str:
    """Why a weight that is not among the constants cannot be quantized, and what helps."""
    stack, visited = [weight], {weight}
    while stack:
        value = stack.pop()
        producer = model.producers.get(value)
        if (producer is None and value not in model.ir.graph.initializers) or value in model.inputs:
            return "its weight is no constant"
        unvisited = {v for v in (producer.inputs if producer is not None else ()) if v} - visited
        visited |= unvisited
        stack += unvisited
    return (
        "its weight is computed from constants; fold them with polygraphy surgeon sanitize --fold-constants"
    )


def get_weight_axes(node: Node, rank: int, position: int = 1) -> tuple[int, int]:
    """The axes of a product's weight that hold the output channels and what is summed over."""
    if node.op in {"Conv", "ConvTranspose"}:
        return (0, 1) if node.op == "Conv" else (1, 0)
    is_transposed = node.op == "Gemm" and bool(node.attributes.get("transB" if position else "transA", 0))
    axes = (rank - 1, max(rank - 2, 0)) if position else (max(rank - 2, 0), rank - 1)
    return axes[::-1] if is_transposed else axes


class _Planner:
    def __init__(
        self,
        model: Model,
        precision: Precision,
        nodes: Collection[str],
        values: Collection[str] | None,
        kernels: Collection[AttentionKernel],
    ) -> None:
        self.model, self.precision, self.nodes, self.values = model, precision, nodes, values
        self.kernels = tuple(kernels)
        self.skipped_nodes: dict[str, list[str]] = {}
        self.thresholds: dict[str, float] = {}
        self.constants = model.known
        self.order = {n.id: i for i, n in enumerate(model.top)}
        self.depth = _compute_depths(model)
        self.edges: dict[str, set[Edge]] = {}
        self.weights: dict[tuple[str, int], list[Edge]] = {}
        self.weighted_nodes: set[str] = set()
        self.captured_values = find_captured_values(model)

    def plan(self) -> QuantizationPlan:
        candidates = [n for n in self.model.top if n.domain in ONNX_DOMAINS and n.id in self.nodes]
        for node in candidates:
            if node.op in WEIGHTED:
                self._add_weighted(node)
        if self.kernels:
            self._add_attentions()
        if self.precision is Precision.INT8:
            for node in candidates:
                if node.op == "Add":
                    self._add_residual(node)
            quantized_values = self._find_quantized_values()
            # Backwards, since a pool depends on those behind it.
            for node in reversed(candidates):
                if node.op in POOLS:
                    self._add_pool(node, quantized_values)
        groups = self._group_scales(candidates)
        return QuantizationPlan(
            {v: self._sort_edges(self.edges[v]) for v in _sort_values(self.model, self.edges)},
            {k: self._sort_edges(e) for k, e in self.weights.items()},
            groups,
            {k: tuple(v) for k, v in self.skipped_nodes.items() if v},
            self.thresholds,
        )

    def _add_attentions(self) -> None:
        """Quantize what both products of an attention read, and where its kernel needs it the output of the second."""
        for attention in find_attentions(self.model):
            if not attention.nodes <= {*self.nodes}:
                continue
            kernel, output = attention.sizes.find_kernel(self.kernels), attention.context.outputs[0]
            if kernel is None:
                self._drop_skips(attention.nodes)
                why = attention.sizes.explain_misfit(self.kernels)
                self.skipped_nodes.setdefault(why, []).extend((attention.scores.id, attention.context.id))
                continue
            # A pair behind views, in front of the next product, is one of the output as well.
            writes = kernel.output_pair and not self._reads_quantized(output)
            values = (*attention.factors, *([output] if writes else []))
            if not all(map(self._is_quantizable, values)) or (writes and None in self._get_readers(output)):
                continue
            products = (attention.scores, attention.context)
            edges = [(v, (n.id, i)) for n in products for i, v in enumerate(n.inputs[:2])]
            if writes:
                readers = self.model.consumers[output]
                edges += [(output, (n.id, i)) for n in readers for i, v in enumerate(n.inputs) if v == output]
            for value, edge in edges:
                self.edges.setdefault(value, set()).add(edge)
            self._drop_skips(attention.nodes)
            if self.precision is Precision.FP8:
                # No probability is above 1, and no step of a float is too coarse for small ones.
                self.thresholds[attention.context.inputs[0]] = 1.0

    def _drop_skips(self, nodes: Collection[str]) -> None:
        for why, skips in [*self.skipped_nodes.items()]:
            self.skipped_nodes[why] = [n for n in skips if n not in nodes]

    def _add_weighted(self, node: Node) -> None:
        axis = self._find_channel_axis(node)
        if isinstance(axis, str):
            self.skipped_nodes.setdefault(axis, []).append(node.id)
            return
        self.weighted_nodes.add(node.id)
        self.edges.setdefault(node.inputs[0], set()).add((node.id, 0))
        self.weights.setdefault((node.inputs[1], axis), []).append((node.id, 1))

    def _find_channel_axis(self, node: Node) -> int | str:
        """The weight's output-channel axis, or why this node is not quantized."""
        weight = self.constants.get(node.inputs[1])
        if weight is None:
            return explain_nonconstant(self.model, node.inputs[1])
        sizes = weight.shape.numpy()
        if weight.dtype not in FLOATS or 0 in sizes:
            return "its weight is no tensor of floats"
        if not self._is_quantizable(node.inputs[0]):
            return "its input is no activation of floats"
        rank = len(sizes)
        if node.op == "ConvTranspose" and self.precision is Precision.FP8:
            return "TensorRT-RTX has no FP8 kernel for ConvTranspose"
        axis, _ = get_weight_axes(node, rank)
        if node.op != "MatMul":
            return axis
        # A product with a vector moves weights and computes little: a narrow type gains nothing there.
        shape = self.model.values[node.inputs[0]].shape if node.inputs[0] in self.model.values else None
        columns = sizes[-1] if rank > 1 else 1
        is_vector = shape is not None and len(shape) == 1
        return "a product with a vector" if is_vector or columns == 1 else axis

    def _add_residual(self, node: Node) -> None:
        """Quantize the branch of a residual Add that is not the convolution; that one stays in the kernel."""
        lhs, rhs = node.inputs
        if lhs == rhs or not (self._is_quantizable(lhs) and self._is_quantizable(rhs)):
            return
        shapes = [self.model.values[v].shape for v in (lhs, rhs)]
        if None not in shapes and shapes[0] != shapes[1]:
            return
        fusible = [i for i, v in enumerate((lhs, rhs)) if self._from_weighted(v)]
        if not fusible:
            return
        # Of two convolutions the longer branch is the block's own and the shorter one its shortcut.
        main = max(fusible, key=lambda i: (self.depth.get(node.inputs[i], 0), -i))
        other = 1 - main
        if self.values is not None and node.inputs[other] not in self.values:
            return
        self.edges.setdefault(node.inputs[other], set()).add((node.id, other))

    def _from_weighted(self, value: str, *, through_concat: bool = False) -> bool:
        """Whether a kernel of a quantized convolution can write this value, alone or into a Concat."""
        while True:
            node = self.model.producers.get(value)
            if node is None or len(self._get_readers(value)) != 1:
                return False
            if node.id in self.weighted_nodes:
                # Kernels of products of matrices add nothing in INT8, and one scale for what they add to may lose it.
                return node.op in {"Conv", "ConvTranspose"}
            if node.op == "Concat" and not through_concat:
                return all(self._from_weighted(v, through_concat=True) for v in node.inputs)
            inputs = [v for v in node.inputs if v and v not in self.constants]
            is_activation = through_concat and node.op in _ACTIVATIONS
            if not (is_activation or node.op in {"BatchNormalization", "Mul", "Add"}) or len(inputs) != 1:
                return False
            value = inputs[0]

    def _add_pool(self, node: Node, quantized_values: set[str]) -> None:
        """Quantize a pool's input where its producers and all its consumers are quantized too."""
        value = node.inputs[0]
        has_scale = value in quantized_values and (self.values is None or value in self.values)
        if (
            (value in self.edges or has_scale)
            and self._is_quantizable(value)
            and self._reads_quantized(node.outputs[0])
        ):
            self.edges.setdefault(value, set()).add((node.id, 0))

    def _reads_quantized(self, value: str) -> bool:
        """Whether every reader takes the quantized form, straight or behind views and Concat."""
        stack = [value]
        while stack:
            name = stack.pop()
            readers = self._get_readers(name)
            if not readers or None in readers:
                return False
            for reader in self.model.consumers.get(name, ()):
                at = {(reader.id, i) for i, v in enumerate(reader.inputs) if v == name}
                if at <= self.edges.get(name, set()):
                    continue
                if reader.op not in VIEWS | {"Concat"}:
                    return False
                stack.append(reader.outputs[0])
        return True

    def _find_quantized_values(self) -> set[str]:
        """Values that a quantized node writes, with nothing but fusible operators between."""
        quantized_values: set[str] = set()
        fusible = _ACTIVATIONS | VIEWS | POOLS | {"BatchNormalization", "Add", "Concat"}
        for node in self.model.top:
            follows = node.op in fusible and not quantized_values.isdisjoint(node.inputs)
            if follows or node.id in self.weighted_nodes:
                quantized_values.update(node.outputs)
        return quantized_values

    def _group_scales(self, candidates: Iterable[Node]) -> tuple[tuple[str, ...], ...]:
        """Route Concat inputs through the quantized form they have, and join scales across Concat and MaxPool."""
        parent = {v: v for v in self.edges}

        def root(value: str) -> str:
            while parent[value] != value:
                parent[value] = parent[parent[value]]
                value = parent[value]
            return value

        for node in candidates:
            if not node.outputs or node.outputs[0] not in self.edges:
                continue
            if node.op == "Concat":
                for i, value in enumerate(node.inputs):
                    if value in self.edges:
                        self.edges[value].add((node.id, i))
                        parent[root(value)] = root(node.outputs[0])
            # A maximum is one of its inputs: on one scale, quantizing it again changes nothing.
            elif node.op in _MAXIMA and (node.id, 0) in self.edges.get(node.inputs[0], ()):
                parent[root(node.inputs[0])] = root(node.outputs[0])
        groups: dict[str, list[str]] = {}
        for value in _sort_values(self.model, self.edges):
            groups.setdefault(root(value), []).append(value)
        return tuple(tuple(g) for g in groups.values() if len(g) > 1)

    def _is_quantizable(self, value: str) -> bool:
        """Whether this is an activation of floats that is not quantized already."""
        value_info = self.model.values.get(value)
        producer = self.model.producers.get(value)
        return (
            value_info is not None
            and value_info.dtype in _FLOAT_TYPES
            and value not in self.constants
            and (producer is None or producer.op != "DequantizeLinear")
        )

    def _get_readers(self, value: str) -> list[Node | None]:
        """Nodes that read a value; None is a graph output or a body."""
        outside = value in self.captured_values or value in self.model.outputs
        return [*self.model.consumers.get(value, ()), *([None] if outside else [])]

    def _sort_edges(self, edges: Iterable[Edge]) -> tuple[Edge, ...]:
        return tuple(sorted(edges, key=lambda e: (self.order[e[0]], e[1])))


def _sort_values(model: Model, values: Iterable[str]) -> list[str]:
    """Values in graph order, inputs first."""
    positions = {out: i for i, n in enumerate(model.top) for out in n.outputs}
    return sorted(values, key=lambda v: (positions.get(v, -1), v))


def find_captured_values(model: Model) -> frozenset[str]:
    """Main-graph values that a body of If, Loop or Scan reads from outside."""
    return frozenset(_iter_captured_values(model.ir)) if len(model.nodes) > len(model.top) else frozenset()


def _iter_captured_values(model: ir.Model) -> Iterator[str]:
    graph = model.graph
    for node in graph.all_nodes():
        if node.graph is graph:
            continue
        for value in node.inputs:
            if value is not None and value.graph is graph:
                yield value.name or ""
    # A body may also hand an outer value straight through as its output.
    for body in graph.subgraphs():
        if body is not graph:
            yield from (v.name or "" for v in body.outputs if v.graph is graph)


def _compute_depths(model: Model) -> Mapping[str, int]:
    """Length of the longest path of nodes to each value."""
    depth: dict[str, int] = {}
    for node in model.top:
        level = 1 + max((depth.get(v, 0) for v in node.inputs), default=0)
        depth.update(dict.fromkeys(node.outputs, level))
    return depth
