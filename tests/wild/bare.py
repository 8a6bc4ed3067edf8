"""Parses and builds a model with TensorRT-RTX and nothing else: ``python bare.py FILE SHAPES``. Prints JSON.

What rtlab's time and memory are compared with. Sizes that the file leaves open are those of ``SHAPES``, as JSON.
"""

from __future__ import annotations

import json
import sys

import tensorrt_rtx as trt


def build(path: str, shapes: dict[str, list[int]]) -> str:
    logger = trt.Logger(trt.ILogger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        return "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM86, 0)
    profile, needed = builder.create_optimization_profile(), False
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if -1 in tuple(tensor.shape):
            needed, shape = True, shapes[tensor.name]
            profile.set_shape(tensor.name, shape, shape, shape)
    if needed:
        config.add_optimization_profile(profile)
    return (
        "" if builder.build_serialized_network(network, config) is not None else "the builder gave no engine"
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"refused": build(sys.argv[1], json.loads(sys.argv[2]))}) + "\n")
