"""What a roofline costs."""

from __future__ import annotations

import sys
import time

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.test_payload import engine_of
from rtlab import samples
from rtlab.questions.roofline.roofs import roofline
from rtlab.relation.relate import relate


def test_a_roofline_of_a_large_engine_beside_relating_its_layers(benchmark: BenchmarkFixture, care) -> None:
    """Both walk all nodes and layers."""
    model = samples.transformer_stack(nodes=care.size(10_000, 2_000))
    engine = engine_of(model, np.random.default_rng(0))
    started = time.perf_counter()
    mapping = relate(model, model, engine)
    related = time.perf_counter() - started
    found = benchmark.pedantic(
        lambda: roofline(engine, mapping, model, "RTX 3090"), rounds=3, warmup_rounds=1
    )
    benchmark.extra_info |= {"layers": len(found.layers), "related_seconds": related}
    sys.stdout.write(f"\n{len(found.layers)} layers: related in {related:.2f} s, ")
    sys.stdout.write(f"under the roofs in {benchmark.stats.stats.median:.2f} s\n")
    assert found.layers
