"""What it takes to compare every value of a variant, own and accumulated, beside ONNX Runtime's own debugger."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, qdq_loss_debug

import rtlab
from rtlab.core.progress import Silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conftest import Care

SAMPLES = 32
#: How many times as fast as the debugger a comparison has to be, which tells accumulated errors alone.
FASTER = 2.0
#: What it may take, in plain inferences of the same samples, and in the least that it can take on this machine: every
#: product exactly, rounded by itself, and rounded behind rounded ones; and one pass over every value of both graphs.
PLAIN = {"resnet50": 4.5, "mobilenet_v2": 9.0}
FLOORS = {"resnet50": 1.6, "mobilenet_v2": 2.6}


class Clock(Silent):
    """Seconds of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        self._open = ("", 0.0)

    def phase(self, name: str, total: int | None = None) -> None:
        """Close the phase before, and begin one."""
        before, began = self._open
        self.seconds[before] = self.seconds.get(before, 0.0) + time.perf_counter() - began
        self._open = name, time.perf_counter()


class Reader(CalibrationDataReader):
    """Samples as the debugger reads them."""

    def __init__(self, batches: list[Mapping[str, NDArray[Any]]]) -> None:
        self._left: Iterator[Mapping[str, NDArray[Any]]] = iter(batches)

    def get_next(self) -> Any:
        """The next sample."""
        return next(self._left, None)


def session(model: bytes | str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def debugged(float_model: bytes, rounded: bytes, batches: list[Mapping[str, NDArray[Any]]]) -> int:
    """As its documentation has it: all activations of both models, and the SQNR of each; gives their number."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name, content in (("float", float_model), ("rounded", rounded)):
            plain, wide = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}_wide.onnx"
            plain.write_bytes(content)
            qdq_loss_debug.modify_model_output_intermediate_tensors(str(plain), str(wide))
            found.append(qdq_loss_debug.collect_activations(str(wide), Reader(batches)))
        floats, after = found
        # Both models call a value by one name, so that the debugger's search for pairs is not needed.
        pairs = {
            n: {"pre_qdq": after[n], "post_qdq": after[n], "float": floats[n]} for n in floats if n in after
        }
        return len(qdq_loss_debug.compute_activation_error(pairs))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param("resnet50", marks=pytest.mark.whole), "mobilenet_v2"])
def test_values_are_compared_faster_than_by_the_debugger(benchmark, care: Care, name: str) -> None:
    sample = rtlab.samples.load(name, samples=care.size(SAMPLES, 2))
    batches = [dict(b) for b in sample.calibration.batches(sample.model, 1)]
    plain = session(sample.model.bytes())
    once, own = [], []
    for _ in range(care.size(3, 1)):
        # In turn, so that a drift of the machine's speed meets both.
        once += [_timed(lambda: [plain.run(None, b) for b in batches]) for _ in range(2)]
        study = rtlab.Study(sample.model, data=sample.calibration)
        study.add("v", precision="int8", calibrator="minmax", backend="onnxruntime", target="cpu")
        clock = Clock()
        study.run(["v"], progress=clock, budget_s=float("inf"))
        clock.phase("")
        own.append(clock.seconds["Opening what is compared"] + clock.seconds["Comparing values"])
    told = study["v"].accuracy
    assert told.samples == len(batches)
    assert sum(v.own_sqnr is not None for v in told.values) > len(told.values) / 2
    numbers = np.ones(sum(v.elements for v in told.values) // len(batches), np.float32)
    read = 2 * len(batches) * min(_timed(numbers.max) for _ in range(5))
    ours, inference = min(own), min(once)
    floor = 3 * inference + read
    began = time.perf_counter()
    pairs = benchmark.pedantic(
        debugged, args=(sample.model.bytes(), study["v"].prepared.emulation.bytes(), batches), rounds=1
    )
    theirs = time.perf_counter() - began
    benchmark.extra_info |= {
        "x plain": {k: s / inference for k, s in (("rtlab", ours), ("debugger", theirs), ("floor", floor))},
        "x floor": ours / floor,
        "pairs": pairs,
    }
    assert ours / inference <= care.most(PLAIN[name])
    assert ours / floor <= care.most(FLOORS[name])
    assert pairs >= len(told.values)
    assert theirs / ours >= care.least(FASTER)


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
