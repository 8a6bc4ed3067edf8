"""Ranges as a collector observes them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rtlab.core.progress import Silent
from rtlab.core.ranges import Ranges
from rtlab.quantize.ranges import Collector


def collect(values, batches, fetch=dict, progress=None) -> Ranges:
    collector = Collector(values)
    collector.run(batches, fetch, progress or Silent())
    return collector.ranges


def observed(*arrays: Iterable[float]) -> Ranges:
    """Of one value, "x", over these batches."""
    return collect(["x"], [{"x": np.asarray(a, np.float32)} for a in arrays])
