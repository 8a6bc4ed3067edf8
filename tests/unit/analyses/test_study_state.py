"""A study at one moment."""

from __future__ import annotations

from rtlab import Study
from rtlab.testing import tiny_model


def test_a_state_stays_while_its_study_changes() -> None:
    study = Study(tiny_model())
    before = study.state
    study.add("fp32")
    assert ([*before.variants], [*study.state.variants]) == ([], ["fp32"])
    assert before != study.state
    study.remove("fp32")
    assert not study.state.variants
