"""The samples: graphs, data, cards and shipped engines; ``backends/test_sample_scores.py`` runs them on their tasks."""

from __future__ import annotations

import base64
import importlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rtlab
import shelf
from qdq import repair
from rtlab import samples
from rtlab.errors import ModelError
from rtlab.quantize import findings
from rtlab.samples import NETWORKS
from rtlab.samples.architectures import pictures

ROOT = Path(rtlab.__file__).parents[1]
SHIPPED = ROOT / "sample_models"
TRAITS = ("dynamic_shapes", "control_flow", "hostile_names")
#: Their weights are fitted while they are made.
LARGE = ("googlenet", "resnet50", "mobilenet_v2", "csp_detector", "bert")
EVERY = [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in samples.names()]

load, expose, run = shelf.load, shelf.expose, shelf.run


@pytest.mark.slow
def test_calibration_never_sees_the_held_out_half():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn holds the original data")
    digits = datasets.load_digits()
    order = np.random.default_rng(0).permutation(1797)
    with np.load(SHIPPED / "digits.npz") as file:
        for half, chosen in (("train", order[:898]), ("test", order[898:])):
            np.testing.assert_array_equal(digits.images[chosen], file[f"{half}_images"])
            np.testing.assert_array_equal(digits.target[chosen], file[f"{half}_labels"])
        fit = file["train_images"]
        expected = samples.digits_input(fit, fit)
    np.testing.assert_array_equal(expected, load("digits_inception").calibration.arrays["image"])


@pytest.mark.slow
def test_preprocessing_is_scikit_learns_standardisation_and_onnx_resize():
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is the reference here")
    with np.load(SHIPPED / "digits.npz") as file:
        fit, images = file["train_images"], file["test_images"]
    scaler = preprocessing.StandardScaler().fit(fit.reshape(-1, 64))
    standard = scaler.transform(images.reshape(-1, 64)).reshape(-1, 1, 8, 8).astype(np.float32)
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = np.array([1, 1, 4, 4], np.float32)
    # The reference of onnx 1.19 takes seconds for each.
    enlarged = ReferenceEvaluator(resize).run(None, {"x": standard[:5], "scales": scales})[0]
    np.testing.assert_allclose(enlarged, samples.digits_input(images[:5], fit), atol=1e-4)


def test_outliers_are_rare_large_and_in_one_channel_of_each_tensor():
    sample = load("digits_outlier")
    values = [f"/blocks/{i}/pointwise/Relu_output_0" for i in range(5)]
    found = expose(sample.model, values).run(values, dict(sample.calibration.arrays))
    for value, held in zip(values, found, strict=True):
        largest = held.max(axis=(0, 2, 3))
        outlier = int(largest.argmax())
        assert largest[outlier] > 3 * np.delete(largest, outlier).max(), value
        assert 0 < (held[:, outlier] > 0).mean() < 0.01, value


@pytest.mark.parametrize(("name", "ground"), [("digits_dark", 0.0), ("digits_light", 1.0)])
def test_pictures_of_bytes_are_what_a_file_holds(name, ground):
    """People divide by 255 and standardise nothing; the ground is a third of the pixels, at one end of the range."""
    image = load(name).calibration.arrays["image"]
    assert image.dtype == np.float32
    bytes_ = np.rint(image.astype(np.float64) * 255)
    np.testing.assert_allclose(bytes_ / 255, image, atol=1e-7)
    assert (0.0, 1.0) == (image.min(), image.max())
    assert 0.25 < (image == np.float32(ground)).mean() < 0.35
    other = load("digits_light" if ground == 0 else "digits_dark").calibration.arrays["image"]
    np.testing.assert_allclose(1 - image, other, atol=1e-6)


