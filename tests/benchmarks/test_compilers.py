"""What a model on every release that is here costs above the bare builds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import releases
import rtlab
from benchmarks.test_build import BARE
from rtlab import backends
from rtlab.backends import compilers

here = backends.get("tensorrt-rtx").availability()


@pytest.mark.skipif(not here.ok, reason=here.reason)
@pytest.mark.parametrize("name", ["googlenet", pytest.param("resnet50", marks=pytest.mark.whole)])
def test_a_model_on_every_release_stays_near_the_bare_builds(benchmark, care, tmp_path, name: str) -> None:
    """At most 1.2 times the sum of the bare builders on the same file in the same run, and 1.5 s for each."""
    if len(releases.here()) < 2:
        pytest.skip(releases.missing(releases.QUICK))
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(rtlab.samples.load(name).model.bytes())
    model, known, bare = rtlab.load(path), compilers.known(), []

    def peer() -> None:
        bare.clear()
        for one in known:
            script = BARE.replace("tensorrt_rtx", compilers.BINDING)
            start = [] if one.own else [str(one.path)]
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", f"import sys; sys.path[:0] = {start!r}\n{script}", str(path)],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            bare.append(time.perf_counter() - began)

    def ours() -> None:
        study = rtlab.Study(model)
        study.add("fp32", target="sm86")
        found = study.releases("fp32")
        assert [True] * len(known) == [r.layers is not None for r in found.releases]

    benchmark.pedantic(ours, setup=peer, rounds=care.size(3, 1), warmup_rounds=care.size(1, 0))
    took, bound = benchmark.stats.stats.median, 1.2 * sum(bare) + 1.5 * len(known)
    benchmark.extra_info |= {"bare_s": sum(bare), "bound_s": bound, "compilers": len(known)}
    assert took <= care.most(bound)
