"""Why two nodes are not one step: of planted misses how many are found, with how many builds, and how long it takes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np
import pytest

import rtlab
from planted_misses import PLANTS, Edge, Miss, edges, planted, random_network
from rtlab import backends
from rtlab.analyses.why.missed_fusions import same_layer
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.why.search import FusionBlockerSearch
from rtlab.relation.mapping import Mapping
from rtlab.relation.relate import relate

RTX = backends.get("tensorrt-rtx")
VARIANT = Variant.of("fp32", target="sm86", backend="tensorrt-rtx")
#: Networks of samples, beside those drawn at random.
NAMED = ("mobilenet_v2", "resnet50", "digits_inception", "digits_mobilenet")
#: Edges of a network that are tried before another network is drawn.
_TRIED = 6


def built(model: Model) -> tuple[Engine, Mapping]:
    engine = RTX.build(BuildRequest(model, VARIANT, several=True), Silent())
    return engine, relate(model, model, engine)


def misses(seed: int) -> Iterator[tuple[Miss, Engine]]:
    """Misses of all kinds, each proved: fused without what was planted, and not with it."""
    rng = np.random.default_rng(seed)
    while True:
        if rng.random() < 0.15:
            model = rtlab.samples.load(str(rng.choice(NAMED))).model
        else:
            model = random_network(int(rng.integers(1 << 30)))
        _, relation = built(model)
        fused = [e for e in edges(model) if same_layer(relation, e.first, e.second)]
        for _ in range(_TRIED):
            edge: Edge = fused[int(rng.integers(len(fused)))]
            kinds = [str(k) for k in rng.choice([*PLANTS], 2 if rng.random() < 0.25 else 1, replace=False)]
            miss = planted(model, edge, kinds, rng)
            if miss is None:
                continue
            engine, after = built(miss.model)
            if same_layer(after, edge.first, edge.second) is False:
                yield miss, engine
                break


@pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)
def test_planted_misses_are_found(care, record_property) -> None:
    """The cause is right where it is one that was planted, or several of them, and the planted node is named.

    Of two things planted at once, one may do alone to part the pair, or its removal to join it.
    """
    count = care.size(100, 4)
    right, builds, seconds, wrong = 0, [], [], []
    for miss, engine in misses(7):
        search = FusionBlockerSearch(miss.model, engine, VARIANT, miss.edge.first, miss.edge.second)
        found = run_experiment(search, WorkContext(RTX, None, Budget(seconds=60, builds=60)))
        named = len(miss.causes) > 1 or {*miss.nodes} <= {*found.nodes}
        good = found.verdict == "blocked" and {*found.causes} <= miss.causes and named
        right += good
        wrong += [] if good else [(miss, found)]
        builds.append(found.builds)
        seconds.append(found.seconds)
        if len(builds) == count:
            break
    told = (right, statistics.median(builds), max(builds), statistics.median(seconds), max(seconds))
    record_property("right, builds (median, most), seconds (median, most)", told)
    assert right >= 0.95 * count, wrong
    assert statistics.median(builds) <= 12


@pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50", "bert", "csp_detector"])
def test_advice_covers_a_network_in_a_minute(care, record_property, name) -> None:
    """All missed fusions are asked about or like one that was, and each remedy was built on the whole model."""
    if name not in care.size((name,), ("mobilenet_v2",)):
        pytest.skip("One network is enough to see that it works.")
    sample = rtlab.samples.load(name, samples=1)
    study = rtlab.Study(sample.model, data=sample.calibration)
    study.add("fp32", precision="fp32", target="sm86", backend="tensorrt-rtx")
    study.run(compare=False)
    found = study.fusion.advise("fp32", seconds=care.most(60.0))
    record_property(
        "missed, asked, builds, seconds", (found.missed, found.asked, found.builds, found.seconds)
    )
    assert found.missed == sum(c.count for c in found.causes)
    offered = [
        c for c in found.causes if c.verdict == "blocked" and c.edit.startswith(("fold", "write", "leave"))
    ]
    assert all(c.remedy is not None and c.remedy.keeps for c in offered)
    assert found.seconds < care.most(60.0)
