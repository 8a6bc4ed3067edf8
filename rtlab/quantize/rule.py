"""What a rule of the placement check says of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rtlab.core.finding import Finding
from rtlab.quantize import passes
from rtlab.quantize.qdq import QdqPair
from rtlab.quantize.requantize import QdqEditor

if TYPE_CHECKING:
    from rtlab.quantize.edit import Edit


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A finding and the change that repairs it, None where there is none.

    ``value_to_calibrate`` names the value whose scale the change asks for, empty where it asks for none.
    """

    finding: Finding
    apply: Callable[[QdqEditor], None] | None
    value_to_calibrate: str = ""


def repair(diagnoses: Sequence[Diagnosis]) -> passes.Pass:
    """What findings of one rule name, put right; they were made of the graph that it is applied to."""

    def edit_graph(edit: Edit) -> None:
        editor = QdqEditor(edit)
        for diagnosis in diagnoses:
            if diagnosis.apply is not None:
                diagnosis.apply(editor)
        edit.sort_and_reindex()

    exact = all(d.finding.exact for d in diagnoses)
    changes = "" if exact else "quantized in other places, or anew"
    name = f'repair of "{diagnoses[0].finding.rule}"'
    return passes.Pass(name, edit_graph, passes.REPAIR_PROMISES, changes=changes)


def diagnose(
    rule: str,
    subject: QdqPair | str | None,
    title: str,
    *,
    cost: str,
    fix: str,
    evidence: str,
    apply: Callable[[QdqEditor], None] | None = None,
    exact: bool = False,
    more_nodes: tuple[str | None, ...] = (),
    calibrates: str = "",
) -> Diagnosis:
    """A finding about one pair or one operator; ``more_nodes`` are further nodes that it concerns."""
    id_, nodes = (subject.id, subject.nodes) if isinstance(subject, QdqPair) else (subject or "", (subject,))
    named = tuple(n for n in dict.fromkeys((*nodes, *more_nodes)) if n)
    finding = Finding(f"{rule}:{id_}", rule, title, named, cost, fix, evidence, apply is not None, exact)
    return Diagnosis(finding, apply, calibrates)
