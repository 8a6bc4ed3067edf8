"""What is said of TensorRT beside a verdict of TensorRT-RTX: its table, and how it is counted."""

from __future__ import annotations

import collections
from pathlib import Path

import onnx

import agreement
import engines
import remade
import rtlab
from rtlab.analyses import why as shipped
from rtlab.relation.relate import relate


def test_the_engines_of_a_precision_have_its_pairs() -> None:
    known = agreement.load_agreement()
    for precision in {e.precision for e in known.engines}:
        engines = [e for e in known.engines if e.precision == precision]
        pairs = [p for p in known.pairs if p.precision == precision]
        assert sum(e.pairs for e in engines) == sum(p.count for p in pairs)
        assert sum(e.alike for e in engines) == sum(p.alike for p in pairs)
        assert sum(e.pairs for e in engines if e.remade) == sum(p.remade for p in pairs)


def test_the_documentation_has_the_sums_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/engines.md").read_text(encoding="utf-8")
    assert "\n".join(f"- {line}" for line in agreement.load_agreement().summary) in page


def test_a_verdict_is_told_what_was_counted_of_its_kind() -> None:
    """A MobileNetV2 has 35 convolutions with Clip: one of them in fp16, three with pairs."""
    told = shipped.describe_agreement("Conv", "Clip")
    assert told.startswith(
        "Conv | Clip in 12 recorded engines of TensorRT 8.2 to 10.4 (reported; 10 graphs remade"
    )
    assert f"Q/DQ one layer in {3 * 35} of 105, TensorRT-RTX agreed in 0 of 105" in told
    assert "fp16 one layer in 35 of 35, TensorRT-RTX agreed in 35 of 35" in told
    assert "LSTM | Relu does not occur in the 12 recorded engines" in shipped.describe_agreement(
        "LSTM", "Relu"
    )


def test_what_is_counted_is_what_the_architectures_have() -> None:
    """ResNet18 has 8 sums and 3 convolutions beside them, ResNet50 16 and 4; one of two sides takes each sum."""
    rows = {(p.kind, p.precision): p for p in agreement.load_agreement().pairs}
    sums = rows["Conv | Add", "fp32"]
    assert (8 + 16, 0, 0, 3 + 4) == (sums.both, sums.rtx, sums.tensorrt, sums.neither)
    # What quantized convolutions read: 53 in a MobileNetV2 and its classifier, 21 and 54.
    assert 3 * 53 + 2 * 21 + 54 == rows["DequantizeLinear | Conv", "Q/DQ"].count
    assert 35 * 3 == rows["Conv | Clip", "Q/DQ"].remade
    assert 0 == rows["Conv | Clip", "fp16"].remade
    # AlexNet's five, and of ResNet18's 17 those that follow no sum; the other ResNet18 normalizes in between.
    assert 5 + (17 - 8) == rows["Conv | Relu", "fp16"].count
    told = agreement.load_agreement()
    assert ("AlexNet", "ResNet18", "MobileNetV2", "ResNet50") == told.networks
    assert sum(p.count for p in told.pairs) == sum(
        int(line.split(" of ")[1].split()[0]) for line in told.summary
    )


def test_a_remade_graph_is_the_one_that_was_fused() -> None:
    """The mobile network of the corpus: its own graph tells nodes, shapes and groups, and its labels the layers."""
    made, source = (
        remade.Remade(engines.files(engines.MOBILE)["layers"], sized=True),
        engines.structure(engines.MOBILE),
    )
    model = rtlab.load(onnx.shape_inference.infer_shapes(made.model.proto(), strict_mode=True))
    kept = [n for n in source.top if n.op in {"Conv", "Clip", "Add", "GlobalAveragePool"}]
    assert 99 == len(kept)
    assert {(n.id, n.op) for n in kept} == {(n.id, n.op) for n in model.top}
    for node in kept:
        ours, theirs = model.by_id[node.id], source.by_id[node.id]
        assert source.values[theirs.outputs[0]].shape == model.values[ours.outputs[0]].shape, node.id
        assert theirs.attributes.get("group", 1) == ours.attributes.get("group", 1), node.id
    engine, _ = engines.read(engines.MOBILE)
    mapping = relate(source, source, engine)
    places = {y.id: i for i, y in enumerate(engine.layers)}
    assert {n.id: {places[i] for i in mapping.layers(n.id)} for n in kept} == {
        n.id: made.homes[n.id] for n in kept
    }


def test_neighbours_of_an_engine_with_its_graph_are_counted_by_hand() -> None:
    """Each of 35 Clips is one layer with its convolution; of 11 sums, one of two convolutions has each."""
    (engine,) = agreement.asked([engines.MOBILE])
    assert (True, "fp16", "sm86") == (engine.own, engine.precision, engine.target)
    counts: collections.Counter[tuple[str, bool | None]] = collections.Counter()
    for pair in agreement.neighbours(engine.model):
        counts[" | ".join(engine.model.by_id[n].op for n in pair), engine.one(*pair)] += 1
    expected = {
        ("Conv | Clip", True): 35, ("Conv | Add", True): 11, ("Conv | Add", False): 5, ("Clip | Add", False): 1,
        ("Add | Add", False): 5, ("Conv | Conv", False): 6, ("Add | Conv", False): 11, ("Clip | Conv", False): 34,
    }  # fmt: skip
    assert expected == {k: n for k, n in counts.items() if k in expected}


def test_pairs_of_weights_are_no_neighbours() -> None:
    """x, Q, DQ, Conv, Relu, with a pair for the weight: four pairs, and none of the weight's."""
    text = """
       <ir_version: 8, opset_import: ["" : 17]>
       g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y)
       <float s = {0.1}, int8 z = {0}, float[1, 1, 1, 1] w = {1.0}>
       {
          a = Relu(x)
          q = QuantizeLinear(a, s, z)
          d = DequantizeLinear(q, s, z)
          wq = QuantizeLinear(w, s, z)
          wd = DequantizeLinear(wq, s, z)
          c = Conv(d, wd)
          y = Relu(c)
       }"""
    model = rtlab.load(onnx.parser.parse_model(text))
    ops = sorted(" | ".join(model.by_id[n].op for n in pair) for pair in agreement.neighbours(model))
    assert ["Conv | Relu", "DequantizeLinear | Conv", "Relu | Conv", "Relu | QuantizeLinear"] == ops