def test_sentences_come_with_the_mask_of_their_padding():
    sample = load("sentences")
    arrays = {k: a[:100] for k, a in sample.task.data.arrays.items()}
    assert {"input_ids", "attention_mask"} == {*sample.model.inputs} == {*arrays}
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    assert np.int64 == ids.dtype == mask.dtype
    np.testing.assert_array_equal(ids != 0, mask == 1)
    lengths = mask.sum(1)
    assert 6 <= lengths.min() < lengths.max() <= 32
    assert ((np.diff(mask, axis=1) <= 0).all(), 1) == (True, int(ids[:, 0].max()))
    known = {bytes(row) for row in sample.calibration.arrays["input_ids"]}
    assert 0 == sum(bytes(row) in known for row in ids)
    plain, junk = run(sample.model, **arrays), np.where(mask == 0, 5, ids)
    np.testing.assert_allclose(plain, run(sample.model, input_ids=junk, attention_mask=mask), atol=1e-5)
    assert 0.1 < np.abs(plain - run(sample.model, input_ids=junk, attention_mask=np.ones_like(mask))).max()


def test_characters_are_windows_of_a_text_and_labels_are_what_comes_next():
    sample = load("characters")
    ids, labels = sample.task.data.arrays["input_ids"], sample.task.labels
    np.testing.assert_array_equal(ids[:, 1:], labels[:, :-1])
    calibration = sample.calibration.arrays["input_ids"]
    assert ((267, 128), (119, 128), np.int64) == (ids.shape, calibration.shape, ids.dtype)
    text, seen = ("".join(sample.task.vocabulary[i] for i in a.ravel()) for a in (ids, calibration))
    assert text.isascii()
    assert 0.14 < text.count(" ") / len(text) < 0.18
    assert text.count(" the ") > 150
    # No paragraph is in both; shorter ones may be a heading, or a line of code.
    assert not {p for p in text.split("\n") if len(p) > 80} & {*seen.split("\n")}


def test_a_character_depends_on_no_later_one_and_the_score_is_the_perplexity_by_hand():
    """Uniform guesses among 96 characters would be 96; it is below what their frequencies alone allow."""
    sample = load("characters")
    ids, labels = sample.task.data.arrays["input_ids"][:8], sample.task.labels[:8]
    logits = run(sample.model, input_ids=ids)
    other = np.where(np.arange(128) < 50, ids, 7)
    np.testing.assert_allclose(run(sample.model, input_ids=other)[:, :50], logits[:, :50], atol=1e-4)
    odds = np.exp(logits.astype(np.float64))
    chosen = np.take_along_axis(odds, labels[..., None], axis=2)[..., 0] / odds.sum(axis=2)
    expected = np.prod(chosen ** (-1 / chosen.size))
    few = rtlab.Task(sample.task.data.take(8), labels, metric="perplexity")
    assert expected == pytest.approx(few.score(logits), rel=1e-6)
    shares = np.bincount(labels.ravel()) / labels.size
    assert 2 < expected < np.exp(-sum(p * np.log(p) for p in shares if p))


@pytest.mark.parametrize(
    ("name", "op", "steps", "linear"), [("digits_lstm", "LSTM", 8, 0), ("digits_gru", "GRU", 32, 1)]
)
def test_recurrent_samples_read_a_row_a_step(name, op, steps, linear):
    """The recurrence is ONNX's own operator, and what it reads at step t is row t of the picture."""
    sample = load(name)
    node = next(n for n in sample.model.nodes if n.op == op)
    assert (48, linear) == (node.attributes["hidden_size"], node.attributes.get("linear_before_reset", 0))
    rows = node.inputs[0]
    assert sample.model.values[rows].shape == (steps, "N", steps)
    image = sample.task.data.arrays["image"][:3]
    found = expose(sample.model, [rows]).run([rows], {"image": image})[0]
    side = 32 // steps
    expected = image[:, 0].reshape(3, steps, side, steps, side).mean(axis=(2, 4)).transpose(1, 0, 2)
    np.testing.assert_allclose(expected, found, atol=1e-5)


