"""Decoders with a guard behind the softmax, as PyTorch's exporters write it against rows without a key."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

import rtlab
from rtlab.core.model import Model

LOWEST = float(np.finfo(np.float32).min)


def guarded(model: Model, lowest: float = -1e4) -> Model:
    """A decoder whose probabilities are 0 where they are no numbers, and whose mask has this number."""
    proto = model.proto()
    at = next(i for i, n in enumerate(proto.graph.node) if n.op_type == "Softmax")
    softmax = proto.graph.node[at]
    (shares,) = softmax.output
    softmax.output[0] = "unguarded"
    for i, (op, inputs, output) in enumerate((
        ("IsNaN", ["unguarded"], "lost"), ("Where", ["lost", "none", "unguarded"], shares),
    )):  # fmt: skip
        proto.graph.node.insert(at + 1 + i, helper.make_node(op, inputs, [output], name=f"guard/{op}"))
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(0), "none"))
    mask = next(t for t in proto.graph.initializer if t.name == "mask")
    array = numpy_helper.to_array(mask)
    mask.CopyFrom(numpy_helper.from_array(np.where(array, np.float32(lowest), array), "mask"))
    onnx.checker.check_model(proto)
    return rtlab.load(proto)
