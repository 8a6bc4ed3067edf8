"""Engines from files: rtlab.read, Study.read, and everything that a result tells of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import engines
import rtlab
from rtlab import Study
from rtlab.backends.readers.inspector import layers_json
from rtlab.backends.reference import get_runner
from rtlab.documents.commands import ReadDropped
from rtlab.documents.serialization import decode, encode
from rtlab.errors import ModelError, ReadError, VariantError
from rtlab.testing import tiny_model
from rtlab.web.page import chrome
from rtlab.web.page.document import build_variant_document
from rtlab.web.page.graph import engine_view
from shelf import load

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.fixture(scope="module")
def built():
    """A variant that TensorRT-RTX compiled here."""
    study = Study(load("digits_inception").model)
    study.add("int8", target="sm86")
    return study.run(compare=False)


@pytest.fixture
def files(built, tmp_path):
    """What one would carry here from another machine: layers, verbose log, and the model that was built."""
    result = built["int8"]
    (tmp_path / "layers.json").write_text(json.dumps(layers_json(result.engine)), encoding="utf-8")
    (tmp_path / "build.log").write_text(result.engine.log, encoding="utf-8")
    (tmp_path / "prepared.onnx").write_bytes(result.prepared.model.bytes())
    return tmp_path


def test_files_are_told_apart_by_what_is_in_them(files, built) -> None:
    study = rtlab.read(files / "prepared.onnx", files / "build.log", files / "layers.json")
    result = study["engine"]
    assert built["int8"].engine.layers == tuple(result.engine.layers)
    assert "prepared" == study.model.name
    assert result.log is not None


def test_an_engine_of_an_exported_model_belongs_to_the_source(files, built) -> None:
    study = Study(built.model)
    read = study.read("elsewhere", files / "layers.json", model=files / "prepared.onnx")
    here = built["int8"].mapping
    assert {(p.node, p.layer) for p in here.pairs} == {(p.node, p.layer) for p in read.mapping.pairs}


def test_an_engine_without_its_model_is_shown_all_the_same(files, tmp_path) -> None:
    study = rtlab.read(layers=files / "layers.json", name="jetson")
    result = study["jetson"]
    assert 0 == len(study.model.nodes)
    view = decode(encode(engine_view(result.facts, study.model)))
    assert len(result.engine.layers) == sum(b["kind"] == "layer" for b in view["graph"]["boxes"])
    explorer = study.explore()
    assert ["layer"] == list(explorer.state.panes)
    assert all(o["reason"] for o in explorer.controls["precisions"])
    explorer.run().wait()
    assert "ONNX model" in explorer.failure["message"]
    assert study.report(tmp_path / "report.html").stat().st_size > 100_000


def test_a_model_whose_weights_stayed_at_home_is_enough(tmp_path) -> None:
    paths = [engines.MOBILE / n for n in ("engine.graph.json", "model.structure-only.onnx")]
    study = rtlab.read(*paths)
    result = study["engine"]
    # Each node but the two constants of each of 35 Clips, and the flattening, which is a view.
    assert (101, 71) == (len({p.node for p in result.mapping.pairs}), len(result.mapping.missing))
    assert result.roofline("A100").estimated > 0
    assert study.report(tmp_path / "report.html").is_file()
    # What needs a number says which file to bring.
    node = next(n for n in study.model.nodes if n.op == "Conv")
    study.add("fp32", backend="onnxruntime", target="cpu")
    for refused in (lambda: study.calibration.weights(node.id), study.run, lambda: rtlab.load(paths[1])):
        with pytest.raises(ModelError, match=r"model\.weights|data file"):
            refused()
    # From a browser only its bytes come.
    explorer = study.explore()
    asked = ReadDropped([p.name for p in paths]).to_dict()
    explorer._receive(explorer, asked, [p.read_bytes() for p in paths])
    explorer.wait()
    assert explorer.failure is None
    assert result.mapping.pairs == explorer.study[explorer.state.variant].mapping.pairs


@pytest.mark.slow
def test_a_log_of_decisions_replays_on_the_sample(tmp_path) -> None:
    """141 layers, 84 after vertical fusions, 66 after merging; the decisions are told, the layers inferred."""
    study = rtlab.read(log=engines.googlenet_log(tmp_path), model=load("googlenet").model)
    result = study["engine"]
    assert (141, 84, 66) == result.log.attempts[result.log.chosen].counts
    # The log lists no layers; its decisions leave as many as it counts.
    assert 66 == len(result.engine.layers)
    assert any("66" in note for note in result.engine.notes)
    assert ({"inferred"}, 0) == ({p.evidence for p in result.mapping.pairs}, result.coverage.declared)
    # What lists no layers is not exported: it could not be read again.
    with pytest.raises(VariantError):
        rtlab.read(log=tmp_path / "googlenet.log").save_build(
            "engine", tmp_path / "layers.json", kind="layers"
        )


def test_outputs_are_compared_with_what_onnx_runtime_computes(tmp_path) -> None:
    sample = load("digits_inception")
    study = Study(sample.model, data=sample.calibration)
    study.add("fp32", target="cpu")
    study.run(compare=False)
    batch = next(sample.calibration.batches(sample.model, 2))
    ours = study["fp32"]
    out = get_runner("onnxruntime").outputs(ours.measured or ours.engine, batch)
    rows = [
        {
            "name": k,
            "dimensions": "x".join(map(str, v.shape)),
            "values": (v + np.float32(0.01)).ravel().tolist(),
        }
        for k, v in out.items()
    ]
    layers, output, inputs = (tmp_path / n for n in ("layers.json", "output.json", "inputs.npz"))
    output.write_text(json.dumps(rows), encoding="utf-8")
    layers.write_text(json.dumps(layers_json(ours.engine)), encoding="utf-8")
    np.savez(inputs, **batch)
    read = study.read("gpu", layers, output=output, inputs=inputs)
    assert read.accuracy is not None, read.engine.notes
    (error,) = read.accuracy.values
    assert pytest.approx(0.01, rel=1e-2) == error.max_abs


def lines(study: Study) -> str:
    return "\n".join(s["text"] for s in chrome.list_status(study.state, "engine"))


def test_an_engine_of_the_cpu_is_never_called_one_of_a_gpu(tmp_path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = onnxruntime.InferenceSession(tiny_model().bytes(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros((1, 3, 8, 8), np.float32)})
    profile = session.end_profiling()
    for files in ((profile, tmp_path / "optimized.onnx"), (tmp_path / "optimized.onnx",)):
        study = rtlab.read(*files)
        (chip,) = chrome.build_chips(study.state, baseline="")
        assert ("engine", "fp32 · CPU") == (chip["label"], chip["about"])
        assert "GPU" not in json.dumps([chip, lines(study), study._repr_html_()], ensure_ascii=False)


def test_the_document_has_shares_of_one_kind_and_null_for_what_nobody_told() -> None:
    files = engines.files(engines.RESIDUAL)
    study = rtlab.read(**files)
    told = build_variant_document(study["engine"].facts, study.model)
    for rows in (told["summary"]["kinds"], told["summary"]["precisions"], told["timing"]["layers"]):
        assert pytest.approx(1.0) == sum(r["share"] for r in rows)
    assert {"name": None, "opset": None, "nodes": []} == told["model"]
    assert (None, "Invented GPU") == (told["engine"]["seconds"], told["engine"]["device"])
    assert [("image", [8, 3, 32, 32])] == [(t["name"], t["shape"]) for t in told["engine"]["inputs"]]
    assert {"measured"} == {f["origin"] for f in told["findings"]}
    int8 = next(y for y in told["engine"]["layers"] if y["name"].startswith("stem.weight"))
    assert ("int8", "fp32") == (int8["reads"], int8["writes"])
    silent = rtlab.read(files["layers"])
    told = build_variant_document(silent["engine"].facts, silent.model)
    assert {None} == {s["share"] for s in told["summary"]["kinds"]} == {f["origin"] for f in told["findings"]}
    assert told["summary"]["origin"] is None


@engines.each
def test_exported_layers_of_an_engine_come_back_as_they_were(folder, tmp_path) -> None:
    source = folder / "engine.graph.json"
    before = source.read_bytes(), source.stat().st_mtime_ns
    study = rtlab.read(source)
    again = rtlab.read(study.save_build("engine", tmp_path / "layers.json", kind="layers"))
    assert study["engine"].engine.layers == again["engine"].engine.layers
    assert before == (source.read_bytes(), source.stat().st_mtime_ns)
    assert len(study["engine"].engine.layers) == len(again["engine"].table())


def test_a_name_of_thousands_of_brackets_takes_no_time(files) -> None:
    """A damaged file once took a minute and a half: the square of the brackets. The stage's limit would tell."""
    document = json.loads((files / "layers.json").read_text(encoding="utf-8"))
    document["Layers"][0]["Name"] = "PWN(" * 20_000
    document["Layers"][1]["Metadata"] = "[ONNX Layer: " * 20_000
    (files / "damaged.json").write_text(json.dumps(document), encoding="utf-8")
    study = rtlab.read(layers=files / "damaged.json", model=files / "prepared.onnx")
    assert len(document["Layers"]) == len(study["engine"].engine.layers)


