"""The panel of missed fusions: what is missed, what is at stake, and what was found out about it."""

from __future__ import annotations

import dataclasses

import pytest

import rtlab
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.advice import is_worthwhile
from rtlab.analyses.why.missed_fusions import MissedPair, find_missed_fusions
from rtlab.core.variant import Target
from rtlab.documents.commands import StartWork
from rtlab.errors import VariantError
from rtlab.testing import tiny_model
from ruled import Ruled


class Everywhere(Ruled):
    """It builds for a GPU too, whose bandwidth is known."""

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), targets=(Target("sm86"),))

    def build(self, request, progress):
        return dataclasses.replace(super().build(request, progress), target=request.variant.target)


@pytest.fixture
def study() -> rtlab.Study:
    made = rtlab.Study(tiny_model(batch=1))
    made.add("fp32", backend=Everywhere(), target="sm86")
    return made.run(compare=False)


def panel(study: rtlab.Study, **settings: str):
    return render_panel("why", PanelContext(study.state, study["fp32"].facts, settings=settings))


def test_what_is_at_stake_is_the_value_written_and_read_once(study) -> None:
    """By hand: 8×8×8 numbers of four bytes, twice, at the 936 GB/s of an RTX 3090, which sm86 is judged by."""
    found = {(m.first, m.second): m.stake for m in find_missed_fusions(study["fp32"].facts)}
    nbytes = 8 * 8 * 8 * 4
    bandwidth = study["fp32"].estimate.peaks.bandwidth
    assert pytest.approx(2 * nbytes / bandwidth * 1e3) == found["stem/Relu", "left/Conv"]
    assert ("stem/Conv", "stem/BatchNormalization") not in found, "these are one layer"
    assert [*found.values()] == sorted(found.values(), reverse=True)


def test_every_missed_fusion_is_a_row_that_selects_both_nodes(study) -> None:
    told = panel(study)
    assert len(find_missed_fusions(study["fp32"].facts)) == len(told["rows"])
    assert {"not asked"} == {r["cells"][3] for r in told["rows"]}
    for row in told["rows"]:
        assert row["cells"][:2] == told["links"][row["key"]]["nodes"]
    assert ["advise"] == [w["work"] for w in told["work"]]


def test_a_pair_is_asked_about_and_its_experiments_are_shown(study) -> None:
    pair = "stem/Relu | left/Conv"
    before = panel(study, pair=pair)
    assert {"first": "stem/Relu", "second": "left/Conv"} == before["work"][0]["values"]
    assert [] == before["rows"]
    with pytest.raises(VariantError, match="was not asked"):
        study.ask("why", variant="fp32", pair=pair)
    verdict = study.fusion.why("stem/Relu", "left/Conv", variant="fp32")
    told = panel(study, pair=pair)
    assert verdict.text == told["lead"]
    assert len(verdict.experiments) == len(told["rows"])
    shown = {f["key"]: f["value"] for f in told["facts"]}
    assert ("not found", str(verdict.builds)) == (shown["Verdict"], shown["Builds"])
    assert verdict is study.ask("why", variant="fp32", pair=pair).result
    assert "not found" in {r["cells"][3] for r in panel(study)["rows"]}


def test_advice_is_a_row_for_each_cause(study) -> None:
    found = study.fusion.advise("fp32")
    told = panel(study)
    assert len(found.causes) == len(told["rows"])
    column = {c["title"]: i for i, c in enumerate(told["columns"])}
    assert found.missed == sum(r["cells"][column["Pairs"]] for r in told["rows"])
    assert [c.text for c in found.causes] == [r["note"] for r in told["rows"]]
    # A row selects the nodes of all its pairs, which stand where they are called in a model without functions.
    for cause, row in zip(found.causes, told["rows"], strict=True):
        assert {n for pair in cause.pairs for n in pair} == {*told["links"][row["key"]]["nodes"]}
    shown = {f["key"]: f["value"] for f in told["facts"]}
    assert [f"{found.missed}", f"{found.asked}"] == [shown[k] for k in ("Missed fusions", "Asked about")]
    assert found is study.ask("why", variant="fp32").result


