"""What ``tests/run wild`` promises, without torch: its cases, its limits, and the sums of its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WILD = Path(__file__).parents[1] / "wild"


@pytest.fixture
def wild(monkeypatch):
    """The program and its list of cases."""
    monkeypatch.syspath_prepend(str(WILD))
    import catalogue
    import run

    yield run, catalogue.cases()
    for name in ("run", "catalogue"):
        sys.modules.pop(name, None)


def test_the_cases_cover_what_people_export(wild) -> None:
    """Three libraries and onnx's own models, both exporters, opsets 9 to 21, sizes left open, FP16."""
    cases = wild[1].values()
    assert {"torchvision", "timm", "transformers", "torch", "onnx"} == {c.source for c in cases}
    assert {"TorchScript", "dynamo", "as it is"} == {c.exporter for c in cases}
    assert {*range(9, 19), 20, 21} <= {c.opset for c in cases}
    assert 3 <= sum("dynamic" in c.traits for c in cases)
    assert 3 <= sum(c.half for c in cases)
    assert 80 <= len({c.architecture for c in cases})


def test_the_list_needs_no_torch() -> None:
    """So that it can be read where nothing can be exported."""
    code = "import catalogue, sys; catalogue.cases(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=WILD, check=True)


def test_a_process_is_ended_at_its_limit_and_a_crash_is_told(wild) -> None:
    """One model must not hold all the others."""
    run = wild[0]
    late = run.child([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)
    assert "Not done after 0 s." == late.said["refused"]
    crashed = run.child([sys.executable, "-c", "raise ValueError('of no use')"], 60)
    assert ("ValueError: of no use", "crash") == (crashed.said["refused"], crashed.said["kind"])
    # Memory is looked at now and then: what is over at once may never have been seen.
    held = "import time; print('noise'); print('{\"a\": 1}'); time.sleep(1)"
    done = run.child([sys.executable, "-c", held], 60)
    assert {"a": 1} == done.said
    assert done.peak > 1 << 20


def test_the_table_counts_what_works_and_says_whose_limit_it_is(wild) -> None:
    """Sums by hand: 2 of 3 work; 4 unknown of 300 + 300 + 200 nodes."""
    run, cases = wild
    built = {"nodes": 100, "layers": 10, "reasons": {"view": 3}, "seconds": 3.0, "peak": 2 << 30, "notes": []}
    bare = {"refused": "", "seconds": 2.0, "peak": 1 << 30}
    half = {**built, "reasons": {"unknown": 2}}
    said = {"refused": 'Backend "tensorrt-rtx" cannot build "int8" for sm86: no.', "kind": "BuildError"}
    same = {**built, "notes": ["no node has an INT8 form here: the model is unchanged"]}
    first, second, third = list(cases)[:3]
    parts = {
        first: {"fp32": built, "fp16": built, "int8": same},
        second: {"fp32": half, "fp16": half, "int8": built},
        third: {"fp32": built, "fp16": built, "int8": said},
    }
    results = {
        n: {"bare": bare, "opset": 17, "producer": "pytorch 2", "load": 1.0, **p} for n, p in parts.items()
    }
    text = run.table(results, cases, 2)
    assert (
        "**2 of 3 files work in fp32, fp16, int8.** Of 800 nodes 4 (0.50%) are unknown; above 0.5% in "
        in text
    )
    assert f"above 0.5% in {second}." in text
    assert (
        "fp32 takes 1.50 times the bare builder's seconds in the median (1.50 to 1.50) and 2.00 times" in text
    )
    assert "10 · 10 · 10 as exported" in text
    assert f"- {third}, int8. The compiler's limit: Backend" in text
    limits = {"ModelError": "The file's limit", "RunError": "rtlab's limit", "crash": "rtlab's limit"}
    assert limits == {kind: run.limit_of({"refused": "x", "kind": kind}) for kind in limits}


def test_a_refusal_that_differs_in_the_name_of_the_precision_alone_is_told_once(wild) -> None:
    """int8 bears the name of its calibrator."""
    run, cases = wild
    said = 'Backend "tensorrt-rtx" cannot build "{}" for sm86: its parser refuses 1 node: "/NonZero".'
    names = {"fp32": "fp32", "fp16": "fp16", "int8": "int8·auto"}
    refused = {p: {"refused": said.format(n), "kind": "BuildError", "peak": 1} for p, n in names.items()}
    name = next(iter(cases))
    bare = {"refused": "no", "seconds": 2.0, "peak": 1 << 30}
    text = run.table({name: {"bare": bare, "opset": 17, **refused}}, cases, 2)
    assert f"- {name}, fp32 and fp16 and int8. The compiler's limit: {said.format('…')}" in text
