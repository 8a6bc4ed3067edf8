"""What the card of a layer says, and that the same words stand wherever people read of that layer."""

from __future__ import annotations

import pytest

from rtlab import Study
from rtlab.cli import main
from rtlab.core.engine import Layer
from rtlab.questions.cards import card as cards
from rtlab.questions.panels import answer
from rtlab.questions.scene import Scene
from rtlab.relation.mapping import placed
from rtlab.samples import load
from rtlab.view import charts
from rtlab.view.document import document
from rtlab.view.graph import engine_view

#: By hand from the kernels' names and kinds: steps, from 1, of an INT8 engine of the first sample.
CALLED = {1: "Q for Conv", 2: "Conv", 3: "BN · ReLU · Q", 4: "MaxPool · Q", 25: "bias of Gemm"}


def built(sample: str, precision: str) -> Study:
    found = load(sample)
    study = Study(found.model, data=found.calibration)
    study.add(
        precision, calibrator="minmax" if precision == "int8" else None, target="sm86", backend="tensorrt-rtx"
    )
    return study.run(compare=False)


@pytest.fixture(scope="module")
def study() -> Study:
    return built("digits_inception", "int8")


@pytest.fixture(scope="module")
def trained() -> Study:
    """A model that brings its own pairs of Q and DQ."""
    return built("digits_qat", "fp32")


def test_a_layer_has_one_name_on_card_bar_row_and_panel_and_for_programs(study: Study) -> None:
    """A layer that only quantizes was "Q for Conv" on its card and __myl_MulMinMax... in tables."""
    result, model = study["int8"], study.model
    layers = result.engine.layers
    by_step = {step: layers[step - 1].id for step in CALLED}
    named = cards.names(result.facts, model)
    assert CALLED == {step: named[id_] for step, id_ in by_step.items()}
    view = engine_view(result.facts, model)
    boxes = {b["id"]: b for b in view["graph"]["boxes"]}
    assert CALLED == {step: cards.name(boxes[id_]) for step, id_ in by_step.items()}
    bars = {bar.layer: bar.label for bar in charts.bars(view, "estimate")}
    assert CALLED == {step: bars[id_] for step, id_ in by_step.items()}
    for panel, place in (("roofline", 1), ("schedule", 1)):
        rows = {
            row["key"]: row["cells"] for row in answer(panel, Scene(study.snapshot(), result.facts))["rows"]
        }
        assert CALLED == {step: rows[id_][place] for step, id_ in by_step.items()}, panel
        assert [*CALLED] == [rows[id_][0] for id_ in by_step.values()], panel
    table = result.table()
    assert CALLED == {step: table.title[id_] for step, id_ in by_step.items()}
    told = {y["id"]: y["title"] for y in document(result.facts, model)["engine"]["layers"]}
    assert CALLED == {step: told[id_] for step, id_ in by_step.items()}


def test_an_explanation_calls_a_layer_as_its_card_does(study: Study) -> None:
    result = study["int8"]
    called = cards.names(result.facts, study.model)
    by_id = {y.id: y for y in result.engine.layers}
    for node in ("/stem/conv/Conv", "/stem/relu/Relu", "/pool1/MaxPool"):
        told = study.explain(node, variant="int8")
        for id_ in result.mapping.layers(node):
            one = by_id[id_]
            assert f'in layer {one.index + 1}, "{called[id_]}" ("{one.name}")' in told


@pytest.mark.slow
def test_the_command_line_calls_a_layer_as_its_card_does(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "inspect digits_inception --precision int8 --calibrator minmax --target sm86"
    assert 0 == main([*arguments.split(), "--backend", "tensorrt-rtx", "--no-run"])
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("step"))
    assert ["step", "kind", "layer", "type"] == lines[start].split()[:4]
    for step, called in CALLED.items():
        assert f"  {called}  " in lines[start + step]


def test_what_a_kernel_takes_in_of_a_models_own_pairs_is_one_mark(trained: Study) -> None:
    """Its card said DQ Q DQ Conv, as if the layer did four things."""
    result, model = trained["fp32"], trained.model
    box = layer(trained, "/stem/Conv_myl0_1")
    assert [("Conv", "work"), ("Q/DQ", "Q/DQ")] == [(c["op"], c["role"]) for c in box["chips"]]
    assert "Q/DQ for Conv" == box["chips"][1]["title"]
    assert "Conv · Q/DQ" == cards.names(result.facts, model)[box["id"]]
    # The mark stands for a node of the model, which a click can show.
    assert model.by_id[box["chips"][1]["node"]].op in {"QuantizeLinear", "DequantizeLinear"}


def test_pairs_that_a_kernel_computes_are_named_in_their_order(trained: Study) -> None:
    """Cast and Mul come first in the kernel's name; what they dequantize is added, whatever else reads it."""
    names = [c["title"] for c in layer(trained, "CastMulMulAddAddRelu")["chips"]]
    assert ["DQ for Add", "bias of Conv", "Add", "Relu", "Q for Conv"] == names


def test_a_models_own_pairs_are_never_counted_as_fused(trained: Study) -> None:
    """Nor in words."""
    for one in trained["fp32"].engine.layers:
        box = layer(trained, one.name)
        ran = [c["node"] for c in box["chips"] if c["role"] == "work"]
        assert not [n for n in ran if "Linear" in trained.model.by_id[n].op]
    told = trained.explain("/stem/Conv", variant="fp32").splitlines()[0]
    assert told.startswith(
        '"/stem/Conv" runs in layer 2, "Conv · Q/DQ" ("/stem/Conv_myl0_1") with Q/DQ for Conv ('
    )


def layer(study: Study, part: str) -> cards.Box:
    """The box of the first layer whose name holds a text."""
    result = study["fp32"]
    found: Layer = next(y for y in result.engine.layers if part in y.name)
    return cards.Cards(result.facts, study.model, placed(result.mapping, study.model)).box(found)
