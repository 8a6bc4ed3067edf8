"""Tactics that a builder timed on a real GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rtlab import Study
from rtlab.backends.log.operators import operators
from rtlab.core.model import absent

LOG = Path(os.environ["RTLAB_RECORDED"]) / "build-logs" / "mnist-trt10.16-h100-level5.log"


def test_a_log_without_the_flag_lists_tactics_without_keys() -> None:
    text = LOG.read_text()
    found = operators(text)
    tables = re.split(r"Autotuning op ", text)[1:]
    assert [table.partition(":")[0] for table in tables] == [o.name for o in found]
    rows = [re.findall(r"\(foreignNode\) +\d+, ([\d.]+), .*, (0x\w+),", table) for table in tables]
    assert [len(r) for r in rows] == [len(o.timed) for o in found]
    assert [min(float(t) for t, _ in r) for r in rows] == [o.timed[0].milliseconds for o in found]
    assert {""} == {o.key for o in found}
    assert ("node_conv2d", "node_relu") in {o.nodes for o in found}
    study = Study(absent())
    study.read("theirs", log=LOG)
    pool = next(t for t in study.tactics("theirs") if t.layer == "node_max_pool2d")
    assert all(a.milliseconds <= b.milliseconds for a, b in zip(pool.timed, pool.timed[1:], strict=False))
