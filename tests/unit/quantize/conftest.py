"""Small nets and a real runner for the tests of quantize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from net_text import Shapes, parsed, sized
from promises import promises  # noqa: F401 - watches every pass
from rtlab.core.model import Model, load
from sessions import computed

Run = Callable[..., Mapping[str, np.ndarray]]
Make = Callable[..., Model]


@pytest.fixture
def run() -> Run:
    """Run a model on real ONNX Runtime at level BASIC and return the named values."""
    return computed


@pytest.fixture
def make() -> Make:
    """Make a checked model of nodes, weights, and inputs and outputs by name and shape, or of text (all FP32)."""

    def _make(
        nodes: str | Sequence[onnx.NodeProto | str],
        weights: Mapping[str, np.ndarray] | None = None,
        inputs: Shapes | None = None,
        outputs: Shapes | None = None,
        **options: object,
    ) -> Model:
        if inputs is None:
            nodes, inputs, outputs = parsed(*([nodes] if isinstance(nodes, str) else nodes))
        opset, functions = options.pop("opset", 17), options.pop("functions", ())
        shapes = options.pop("shapes", None)
        graph = helper.make_graph(
            list(nodes),
            "net",
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in outputs.items()],
            [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in (weights or {}).items()],
        )
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
        proto = helper.make_model(
            graph, opset_imports=imports, ir_version=options.pop("ir_version", 9), functions=list(functions)
        )
        assert not options
        return load(sized(proto), name="net", shapes=shapes)

    return _make
