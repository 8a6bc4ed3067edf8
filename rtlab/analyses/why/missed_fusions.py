"""The neighbours that are not one step of an engine, and what their being apart costs at most."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.roofline.estimate import pick_default_gpu
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model
from rtlab.core.schema import FieldMeta
from rtlab.relation import footprint
from rtlab.relation.mapping import Mapping
from rtlab.relation.roles import QUANTIZING_OPS

#: Nodes that stand between two others without computing anything.
BETWEEN = frozenset({*QUANTIZING_OPS, "Cast", "CastLike", "Identity", "Dropout"})


@dataclasses.dataclass(frozen=True)
class MissedPair:
    """A pair that is not one step; ``stake`` is what its value takes to be written and read, in milliseconds."""

    first: str
    second: str
    stake: float | None


@dataclasses.dataclass(frozen=True)
class ListedPair:
    """The same by the titles of both nodes, with what was found out about it; ``places`` are where they run."""

    first: str
    second: str
    one: Annotated[str, FieldMeta("First node")]
    other: Annotated[str, FieldMeta("Second node")]
    stake: Annotated[float | None, FieldMeta("At stake", "ms", "estimated")]
    verdict: Annotated[str, FieldMeta("Verdict")]
    cause: Annotated[str, FieldMeta("Cause")]
    places: Annotated[tuple[str, ...], FieldMeta(links="nodes")]


_STAKE = "At stake: what the value between takes to be written and read once, at the bandwidth of the GPU."


@dataclasses.dataclass(frozen=True)
class MissedFusions:
    """All pairs of neighbours that are not one step, the costliest first."""

    count: Annotated[int, FieldMeta("Missed fusions")]
    pairs: tuple[ListedPair, ...]
    notes: tuple[str, ...] = (_STAKE,)


def steps_of(relation: Mapping, node: str) -> tuple[str, ...]:
    """The layers that do a node's work, not those that only serve it: a shared label is no fusion."""
    return tuple(i for i in relation.layers(node) if node in relation.run(i))


def same_layer(relation: Mapping, first: str, second: str) -> bool | None:
    """Whether one layer does the work of both nodes; None where no layer is known of one of them."""
    one, other = steps_of(relation, first), steps_of(relation, second)
    return bool({*one} & {*other}) if one and other else None


@memoized
def find_missed_fusions(facts: VariantResult) -> tuple[MissedPair, ...]:
    """The neighbours of a variant's built model that are not one step, the costliest first.

    A value that stands between two steps is written by one and read by the other: twice its bytes, by the bandwidth of
    the engine's GPU.
    """
    model, engine = facts.prepared.model, facts.engine
    relation = relate_engine(engine, model, model)
    values: dict[tuple[str, str], str] = {}
    for node in model.top:
        if node.op not in BETWEEN and node.id in facts.source.by_id:
            for value in node.outputs:
                for reader in find_readers(model, value):
                    if reader in facts.source.by_id and same_layer(relation, node.id, reader) is False:
                        values.setdefault((node.id, reader), value)
    pairs = (
        MissedPair(*pair, estimate_transfer_time(model, value, engine)) for pair, value in values.items()
    )
    return tuple(sorted(pairs, key=lambda m: -(m.stake or 0.0)))


def estimate_transfer_time(model: Model, value: str, engine: Engine) -> float | None:
    """What a value takes to be written once and read once at the bandwidth of an engine's GPU, in milliseconds.

    None where its shape is open, or its type is not known.
    """
    nbytes = footprint.nbytes(model.values[value].dtype, model.sizes().get(value))
    return None if nbytes is None else 2 * nbytes / pick_default_gpu(engine).bandwidth * 1e3


def find_readers(model: Model, value: str) -> Iterator[str]:
    """The nodes that compute with a value, perhaps through some that do not."""
    todo = [value]
    while todo:
        for reader in model.consumers.get(todo.pop(), ()):
            if reader.op in BETWEEN:
                todo += [o for o in reader.outputs if o]
            else:
                yield reader.id
