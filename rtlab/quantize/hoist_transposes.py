"""A pointwise node before the transposition that it reads: the same numbers, with the layout changed behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: Operators that compute each number from those of its own place.
_POINTWISE = frozenset({
    "Abs", "Add", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max",
    "Min", "Mish", "Mul", "Neg", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh",
})  # fmt: skip


def find_permutation(model: Model, node: Node) -> tuple[int, ...]:
    """How the transposition before a pointwise node permutes; empty where there is none that it could stand before."""
    if node.op not in _POINTWISE or node.scope or any(node.outputs[1:]):
        return ()
    permutation = next((p for v in node.inputs if (p := _get_permutation(model, v))), ())
    return (
        permutation
        if permutation and all(_is_transposable(model, v, len(permutation)) for v in node.inputs)
        else ()
    )


def lift(edit: Edit, node: str, permutation: tuple[int, ...]) -> None:
    """Put the same operator before a transposition, under its id, and one behind it.

    What the node reads beside is transposed the other way, where it is not itself transposed like that.
    """
    original, out = edit.nodes[node], edit.nodes[node].outputs[0]
    inverse = tuple(int(i) for i in np.argsort(permutation))
    inputs = list(_iter_lifted_inputs(edit, original, permutation, inverse))
    lifted_output = edit.insert(
        original.op_type, f"{node}/lifted", inputs, origin=node, like=out, before=node
    )
    lifted_output.shape = _permute_shape(out.shape, inverse)
    maker = lifted_output.producer()
    assert maker is not None  # noqa: S101 - it was just made
    for name, attribute in original.attributes.items():
        maker.attributes[name] = attribute
    perm = {"perm": list(permutation)}
    back = edit.insert(
        "Transpose", f"{node}/moved", [lifted_output], origin=node, like=out, before=node, attrs=perm
    )
    edit.substitute(back, original)
    maker.name = node
    edit.sort_and_reindex()


def _iter_lifted_inputs(
    edit: Edit, original: ir.Node, permutation: tuple[int, ...], inverse: tuple[int, ...]
) -> Iterator[ir.Value]:
    """What a node reads, as it is before the transposition."""
    model, node = edit.model, original.name or ""
    for position, value in enumerate(original.inputs):
        name = (value.name or "") if value is not None else ""
        maker = value.producer() if value is not None else None
        if maker is not None and _get_permutation(model, name) == permutation and maker.inputs[0] is not None:
            yield maker.inputs[0]
        elif name in model.known:
            array = model.known[name].numpy()
            expanded = array.reshape((1,) * (len(permutation) - array.ndim) + array.shape)
            is_scalar = array.ndim == 0
            yield (
                edit.values[name]
                if is_scalar
                else edit.add_constant(f"{name}/moved", expanded.transpose(inverse))
            )
        elif value is None:
            yield value  # type: ignore[misc] # an input that is left out
        else:
            transpose_attributes = {"perm": list(inverse)}
            title = f"{node}/moved_{position}"
            transposed_value = edit.insert(
                "Transpose", title, [value], origin=node, before=node, attrs=transpose_attributes
            )
            transposed_value.shape = _permute_shape(value.shape, inverse)
            yield transposed_value


def _get_permutation(model: Model, value: str) -> tuple[int, ...]:
    """How the transposition that writes a value permutes; empty where none does."""
    maker = model.producers.get(value)
    if maker is None or maker.op != "Transpose":
        return ()
    permutation = maker.attributes.get("perm")
    rank = len(model.values[value].shape or ())
    return tuple(permutation) if isinstance(permutation, (list, tuple)) else tuple(reversed(range(rank)))


def _is_transposable(model: Model, value: str, rank: int) -> bool:
    """Whether a value can be transposed: it has all dimensions, or is constant and gets those that it lacks."""
    return not value or value in model.known or len(model.values[value].shape or ()) == rank


def _permute_shape(shape: ir.Shape | None, by: tuple[int, ...]) -> ir.Shape | None:
    return None if shape is None or len(shape) != len(by) else ir.Shape([shape[i] for i in by])
