"""One place where a variant rounds."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from rtlab.core.schema import FieldMeta
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.node import Node

Part: TypeAlias = Literal["input", "weight", "output"]


@dataclasses.dataclass(frozen=True, order=True)
class Quantizer:
    """One rounded input, constant or output of a node; a value that three nodes read rounded has three quantizers.

    Attributes:
        node: The node of the source that reads or writes, by its id.
        part: ``input``, an activation that it reads; ``weight``, a constant that it reads, biases included;
            ``output``, what it writes, as all that is computed in 16 bits.
        position: Which of its inputs or outputs, from 0 on.
        value: The source's value there.
    """

    node: Annotated[str, FieldMeta("Node", links="nodes")]
    part: Annotated[Part, FieldMeta("Part")]
    position: Annotated[int, FieldMeta("Position")]
    value: Annotated[str, FieldMeta("Value")]

    @property
    def id(self) -> str:
        """A readable text that no other quantizer of the model has, such as ``conv1/weight1``."""
        return f"{self.node}/{self.part}{self.position}"

    def __str__(self) -> str:
        return self.id


def parse_quantizer(node: Node, text: str) -> Quantizer:
    """The quantizer of a node that has this id; raises ``VariantError`` where it has none such."""
    match = re.fullmatch(r"(input|weight|output)(\d+)", text.removeprefix(f"{node.id}/"))
    values = () if match is None else node.outputs if match[1] == "output" else node.inputs
    if match is None or int(match[2]) >= len(values):
        raise VariantError(f'Cannot find quantizer "{text}": node "{node.id}" has none of this id.')
    return Quantizer(node.id, cast("Part", match[1]), int(match[2]), values[int(match[2])])
