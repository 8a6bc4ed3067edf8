"""Does a verdict of one compiler hold for another? Counted on recorded engines of TensorRT whose graph is known.

``tests/agreement.py`` builds their graphs with TensorRT-RTX and counts pairs of neighbours that are one step in both,
in one alone, or in neither, by the operators of the two; the table lies beside this file. Some of the graphs are remade
from the names of the engine's own layers.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Annotated

from rtlab.core.phrases import many
from rtlab.core.schema import Meaning

#: How the precision of a model with pairs is called.
QUANTIZED = "Q/DQ"


@dataclasses.dataclass(frozen=True)
class PairCount:
    """Pairs of neighbours of one kind, such as ``Conv | Relu``, in one precision: who makes one step of them.

    ``remade`` of them stand in graphs that were remade from an engine's layers.
    """

    kind: Annotated[str, Meaning("Pair")]
    precision: Annotated[str, Meaning("Precision")]
    both: Annotated[int, Meaning("In both", origin="reported")]
    rtx: Annotated[int, Meaning("Only TensorRT-RTX", origin="reported")]
    tensorrt: Annotated[int, Meaning("Only TensorRT", origin="reported")]
    neither: Annotated[int, Meaning("In neither", origin="reported")]
    remade: Annotated[int, Meaning("In remade graphs")]

    @property
    def count(self) -> int:
        """All of them."""
        return self.both + self.rtx + self.tensorrt + self.neither

    @property
    def fused(self) -> int:
        """Those that are one layer in the recorded engines."""
        return self.both + self.tensorrt

    @property
    def alike(self) -> int:
        """Those of which both compilers make the same: one step, or two."""
        return self.both + self.neither


@dataclasses.dataclass(frozen=True)
class CountedEngine:
    """A recorded engine whose pairs were counted; ``target`` is what its graph was built for.

    ``alike`` are those of which both compilers make the same.
    """

    name: Annotated[str, Meaning("Engine")]
    network: Annotated[str, Meaning("Network")]
    compiler: Annotated[str, Meaning("Compiler")]
    precision: Annotated[str, Meaning("Precision")]
    target: Annotated[str, Meaning("Built for")]
    remade: Annotated[bool, Meaning("Remade from its layers")]
    pairs: Annotated[int, Meaning("Pairs")]
    alike: Annotated[int, Meaning("Alike", origin="reported")]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was counted, on which day, of which compilers and engines."""

    date: Annotated[str, Meaning("Counted on")]
    compilers: Annotated[tuple[str, ...], Meaning("Asked")]
    engines: tuple[CountedEngine, ...]
    pairs: tuple[PairCount, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of the engines, once each."""
        return tuple(dict.fromkeys(e.network for e in self.engines))

    @property
    def releases(self) -> str:
        """From the oldest release of the engines to the newest, such as ``8.2 to 10.4``."""
        numbers = [
            tuple(map(int, v.split("."))) for e in self.engines for v in re.findall(r"\d+\.\d+", e.compiler)
        ]
        oldest, newest = (".".join(map(str, v)) for v in (min(numbers), max(numbers)))
        return oldest if oldest == newest else f"{oldest} to {newest}"

    @property
    def summary(self) -> tuple[str, ...]:
        """A sentence for each precision: on how much it rests, and how many pairs are alike."""
        told = []
        for precision in dict.fromkeys(p.precision for p in self.pairs):
            mine = [p for p in self.pairs if p.precision == precision]
            engines = [e for e in self.engines if e.precision == precision]
            remade = sum(e.remade for e in engines)
            total, alike = sum(p.count for p in mine), sum(p.alike for p in mine)
            told.append(
                f"{precision}: {alike} of {total} pairs are one layer in both or in neither, "
                f"{sum(p.rtx for p in mine)} in TensorRT-RTX alone, {sum(p.tensorrt for p in mine)} in TensorRT alone "
                f"({many(len(engines), 'engine')}, {remade} remade)."
            )
        return tuple(told)


@functools.cache
def known() -> Agreement:
    """The table that rtlab brings along."""
    told = json.loads(Path(__file__).with_name("agreement.json").read_text(encoding="utf-8"))
    return Agreement(
        told["date"],
        tuple(told["compilers"]),
        tuple(CountedEngine(**row) for row in told["engines"]),
        tuple(PairCount(**row) for row in told["pairs"]),
    )


def kind(first: str, second: str) -> str:
    """The kind of a pair, by its operators."""
    return f"{first} | {second}"


def said(first: str, second: str) -> str:
    """Of how many pairs of these operators TensorRT makes one layer, and in how many TensorRT-RTX does the same.

    By precision, with the engines and releases that it rests on and how many graphs are remade; what is not known is
    said.
    """
    table, wanted = known(), kind(first, second)
    remade = sum(e.remade for e in table.engines)
    engines = f"{many(len(table.engines), 'recorded engine')} of TensorRT {table.releases}"
    found = [p for p in table.pairs if p.kind == wanted]
    if not found:
        return f"{wanted} does not occur in the {engines} whose graph is known or remade."
    told = "; ".join(
        f"{p.precision} one layer in {p.fused} of {p.count}, TensorRT-RTX agreed in {p.alike} of {p.count}"
        for p in found
    )
    return f"{wanted} in {engines} (reported; {remade} graphs remade from their layers' names): {told}."
