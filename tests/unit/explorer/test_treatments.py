"""Treatments are chosen like everything else: offered where something is rounded, and dropped where nothing is."""

from __future__ import annotations

from typing import get_args

import pytest

import rtlab
from rtlab.core.ptq_transform import PtqTransform, PtqTransformKind
from rtlab.core.variant import Precision
from rtlab.testing import tiny_model
from rtlab.web.explorer.explorer import Explorer
from rtlab.web.page import controls

KINDS = get_args(PtqTransformKind)
PIN = {"pattern": "op:Conv", "precision": "int8"}


@pytest.fixture
def shown() -> Explorer:
    study = rtlab.Study(tiny_model())
    study.add("fp32", target="cpu", backend="onnxruntime")
    return study.explore()


def choose(shown: Explorer, **choice: object) -> None:
    shown.choice = {**shown.choice, **choice}


def offered(shown: Explorer) -> list[str]:
    return [o["id"] for o in shown.controls["treatments"] if not o["reason"]]


def test_what_is_offered_is_what_a_variant_would_keep(shown) -> None:
    """Of each precision, also where nodes alone have it: the rule that drops treatments says what can be chosen."""
    assert [*KINDS] == [o["id"] for o in shown.controls["treatments"]]
    for precision in (*map(str, Precision), {"*": "fp32", "op:Conv": "int8"}):
        general, pins = ("fp32", [PIN]) if isinstance(precision, dict) else (precision, [])
        choose(shown, precision=general, pins=pins, target="sm120")
        kept = rtlab.Variant.of(precision, treatments=KINDS, target="sm120").treatments
        assert [t.kind for t in kept] == offered(shown), precision


def test_treatments_are_ordered_built_and_dropped_where_nothing_is_rounded(shown) -> None:
    choose(shown, precision="int8", calibrator="minmax", treatments=["correct", "smooth( 0.7 )", "equalize"])
    assert ["equalize", "smooth(0.7)", "correct"] == shown.choice["treatments"]
    wanted = controls.choice_to_variant(shown.choice)
    assert rtlab.Variant.of("int8", calibrator="minmax", treatments=shown.choice["treatments"]) == wanted
    choose(shown, treatments=["equalize"])
    shown.run().wait(60)
    made = shown.study.state.variants[shown.state.variant]
    assert (PtqTransform("equalize"),) == made.treatments
    assert ["equalize"] == controls.build_choice(shown.study.model, made)["treatments"]
    for precision in ("fp32", "int8"):
        choose(shown, precision=precision)
        assert [] == shown.choice["treatments"]
