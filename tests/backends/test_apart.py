"""ONNX Runtime in processes of its own: when one of them dies, nothing is lost that was known before."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from rtlab import CalibrationData, Study, Task, backends
from rtlab.backends.workers import process
from rtlab.backends.workers.session_child import POOL
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.stage import Stage
from rtlab.core.variant import Variant
from rtlab.errors import BuildError
from rtlab.testing import tiny_model
from rtlab.web.page import chrome

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are ended by signals")

#: What the reporter is told when each stage begins.
PHASES = {Stage.TIMED: "Timing", Stage.COMPARED: "Comparing", Stage.SCORED: "Scoring"}
SAMPLES, BATCH = 12, 4
X = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    """Several of each pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rtlab.study.stages.batch_size", lambda *given: BATCH)
        yield


def planned() -> Study:
    """An int8 variant that has all stages, on the CPU; its metric is one that cannot be sent anywhere."""
    model = tiny_model()
    data = CalibrationData.random(model, samples=SAMPLES)
    labels = np.arange(SAMPLES) % 4
    metric = lambda outputs, known: float(np.mean(np.argmax(outputs, 1) == known))  # noqa: E731
    study = Study(model, data=data, task=Task(data, labels, metric=metric))
    study.add("int8", calibrator="minmax", target="cpu")
    return study


@pytest.fixture(scope="module")
def undisturbed():
    """What is found where nothing dies."""
    study = planned()
    study.run(budget_s=math.inf)
    return study["int8"]


class Crashing(Silent):
    """Ends the process at work, once: in the first call after a stage began, or after its first batch."""

    def __init__(self, word: str, name: str = "SIGSEGV", *, batches: int = 0) -> None:
        super().__init__()
        self._word, self._signal, self._batches = word, getattr(signal, name), batches
        self._open = self.done = False

    def phase(self, name: str, total: int | None = None) -> None:
        self._open = name.startswith(self._word)
        if not self._batches:
            self._crash()

    def advance(self, steps: int = 1) -> None:
        if self._batches:
            self._crash()

    def _crash(self) -> None:
        if not self._open or self.done:
            return
        self.done = True
        for child in POOL.children:
            # What stands still cannot answer before it is ended.
            os.kill(child.process.pid, signal.SIGSTOP)
            threading.Thread(target=self._end, args=(child,), daemon=True).start()

    def _end(self, child: Any) -> None:
        while not child.process.busy:
            time.sleep(0.001)
        pid = child.process.pid
        os.kill(pid, self._signal)
        # SIGKILL ends what stands still, too, and its parent may have seen that already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def states(study: Study) -> list[str]:
    return [s.state for s in study["int8"].stages.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name"),
    [*((s, "SIGSEGV") for s in PHASES), (Stage.COMPARED, "SIGABRT"), (Stage.SCORED, "SIGKILL")],
)
def test_a_crash_in_a_stage_costs_that_stage_alone(undisturbed, stage, name) -> None:
    study, progress = planned(), Crashing(PHASES[stage], name)
    study.run(progress=progress, budget_s=math.inf)
    assert progress.done
    result = study["int8"]
    assert {stage: "missing"} == {k: s.state for k, s in result.stages.items() if s.state != "done"}
    text = result.stages[stage].text
    assert f"process crashed with {name}" in text
    assert text in [s["text"] for s in chrome.list_status(study.state, "int8")]
    assert (result.source, result.engine) == (study.model, study["int8"].engine)
    study.measure("int8", budget_s=math.inf)
    assert ["done"] * 4 == states(study)
    assert study["int8"].engine is result.engine
    assert undisturbed.accuracy.values == study["int8"].accuracy.values
    assert undisturbed.score == study["int8"].score


@pytest.mark.slow
@pytest.mark.parametrize("stage", [Stage.COMPARED, Stage.SCORED])
def test_batches_before_a_crash_are_kept_and_measuring_goes_on_behind_them(undisturbed, stage) -> None:
    study, progress = planned(), Crashing(PHASES[stage], batches=1)
    study.run(progress=progress, budget_s=math.inf)
    known = study["int8"].stages[stage]
    assert ("partial", "failed", SAMPLES) == (known.state, known.why, known.target_count)
    # A comparison sums one batch while the next is computed.
    assert known.done in ({BATCH, 2 * BATCH} if stage is Stage.COMPARED else {BATCH})
    assert "crashed with SIGSEGV" in known.text
    study.measure("int8", budget_s=math.inf)
    assert ["done"] * 4 == states(study)
    assert undisturbed.accuracy.values == study["int8"].accuracy.values
    assert undisturbed.score == study["int8"].score


