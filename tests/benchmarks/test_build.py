"""What a build costs above the bare builder, and what an import costs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

import rtlab
from rtlab import backends
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.relation.relate import relate

here = backends.get("tensorrt-rtx").availability()
ROUNDS = 5

#: The builder alone: the same model, target and listing, a logger at WARNING; prints its seconds.
BARE = """
import sys, time, onnx, tensorrt_rtx as trt
started = time.perf_counter()
model = onnx.load(sys.argv[1])
model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
parser = trt.OnnxParser(network, logger)
assert parser.parse(model.SerializeToString())
config = builder.create_builder_config()
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
config.num_compute_capabilities = 1
config.set_compute_capability(trt.ComputeCapability.SM86, 0)
assert builder.build_serialized_network(network, config) is not None
print(time.perf_counter() - started)
"""


@pytest.mark.skipif(not here.ok, reason=here.reason)
@pytest.mark.parametrize("name", ["googlenet", pytest.param("resnet50", marks=pytest.mark.whole)])
def test_load_build_and_mapping_stay_near_the_bare_builder(benchmark, care, tmp_path, name: str) -> None:
    """At most one second plus 1.35 times the bare builder on the same file in the same run."""
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(rtlab.samples.load(name).model.bytes())
    bare: list[float] = []
    variant = Variant.of("fp32", target="sm86")

    def peer() -> None:
        out = subprocess.run(
            [sys.executable, "-c", BARE, str(path)], check=True, capture_output=True, text=True
        )
        bare.append(float(out.stdout))

    def ours() -> None:
        model = rtlab.load(path)
        engine = backends.get("tensorrt-rtx").build(BuildRequest(model, variant), Silent())
        relate(model, model, engine)

    # In turn, so that a drift of the machine's speed meets both.
    benchmark.pedantic(ours, setup=peer, rounds=ROUNDS, warmup_rounds=1)
    took, peers = benchmark.stats.stats.median, statistics.median(bare)
    benchmark.extra_info |= {"bare_s": peers, "bound_s": 1 + 1.35 * peers, "ratio": took / peers}
    assert took <= care.most(1 + 1.35 * peers)


def test_import_costs_less_than_onnx(benchmark, care) -> None:
    """Under 0.4 s asked; measured against importing onnx, which takes about as long, in the same run."""

    def seconds(statement: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - started

    rounds = care.size(ROUNDS, 1)
    empty = min(seconds("pass") for _ in range(rounds))
    onnx = min(seconds("import onnx") for _ in range(rounds)) - empty
    benchmark.pedantic(lambda: seconds("import rtlab"), rounds=rounds, warmup_rounds=1)
    took = benchmark.stats.stats.min - empty
    benchmark.extra_info |= {"seconds": took, "onnx_s": onnx, "ratio": took / onnx}
    assert took <= care.most(onnx)
