"""A sweep of four variants of a tiny model, and its table without what each run has of its own."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import rtlab
from rtlab.testing import tiny_model

#: Columns that say when and where, and how long it took.
TIMES = ["time_ms", "load", "taken", "work_s", "host", "runs", "timings"]
CHOICES: dict[str, Any] = {
    "precision": ["fp32", "fp16", "int8"],
    "calibrator": ["auto", "mse"],
    "backend": "onnxruntime",
    "target": "cpu",
}


def make_study(seed: int = 0) -> rtlab.Study:
    model = tiny_model()
    data = rtlab.CalibrationData.random(model, samples=8, seed=seed)
    return rtlab.Study(model, data=data, task=rtlab.Task(data, np.arange(8) % 4))


def make_grid() -> rtlab.Grid:
    return rtlab.grid(make_study(), **CHOICES)


def numbers(made: rtlab.Sweep) -> list[dict[str, Any]]:
    frame = made.frame().drop(columns=TIMES)
    return json.loads(frame.to_json(orient="records", double_precision=15))