def test_pairs_of_the_trained_int8_network_stand_where_tensorrt_wants_them():
    """It is the good example: inputs quantized, outputs not, the shortcut's side of a sum and not the other."""
    model = load("digits_qat").model
    assert findings.check(model) == ()
    producer = {out: n.op for n in model.nodes for out in n.outputs}
    for node in model.nodes:
        if node.op in {"Conv", "Gemm"}:
            assert ["DequantizeLinear"] * 2 == [producer[v] for v in node.inputs[:2]], node.id
            readers = [n.op for n in model.consumers.get(node.outputs[0], ())]
            assert node.id == "/blocks/1/shortcut/Conv" or "QuantizeLinear" not in readers, node.id
        if node.op == "Add":
            assert ["Conv", "DequantizeLinear"] == sorted(producer[v] for v in node.inputs), node.id
    held = {i.name: numpy_helper.to_array(i) for i in onnx.load_from_string(model.bytes()).graph.initializer}
    for node in (n for n in model.nodes if n.op == "QuantizeLinear"):
        scale, zero = held[node.inputs[1]], held[node.inputs[2]]
        channels = held[node.inputs[0]].shape[:1] if node.inputs[0] in held else ()
        assert (channels, channels, np.int8) == (scale.shape, zero.shape, zero.dtype)
        assert (scale > 0).all()
        assert not zero.any()


def test_misplaced_pairs_are_found_and_repaired():
    model = load("digits_qat_misplaced").model
    assert {"before-activation", "output", "residual", "weight-missing"} <= {
        f.rule for f in findings.check(model)
    }
    # The shortcut that was excluded needs a scale, which only calibration can tell.
    assert ["residual"] == [f.rule for f in findings.check(repair(model))]


def test_every_layer_but_the_stem_is_sparse_two_to_four():
    model = load("digits_sparse24").model
    held = {i.name: numpy_helper.to_array(i) for i in onnx.load_from_string(model.bytes()).graph.initializer}
    weights = {n.id: held[n.inputs[1]] for n in model.nodes if n.op in {"Conv", "Gemm"}}
    assert weights.pop("/stem/conv/Conv").shape == (16, 1, 3, 3)
    assert len(weights) == 8
    for node, weight in weights.items():
        groups = weight.reshape(weight.shape[0], -1, 4, *weight.shape[2:])
        assert np.count_nonzero(groups, axis=2).max() == 2, node
        # And no more than that: half of the weights are in use.
        assert np.count_nonzero(weight) > 0.49 * weight.size, node


@pytest.mark.parametrize("name", EVERY)
def test_sample_is_valid_onnx_and_runs(name):
    sample = load(name)
    onnx.checker.check_model(sample.model.bytes(), full_check=True)
    sample.calibration.check(sample.model)
    batch = next(sample.calibration.batches(sample.model, 2))
    found = run(sample.model, **batch)
    assert len(found) == 2
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", EVERY)
def test_a_card_tells_what_loading_gives_and_shows_the_graph(name):
    (card,) = [c for c in samples.list() if c.name == name]
    sample, task = load(name), load(name).task
    assert (card.name, card.nodes) == (sample.model.name, len(sample.model.nodes))
    assert (card.measured_on, bool(card.accuracy)) == (len(task.labels) if task else 0, task is not None)
    module, _, function = card.script.rpartition(".")
    assert (SHIPPED / card.script).is_file() or callable(getattr(importlib.import_module(module), function))
    assert ("CC BY 4.0" in card.licence) == (name in NETWORKS)
    paths = [*xml.etree.ElementTree.fromstring(card.thumbnail).iter("path")]
    edges = [p.get("d").count("M") for p in paths if p.get("fill") == "none"]
    nodes, producers = sample.model.top, sample.model.producers
    assert len(nodes) == sum(p.get("d").count("M") for p in paths) - sum(edges)
    assert edges == [sum(v in producers for n in nodes for v in dict.fromkeys(n.inputs))]


