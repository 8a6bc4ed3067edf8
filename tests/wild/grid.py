"""Builds transformers of today in every precision, and writes a table of them: ``tests/run models [NAME ...]``.

Each cell is a process of its own, which is ended at its limit. Every result is kept in a folder, so that a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catalogue import Case, models_of_today
from run import HERE, UNKNOWN, child, limit_of, plain_name, shorten, written_by

#: The card that a precision is built for: FP4 products are of the last one.
TARGETS = dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4"), "sm89") | {"fp4": "sm120"}
#: Types that attention reads, of which the first one there is says what it is computed in.
_TYPES = ("int8", "fp8", "bf16", "fp16", "fp32")
#: Layers that only order others on several streams.
_ORDER = ("signal", "wait")
#: Packages that write the files, or what is in them.
EXPORTERS = ("torch", "transformers", "diffusers")
_HEAD = """# Transformers, by precision

Small transformers with random weights (two layers, heads of 64 numbers), exported by both of PyTorch's exporters
({exporter}) and opened by rtlab with its defaults for `backend="tensorrt-rtx"`: {compiler}, for sm89, and for sm120 in
fp4. Built on {dates}; `tests/run models` makes the exports and this page anew. What is quantized is calibrated on
{samples} random samples, for accuracy is not what is asked here.

A cell has the number of layers, without those that only order others on several streams, and behind it how many of the
attentions are one layer (`_mha`) and the type that it reads. int8, fp8, int4 and fp4 leave in FP16 what they do not
quantize. Behind a softmax PyTorch's exporters write a guard against rows without a key, with which the compiler makes a
layer of each product between Q/DQ pairs. rtlab leaves a guard out where no mask is infinite; where one is, as in
TorchScript's, attention stays in FP16. *Unknown* are nodes of which neither the compiler nor the graph tells what
became of them.

{sums}
"""


def build(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What one case's file says of itself and its cells by precision, each built unless its result is there."""
    model = options.models / f"{plain_name(case.name)}.onnx"
    if not model.exists():
        made = child([options.exporter, str(HERE / "export.py"), case.name, str(model)], options.limit)
        if "refused" in made.said:
            model.unlink(missing_ok=True)
            return {"export": dict(made.said)}
    found: dict[str, Any] = {"opset": written_by(model)[0]}
    for precision, target in TARGETS.items():
        kept = options.cache / f"{plain_name(case.name)}-{precision}.json"
        if not options.only_table and (options.again or not kept.exists()):
            asked = (str(model), precision, "{}", str(options.samples), target)
            ran = child([sys.executable, str(HERE / "look.py"), *asked], options.limit)
            said = {"date": str(datetime.datetime.now(tz=datetime.timezone.utc).date()), **ran.said}
            fresh = kept.with_suffix(".new")
            fresh.write_text(json.dumps(said, indent=1), encoding="utf-8")
            shutil.move(fresh, kept)
            state = "refused" if "refused" in said else "built"
            sys.stderr.write(f"{case.name}, {precision}: {state}, {ran.seconds:.0f} s\n")
            sys.stderr.flush()
        if kept.exists():
            found[precision] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def write_page(
    rows: Mapping[str, Mapping[str, Any]], known: Mapping[str, Case], exporter: str, samples: int
) -> str:
    """Markdown: a row for each model and exporter, and below what was refused, word for word."""
    cells = {(n, p): cell for n, row in rows.items() for p in TARGETS if (cell := row.get(p))}
    built = {at: cell for at, cell in cells.items() if "layers" in cell}
    dates = sorted({c["date"] for c in cells.values()})
    head = _HEAD.format(
        compiler="TensorRT-RTX " + ", ".join(sorted({c["version"] for c in built.values()})),
        exporter=exporter, dates=" to ".join(sorted({dates[0], dates[-1]})), samples=samples,
        sums=_sum_up(built, len(cells)),
    )  # fmt: skip
    lines = [
        f"| model | attentions | exporter, opset | nodes | {' | '.join(TARGETS)} |",
        "|---" * (4 + len(TARGETS)) + "|",
    ]
    lines += [_row(known[n], row) for n, row in rows.items() if any((n, p) in built for p in TARGETS)]
    refused = [f"- {n}, {p}. {_refusal(cell)}" for (n, p), cell in cells.items() if "refused" in cell]
    lost = {n: row["export"]["refused"] for n, row in rows.items() if "export" in row}
    refused += [f"- {n} is not exported: {shorten(words)}" for n, words in lost.items()]
    parts = [" ".join(part.split()) for part in head.split("\n\n")] + ["\n".join(lines)]
    parts += ["What was refused, word for word:", "\n".join(refused)] if refused else []
    return "\n\n".join(parts) + "\n"


