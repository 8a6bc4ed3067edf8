"""The tensors of an engine in their arena, with what they add up to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.memory.plan import RESERVATION, MemoryPlan
from rtlab.core.engine import Engine, Tensor
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.core.value import shape_text
from rtlab.documents.numbers import format_bytes

if TYPE_CHECKING:
    from rtlab.analyses.memory.lifetimes import Life


@dataclasses.dataclass(frozen=True)
class PlacedTensor:
    """A tensor, from the first step that names it to the last that needs it, with all ``layers`` that do.

    Those that write it stand before those that read it.
    """

    tensor: Annotated[str, FieldMeta("Tensor")]
    shape: Annotated[str, FieldMeta("Shape")]
    dtype: Annotated[str, FieldMeta("Type")]
    nbytes: Annotated[int, FieldMeta("Size", "B", "estimated")]
    first: Annotated[int, FieldMeta("First layer")]
    last: Annotated[int, FieldMeta("Last layer")]
    offset: Annotated[int, FieldMeta("Address", "B", "estimated")]
    at_peak: Annotated[bool, FieldMeta("At the peak")]
    layers: Annotated[tuple[str, ...], FieldMeta(links="layers")]
    note: Annotated[str, UNSENT]


_PEAK = "the arena of this plan: {self.count:,} tensors, addresses at multiples of {self.align} bytes"
_BOUND = "the most that is alive at once: no plan needs less, unless layers write over what they read"
_NAIVE = "the sum of all tensors, were no memory used twice{self.times}"
_WEIGHTS_NOTE = "beside the arena, as long as the engine lives"


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """What the activations of an engine take; None where something is not told, or says nothing.

    ``one_stream`` is the peak were all layers run one after the other, ``reported`` the compiler's own total, and
    ``unreserved`` what is left of it without the reservations of its maker.
    """

    peak: Annotated[int, FieldMeta("Peak", "B", "estimated", note=_PEAK)]
    bound: Annotated[int, FieldMeta("Lower bound", "B", "estimated", note=_BOUND)]
    overhead: Annotated[
        str, FieldMeta("Above the bound", origin="estimated", note="what the plan wastes in gaps")
    ]
    naive: Annotated[int, FieldMeta("Each its own memory", "B", "estimated", note=_NAIVE)]
    one_stream: Annotated[
        int | None, FieldMeta("On one stream", "B", "estimated", note="{self.streams}", omit=True)
    ]
    reported: Annotated[
        int | None, FieldMeta("Compiler's total", "B", "reported", note="at batch {self.batch}", omit=True)
    ]
    unreserved: Annotated[
        int | None,
        FieldMeta("Without reservations", "B", "estimated", note="{self.off} taken off", omit=True),
    ]
    weights: Annotated[int | None, FieldMeta("Weights", "B", "{self.origin}", note=_WEIGHTS_NOTE, omit=True)]
    scratch: Annotated[
        int | None,
        FieldMeta("Scratch", "B", "reported", note="a part of the compiler's total", omit=True),
    ]
    ends: Annotated[
        str,
        FieldMeta("Inputs and outputs", origin="estimated", note="memory of the caller, not in the arena"),
    ]
    count: int
    align: int
    batch: str
    times: Annotated[str, UNSENT]
    streams: Annotated[str, UNSENT]
    off: Annotated[str, UNSENT]
    origin: Annotated[Origin, UNSENT]
    tensors: tuple[PlacedTensor, ...]


def summarize_memory(
    plan: MemoryPlan, one: MemoryPlan | None, engine: Engine, names: Sequence[str]
) -> MemoryUse:
    """A plan as its panel and its table tell it; ``one`` is that on one stream, ``names`` those of the steps."""
    more = 0 if one is None else plan.peak - one.peak
    reserved = plan.reservations if engine.maker.reserves and plan.reported and not plan.scaled else 0
    return MemoryUse(
        peak=plan.peak,
        bound=plan.bound,
        overhead=f"{plan.overhead:.1%}",
        naive=plan.naive,
        one_stream=None if one is None else one.peak,
        reported=plan.reported or None,
        unreserved=(plan.reported or 0) - reserved * RESERVATION if reserved else None,
        weights=plan.weights,
        scratch=plan.scratch or None,
        ends=f"{format_bytes(plan.caller('input'))} + {format_bytes(plan.caller('output'))}",
        count=len(plan.lives),
        align=plan.align,
        batch=str(plan.engine_batch or "as built"),
        times=f", {plan.naive / plan.peak:.3g} times the peak" if plan.peak else "",
        streams=f"that layers run side by side costs {format_bytes(more)} more" if more else "streams cost nothing",
        off=f"{reserved} of {RESERVATION:,} bytes",
        origin=plan.weights_origin,
        tensors=tuple(
            PlacedTensor(
                life.id, shape_text(pick_largest_mention(life).shape), pick_largest_mention(life).dtype,
                allocation.nbytes, life.first + 1, life.last + 1, allocation.offset or 0, i in plan.at_peak,
                tuple(dict.fromkeys(engine.layers[p].id for p in (*life.writers, *life.readers))),
                f"from layer {names[life.first]} to layer {names[life.last]}",
            )
            for i, (life, allocation) in enumerate(zip(plan.lives, plan.allocations, strict=True))
        ),
    )  # fmt: skip


def pick_largest_mention(life: Life) -> Tensor:
    """The mention of a tensor that has most elements: of a part and the whole, the whole."""
    if len(life.mentions) == 1:
        return life.mentions[0]
    return max(life.mentions, key=lambda t: -1 if t.shape is None else abs(math.prod(t.shape)))