def test_cards_are_a_grid_in_a_notebook_and_a_table_as_text():
    cards = samples.list()
    shown, text = cards._repr_html_(), repr(cards).splitlines()
    assert [line.split()[0] for line in text] == [*samples.names()]
    assert all(f">{name}</code>" in shown for name in samples.names())
    few, untrained = samples.SampleCards(cards[:2]), next(c for c in cards if c.name == "googlenet")
    assert [c.name for c in few] == [*samples.names()][:2]
    assert [True, False] == ["<dt>Right</dt>" in c._repr_html_() for c in (few, untrained)]
    (decoder,) = [c for c in cards if c.name == "characters"]
    assert "<dt>Perplexity</dt>" in decoder._repr_html_()
    assert "%" not in decoder.scores


def test_what_there_is_not_is_refused() -> None:
    for ask, given in ((samples.load, "resnet51"), (samples.engine, "../digits"), (samples.engine, "..")):
        with pytest.raises(ModelError):
            ask(given)
    with pytest.raises(ModelError):
        samples.load("googlenet", samples=0)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rtlab/_share/sample_models", "sample_models", ""])
def test_files_are_found_in_a_wheel_and_in_a_checkout_or_named_as_missing(tmp_path, place):
    ignore = shutil.ignore_patterns("_share", "static", "__pycache__")
    shutil.copytree(ROOT / "rtlab", tmp_path / "rtlab", ignore=ignore)
    if place:
        shutil.copytree(SHIPPED, tmp_path / place)
    code = "from rtlab import samples; print(samples.load('digits_inception'))"
    run_in = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(tmp_path)}}
    found = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=False, **run_in
    )
    assert found.stdout.startswith("<Sample digits_inception: 43 nodes, 898 ") == bool(place)
    assert ("ModelError: " in found.stderr) == (not place)


