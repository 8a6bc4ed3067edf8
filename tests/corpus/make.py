"""Keeps anew what compilers print of samples, and ONNX Runtime of the written network."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime as ort

import rtlab

HERE = Path(__file__).parent
#: What is compiled: samples, precisions and targets, and whether the whole log is kept or what it lists at its end.
BUILDS = (
    ("digits_inception", "fp16", "sm80", False), ("digits_inception", "int8", "sm89", False),
    ("digits_lstm", "fp32", "sm86", True), ("digits_vit", "fp8", "sm120", False),
    ("control_flow", "fp16", "sm86", True),
)  # fmt: skip
#: Where the builder's own listing begins, and the folder of a build in a path.
_LISTED, _FOLDER = "Total Host Persistent Memory:", re.compile(r"/\S*/(?=(?:model\.onnx|weights)\b)")


def builds() -> None:
    """Compile with TensorRT-RTX and keep what it prints."""
    for name, precision, target, whole in BUILDS:
        sample = rtlab.samples.load(name, samples=8)
        study = rtlab.Study(sample.model, data=sample.calibration)
        calibrator = "minmax" if precision in {"int8", "fp8"} else None
        study.add("built", precision=precision, calibrator=calibrator, target=target, backend="tensorrt-rtx")
        study.run(compare=False)
        engine = study["built"].engine
        log = engine.log if whole else engine.log[engine.log.rindex(_LISTED) :]
        path = HERE / "builds" / f"{name}-{precision}-{target}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_FOLDER.sub("", log), encoding="utf-8")


def onnxruntime() -> None:
    """Run the written network twice on ONNX Runtime and keep its profile and the model that it optimized."""
    folder = HERE / "onnxruntime"
    options = ort.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    network = HERE / "engines" / "written-fp32" / "model.structure-only.onnx"
    session = ort.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    for _ in range(2):
        session.run(None, {"image": np.ones((4, 3, 16, 16), np.float32)})
    Path(session.end_profiling()).replace(folder / "profile.json")


if __name__ == "__main__":
    builds()
    onnxruntime()
