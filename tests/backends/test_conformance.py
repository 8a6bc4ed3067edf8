"""Every backend keeps what the protocol promises: rtlab's, providers, the reader of files, the documented one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rtlab
from rtlab import backends
from rtlab.errors import RunError
from rtlab.testing import Check, ReferenceBackend, conformance, tiny_model

ROOT = Path(__file__).parents[2]
LISTINGS = re.findall(
    r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
)


def documented() -> Any:
    """The backend of CONTRIBUTING.md, from its very text."""
    (listing,) = (text for text in LISTINGS if "class Plain" in text)
    found: dict[str, Any] = {"__name__": "documented"}
    exec(compile(listing, "CONTRIBUTING.md", "exec"), found)  # noqa: S102 - our own page
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
    return {"layers": study.export_layers("fp32", tmp / "layers.json")}


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
        backends._HANDED.discard("plain")


def failing(backend: Any) -> dict[str, str]:
    """What the suite says is wrong, by check."""
    found = {}
    for check in conformance(backend):
        if said := wrong(check):
            found[str(check)] = said
    return found


def wrong(check: Check) -> str:
    try:
        check()
    except AssertionError as error:
        return str(error)
    return ""


Plant = Callable[[type], type]


def wrong_by_a_percent(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def outputs(self, *args: Any, **more: Any) -> Any:
            return {k: v * 1.01 for k, v in super().outputs(*args, **more).items()}

    return Bug


def deaf(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def profile(self, engine: Any, inputs: Any, progress: Any, **more: Any) -> Any:
            from rtlab.core.progress import Silent

            return super().profile(engine, inputs, Silent(), **more)

    return Bug


def boastful(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def capabilities(self) -> Any:
            return dataclasses.replace(super().capabilities(), opens=True)

    return Bug


def loose(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def outputs(self, *args: Any, **more: Any) -> Any:
            try:
                return super().outputs(*args, **more)
            except RunError as error:
                raise KeyError(str(error)) from error

    return Bug


def scribbling(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def outputs(self, engine: Any, inputs: Any, *args: Any, **more: Any) -> Any:
            found = super().outputs(engine, inputs, *args, **more)
            for array in inputs.values():
                np.multiply(array, 1.0001, out=array)
            return found

    return Bug


def untimed(base: type) -> type:
    class Bug(base):  # type: ignore[misc]
        def profile(self, *args: Any, **more: Any) -> Any:
            found = super().profile(*args, **more)
            return dataclasses.replace(found, runs=30)

    return Bug


@pytest.mark.parametrize(
    ("plant", "check", "words"),
    [
        (wrong_by_a_percent, "computes what the model says", r'"y" is off by 0\.01 of its largest magnitude'),
        (deaf, "stops runs when it is asked to", r"profile\(\) goes on although it was asked to stop"),
        (boastful, "says what it can do, and has the methods for it", "of Opener it lacks open_plan, save"),
        (loose, "refuses values and inputs that there are not, in words", "it raises KeyError .*RunError is promised"),
        (scribbling, "leaves its inputs as they are", 'it writes into input "x"'),
        (untimed, "times as many runs as it says", "it tells of 30 runs, and has times of 3 inferences"),
    ],
)  # fmt: skip
def test_a_planted_bug_is_noticed(plant: Plant, check: str, words: str) -> None:
    found = failing(plant(type(documented()))())
    assert check in found
    assert re.search(words, found[check])


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
        (lambda told: told.fused, "and a Ruled belongs there"),
    ],
)
def test_rules_that_are_not_those_of_the_engines_are_noticed(change, words) -> None:
    class Bug(type(backends.get("classic"))):  # type: ignore[misc]
        def explain(self, *asked: Any) -> Any:
            return change(super().explain(*asked))

    check = "tells of two nodes what its engines show, with a rule and its source"
    assert words in failing(Bug())[check]


def test_the_examination_in_the_documentation_runs() -> None:
    (examined,) = (text for text in LISTINGS if "conformance(Plain())" in text and "class" not in text)
    exec(compile(examined, "CONTRIBUTING.md", "exec"), {"Plain": documented})  # noqa: S102 - our own page
