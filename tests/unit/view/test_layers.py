"""The engine as an ONNX file for other viewers."""

from __future__ import annotations

import onnx
from hypothesis import given
from hypothesis import strategies as st

import strategies
from rtlab import Study
from rtlab.core.engine import Engine
from rtlab.core.facts import Facts
from rtlab.core.model import Model
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Variant
from rtlab.testing import tiny_model
from rtlab.view.layers import layers_model


def attributes(node: onnx.NodeProto) -> dict:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def built(model: Model, engine: Engine) -> Facts:
    """A result of this engine, as if it had been built."""
    variant = Variant.of("fp32", target="sm86")
    return Facts("x", variant, model, Prepared(model, model), engine)


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
