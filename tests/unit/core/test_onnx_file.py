"""Models written in pieces, whose weights are read as they are written, also beyond what one file holds."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from large_decoders import write_decoder
from rtlab import Model, Study, load, samples
from rtlab.core import files, onnx_file
from rtlab.core.external_data import is_lazy
from rtlab.core.variant import Variant
from rtlab.errors import ModelError, RtlabError
from rtlab.quantize import prepare
from rtlab.quantize.export import export
from rtlab.testing import tiny_model


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    write_decoder(path, layers=1, hidden=64, vocabulary=96)
    return path


def inside(path: Path) -> Model:
    """The same model, with its weights in memory."""
    return load(onnx.load(path), name=path.stem)


def weights(model: Model) -> dict[str, ir.TensorProtocol]:
    return model.outline()[1]


def of_tensor(tensor: onnx.TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", [tensor.name], ["y"], name="n")], "g", [],
        [helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))], [tensor],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def commented() -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.arange(2048, dtype=ml_dtypes.bfloat16), "w")
    tensor.doc_string = "behind the numbers"
    return tensor


TENSORS = {
    "large": numpy_helper.from_array(np.arange(5000, dtype=np.float32), "w"),
    "small": numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"),
    "commented": commented(),
    "in fields": helper.make_tensor("w", TensorProto.FLOAT, [2000], [1.5] * 2000),
    "four bits": helper.make_tensor("w", TensorProto.INT4, [4095], [3] * 4095),
    "text": helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"]),
    "empty": numpy_helper.from_array(np.zeros((0, 4), np.float32), "w"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_the_pieces_are_what_protobuf_writes_for_any_constant(kind) -> None:
    model = load(of_tensor(TENSORS[kind]))
    light, large = model.outline()
    content = model.proto().SerializeToString()
    assert content == b"".join(onnx_file.iter_chunks(light, large)) == model.bytes()
    assert len(content) == onnx_file.count_bytes(light, large)
    assert TENSORS[kind] == model.proto().graph.initializer[0]


@pytest.mark.parametrize("name", ["digits_vit", "control_flow", "digits_lstm"])
def test_the_pieces_are_what_protobuf_writes_for_whole_models(name) -> None:
    model = samples.load(name).model
    assert model.proto().SerializeToString() == model.bytes()
    shapes = repr(sorted(model.shapes.items())).encode()
    assert hashlib.sha256(model.bytes() + shapes).hexdigest() == model.digest


def test_a_model_of_files_has_the_numbers_and_digest_that_onnx_reads(decoder: Path) -> None:
    model = load(decoder)
    proto = load(onnx.load(decoder, load_external_data=False), weights=False).ir
    expected = ir.to_proto(proto)
    onnx.load_external_data_for_model(expected, str(decoder.parent))
    content = expected.SerializeToString()
    assert content == model.bytes() == model.proto().SerializeToString()
    assert hashlib.sha256(content + b"[]").hexdigest() == model.digest


def test_lengths_of_several_groups_of_seven_bits_are_those_of_protobuf() -> None:
    """One, two and three bytes of a length: 127 is the last of one, 16,383 the last of two."""
    for size in (*range(60, 130), *range(16_300, 16_390), 70_000):
        proto = of_tensor(numpy_helper.from_array(np.zeros(size, np.int8), "w"))
        assert proto.SerializeToString() == b"".join(onnx_file.iter_chunks(proto, {}))


def test_what_fits_into_no_file_is_refused_in_words_and_has_a_digest(monkeypatch, decoder: Path) -> None:
    model = load(decoder)
    digest = load(decoder).digest
    monkeypatch.setattr(onnx_file, "MOST_BYTES", 1000)
    with pytest.raises(ModelError, match=r"holds at most 2 GiB\. Take a part of it with model\.extract"):
        model.bytes()
    assert digest == model.digest


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_export_beyond_one_file_has_its_weights_beside_it(
    monkeypatch, tmp_path: Path, decoder: Path, precision: str
) -> None:
    source, variant = load(decoder), Variant.of(precision)
    ready = prepare(source, variant)
    content = ready.model.bytes()
    monkeypatch.setattr(onnx_file, "MOST_BYTES", len(content) - 1)
    exported = export(source, variant, ready, tmp_path / "out.onnx")
    assert exported.files == (tmp_path / "out.onnx", tmp_path / "out.onnx.data")
    assert sorted(tmp_path.iterdir()) == sorted(exported.files)
    assert str(tmp_path / "out.onnx.data") in repr(exported)
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    expected = onnx.load_from_string(content)
    for one, other in zip(expected.graph.initializer, written.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))
    places = [
        {e.key: e.value for e in t.external_data}
        for t in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
        if t.data_location == TensorProto.EXTERNAL
    ]
    assert places
    assert {0} == {int(p["offset"]) % 4096 for p in places}
    # One byte more, and all is in one file.
    monkeypatch.setattr(onnx_file, "MOST_BYTES", len(content))
    whole = export(source, variant, ready, tmp_path / "whole.onnx")
    assert whole.weights is None
    assert content == (tmp_path / "whole.onnx").read_bytes()


def test_a_device_has_no_place_beside_it_for_weights(monkeypatch, decoder: Path) -> None:
    monkeypatch.setattr(onnx_file, "MOST_BYTES", 1000)
    model, variant = load(decoder), Variant.of("fp32")
    with pytest.raises(RtlabError, match="no place for its weights"):
        export(model, variant, prepare(model, variant), "/dev/null")


def test_the_file_with_the_weights_of_the_source_is_never_written_to(decoder: Path) -> None:
    model, before = load(decoder), (decoder.parent / "decoder.onnx.data").read_bytes()
    with pytest.raises(RtlabError, match="the model was read from this file"):
        files.write(decoder.parent / "decoder.onnx.data", b"new", what="it", model=model)
    assert before == (decoder.parent / "decoder.onnx.data").read_bytes()


@pytest.mark.parametrize("precision", ["fp16", "bf16", "tf32"])
def test_weights_in_files_stay_there_and_are_converted_as_they_are_written(
    decoder: Path, precision: str
) -> None:
    """The numbers are those of the model that is in memory, in the typed graph and in its emulation."""
    lazy, eager = (prepare(model, Variant.of(precision)) for model in (load(decoder), inside(decoder)))
    assert lazy.notes == eager.notes
    for mine, other in ((lazy.model, eager.model), (lazy.emulation, eager.emulation)):
        assert weights(mine)
        assert all(map(is_lazy, weights(mine).values()))
        assert not any(map(is_lazy, weights(other).values()))
        for name, tensor in weights(other).items():
            np.testing.assert_array_equal(tensor.numpy(), weights(mine)[name].numpy())
            assert tensor.dtype == weights(mine)[name].dtype
    again = pickle.loads(pickle.dumps(lazy.model))
    assert all(map(is_lazy, weights(again).values()))
    assert lazy.model.digest == again.digest


def test_numbers_beyond_fp16_are_noted_and_cut_the_same_where_weights_lie_in_files(tmp_path: Path) -> None:
    """A mask of -1e9 and one weight of 1e-9, which become a quarter of the largest number and zero."""
    numbers = np.ones((64, 64), np.float32)
    numbers[0, 0], mask = 1e-9, np.full((64, 64), -1e9, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Add", ["h", "mask"], ["y"], name="mask"),
    ]
    info = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(numbers, "w"), numpy_helper.from_array(mask, "mask")]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [64, 64])],
        [info("y", TensorProto.FLOAT, [64, 64])],
        tensors,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w", size_threshold=64)
    ready = prepare(load(path), Variant.of("fp16"))
    assert any("1 of 8,192 constants are too small" in note for note in ready.notes)
    assert any("1 mask beyond 65,504 becomes a quarter" in note for note in ready.notes)
    halves = {t.numpy().flat[0] for t in weights(ready.model).values()}
    assert {np.float16(0), np.float16(-65504 / 4)} == halves


def test_a_part_shares_the_weights_of_files(decoder: Path) -> None:
    model = load(decoder)
    chosen = [n.id for n in model.top if n.id.startswith("layer0/")]
    part, other = (m.extract(chosen) for m in (model, inside(decoder)))
    assert [n.id for n in other.nodes] == [n.id for n in part.nodes]
    assert weights(model).keys() - {"embedding.weight", "head.weight"} == weights(part).keys()
    assert all(t is weights(model)[name] for name, t in weights(part).items())
    until = model.extract_until(["layer0/add1.y"])
    assert ("layer0/add1.y",) == until.outputs
    assert all(t is weights(model)[name] for name, t in weights(until).items())
    assert "head.weight" not in weights(until)


def test_a_copy_in_another_process_reads_the_same_files(decoder: Path) -> None:
    model = load(decoder)
    for one in (model, model.extract([model.top[-1].id])):
        again = pickle.loads(pickle.dumps(one))
        assert one.digest == again.digest
        assert all(map(is_lazy, weights(again).values()))
    assert tiny_model().digest == pickle.loads(pickle.dumps(tiny_model())).digest


def test_weights_that_were_never_given_are_not_looked_for(decoder: Path) -> None:
    model = load(decoder.read_bytes(), weights=False)
    with pytest.raises(ModelError, match=r"was not given\. Load the model from its path"):
        model.bytes()


def test_weights_that_change_under_a_prepared_model_are_not_given(tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    write_decoder(path, layers=1, hidden=64, vocabulary=96)
    ready = prepare(load(path), Variant.of("fp16"))
    file = tmp_path / "decoder.onnx.data"
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(ModelError, match="was written since the model was loaded"):
        ready.model.bytes()


@pytest.mark.slow
def test_a_decoder_runs_from_its_file_in_both_precisions(decoder: Path) -> None:
    study = Study(load(decoder))
    for precision in ("fp32", "fp16"):
        study.add(precision, backend="onnxruntime", target="cpu")
    study.run(budget_s=0)
    study.measure("fp16")
    head = next(v for v in study["fp16"].accuracy.values if v.value == "head.y")
    # FP16 has 11 bits: 66 dB for one rounding, and some less through a layer.
    assert 40 < head.sqnr < 80
