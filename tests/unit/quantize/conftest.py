"""Small nets and a real runner for the tests of quantize."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from promises import promises  # noqa: F401 - watches every pass
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant

Run = Callable[..., Mapping[str, np.ndarray]]
Make = Callable[..., Model]


@pytest.fixture
def run() -> Run:
    """Run a model on real ONNX Runtime at level BASIC and return the named values."""

    def _run(
        model: Model, feed: Mapping[str, np.ndarray], names: Sequence[str] = ()
    ) -> Mapping[str, np.ndarray]:
        backend = OnnxRuntime(threads=1)
        engine = backend.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
        return backend.outputs(engine, feed, names)

    return _run


Shapes = Mapping[str, Sequence[int | str]]


def parsed(pieces: Sequence[onnx.NodeProto | str]) -> tuple[list[onnx.NodeProto], Shapes, Shapes]:
    """Nodes, inputs and outputs of ``x[N, 3]; name: y = Operator(x, _, attribute=1); y[N, 3]``."""
    nodes: list[onnx.NodeProto] = []
    ends: tuple[dict[str, list[int | str]], ...] = {}, {}
    for one in (o for p in pieces for o in (ast.parse(p).body if isinstance(p, str) else [p])):
        if isinstance(one, onnx.NodeProto):
            nodes.append(one)
        elif isinstance(one, ast.AnnAssign):
            reads = ["" if a.id == "_" else a.id for a in one.value.args]
            more = {k.arg: ast.literal_eval(k.value) for k in one.value.keywords}
            if isinstance(more.get("value"), list):
                more["value"] = numpy_helper.from_array(np.float32(more["value"]))
            op = one.value.func.id
            nodes.append(helper.make_node(op, reads, [one.annotation.id], name=one.target.id, **more))
        else:
            sizes = getattr(one.value.slice, "elts", [one.value.slice])
            named = [d.id if isinstance(d, ast.Name) else d.value for d in sizes]
            ends[bool(nodes)][one.value.value.id] = named
    return nodes, *ends


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
            nodes, inputs, outputs = parsed([nodes] if isinstance(nodes, str) else nodes)
        opset, functions = options.pop("opset", 17), options.pop("functions", ())
        shapes = options.pop("shapes", None)
        graph = helper.make_graph(
            list(nodes),
            "net",
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, list(s)) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in outputs.items()],
            [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in (weights or {}).items()],
        )
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
        proto = helper.make_model(
            graph, opset_imports=imports, ir_version=options.pop("ir_version", 9), functions=list(functions)
        )
        assert not options
        return load(proto, name="net", shapes=shapes)

    return _make