@pytest.mark.slow
def test_a_crash_in_the_middle_of_the_comparison_ends_the_comparison_alone() -> None:
    """Its sums are those of the samples before; the stage behind it starts another process."""
    study, progress = planned(), Crashing(PHASES[Stage.COMPARED], "SIGKILL", batches=1)
    study.run(progress=progress, budget_s=math.inf)
    assert ["done", "done", "partial", "done"] == states(study)
    assert "crashed with SIGKILL" in study["int8"].stages[Stage.COMPARED].text
    few = planned()
    few.run(budget_s=1e-9)
    if study["int8"].accuracy.samples > BATCH:
        few.measure("int8", budget_s=1e-9)
    assert few["int8"].accuracy.samples == study["int8"].accuracy.samples < SAMPLES
    assert few["int8"].accuracy.values == study["int8"].accuracy.values


@pytest.mark.slow
def test_a_budget_that_is_over_after_a_batch_ends_no_process() -> None:
    """The batch is summed, and the process goes on to the next stage."""
    study = planned()
    study.run(compare=False)
    build()
    before = [c.process.pid for c in POOL.children]
    study.measure("int8", budget_s=1e-9)
    assert BATCH == study["int8"].accuracy.samples
    assert before == [c.process.pid for c in POOL.children if c.process.alive]


@pytest.mark.slow
def test_a_comparison_gets_sums_from_its_process_and_no_values(monkeypatch) -> None:
    sizes: list[tuple[int, str]] = []
    unpack = process._unpack

    def note(data: bytes, path: str, parts: list[int]) -> Any:
        if progress.compares:
            sizes.append((len(data), path))
        return unpack(data, path, parts)

    class Noting(Silent):
        compares = False

        def phase(self, name: str, total: int | None = None) -> None:
            self.compares = name.startswith(PHASES[Stage.COMPARED])

    study, progress = planned(), Noting()
    study.run(compare=False)
    monkeypatch.setattr(process, "_unpack", note)
    study.measure("int8", progress=progress, budget_s=math.inf)
    values = sum(v.elements for v in study["int8"].accuracy.values)
    assert {""} == {path for _, path in sizes}
    assert sum(size for size, _ in sizes) < values


def test_a_crash_while_a_model_is_built_is_the_variants_own_failure() -> None:
    # The process that is to crash is there before the phase begins.
    build()
    study = planned()
    study.add("fp32", target="cpu")
    with pytest.raises(BuildError, match="crashed with SIGSEGV"):
        study.run(["int8", "fp32"], progress=Crashing("Optimizing"))
    assert ["fp32"] == list(study)


def build(model=None):
    return backends.get("onnxruntime").build(BuildRequest(model or tiny_model(), Variant()), Silent())


@pytest.mark.slow
def test_a_child_sees_the_environment_that_the_notebook_has_now(monkeypatch) -> None:
    """Switches such as CUDA_LAUNCH_BLOCKING are set in a cell, after the first run."""
    build()
    before = {c.process.pid for c in POOL.children}
    monkeypatch.setenv("RTLAB_TEST_SWITCH", "1")
    build()
    (new,) = (c.process.pid for c in POOL.children if c.process.pid not in before)
    told = Path(f"/proc/{new}/environ")
    assert not told.exists() or b"RTLAB_TEST_SWITCH=1" in told.read_bytes().split(b"\0")


@pytest.mark.slow
def test_weights_beside_a_model_are_found_by_its_relative_path(tmp_path, monkeypatch) -> None:
    build()
    proto = onnx.load_from_string(tiny_model().bytes())
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    runner, model = backends.get("onnxruntime"), load("m.onnx")
    found, expected = (runner.outputs(build(m), {"x": X})["y"] for m in (model, tiny_model()))
    np.testing.assert_array_equal(expected, found)
