"""Every backend keeps what the protocol promises: rtlab's, providers, the reader of files, the documented one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab import backends
from rtlab.testing import Check, ReferenceBackend, conformance, tiny_model

ROOT = Path(__file__).parents[2]
LISTINGS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/backend.md").read_text(encoding="utf-8"), re.DOTALL
)


def documented() -> Any:
    """The backend of docs/backend.md, from its very text."""
    (listing,) = (text for text in LISTINGS if "class Plain" in text)
    found: dict[str, Any] = {"__name__": "documented"}
    exec(compile(listing, "docs/backend.md", "exec"), found)  # noqa: S102 - our own page
    return found["Plain"]()


def providers() -> list[Any]:
    """Providers of ONNX Runtime that can be asked for here; none in the usual build."""
    here = [n for n, a in backends.available().items() if n.startswith("onnxruntime:") and a.ok]
    return [backends.get(name) for name in here]


def files(tmp: Path) -> dict[str, Path]:
    """A layer file of an engine that was built here, as the inspector writes it."""
    study = rtlab.Study(tiny_model())
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.run(compare=False, budget_s=0)
    return {"layers": study.save_build("fp32", tmp / "layers.json", kind="layers")}


def named(backend: Any, **more: Any) -> list[Any]:
    return [pytest.param(check, id=f"{backend.name}: {check}") for check in conformance(backend, **more)]


EVERY = [
    check
    for backend in (
        backends.get("onnxruntime"), *providers(), backends.get("tensorrt-rtx"), backends.get("tensorrt"),
        backends.get("onnxruntime:cuda"), backends.get("classic"), ReferenceBackend(), documented(),
    )
    for check in named(backend)
]  # fmt: skip


@pytest.mark.parametrize("check", EVERY)
def test_it_keeps_the_protocol(check: Check) -> None:
    check()


def test_the_reader_of_files_keeps_the_protocol(tmp_path: Path) -> None:
    given = conformance(backends.get("trtexec"), files=files(tmp_path))
    assert "reads files and does not write them" in map(str, given)
    for check in given:
        check()


@pytest.mark.slow
def test_the_documented_backend_is_sixty_lines_and_its_own_times_are_shown() -> None:
    backend = documented()
    (listing,) = (text for text in LISTINGS if "class Plain" in text)
    imports = ("from ", "import ")
    code = [x for x in listing.splitlines() if x.strip() and not x.startswith(imports)]
    assert len(code) <= 60
    before = dict(backends.registry())
    try:
        study = rtlab.Study(tiny_model())
        study.add("plain", precision="fp32", backend=backend)
        study.run()
        result = study["plain"]
        assert backend.source == result.timing.source == result.profile.source
        assert result.measured is result.engine
        assert 30 == result.timing.runs
        # The evaluator computes the model itself: fp32 in another order of sums.
        assert min(v.sqnr for v in result.accuracy.values) > 90
        assert {"stem", "act", "y"} <= {v.value for v in result.accuracy.values}
        assert any("ONNX's evaluator, timed by its backend" in s["text"] for s in study.explore().status)
    finally:
        backends.registry().clear()
        backends.registry().update(before)
        backends._REGISTERED.discard("plain")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda told: dataclasses.replace(told, fused=not told.fused, rule="a rule"),
            "and in its engine they are",
        ),
        (lambda told: dataclasses.replace(told, rule=""), "that they are one layer, by no rule"),
        (lambda told: dataclasses.replace(told, source=""), "has no source"),
        (lambda told: dataclasses.replace(told, text="perhaps"), 'is no sentence: "perhaps"'),
        (lambda told: told.fused, "and no Ruled"),
    ],
)
def test_rules_that_are_not_those_of_the_engines_are_noticed(change, words) -> None:
    class Bug(type(backends.get("classic"))):  # type: ignore[misc]
        def explain(self, *asked: Any) -> Any:
            return change(super().explain(*asked))

    name = "tells of two nodes what its engines show, with a rule and its source"
    (check,) = [c for c in conformance(Bug()) if str(c) == name]
    with pytest.raises(AssertionError, match=re.escape(words)):
        check()


def test_the_examination_in_the_documentation_runs() -> None:
    (examined,) = (text for text in LISTINGS if "conformance(Plain())" in text and "class" not in text)
    exec(compile(examined, "docs/backend.md", "exec"), {"Plain": documented})  # noqa: S102 - our own page
