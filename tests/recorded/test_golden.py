"""Figures of every engine that a real GPU wrote: what its files tell, and what is found in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recorded
import scenes
from answers import refusable
from rtlab.relation.layerwork import layer_works
from snapshots import Golden


@pytest.mark.parametrize("folder", recorded.REAL, ids=lambda f: f.name)
def test_figures_of_an_engine_are_those_of_the_file(folder: Path, request: pytest.FixtureRequest) -> None:
    study = scenes.engine(folder)
    golden = Golden(Path(__file__).parent / "golden", request.config.getoption("--accept"))
    golden(f"{folder.name}.json", {"figures": figures(study["engine"], study.model)})


def figures(result: Any, model: Any) -> dict[str, Any]:
    done = list(layer_works(result.engine, result.mapping, model).values())
    sums = {k: sum(getattr(w, k) or 0 for w in done) for k in ("macs", "flops", "read", "written")}
    schedule, times = result.schedule(), result.timing
    memory = refusable(result.memory)
    return {
        "title": result.engine.title,
        "kinds": dict(sorted(Counter(y.kind for y in result.engine.layers).items())),
        "types": dict(sorted(Counter(f"{y.reads} → {y.writes}" for y in result.engine.layers).items())),
        "evidence": dict(sorted(Counter(f"{p.role} {p.evidence}" for p in result.mapping.pairs).items())),
        "reasons": dict(sorted(Counter(m.reason for m in result.mapping.missing).items())),
        "work": sums,
        "memory": memory
        if isinstance(memory, dict)
        else {k: getattr(memory, k) for k in ("peak", "bound", "naive", "weights", "reported", "scratch")},
        "schedule": {k: getattr(schedule, k) for k in ("makespan", "serial", "chain", "unit")},
        "streams": len(schedule.streams),
        "times": times and {"total": times.total, "summed": times.summed, "layers": len(times.layers)},
        "findings": dict(sorted(Counter(f.rule for f in result.findings).items())),
        "reformats": dict(sorted(Counter(r.source for r in result.reformats()).items())),
    }