def test_pictures_have_the_spectrum_of_natural_images():
    made = pictures(6, 128)[:, 1]
    power = np.square(np.abs(np.fft.fft2(made - made.mean(axis=(1, 2), keepdims=True)))).mean(axis=0)
    radius = np.hypot(np.fft.fftfreq(128)[:, None], np.fft.fftfreq(128)) * 128
    used = (radius >= 2) & (radius <= 40)
    slope = np.polyfit(np.log(radius[used]), np.log(power[used]) / 2, 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


@pytest.mark.parametrize("make", [samples.inception_chain, samples.transformer_stack])
@pytest.mark.parametrize("nodes", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_chain_has_about_as_many_nodes_as_asked_for_and_runs(make, nodes):
    model = make(nodes=nodes)
    assert len(model.nodes) == pytest.approx(nodes, abs=18)
    assert len({n.name for n in model.nodes}) == len(model.nodes)
    onnx.checker.check_model(model.bytes(), full_check=True)
    name = model.inputs[0]
    data = rtlab.CalibrationData.random(model, samples=3)
    found = run(model, **{name: data.arrays[name]})
    assert np.isfinite(found).all()
    assert 0.2 < found.std() < 5
    assert model.digest == make(nodes=nodes).digest


def test_both_branches_of_the_if_can_be_reached():
    model = load("control_flow").model
    picture = load("control_flow").calibration.arrays["image"][:1]
    limit = expose(model, ["bright"])
    assert {True, False} == {bool(limit.run(["bright"], {"image": s * picture})[0]) for s in (1, -1)}


@pytest.mark.slow
def test_trait_models_are_what_their_script_writes(tmp_path):
    script = str(SHIPPED / "make_traits.py")
    subprocess.run([sys.executable, script, "--out", str(tmp_path)], check=True, capture_output=True)
    assert sorted(f"{n}.onnx" for n in TRAITS) == sorted(p.name for p in tmp_path.iterdir())
    for name in TRAITS:
        expected = onnx.load(tmp_path / f"{name}.onnx").SerializeToString(deterministic=True)
        assert expected == onnx.load(SHIPPED / f"{name}.onnx").SerializeToString(deterministic=True)


#: The shipped builds: precision, steps and converting steps, whole milliseconds, target, device, trtexec's runs.
BUILDS = {
    "mobilenet_v2-rtx3060": ("fp16", 57, 1, 0.232, "sm86", "NVIDIA GeForce RTX 3060 Laptop GPU", 18_488),
    "resnet18-a100-fp16": ("fp16", 36, 2, 0.863, "sm80", "NVIDIA A100 80GB PCIe", 1),
    "resnet18-a100-int8": ("int8", 37, 12, 0.883, "sm80", "NVIDIA A100 80GB PCIe", 1),
    "resnet18-a100-int8-residual": ("int8", 26, 3, 0.546, "sm80", "NVIDIA A100 80GB PCIe", 1),
}
LOG = "digits_sparse24-log"


def test_engines_are_shipped_with_their_notice() -> None:
    notice = (SHIPPED / "engines" / "NOTICE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", notice, flags=re.MULTILINE)
    assert samples.engines() == tuple(sorted(rows)) == tuple(sorted([*BUILDS, LOG]))
    for name in samples.engines():
        files = samples.engine(name)
        assert ["build.log" if name == LOG else "build.json"] == [f.name for f in files]
        # No place of the machine on which it was made.
        assert not re.search(r"(?<![\w.])/(?:tmp|home|root|Users)/|rtlab-", files[0].read_text("utf-8"))


@pytest.mark.parametrize("name", BUILDS)
def test_a_shipped_build_has_the_figures_of_its_engine_and_names_their_source(name: str) -> None:
    precision, layers, converting, whole, target, device, runs = BUILDS[name]
    study = rtlab.read(*samples.engine(name))
    result = study["engine"]
    engine, table = result.engine, result.table()
    assert (layers, converting) == (len(engine.layers), int((table.kind == "Reformat").sum()))
    assert (round(result.timing.shown, 3), runs) == (whole, result.timing.runs)
    assert (target, device, precision) == (str(engine.target), engine.device, result.variant.precision)
    assert 200 == len(study["engine"].facts.profile.total)
    nodes, seen = {"mobilenet_v2": 100, "resnet18": 49}[study.model.name], result.coverage
    # All but Flatten, which is no work.
    assert (nodes - 1, nodes, nodes) == (seen.nodes, seen.all_nodes, len(study.model.top))
    assert any("Apache-2.0" in note and "TensorRT" in note and "on a" in note for note in engine.notes)


@pytest.mark.slow
def test_shipped_builds_are_what_their_script_writes(tmp_path):
    """Packed graphs are compared as they unpack, since releases of xz may pack otherwise."""
    script = str(SHIPPED / "make_engines.py")
    subprocess.run([sys.executable, script, "--out", str(tmp_path)], check=True, capture_output=True)
    for name in BUILDS:
        pair = [json.loads(f.read_bytes()) for f in (*samples.engine(name), tmp_path / name / "build.json")]
        for content in pair:
            for graph in (content.get("source"), content.get("graph")):
                if graph:
                    graph["onnx"] = lzma.decompress(base64.b64decode(graph["onnx"]))
        assert pair[0] == pair[1], name


def test_the_shipped_log_tells_one_region_and_the_layers_that_came_of_it():
    result = rtlab.read(*samples.engine(LOG), model=load("digits_sparse24").model.path)["engine"]
    (attempt,) = result.log.attempts
    assert [(35, 1)] == [(p.before, p.after) for p in attempt.passes if p.before != p.after]
    assert 12 == len(result.engine.layers)
    # 29 nodes of which the flattening is no layer.
    assert (28, 29) == (result.coverage.nodes, result.coverage.all_nodes)


@pytest.mark.slow
def test_means_that_only_rounding_leaves_are_zero_so_that_builds_are_found_with_any_count_of_threads():
    """Behind a projection, which is centred, normalisation has nothing to subtract: the 16 expansions and the last."""
    proto = rtlab.samples.load("mobilenet_v2", samples=1).model.proto()
    held = {v.name: onnx.numpy_helper.to_array(v) for v in proto.graph.initializer}
    norms = [n for n in proto.graph.node if n.op_type == "BatchNormalization"]
    centred = [n.name.split("/")[1:3] for n in norms if not held[n.input[3]].any()]
    assert [*([f"block{i}", "expand"] for i in range(2, 18)), ["last", "norm"]] == centred
    assert 52 == len(norms)
