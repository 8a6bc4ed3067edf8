"""Files of too many parts, and models with text that is not UTF-8, with maps, with names that are nobody's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab.cli import opening
from rtlab.core import proto_repair as extent
from rtlab.errors import ModelError, ReadError, RtlabError

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
    ],
    ids=["nodes", "inputs", "attributes", "metadata", "values", "outputs", "dimensions"],
)
def test_a_limit_is_named_with_what_was_found(content, count) -> None:
    began = time.process_time()
    with pytest.raises(ModelError, match=f"(?s){count}.*at most [0-9,]+ are") as refused:
        rtlab.load(content)
    assert "Export" in str(refused.value)
    assert time.process_time() - began < 3


def test_bodies_nested_beyond_what_protobuf_reads_are_refused() -> None:
    assert onnx.load_model_from_string(nest(32)).graph.node
    with pytest.raises(ModelError, match="not an ONNX model"):
        rtlab.load(nest(5000))


def test_engines_of_too_many_layers_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("rtlab.backends.readers.contents.MOST_LAYERS", 3)
    rows = ",".join(f'{{"name": "l{i}", "timeMs": 1, "averageMs": 1, "percentage": 25}}' for i in range(4))
    files = {
        "layers.json": '{"Layers": ["a", "b", "c", "d"], "Bindings": []}',
        "profile.json": f'[{{"count": 1}}, {rows}]',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ReadError, match="at most 3 are"):
            rtlab.read(tmp_path / name)


def test_the_documentation_states_the_limits() -> None:
    stated = (Path(__file__).parents[3] / "docs/reference.md").read_text().partition("## Limits")[2]
    for limit, what in (
        (extent.MOST_NODES, "nodes"),
        (extent.MOST_VALUES, "values and constants"),
        (extent.MOST_LISTED, "inputs, outputs or attributes"),
        (extent.MOST_DIMENSIONS, "dimensions"),
        (32, "graphs inside each other"),
        (extent.MOST_LAYERS, "layers"),
    ):
        assert f"{limit:,} {what}" in stated


MARK, BROKEN = "QQQQ", b"\xae\xff\x9e\xc3"


def written() -> onnx.ModelProto:
    """A model that has every field of text that ONNX knows, filled."""
    inner = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"], name="r")],
        [helper.make_opsetid("", 18)], ["alpha"],
    )  # fmt: skip
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    weight.doc_string = "a weight"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product", doc_string="a product"),
        helper.make_node("LeakyRelu", ["m"], ["l"], name="leaky", alpha=0.1),
        helper.make_node("F", ["l"], ["y"], name="call", domain="own"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "graph", [info("x", TensorProto.FLOAT, ["N", 4], "an input")], [info("y", TensorProto.FLOAT, ["N", 4])],
        [weight], "a graph", [info("m", TensorProto.FLOAT, ["N", 4])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    proto = helper.make_model(
        graph, functions=[inner], opset_imports=opsets, ir_version=10, producer_name="somebody",
        producer_version="1", domain="d", doc_string="a model",
    )  # fmt: skip
    helper.set_model_props(proto, {"key": "value"})
    return proto


def texts(message, path: str = "") -> Iterator[tuple[str, object, object, int | None]]:
    """Every field of text, by a name: the message, the field, and the place where there are several."""
    for field, value in message.ListFields():
        name = f"{path}.{field.name}"
        if field.type == field.TYPE_MESSAGE:
            for i, part in enumerate([value] if hasattr(value, "ListFields") else value):
                yield from texts(part, f"{name}{i}")
        elif field.type == field.TYPE_STRING:
            places = [None] if isinstance(value, str) else range(len(value))
            yield from ((f"{name}{'' if i is None else i}", message, field, i) for i in places)


PLACES = [name for name, *_ in texts(written())]
assert len(PLACES) > 40


@pytest.mark.parametrize("place", PLACES)
def test_text_that_is_not_utf8_is_read_escaped_or_refused_in_words(place) -> None:
    proto = written()
    _, message, field, index = next(t for t in texts(proto) if t[0] == place)
    if index is None:
        setattr(message, field.name, MARK)
    else:
        getattr(message, field.name)[index] = MARK
    content = proto.SerializeToString().replace(MARK.encode(), BROKEN)
    assert BROKEN in content
    with contextlib.suppress(RtlabError):
        model = rtlab.load(content, shapes={"x": (2, 4)})
        again = rtlab.load(model.bytes())
        assert [n.id for n in again.nodes] == [n.id for n in model.nodes]
        for text in texts(onnx.load_model_from_string(model.bytes())):
            assert "\xae" not in str(text)


def test_a_map_is_refused() -> None:
    scores = helper.make_node("Softmax", ["x"], ["scores"], name="softmax")
    named = helper.make_node(
        "ZipMap", ["scores"], ["by_class"], name="zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1]
    )
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, floats))
    graph = helper.make_graph(
        [scores, named], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_value_info("by_class", maps)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(ModelError, match=r'"by_class" is a map.*--until scores'):
        rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ('{"x": (1, 3, 4)}', "--shape x=1x3x4"),
        ('{"x": (7,), "two words": (2, 5)}', "--shape x=7 --shape 'two words=2x5'"), ('{"x": (...)}', None),
        ("{...}", None), ('{"x": __import__("os").getcwd()}', None),
    ],
)  # fmt: skip
def test_sizes_in_a_message_become_options_and_nothing_in_it_is_evaluated(shapes, options) -> None:
    message = f"Name sizes, rtlab.load(..., shapes={shapes})."
    assert opening.rewrite_for_cli(message) == (message if options is None else f"Name sizes, {options}.")
