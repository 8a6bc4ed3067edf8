"""Reductions and activations that are written as several operators, and that TensorRT makes one layer of.

A pattern is a tree of operators from what it writes up to what it reads: ``X`` is one and the same value wherever it
stands, ``C`` a constant. Operands of sums and products may change places.
"""

from __future__ import annotations

from typing import Any

from rtlab.backends.classic.network import Network, NetworkLayer

X, C = "X", "C"
_EITHER = frozenset({"Add", "Mul"})

_ERF = ("Add", ("Erf", ("Div", X, C)), C)
_ERF_MUL = ("Add", ("Erf", ("Mul", X, C)), C)
_CUBE = ("Mul", ("Add", X, ("Mul", ("Pow", X, C), C)), C)
_TANH = ("Add", ("Tanh", _CUBE), C)


def _list_gelu_trees(inner: Any) -> tuple[Any, ...]:
    """``x · inner / 2``, in any order of the products."""
    return (
        ("Mul", ("Mul", X, inner), C),
        ("Mul", X, ("Mul", inner, C)),
        ("Mul", ("Mul", X, C), inner),
    )


#: By what it becomes: its trees, the largest first, so that the part of another is not taken for it.
PATTERNS: tuple[tuple[str, Any], ...] = (
    *(("Gelu", tree) for inner in (_ERF, _ERF_MUL, _TANH) for tree in _list_gelu_trees(inner)),
    ("LogSumExp", ("Log", ("ReduceSum", ("Exp", X)))),
    ("L2Norm", ("Sqrt", ("ReduceSum", ("Mul", X, X)))),
    ("L2Norm", ("Sqrt", ("ReduceSumSquare", X))),
    ("LogSum", ("Log", ("ReduceSum", X))),
    ("L1Norm", ("ReduceSum", ("Abs", X))),
    ("SumOfSquares", ("ReduceSum", ("Mul", X, X))),
)
ROOTS = frozenset(tree[0] for _, tree in PATTERNS)


def match(network: Network, root: NetworkLayer, tree: Any) -> tuple[list[NetworkLayer], str] | None:
    """The layers of a tree that ends in a layer, the first to run first, and the value that it reads; None without.

    Only the layers themselves may know of what is between them.
    """
    matched_layers: list[NetworkLayer] = []
    input_value = _match_tree(network, root, tree, "", matched_layers, top=True)
    if input_value is None or not input_value:
        return None
    matched_ids = set(map(id, matched_layers))
    for layer in matched_layers[1:]:
        if any(v in network.outputs for v in layer.writes):
            return None
        if any(id(r) not in matched_ids for r in network.get_consumers(layer)):
            return None
    return sorted(matched_layers, key=lambda y: y.node.index), input_value


def _match_tree(
    network: Network,
    layer: NetworkLayer | None,
    tree: Any,
    input_value: str,
    matched_layers: list[NetworkLayer],
    *,
    top: bool = False,
) -> str | None:
    """What ``X`` stands for, where a layer is a tree; None where it is not.

    ``matched_layers`` grows by what was met.
    """
    if layer is None or layer.kind != tree[0] or len(layer.ops) != 1 or (layer in matched_layers and not top):
        return None
    parts = tree[1:]
    operands = list(layer.node.inputs[: len(parts)])
    if len(operands) < len(parts):
        return None
    orders = [operands, operands[::-1]] if tree[0] in _EITHER and len(operands) == 2 else [operands]
    for order in orders:
        match_count, binding = len(matched_layers), input_value
        matched_layers.append(layer)
        is_match = True
        for value, part in zip(order, parts, strict=True):
            if part == C:
                is_match = value in network.constants
            elif part == X:
                is_match = value not in network.constants and binding in {"", value}
                binding = binding or value
            else:
                inner = _match_tree(network, network.writer.get(value), part, binding, matched_layers)
                is_match, binding = inner is not None, inner or binding
            if not is_match:
                break
        if is_match:
            return binding
        del matched_layers[match_count:]
    return None
