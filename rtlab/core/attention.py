"""Attention of a main graph: a softmax between two products of activations, or ONNX's operator."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rtlab.core.node import ONNX_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
class AttentionSizes:
    """What decides whether a kernel takes an attention.

    Attributes:
        heads: How many there are; None where it is unknown, or there is no such axis.
        head_size: Channels of a head; None where it is unknown.
        lengths: Numbers of queries and of keys; None where one is dynamic.
        dtype: The type of the queries, such as ``fp32``.
        is_guarded: Whether a Where between the softmax and the second product replaces probabilities.
    """

    heads: int | None
    head_size: int | None
    lengths: tuple[int, int] | None
    dtype: str
    is_guarded: bool = False

    @property
    def are_static(self) -> bool:
        """Whether the channels of a head and both lengths are numbers."""
        return self.head_size is not None and self.lengths is not None

    def fits(self, kernel: AttentionKernel) -> bool:
        """Whether a kernel takes several heads of this size, sequences of these lengths, and the type around.

        None takes a guard: between pairs TensorRT-RTX 1.7.1 then makes one step of each product, in INT8 and in FP8.
        """
        if self.heads in {None, 1} or self.head_size is None or self.lengths is None or self.is_guarded:
            return False
        low, high = kernel.lengths
        is_size = self.head_size in kernel.head_sizes and all(low <= n <= high for n in self.lengths)
        return is_size and self.dtype in kernel.types

    def find_kernel(self, kernels: Sequence[AttentionKernel]) -> AttentionKernel | None:
        """The first kernel that takes it; None where none does, or one that is avoided."""
        kernel = next((k for k in kernels if self.fits(k)), None)
        return None if kernel is None or kernel.avoided else kernel

    def explain_misfit(self, kernels: Sequence[AttentionKernel]) -> str:
        """Why none of a compiler's kernels of one precision, one at least, takes it; empty where one does."""
        kernel = next((k for k in kernels if self.fits(k)), None)
        if kernel is not None:
            return kernel.avoided
        typed = [k for k in kernels if self.dtype in k.types]
        sizes = [{n for k in of for n in k.head_sizes} for of in (typed, kernels)]
        if not typed:
            cause = "this type around"
        elif self.heads in {None, 1}:
            cause = "one head"
        elif self.is_guarded:
            cause = "a guard behind its softmax"
        elif self.head_size is None or self.lengths is None:
            cause = "a dynamic length"
        elif self.head_size not in sizes[0]:
            cause = f"heads of {self.head_size} channels"
            cause += " and this type around" if self.head_size in sizes[1] else ""
        else:
            cause = "lengths of {} and {}".format(*self.lengths)
        return f"no {kernels[0].precision.upper()} kernel takes an attention with {cause}"


@dataclasses.dataclass(frozen=True)
class Attention:
    """An attention in single nodes.

    Attributes:
        scores: The product of queries and keys.
        softmax: The id of the Softmax.
        context: The product of probabilities and values.
        sizes: Heads, their channels, lengths, type.
    """

    scores: Node
    softmax: str
    context: Node
    sizes: AttentionSizes

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of both products and the softmax."""
        return frozenset({self.scores.id, self.softmax, self.context.id})

    @property
    def factors(self) -> tuple[str, str, str, str]:
        """What the products read: queries, keys, probabilities, values."""
        return (*self.scores.inputs[:2], *self.context.inputs[:2])  # type: ignore[return-value]


def has_attention(model: Model, dtype: str = "fp32") -> bool:
    """Whether a main graph has an attention whose queries are of a type."""
    queries = [model.values[n.inputs[0]].dtype for n in find_operators(model)]
    return dtype in queries or any(a.sizes.dtype == dtype for a in find_attentions(model))


def find_operators(model: Model) -> tuple[Node, ...]:
    """The nodes of ONNX's operator, from opset 23 on."""
    return tuple(n for n in model.top if n.op == "Attention" and n.domain in ONNX_DOMAINS)


def read_operator_sizes(model: Model, node: Node) -> AttentionSizes:
    """The sizes of a node of ONNX's operator: of four dimensions, or of three with the number of heads beside."""
    queries, keys = (model.values[v] for v in node.inputs[:2])
    shapes = [v.shape or () for v in (queries, keys)]
    lengths = [s[-2] for s in shapes if len(s) in {_BATCHED - 1, _BATCHED}]
    is_batched = len(shapes[0]) == _BATCHED
    heads: object = shapes[0][1] if is_batched else node.attributes.get("q_num_heads")
    size: object = shapes[0][-1] if shapes[0] else None
    if not is_batched:
        size = size // heads if isinstance(heads, int) and heads and isinstance(size, int) else None
    return AttentionSizes(
        heads if isinstance(heads, int) else None,
        size if isinstance(size, int) else None,
        _read_lengths(lengths),
        queries.dtype or "",
    )


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
            AttentionSizes(
                heads if isinstance(heads, int) else None,
                head_size if isinstance(head_size, int) else None,
                _read_lengths(lengths),
                queries.dtype or "",
                _find_producer(model, node.inputs[0], "Softmax", _BEHIND) is None,
            ),
        )


def _read_lengths(lengths: Sequence[object]) -> tuple[int, int] | None:
    """Two numbers; None where one of them is none."""
    numbers = [n for n in lengths if isinstance(n, int)]
    return (numbers[0], numbers[1]) if len(lengths) == len(numbers) == _MATRIX else None


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
