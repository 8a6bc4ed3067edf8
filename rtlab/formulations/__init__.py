"""Convolutions and products in other words: ONNX in, ONNX out, with the same result up to rounding."""

from rtlab.formulations.assemble import alone, composed
from rtlab.formulations.layer import WeightedNode, layer, tunable
from rtlab.formulations.table import DIRECT, FORMULATIONS, Formulation, offered

__all__ = [
    "DIRECT",
    "FORMULATIONS",
    "Formulation",
    "WeightedNode",
    "alone",
    "composed",
    "layer",
    "offered",
    "tunable",
]
