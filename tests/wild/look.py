"""Opens one model in one precision as a user of rtlab would: ``python look.py FILE PRECISION SHAPES SAMPLES [TARGET]``.

Prints JSON: what was built and mapped and how long it took, or the refusal.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from typing import Any

import rtlab
from rtlab.core.attention import find_attentions
from rtlab.core.progress import Silent
from rtlab.errors import RtlabError

#: What TensorRT writes into the name of a layer that computes attention whole.
FUSED = re.compile(r"_gem[mv]_mha_v\d")


def look(
    path: str, precision: str, shapes: dict[str, list[int]], samples: int, target: str | None = None
) -> dict[str, Any]:
    started = time.perf_counter()
    model = rtlab.load(path, shapes={name: tuple(shape) for name, shape in shapes.items()} or None)
    study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=samples, seed=0))
    study.add(precision, backend="tensorrt-rtx", target=target)
    study.run(progress=Silent(), compare=False)
    seconds = time.perf_counter() - started
    result = study[precision]
    reasons = Counter(m.reason for m in result.mapping.missing)
    unknown = {m.node: model.by_id[m.node].op for m in result.mapping.missing if m.reason == "unknown"}
    held = {p.layer for p in result.mapping.pairs}
    loose = [y for y in result.engine.layers if y.id not in held]
    return {
        "nodes": len(model.nodes), "layers": len(result.engine.layers),
        "in layers": len({p.node for p in result.mapping.pairs}), "reasons": dict(reasons),
        "unknown": dict(Counter(unknown.values())), "unknown nodes": list(unknown)[:20],
        "loose": dict(Counter(y.kind for y in loose)), "compiler": result.engine.seconds, "seconds": seconds,
        "notes": list(result.prepared.notes), "target": str(result.engine.target), "fused": [
            sorted({t.dtype for t in y.inputs}) for y in result.engine.layers if FUSED.search(y.name)
        ], "attentions": len(find_attentions(model)), "version": result.engine.version,
    }  # fmt: skip


def main(path: str, precision: str, shapes: str, samples: str, target: str | None = None) -> dict[str, Any]:
    try:
        return look(path, precision, json.loads(shapes), int(samples), target)
    except RtlabError as error:
        return {"refused": str(error), "kind": type(error).__name__, "details": (error.details or "")[-2000:]}


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    sys.stdout.write(json.dumps(found) + "\n")
