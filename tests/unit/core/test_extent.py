"""Files of too many parts are refused by a limit, in a time that does not grow with them."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.core import extent
from rtlab.errors import ModelError, ReadError

INFO = helper.make_tensor_value_info


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    return b"".join(map(varint, (number << 3 | 2, len(content)))) + content


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def relu(extra: bytes = b"", *, node: bytes = b"", model: bytes = b"") -> bytes:
    """A model of one Relu with fields added to its graph, its node or itself."""
    graph = helper.make_graph(
        [], "g", [INFO("x", TensorProto.FLOAT, [1])], [INFO("y", TensorProto.FLOAT, [1])]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.ClearField("graph")
    one = field(1, helper.make_node("Relu", ["x"], ["y"]).SerializeToString() + node)
    return proto.SerializeToString() + field(7, one + graph.SerializeToString() + extra) + model


def nest(levels: int) -> bytes:
    """An If in an If and so on, as bytes: ONNX's own classes refuse to make it."""
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "b", [], [INFO("o", 1, [1])])
    body = graph.SerializeToString()
    for _ in range(levels - 1):
        branch = field(1, b"then_branch") + field(6, body) + b"\xa0\x01\x05"
        node = field(1, b"c") + field(2, b"o") + field(4, b"If") + field(5, branch)
        body = field(1, node) + field(12, INFO("o", 1, [1]).SerializeToString())
    return b"\x08\x08" + field(7, body)


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (relu(field(1, b"") * 3_000_000), "3,000,001 nodes"),
        (relu(node=field(1, b"x") * 3_000_000), "3,000,001 inputs"),
        (relu(node=field(5, b"") * 1_000_000), "1,000,000 attributes"),
        (relu(model=field(14, b"\x0a\x01k") * 1_000_000), "1,000,000 entries"),
        (relu(field(13, field(1, b"v")) * 400_000), "400,002 values"),
        (relu(field(12, field(1, b"y")) * 20_000), "20,001 outputs"),
        (relu(field(5, b"\x08\x01" * 65 + b"\x10\x01")), "65 dimensions"),
        (nest(5000), "5,000 graphs"),
    ],
    ids=["nodes", "inputs", "attributes", "metadata", "values", "outputs", "dimensions", "nest"],
)
def test_a_limit_is_named_with_what_was_found(content, count) -> None:
    began = time.process_time()
    with pytest.raises(ModelError, match=f"(?s){count}.*at most [0-9,]+ are") as refused:
        rtlab.load(content)
    assert "Export" in str(refused.value)
    assert time.process_time() - began < 3


def test_bodies_within_the_limit_are_read() -> None:
    assert extent.nested(nest(20)) == 20
    assert onnx.load_model_from_string(nest(extent.MOST_NESTED)).graph.node
    assert extent.nested(b"\xff" * 100) == 0


def test_engines_of_too_many_layers_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.backends.files.contents.MOST_LAYERS", 3)
    rows = ",".join(f'{{"name": "l{i}", "timeMs": 1, "averageMs": 1, "percentage": 25}}' for i in range(4))
    files = {
        "layers.json": '{"Layers": ["a", "b", "c", "d"], "Bindings": []}',
        "profile.json": f'[{{"count": 1}}, {rows}]',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ReadError, match="at most 3 are"):
            rtlab.read(tmp_path / name)


def test_the_readme_states_the_limits() -> None:
    stated = (Path(__file__).parents[3] / "README.md").read_text().partition("## Limits")[2]
    for limit, what in (
        (extent.MOST_NODES, "nodes"),
        (extent.MOST_VALUES, "values and constants"),
        (extent.MOST_LISTED, "inputs, outputs or attributes"),
        (extent.MOST_DIMENSIONS, "dimensions"),
        (extent.MOST_NESTED, "graphs inside each other"),
        (extent.MOST_LAYERS, "layers"),
    ):
        assert f"{limit:,} {what}" in stated
