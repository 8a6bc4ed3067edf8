"""What a variant is called, everywhere the same."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from rtlab import Study
from rtlab.core.variant import Variant
from rtlab.testing import tiny_model
from rtlab.view import chrome
from rtlab.view.naming import titles
from rtlab.view.panel import Scene
from rtlab.view.panels import answer


def planned(**variants: Variant) -> SimpleNamespace:
    return SimpleNamespace(variants=variants, results={})


def of(**choice: str) -> Variant:
    return Variant.of("int8", calibrator="minmax", **choice)


def test_a_name_that_repeats_the_choice_is_the_choice() -> None:
    one = of(target="sm86")
    assert {one.id: "int8·minmax"} == titles(planned(**{one.id: one}))
    assert {"int8": "int8·minmax"} == titles(planned(int8=one))


def test_the_builder_that_was_found_for_a_choice_is_no_part_of_its_name() -> None:
    """The Explorer names a variant before it is planned."""
    chosen = of(target="sm86")
    built = dataclasses.replace(chosen, backend="tensorrt-rtx")
    assert {chosen.id: "int8·minmax"} == titles(planned(**{chosen.id: built}))


def test_a_name_that_somebody_chose_stays() -> None:
    assert {"ours": "ours"} == titles(planned(ours=of(target="sm86")))


def test_the_target_is_told_where_variants_differ_by_it() -> None:
    """And of all of them, so that none seems to be for any target."""
    ampere, ada = of(target="sm86"), of(target="sm89")
    told = titles(planned(**{ampere.id: ampere, ada.id: ada, "ours": ada}))
    assert ["int8·minmax@sm86", "int8·minmax@sm89", "ours"] == list(told.values())


def test_no_two_variants_have_one_title() -> None:
    """Two that differ in what is pruned share all that a title tells."""
    first, second = (
        dataclasses.replace(of(target="sm86"), sparsity=(pattern,)) for pattern in ("stem/*", "head/*")
    )
    told = titles(planned(**{first.id: first, second.id: second}))
    assert {first.id: first.id, second.id: second.id} == told


def test_chips_tables_panels_and_figures_use_one_title() -> None:
    study = Study(tiny_model())
    for variant in (Variant.of("fp32"), of()):
        study.add(variant.id, precision=variant.precision, calibrator=variant.calibrator, target="cpu",
                  backend="onnxruntime")  # fmt: skip
    study.run()
    names = list(study.results)
    wanted = [titles(study)[n] for n in names]
    assert wanted == [c["label"] for c in chrome.chips(study, baseline=names[0])]
    assert all(f"<td>{title}</td>" in study._repr_html_() for title in wanted)
    shown = answer("difference", Scene(study, study[names[1]], study[names[0]]))
    assert f"From {wanted[0]} to {wanted[1]}" == shown["title"]
    assert [wanted[0]] == [o["label"] for s in shown["settings"] if s["key"] == "from" for o in s["options"]]
    beside = answer("variants", Scene(study, study[names[1]]))
    assert [wanted[0], f"▸ {wanted[1]}"] == [row["cells"][0] for row in beside["rows"]]
    assert [wanted[0], f"▸ {wanted[1]}"] == list(beside["figures"][0]["data"][0]["y"])
