"""What the card of a layer says, and that the same words stand wherever people read of that layer."""

from __future__ import annotations

import pytest

from rtlab import Study
from rtlab.analyses.cards import card as cards
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.core.engine import Layer
from rtlab.relation.mapping import map_to_places
from rtlab.samples import load
from rtlab.web.page import charts
from rtlab.web.page.document import build_variant_document
from rtlab.web.page.graph import engine_view

#: By hand from the kernels' names and kinds: steps, from 1, of an INT8 engine of the first sample.
CALLED = {1: "Q for Conv", 2: "Conv", 3: "BN · ReLU · Q", 4: "MaxPool · Q", 25: "bias of Gemm"}


def built(sample: str, precision: str) -> Study:
    found = load(sample)
    study = Study(found.model, data=found.calibration)
    calibrator = "minmax" if precision == "int8" else None
    study.add(precision, calibrator=calibrator, target="sm86", backend="tensorrt-rtx")
    return study.run(compare=False)


@pytest.fixture(scope="module")
def study() -> Study:
    return built("digits_inception", "int8")


@pytest.fixture(scope="module")
def trained() -> Study:
    """A model that brings its own pairs of Q and DQ."""
    return built("digits_qat", "fp32")


def test_a_layer_has_one_name_on_card_bar_row_and_panel_and_for_programs(study: Study) -> None:
    result, model = study["int8"], study.model
    layers = result.engine.layers
    by_step = {step: layers[step - 1].id for step in CALLED}
    named = cards.name_layers(result.facts, model)
    assert CALLED == {step: named[id_] for step, id_ in by_step.items()}
    view = engine_view(result.facts, model)
    boxes = {b["id"]: b for b in view["graph"]["boxes"]}
    assert CALLED == {step: cards.format_box_name(boxes[id_]) for step, id_ in by_step.items()}
    bars = {bar.layer: bar.label for bar in charts.bars(view, "estimate")}
    assert CALLED == {step: bars[id_] for step, id_ in by_step.items()}
    for panel in ("roofline", "schedule"):
        shown = render_panel(panel, PanelContext(study.state, result.facts))
        rows = {row["key"]: row["cells"] for row in shown["rows"]}
        assert CALLED == {rows[id_][0]: rows[id_][1] for id_ in by_step.values()}, panel
    table = result.table()
    assert CALLED == {step: table.title[id_] for step, id_ in by_step.items()}
    told = {y["id"]: y["title"] for y in build_variant_document(result.facts, model)["engine"]["layers"]}
    assert CALLED == {step: told[id_] for step, id_ in by_step.items()}


def test_what_a_kernel_takes_in_of_a_models_own_pairs_is_one_mark(trained: Study) -> None:
    result, model = trained["fp32"], trained.model
    box = layer(trained, "/stem/Conv_myl0_1")
    assert [("Conv", "work"), ("Q/DQ", "Q/DQ")] == [(c["op"], c["role"]) for c in box["chips"]]
    assert "Q/DQ for Conv" == box["chips"][1]["title"]
    assert "Conv · Q/DQ" == cards.name_layers(result.facts, model)[box["id"]]
    # The mark stands for a node of the model, which a click can show.
    assert model.by_id[box["chips"][1]["node"]].op in {"QuantizeLinear", "DequantizeLinear"}


def test_a_models_own_pairs_are_never_counted_as_fused(trained: Study) -> None:
    for one in trained["fp32"].engine.layers:
        box = layer(trained, one.name)
        ran = [c["node"] for c in box["chips"] if c["role"] == "work"]
        assert not [n for n in ran if "Linear" in trained.model.by_id[n].op]


def layer(study: Study, part: str) -> cards.Box:
    """The box of the first layer whose name holds a text."""
    result = study["fp32"]
    found: Layer = next(y for y in result.engine.layers if part in y.name)
    return cards.BoxBuilder(result.facts, study.model, map_to_places(result.mapping, study.model)).build_box(
        found
    )
