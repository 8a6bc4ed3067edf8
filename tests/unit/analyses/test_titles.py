"""What a variant is called, everywhere the same."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest

from rtlab import Study
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.variant import Variant
from rtlab.testing import tiny_model
from rtlab.web.page import chrome


def planned(**variants: Variant) -> SimpleNamespace:
    return SimpleNamespace(variants=variants, results={})


def of(**choice: str) -> Variant:
    return Variant.of("int8", calibrator="minmax", **choice)


def test_a_name_that_repeats_the_choice_is_the_choice() -> None:
    one = of(target="sm86")
    assert {one.id: "int8·minmax"} == get_variant_titles(planned(**{one.id: one}))
    assert {"int8": "int8·minmax"} == get_variant_titles(planned(int8=one))


def test_the_builder_that_was_found_for_a_choice_is_no_part_of_its_name() -> None:
    chosen = of(target="sm86")
    built = dataclasses.replace(chosen, backend="tensorrt-rtx")
    assert {chosen.id: "int8·minmax"} == get_variant_titles(planned(**{chosen.id: built}))


def test_the_target_is_told_where_variants_differ_by_it() -> None:
    ampere, ada = of(target="sm86"), of(target="sm89")
    told = get_variant_titles(planned(**{ampere.id: ampere, ada.id: ada, "ours": ada}))
    assert ["int8·minmax@sm86", "int8·minmax@sm89", "ours"] == list(told.values())


def test_no_two_variants_have_one_title() -> None:
    one = of(target="sm86")
    first, second = (dataclasses.replace(one, sparsity=(pattern,)) for pattern in ("stem/*", "head/*"))
    told = get_variant_titles(planned(**{first.id: first, second.id: second}))
    assert {first.id: first.id, second.id: second.id} == told


@pytest.mark.slow
def test_chips_tables_panels_and_figures_use_one_title() -> None:
    study = Study(tiny_model())
    for variant in (Variant.of("fp32"), of()):
        study.add(variant.id, precision=variant.precision, calibrator=variant.calibrator, target="cpu",
                  backend="onnxruntime")  # fmt: skip
    study.run()
    names = list(study)
    wanted = [get_variant_titles(study.state)[n] for n in names]
    assert wanted == [c["label"] for c in chrome.build_chips(study.state, baseline=names[0])]
    assert all(f"<td>{title}</td>" in study._repr_html_() for title in wanted)
    shown = render_panel(
        "difference", PanelContext(study.state, study[names[1]].facts, study[names[0]].facts)
    )
    assert f"From {wanted[0]} to {wanted[1]}" == shown["title"]
    beside = render_panel("variants", PanelContext(study.state, study[names[1]].facts))
    assert [wanted[0], f"▸ {wanted[1]}"] == [row["cells"][0] for row in beside["rows"]]
    assert [wanted[0], f"▸ {wanted[1]}"] == list(beside["figures"][0]["data"][0]["y"])


def test_a_recorded_variant_has_its_own_name_and_what_its_files_tell_beside(tmp_path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": ["Conv_0 + Relu_1", "MaxPool_2"], "Bindings": ["x", "y"]}))
    study = Study(tiny_model())
    study.read("a100", layers=path)
    (chip,) = chrome.build_chips(study.state, baseline="")
    assert ("a100", "types not reported · GPU") == (chip["label"], chip["about"])
    assert {"a100": "a100"} == get_variant_titles(study.state)