def test_no_file_that_is_given_is_passed_over(files, tmp_path) -> None:
    layers, other = files / "layers.json", tmp_path / "other.json"
    device, cache = tmp_path / "device.json", tmp_path / "model.cache"
    other.write_text(layers.read_text(encoding="utf-8"), encoding="utf-8")
    device.write_text(json.dumps({"device_information": {"Name": "A100"}}), encoding="utf-8")
    cache.write_text("TRT-8600-EntropyCalibration2\nimages: 3c010a14\n", encoding="utf-8")
    for given, more, words in (
        ([layers], {"layers": other}, "of the kind"),
        ([layers], {"layers": layers}, "under a name of its own"),
        ([files / "prepared.onnx"], {}, "it is an ONNX model"),
        ([device], {}, "none tells of its layers"),
        ([cache], {}, "describes no engine"),
    ):
        with pytest.raises(ReadError, match=words):
            rtlab.read(*given, **more)


@pytest.mark.parametrize("wrong", [1, ["a.json"], b"a.json"], ids=str)
def test_what_is_no_path_is_refused(wrong) -> None:
    with pytest.raises(ReadError):
        rtlab.read(layers=wrong)


def test_the_device_that_the_log_names_is_the_device_of_the_times() -> None:
    read = rtlab.read(
        layers=engines.files("written-fp16")["layers"], log=CORPUS / "pasted" / "load-engine.log"
    )
    assert "Invented GPU" in read["engine"].engine.place


@pytest.mark.parametrize(
    ("backend", "options"), [("onnxruntime", {"builder_optimization_level": 5}), ("tensorrt-rtx", 5)]
)
def test_options_of_a_builder_are_refused_by_a_backend_that_has_none(backend, options) -> None:
    with pytest.raises(VariantError, match="options"):
        Study(tiny_model()).add("fp32", backend=backend, options=options)
