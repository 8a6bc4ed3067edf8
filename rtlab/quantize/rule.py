"""What a rule of the placement check says of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from rtlab.core.finding import Finding

if TYPE_CHECKING:
    from rtlab.quantize.qdq import Pair
    from rtlab.quantize.requantize import Hand


@dataclasses.dataclass(frozen=True)
class Found:
    """A finding and the change that repairs it, None where there is none.

    ``calibrates`` names the value whose scale the change asks for, empty where it asks for none.
    """

    finding: Finding
    apply: Callable[[Hand], None] | None
    calibrates: str = ""


def on_pair(
    rule: str,
    pair: Pair,
    title: str,
    *,
    cost: str,
    fix: str,
    evidence: str,
    apply: Callable[[Hand], None] | None = None,
    exact: bool = False,
    more: tuple[str | None, ...] = (),
) -> Found:
    """A finding about one pair; ``more`` are further nodes that it concerns."""
    nodes = tuple(i for i in dict.fromkeys((*pair.nodes, *more)) if i)
    id_ = f"{rule}:{pair.id}"
    return Found(Finding(id_, rule, title, nodes, cost, fix, evidence, apply is not None, exact), apply)


def on_node(
    rule: str,
    node: str,
    title: str,
    *,
    cost: str,
    fix: str,
    evidence: str,
    apply: Callable[[Hand], None] | None = None,
    more: tuple[str, ...] = (),
    calibrates: str = "",
) -> Found:
    """A finding about one operator; ``more`` are further nodes that it concerns."""
    nodes = tuple(dict.fromkeys((node, *more)))
    finding = Finding(f"{rule}:{node}", rule, title, nodes, cost, fix, evidence, apply is not None)
    return Found(finding, apply, calibrates)
