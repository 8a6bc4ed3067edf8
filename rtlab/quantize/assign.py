"""Precisions of nodes and calibrators of values, by a variant's patterns."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.core.phrases import quote_names
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: How a pattern starts that means operators instead of nodes.
_OPERATOR = "op:"


def assign(model: Model, variant: Variant) -> Mapping[str, Precision]:
    """The requested precision of each node of the main graph, by id.

    A pin's pattern is a node's id or name, in which ``*`` and ``?`` stand for any characters, or ``op:Conv`` for
    an operator. Of several pins that fit a node, the last counts; where none fits, ``variant.precision`` does.

    Raises:
        VariantError: a pattern fits no node of the main graph.
    """
    precisions = {n.id: variant.precision for n in model.top}
    for pattern, precision in variant.pins:
        nodes = match_nodes(model, pattern)
        if not nodes:
            hint = _suggest(pattern, [*dict.fromkeys(_iter_names(model.top))])
            hint = hint or "See model.nodes for ids, or write op:Conv for an operator."
            raise VariantError(
                f'Cannot pin "{pattern}" to "{precision}" in model "{model.name}": no node of the main graph has an '
                f"id, a name or an operator like this. {hint}"
            )
        precisions.update(dict.fromkeys(nodes, precision))
    return precisions


def match_nodes(model: Model, pattern: str) -> tuple[str, ...]:
    """Ids of the main-graph nodes that a pattern means, in graph order.

    A pattern that is a node's id means this node alone, even where others have such a name.
    """
    ids = tuple(n.id for n in model.top)
    return (pattern,) if pattern in ids else tuple(n.id for n in model.top if matches(pattern, n))


def resolve_calibrators(
    model: Model, variant: Variant, activations: Mapping[str, Iterable[tuple[str, int]]]
) -> Mapping[str, Calibrator]:
    """The calibrator of each quantized value that has one of its own, from a variant's patterns.

    A pattern means a value by its name, in which ``*`` and ``?`` stand for any characters, or the inputs of the nodes
    that it means as a pin's pattern does; of several that fit, the last counts. ``activations`` are the quantized
    values, each with the inputs (node and position) that read it.
    """
    overrides: dict[str, Calibrator] = {}
    for pattern, calibrator in variant.calibrators:
        overrides.update(dict.fromkeys(_match_values(model, pattern, activations), calibrator))
    return overrides


def check_calibrators(
    model: Model, variant: Variant, activations: Mapping[str, Iterable[tuple[str, int]]]
) -> None:
    """Raise VariantError where a pattern of a calibrator means none of the ``activations`` that can be quantized."""
    for pattern, calibrator in variant.calibrators:
        if not any(True for _ in _match_values(model, pattern, activations)):
            hint = _suggest(pattern, [*activations, *_iter_names(model.top)])
            hint = hint or "See rtlab.quantize.quantizable(model) for values."
            raise VariantError(
                f'Cannot calibrate "{pattern}" by "{calibrator}" in model "{model.name}": no value that is quantized, '
                f"and no node that reads one, is called like this. {hint}"
            )


def _match_values(
    model: Model, pattern: str, activations: Mapping[str, Iterable[tuple[str, int]]]
) -> Iterator[str]:
    nodes = {*match_nodes(model, pattern)}
    for value, edges in activations.items():
        matches_name = pattern == value or fnmatch.fnmatchcase(value, pattern)
        if matches_name or any(node in nodes for node, _ in edges):
            yield value


def matches(pattern: str, node: Node) -> bool:
    """Whether a pattern means a node: its id or name with wildcards, or ``op:`` and its operator."""
    if pattern.startswith(_OPERATOR):
        return fnmatch.fnmatchcase(node.op, pattern.removeprefix(_OPERATOR))
    # Equality first: names may have brackets, which are special in patterns.
    return any(pattern == n or fnmatch.fnmatchcase(n, pattern) for n in (node.id, node.name))


def _suggest(pattern: str, names: Sequence[str]) -> str:
    close_matches = difflib.get_close_matches(pattern, names, n=3, cutoff=0.5)
    return f"Did you mean {quote_names(close_matches)}?" if close_matches else ""


def _iter_names(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        yield from (node.id, node.name, _OPERATOR + node.op)
