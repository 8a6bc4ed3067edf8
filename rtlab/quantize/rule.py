"""What a rule of the placement check says of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from rtlab.core.finding import Finding
from rtlab.quantize import passes
from rtlab.quantize.requantize import Hand

if TYPE_CHECKING:
    from rtlab.quantize.edit import Edit
    from rtlab.quantize.qdq import QdqPair


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A finding and the change that repairs it, None where there is none.

    ``calibrates`` names the value whose scale the change asks for, empty where it asks for none.
    """

    finding: Finding
    apply: Callable[[Hand], None] | None
    calibrates: str = ""


@dataclasses.dataclass(frozen=True)
class Repair:
    """What findings of one rule name, put right. They were made of the graph that it is applied to."""

    found: tuple[Diagnosis, ...]
    notes: tuple[str, ...] = ()
    needs = ()
    promises = passes.REPAIRED

    @property
    def name(self) -> str:
        """What it does, in a few words."""
        return f'repair of "{self.found[0].finding.rule}"'

    @property
    def changes(self) -> str:
        """What becomes of the numbers."""
        return "" if all(f.finding.exact for f in self.found) else "quantized in other places, or anew"

    def __call__(self, edit: Edit) -> None:
        """Do it, one finding after the other."""
        hand = Hand(edit)
        for found in self.found:
            if found.apply is not None:
                found.apply(hand)
        edit.settle()


def on_pair(
    rule: str,
    pair: QdqPair,
    title: str,
    *,
    cost: str,
    fix: str,
    evidence: str,
    apply: Callable[[Hand], None] | None = None,
    exact: bool = False,
    more: tuple[str | None, ...] = (),
) -> Diagnosis:
    """A finding about one pair; ``more`` are further nodes that it concerns."""
    nodes = tuple(i for i in dict.fromkeys((*pair.nodes, *more)) if i)
    id_ = f"{rule}:{pair.id}"
    return Diagnosis(Finding(id_, rule, title, nodes, cost, fix, evidence, apply is not None, exact), apply)


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
) -> Diagnosis:
    """A finding about one operator; ``more`` are further nodes that it concerns."""
    nodes = tuple(dict.fromkeys((node, *more)))
    finding = Finding(f"{rule}:{node}", rule, title, nodes, cost, fix, evidence, apply is not None)
    return Diagnosis(finding, apply, calibrates)
