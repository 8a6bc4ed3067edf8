"""What a piece of a file tells that somebody pasted, and what it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pasted
import rtlab

#: By hand, of the corpus: layers, microseconds of all of them, layers of the network pass by pass, version, latency.
BY_HAND: dict[str, tuple[int, float | None, tuple[int, ...], str, float | None]] = {
    "python-build-trt7.log": (0, None, (9, 6, 5, 4), "", None),
    "load-engine.log": (0, None, (), "8.6.1", 0.0805),
    "profile-table.log": (4, 20 + 49 + 10 + 21, (), "", None),
    "inspector-piece.log": (2, None, (), "", None),
    "layer-lines.log": (2, None, (), "", None),
}


def told(path: Path) -> Any:
    result = rtlab.read(text=path.read_text(encoding="utf-8"))["engine"]
    log = result.log
    return {
        "engine": [result.engine.title, result.engine.device, str(result.engine.target), result.engine.notes],
        "layers": [[y.kind, y.name, y.reads, y.writes] for y in result.engine.layers],
        "timing": result.timing,
        "passes": log and [a.counts for a in log.attempts],
        "decisions": log and [p.decisions for a in log.attempts for p in a.passes],
        "tunings": log and log.tunings,
        "findings": result.findings,
    }


@pytest.mark.parametrize("path", sorted((pasted.CORPUS / "pasted").glob("*")), ids=lambda p: p.name)
def test_pieces_of_the_corpus_tell_what_was_written_into_them(path: Path, golden: Any) -> None:
    result = rtlab.read(text=path.read_text(encoding="utf-8"))["engine"]
    times, log = result.timing, result.log
    layers, microseconds, counts, version, latency = BY_HAND[path.name]
    assert (layers, version) == (len(result.engine.layers), result.engine.version)
    assert counts == (log.attempts[0].counts if log and log.attempts else ())
    assert microseconds == (pytest.approx(1e3 * times.summed) if times and times.layers else None)
    assert latency == (times.total if times else None)
    golden(f"pasted/{path.stem}.json", {path.name: told(path)})
