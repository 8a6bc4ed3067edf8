"""What a language model takes to read a prompt and to write tokens: bounds from sizes alone.

Reading a prompt (prefill) multiplies all of its tokens with each weight once; writing a token (decode) reads every
weight, and the keys and values of all tokens before it. Per token, weights take two operations each, the two products
of an attention four per head, channel and earlier token. A time is the longer of operations by the peak rate and bytes
by the bandwidth (Williams, Waterman, Patterson 2009): no processor is faster, most reach a part of it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, NamedTuple

from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.roofline.estimate import pick_default_gpu
from rtlab.core.schema import FieldMeta
from rtlab.errors import ModelError
from rtlab.relation.attention import AttentionSummary, list_attentions
from rtlab.relation.footprint import nbytes

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.peaks import Peaks

_KEPT = "keys and values of all layers, in {self.cached}"
_EVERY = "all that products read for each token, in the type of each; of an embedding only rows are read"
_RATE = "at batch 1: no more than {self.gpu} allows, most kernels reach a part of it"


@dataclasses.dataclass(frozen=True)
class Generation:
    """Reading a prompt of ``length`` tokens and writing one behind it, at the peaks of ``gpu``.

    ``intensity`` is operations per byte moved, ``rate`` tokens per second at most. ``cached`` is the type of keys and
    values.
    """

    attentions: Annotated[int, FieldMeta("Attentions", note="{self.shape}")]
    length: Annotated[int, FieldMeta("Tokens of the prompt", note="the length that the model is built for")]
    weights: Annotated[int, FieldMeta("Weights read per token", "B", "estimated", note=_EVERY)]
    cache_token: Annotated[int, FieldMeta("Key-value cache per token", "B", "estimated", note=_KEPT)]
    cache: Annotated[int, FieldMeta("Key-value cache", "B", "estimated", note="of {self.length} tokens")]
    prefill_intensity: Annotated[float, FieldMeta("Prefill: intensity", "FLOP/byte", "estimated")]
    prefill_bound: Annotated[str, FieldMeta("Prefill: bound by", origin="estimated")]
    prefill_rate: Annotated[float, FieldMeta("Prefill: tokens per second", "/s", "estimated", note=_RATE)]
    decode_intensity: Annotated[float, FieldMeta("Decode: intensity", "FLOP/byte", "estimated")]
    decode_bound: Annotated[str, FieldMeta("Decode: bound by", origin="estimated")]
    decode_rate: Annotated[float, FieldMeta("Decode: tokens per second", "/s", "estimated", note=_RATE)]
    gpu: Annotated[str, FieldMeta("GPU")]
    cached: str
    shape: str


def generates_text(model: Model) -> bool:
    """Whether a model attends, looks up token ids in a table, and scores as many tokens as the table has rows."""
    return any(n.op in {"Softmax", "Attention"} for n in model.top) and _find_tokens(model) is not None


def analyze_generation(context: PanelContext) -> Generation:
    """The bounds of a variant on the GPU that it is built for.

    Raises:
        ModelError: it is no language model, or the sizes of its attentions are not known.
    """
    model, facts = context.model, context.result
    tokens, attentions = _find_tokens(model), list_attentions(model)
    if tokens is None or not attentions:
        raise ModelError(
            f'Cannot estimate the generation of "{model.name}": it looks up no token ids in a table whose rows it '
            "scores, or attends to nothing. Choose a language model with its head."
        )
    ids = model.sizes().get(tokens.inputs[1])
    if not ids or not all(a.heads and a.head_size and a.kv_heads for a in attentions):
        raise ModelError(
            f'Cannot estimate the generation of "{model.name}": heads, their size or the length of the prompt are not '
            "known. Name the sizes of dynamic inputs, as rtlab.load(path, shapes=...) takes them."
        )
    types = {n.id: str(p) for n in model.top if (p := facts.prepared.precisions.get(n.id)) is not None}
    # Keys and values have the type of what computes them, if that is half; nothing caches narrower ones by itself.
    cached = "fp16" if {"fp16", "bf16"} & {*types.values()} else "fp32"
    return _estimate(attentions, ids[-1], _weigh(model, types), cached, pick_default_gpu(facts.engine))


def _find_tokens(model: Model) -> Node | None:
    """The lookup of token ids: of a constant table with as many rows as an output of the model has scores."""
    scores = {s[-1] for name in model.outputs if (s := model.values[name].shape)}
    for node in model.top:
        if node.op == "Gather" and len(node.inputs) > 1 and node.inputs[0] in model.known:
            shape = tuple(model.known[node.inputs[0]].shape)
            if len(shape) == 2 and shape[0] in scores:
                return node
    return None


def _weigh(model: Model, types: dict[str, str]) -> tuple[int, int]:
    """Bytes and count of the weights of all products, each constant once; quantized ones in the type of their node."""
    size = count = 0
    seen: set[str] = set()
    for node in model.top:
        for value in node.inputs if node.op in {"MatMul", "Gemm", "MatMulNBits"} else ():
            tensor = model.known.get(value)
            if tensor is None or value in seen or len(tuple(tensor.shape)) < 2:
                continue
            seen.add(value)
            shape = [d for d in tuple(tensor.shape) if isinstance(d, int)]
            size += nbytes(types.get(node.id, model.values[value].dtype), shape) or 0
            count += nbytes("int8", shape) or 0
    return size, count


def _estimate(
    attentions: tuple[AttentionSummary, ...], length: int, weighed: tuple[int, int], cached: str, gpu: Peaks
) -> Generation:
    weights, numbers = weighed
    heads = [(a.heads or 0, a.kv_heads or 0, a.head_size or 0) for a in attentions]
    token = sum(2 * (nbytes(cached, (kv, size)) or 0) for _, kv, size in heads)
    # Of the products of attention: two operations for scores and two for what they weigh, per earlier token.
    attended = sum(4 * count * size for count, _, size in heads)
    moved = weights + length * token
    decode = _bound(2 * numbers + length * attended, moved, cached, gpu)
    prefill = _bound(length * (2 * numbers + length * attended), moved, cached, gpu)
    count, kv, size = heads[0]
    return Generation(
        attentions=len(heads),
        length=length,
        weights=weights,
        cache_token=token,
        cache=length * token,
        prefill_intensity=prefill.intensity,
        prefill_bound=prefill.name,
        prefill_rate=length / prefill.seconds,
        decode_intensity=decode.intensity,
        decode_bound=decode.name,
        decode_rate=1 / decode.seconds,
        gpu=gpu.name,
        cached=cached,
        shape=f"{count} heads of {size}, {kv} of keys and values",
    )


class _Phase(NamedTuple):
    """Operations per byte, what bounds a phase, and the seconds that it takes at least."""

    intensity: float
    name: str
    seconds: float


def _bound(flops: int, moved: int, dtype: str, gpu: Peaks) -> _Phase:
    arithmetic, memory = flops / gpu.rate(dtype, matrix=True)[0], moved / gpu.bandwidth
    return _Phase(flops / moved, "arithmetic" if arithmetic > memory else "memory", max(arithmetic, memory))
