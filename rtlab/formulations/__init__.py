"""Convolutions in other words: ONNX in, ONNX out, with the same result up to rounding."""

from rtlab.formulations.table import (
    DIRECT,
    FORMULATIONS,
    Formulation,
    WeightedNode,
    build_layer_model,
    compose_model,
    create_weighted_node,
    find_tunable_nodes,
    list_formulations,
)

__all__ = [
    "DIRECT",
    "FORMULATIONS",
    "Formulation",
    "WeightedNode",
    "build_layer_model",
    "compose_model",
    "create_weighted_node",
    "find_tunable_nodes",
    "list_formulations",
]
