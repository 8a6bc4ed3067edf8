"""What the examples in docstrings run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def example_study() -> Any:
    """A study of a tiny model with three variants that are built, one of them by rules for a GPU."""
    import rtlab

    model = rtlab.testing.tiny_model()
    data = rtlab.CalibrationData.random(model, samples=8)
    study = rtlab.Study(model, data=data, task=rtlab.Task(data))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.add("int8", target="cpu", backend="onnxruntime", calibrator="minmax")
    study.add("fp16", target="sm86", backend="classic")
    return study.run(budget_s=5)


@pytest.fixture(scope="session")
def example_sweep(example_study: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A sweep of that study's model in two variants."""
    import rtlab

    grid = rtlab.grid(example_study, precision=["fp32", "fp16"], target="sm86", backend="classic")
    return rtlab.Store(tmp_path_factory.mktemp("sweep") / "runs").run(grid)


@pytest.fixture(autouse=True)
def _examples(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the examples of ``rtlab.Study`` their ``study``, and a folder of their own to write to."""
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.startswith(
        ("rtlab.api", "rtlab.stores", "rtlab.study")
    ):
        monkeypatch.chdir(tmp_path)
        namespace = request.getfixturevalue("doctest_namespace")
        namespace["study"] = request.getfixturevalue("example_study")
        if request.node.name.startswith(("rtlab.stores", "rtlab.study.sweep", "rtlab.study.grid")):
            import rtlab

            sweep = request.getfixturevalue("example_sweep")
            namespace |= {"rtlab": rtlab, "sweep": sweep, "store": sweep.store}
