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

from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta

#: How the precision of a model with pairs is called.
QUANTIZED = "Q/DQ"


@dataclasses.dataclass(frozen=True)
class PairCount:
    """Pairs of neighbours of one kind, such as ``Conv | Relu``, in one precision: who makes one step of them.

    ``remade`` of them stand in graphs that were remade from an engine's layers.
    """

    kind: Annotated[str, FieldMeta("Pair")]
    precision: Annotated[str, FieldMeta("Precision")]
    both: Annotated[int, FieldMeta("In both", origin="reported")]
    rtx: Annotated[int, FieldMeta("Only TensorRT-RTX", origin="reported")]
    tensorrt: Annotated[int, FieldMeta("Only TensorRT", origin="reported")]
    neither: Annotated[int, FieldMeta("In neither", origin="reported")]
    remade: Annotated[int, FieldMeta("In remade graphs")]

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

    name: Annotated[str, FieldMeta("Engine")]
    network: Annotated[str, FieldMeta("Network")]
    compiler: Annotated[str, FieldMeta("Compiler")]
    precision: Annotated[str, FieldMeta("Precision")]
    target: Annotated[str, FieldMeta("Built for")]
    remade: Annotated[bool, FieldMeta("Remade from its layers")]
    pairs: Annotated[int, FieldMeta("Pairs")]
    alike: Annotated[int, FieldMeta("Alike", origin="reported")]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was counted, on which day, of which compilers and engines."""

    date: Annotated[str, FieldMeta("Counted on")]
    compilers: Annotated[tuple[str, ...], FieldMeta("Asked")]
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
        sentences = []
        for precision in dict.fromkeys(p.precision for p in self.pairs):
            mine = [p for p in self.pairs if p.precision == precision]
            engines = [e for e in self.engines if e.precision == precision]
            remade = sum(e.remade for e in engines)
            total, alike = sum(p.count for p in mine), sum(p.alike for p in mine)
            sentences.append(
                f"{precision}: {alike} of {total} pairs are one layer in both or in neither, "
                f"{sum(p.rtx for p in mine)} in TensorRT-RTX alone, {sum(p.tensorrt for p in mine)} in TensorRT alone "
                f"({pluralize(len(engines), 'engine')}, {remade} remade)."
            )
        return tuple(sentences)


@functools.cache
def load_agreement() -> Agreement:
    """The table that rtlab brings along."""
    table = json.loads(Path(__file__).with_name("agreement.json").read_text(encoding="utf-8"))
    return Agreement(
        table["date"],
        tuple(table["compilers"]),
        tuple(CountedEngine(**row) for row in table["engines"]),
        tuple(PairCount(**row) for row in table["pairs"]),
    )


def kind(first: str, second: str) -> str:
    """The kind of a pair, by its operators."""
    return f"{first} | {second}"


def describe_agreement(first: str, second: str) -> str:
    """Of how many pairs of these operators TensorRT makes one layer, and in how many TensorRT-RTX does the same.

    By precision, with the engines and releases that it rests on and how many graphs are remade; what is not known is
    said.
    """
    table, pair_kind = load_agreement(), kind(first, second)
    remade = sum(e.remade for e in table.engines)
    engines = f"{pluralize(len(table.engines), 'recorded engine')} of TensorRT {table.releases}"
    counts = [p for p in table.pairs if p.kind == pair_kind]
    if not counts:
        return f"{pair_kind} does not occur in the {engines} whose graph is known or remade."
    summary = "; ".join(
        f"{p.precision} one layer in {p.fused} of {p.count}, TensorRT-RTX agreed in {p.alike} of {p.count}"
        for p in counts
    )
    return f"{pair_kind} in {engines} (reported; {remade} graphs remade from their layers' names): {summary}."
