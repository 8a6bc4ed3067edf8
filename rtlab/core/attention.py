"""Attention of a main graph: a softmax between two products of activations, or ONNX's operator."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rtlab.core.node import ONNX_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtlab.core.compiler_info import AttentionKernel
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: What exporters write between the first product and the softmax: scales, masks, caps, and other types.
_BEFORE = frozenset({
    "Add", "Cast", "Clip", "Div", "Expand", "Identity", "Max", "Min", "Mul", "Reshape", "Squeeze", "Sub", "Tanh",
    "Unsqueeze", "Where",
})  # fmt: skip
#: What they write between the softmax and the second product.
_BEHIND = frozenset({"Cast", "Dropout", "Identity"})
#: What PyTorch's exporters write there against rows that are masked whole, which are no numbers behind a softmax.
_GUARD = "Where"
#: Dimensions of a matrix, and of one for each head and sample.
_MATRIX, _BATCHED = 2, 4


@dataclasses.dataclass(frozen=True)
class Attention:
    """An attention in single nodes.

    Attributes:
        scores: The product of queries and keys.
        softmax: The id of the Softmax.
        context: The product of probabilities and values.
        heads: How many there are; None where it is unknown, or there is no such axis.
        head_size: Channels of a head; None where it is unknown.
        lengths: Numbers of queries and of keys; None where one is dynamic.
        dtype: The type of the queries, such as ``fp32``.
        is_guarded: Whether a Where between the softmax and the second product replaces probabilities.
    """

    scores: Node
    softmax: str
    context: Node
    heads: int | None
    head_size: int | None
    lengths: tuple[int, int] | None
    dtype: str
    is_guarded: bool = False

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of both products and the softmax."""
        return frozenset({self.scores.id, self.softmax, self.context.id})

    @property
    def factors(self) -> tuple[str, str, str, str]:
        """What the products read: queries, keys, probabilities, values."""
        return (*self.scores.inputs[:2], *self.context.inputs[:2])  # type: ignore[return-value]

    def fits(self, kernel: AttentionKernel) -> bool:
        """Whether a kernel takes several heads of this size, sequences of these lengths, and the type around.

        None takes a guard: between pairs TensorRT-RTX 1.7.1 then makes one step of each product, in INT8 and in FP8.
        """
        if self.heads in {None, 1} or self.head_size is None or self.lengths is None or self.is_guarded:
            return False
        low, high = kernel.lengths
        is_size = self.head_size in kernel.head_sizes and all(low <= n <= high for n in self.lengths)
        return is_size and self.dtype in kernel.types


def has_attention(model: Model, dtype: str = "fp32") -> bool:
    """Whether a main graph has an attention whose queries are of a type."""
    operators = (n for n in model.top if n.op == "Attention" and n.domain in ONNX_DOMAINS)
    queries = [model.values[n.inputs[0]].dtype for n in operators]
    return dtype in queries or any(a.dtype == dtype for a in find_attentions(model))


def find_attentions(model: Model) -> tuple[Attention, ...]:
    """The attentions in single nodes, in graph order."""
    return tuple(_iter_attentions(model))


def _iter_attentions(model: Model) -> Iterator[Attention]:
    for node in model.top:
        if not _multiplies_activations(model, node):
            continue
        softmax = _find_producer(model, node.inputs[0], "Softmax", _BEHIND | {_GUARD})
        scores = None if softmax is None else find_scores(model, softmax.inputs[0])
        if softmax is None or scores is None:
            continue
        queries, values = (model.values[v] for v in (scores.inputs[0], node.inputs[1]))
        sizes = [v.shape or () for v in (queries, values)]
        if any(len(s) < _MATRIX for s in sizes):
            continue
        heads = sizes[0][1] if len(sizes[0]) == _BATCHED else None
        head_size, lengths = sizes[0][-1], [s[-2] for s in sizes]
        yield Attention(
            scores,
            softmax.id,
            node,
            heads if isinstance(heads, int) else None,
            head_size if isinstance(head_size, int) else None,
            (lengths[0], lengths[1]) if all(isinstance(n, int) for n in lengths) else None,  # type: ignore[arg-type]
            queries.dtype or "",
            _find_producer(model, node.inputs[0], "Softmax", _BEHIND) is None,
        )


def find_scores(model: Model, value: str) -> Node | None:
    """The product of queries and keys that a value is computed from by scales, masks and other types alone."""
    node = _find_producer(model, value, "MatMul", _BEFORE)
    return node if node is not None and _multiplies_activations(model, node) else None


def _multiplies_activations(model: Model, node: Node) -> bool:
    """Whether a node is a product of two values, of which none is a constant."""
    is_product = node.op == "MatMul" and node.domain in ONNX_DOMAINS
    return is_product and not any(v in model.known for v in node.inputs[:2])


def _find_producer(model: Model, value: str, op: str, through: frozenset[str]) -> Node | None:
    """The nearest node of an operator that a value is computed from, behind the operators ``through`` alone."""
    values, visited = [value], {value}
    for name in values:
        node = model.producers.get(name)
        if node is None:
            continue
        if node.op == op:
            return node
        if node.op in through:
            values += [v for v in node.inputs if v and v not in visited]
            visited.update(node.inputs)
    return None
