"""Dimensions that exporters write as arithmetic of symbols, such as ``past_sequence_length + 1`` or ``2*s0``."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping

#: Dimensions that are computed of others by convention, where a model has these too.
_CONVENTIONS = {"total_sequence_length": "past_sequence_length + sequence_length"}
#: A size that is large enough to read a slope from, also where it is divided.
_FAR = 1 << 20
#: Whole numbers, names, and the four operations; a division is rounded down.
_ARITHMETIC = re.compile(r"(?:\b[A-Za-z_]\w*\b|\b\d{1,18}\b|//|[-+*/() ]){1,200}")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


@functools.lru_cache(maxsize=4096)
def _parse(dim: str) -> ast.BinOp | None:
    """The syntax tree of arithmetic; None for a plain name, and for what is no arithmetic of whole numbers."""
    if not _ARITHMETIC.fullmatch(dim):
        return None
    try:
        tree = ast.parse(dim.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    plain = (ast.BinOp, ast.Name, ast.Load, *_OPERATORS)
    whole = all(isinstance(n, plain) or type(getattr(n, "value", None)) is int for n in ast.walk(tree))
    return tree if isinstance(tree, ast.BinOp) and whole and _list_names(tree) else None


def _list_names(tree: ast.AST) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))


def list_names(dim: str) -> tuple[str, ...]:
    """The symbols of which a dimension is computed, or itself where it is one."""
    tree = _parse(dim)
    return (dim,) if tree is None else _list_names(tree)


def list_symbols(dims: Iterable[str]) -> tuple[str, ...]:
    """The symbols from which all of these dimensions follow, once each, in the order in which they occur."""
    symbols = dict.fromkeys(name for dim in dims for name in list_names(dim))
    derived = {d for d, text in _CONVENTIONS.items() if all(name in symbols for name in list_names(text))}
    return tuple(s for s in symbols if s not in derived)


def substitute(dim: str, texts: Mapping[str, str]) -> str:
    """A dimension with other symbols, or sums of them, in the place of some of its own."""
    if dim in texts or _parse(dim) is None:
        return texts.get(dim, dim)
    return re.sub(r"\b[A-Za-z_]\w*", lambda m: f"({texts[m[0]]})" if m[0] in texts else m[0], dim)


def evaluate(dim: str, symbols: Mapping[str, int]) -> int | None:
    """The size of a dimension at these sizes of symbols; None where one is missing, or it is divided by zero."""
    if dim in symbols:
        return symbols[dim]
    tree = _parse(_CONVENTIONS.get(dim, dim))
    return None if tree is None else _evaluate(tree, symbols)


def solve(dim: str, size: int, symbols: Mapping[str, int]) -> dict[str, int]:
    """The size of the only symbol of a dimension that has none yet, so that the dimension has this size; else empty."""
    unknown = [name for name in list_names(dim) if name not in symbols]
    if len(unknown) != 1:
        return {}
    (name,) = unknown
    symbols = {s: n for s, n in symbols.items() if s != dim}
    at_zero, far = (evaluate(dim, {**symbols, name: n}) for n in (0, _FAR))
    if at_zero is None or far is None or at_zero == far:
        return {}
    solution = round((size - at_zero) * _FAR / (far - at_zero))
    return {name: solution} if evaluate(dim, {**symbols, name: solution}) == size else {}


def _evaluate(tree: ast.expr, symbols: Mapping[str, int]) -> int | None:
    if isinstance(tree, ast.Name):
        return symbols.get(tree.id)
    if isinstance(tree, ast.Constant):
        return int(tree.value)  # type: ignore[arg-type]  # a whole number, as parsed
    assert isinstance(tree, ast.BinOp)  # noqa: S101 - nothing else is parsed
    left, right = _evaluate(tree.left, symbols), _evaluate(tree.right, symbols)
    if left is None or right is None or (not right and isinstance(tree.op, ast.FloorDiv | ast.Div)):
        return None
    return _OPERATORS[type(tree.op)](left, right)
