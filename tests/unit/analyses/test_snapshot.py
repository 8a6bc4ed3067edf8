"""A study as it was at one moment."""

from __future__ import annotations

from rtlab import Study
from rtlab.testing import tiny_model


def test_two_moments_are_two_though_nothing_changed_between_them() -> None:
    study = Study(tiny_model())
    study.add("fp32")
    first, second = study.snapshot(), study.snapshot()
    assert first != second
    assert {first: 1, second: 2} == {first: 1} | {second: 2}
    assert [*first.variants] == [*second.variants] == ["fp32"]
