"""The attention that a fused layer computes: heads, their size, and the mask on the scores."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rtlab.core.attention import find_scores
from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.node import Node

#: What TensorRT writes into the name of a layer that computes attention whole: ``_gemm_mha_v2``, ``_gemv_mha_v1``.
_FUSED = re.compile(r"_(gemm|gemv)_mha_v\d")
#: Between what is computed of keys and the product that reads them: they are repeated for queries that share them.
_KEY_PATH = frozenset({"Transpose", "Reshape", "Expand", "Unsqueeze", "Cast", "Identity", "Mul"})
#: A score this low has no weight behind a softmax in any type.
_CLOSED = -1e4


@dataclasses.dataclass(frozen=True)
class AttentionSummary:
    """What is known of one attention; None and empty where the model's shapes or nodes do not tell it.

    ``mask`` is "causal", "constant", "computed", "boolean" or "no", empty where not told. ``kv_heads`` are those of
    keys and values, which several queries may share.
    """

    heads: int | None
    head_size: int | None
    mask: str
    kv_heads: int | None = None

    def __str__(self) -> str:
        heads = f"{self.heads} heads" if self.heads else ""
        size = f"of {self.head_size}" if self.head_size else ""
        return ", ".join(
            filter(None, (" ".join(filter(None, (heads, size))), self.mask and f"{self.mask} mask"))
        )


def find_attention(layer: Layer, nodes: Sequence[Node], model: Model) -> AttentionSummary | None:
    """The attention of a layer that TensorRT names so and that runs these nodes; None of any other layer."""
    if not _FUSED.search(layer.name):
        return None
    if whole := next((n for n in nodes if n.op == "Attention"), None):
        return _read_operator(whole, model)
    softmax = next((n for n in nodes if n.op == "Softmax"), None)
    return AttentionSummary(None, None, "") if softmax is None else _read_softmax(softmax, model)[0]


def list_attentions(model: Model) -> tuple[AttentionSummary, ...]:
    """The attentions of a model's main graph: Softmax of a product, and ONNX's own operator."""
    attentions = []
    for node in model.top:
        if node.op == "Attention":
            attentions.append(_read_operator(node, model))
        elif node.op == "Softmax":
            attention, product = _read_softmax(node, model)
            if product is not None:
                attentions.append(attention)
    return tuple(attentions)


def _read_softmax(softmax: Node, model: Model) -> tuple[AttentionSummary, Node | None]:
    """The attention around a softmax, and the product of queries and keys, None where there is none."""
    scores = _shape(model, softmax.inputs[0])
    # Of three dimensions the first has samples and heads in one.
    heads = scores[1] if scores is not None and len(scores) == 4 else None
    product = find_scores(model, softmax.inputs[0])
    masks = [] if product is None else _list_masks(softmax, product, model)
    queries = _shape(model, product.inputs[0]) if product is not None else None
    mask = "" if product is None else "no"
    if masks:
        mask = "boolean" if any(n.op == "Where" for n, _ in masks) else _describe_mask(masks[0][1], model)
    shared = _count_sharing(product.inputs[1], model) if product is not None else 1
    kv_heads = heads // shared if heads else None
    return AttentionSummary(heads, queries[-1] if queries else None, mask, kv_heads), product


def _count_sharing(keys: str, model: Model) -> int:
    """How many heads of queries share a head of these keys: how often an Expand before repeats them."""
    node = model.producers.get(keys)
    while node is not None and node.op in _KEY_PATH:
        if node.op == "Expand":
            before, after = _shape(model, node.inputs[0]), _shape(model, node.outputs[0])
            if before and after and len(before) == len(after) == 5:
                return math.prod(after) // math.prod(before)
        node = model.producers.get(node.inputs[0])
    return 1


def _shape(model: Model, name: str) -> tuple[int, ...] | None:
    return model.sizes().get(name)


def _list_masks(softmax: Node, product: Node, model: Model) -> list[tuple[Node, str]]:
    """The nodes between a product and its softmax that mask, the last first, each with the value that does."""
    masks: list[tuple[Node, str]] = []
    node: Node | None = model.producers.get(softmax.inputs[0])
    while node is not None and node.id != product.id:
        data = next(v for v in node.inputs if v and (end := find_scores(model, v)) and end.id == product.id)
        if node.op in {"Add", "Where"}:
            masks.append((node, next((v for v in node.inputs if v != data), "")))
        node = model.producers.get(data)
    return masks


def _describe_mask(value: str, model: Model) -> str:
    """What a mask is that is added to the scores: where it is constant and closes all that follows, it is causal."""
    tensor = model.known.get(value)
    if tensor is None:
        return "computed"
    # What onnx-ir holds numbers in is told apart by identity.
    return "causal" if _is_causal(tensor) else "constant"  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4)
def _is_causal(tensor: ir.TensorProtocol) -> bool:
    mask = np.asarray(tensor.numpy(), np.float32)
    if mask.ndim < 2 or mask.shape[-1] < 2:
        return False
    later = np.triu(np.ones(mask.shape[-2:], bool), 1 + mask.shape[-1] - mask.shape[-2])
    return bool((mask[..., later] <= _CLOSED).all() and (mask[..., ~later] == 0).all())


def _read_operator(node: Node, model: Model) -> AttentionSummary:
    """Of the operator that ONNX has since its version 23."""
    queries = _shape(model, node.inputs[0])
    count = node.attributes.get("q_num_heads")
    heads = count if isinstance(count, int) else queries[1] if queries and len(queries) == 4 else None
    size = None
    if queries:
        size = queries[-1] if len(queries) == 4 else queries[-1] // heads if heads else None
    given = len(node.inputs) > 3 and node.inputs[3]
    mask = _describe_mask(node.inputs[3], model) if given else "no"
    keys, kv = _shape(model, node.inputs[1]), node.attributes.get("kv_num_heads")
    kv_heads = kv if isinstance(kv, int) else keys[1] if keys and len(keys) == 4 else None
    return AttentionSummary(
        heads, size, "causal" if node.attributes.get("is_causal") == 1 else mask, kv_heads
    )
