"""Every trained sample comes back to fp32, the cheapest way, whatever precision and calibrator took it away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import repairs

if TYPE_CHECKING:
    from conftest import Care

#: Another scale, weights reconstructed, and a region that has to be kept high.
FEW = (("digits_outlier", "int8", "minmax"), ("digits_light", "int4", ""), ("fp16_overflow", "fp16", ""))


@pytest.mark.timeout(3600)
def test_what_is_lost_comes_back_within_half_a_point_or_what_the_samples_can_tell(care: Care) -> None:
    found = [repairs.row(*one, prove=False) for one in FEW] if care.smoke else [*repairs.table()]
    assert [r for r in found if not r.found.enough] == []
    assert max(r.found.runs for r in found) <= repairs.RUNS
    # What stays high was proved to be needed, by all that costs less.
    assert care.smoke or all(r.proved for r in found if r.found.kept_high)
    assert {r.sample for r in found if r.found.kept_high} <= {"fp16_overflow"}
