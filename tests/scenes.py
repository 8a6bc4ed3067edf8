"""What ``tests/golden`` asks about: six samples in three precisions, two small models of its own, and eight engines.

Times that a machine would measure are invented here, so that all that follows from them can be compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper

import engines
import rtlab
from nets import fp32_proto
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.core.engine import Engine
from rtlab.core.model import make_empty_model
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.stage import Stage
from rtlab.core.trace import Profile
from rtlab.study import stages

CORPUS = Path(__file__).parent / "corpus"
#: Inception blocks with a residual, a recurrence, a transformer, Q/DQ of its own, outliers, control flow.
SAMPLES = ("control_flow", "digits_gru", "digits_inception", "digits_outlier", "digits_qat", "sentences")
#: Written by hand, one study of each network; and what TensorRT-RTX 1.7.1 printed of samples.
ENGINES = (
    "written", "written-mobile-fp16", "written-residual-int8", "written-names-only", "control_flow-fp16-sm86",
    "digits_inception-int8-sm89", "digits_lstm-fp32-sm86", "digits_vit-fp8-sm120",
)  # fmt: skip
SUBJECTS = (*SAMPLES, "cpu", "two_outputs", *ENGINES)
#: Samples that are made on demand and take long.
LARGE = {"googlenet", "resnet50", "mobilenet_v2", "bert", "csp_detector"}
DAY = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
COUNT = 16


def of(subjects: Iterable[str]) -> pytest.MarkDecorator:
    """A test of subjects; those of one stand behind each other (``tests/golden/conftest.py``)."""
    marked = [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in subjects]
    return pytest.mark.parametrize("subject", marked)


subjects, samples = of(SUBJECTS), of(SAMPLES)


def invented(engine: Engine, batch: int = 1, runs: int = 5) -> Profile:
    """Times of an engine's layers, microseconds by their position, and whole inferences of four fifths of them."""
    turns = 1 + 0.02 * np.arange(runs) * (-1.0) ** np.arange(runs)
    layers = {y.id: 1e-3 * (3 + 7 * y.index % 11) * (batch + 1) / 2 * turns for y in engine.layers}
    total = 0.8 * sum(layers.values(), np.zeros(runs))
    return Profile("invented", "invented", layers, total, 1, None, runs=runs)


def _time(self: Any, _within: Any) -> None:
    engine = self.result.engine
    self.result = dataclasses.replace(self.result, measured=engine, profile=invented(engine, runs=30))
    self._record_progress(Stage.TIMED, 30, 30, "runs")
    self._finish_stage(Stage.TIMED)


def _profile(_self: Any, engine: Engine, inputs: Any, *_: Any, runs: int = 30, **__: Any) -> Profile:
    return invented(engine, len(next(iter(inputs.values()))), runs)


def _dated(build: Callable[..., Engine]) -> Callable[..., Engine]:
    """A build that takes half a second on one day; at the level whose layers no processor has blocks of its own for."""

    def dated(self: Any, request: BuildRequest, progress: Progress) -> Engine:
        made = build(self, dataclasses.replace(request, level="basic"), progress)
        return dataclasses.replace(made, seconds=0.5, built=DAY)

    return dated


@contextlib.contextmanager
def timeless() -> Iterator[None]:
    """What would be timed has invented times meanwhile, and every build takes half a second on one day."""
    with contextlib.ExitStack() as stack:
        for home, name, made in (
            (stages._Measuring, "_time", _time),
            (OnnxRuntime, "profile", _profile),
            (OnnxRuntime, "build", _dated(OnnxRuntime.build)),
            (TensorRTRTX, "build", _dated(TensorRTRTX.build)),
        ):
            stack.enter_context(mock.patch.object(home, name, made))
        yield


@functools.cache
def sample(name: str) -> rtlab.Study:
    if name == "two_outputs":
        model = rtlab.load(two_outputs())
        return rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=COUNT, seed=3), stride=1)
    found = rtlab.samples.load(name)
    task = found.task and rtlab.Task(found.task.data.take(4 * COUNT), found.task.labels[: 4 * COUNT])
    data = found.calibration or rtlab.CalibrationData.random(found.model, samples=COUNT)
    return rtlab.Study(found.model, data=data.take(COUNT), task=task, stride=1)