def _sum_up(built: Mapping[tuple[str, str], Mapping[str, Any]], count: int) -> str:
    nodes = sum(cell["nodes"] for cell in built.values())
    unknown = sum(cell["reasons"].get("unknown", 0) for cell in built.values())
    above = [
        f"{name} in {precision}" for (name, precision), cell in built.items() if _unknown(cell) > UNKNOWN
    ]
    return f"**{len(built)} of {count} are built.** Of {nodes:,} nodes {unknown} are unknown; " + (
        f"above {UNKNOWN:.1%} in {', '.join(above)}." if above else f"none has more than {UNKNOWN:.1%}."
    )


def _unknown(cell: Mapping[str, Any]) -> float:
    """The share of nodes that are unknown."""
    return float(cell["reasons"].get("unknown", 0) / cell["nodes"])


def _row(case: Case, row: Mapping[str, Any]) -> str:
    built = next(c for p in TARGETS if "layers" in (c := row.get(p, {})))
    cells = " | ".join(_cell(row.get(p, {})) for p in TARGETS)
    name = case.name.removesuffix(f" {case.exporter}")
    return (
        f"| {name} | {built['attentions']} | {case.exporter}, {row['opset']} | {built['nodes']} | {cells} |"
    )


def _cell(cell: Mapping[str, Any]) -> str:
    if "layers" not in cell:
        return "refused" if "refused" in cell else "–"
    layers = cell["layers"] - sum(cell["loose"].get(kind, 0) for kind in _ORDER)
    fused = Counter(next(t for t in _TYPES if t in types) for types in cell["fused"])
    return " · ".join([str(layers), *(f"{count} {kind}" for kind, count in fused.items())])


def _refusal(cell: Mapping[str, Any]) -> str:
    return f"{limit_of(cell)}: {shorten(cell['refused'])}"


def read_versions(python: str) -> str:
    """The releases of what exports, as the Python that has it says."""
    code = (
        "import importlib.metadata as m, json; "
        f"print(json.dumps({{'said': ', '.join(f'{{n}} {{m.version(n)}}' for n in {EXPORTERS})}}))"
    )
    return str(child([python, "-c", code], 60).said["said"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/run models", description=__doc__)
    parser.add_argument("names", nargs="*", help="models by a part of their name; all by default")
    parser.add_argument("--cache", type=Path, default=Path(".wild"), help="where results are kept")
    parser.add_argument("--models", type=Path, default=Path(".wild"), help="where exported files are kept")
    parser.add_argument("--samples", type=int, default=2, help="random samples to calibrate on")
    parser.add_argument("--limit", type=float, default=300, help="seconds for each cell")
    parser.add_argument(
        "--exporter", default=sys.executable, help="a Python that has torch, transformers, ..."
    )
    parser.add_argument("--again", action="store_true", help="forget the results of these models")
    parser.add_argument("--only-table", action="store_true", help="build nothing, write what is there")
    parser.add_argument("--table", type=Path, help="write the table to this file too")
    options, known = parser.parse_args(), models_of_today()
    for folder in (options.cache, options.models):
        folder.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    wanted = [n for n in known if not options.names or any(part in n for part in options.names)]
    rows = {n: build(known[n], options) for n in wanted}
    page = write_page(rows, known, read_versions(options.exporter), options.samples)
    sys.stdout.write(page)
    if options.table:
        options.table.write_text(page, encoding="utf-8")
    cells = [row[p] for row in rows.values() for p in TARGETS if p in row]
    # A refusal in words is an answer.
    ended = any(cell.get("kind") in {"crash", "limit"} for cell in cells)
    return 1 if ended or any(_unknown(cell) > UNKNOWN for cell in cells if "layers" in cell) else 0


if __name__ == "__main__":
    sys.exit(main())
