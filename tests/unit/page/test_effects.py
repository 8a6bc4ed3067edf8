"""What nodes do to the outputs, as colours: estimates apart from what was run."""

from __future__ import annotations

import dataclasses
import math

import pytest

import rtlab
from rtlab.analyses.sensitivity import Sensitivity, SensitivityRow
from rtlab.core.data import CalibrationData
from rtlab.relation.roles import SERVING
from rtlab.testing import tiny_model
from rtlab.web.page.effects import build_effect_overlays, pick_ranking


@pytest.fixture(scope="module")
def study() -> rtlab.Study:
    model = tiny_model()
    made = rtlab.Study(model, data=CalibrationData.random(model, samples=8, seed=1))
    made.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    return made.run(compare=False)


def told(*rows: SensitivityRow, asks: str = "only", by: str = "node") -> Sensitivity:
    return Sensitivity("int8", asks, by, rows, "energy", 1.0, 16, 4, 0.93, 2.0, 0.1, "a CPU")  # type: ignore[arg-type]


def row(node: str, effect: float, verified: float | None, quantizer: str = "") -> SensitivityRow:
    return SensitivityRow(1, node, quantizer, effect, effect - 0.125, effect + 0.125, verified, "estimated")


def test_estimates_and_runs_are_two_numbers_of_a_node(study) -> None:
    first, second = (n.id for n in study.model.top[:2])
    guessed, run = build_effect_overlays(
        study["int8"].facts, told(row(first, 0.5, 0.75), row(second, 0.25, None))
    )
    assert ("effect", "estimated", "low") == (guessed["id"], guessed["origin"], guessed["best"])
    assert {first: 0.5, second: 0.25} == {n: v["value"] for n, v in guessed["nodes"].items()}
    assert "95 % interval 0.375 to 0.625" == guessed["nodes"][first]["note"]
    assert ("effect_verified", "measured") == (run["id"], run["origin"])
    assert {first: 0.75} == {n: v["value"] for n, v in run["nodes"].items()}
    assert "estimated 0.5" == run["nodes"][first]["note"]
    assert "16 samples, reliability 0.93" in guessed["source"]


def test_of_places_that_round_the_worst_stands_for_its_node(study) -> None:
    """It is named; a number that is none gives no colour, and where nothing was run there is no such overlay."""
    node = study.model.top[0].id
    rows = [
        row(node, effect, None, q) for effect, q in ((0.25, "a"), (0.5, "b"), (math.inf, "c"), (0.125, "d"))
    ]
    (only,) = build_effect_overlays(study["int8"].facts, told(*rows, by="quantizer"))
    assert 0.5 == only["nodes"][node]["value"]
    assert only["nodes"][node]["note"].startswith('of "b"; ')


def test_a_layer_has_the_worst_of_the_nodes_that_it_runs(study) -> None:
    """Those that it only serves, by a Q or a DQ, do not count."""
    facts = study["int8"].facts
    rows = [row(n.id, 1.0 + i, None) for i, n in enumerate(study.model.top)]
    (found,) = build_effect_overlays(facts, told(*rows))
    mapping = rtlab.analyses.fusion.map_nodes(facts)
    for layer in facts.engine.layers:
        own = [found["nodes"][p.node]["value"] for p in mapping.of(layer.id) if p.role not in SERVING]
        assert found["layers"].get(layer.id, {}).get("value") == max(own, default=None)
    assert found["layers"]


def test_harm_of_nodes_is_told_before_any_other_ranking(study) -> None:
    kinds = [(a, b, "outputs") for a in ("released", "only") for b in ("quantizer", "node")]
    known = {key: told(asks=key[0], by=key[1]) for key in kinds}
    snapshot = dataclasses.replace(study.state, sensitivities={"int8": known})
    assert known["only", "node", "outputs"] is pick_ranking(snapshot, "int8")
    del known["only", "node", "outputs"]
    assert known["only", "quantizer", "outputs"] is pick_ranking(snapshot, "int8")
    assert pick_ranking(snapshot, "fp32") is None
