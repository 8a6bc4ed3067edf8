"""docs/engines.md states the errors of the estimates that the code states."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.analyses.roofline.estimate import CROSS_VALIDATED, RECORDED

PAGE = (Path(__file__).parents[2] / "docs/engines.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("own", "held"), list(zip(RECORDED, CROSS_VALIDATED, strict=True)), ids=[j.engine for j in RECORDED]
)
def test_the_documentation_states_the_error_of_each_recorded_engine(own, held) -> None:
    """A reader trusts a table more than a tooltip; an old one would promise what is not kept."""
    assert own.engine == held.engine
    row = (
        f"| {own.engine} | {own.gpu} | {own.layers} | {own.factor:.2f} | {own.rank:.2f} | {own.total:.2f} "
        f"| {held.factor:.2f}, {held.rank:.2f}, {held.total:.2f} |"
    )
    assert row in PAGE.splitlines()
