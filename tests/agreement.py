"""Does a verdict of TensorRT-RTX hold for TensorRT? ``python tests/agreement.py`` writes the table that rtlab ships.

Of the recorded engines those count whose ONNX graph was recorded with them; the graph gets random weights, is built
with TensorRT-RTX for the GPU that the engine is for, and each pair of neighbours is looked up in both.
"""

from __future__ import annotations

import collections
import datetime
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import recorded
import rtlab
from rtlab.questions.fusion import related
from rtlab.questions.why import agreement
from rtlab.questions.why.missed import readers, together

#: Of engines whose files do not tell their release, what those say who published them.
PUBLISHED = {"fuzzy-": "TensorRT 10.4"}
WHERE = Path(agreement.__file__).with_name("agreement.json")


def weighed(path: Path) -> rtlab.Model:
    """A recorded graph, whose weights nobody recorded, with random ones of their size."""
    proto = onnx.load(path, load_external_data=False)
    random = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            spread = np.sqrt(2 / max(1, int(np.prod(tensor.dims[1:]))))
            numbers = random.standard_normal(tuple(tensor.dims), np.float32) * np.float32(spread)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    return rtlab.load(proto)


def pairs(folder: Path) -> tuple[dict[str, collections.Counter[str]], str, str]:
    """By kind of pair, how many are one step in both, in one alone, in neither; and which two compilers these are."""
    (graph,) = folder.glob("*.onnx")
    model = weighed(graph)
    study = rtlab.Study(model)
    study.read("tensorrt", **recorded.files(folder))
    theirs = study["tensorrt"]
    # The same arithmetic for the same generation of cards.
    half = any(y.precision == "fp16" for y in theirs.engine.layers)
    study.add("rtx", precision="fp16" if half else "fp32", target="sm86")
    study.run(["rtx"], compare=False)
    mine = study["rtx"]
    built = related(mine.engine, mine.prepared.model, mine.prepared.model)
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for node in model.top:
        for value in node.outputs:
            for reader in readers(model, value):
                one, other = together(built, node.id, reader), together(theirs.mapping, node.id, reader)
                if one is None or other is None:
                    continue
                where = ("both" if other else "rtx") if one else ("tensorrt" if other else "neither")
                found[agreement.kind(node.op, model.by_id[reader].op)][where] += 1
    return found, theirs.engine.title, mine.engine.title


def table() -> dict[str, object]:
    """What is shipped."""
    total: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    engines, asked = [], set()
    for folder in recorded.REAL:
        if not any(folder.glob("*.onnx")):
            continue
        found, told, mine = pairs(folder)
        asked.add(mine)
        release = next((r for p, r in PUBLISHED.items() if folder.name.startswith(p)), "TensorRT")
        told = told.replace("TensorRT (version not told)", release)
        engines.append({"name": folder.name, "compiler": told})
        for kind, counts in found.items():
            total[kind].update(counts)
    rows = [
        {"kind": kind, **{k: total[kind][k] for k in ("both", "rtx", "tensorrt", "neither")}}
        for kind in sorted(total, key=lambda k: (-total[k].total(), k))
    ]
    return {
        "date": datetime.date.today().isoformat(),  # noqa: DTZ011 - the day where it was made
        "compilers": sorted(asked),
        "engines": engines,
        "pairs": rows,
    }


def lines() -> list[str]:
    """The table of the documentation, as it has to be."""
    known = agreement.known()
    return [
        "| pair | in both | only TensorRT-RTX | only TensorRT | in neither |",
        "|---|---|---|---|---|",
        *(
            f"| {p.kind.replace(' | ', ', ')} | {p.both} | {p.rtx} | {p.tensorrt} | {p.neither} |"
            for p in known.pairs
        ),
    ]


if __name__ == "__main__":
    WHERE.write_text(json.dumps(table(), indent=1) + "\n", encoding="utf-8")
