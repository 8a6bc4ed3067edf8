"""What a piece of a file tells that somebody pasted, and what it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pasted
import rtlab
from rtlab.errors import ReadError

SHARED = (
    *sorted((pasted.SHARED / "pasted").glob("*")),
    *sorted((pasted.SHARED / "engines" / "detr-names-only").glob("*.json")),
    *(pasted.SHARED / "build-logs").glob("mnist-trt10.16-h100-foreign-node.log"),
)
#: By hand, of the corpus: layers, microseconds of all of them, layers of the network pass by pass, version, latency.
BY_HAND: dict[str, tuple[int, float | None, tuple[int, ...], str, float | None]] = {
    "python-build-trt7.log": (0, None, (9, 6, 5, 4), "", None),
    "load-engine.log": (0, None, (), "8.6.1", 0.0805),
    "profile-table.log": (4, 20 + 49 + 10 + 21, (), "", None),
    "inspector-piece.log": (2, None, (), "", None),
    "layer-lines.log": (2, None, (), "", None),
}


def told(path: Path) -> list[str]:
    """A line for each thing that a reader sees."""
    try:
        study = rtlab.read(text=path.read_text(encoding="utf-8"))
    except ReadError as error:
        return [str(error)]
    result = study["engine"]
    engine, log, times = result.engine, result.log, result.timing
    rows = [f"{engine.title or 'untold'} · {engine.device or 'no device'} · {engine.target}"]
    rows += [f"{len(engine.layers)} layers, {sum(bool(y.kind) for y in engine.layers)} of a kind"]
    rows += [f"    {y.kind or '-'} {y.name}" for y in engine.layers[:8]]
    if times is not None:
        rows.append(f"{len(times.layers)} timed, {1e3 * times.summed:.1f} µs in all")
        rows += [f"an inference in {1e3 * times.total:.4g} µs"] if times.total else []
    if log is not None:
        rows += [f"passes {a.counts}" for a in log.attempts]
        rows.append(f"{sum(len(p.decisions) for a in log.attempts for p in a.passes)} decisions")
        rows.append(
            f"{sum(t.count for t in log.tunings)} tactics timed for {len({t.layer for t in log.tunings})} layers"
        )
    rows += [f"note: {n}" for n in engine.notes]
    return [*rows, *(f"{f.rule}: {f.title} {f.cost}" for f in result.findings)]


@pytest.mark.parametrize("path", sorted((pasted.CORPUS / "pasted").glob("*")), ids=lambda p: p.name)
def test_pieces_of_the_corpus_tell_what_was_written_into_them(path: Path, golden: Any) -> None:
    result = rtlab.read(text=path.read_text(encoding="utf-8"))["engine"]
    times, log = result.timing, result.log
    layers, microseconds, counts, version, latency = BY_HAND[path.name]
    assert (layers, version) == (len(result.engine.layers), result.engine.version)
    assert counts == (log.attempts[0].counts if log and log.attempts else ())
    assert microseconds == (pytest.approx(1e3 * times.summed) if times and times.layers else None)
    assert latency == (times.total if times else None)
    golden(f"pasted/{path.stem}.txt", {f"# {path.name}": told(path)})


@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.name)
def test_what_people_pasted_tells_what_it_holds_and_asks_for_the_rest(path: Path, golden: Any) -> None:
    golden(f"pasted/recorded-{path.stem}.txt", {f"# {path.name}": told(path)})
