"""Batch sizes: which one is worth its latency."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from rtlab.analyses.batches import BatchTime, Sweep
from rtlab.analyses.samples.spread import compute_spread


def swept(rates: dict[int, float]) -> Sweep:
    """A sweep whose rates, in samples per second, are given by batch."""
    rows = tuple(BatchTime(b, compute_spread(np.full(9, b / r * 1e3))) for b, r in rates.items())
    return Sweep("fp32", "test", "", "CPU", datetime.datetime.now(datetime.timezone.utc), rows)


@pytest.mark.parametrize(
    ("rates", "knee", "best"),
    [
        ({1: 100.0, 2: 850.0, 4: 920.0, 8: 1000.0}, 4, 8),  # the first above 900
        ({1: 950.0, 2: 990.0, 4: 1000.0}, 1, 4),
        ({1: 500.0, 2: 899.0, 4: 1000.0, 8: 700.0}, 4, 4),
    ],
)
def test_the_knee_is_the_smallest_batch_of_nine_tenths_of_the_best_rate(rates, knee, best) -> None:
    """By hand; beyond it only the latency grows."""
    found = swept(rates)
    assert (knee, best) == (found.knee.batch, found.best.batch)
    assert [pytest.approx(r) for r in rates.values()] == [row.rate for row in found.rows]
