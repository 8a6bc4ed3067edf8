"""What each node of a long chain takes in memory, in the notebook and in the processes that it starts together."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

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
session.run(None, {"v0": numpy.zeros((1, 8), numpy.float32)})
"""


def chain(nodes: int, path: Path) -> Path:
    """Pointwise nodes one after the other, each of 32 bytes."""
    operators = ("Sigmoid", "Tanh", "Softplus", "Erf")
    made = [
        helper.make_node(operators[i % 4], [f"v{i}"], [f"v{i + 1}"], name=f"/block{i // 10}/node_{i}")
        for i in range(nodes)
    ]
    ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["N", 8]) for i in (0, nodes)]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


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


@pytest.fixture
def large(care) -> int:
    """Nodes of the longer chain."""
    return care.size(LARGE, MEDIUM)


@pytest.fixture
def chains(tmp_path, large) -> tuple[Path, Path]:
    return chain(SMALL, tmp_path / "small.onnx"), chain(large, tmp_path / "large.onnx")


def test_a_node_takes_little_more_memory_in_a_study_than_in_a_session(benchmark, chains, large) -> None:
    """20 KB asked beyond what ONNX Runtime itself takes; all of its profile at once was 160."""

    def a_node(script: str) -> float:
        less, more = (peak(script, path) for path in chains)
        return (more - less) / (large - SMALL)

    bare = a_node(BARE)
    took = benchmark.pedantic(a_node, (STUDY,), rounds=1)
    benchmark.extra_info |= {"bytes": took, "bare_bytes": bare}
    assert took - bare <= 20_000
