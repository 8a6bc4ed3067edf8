"""Finding: something worth changing, in a model or in the engine that was made of it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.core.schema import UNSENT, FieldMeta


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something worth changing in a model's quantization, or in an engine.

    ``id`` is the rule and the node or layer, ``rule`` the rule's short name. ``title``, ``cost``, ``fix`` and
    ``evidence`` are a sentence each; ``nodes`` are ids of the source model, ``layers`` ids of the engine's layers.
    ``microseconds`` is the measured time of the layers at stake, None where unknown. ``fixable`` is True where
    ``repair`` can do it, ``exact`` where the repaired model computes the same but for the order of FP32 arithmetic.
    ``samples`` and ``channels`` are the indices of those that show it, if not all; ``value`` is the value of the source
    that it is about, if any.
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
