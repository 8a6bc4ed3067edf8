"""ONNX in, ONNX out: a model that expresses a precision in its own graph, once, for every backend."""

from __future__ import annotations

from rtlab.quantize.assign import assign
from rtlab.quantize.compose import prepare
from rtlab.quantize.placement import quantizable
from rtlab.quantize.ranges import Collector
from rtlab.quantize.thresholds import Threshold, display, scales, thresholds

__all__ = ["Collector", "Threshold", "assign", "display", "prepare", "quantizable", "scales", "thresholds"]
