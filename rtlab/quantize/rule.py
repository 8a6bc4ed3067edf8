"""What a rule of the placement check says of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtlab.quantize.qdq import Pair
    from rtlab.quantize.requantize import Hand


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something worth changing in a model's quantization.

    ``id`` is the rule and the node, so it stays the same in the model as long as the fault does. ``rule`` is the
    rule's short name. ``title``, ``cost`` and ``fix`` are a sentence each, ``nodes`` are ids of the main graph,
    ``evidence`` is the rule of the compiler that it rests on. ``fixable`` says whether ``repair`` can do it;
    ``exact`` whether the repaired model then gives the same numbers, save for the order of FP32 arithmetic.
    """

    id: str
    rule: str
    title: str
    nodes: tuple[str, ...]
    cost: str
    fix: str
    evidence: str
    fixable: bool
    exact: bool = False


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
