"""Does a verdict of one compiler hold for another? Counted on recorded engines of TensorRT whose ONNX graph is known.

``tests/agreement.py`` builds their graphs with TensorRT-RTX and counts pairs of neighbours that are one step in both,
in one alone, or in neither, by the operators of the two; the table lies beside this file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Annotated

from rtlab.core.phrases import many
from rtlab.core.schema import Meaning


@dataclasses.dataclass(frozen=True)
class PairCount:
    """Pairs of neighbours of one kind, such as ``Conv | Relu``: which compiler makes one step of them."""

    kind: Annotated[str, Meaning("Pair")]
    both: Annotated[int, Meaning("In both", origin="reported")]
    rtx: Annotated[int, Meaning("Only TensorRT-RTX", origin="reported")]
    tensorrt: Annotated[int, Meaning("Only TensorRT", origin="reported")]
    neither: Annotated[int, Meaning("In neither", origin="reported")]

    @property
    def count(self) -> int:
        """All of them."""
        return self.both + self.rtx + self.tensorrt + self.neither

    @property
    def fused(self) -> int:
        """Those that are one layer in the recorded engines."""
        return self.both + self.tensorrt


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was counted, on which day, of which compilers and engines."""

    date: Annotated[str, Meaning("Counted on")]
    compilers: Annotated[tuple[str, ...], Meaning("Asked")]
    engines: Annotated[tuple[str, ...], Meaning("Recorded engines")]
    pairs: tuple[PairCount, ...]

    @property
    def count(self) -> int:
        """All pairs."""
        return sum(p.count for p in self.pairs)

    @property
    def alike(self) -> int:
        """Pairs that are one step in both compilers, or in neither."""
        return sum(p.both + p.neither for p in self.pairs)


@functools.cache
def known() -> Agreement:
    """The table that rtlab brings along."""
    told = json.loads(Path(__file__).with_name("agreement.json").read_text(encoding="utf-8"))
    return Agreement(
        told["date"],
        tuple(told["compilers"]),
        tuple(f"{e['name']} ({e['compiler']})" for e in told["engines"]),
        tuple(PairCount(**row) for row in told["pairs"]),
    )


def kind(first: str, second: str) -> str:
    """The kind of a pair, by its operators."""
    return f"{first} | {second}"


def said(first: str, second: str) -> str:
    """In how many of the recorded engines' pairs of these operators one layer does both; what is not known is said."""
    table, wanted = known(), kind(first, second)
    engines = many(len(table.engines), "recorded TensorRT engine")
    found = next((p for p in table.pairs if p.kind == wanted), None)
    if found is None:
        return f"{wanted} does not occur in the {engines} whose graph is known."
    one = "is" if found.fused == 1 else "are"
    return f"In {engines}, {found.fused} of {found.count} {wanted} {one} one layer (reported)."
