"""Does a verdict of one compiler hold for another? Counted on recorded engines of TensorRT whose graph is known.

``tests/agreement.py`` builds their graphs with TensorRT-RTX and counts pairs of neighbours that are one step in both,
in one alone, or in neither, by the operators of the two; the table lies beside this file. Some of the graphs are remade
from the names of the engine's own layers.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from rtlab.core.phrases import pluralize


@functools.cache
def _load_table() -> Any:
    return json.loads(Path(__file__).with_name("agreement.json").read_text(encoding="utf-8"))


def describe_agreement(first: str, second: str) -> str:
    """Of how many pairs of these operators TensorRT makes one layer, and in how many TensorRT-RTX does the same.

    By precision, with the engines and releases that it rests on and how many graphs are remade; what is not known is
    said.
    """
    table, kind = _load_table(), f"{first} | {second}"
    versions = (v for e in table["engines"] for v in re.findall(r"\d+\.\d+", e["compiler"]))
    numbers = sorted(tuple(map(int, v.split("."))) for v in versions)
    oldest, newest = (".".join(map(str, v)) for v in (numbers[0], numbers[-1]))
    remade = sum(e["remade"] for e in table["engines"])
    engines = f"{pluralize(len(table['engines']), 'recorded engine')} of TensorRT {oldest} to {newest}"
    counts = [p for p in table["pairs"] if p["kind"] == kind]
    if not counts:
        return f"{kind} does not occur in the {engines} whose graph is known or remade."
    parts = []
    for p in counts:
        total = sum(n for where, n in p.items() if where not in {"kind", "precision", "remade"})
        fused, alike = total - p["rtx"] - p["neither"], p["both"] + p["neither"]
        parts.append(
            f"{p['precision']} one layer in {fused} of {total}, TensorRT-RTX agreed in {alike} of {total}"
        )
    summary = "; ".join(parts)
    return f"{kind} in {engines} (reported; {remade} graphs remade from their layers' names): {summary}."
