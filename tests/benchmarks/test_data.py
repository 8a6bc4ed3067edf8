"""What pruning and reading a stream cost, beside Polygraphy's pruner and beside the bare loop."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper
from polygraphy.tools.sparse import SparsityPruner

from nets import graph
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.quantize.sparsity import prune, select_prunable_weights


def net(node: str, shape: list[int | str], *weights: np.ndarray) -> Model:
    made = helper.make_node(node, ["x", "w"][: 1 + len(weights)], ["y"], "n")
    ends = ("x", TensorProto.FLOAT, shape), ("y", TensorProto.FLOAT, [None] * len(shape))
    return graph([made], [ends[0]], [ends[1]], dict(zip("w", weights, strict=False)))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def test_pruning_takes_a_fraction_of_polygraphys_time(benchmark, care) -> None:
    """A network has millions of weights, and one looks at accuracy before and after in a notebook."""
    weight = np.random.default_rng(0).standard_normal((512, care.size(512, 128))).astype(np.float32)
    model = net("MatMul", ["N", 512], weight)
    with np.errstate(over="ignore"):  # it marks what it has seen by the largest float64
        theirs = seconds(lambda: SparsityPruner(model.proto()).prune())
    benchmark.extra_info["polygraphy_seconds"] = theirs
    benchmark(lambda: prune(model, select_prunable_weights(model, ["*"])))

    assert theirs > care.least(5) * benchmark.stats.stats.median


def test_a_stream_needs_no_more_memory_for_more_samples(benchmark) -> None:
    """A data set is larger than memory; what is kept are the first samples."""
    model = net("Identity", ["N", 64, 64])

    def peak(batches: int) -> int:
        source = (np.full((8, 64, 64), i, np.float32) for i in range(batches))
        data = CalibrationData.of(source, model=model)
        tracemalloc.start()
        for _ in data.batches(model, 16):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 8 * batches == data.count
        return most

    few = peak(32)
    many = benchmark.pedantic(peak, (512,), rounds=1)
    benchmark.extra_info["bytes"] = {"256 samples": few, "4096 samples": many}

    assert many < 1.1 * few
