"""What is said of TensorRT beside a verdict of TensorRT-RTX is counted anew, where recordings and builder are."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import agreement
import recorded
import remade
import rtlab
from rtlab import backends
from rtlab.questions.why import agreement as shipped

here = backends.get("tensorrt-rtx").availability()


#: Engines that are counted anew: one of each precision, one with its own graph, and one of which a pair is one layer
#: in TensorRT-RTX alone and another in TensorRT alone. All of them take a minute.
SAMPLE = (
    "fuzzy-jetson-orin-torchtrt-resnet18",
    "fuzzy-mobilenet_v2-rtx3060laptop-fp16",
    "trex-resnet18-pytorch-a100-fp32",
    "trex-resnet18-pytorch-a100-int8-qat-residual",
)


@recorded.present
@pytest.mark.skipif(not here.ok, reason=here.reason)
@pytest.mark.parametrize("name", SAMPLE)
def test_the_table_that_is_shipped_is_what_is_counted(name: str) -> None:
    known = shipped.known()
    if not known.compilers[0].startswith(f"TensorRT-RTX {here.version} "):
        pytest.skip(f"the table is of {known.compilers[0]}, and here is {here.version}")
    (engine,) = agreement.asked([recorded.FOLDER / name])
    found = agreement.count(engine, engine.engine())
    (told,) = (e for e in known.engines if e.name == name)
    alike = sum(c["both"] + c["neither"] for c in found.values())
    assert (told.pairs, told.alike) == (sum(c.total() for c in found.values()), alike)
    assert (told.precision, told.target, told.remade) == (engine.precision, engine.target, not engine.own)
    rows = {p.kind: p for p in known.pairs if p.precision == engine.precision}
    for kind, counts in found.items():
        assert all(n <= getattr(rows[kind], where) for where, n in counts.items()), kind


def test_the_engines_of_a_precision_have_its_pairs() -> None:
    known = shipped.known()
    for precision in {e.precision for e in known.engines}:
        engines = [e for e in known.engines if e.precision == precision]
        pairs = [p for p in known.pairs if p.precision == precision]
        assert sum(e.pairs for e in engines) == sum(p.count for p in pairs)
        assert sum(e.alike for e in engines) == sum(p.alike for p in pairs)
        assert sum(e.pairs for e in engines if e.remade) == sum(p.remade for p in pairs)


def test_the_documentation_has_the_table() -> None:
    home = Path(__file__).parents[2]
    assert "\n".join(agreement.lines()) == (home / "docs" / "agreement.md").read_text(encoding="utf-8")
    readme = (home / "README.md").read_text(encoding="utf-8")
    assert "\n".join(f"- {line}" for line in shipped.known().summary) in readme


def test_a_verdict_is_told_what_was_counted_of_its_kind() -> None:
    """A MobileNetV2 has 35 convolutions with Clip: one of them in fp16, three with pairs."""
    told = shipped.said("Conv", "Clip")
    assert told.startswith(
        "Conv | Clip in 12 recorded engines of TensorRT 8.2 to 10.4 (reported; 10 graphs remade"
    )
    assert f"Q/DQ one layer in {3 * 35} of 105, TensorRT-RTX agreed in 0 of 105" in told
    assert "fp16 one layer in 35 of 35, TensorRT-RTX agreed in 35 of 35" in told
    assert "LSTM | Relu does not occur in the 12 recorded engines" in shipped.said("LSTM", "Relu")


def test_what_is_counted_is_what_the_architectures_have() -> None:
    """ResNet18 has 8 sums and 3 convolutions beside them, ResNet50 16 and 4; one of two sides takes each sum."""
    rows = {(p.kind, p.precision): p for p in shipped.known().pairs}
    sums = rows["Conv | Add", "fp32"]
    assert (8 + 16, 0, 0, 3 + 4) == (sums.both, sums.rtx, sums.tensorrt, sums.neither)
    # What quantized convolutions read: 53 in a MobileNetV2 and its classifier, 21 and 54.
    assert 3 * 53 + 2 * 21 + 54 == rows["DequantizeLinear | Conv", "Q/DQ"].count
    assert 35 * 3 == rows["Conv | Clip", "Q/DQ"].remade
    assert 0 == rows["Conv | Clip", "fp16"].remade
    # AlexNet's five, and of ResNet18's 17 those that follow no sum; the other ResNet18 normalizes in between.
    assert 5 + (17 - 8) == rows["Conv | Relu", "fp16"].count
    told = shipped.known()
    assert ("AlexNet", "ResNet18", "MobileNetV2", "ResNet50") == told.networks
    assert sum(p.count for p in told.pairs) == sum(
        int(line.split(" of ")[1].split()[0]) for line in told.summary
    )


SIZED = [f for f in recorded.REAL if f.name not in recorded.NAMES_ONLY and not any(f.glob("*.onnx"))]
SIZED = [f for f in SIZED if "layers" in recorded.files(f) and not f.name.startswith("cookbook")]


@recorded.present
@pytest.mark.parametrize("folder", SIZED, ids=lambda f: f.name)
def test_a_remade_graph_has_the_shapes_that_its_engine_tells(folder: Path) -> None:
    """Inferred by ONNX from windows, strides and weights, which the shapes were not used for."""
    file = recorded.files(folder)["layers"]
    made = remade.Remade(file, sized=True)
    proto = onnx.shape_inference.infer_shapes(made.model.proto(), strict_mode=True)
    model = rtlab.load(proto)
    compared = 0
    for layer in json.loads(file.read_text(errors="replace"))["Layers"]:
        for tensor in layer["Outputs"] if isinstance(layer, dict) else ():
            shape, wanted = model.values[made.source(tensor["Name"])].shape, tensor["Dimensions"]
            if len(wanted) == 4 and not layer["Name"].startswith("Reformatting"):
                assert list(shape or ()) == wanted, layer["Name"]
                compared += 1
    assert compared >= 20
    # Of windows in groups the shapes tell nothing: each of a group reads its part of the channels.
    convs = [n for n in model.top if n.op == "Conv"]
    for node in convs:
        data, weight = (model.values[v].shape or () for v in node.inputs[:2])
        assert data[1] == weight[1] * node.attributes.get("group", 1), node.id
    depthwise = sum(node.attributes.get("group", 1) > 1 for node in convs)
    assert (17 if "mobilenet" in folder.name else 0) == depthwise


@recorded.present
def test_a_remade_graph_knows_which_layers_do_a_node() -> None:
    """ResNet18 with pairs and quantized residuals: the layer of its first convolution pools too, and writes INT8."""
    made = remade.Remade(
        recorded.files(recorded.FOLDER / "trex-resnet18-pytorch-a100-int8-qat-residual")["layers"]
    )
    homes = made.homes
    assert homes["Conv_9"] == homes["MaxPool_12"] == homes["DQ QuantizeLinear_7"]
    assert homes["DQ of QuantizeLinear_2.out"] == homes["Conv_9"] != homes["QuantizeLinear_2"]
    read = {o for n in made.model.top if n.name == "MaxPool_12" for o in n.outputs}
    (quantized,) = (n.name for n in made.model.top if n.op == "QuantizeLinear" and read & {*n.inputs})
    assert homes[quantized] == homes["MaxPool_12"]
    # Two layers read what it writes: the first convolution of the block, and the sum at its end.
    (dequantized,) = (
        n for n in made.model.top if n.name.startswith("DQ of ") and f"{quantized}.out" in n.inputs
    )
    readers = {n.name for n in made.model.consumers[dequantized.outputs[0]]}
    assert 2 == len(readers)
    assert homes[dequantized.name] == {place for n in readers for place in homes[n]}


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
