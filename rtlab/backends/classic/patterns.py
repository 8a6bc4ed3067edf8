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


def _halved(inner: Any) -> tuple[Any, ...]:
    """``x · inner / 2``, in any order of the products."""
    return (
        ("Mul", ("Mul", X, inner), C),
        ("Mul", X, ("Mul", inner, C)),
        ("Mul", ("Mul", X, C), inner),
    )


#: By what it becomes: its trees, the largest first, so that the part of another is not taken for it.
PATTERNS: tuple[tuple[str, Any], ...] = (
    *(("Gelu", tree) for inner in (_ERF, _ERF_MUL, _TANH) for tree in _halved(inner)),
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
    taken: list[NetworkLayer] = []
    bound = _bind(network, root, tree, "", taken, top=True)
    if bound is None or not bound:
        return None
    inside = set(map(id, taken))
    for layer in taken[1:]:
        if any(v in network.outputs for v in layer.writes):
            return None
        if any(id(r) not in inside for r in network.following(layer)):
            return None
    return sorted(taken, key=lambda y: y.node.index), bound


def _bind(
    network: Network,
    layer: NetworkLayer | None,
    tree: Any,
    bound: str,
    taken: list[NetworkLayer],
    *,
    top: bool = False,
) -> str | None:
    """What ``X`` stands for, where a layer is a tree; None where it is not. ``taken`` grows by what was met."""
    if layer is None or layer.kind != tree[0] or len(layer.ops) != 1 or (layer in taken and not top):
        return None
    parts = tree[1:]
    given = list(layer.node.inputs[: len(parts)])
    if len(given) < len(parts):
        return None
    orders = [given, given[::-1]] if tree[0] in _EITHER and len(given) == 2 else [given]
    for order in orders:
        mark, found = len(taken), bound
        taken.append(layer)
        good = True
        for value, part in zip(order, parts, strict=True):
            if part == C:
                good = value in network.constants
            elif part == X:
                good = value not in network.constants and found in {"", value}
                found = found or value
            else:
                inner = _bind(network, network.writer.get(value), part, found, taken)
                good, found = inner is not None, inner or found
            if not good:
                break
        if good:
            return found
        del taken[mark:]
    return None
