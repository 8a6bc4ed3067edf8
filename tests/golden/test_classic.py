"""What the predicted passes do, beside what real builders told: decision by decision, layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest

import published_nets
from rtlab import backends
from rtlab.backends.log import verbose
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.questions.build.replay import replay

LOGS = Path(__file__).parents[3] / "shared" / "recorded" / "build-logs"


def predicted(model: Model) -> Engine:
    """The engine that the rules predict."""
    return backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())


@pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")
def test_googlenet_is_what_tensorrt_5_made_of_it() -> None:
    """141, 84, 66 layers: every one of the 57 fusions, nine merges, nine eliminations with their copies and targets."""
    told = verbose.parse(LOGS / "googlenet-caffe-trt5.1-fp32.log").log.attempts[0]
    model = published_nets.googlenet()
    engine = predicted(model)
    found = verbose.parse(engine.log).log.attempts[0]
    assert (141, 84, 66) == found.counts == told.counts
    wanted = [d for p in told.passes for d in p.decisions]
    made = [d for p in found.passes for d in p.decisions]
    assert [(d.action, d.names, d.result) for d in wanted] == [(d.action, d.names, d.result) for d in made]
    kinds = [d.action for d in made]
    assert (57, 9, 9, 9, 27) == tuple(map(kinds.count, ("fuse", "merge", "eliminate", "copy", "retarget")))
    assert 66 == len(engine.layers)
    played = replay(verbose.parse(engine.log).log, model, engine)
    assert [84, 66] == [played.count(57), played.count(66)]
    # Each step but those of a layer that is gone ends in a layer.
    assert all(s.layer for s in played.steps if s.joins)


def test_the_famous_block_is_seen_without_a_recording() -> None:
    """The picture of an Inception block: three 1x1 convolutions are one layer, and the concatenation is gone."""
    names = {y.name: y for y in predicted(published_nets.googlenet()).layers}
    parts = ("1x1", "3x3_reduce", "5x5_reduce")
    merged = " || ".join(f"inception_3a/{p} + inception_3a/relu_{p}" for p in parts)
    assert {f"inception_3a/{a}{b}" for a in ("", "relu_") for b in parts} == {*names[merged].origins}
    assert "inception_3a/output" not in names
    writers = [y.name for y in names.values() if any(t.name == "inception_3a/output" for t in y.outputs)]
    assert 4 == len(writers)
    assert f"{merged} copy" in writers
