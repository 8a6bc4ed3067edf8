"""Rules on whole engines: each on an engine that has the fault and on its neighbour that has not."""

from __future__ import annotations

import pytest

from judged import chain, of, timed
from rtlab.analyses.findings.rules import rank_findings
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target


def test_many_layers_as_short_as_a_launch() -> None:
    assert 1 == len(of(chain(12), "tiny-layers", timed(chain(12), 4)))
    assert [] == of(chain(12), "tiny-layers", timed(chain(12), 6))
    assert [] == of(chain(5), "tiny-layers", timed(chain(5), 4))
    assert [] == of(chain(12), "tiny-layers", timed(chain(12), 1000, 4))
    assert [] == of(chain(12), "tiny-layers")


@pytest.mark.parametrize(
    ("total", "expected"), [(30, "idle:gaps"), (19, None), (21, None), (10, "idle:overstated"), (None, None)]
)
def test_a_latency_far_from_the_sum_of_the_layers(total, expected) -> None:
    found = of(chain(2), "idle", timed(chain(2), 10, total=total))
    assert ([expected] if expected else []) == [f.id for f in found]
    assert all(f.microseconds is None for f in found)


def test_names_alone_give_one_finding() -> None:
    layers = (Layer("0", "conv", "", 0), Layer("1", "Reformat", "", 1))
    bare = Engine("trtexec", "", Target("unknown"), layers, maker=TENSORRT)
    (found,) = rank_findings(bare)
    assert "names-only" == found.rule
    assert "--profilingVerbosity=detailed" in found.fix
    assert [] == of(chain(2), "names-only")
