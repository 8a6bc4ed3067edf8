"""Other forms of a part by itself: more or fewer Q/DQ pairs, other sizes, no mask.

None of them computes what the part computed: where one makes one layer of two nodes, it says what the others lack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.analyses.why.missed_fusions import BETWEEN
from rtlab.experiments.why import cutting
from rtlab.experiments.why.changes import Change, bypass, make_constant
from rtlab.quantize.edit import Edit
from rtlab.quantize.qdq import QdqPair, QuantizedGraph
from rtlab.relation.roles import PRODUCT_OPS, QUANTIZING_OPS

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: Sizes that kernels are written for.
_USUAL_SIZES = (64, 32, 128)
#: Sizes are rounded up to a multiple of this, which vectors of every type have.
_VECTOR = 16
#: Parts with more weights are not made in other sizes.
_LARGEST = 1 << 24
#: Operators that mask scores: of their inputs, one has the shape of the output and is left in their place.
_MASKING_OPS = frozenset({"Add", "Where", "Mul"})
#: Dimensions of the matrices that a product of tensors multiplies; also its operands.
_MATRIX_DIMS = 2


def iter_pair_additions(model: Model) -> Iterator[Change]:
    """Values that are not quantized while others beside them are: inputs of the same node, outputs of products.

    Each gets the scale of a pair of the same node, or else of another one of the part.
    """
    graph = QuantizedGraph(model.ir.graph)
    templates = [p for p in graph.pairs.values() if _is_template(p)]
    if not templates:
        return
    yielded = set[str]()
    for node in model.ir.graph:
        if node.op_type in BETWEEN or node.op_type in QUANTIZING_OPS:
            continue
        own = [p for v in node.inputs if v is not None for p in graph.cover.get(v, ())]
        is_product = node.op_type in PRODUCT_OPS
        if not own and not is_product:
            continue
        scale_pair = next((p for p in own if _is_template(p)), templates[0])
        values = [
            v for v in node.inputs if v is not None and v not in graph.constants and v not in graph.cover
        ]
        if own and is_product:
            values += [v for v in node.outputs if not _is_quantized(v)]
        for value in values:
            name = value.name or ""
            if name not in yielded and value.dtype in {ir.DataType.FLOAT, ir.DataType.FLOAT16}:
                yielded.add(name)
                words, args = f'quantize "{name}"', (name, scale_pair)
                yield Change("unquantized", words, (node.name or "",), _quantize, args, retypes=True)


def _is_template(pair: QdqPair) -> bool:
    """Whether a pair rounds an activation by one known scale."""
    return pair.q is not None and not pair.opaque and pair.scale is not None and pair.axis is None


def _is_quantized(value: ir.Value) -> bool:
    readers = [u.node.op_type for u in value.uses()]
    return bool(readers) and {*readers} == {"QuantizeLinear"}


def _quantize(edit: Edit, value: str, like: QdqPair) -> None:
    """A pair with the parameters of another one behind a value, which all its readers read."""
    source = edit.values[value]
    readers, producer = [*source.uses()], source.producer()
    reader = readers[0].node.name or "" if readers else ""
    behind, before = (producer.name or "", "") if producer is not None else ("", reader)
    float_type = source.dtype or ir.DataType.FLOAT
    scale = edit.add_constant(f"{value}/scale", np.ravel(like.scale)[0].astype(float_type.numpy()))  # type: ignore[arg-type]
    zero = edit.add_constant(f"{value}/zero", np.ravel(like.zero)[:1].reshape(()))
    at, where = source, {"origin": behind or before, "after": behind, "before": before}
    for op, kind in (("QuantizeLinear", zero.dtype), ("DequantizeLinear", float_type)):
        at = edit.insert(op, f"{value}/{op}", [at, scale, zero], kind=kind, **where)  # type: ignore[arg-type]
    for use in readers:
        use.node.replace_input_with(use.idx, at)
    edit.graph.outputs[:] = [at if v is source else v for v in edit.graph.outputs]


def iter_pair_removals(model: Model) -> Iterator[Change]:
    """Each pair of a part taken away, and stored integers as float weights."""
    for pair in QuantizedGraph(model.ir.graph).pairs.values():
        out = pair.out.name or ""
        if pair.q is not None:
            words, args = f'remove the Q/DQ pair "{pair.id}"', (pair.source.name or "", out)
            yield Change("quantization", words, pair.nodes, bypass, args, retypes=True)
        elif pair.is_constant:
            words = f'store the weight of "{pair.id}" as float'
            yield Change("quantization", words, pair.nodes, make_constant, (out,), retypes=True)


def find_inner_products(model: Model) -> list[Node]:
    """Products of two values that are both computed, as those of attention are."""
    return [
        n for n in model.top
        if n.op in PRODUCT_OPS and not any(v in model.known or _is_stored(model, v) for v in n.inputs[:_MATRIX_DIMS])
    ]  # fmt: skip


def find_between_products(model: Model, pair: tuple[str, str]) -> dict[str, None]:
    """Two products of computed values with what lies between, among them the pair: the core of an attention.

    Transpositions and pairs at the rim come along. Empty where no two such products follow each other.
    """
    graph, products = cutting.build_node_graph(model), {n.id for n in find_inner_products(model)}
    best: set[str] = set()
    for first in products:
        between, todo = {first}, [first]
        while todo:
            fresh = [n for n in graph.successors(todo.pop()) if n not in between]
            between.update(fresh)
            todo += [n for n in fresh if model.by_id[n].op not in PRODUCT_OPS]
        for second in (between & products) - {first}:
            core = {first, second, *(between & cutting.find_nodes_before(model, second))}
            best = max(best, core, key=lambda nodes: len({*pair} & nodes))
    if not {*pair} & best:
        return {}
    rim = {graph.predecessors: BETWEEN | {"Transpose"}, graph.successors: BETWEEN}
    nodes = best | {*pair}
    for step, ops in rim.items():
        todo = [*best]
        while todo:
            idle = [n for n in step(todo.pop()) if n not in nodes and model.by_id[n].op in ops]
            nodes.update(idle)
            todo += idle
    return dict.fromkeys(n.id for n in model.top if n.id in nodes)


def _is_stored(model: Model, value: str) -> bool:
    """Whether a value is dequantized from stored integers."""
    maker = model.producers.get(value)
    return maker is not None and maker.op == "DequantizeLinear" and maker.inputs[0] in model.known


def iter_mask_removals(model: Model) -> Iterator[Change]:
    """Nodes that add, multiply or select by a tensor of another shape, which may be a mask, left out."""
    sizes = model.sizes()
    for node in model.top:
        if node.op in _MASKING_OPS:
            shape = sizes.get(node.outputs[0])
            data = [v for v in node.inputs if v in model.producers and sizes.get(v) == shape]
            if shape and len(data) == 1:
                words = f'leave out "{node.id}" ({node.op})'
                yield Change("operator", words, (node.id,), bypass, (data[0], node.outputs[0]))


def iter_size_changes(model: Model, products: Sequence[Node]) -> Iterator[Change]:
    """The sizes that products contract or give, as a multiple of 16 and as a usual size that is none of theirs."""
    if sum(t.size for t in model.known.values()) > _LARGEST:
        return
    values = dict.fromkeys(v for n in products for v in n.inputs if v)
    shapes = [s for v in values if (s := model.sizes().get(v)) is not None]
    dims = dict.fromkeys(d for s in shapes for d in s[-_MATRIX_DIMS:] if d > 1)
    nodes = tuple(n.id for n in products)
    usual = next((s for s in _USUAL_SIZES if s not in dims), 0)
    for old in dims:
        aligned = -(-old // _VECTOR) * _VECTOR
        for new in dict.fromkeys((aligned, usual)):
            if new and new not in dims:
                words = f"use {new} in place of the size {old}"
                yield Change("shape", words, nodes, partial(_resize, old=old, new=new))


def iter_batch_changes(model: Model, products: Sequence[Node]) -> Iterator[Change]:
    """A batch of two for one of 1: a kernel for many matrices may not be taken for a single one."""
    shapes = [model.sizes().get(v) for v in model.inputs]
    if any(s is not None and len(s) > _MATRIX_DIMS and s[0] == 1 for s in shapes):
        nodes = tuple(n.id for n in products)
        yield Change("shape", "use a batch of 2 for 1", nodes, partial(_resize, old=1, new=2, axes=1))


def _resize(edit: Edit, *, old: int, new: int, axes: int | None = None) -> None:
    """Each dimension of one size in another one, in inputs, weights and the shapes that reshapes read.

    Numbers of weights are repeated or cut off: what is computed is another thing, on tensors of another size. With
    ``axes``, that many leading dimensions of inputs and of shapes change, and no weight does.
    """

    def replace(sizes: Sequence[Any]) -> list[Any]:
        return [new if d == old and i < (axes or len(sizes)) else d for i, d in enumerate(sizes)]

    for name, tensor in dict(edit.model.known).items():
        array = tensor.numpy()
        is_shape = array.dtype == np.int64 and array.ndim == 1 and array.size > _MATRIX_DIMS
        if name in edit.values and (is_shape or axes is None):
            resized = (
                np.array(replace(array.tolist())) if is_shape else np.resize(array, replace(array.shape))
            )
            edit.values[name].replace_all_uses_with(edit.add_constant(f"{name}/resized", resized))
    for value in edit.graph.inputs:
        if value.shape is not None and len(value.shape) > _MATRIX_DIMS:
            value.shape = ir.Shape(replace([*value.shape]))
    for node in edit.graph:
        for value in node.outputs:
            value.shape = None
    edit.infer()
