"""The engine as an ONNX file for other viewers, and engines from files as the graph view draws them."""

from __future__ import annotations

import dataclasses

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import engines
import strategies
from rtlab import Study
from rtlab.backends.trtexec_json import Trtexec
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model, wrap
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Variant
from rtlab.testing import tiny_model
from rtlab.web.page.graph import engine_view
from rtlab.web.page.layers import layers_model


def attributes(node: onnx.NodeProto) -> dict:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def built(model: Model, engine: Engine) -> VariantResult:
    """A result of this engine, as if it had been built."""
    variant = Variant.of("fp32", target="sm86")
    return VariantResult("x", variant, model, Prepared(model, model), engine)


def test_layers_carry_what_the_compiler_told() -> None:
    study = Study(tiny_model())
    study.add("fp32", target="cpu", backend="onnxruntime")
    result = study.run()["fp32"]
    proto = layers_model(result.facts)
    onnx.checker.check_model(proto)
    for layer, node in zip(result.engine.layers, proto.graph.node, strict=True):
        told = attributes(node)
        assert (layer.kind, layer.name, "tensorrt") == (node.op_type, node.name, node.domain)
        assert (layer.stream, layer.precision) == (told["stream"], told["precision"].decode())
        assert list(result.mapping.nodes(layer.id)) == [n.decode() for n in told.get("nodes", [])]
    shapes = {i.name: i.type.tensor_type for i in proto.graph.input}
    assert [3, 8, 8] == [d.dim_value for d in shapes["x"].shape.dim][1:]
    assert onnx.TensorProto.FLOAT == shapes["x"].elem_type


@given(strategies.models(hostile=False), st.data())
def test_any_engine_is_a_valid_file(model, data) -> None:
    """Compilers write a buffer twice and read what nothing wrote; the file names each value once all the same."""
    engine = data.draw(strategies.engines(model))
    proto = layers_model(built(model, engine))
    if engine.layers and all(t.shape is not None for t in (*engine.inputs, *engine.outputs)):
        made = [o for n in proto.graph.node for o in n.output if o]
        assert len(made) == len(set(made))
        assert [layer.kind for layer in engine.layers] == [n.op_type for n in proto.graph.node]
    assert proto == onnx.load_from_string(proto.SerializeToString())


@engines.detailed
def test_every_engine_is_drawn_in_its_order_without_a_model(folder) -> None:
    """Names tell operators; every tensor comes from before, and nothing but calls of shapes stands alone."""
    nothing = wrap(helper.make_model(helper.make_graph([], "", [], [])), name="")
    engine = Trtexec().read({"layers": engines.files(folder)["layers"]}).engine
    graph = engine_view(dataclasses.replace(built(nothing, engine), recorded=True), nothing)["graph"]
    boxes = graph["boxes"]
    assert [] == [e for e in graph["edges"] if e["source"] >= e["target"]]
    joined = {e[end] for e in graph["edges"] for end in ("source", "target")}
    alone = {b["op"] for i, b in enumerate(boxes) if i not in joined}
    assert alone <= {"shape_call"}
    assert [] == [b["id"] for b in boxes if b["kind"] == "layer" and bool(b["chips"]) == b["slim"]]
    convolutions = [b for b in boxes if "Convolution" in b["op"]]
    assert {"convolution"} >= {b["family"] for b in convolutions}
