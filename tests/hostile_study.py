"""A study whose names are HTML, JavaScript and format strings."""

from __future__ import annotations

import onnx

from rtlab import CalibrationData, Study, load
from rtlab.testing import tiny_model

HOSTILE = (
    "</script><script>alert(1)</script><!--<img src=http://evil.test/x onerror=alert(2)>\u2028&quot;'\"{}%"
)


def planned(model) -> Study:
    study = Study(model, data=CalibrationData.random(model, samples=8))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.add("int8", calibrator="minmax", target="cpu", backend="onnxruntime")
    return study


def hostile_model():
    proto = onnx.load_from_string(tiny_model().bytes())
    for i, node in enumerate(proto.graph.node):
        node.name = f"{HOSTILE}{i}"
    return load(proto, name=HOSTILE)
