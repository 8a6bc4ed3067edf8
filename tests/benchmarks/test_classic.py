"""What it takes to predict the layers of a large graph."""

from __future__ import annotations

import statistics
import time

import onnx

from rtlab import backends
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.samples.architectures import inception_chain


def test_the_passes_over_five_thousand_nodes(benchmark, care) -> None:
    """Eight times what ONNX takes to check the same graph and infer its shapes, at most: 0.4 s to 0.09 s were seen."""
    nodes = care.size(5_000, 1_000)
    model = inception_chain(nodes=nodes)
    proto = model.proto()
    request = BuildRequest(model, Variant.of("fp32", target="sm86"))

    def peer() -> None:
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(proto)

    took = []
    for _ in range(care.size(5, 2)):
        began = time.perf_counter()
        peer()
        took.append(time.perf_counter() - began)
    engine = benchmark(lambda: backends.get("classic").build(request, Silent()))
    assert len(engine.layers) < 0.5 * len(model.top)
    benchmark.extra_info["nodes"] = len(model.top)
    benchmark.extra_info["peer_s"] = statistics.median(took)
    benchmark.extra_info["ratio"] = ratio = benchmark.stats.stats.median / statistics.median(took)
    assert ratio < care.most(8.0)
