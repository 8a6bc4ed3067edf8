"""2:4 sparsity: of every four neighbouring weights along the summed axis, two are zero.

Tensor cores from compute capability 8.0 on skip those zeros (NVIDIA, "Accelerating Sparse Deep Neural
Networks", arXiv 2104.08378). TensorRT looks for the pattern when it is built with SPARSE_WEIGHTS; what it finds
along the axes reported here, it may run with sparse kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.value import dtype_text, shape_text
from rtlab.errors import ModelError, VariantError
from rtlab.quantize import passes
from rtlab.quantize.assign import match_nodes
from rtlab.quantize.placement import WEIGHTED, get_weight_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: Neighbours among which two are zero.
_GROUP = 4
_NONZERO = 2
_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}


@dataclasses.dataclass(frozen=True)
class SparseWeight:
    """The weight of one node, and how far it follows the pattern.

    ``share`` of the fours along the summed ``axis`` have two zeros or more, from 0 to 1. ``why`` says why the weight
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
    """The constant weights of convolutions and products in the main graph, in its order."""
    return tuple(w for node in model.top if (w := _inspect_weight(model, node)) is not None)


def select_prunable_weights(model: Model, patterns: Iterable[str]) -> tuple[SparseWeight, ...]:
    """The weights that can be pruned, of the nodes that patterns mean as those of pins do, in graph order.

    Raises:
        VariantError: a pattern means no node, or none that can be pruned, except ``*``.
    """
    patterns = tuple(patterns)
    # To find weights, every one is read.
    weights = {w.node: w for w in find(model)} if patterns else {}
    chosen_nodes: set[str] = set()
    for pattern in patterns:
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
    names, but for the pruned weights.

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
    """The pass of ``prune``; ``weights`` are the nodes that read a constant, by its name and their summed axis."""

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        for (value, axis), nodes in weights.items():
            array = _prune_weight(np.asarray(model.known[value].numpy()), axis, value=value, node=nodes[0])
            pruned = edit.add_constant(f"{value}/2:4", array)
            for node in nodes:
                for i, name in enumerate(model.by_id[node].inputs):
                    if name == value:
                        edit.set_input(node, i, pruned)

    return passes.Pass("2:4 sparsity", edit_graph, passes.INSERTION_PROMISES)


def compute_mask(weight: NDArray[Any], axis: int) -> NDArray[np.bool_]:
    """Where the two largest magnitudes of every four along ``axis`` are; of equal ones the first.

    ``axis`` is a multiple of four long. The mask has the weight's shape, with exactly two of every four true.
    """
    last_axis_weight = np.moveaxis(weight, axis, -1)
    fours = np.abs(last_axis_weight).reshape(-1, _GROUP).T
    mask = np.empty(fours.shape, np.bool_)
    for i, magnitude in enumerate(fours):
        # The rank of an element is the number of those before it; sorting rows of four takes ten times as long.
        rank = sum(
            (m >= magnitude if j < i else m > magnitude).astype(np.uint8)
            for j, m in enumerate(fours)
            if j != i
        )
        mask[i] = rank < _NONZERO
    return np.moveaxis(mask.T.reshape(last_axis_weight.shape), -1, axis)


def _prune_weight(weight: NDArray[Any], axis: int, *, value: str, node: str) -> NDArray[Any]:
    if not np.isfinite(weight).all():
        raise ModelError(
            f'Cannot prune weight "{value}" of node "{node}": it holds NaN or infinity. '
            "Repair the weight and export the model again."
        )
    # What is zero already stays as it is, down to its sign.
    return np.where(compute_mask(weight, axis) | (weight == 0), weight, np.zeros((), weight.dtype))


def _inspect_weight(model: Model, node: Node) -> SparseWeight | None:
    if node.op not in WEIGHTED or node.domain not in ONNX_DOMAINS:
        return None
    # The usual position of the weight first.
    positions = (1, 0) if node.op in {"Gemm", "MatMul"} else (1,)
    position = next((i for i in positions if node.inputs[i] in model.known), None)
    if position is None:
        return None
    tensor = model.known[node.inputs[position]]
    shape = tuple(tensor.shape.numpy())
    _, axis = get_weight_axes(node, len(shape), position)
    if not 0 <= axis < len(shape):
        return None
    reason = _explain_ineligible(node, tensor, shape, axis)
    share = _compute_sparse_share(tensor.numpy(), axis) if not reason else 0.0
    return SparseWeight(node.id, node.inputs[position], shape, axis, share, reason)


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


def _compute_sparse_share(weight: NDArray[Any], axis: int) -> float:
    """The share of fours with two zeros or more."""
    zeros = np.moveaxis(weight == 0, axis, -1).reshape(-1, _GROUP).sum(axis=1)
    return int(np.count_nonzero(zeros >= _GROUP - _NONZERO)) / len(zeros)


def _explain_no_weight(matched_nodes: list[str], weights: Mapping[str, SparseWeight]) -> str:
    if not matched_nodes:
        return "no node of the main graph has an id, a name or an operator like this"
    reasons = [f'"{n}": {weights[n].why}' for n in matched_nodes if n in weights]
    return reasons[0] if reasons else f'"{matched_nodes[0]}" has no constant weight'
