"""Finding: something worth changing, in a model or in the engine that was made of it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.core.schema import UNSENT, FieldMeta


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something worth changing in a model's quantization, or in an engine.

    ``id`` is the rule and the node or layer, so it stays the same as long as the fault does. ``rule`` is the rule's
    short name. ``title``, ``cost`` and ``fix`` are a sentence each; ``nodes`` are ids of the source model, ``layers``
    ids of the engine's layers, empty for a finding that a model alone shows. ``evidence`` is what the finding rests
    on: a rule of the compiler, what the engine's files tell, or what was measured. ``microseconds`` is the time of the
    layers at stake, measured, None where no times are known. ``fixable`` says whether ``repair`` can do it; ``exact``
    whether the repaired model then gives the same numbers, save for the order of FP32 arithmetic. ``samples`` and
    ``channels`` are those that show it, by their index, where it shows in some only; ``value`` is the one value of the
    source whose numbers it is about, empty where it is about none.
    """

    id: str
    rule: Annotated[str, FieldMeta("Rule")]
    title: Annotated[str, FieldMeta("Finding")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    cost: Annotated[str, FieldMeta("Cost")]
    fix: Annotated[str, FieldMeta("Remedy")]
    evidence: Annotated[str, FieldMeta("Evidence")]
    fixable: bool
    exact: bool = False
    layers: Annotated[tuple[str, ...], FieldMeta("Layers", links="layers")] = ()
    microseconds: Annotated[float | None, FieldMeta("Time at stake", "µs", "measured")] = None
    samples: Annotated[tuple[int, ...], FieldMeta("Samples", omit=True)] = ()
    channels: Annotated[tuple[int, ...], FieldMeta("Channels", omit=True)] = ()
    value: Annotated[str, UNSENT] = ""
