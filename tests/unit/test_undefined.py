"""An fp32 that gives NaN is no reference: the first node that writes it is named, and nothing is called equal."""

import numpy as np
import onnx
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.cli import main

pytestmark = pytest.mark.slow


def masked() -> rtlab.Model:
    """1 - x where x is 1, times minus infinity: 0 times infinity has no value."""
    nodes = [
        helper.make_node("Sub", ["one", "x"], ["hidden"], name="hide"),
        helper.make_node("Mul", ["hidden", "low"], ["mask"], name="mask"),
        helper.make_node("Add", ["x", "mask"], ["y"], name="add"),
        helper.make_node("Neg", ["x"], ["fine"], name="fine"),
    ]
    weights = {"one": np.float32(1), "low": np.float32(-np.inf)}
    return graph(nodes, [("x", 1, ("N", 4))], [("y", 1, ("N", 4)), ("fine", 1, ("N", 4))], weights)


def test_the_first_node_that_writes_nan_is_named_in_every_precision(tmp_path, capsys) -> None:
    data = {"x": np.tile(np.array([1, 1, 0, 1], np.float32), (8, 1))}
    study = rtlab.Study(masked(), data=data)
    for precision in ("fp32", "fp16"):
        study.add(precision, precision=precision, backend="onnxruntime", target="cpu")
    study.run()
    for precision in ("fp32", "fp16"):
        (found,) = study.accuracy.diagnose(precision).findings
        assert (("mask",), "mask") == (found.nodes, found.value)
        assert found.evidence.startswith("24 of 32 elements")
        assert "numbers" in study.accuracy.check(precision).broken
    model, samples = tmp_path / "m.onnx", tmp_path / "d.npz"
    onnx.save(onnx.load_from_string(study.model.bytes()), model)
    np.savez(samples, **data)
    assert 0 == main(["inspect", str(model), "--data", str(samples), "--backend", "onnxruntime"])
    assert '24 of 32 elements of "y" are NaN in fp32 itself' in capsys.readouterr().out.splitlines()[0]