def two_outputs() -> onnx.ModelProto:
    """A convolution with a residual, and two heads: a map of half the size with negative biases, and six classes."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 1, 1), "w3": (4, 8, 3, 3), "w4": (8, 6)}
    weights = {n: (rng.standard_normal(s) / 3).astype(np.float32) for n, s in shapes.items()}
    weights["b1"] = -np.linspace(0.5, 2, 8, dtype=np.float32)
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1", "b1"], ["c1"], name="stem", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], name="relu"), node("Conv", ["r1", "w2"], ["c2"], name="mix"),
        node("Add", ["c2", "r1"], ["a1"], name="add"), node("LRN", ["a1"], ["n1"], name="norm", size=3),
        node("Conv", ["n1", "w3"], ["map"], name="head", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["a1"], ["g1"], name="mean"), node("Flatten", ["g1"], ["f1"], name="flat"),
        node("MatMul", ["f1", "w4"], ["m1"], name="classes"),
        node("Softmax", ["m1"], ["share"], name="softmax", axis=-1),
    ]  # fmt: skip
    edges = {"image": ["N", 3, 8, 8]}, {"map": ["N", 4, 4, 4], "share": ["N", 6]}
    return fp32_proto(nodes, *edges, weights, name="two_outputs")


@functools.cache
def study(subject: str) -> rtlab.Study:
    if subject in SAMPLES:
        made = fresh(subject)
        for precision in ("fp32", "fp16", "int8"):
            calibrator = "minmax" if precision == "int8" else None
            made.add(
                precision, precision=precision, calibrator=calibrator, target="sm89", backend="tensorrt-rtx"
            )
    elif subject in {"cpu", "two_outputs"}:
        # Without convolutions of pictures, whose blocks depend on the processor.
        made = fresh("digits_gru" if subject == "cpu" else subject)
        made.add("fp32", target="cpu", backend="onnxruntime")
        for precision in ("fp16", "int8"):
            made.add(precision, precision=precision, target="cpu", backend="onnxruntime")
    elif subject == "written":
        folders = sorted(CORPUS.glob("engines/written-*p*[0-9]"))
        made = rtlab.Study(rtlab.load(folders[0] / "model.structure-only.onnx", weights=False))
        for precision in ("fp32", "fp16", "int8"):
            made.read(precision, **engines.files(f"written-{precision}"))
    elif subject.startswith("written"):
        made = engine(CORPUS / "engines" / subject)
    else:
        made = rtlab.Study(rtlab.samples.load(subject.partition("-")[0], samples=1).model)
        made.read("engine", CORPUS / "builds" / f"{subject}.log")
    with timeless():
        return made.run(budget_s=120) if not made.state.results else made


@functools.cache
def on_cpu(name: str) -> rtlab.Study:
    known = sample(name)
    # The largest values of outliers are rare.
    data = rtlab.samples.load(name).calibration.take(256) if name == "digits_outlier" else known.data
    made = rtlab.Study(known.model, data=data, task=known.task, stride=1)
    made.add("fp32", target="cpu", backend="onnxruntime")
    made.add("int8", precision="int8", calibrator="minmax", target="cpu", backend="onnxruntime")
    with timeless():
        return made.run(budget_s=120)


def fresh(name: str) -> rtlab.Study:
    known = sample(name)
    return rtlab.Study(known.model, data=known.data, task=known.task, stride=1)


def head(facts: Any) -> str:
    return f"{facts.name} · {facts.engine.title.partition(' · ')[0] or 'no compiler'}"


def sections(subject: str, question: Callable[[rtlab.Study, str], Any]) -> dict[str, Any]:
    made = study(subject)
    return {head(made[name].facts): question(made, name) for name in made}


@functools.cache
def engine(folder: Path) -> rtlab.Study:
    known = next(iter(folder.glob("*.onnx")), None)
    made = rtlab.Study(rtlab.load(known, weights=False) if known else make_empty_model())
    made.read("engine", **engines.files(folder))
    return made


def steps(layer: Any) -> list[str]:
    name = layer.tactic if layer.tactic.startswith("__myl_") else layer.name
    glued = name.split("_")[3] if name.startswith("__myl_") else ""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", glued).split()


def multiplies(layer: Any) -> bool | None:
    """Whether a layer is a convolution or a matrix product by its kind or its kernel; None where nothing tells."""
    told = steps(layer)
    if told:
        return True if {"Corr", "Fc", "Gemm"} & {*told} else None if "Sum" in told else False
    if re.search("conv|correlation|gemm|matmul|matrix|fullyconnected", layer.kind, re.IGNORECASE):
        return True
    if re.search("foreignnode|myelin|_mha|_gemm", f"{layer.kind} {layer.name}", re.IGNORECASE):
        return None
    return layer.kind in {"If", "Loop", "Scan"} and None
