"""Guards behind softmaxes, which replace what is no number, where every softmax gives numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtlab.quantize import passes

if TYPE_CHECKING:
    from collections.abc import Collection

    from rtlab.core.attention import Attention
    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

#: What keeps numbers as they are on the way from a mask.
_VIEWS = frozenset({"Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def is_idle(model: Model, attention: Attention) -> bool:
    """Whether a guard replaces nothing: scores of numbers stay numbers, for no mask of theirs is infinite.

    A row of nothing but minus infinity has no softmax; one of the lowest number has one. A mask of numbers is added at
    most once, last, so that no sum with it overflows.
    """
    guard = model.producers[attention.context.inputs[0]]
    lost = model.producers.get(guard.inputs[0]) if guard.op == "Where" else None
    shares = model.by_id[attention.softmax].outputs[0]
    if lost is None or lost.op != "IsNaN" or (*lost.inputs, guard.inputs[2]) != (shares, shares):
        return False
    node = model.producers[model.by_id[attention.softmax].inputs[0]]
    if node.op == "Add":
        data = [v for v in node.inputs if not _is_finite(model, v)]
        if len(data) != 1 or data[0] not in model.producers:
            return False
        node = model.producers[data[0]]
    while node.op in {"Mul", "Div"} and node.inputs[1] in model.known and node.inputs[0] in model.producers:
        node = model.producers[node.inputs[0]]
    return node.id == attention.scores.id


def _is_finite(model: Model, value: str) -> bool:
    """Whether a value is a constant, or chosen from constants, without an infinite number."""
    if value in model.known:
        return bool(np.isfinite(np.asarray(model.known[value].numpy(), np.float32)).all())
    node = model.producers.get(value)
    if node is None:
        return False
    if node.op == "Where":
        return all(_is_finite(model, v) for v in node.inputs[1:])
    return node.op in _VIEWS and _is_finite(model, node.inputs[0])


def pass_by(attentions: Collection[Attention]) -> passes.Pass:
    """Let second products read what the softmax writes; the guards stay, unread."""

    def edit_graph(edit: Edit) -> None:
        for attention in attentions:
            shares = edit.nodes[attention.softmax].outputs[0]
            edit.set_input(attention.context.id, 0, shares)

    what = "guard" if len(attentions) == 1 else "guards"
    note = f"{len(attentions)} {what} behind a softmax left out: no mask is infinite, so that it gives numbers only"
    promises = (*passes.INSERTION_PROMISES, passes.PRODUCTS, passes.NUMBERS)
    return passes.Pass("guards passed by", edit_graph, promises, notes=(note,))
