"""One place where a variant rounds."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from rtlab.core.schema import Meaning
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.node import Node

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


def quantizer_of(node: Node, text: str) -> Quantizer:
    """The quantizer of a node that has this id.

    Raises:
        VariantError: the node has none such.
    """
    found = re.fullmatch(r"(input|weight|output)(\d+)", text.removeprefix(f"{node.id}/"))
    values = () if found is None else node.outputs if found[1] == "output" else node.inputs
    if found is None or int(found[2]) >= len(values):
        raise VariantError(f'Cannot find quantizer "{text}": node "{node.id}" has none of this id.')
    return Quantizer(node.id, cast("Part", found[1]), int(found[2]), values[int(found[2])])
