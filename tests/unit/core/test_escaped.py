"""Models with text that is not UTF-8, with maps, and with names that are no ONNX of anybody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab.cli import opening
from rtlab.errors import ModelError, RtlabError

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


def test_a_map_is_refused_with_the_cut_that_helps(tmp_path, monkeypatch) -> None:
    """scikit-learn's converters end a classifier so."""
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
    monkeypatch.chdir(tmp_path)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), "zipped.onnx")
    with pytest.raises(ModelError, match='"by_class" is a map') as refused:
        rtlab.load("zipped.onnx")
    call = str(refused.value).partition("onnx.utils.")[2].removesuffix(".")
    eval(f"onnx.utils.{call}", {"onnx": onnx})  # noqa: S307 - the line that is offered is tried
    assert [n.op for n in rtlab.load("cut.onnx").nodes] == ["Softmax"]


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
    assert opening.spoken(message) == (message if options is None else f"Name sizes, {options}.")
