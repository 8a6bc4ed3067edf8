"""The Explorer chooses among the releases of the compiler that are here."""

from __future__ import annotations

import pytest

import rtlab
import wheels
from rtlab.analyses.variants.variations import list_variations
from rtlab.backends import compilers
from rtlab.testing import tiny_model
from rtlab.web.page import controls

own = next((c for c in compilers.known() if c.own), None)
pytestmark = pytest.mark.skipif(own is None, reason="TensorRT-RTX is not installed")


@pytest.fixture
def release(tmp_path, monkeypatch) -> compilers.Compiler:
    """One that works as far as starting, and builds nothing."""
    monkeypatch.setenv("RTLAB_COMPILERS", str(tmp_path / "compilers"))
    wheels.release(tmp_path / "wheels", "0.2.0.1")
    return compilers.add("0.2", source=tmp_path / "wheels")


@pytest.mark.slow
def test_a_release_is_offered_chosen_and_part_of_the_variant(release) -> None:
    study = rtlab.Study(tiny_model(batch=1))
    study.add("fp32", target="sm86")
    shown = study.explore()
    # What predicts without a compiler stands behind the releases.
    assert [release.backend, own.backend] == [o["id"] for o in shown.controls["compilers"]][:2]
    assert controls.choice_to_variant(shown.choice).backend is None
    shown.choice = {**shown.choice, "backend": release.backend}
    assert release.backend == controls.choice_to_variant(shown.choice).backend
    shown.run().wait(60)
    made = study.state.variants[f"fp32@sm86/{release.backend}"]
    assert release.backend == made.backend
    # What it says is on a card, and the variant stays as one that failed.
    assert "0.2.0.1" in str(study.state.failures[f"fp32@sm86/{release.backend}"])
    shown.choice = {**shown.choice, "backend": own.backend}
    assert controls.choice_to_variant(shown.choice).backend is None


def offered(study: rtlab.Study) -> str:
    """Why a variant of other releases cannot be had; empty where it can."""
    return list_variations("fp16", study.state.variants["fp16"], None)["compilers"][1]


@pytest.mark.slow
def test_releases_are_varied_and_told_apart_by_their_titles(release) -> None:
    study = rtlab.Study(tiny_model(batch=1))
    study.add("fp16", target="sm86")
    assert ("fp16 0.2",) == study.vary("fp16", "compilers")
    assert not offered(study)
    compilers.remove("0.2")
    other = rtlab.Study(tiny_model(batch=1))
    other.add("fp16", target="sm86")
    assert offered(other)
