"""2:4 sparsity: of every four neighbouring weights along the summed axis, two are zero.

Tensor cores from compute capability 8.0 on skip those zeros (NVIDIA, "Accelerating Sparse Deep Neural
Networks", arXiv 2104.08378). TensorRT looks for the pattern when it is built with SPARSE_WEIGHTS; what it finds
along the axes reported here, it may run with sparse kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.value import dtype_text, shape_text
from rtlab.errors import ModelError, VariantError
from rtlab.quantize import passes
from rtlab.quantize.assign import match_nodes
from rtlab.quantize.blocks import iter_blocks
from rtlab.quantize.placement import WEIGHTED, find_captured_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: Neighbours among which two are zero.
_GROUP = 4
_NONZERO = 2
_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
#: Groups that are ranked in one piece, so that a large weight needs little more than itself.
_PIECE = 1 << 18


@dataclasses.dataclass(frozen=True)
class SparseWeight:
    """The weight of one node, and how far it follows the pattern.

    ``axis`` is the one that is summed over, along which fours are counted: input channels of a convolution, K of
    a product. ``share`` of the fours have two zeros or more, a number from 0 to 1. ``why`` says why the weight
    cannot follow the pattern; it is empty where it can.
    """

    node: str
    value: str
    shape: tuple[int, ...]
    axis: int
    share: float
    why: str = ""

    @property
    def eligible(self) -> bool:
        """Whether the weight can follow the pattern."""
        return not self.why

    @property
    def is_sparse(self) -> bool:
        """Whether it does, throughout."""
        return self.eligible and self.share == 1.0


def find(model: Model) -> tuple[SparseWeight, ...]:
    """The constant weights of convolutions and products in the main graph, in its order.

    ``share`` is 0 for a weight whose fours are not whole.
    """
    tensors = model.known
    return tuple(w for node in model.top if (w := _inspect_weight(model, node, tensors)) is not None)


def select_prunable_weights(model: Model, patterns: Iterable[str]) -> tuple[SparseWeight, ...]:
    """The weights that can be pruned, of the nodes that a pattern means, in graph order.

    A pattern is a node's id or name, in which ``*`` and ``?`` stand for any characters, or ``op:Conv`` for an
    operator.

    Raises:
        VariantError: a pattern means no node, or none that can be pruned, except ``*``.
    """
    requested_patterns = tuple(patterns)
    # To find them, every weight is read.
    weights = {w.node: w for w in find(model)} if requested_patterns else {}
    chosen_nodes: set[str] = set()
    for pattern in requested_patterns:
        matched_nodes = [*match_nodes(model, pattern)]
        prunable = [n for n in matched_nodes if n in weights and weights[n].eligible]
        if not prunable and pattern != "*":
            raise VariantError(
                f'Cannot prune "{pattern}" in model "{model.name}": {_explain_no_weight(matched_nodes, weights)}. '
                "Choose among the eligible weights of rtlab.quantize.sparsity.find(model)."
            )
        chosen_nodes.update(prunable)
    return tuple(w for n, w in weights.items() if n in chosen_nodes)


def prune(model: Model, weights: Iterable[SparseWeight]) -> Model:
    """The model, or a new one with the two smallest magnitudes of every four of these weights zero.

    Of equal magnitudes the last becomes zero, and a four that has two zeros is not touched. Nodes and values keep their
    names, so results join with those of the source. Where somebody else reads the same weight, the pruned nodes get a
    copy of their own.

    Raises:
        ModelError: a weight holds NaN or infinity.
    """
    by_value: dict[tuple[str, int], list[SparseWeight]] = {}
    for weight in weights:
        by_value.setdefault((weight.value, weight.axis), []).append(weight)
    todo = {
        k: tuple(w.node for w in users)
        for k, users in by_value.items()
        if not all(w.is_sparse for w in users)
    }
    return passes.run(model, [prune_weights(todo)], keep_origins=True) if todo else model


def prune_weights(weights: Mapping[tuple[str, int], tuple[str, ...]]) -> passes.Pass:
    """The two smallest magnitudes of every four become zero, of equal ones the last.

    Applied, it raises ModelError where a weight holds NaN or infinity.

    Args:
        weights: The nodes that read a constant, by its name and the axis that they sum over.
    """

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        outside = find_captured_values(model) | set(model.outputs)
        for (value, axis), nodes in weights.items():
            array = _prune_weight(np.asarray(model.known[value].numpy()), axis, value=value, node=nodes[0])
            # As it is now: nodes that sum over another axis may have a copy of their own already.
            readers = {use.node.name for use in edit.values[value].uses()}
            if readers <= {*nodes} and value not in outside and edit.is_constant(value):
                edit.replace(value, array)
                continue
            pruned_constant = edit.add_constant(f"{value}/2:4", array)
            for node in nodes:
                for i, input_name in enumerate(model.by_id[node].inputs):
                    if input_name == value:
                        edit.set_input(node, i, pruned_constant)

    changes = "the smaller half of each four weights becomes zero"
    return passes.Pass("2:4 sparsity", edit_graph, passes.INSERTION_PROMISES, changes=changes)


def compute_mask(weight: NDArray[Any], axis: int) -> NDArray[np.bool_]:
    """Where the two largest magnitudes of every four along ``axis`` are; of equal ones the first.

    Args:
        weight: Any shape whose size along ``axis`` is a multiple of four.
        axis: The summed axis.

    Returns:
        The weight's shape, with exactly two of every four true.
    """
    last_axis_weight = np.moveaxis(weight, axis, -1)
    fours = np.abs(last_axis_weight).reshape(-1, _GROUP)
    nonzero_mask = np.empty(fours.shape, np.bool_)
    for start in range(0, len(fours), _PIECE):
        columns = np.ascontiguousarray(fours[start : start + _PIECE].T)
        # The bits of magnitudes are in the order of the magnitudes, and FP16 is slow to compare.
        columns = columns.view(f"u{columns.itemsize}")
        for i in range(_GROUP):
            # An element's rank is the number of those that go before it. Sorting rows of four takes ten times as long.
            rank = np.zeros(columns.shape[1], np.uint8)
            for j in range(_GROUP):
                if i != j:
                    rank += columns[j] >= columns[i] if j < i else columns[j] > columns[i]
            nonzero_mask[start : start + _PIECE, i] = rank < _NONZERO
    return np.moveaxis(nonzero_mask.reshape(last_axis_weight.shape), -1, axis)


def _prune_weight(weight: NDArray[Any], axis: int, *, value: str, node: str) -> NDArray[Any]:
    if not all(np.isfinite(weight[part]).all() for part in iter_blocks(weight.shape)):
        raise ModelError(
            f'Cannot prune weight "{value}" of node "{node}": it holds NaN or infinity. '
            "Repair the weight and export the model again."
        )
    pruned_weight = np.empty(weight.shape, weight.dtype)
    for part in iter_blocks(weight.shape, along=0 if axis else weight.ndim - 1):
        piece = weight[part]
        # What is zero already stays as it is, down to its sign.
        pruned_weight[part] = np.where(
            compute_mask(piece, axis) | (piece == 0), piece, np.zeros((), weight.dtype)
        )
    return pruned_weight


def _inspect_weight(
    model: Model, node: Node, tensors: Mapping[str, ir.TensorProtocol]
) -> SparseWeight | None:
    if node.op not in WEIGHTED or node.domain not in ONNX_DOMAINS:
        return None
    position = next((i for i in _iter_weight_positions(node) if node.inputs[i] in tensors), None)
    if position is None:
        return _inspect_quantized_weight(model, node, tensors)
    value = node.inputs[position]
    tensor = tensors[value]
    shape = tuple(tensor.shape.numpy())
    axis = _get_reduction_axis(node, position, len(shape))
    if not 0 <= axis < len(shape):
        return None
    reason = _explain_ineligible(node, tensor, shape, axis)
    share = _compute_sparse_share(tensor.numpy(), axis) if not reason else 0.0
    return SparseWeight(node.id, value, shape, axis, share, reason)


def _iter_weight_positions(node: Node) -> Iterator[int]:
    """Inputs that may be the weight, the usual one first."""
    if len(node.inputs) > 1:
        yield 1
        if node.op in {"Gemm", "MatMul"}:
            yield 0


def _get_reduction_axis(node: Node, position: int, rank: int) -> int:
    """The axis that the operator sums over."""
    if node.op == "Conv":
        return 1
    if node.op == "ConvTranspose":
        return 0
    if node.op == "Gemm":
        transposed = bool(node.attributes.get("transB" if position else "transA", 0))
        return int(transposed) if position else int(not transposed)
    return max(rank - 2, 0) if position else rank - 1


def _explain_ineligible(node: Node, tensor: ir.TensorProtocol, shape: tuple[int, ...], axis: int) -> str:
    if tensor.dtype not in _FLOATS:
        return f"the weight is {dtype_text(tensor.dtype)}, not fp16 or fp32"
    if 0 in shape:
        return "the weight is empty"
    groups = node.attributes.get("group", 1) if node.op in {"Conv", "ConvTranspose"} else 1
    groups = groups if isinstance(groups, int) else 1
    size = shape[axis] // groups if node.op == "ConvTranspose" else shape[axis]
    if groups > 1 and size == 1:
        return "depthwise: each output sums over one channel"
    if size % _GROUP:
        return f"it sums over {size} in {shape_text(shape)}, no multiple of {_GROUP}"
    return ""


def _inspect_quantized_weight(
    model: Model, node: Node, tensors: Mapping[str, ir.TensorProtocol]
) -> SparseWeight | None:
    """A weight that is stored as integers behind a DequantizeLinear, as in a prepared model."""
    for position in _iter_weight_positions(node):
        maker = model.producers.get(node.inputs[position])
        if maker is not None and maker.op == "DequantizeLinear" and maker.inputs[0] in tensors:
            tensor = tensors[maker.inputs[0]]
            shape = tuple(tensor.shape.numpy())
            axis = _get_reduction_axis(node, position, len(shape))
            symmetric = len(maker.inputs) < 3 or (
                maker.inputs[2] in tensors and not tensors[maker.inputs[2]].numpy().any()
            )
            is_divisible = 0 <= axis < len(shape) and 0 not in shape and shape[axis] % _GROUP == 0
            share = _compute_sparse_share(tensor.numpy(), axis) if symmetric and is_divisible else 0.0
            reason = (
                f"the weight is stored as {dtype_text(tensor.dtype)}: prune the model before it is quantized"
            )
            return SparseWeight(node.id, maker.inputs[0], shape, axis, share, reason)
    return None


def _compute_sparse_share(weight: NDArray[Any], axis: int) -> float:
    """The share of fours with two zeros or more."""
    sparse = 0
    for part in iter_blocks(weight.shape, along=0 if axis else weight.ndim - 1):
        zeros = weight[part] == 0
        if zeros.any():
            fours = np.moveaxis(zeros, axis, -1).reshape(-1, _GROUP).view(np.uint8)
            counts = fours[:, 0] + fours[:, 1] + fours[:, 2] + fours[:, 3]
            sparse += int(np.count_nonzero(counts >= _GROUP - _NONZERO))
    return sparse / (weight.size // _GROUP)


def _explain_no_weight(matched_nodes: list[str], weights: Mapping[str, SparseWeight]) -> str:
    if not matched_nodes:
        return "no node of the main graph has an id, a name or an operator like this"
    reasons = [f'"{n}": {weights[n].why}' for n in matched_nodes if n in weights]
    return reasons[0] if reasons else f'"{matched_nodes[0]}" has no constant weight'
