"""The script that an export writes for nodes in other forms: run in a process of its own, on the original file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import rtlab
from net_text import parsed
from nets import graph_proto
from rtlab.core.variant import Rewrite
from rtlab.quantize import rewrites

FORMS = ("fold bn", "pool mean", "drop same")


def saved(path: Path, nodes: list, inputs: list, outputs: list, weights: dict, opset: int = 17) -> Path:
    floats = {n: np.asarray(a, np.float32) for n, a in weights.items()}
    ends = ([(n, onnx.TensorProto.FLOAT, s) for n, s in e] for e in (inputs, outputs))
    path.write_bytes(graph_proto(nodes, *ends, floats, opset).SerializeToString())
    return path


def network(path: Path) -> Path:
    """A convolution with a normalization, one of whose numbers is held by a Constant node, a copy and a global mean."""
    rng = np.random.default_rng(3)
    shapes = {"w": (8, 3, 3, 3), "c": (8,), "g": (8,), "b": (8,), "m": (8,)}
    node, numbers = helper.make_node, rng.uniform(0.5, 2, 8).astype(np.float32)
    variance = numpy_helper.from_array(numbers, "held")
    nodes = [
        node("Constant", [], ["v"], name="variance", value=variance),
        node("Conv", ["x", "w", "c"], ["conved"], name="conv", pads=[1] * 4),
        node("BatchNormalization", ["conved", "g", "b", "m", "v"], ["normal"], name="bn", epsilon=1e-3),
        node("Identity", ["normal"], ["copy"], name="same"),
        node("Relu", ["copy"], ["r"], name="relu"),
        node("GlobalAveragePool", ["r"], ["y"], name="mean"),
    ]
    weights = {n: rng.normal(0, 1, s) for n, s in shapes.items()}
    return saved(path, nodes, [("x", ["N", 3, 12, 10])], [("y", ["N", 8, 1, 1])], weights)


def run(script: Path, *given: object) -> subprocess.CompletedProcess[str]:
    # Isolated: nothing of rtlab is on its path but what is installed, and it may not need it.
    text = script.read_text("utf-8")
    assert "rtlab" not in text
    command = [sys.executable, "-I", str(script), *map(str, given)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def computed(path: Path, x: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def test_the_script_of_an_export_does_what_the_variant_does(tmp_path) -> None:
    path = network(tmp_path / "net.onnx")
    before = path.read_bytes()
    study = rtlab.Study(rtlab.load(path))
    study.add("other", rewrites=FORMS, backend="onnxruntime")
    done = study.export("other", tmp_path / "out.onnx")
    assert done.patch == tmp_path / "out.patch.py"
    ran = run(done.patch, path, tmp_path / "patched.onnx")
    assert 0 == ran.returncode, ran.stderr
    assert "outputs differ by at most" in ran.stdout
    assert before == path.read_bytes(), "a file that was given to read is never written"
    ops = [n.op_type for n in onnx.load(tmp_path / "patched.onnx").graph.node if n.op_type != "Constant"]
    assert ["Conv", "Relu", "AveragePool"] == ops
    assert ops == [n.op for n in rtlab.load(done.model).top if n.op != "Constant"]
    x = np.random.default_rng(1).normal(0, 1, (2, 3, 12, 10)).astype(np.float32)
    for file in (tmp_path / "patched.onnx", done.model):
        np.testing.assert_allclose(computed(path, x)[0], computed(file, x)[0], atol=1e-5)


def test_a_script_on_another_model_says_so_and_writes_nothing(tmp_path) -> None:
    path = network(tmp_path / "net.onnx")
    script = tmp_path / "patch.py"
    script.write_text(rewrites.patch(rtlab.load(path), [Rewrite("fold", "bn")]), "utf-8")
    other = tmp_path / "other.onnx"
    other.write_bytes(rtlab.samples.load("digits_inception").model.bytes())
    ran = run(script, other, tmp_path / "out.onnx")
    assert 1 == ran.returncode
    assert "not the model" in ran.stderr
    assert not (tmp_path / "out.onnx").exists()
    assert 1 == run(script, path, path).returncode


def test_a_script_tells_outputs_that_differ(tmp_path) -> None:
    """Its own comparison: a script that folds with another epsilon than the file has."""
    path = network(tmp_path / "net.onnx")
    text = rewrites.patch(rtlab.load(path), [Rewrite("fold", "bn")])
    script = tmp_path / "patch.py"
    script.write_text(text.replace("+ epsilon)", "+ 7)"), "utf-8")
    assert 1 == run(script, path, tmp_path / "out.onnx").returncode


def siblings(path: Path, opset: int) -> Path:
    """Three convolutions of one value, one of which has no bias; one's result is read before the next is computed."""
    rng = np.random.default_rng(5)
    shapes = {f"w{i}": (w, 3, 1, 1) for i, w in enumerate((4, 2, 3))} | {"b0": (4,), "b2": (3,)}
    nodes = parsed(
        "before: r = Relu(x); one: c0 = Conv(r, w0, b0); between: s = Sigmoid(c0); two: c1 = Conv(r, w1); "
        "three: c2 = Conv(r, w2, b2); all: y = Concat(s, c1, c2, axis=1)"
    )[0]
    weights = {n: rng.normal(0, 1, s) for n, s in shapes.items()}
    ends = [("x", [1, 3, 6, 6])], [("y", [1, 9, 6, 6]), ("c2", [1, 3, 6, 6])]
    return saved(path, nodes, *ends, weights, opset)


@pytest.mark.parametrize("opset", [11, 13])
def test_the_script_merges_siblings_as_the_variant_does(tmp_path, opset: int) -> None:
    path = siblings(tmp_path / "net.onnx", opset)
    study = rtlab.Study(rtlab.load(path))
    study.add("wide", rewrites=["merge one"], backend="onnxruntime")
    done = study.export("wide", tmp_path / "out.onnx")
    assert done.patch is not None
    ran = run(done.patch, path, tmp_path / "patched.onnx")
    assert 0 == ran.returncode, ran.stderr
    patched = onnx.load(tmp_path / "patched.onnx")
    assert ["Relu", "Conv", "Split", "Sigmoid", "Concat"] == [n.op_type for n in patched.graph.node]
    assert {"w0", "w1", "w2"}.isdisjoint(t.name for t in patched.graph.initializer)
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 6, 6)).astype(np.float32)
    for file in (tmp_path / "patched.onnx", done.model):
        for was, now in zip(computed(path, x), computed(file, x), strict=True):
            np.testing.assert_allclose(was, now, atol=1e-5)
