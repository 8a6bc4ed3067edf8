"""What changed between two precisions on TensorRT-RTX: who shares a step with whom, and the fewest nodes."""

from __future__ import annotations

import pytest

import rtlab
from rtlab import backends
from rtlab.analyses.why.missed_fusions import same_layer
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.experiments.why import cutting
from rtlab.relation.relate import relate

RTX = backends.get("tensorrt-rtx")
pytestmark = pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason)


@pytest.mark.slow
def test_int8_parts_every_convolution_of_an_inception_net_from_what_follows_it_in_three_ways() -> None:
    """Of 12 the stem and four reductions are alike, twice three branches that a Concat joins, and one is alone."""
    given = rtlab.samples.load("digits_inception")
    study = rtlab.Study(given.model, data=given.calibration)
    for precision in ("fp32", "int8"):
        study.add(precision, precision=precision, target="sm86", backend="tensorrt-rtx")
    found = study.fusion.bisect("fp32", "int8", builds=80)

    assert [1, 2, 5] == sorted(c.places for c in found.changes)
    convs = {n.id for n in study.model.top if n.op == "Conv"}
    moved = [n for c in found.changes for n in c.nodes]
    assert 12 == len(convs & {*moved})
    assert len(moved) == len({*moved})
    (five,) = (c for c in found.changes if c.places == 5)
    assert "Conv + BatchNormalization + Relu" == five.first
    assert "Conv; BatchNormalization + Relu with Q" == five.second
    # The parts for themselves, built anew: one step in fp32, two in int8.
    told = []
    for name in ("fp32", "int8"):
        part = cutting.cut_nodes(study[name].facts.prepared.model, five.smallest)
        engine = RTX.build(BuildRequest(part, study.state.variants["fp32"]), Silent())
        ids = [next(n.id for n in part.top if n.op == op) for op in ("Conv", "BatchNormalization")]
        told.append(same_layer(relate(part, part, engine), *ids))
    assert [True, False] == told