def test_a_remedy_becomes_a_variant_of_its_own(study) -> None:
    name = study.fusion.suggest_edit("fp32", ["fold stem/BatchNormalization"])
    assert "fp32 rewritten" == name
    assert "fp32 · 1 rewritten" == study.state.variants[name].name
    with pytest.raises(VariantError):
        study.fusion.suggest_edit("fp32")


def test_the_forms_that_there_are_are_listed_by_kind_and_become_a_variant() -> None:
    """GoogLeNet's nine Inception blocks have one group of siblings each, by their definition."""
    made = rtlab.Study(rtlab.samples.load("googlenet", samples=1).model)
    merged = made.fusion.rewrites("merge")
    assert 9 == len(merged)
    assert {"merge"} == {r.kind for r in merged}
    assert {*merged} < {*made.fusion.rewrites()}
    made.add("fp32")
    name = made.fusion.suggest_edit("fp32", merged)
    assert merged == made.state.variants[name].rewrites
    with pytest.raises(VariantError, match="marge"):
        made.fusion.rewrites("marge")


def test_a_step_is_chosen_by_its_layer_and_its_experiments_are_shown(study) -> None:
    layer = next(p.layer for p in study["fp32"].mapping.pairs if p.node == "stem/Relu")
    before = panel(study, pair=f"layer {layer}")
    assert {"layer": layer} == before["work"][0]["values"]
    with pytest.raises(VariantError, match="was not asked"):
        study.ask("why", variant="fp32", pair=f"layer {layer}")
    found = study.fusion.why(layer, variant="fp32")
    told = panel(study, pair=f"layer {layer}")
    assert found.text == told["lead"]
    assert {"no"} == {r["cells"][4] for r in told["rows"]}, "by the rules nothing holds once a value is seen"
    assert [layer] == told["links"]["pair"]["layers"]
    assert found is study.ask("why", variant="fp32", pair=f"layer {layer}").result
    # By hand: two values of 8×8×8 numbers of four bytes, each written and read once.
    bandwidth = study["fp32"].estimate.peaks.bandwidth
    assert pytest.approx(2 * 2 * 8 * 8 * 8 * 4 / bandwidth * 1e3) == found.saved
    assert panel(study, pair="layer nothing")["settings"][0]["value"] == "all"


def test_a_pair_that_is_one_step_can_be_chosen_too(study) -> None:
    pair = "stem/Conv | stem/BatchNormalization"
    told = panel(study, pair=pair)
    assert pair == told["settings"][0]["value"]
    verdict = study.fusion.why("stem/Conv", "stem/BatchNormalization", variant="fp32")
    assert ("fused", verdict.text) == (verdict.verdict, panel(study, pair=pair)["lead"])


def test_the_graphs_own_question_asks_the_compiler_once_and_the_panels_again(study) -> None:
    explorer = study.explore()
    pair = {"first": "stem/Relu", "second": "left/Conv"}

    def found(values: dict[str, str]) -> Verdict:
        explorer._receive(explorer, StartWork("why", "fp32", values).to_dict(), [])
        explorer.wait(60)
        assert not explorer.failure
        return study.state.verdicts["fp32"]["stem/Relu", "left/Conv"]

    first = found({**pair, "unless": "known"})
    assert first is found({**pair, "unless": "known"})
    assert first is not found(pair)


def test_what_could_pay_is_worth_asking_about_and_what_nothing_is_known_of_too() -> None:
    """A thousandth of an inference of 2 ms is 2 µs; without a time of the whole, everything may."""
    pairs = [MissedPair("a", "b", stake) for stake in (0.002, 0.0019, None)]
    assert [True, False, True] == [is_worthwhile(p, 2.0) for p in pairs]
    assert [True, True, True] == [is_worthwhile(p, None) for p in pairs]
