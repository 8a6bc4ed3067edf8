"""What calibration costs above plain inference, and that its memory does not grow with the data."""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest

from rtlab import samples
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.data import CalibrationData
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Calibrator, Variant
from rtlab.quantize import collect, quantizable, scales

#: Calibrates ResNet-50 on as many images as the argument says, made one at a time; prints the process' peak
#: in MiB.
CALIBRATE = """
import sys, psutil, threading, numpy as np
from rtlab import samples
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.quantize import collect, quantizable
model = samples.load("resnet50").model
names = quantizable(model)
runner = OnnxRuntime()
engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
rng, shape = np.random.default_rng(0), model.input_shape(model.inputs[0])
batches = ({model.inputs[0]: rng.standard_normal(shape).astype(np.float32)} for _ in range(int(sys.argv[1])))
me, peak, done = psutil.Process(), [0], threading.Event()
def watch():
    while not done.wait(0.02):
        peak[0] = max(peak[0], me.memory_info().rss)
thread = threading.Thread(target=watch)
thread.start()
collect(names, batches, lambda b: runner.outputs(engine, b, names), Silent())
done.set()
thread.join()
print(peak[0] / 2**20)
"""


@functools.cache
def resnet():
    return samples.load("resnet50").model


def test_calibration_costs_at_most_twice_plain_inference(benchmark) -> None:
    """Peers take 7 to 16 times as long; measured per image, in turns with plain inference on one thread."""
    model, images = resnet(), 8
    name, names = model.inputs[0], quantizable(model)
    data = CalibrationData.random(model, samples=images)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    runner = OnnxRuntime(threads=1)
    engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    plain: list[float] = []
    busy: list[float] = []

    def inference() -> None:
        started = time.perf_counter()
        for batch in data.batches(model, 1):
            session.run(None, {name: batch[name]})
        plain.append(time.perf_counter() - started)

    def calibration() -> None:
        started = time.process_time()
        collect(names, data.batches(model, 1), lambda b: runner.outputs(engine, b, names), Silent())
        busy.append(time.process_time() - started)

    # In turn, so that a drift of the machine's speed meets both.
    benchmark.pedantic(calibration, setup=inference, rounds=7, warmup_rounds=2)
    ratios = sorted(t / p for t, p in zip(benchmark.stats.stats.data, plain[2:], strict=True))
    benchmark.extra_info |= {
        "ratios": ratios,
        "processor_time_ratios": sorted(t / p for t, p in zip(busy[2:], plain[2:], strict=True)),
        "plain_ms_per_image": statistics.median(plain) / images * 1e3,
    }
    assert statistics.median(ratios) <= 2.0


def test_memory_is_the_same_for_16_and_128_images(benchmark) -> None:
    """A peer keeps 111 MB per image, 14.7 GB at 128."""

    def peak(images: int) -> float:
        out = subprocess.run(
            [sys.executable, "-c", CALIBRATE, str(images)], check=True, capture_output=True, text=True
        )
        return float(out.stdout)

    few = peak(16)
    many = benchmark.pedantic(lambda: peak(128), rounds=1)
    benchmark.extra_info |= {"peak_mib_at_16": few, "peak_mib_at_128": many}
    assert many <= 1.05 * few


@pytest.mark.parametrize("calibrator", [Calibrator.MINMAX, Calibrator.ENTROPY2])
def test_choosing_a_scale_costs_less_than_a_tenth_of_an_inference(benchmark, calibrator: Calibrator) -> None:
    """Changing the calibrator must feel instant, because the ranges are already there."""
    model = resnet()
    rng = np.random.default_rng(0)
    array = np.maximum(rng.standard_normal(300_000), 0).astype(np.float32)
    seen = collect(["x"], [{"x": array}], dict, Silent())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    feed = {model.inputs[0]: np.zeros(model.input_shape(model.inputs[0]), np.float32)}
    plain = min(_timed(lambda: session.run(None, feed)) for _ in range(5))
    benchmark.pedantic(lambda: scales(seen, calibrator), rounds=20, warmup_rounds=2)
    benchmark.extra_info |= {"inference_s": plain, "ratio": benchmark.stats.stats.min / plain}
    assert benchmark.stats.stats.min <= plain / 10


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
