"""Weights in a file of their own, which others may move or cut while the model is open."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from nets import graph_proto
from rtlab import Model, Study, load
from rtlab.core.external_data import ExternalWeight
from rtlab.core.stage import Stage
from rtlab.errors import ModelError
from rtlab.testing import tiny_model


def beside(folder: Path, model: Model) -> Model:
    """The same model, its larger weights in the file ``weights``."""
    path = folder / "model.onnx"
    onnx.save(model.proto(), path, save_as_external_data=True, location="weights", size_threshold=64)
    return load(path)


def test_a_structure_is_taken_where_nobody_needs_the_weights(tmp_path: Path) -> None:
    whole = beside(tmp_path, tiny_model())
    assert not whole.weightless
    assert not load(tmp_path / "model.onnx", weights=False).weightless
    (tmp_path / "weights").unlink()
    with pytest.raises(ModelError, match=r'"weights" is missing'):
        load(tmp_path / "model.onnx")
    bare = load(tmp_path / "model.onnx", weights=False)
    assert bare.weightless
    assert whole.values == bare.values
    assert [n.id for n in whole.nodes] == [n.id for n in bare.nodes]
    for one in (bare, load((tmp_path / "model.onnx").read_bytes(), weights=False)):
        for ask in (one.bytes, lambda model=one: [Study(model).calibration.weights(n.id) for n in model.top]):
            with pytest.raises(ModelError, match=r"weights|external data"):
                ask()


def test_without_weights_a_damaged_model_is_refused_all_the_same(tmp_path: Path) -> None:
    beside(tmp_path, tiny_model())
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    (tmp_path / "weights").write_bytes(b"1234")
    with pytest.raises(ModelError, match="has 4 bytes"):
        load(tmp_path / "model.onnx", weights=False)
    (tmp_path / "weights").unlink()
    for location in ("../weights", "/etc/weights", ""):
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        onnx.save(proto, tmp_path / "moved.onnx")
        with pytest.raises(ModelError, match=r"outside the model's folder|names no file"):
            load(tmp_path / "moved.onnx", weights=False)
    proto.graph.node[0].op_type = "Nonsense"
    onnx.save(proto, tmp_path / "moved.onnx")
    with pytest.raises(ModelError):
        load(tmp_path / "moved.onnx", weights=False)


def gone(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:10])


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def built(precision: str):
    def run(study: Study) -> None:
        study.add(precision, backend="onnxruntime", target="cpu")
        study.run()

    return run


ASKED = {
    "observe": lambda s: s.calibration.observe(),
    "sparse weights": lambda s: s.calibration.sparse_weights(),
    "tune": lambda s: s.tuning.tune(budget_s=0.1),
    "weights": lambda s: s.calibration.weights(s.model.top[0].id),
    "activations": lambda s: s.calibration.activations(s.model.top[0].id),
    "fp32": built("fp32"),
    "fp16": built("fp16"),
    "int8": built("int8"),
    "int4": lambda s: s.calibration.prepare("int4"),
    "pruned": lambda s: s.calibration.prepare("pruned", precision="fp32", sparsity=True),
    "rank": lambda s: s.calibration.rank(["minmax"]),
    "digest": lambda s: s.model.digest,
    "extract": lambda s: s.model.extract([s.model.top[0].id]),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("damage", [gone, cut, folder])
def test_damage_to_the_file_is_told_in_words(tmp_path, asked, damage) -> None:
    study = Study(beside(tmp_path, tiny_model()))
    damage(tmp_path / "weights")
    with pytest.raises(ModelError, match=r"^Cannot (read|serialize) .*Put"):
        ASKED[asked](study)


def other(file: Path) -> None:
    """As long as it was, with other numbers in it."""
    numbers = np.frombuffer(file.read_bytes(), np.float32)
    os.utime(file, ns=(0, 0))
    file.write_bytes((numbers * 2).tobytes())


@pytest.mark.parametrize("asked", ASKED)
def test_numbers_of_a_file_that_was_written_anew_are_not_given(tmp_path, asked) -> None:
    """A training that goes on writes its next weights there: half of a study would be of the old ones."""
    study = Study(beside(tmp_path, tiny_model()))
    other(tmp_path / "weights")
    with pytest.raises(ModelError, match="was written since the"):
        ASKED[asked](study)


KINDS = [k for k in ir.DataType if k.name not in {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}]


@given(kind=st.sampled_from(KINDS), shape=st.lists(st.integers(0, 5), max_size=3), data=st.data())
def test_the_numbers_are_those_of_the_base_class(tmp_path_factory, kind, shape, data) -> None:
    """onnx-ir maps the file and reads it with code of its own: types of four bits too, at any offset."""
    where = tmp_path_factory.mktemp("w")
    size = (int(np.prod(shape, dtype=int)) * kind.bitwidth + 7) // 8
    offset = data.draw(st.integers(0, 9))
    content = data.draw(st.binary(min_size=size, max_size=size))
    (where / "weights").write_bytes(b"\x55" * (offset + 4096 * (offset > 8)) + content + b"tail")
    given_ = ("weights", offset + 4096 * (offset > 8), size, kind)
    made = [
        c(*given_, shape=ir.Shape(shape), name="t", base_dir=where)
        for c in (ExternalWeight, ir.ExternalTensor)
    ]
    assert made[0].tobytes() == content
    mine, base = (np.asarray(t.numpy()) for t in made)
    assert (base.dtype, base.shape, base.tobytes()) == (mine.dtype, mine.shape, mine.tobytes())


def test_weights_of_bodies_and_of_constants_are_found_from_any_folder(tmp_path, monkeypatch) -> None:
    numbers = np.arange(32, dtype=np.float32)

    def graph(name: str, inner: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, [32])
        held = numpy_helper.from_array(numbers, f"{name}.held")
        nodes = [
            helper.make_node("Constant", [], [f"{name}.c"], value=held),
            helper.make_node("Add", [inner, f"{name}.c"], [f"{name}.y"], name=f"{name}.add"),
        ]
        return helper.make_graph(nodes, name, [], [out], [numpy_helper.from_array(numbers, inner)])

    body = [graph("then", "a"), graph("other", "b")]
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=body[0], else_branch=body[1])
    proto = graph_proto([node], [("c", TensorProto.BOOL, [])], [("y", TensorProto.FLOAT, [32])], {})
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0,
        convert_attribute=True,
    )  # fmt: skip
    model = load(tmp_path / "m.onnx")
    monkeypatch.chdir("/")
    held = [t for n in ("then.add", "other.add") for t in model.constants(n).values()]
    assert 4 == len(held)
    for tensor in held:
        np.testing.assert_array_equal(numbers, tensor.numpy())
    gone(tmp_path / "weights")
    for tensor in held:
        if isinstance(tensor, ir.ExternalTensor):
            with pytest.raises(ModelError):
                tensor.numpy()


def test_a_file_that_is_put_back_serves_again(tmp_path) -> None:
    model = beside(tmp_path, tiny_model())
    wanted, file = model.digest, tmp_path / "weights"
    content = file.read_bytes()
    gone(file)
    with pytest.raises(ModelError):
        Study(model).calibration.sparse_weights()
    file.write_bytes(content)
    assert wanted == load(tmp_path / "model.onnx").digest
    # One that was only moved away for a while is the file that it was.
    model = load(tmp_path / "model.onnx")
    file.rename(tmp_path / "away")
    with pytest.raises(ModelError):
        Study(model).calibration.sparse_weights()
    (tmp_path / "away").rename(file)
    assert Study(tiny_model()).calibration.sparse_weights() == Study(model).calibration.sparse_weights()


@pytest.mark.slow
def test_what_was_measured_rests_on_the_weights_that_were_loaded(tmp_path) -> None:
    kept = Study(beside(tmp_path, tiny_model()))
    kept.add("fp32", target="cpu", backend="onnxruntime")
    kept.run(budget_s=0)
    digest = kept.model.digest
    other(tmp_path / "weights")
    kept.measure("fp32")
    assert "done" == kept["fp32"].stages[Stage.TIMED].state
    assert digest == kept.model.digest
    assert kept.model.origin is None
    with pytest.raises(ModelError, match="Load the model again"):
        kept.explore().open_in_netron()
