"""What a layer does for each node whose label it bears: the node's own work, or its Q, its bias, its layout.

A label says that a layer has to do with a node, not what it does for it. In INT8 the kernel that quantizes a
convolution's input and the one that adds its bias both bear the convolution's label, and neither convolves. What a
layer does is told by its kernel and its kind; where these do not tell, the layer is taken to do the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.trt_operators import OPERATORS
from rtlab.relation.dataflow import PRODUCTS, SCALED_TYPES, Kernel, Work, kernel, work

Role = Literal["work", "body", "scale", "bias", "Q", "DQ", "Q/DQ", "cast", "layout", "control"]

#: Roles of layers that do a node's work: a bias or a scale in a layer of its own is next to nothing of it.
WORKING: frozenset[Role] = frozenset({"work", "body"})
#: Roles that only serve a node: no part of what it computes, and never a fusion with it.
SERVING: frozenset[Role] = frozenset({"Q", "DQ", "Q/DQ", "cast", "layout", "control"})
#: Operators whose core is one product, which a single layer does.
PRODUCT_OPS = frozenset({
    "Conv", "ConvTranspose", "ConvInteger", "DeformConv", "FusedConv", "NhwcFusedConv", "QLinearConv",
    "QLinearConvTranspose", "Gemm", "FusedGemm", "QGemm", "MatMul", "FusedMatMul", "MatMulInteger", "MatMulNBits",
    "QLinearMatMul", "DynamicQuantizeMatMul", "Einsum",
})  # fmt: skip
_ROLES: Mapping[str, Role] = {"quantize": "Q", "dequantize": "DQ", "round": "Q/DQ"}
QUANTIZING_OPS: Mapping[str, Role] = {
    "DynamicQuantizeLinear": "Q", **{op: _ROLES[o.kind] for op, o in OPERATORS.items()},
}  # fmt: skip
#: Operators that own graphs, which are run by layers of their own.
_OWNERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
#: Operators that only move or retype numbers, as a kernel without arithmetic can.
_MOVING_OPS = frozenset({
    "Cast", "CastLike", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "OneHot", "Pad", "Reshape", "Resize", "ReverseSequence", "ScatterElements", "ScatterND",
    "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where",
})  # fmt: skip
_CASTS = frozenset({"Cast", "CastLike"})
#: Operations of which a kernel has one at least when it computes these operators.
_TELLING: Mapping[str, frozenset[str]] = {
    op: frozenset(names.split())
    for op, names in {
        "Add": "Add Sum", "Clip": "Min Max", "Erf": "Erf", "Exp": "Exp", "GlobalAveragePool": "Mean Sum",
        "LogSoftmax": "Exp Soft Log", "Mul": "Mul Div", "ReduceMean": "Mean Sum", "Relu": "Relu Max",
        "Sigmoid": "Sigm Tanh Exp", "Softmax": "Exp Soft", "Sqrt": "Sqrt Rsqr", "Sub": "Sub Add", "Tanh": "Tanh Exp",
    }.items()
}  # fmt: skip
_PRODUCT_WORKS: frozenset[Work] = frozenset({"convolution", "deconvolution", "matmul"})
#: Kinds of layers that tell nothing of what is in them.
_OPAQUE: frozenset[Work] = frozenset({"region", "kernel", "other"})
_MOVING_WORKS: frozenset[Work] = frozenset({"reformat", "none", "shuffle", "slice", "concat", "gather"})

#: How surely a layer does a node's work.
_NO, _MAY, _SURE = 0, 1, 2


def words(role: Role, op: str) -> str:
    """A role in words, such as "Q for Conv" or "bias of Gemm"; the operator alone for its work."""
    if role == "work" or not op:
        return op
    return f"{role} {'of' if role in {'bias', 'scale', 'body', 'control'} else 'for'} {op}"


class Roles:
    """Finds what layers do for nodes of a source model; ``built`` is the prepared model that the layers run."""

    def __init__(self, source: Model, built: Model) -> None:
        self.source, self.built = source, built
        self._declared: dict[str, defaultdict[str, list[Node]]] = {}

    def of(self, node: str, layers: Sequence[Layer]) -> dict[str, Role]:
        """The role of each layer that belongs to a node, by its id."""
        source_node = self.source.by_id[node]
        inserted_ops = {y.id: self._list_inserted_ops(source_node, y) for y in layers}
        sure = {y.id: _NO if inserted_ops[y.id] else _rate_work(source_node, y) for y in layers}
        best = max(sure.values(), default=_NO)
        # A product is done in one place; other work, such as that of a normalization, may be divided among layers.
        least = best if source_node.op in PRODUCT_OPS or source_node.op in QUANTIZING_OPS else min(best, _MAY)
        running = {y.id for y in layers if best and sure[y.id] >= least}
        if not best and source_node.op not in PRODUCT_OPS and source_node.op not in _OWNERS:
            # No kernel shows it: it may be folded into another operation of one that computes.
            running = {y.id for y in layers if not inserted_ops[y.id] and _computes(y, kernel(y))}
        first = min((y.index for y in layers if y.id in running), default=None)
        return {
            y.id: "work" if y.id in running else self._serving_role(source_node, y, inserted_ops[y.id], first)
            for y in layers
        }

    def _list_inserted_ops(self, node: Node, layer: Layer) -> tuple[str, ...]:
        """Operators that a preparation put around a node, where a layer declares these and not the node itself."""
        mine = self._map_declared(layer).get(node.id, ())
        return () if any(n.id == node.id for n in mine) else tuple(n.op for n in mine if n.op != node.op)

    def _map_declared(self, layer: Layer) -> Mapping[str, Sequence[Node]]:
        """The built nodes that a layer declares, by the source node that they stand for."""
        table = self._declared.get(layer.id)
        if table is None:
            table = self._declared[layer.id] = defaultdict(list)
            for built in filter(None, map(self.built.by_id.get, layer.origins or (layer.name,))):
                table[built.origin].append(built)
        return table

    def _serving_role(
        self, node: Node, layer: Layer, inserted_ops: tuple[str, ...], first: int | None
    ) -> Role:
        """What a layer does for a node that another layer runs, the first one at ``first``."""
        if work(layer) == "control":
            return "control"
        if node.op in _OWNERS:
            return "body"
        if inserted_ops:
            return _inserted_role(node, inserted_ops)
        kernel_info = kernel(layer)
        if kernel_info and (kernel_info.quantizes or kernel_info.dequantizes) and not kernel_info.rest:
            return _quantizing_role(kernel_info.quantizes, kernel_info.dequantizes)
        if first is not None and layer.index > first and _computes(layer, kernel_info):
            return "work" if node.op in QUANTIZING_OPS else "bias" if _has_bias(node) else "scale"
        if layer.reads not in SCALED_TYPES and layer.writes in SCALED_TYPES:
            return "Q"
        if kernel_info is None and work(layer) == "quantization":
            return "DQ"
        return "cast" if layer.reads != layer.writes and layer.reads and layer.writes else "layout"


def _inserted_role(node: Node, operators: Iterable[str]) -> Role:
    """What inserted operators do for the node that they were put around or in the place of."""
    is_moved = node.op in _MOVING_OPS
    roles: set[Role] = {
        QUANTIZING_OPS.get(op)
        or ("cast" if op in _CASTS else "layout" if op in _MOVING_OPS and not is_moved else "work")
        for op in operators
    }
    if "work" in roles:
        return "work"
    if roles & {"Q", "DQ"}:
        return _quantizing_role("Q" in roles, "DQ" in roles)
    return "cast" if "cast" in roles else "layout"


def _quantizing_role(quantizes: bool, dequantizes: bool) -> Role:  # noqa: FBT001 - of one step, both or either
    return "Q/DQ" if quantizes and dequantizes else "Q" if quantizes else "DQ"


def _computes(layer: Layer, kernel_info: Kernel | None) -> bool:
    """Whether a layer does arithmetic besides quantizing."""
    if kernel_info:
        return bool(kernel_info.rest)
    return work(layer) not in _MOVING_WORKS | {"quantization", "control"}


def _has_bias(node: Node) -> bool:
    """Whether a product adds a bias. Its position among the inputs is the third, in a quantized operator the ninth."""
    position = {"QLinearConv": 8, "QGemm": 6}.get(node.op, 2)
    return node.op not in {"MatMul", "Einsum"} and len(node.inputs) > position and node.inputs[position] != ""


def _rate_work(node: Node, layer: Layer) -> int:
    """How surely a layer does a node's work, by its kind and the operations of its kernel."""
    op, done = node.op, work(layer)
    if layer.kind == op:
        return _SURE
    if op in _OWNERS or done == "control":
        return _NO
    kernel_info = kernel(layer)
    if kernel_info is None:
        return _rate_by_kind(op, done, layer)
    if op in PRODUCT_OPS:
        if PRODUCTS & {*kernel_info.operations}:
            return _SURE
        # A product with a vector is a sum of products.
        return _MAY if "Sum" in kernel_info.operations else _NO
    if op in QUANTIZING_OPS:
        does = kernel_info.quantizes if QUANTIZING_OPS[op] == "Q" else kernel_info.dequantizes
        return _SURE if does else _NO if kernel_info.is_complete else _MAY
    if op in _MOVING_OPS:
        return _MAY
    if op in _TELLING:
        return _SURE if _TELLING[op] & {*kernel_info.operations} else _NO if kernel_info.is_complete else _MAY
    # A reduction of a dimension of one element is a move.
    return _MAY if kernel_info.rest or not kernel_info.is_complete or op.startswith("Reduce") else _NO


def _rate_by_kind(op: str, done: Work, layer: Layer) -> int:
    if op in PRODUCT_OPS:
        if done in _PRODUCT_WORKS or "_mha" in layer.name or "_gemm" in layer.name:
            return _SURE
        return _MAY if done in _OPAQUE else _NO
    if op in QUANTIZING_OPS and done not in _MOVING_WORKS:
        # A kernel that reads or writes a narrow type has taken in what makes it so.
        narrow = layer.writes if QUANTIZING_OPS[op] == "Q" else layer.reads
        return _SURE if done == "quantization" or narrow in SCALED_TYPES else _MAY
    if op in _MOVING_OPS:
        return _MAY
    return _NO if done in _MOVING_WORKS | {"quantization"} else _MAY
