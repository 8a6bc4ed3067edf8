"""Projection to payloads: what the browser draws is what the model and the engine say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import nets
from rtlab import Study
from rtlab.analyses.accuracy import Comparison
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model, wrap
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Target, Variant
from rtlab.documents.serialization import decode, encode, to_builtins
from rtlab.testing import tiny_model
from rtlab.web.page import chrome
from rtlab.web.page.graph import add_details, describe_engine_boxes, engine_view, source_graph


@pytest.fixture(scope="module")
def study():
    made = Study(tiny_model())
    made.add("fp32", target="cpu", backend="onnxruntime")
    return made.run()


@pytest.fixture(scope="module")
def view(study):
    return engine_view(study["fp32"].facts, study.model)


def test_a_chip_counts_the_nodes_that_its_pane_draws() -> None:
    """Constants are none: with them the model would look as if twice as much had been fused."""
    one = numpy_helper.from_array(np.float32(1))
    nodes = [
        helper.make_node("Constant", [], ["one"], name="one", value=one),
        helper.make_node("Add", ["x", "one"], ["h"], name="add"), helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]  # fmt: skip
    ends = ([(n, TensorProto.FLOAT, [1, 4])] for n in "xy")
    made = Study(nets.graph(nodes, *ends, {}))
    made.add("fp32", target="cpu", backend="onnxruntime")
    made.run(compare=False)
    (chip,) = chrome.build_chips(made.state, baseline="fp32")
    assert (2, "2 nodes · 1 constant") == (chip["nodes"], source_graph(made.model)["subtitle"])
    assert "<td>2 → " in made._repr_html_()


def test_a_picture_and_what_follows_it_are_the_whole(study, view) -> None:
    """A large engine is drawn before its numbers are worked out; nothing may be lost between the two."""
    picture = engine_view(study["fp32"].facts, study.model, defer_details=True)
    assert [] == picture["overlays"]
    assert picture["graph"]["later"]
    assert not any(b["inputs"] or b["outputs"] or b["details"] for b in picture["graph"]["boxes"])
    assert all(b["lines"] for b in picture["graph"]["boxes"] if b["kind"] in {"input", "output"})
    found = describe_engine_boxes(study["fp32"].facts, study.model)
    assert to_builtins(found) == decode(encode(found))
    add_details(picture, found)
    assert view == picture
    assert view["overlays"]


NOTHING = wrap(helper.make_model(helper.make_graph([], "", [], [])), name="")


def read(
    *layers: tuple[str, str, str, str], inputs: str = "", outputs: str = "", model: Model = NOTHING
) -> VariantResult:
    """An engine as files tell it, beside a model or without one; a layer is name, kind, what it reads and writes."""
    made = tuple(
        Layer(
            f"{i}:{name}", name, kind, i,
            inputs=tuple(map(Tensor, reads.split())), outputs=tuple(map(Tensor, writes.split())),
        )
        for i, (name, kind, reads, writes) in enumerate(layers)
    )  # fmt: skip
    ends = {"inputs": tuple(map(Tensor, inputs.split())), "outputs": tuple(map(Tensor, outputs.split()))}
    engine = Engine("trtexec", "", Target("unknown"), made, **ends, maker=TENSORRT)
    variant = Variant.of("fp32", target="sm86")
    return VariantResult("read", variant, model, Prepared(model, model), engine, recorded=True)


def joined(result: VariantResult, model: Model = NOTHING) -> list[tuple[str, str]]:
    graph = engine_view(result, model)["graph"]
    titles = [b["id"].partition(":")[2] or b["id"] for b in graph["boxes"]]
    return [(titles[e["source"]], titles[e["target"]]) for e in graph["edges"]]


def test_edges_lead_from_the_last_writer_of_a_name_that_is_used_again() -> None:
    """Buffers are used again; the last edge goes back because a loop does."""
    result = read(
        ("a", "conv", "x", "t"), ("b", "conv", "t", "u"), ("c", "conv", "u", "t"), ("d", "conv", "t state", "y"),
        ("e", "conv", "y", "state"), inputs="x", outputs="y",
    )  # fmt: skip
    expected = [
        ("input x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("e", "d"), ("d", "e"), ("d", "output y")
    ]  # fmt: skip
    assert expected == joined(result)


def test_a_whole_view_needs_no_model() -> None:
    result = read(
        ("Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1", "Reformat", "x", "r"),
        ("Conv_0 + Relu_1", "CaskConvolution", "r", "t"),
        ("[SCALE]-[aten_ops.norm]-[/bn1/norm] + [RELU]-[aten_ops.relu]-[/relu]", "Scale", "t", "u"),
        ("__myl_MulSum_myl4_1", "kgen", "u", "y"),
        ("block_conv/Conv2D + block_relu/Relu", "CaskConvolution", "y", "z"),
        ("block_relu/Relu", "CaskConvolution", "y", "z"),
        inputs="x", outputs="z",
    )  # fmt: skip
    view = decode(encode(engine_view(result, NOTHING)))
    boxes = {b["id"]: b for b in view["graph"]["boxes"] if b["kind"] == "layer"}
    expected = [
        [], ["Conv", "ReLU"], ["Scale", "ReLU"], ["Mul·Sum"], ["Conv2D", "ReLU"], ["CaskConvolution", "ReLU"],
    ]  # fmt: skip
    assert expected == [[c["op"] for c in b["chips"]] for b in boxes.values()]
    assert [True, *[False] * 5] == [b["slim"] for b in boxes.values()]
    families = ["shape", "convolution", "normalization", "other", "convolution", "convolution"]
    assert families == [b["family"] for b in boxes.values()]
    assert ([], []) == (view["pairs"], view["unmapped"])
    assert source_graph(NOTHING)["boxes"] == []


def test_the_error_of_a_layer_is_that_of_the_value_that_it_writes() -> None:
    """Not of a value inside it, whether that is the worst of them or the first."""
    model = tiny_model()
    result = read(
        ("stem/Conv + stem/Relu", "conv", "x", "act"), ("left/Conv", "conv", "act", "left"), inputs="x", model=model,
    )  # fmt: skip
    # Signal 16; squared errors 4, 1 and 0.01: 10 log10(16 / 4), of 16 and of 1600. The first value lies worst.
    x = np.array([4.0], np.float32)
    compared = Comparison(model, ["stem", "act", "left"])
    off = {"stem": 2.0, "act": 1.0, "left": 0.1}
    compared.add(dict.fromkeys(off, x), {n: x - np.float32(e) for n, e in off.items()}, samples=1)
    result = dataclasses.replace(result, errors=compared.to_errors("here"))
    (error,) = [o for o in engine_view(result, model)["overlays"] if o["id"] == "error"]
    values = {i: r["value"] for i, r in error["layers"].items()}
    expected = {"0:stem/Conv + stem/Relu": 10 * math.log10(16), "1:left/Conv": 10 * math.log10(1600)}
    assert pytest.approx(expected, abs=1e-3) == values
    worst = {n: 10 * math.log10(r) for n, r in (("stem/Conv", 4), ("stem/Relu", 16), ("left/Conv", 1600))}
    assert pytest.approx(worst, abs=1e-3) == {i: r["value"] for i, r in error["nodes"].items()}


def test_a_layer_that_reads_under_another_name_is_joined_through_the_model() -> None:
    model = tiny_model()
    result = read(
        ("stem/Conv + stem/Relu", "conv", "x", "act"), ("left/Conv", "conv", "renamed", "l"),
        ("right/Conv", "conv", "act", "r"), inputs="x", model=model,
    )  # fmt: skip
    edges = joined(result, model)
    assert ("stem/Conv + stem/Relu", "left/Conv") in edges
    assert len(edges) == len(set(edges))
    # Where all layers stand in reverse order there is none before, and no edge against the order.
    layers = tuple(dataclasses.replace(y, index=i) for i, y in enumerate(reversed(result.engine.layers)))
    turned = dataclasses.replace(result, engine=dataclasses.replace(result.engine, layers=layers))
    assert ("stem/Conv + stem/Relu", "left/Conv") not in joined(turned, model)


def test_what_no_layer_writes_is_said_on_the_layer_that_reads_it() -> None:
    result = read(("a", "conv", "x w", "t"), ("b", "conv", "t w", "y"), inputs="x")
    boxes = engine_view(result, NOTHING)["graph"]["boxes"]
    told = [{d["key"]: d["value"] for d in b["details"]} for b in boxes if b["kind"] == "layer"]
    assert ["w", "w"] == [d.get("written by no layer") for d in told]
    assert [("input x", "a"), ("a", "b")] == joined(result)
    assert "written by no layer" not in str(engine_view(read(("a", "conv", "x", "t"), inputs="x"), NOTHING))
