"""The CPU's own roofs."""

from __future__ import annotations

import math

import pytest

from rtlab.core.progress import Silent
from rtlab.errors import Cancelled
from rtlab.study.peaks import measured_peaks


def test_the_cpu_has_roofs_that_are_measured() -> None:
    """Small products, so that the test is quick; they are not the peak."""
    found = measured_peaks(product=128, moved=1 << 16)
    assert "measured" == found.origin
    assert "ONNX Runtime" in found.source
    assert {"fp32", "int8"} == set(found.cores)
    for rate in (found.bandwidth, *found.cores.values()):
        assert math.isfinite(rate)
        # A thousand and a million times what is usual would be a unit mistaken.
        assert 1e7 < rate < 1e14
    assert "this CPU" == found.name


def test_measuring_can_be_stopped() -> None:
    progress = Silent()
    progress.cancel()
    with pytest.raises(Cancelled):
        measured_peaks(progress, product=128, moved=1 << 16)
