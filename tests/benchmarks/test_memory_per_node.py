"""What each node of a long chain takes in memory, in the notebook and in the processes that it starts together."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import onnx
import psutil
from onnx import TensorProto, helper

from nets import graph_proto

SMALL, LARGE, MEDIUM = 100, 5000, 2500
#: A whole study of it on the CPU, without a limit of time.
STUDY = """
import math, sys
import rtlab
model = rtlab.load(sys.argv[1])
study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=4))
study.add("fp32", backend="onnxruntime")
study.run(budget_s=math.inf)
assert len(model.nodes) == len(study["fp32"].timing.layers)
"""
#: ONNX Runtime alone: a session, and one inference.
BARE = """
import sys
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {"x": numpy.zeros((1, 8), numpy.float32)})
"""


def chains(count: int, length: int) -> onnx.ModelProto:
    """Pointwise nodes in chains beside each other; each writes 32 bytes."""
    operators = ("Sigmoid", "Tanh", "Softplus", "Erf")
    reads = [(c, i, f"c{c}_{i - 1}" if i else "x") for c in range(count) for i in range(length)]
    nodes = [
        helper.make_node(operators[(c + i) % 4], [read], [f"c{c}_{i}"], name=f"/chain{c}/node_{i}")
        for c, i, read in reads
    ]
    outputs = [(f"c{c}_{length - 1}", TensorProto.FLOAT, ["N", 8]) for c in range(count)]
    return graph_proto(nodes, [("x", TensorProto.FLOAT, ["N", 8])], outputs, {})


def peak(script: str, path: Path) -> int:
    """Bytes that a program and its children had at most, all together."""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    most = 0
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            most = max(most, sum(map(_held, [root, *root.children(recursive=True)])))
        time.sleep(0.02)
    assert 0 == process.returncode
    return most


def _held(process: psutil.Process) -> int:
    """Bytes of one, which may have ended meanwhile."""
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def test_a_node_takes_little_more_memory_in_a_study_than_in_a_session(benchmark, care, tmp_path) -> None:
    """20 KB asked beyond what ONNX Runtime itself takes; all of its profile at once was 160."""
    large = care.size(LARGE, MEDIUM)
    paths = {nodes: tmp_path / f"{nodes}.onnx" for nodes in (SMALL, large)}
    for nodes, path in paths.items():
        onnx.save(chains(1, nodes), path)

    def a_node(script: str) -> float:
        less, more = (peak(script, path) for path in paths.values())
        return (more - less) / (large - SMALL)

    bare = a_node(BARE)
    took = benchmark.pedantic(a_node, (STUDY,), rounds=1)
    benchmark.extra_info |= {"bytes": took, "bare_bytes": bare}
    assert took - bare <= 20_000
