"""A predicted engine as a variant: marked wherever it stands, never timed, and asked by rule."""

from __future__ import annotations

import json

import pytest

import rtlab
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.backends import selection
from rtlab.errors import VariantError
from rtlab.web.page import chrome, document
from rtlab.web.page.table import study_html


@pytest.fixture(scope="module")
def study() -> rtlab.Study:
    """The digits with a predicted variant and one of ONNX Runtime."""
    made = rtlab.Study(rtlab.samples.load("digits_inception").model)
    made.add("classic", precision="fp32", backend="classic")
    made.add("cpu", precision="fp32", target="cpu")
    made.run(budget_s=0)
    made.run(["classic"])
    return made


def test_it_is_marked_wherever_it_stands_and_never_timed(study: rtlab.Study) -> None:
    snapshot, result = study.state, study["classic"]
    chip = next(c for c in chrome.build_chips(snapshot, baseline="cpu") if c["id"] == "classic")
    assert (True, 15, None) == (chip["predicted"], chip["layers"], result.timing)
    told = chrome.list_status(snapshot, "classic")
    assert {"predicted"} == {s["origin"] for s in told if "Predicted TensorRT" in s["text"]}
    assert "◌ 15 layers" in study_html(snapshot)
    build = study.ask("build", variant="classic")
    assert "predicted" == build.result.origin
    written = document.build_variant_document(result.facts, study.model)
    assert "predicted" == written["engine"]["origin"] == written["build"]["origin"]
    engine = study.ask("engine", variant="classic")._repr_html_()
    assert not any("reported" in text for text in (repr(build), engine, json.dumps(written["build"])))


def test_why_is_told_by_rule_with_its_source(study: rtlab.Study) -> None:
    model = study.model
    conv = next(n for n in model.top if n.op == "Conv")
    (after,) = model.consumers[conv.outputs[0]]
    told = study.fusion.why(conv.id, after.id, variant="classic")
    assert ("fused", "predicted", 0) == (told.verdict, told.basis, told.builds)
    assert "Layer Fusion Catalog" in told.text
    assert "(predicted)" in study.explain(conv.id, variant="classic")
    pool = next(n for n in model.top if n.op == "MaxPool")
    maker = model.producers[pool.inputs[0]]
    apart = study.fusion.why(maker.id, pool.id, variant="classic")
    assert apart.verdict in {"not found", "blocked"}
    with pytest.raises(VariantError, match="predicted by rules"):
        study.fusion.advise("classic")


def test_nobody_gets_one_unasked() -> None:
    assert "classic" not in {selection.usual_builder(), selection.builder_for(None, "sm86")}


@pytest.mark.parametrize(("name", "other"), [("classic", "cpu"), ("cpu", "classic")])
def test_beside_a_reported_engine_each_side_tells_its_own_origin(study, name: str, other: str) -> None:
    told = {"classic": "predicted", "cpu": "reported"}
    study.fusion.bisect(other, name, builds=1)
    kept = study.state
    panel = panels.render_panel(
        "bisection", PanelContext(kept, kept.results[name], kept.results[other], {"from": other})
    )
    origins = {c["title"]: c["origin"] for c in panel["columns"]}
    assert (told[other], told[name]) == (origins["Before"], origins["After"])
