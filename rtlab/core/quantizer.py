"""One place where a variant rounds."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypeAlias

from rtlab.core.schema import Meaning

Part: TypeAlias = Literal["input", "weight", "output"]


@dataclasses.dataclass(frozen=True, order=True)
class Quantizer:
    """One place where a variant rounds: what a node reads, a constant that it reads, or what it writes.

    A value that three nodes read rounded has three quantizers, one for each reading edge, even where one pair of
    operators rounds it for all of them.

    Attributes:
        node: The node of the source that reads or writes, by its id.
        part: ``input``, an activation that it reads; ``weight``, a constant that it reads, biases included;
            ``output``, what it writes, as all that is computed in 16 bits.
        position: Which of its inputs or outputs, from 0 on.
        value: The source's value there.
    """

    node: Annotated[str, Meaning("Node", links="nodes")]
    part: Annotated[Part, Meaning("Part")]
    position: Annotated[int, Meaning("Position")]
    value: Annotated[str, Meaning("Value")]

    @property
    def id(self) -> str:
        """A readable text that no other quantizer of the model has, such as ``conv1/weight1``."""
        return f"{self.node}/{self.part}{self.position}"

    def __str__(self) -> str:
        return self.id
