"""What preparing a model costs, and loading one in a new process. Ratios to floors in the same run."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import rtlab
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import prepare, quantizable

ROOT = Path(rtlab.__file__).parents[1]
MIX = {"*": "fp16", "op:Conv": "int8", "op:Gemm": "int8"}


@functools.cache
def model_of(name: str) -> Model:
    return rtlab.samples.load(name).model


def least(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of the fastest of several rounds."""
    took = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took)


def arithmetic(model: Model, kind: type) -> None:
    """What nobody can leave out: a look at each weight, and its numbers in another type, in the plainest way."""
    for tensor in model.known.values():
        values = np.asarray(tensor.numpy())
        if values.dtype == np.float32 and values.size:
            scaled = values / np.float32(np.abs(values).max() or 1)
            (np.rint(scaled) if kind is np.int8 else scaled).astype(kind)


def turn(model: Model) -> None:
    """The graph in its two forms, there and back: what a step between editing representations costs."""
    light, _ = model.outline()
    onnx.shape_inference.infer_shapes(light)
    ir.from_proto(light)


@pytest.mark.parametrize(
    ("precision", "most"), [("int8", 2.5), ("fp16", 2.5), (MIX, 4.0)], ids=["int8", "fp16", "mix"]
)
@pytest.mark.parametrize("name", [pytest.param("resnet50", marks=pytest.mark.whole), "mobilenet_v2"])
def test_preparing_costs_little_beside_its_arithmetic_and_one_conversion(
    benchmark, care, name: str, precision: str | dict[str, str], most: float
) -> None:
    """The graph is never converted: the floor is the weights' arithmetic, and one turn through a proto beside it."""
    model = model_of(name)
    scales = {v: Scale(8.0) for v in quantizable(model)}
    variant = Variant.of(precision, calibrator=None if precision == "fp16" else "minmax")
    kind = np.float16 if precision == "fp16" else np.int8
    rounds = care.size(5, 1)
    floor = least(lambda: (arithmetic(model, kind), turn(model)), rounds)
    found = benchmark.pedantic(
        lambda: least(lambda: prepare(model, variant, scales=scales), rounds), rounds=1, iterations=1
    )
    benchmark.extra_info |= {"by the floor": found / floor, "floor_seconds": floor}
    assert found <= care.most(most * floor)


def test_a_small_model_is_loaded_in_a_new_process_in_little_more_than_its_packages_take(
    benchmark, care
) -> None:
    """ONNX and NumPy have to be imported; SymPy, which onnx-ir asks for, took more than both."""
    model = ROOT / "sample_models" / "digits_vit.onnx"

    def start(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        return time.perf_counter() - started

    ours, floor = [], []

    def turn() -> None:
        ours.append(start(f"import rtlab; rtlab.load({str(model)!r})"))
        floor.append(start("import numpy, onnx"))

    benchmark.pedantic(turn, rounds=7, warmup_rounds=1)
    ratio = min(ours) / min(floor)
    benchmark.extra_info |= {"by the imports": ratio, "seconds": min(ours)}
    assert ratio <= care.most(2.5)
