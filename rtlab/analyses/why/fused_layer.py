"""Why the nodes of one step are one: what that saves, and what would part them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses.why import format_date
from rtlab.core.schema import FieldMeta


@dataclasses.dataclass(frozen=True)
class SplitTrial:
    """One experiment on two neighbours of a step: what was changed, and whether they are one step still.

    ``layers`` counts those of the part that was built, None where the compiler refused it; ``fused`` is None where that
    cannot be told; ``seconds`` is the time of the build.
    """

    first: Annotated[str, FieldMeta("First node", links="nodes")]
    second: Annotated[str, FieldMeta("Second node", links="nodes")]
    change: Annotated[str, FieldMeta("Change")]
    layers: Annotated[int | None, FieldMeta("Layers", origin="reported")]
    fused: Annotated[bool | None, FieldMeta("Still one layer", origin="reported")]
    seconds: Annotated[float, FieldMeta("Build", "s", "measured")]
    refused: Annotated[str, FieldMeta("Refused")] = ""


@dataclasses.dataclass(frozen=True)
class FusedLayer:
    """A step that does the work of several nodes: what it saves, and by experiment what would part them.

    Attributes:
        layer: The step.
        nodes: Those whose work it does, in the data's way.
        saved: What the values between them would take to be written once and read once, in milliseconds, at the
            bandwidth of the engine's GPU; None where a shape or the bandwidth is not known.
        text: The answer in a sentence or two.
        experiments: What was tried, in its order.
        builds: How many parts were built.
        seconds: The time that all of it took.
        compiler: Compiler, release and target, of which alone it holds.
        shapes: The shapes of the model's inputs that it holds for.
        whole: Whether all that was to be tried was.
        asked: When, in ISO 8601.
        recalled: Whether that was before, and nothing was built now.
    """

    layer: Annotated[str, FieldMeta("Layer", links="layers")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    saved: Annotated[
        float | None,
        FieldMeta("Not moved", "ms", "estimated", note="Values that are never written to memory."),
    ]
    text: Annotated[str, FieldMeta("Answer")]
    experiments: tuple[SplitTrial, ...] = ()
    builds: Annotated[int, FieldMeta("Builds")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")] = 0.0
    compiler: Annotated[str, FieldMeta("Compiler")] = ""
    shapes: Annotated[str, FieldMeta("Shapes")] = ""
    whole: bool = True
    asked: Annotated[str, FieldMeta("Asked on")] = ""
    recalled: Annotated[bool, FieldMeta("Asked before")] = False

    @property
    def date_text(self) -> str:
        """When it was asked, in words; what is built now is told where that is nothing."""
        return format_date(self.asked, recalled=self.recalled)
