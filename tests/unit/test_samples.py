from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import recorded
import rtlab
import shelf
from rtlab import quantize, samples
from rtlab.core.progress import Silent
from rtlab.core.ranges import Ranges
from rtlab.core.variant import CALIBRATORS, Calibrator, Variant
from rtlab.errors import ModelError
from rtlab.quantize import findings
from rtlab.quantize.calibrators import scales
from rtlab.samples.architectures import pictures
from rtlab.samples.digits import NETWORKS

ROOT = Path(rtlab.__file__).parents[1]
SHIPPED = ROOT / "sample_models"
TRAITS = ("dynamic_shapes", "control_flow", "hostile_names")
DIGITS = tuple(NETWORKS)
#: Percent right that the weaker readers reach at least; the others reach 98.
LEAST = {"digits_mobilenet": 97, "digits_vit": 97, "digits_lstm": 96, "digits_gru": 95}

load = shelf.load


@functools.cache
def again(name: str) -> samples.Sample:
    """The same once more, with few calibration samples."""
    return samples.load(name, samples=3)


def session(data: bytes, level: str = "BASIC") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # Threads that wait for each other would take the processor from the other worker.
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}" if level != "OFF" else "ORT_DISABLE_ALL"
    )
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(model: rtlab.Model, **inputs: np.ndarray) -> np.ndarray:
    return session(model.bytes()).run(None, inputs)[0]


def exposed(model: rtlab.Model, values: list[str]) -> onnxruntime.InferenceSession:
    proto = onnx.load_from_string(model.bytes())
    proto.graph.output.extend(onnx.ValueInfoProto(name=v) for v in values if v not in model.outputs)
    return session(proto.SerializeToString())


def decibel(reference: np.ndarray, found: np.ndarray) -> float:
    error = np.square(reference.astype(np.float64) - found).sum()
    return float(10 * np.log10(np.square(reference.astype(np.float64)).sum() / error))


def observed(model: rtlab.Model, calibration: rtlab.CalibrationData) -> Ranges:
    values = list(quantize.quantizable(model))
    inner = [v for v in values if v not in model.inputs]
    running = exposed(model, inner)
    collector = quantize.Collector(values)
    collector.run(
        calibration.batches(model, 64),
        lambda batch: dict(zip(inner, running.run(inner, dict(batch)), strict=True)),
        Silent(),
    )
    return collector.ranges


def prepared(model: rtlab.Model, calibration: rtlab.CalibrationData, variant: Variant) -> rtlab.Model:
    return quantize.prepare(model, variant, observed(model, calibration)).emulation


# The trained samples


def test_calibration_never_sees_the_held_out_half():
    """Scales fitted to the test pictures would flatter every INT8 number."""
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


def test_preprocessing_is_scikit_learns_standardisation_and_onnx_resize():
    """A user who rebuilds the input from the documentation must get the same numbers."""
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


def test_trained_samples_are_small():
    """They are part of every wheel."""
    sizes = [(SHIPPED / f"{name}.onnx").stat().st_size for name in DIGITS]
    assert max(sizes) < 300_000
    assert sum(sizes) < 1_300_000
    assert (SHIPPED / "digits.npz").stat().st_size < 100_000


def test_trained_sample_shows_what_a_compiler_can_fuse():
    """Normalisation, activation, branches and a residual must be nodes of their own to be seen fused."""
    model = load("digits_inception").model
    expected = {
        "Conv": 12,
        "BatchNormalization": 11,
        "Relu": 12,
        "Concat": 2,
        "Add": 1,
        "MaxPool": 2,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    assert expected == Counter(n.op for n in model.nodes)
    assert model.opset == 17
    assert model.values["image"].shape == ("N", 1, 32, 32)
    for concat in (n for n in model.nodes if n.op == "Concat"):
        kernels = []
        for value in concat.inputs:
            relu = model.producers[value]
            norm = model.producers[relu.inputs[0]]
            conv = model.producers[norm.inputs[0]]
            kernels.append(conv.attributes["kernel_shape"][0])
        assert kernels == [1, 3, 5]
    add = next(n for n in model.nodes if n.op == "Add")
    assert {model.producers[v].op for v in add.inputs} == {"Conv", "MaxPool"}


def test_minmax_loses_more_than_entropy2_on_the_trained_sample():
    """The notebook's lesson: outliers make the widest range the worst scale."""
    sample = load("digits_inception")
    inputs = sample.task.data.arrays
    reference = run(sample.model, **inputs)
    score, quality = {}, {}
    for calibrator in ("minmax", "entropy2"):
        variant = Variant.of("int8", calibrator=calibrator)
        found = run(prepared(sample.model, sample.calibration, variant), **inputs)
        score[calibrator], quality[calibrator] = sample.task.score(found), decibel(reference, found)
    assert score["minmax"] + 0.5 < score["entropy2"]
    assert quality["minmax"] + 6 < quality["entropy2"]
    assert sample.task.score(reference) - 1 < score["entropy2"]


# One lesson each


@pytest.mark.parametrize(("name", "least"), [(n, LEAST.get(n, 98)) for n in DIGITS])
def test_every_trained_sample_reads_unseen_digits(name, least):
    """Accuracy that a precision loses means nothing on a network that cannot read."""
    sample = load(name)
    score = sample.task.score(run(sample.model, **sample.task.data.arrays))
    assert len(sample.task.labels) == 899
    assert least <= score <= 100


def test_outliers_cost_minmax_at_least_five_points_and_a_clipping_calibrator_less_than_one():
    """The sample exists so that the choice of a calibrator visibly matters."""
    sample = load("digits_outlier")
    inputs = sample.task.data.arrays
    reference = sample.task.score(run(sample.model, **inputs))
    lost = {
        calibrator: reference - sample.task.score(run(found, **inputs))
        for calibrator in ("minmax", "entropy2", "percentile")
        for found in [prepared(sample.model, sample.calibration, Variant.of("int8", calibrator=calibrator))]
    }
    assert lost["minmax"] >= 5
    assert lost["entropy2"] < 1
    assert lost["percentile"] < 1


def test_outliers_are_rare_large_and_in_one_channel_of_each_tensor():
    """What the description says of them; were they common, no calibrator could clip them."""
    sample = load("digits_outlier")
    values = [f"/blocks/{i}/pointwise/Relu_output_0" for i in range(5)]
    found = exposed(sample.model, values).run(values, dict(sample.calibration.arrays))
    for value, held in zip(values, found, strict=True):
        largest = held.max(axis=(0, 2, 3))
        outlier = int(largest.argmax())
        assert largest[outlier] > 3 * np.delete(largest, outlier).max(), value
        assert 0 < (held[:, outlier] > 0).mean() < 0.01, value


def test_mobilenet_has_the_parts_of_mobilenet_v2():
    """Depthwise filters, ReLU6 and linear bottlenecks are what quantizes differently there."""
    model = load("digits_mobilenet").model
    convs = [n for n in model.nodes if n.op == "Conv"]
    depthwise = [n for n in convs if n.attributes.get("group", 1) > 1]
    assert len(depthwise) == 5
    for node in depthwise:
        channels = model.values[node.outputs[0]].shape[1]
        assert node.attributes["group"] == channels == model.values[node.inputs[0]].shape[1]
    counts = Counter(n.op for n in model.nodes)
    assert (17, 17, 12, 3) == tuple(counts[op] for op in ("Conv", "BatchNormalization", "Clip", "Add"))
    add = next(n for n in model.nodes if n.op == "Add")
    assert "BatchNormalization" in {model.producers[v].op for v in add.inputs}


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


def test_gated_networks_have_squeeze_and_excitation():
    """The mean over positions, two pointwise convolutions, a sigmoid, and a product with what went in."""
    model = load("digits_dark").model
    gates = [n for n in model.nodes if n.op == "Mul"]
    assert 3 == len(gates)
    for gate in gates:
        sigmoid = next(model.producers[v] for v in gate.inputs if model.producers[v].op == "Sigmoid")
        excite = model.producers[sigmoid.inputs[0]]
        squeeze = model.producers[model.producers[excite.inputs[0]].inputs[0]]
        pool = model.producers[squeeze.inputs[0]]
        assert ["Conv", "Conv", "GlobalAveragePool"] == [excite.op, squeeze.op, pool.op]
        assert pool.inputs[0] in gate.inputs


def test_sentences_come_with_the_mask_of_their_padding():
    """A tokenizer returns both; an attention that read the padding would answer otherwise."""
    sample = load("sentences")
    arrays = sample.task.data.arrays
    assert {"input_ids", "attention_mask"} == {*sample.model.inputs} == {*arrays}
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    assert np.int64 == ids.dtype == mask.dtype
    np.testing.assert_array_equal(ids != 0, mask == 1)
    lengths = mask.sum(1)
    assert 6 <= lengths.min() < lengths.max() <= 32
    assert ((np.diff(mask, axis=1) <= 0).all(), 1) == (True, int(ids[:, 0].max()))
    known = {bytes(row) for row in sample.calibration.arrays["input_ids"]}
    assert 0 == sum(bytes(row) in known for row in ids)
    junk = np.where(mask == 0, 5, ids)
    np.testing.assert_allclose(
        run(sample.model, **arrays), run(sample.model, input_ids=junk, attention_mask=mask), atol=1e-5
    )
    everything = run(sample.model, input_ids=ids, attention_mask=np.ones_like(mask))
    assert sample.task.score(everything) < sample.task.score(run(sample.model, **arrays))


def scores_of_the_readme() -> dict[str, dict[str, float]]:
    """The table of scores: by sample, percent right by variant."""
    lines = (SHIPPED / "README.md").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if line.startswith("| | fp32 |"))
    names = [c.strip().removeprefix("int8 ") for c in head.strip("|").split("|")][1:]
    rows = [[c.strip(" *`") for c in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {
        row[0]: dict(zip(names, map(float, row[1:]), strict=True))
        for row in rows
        if len(row) == len(names) + 1
    }


@pytest.mark.parametrize("name", sorted(scores_of_the_readme()))
def test_the_default_calibrator_is_within_a_point_of_the_best_on_every_trained_sample(name):
    """And the table that says so is what is measured: one picture is 0.11 points, one sentence 0.1."""
    sample, told = load(name), scores_of_the_readme()[name]
    inputs = dict(sample.task.data.arrays)
    ranges = observed(sample.model, sample.calibration)
    found = {"fp32": sample.task.score(run(sample.model, **inputs))}
    for calibrator in CALIBRATORS:
        variant = Variant.of("int8", calibrator=calibrator)
        ready = quantize.prepare(sample.model, variant, ranges).emulation
        found[str(calibrator)] = sample.task.score(run(ready, **inputs))
    assert found["auto"] >= max(found.values()) - 1
    assert {k: told[k] for k in found} == pytest.approx(found, abs=0.35)


def test_the_table_has_every_trained_sample():
    """One that is missing could be ruined by the default, and nobody would know."""
    as_they_are = {"digits_qat", "digits_qat_misplaced"}
    assert {*NETWORKS, "sentences"} - as_they_are == {*scores_of_the_readme()}


def test_vit_has_attention_normalisation_and_gelu_as_an_exporter_writes_them():
    """A compiler finds attention by this pattern, and a person looks for it by these names."""
    model = load("digits_vit").model
    counts = Counter(n.op for n in model.nodes)
    assert (5, 2, 2) == tuple(counts[op] for op in ("LayerNormalization", "Softmax", "Erf"))
    for softmax in (n for n in model.nodes if n.op == "Softmax"):
        assert model.values[softmax.outputs[0]].shape == ("N", 4, 64, 64)
        scores, (context,) = model.producers[softmax.inputs[0]], model.consumers[softmax.outputs[0]]
        assert ("Mul", "MatMul") == (scores.op, context.op)
        assert model.producers[scores.inputs[0]].op == "MatMul"


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
    found = exposed(sample.model, [rows]).run([rows], {"image": image})[0]
    side = 32 // steps
    expected = image[:, 0].reshape(3, steps, side, steps, side).mean(axis=(2, 4)).transpose(1, 0, 2)
    np.testing.assert_allclose(expected, found, atol=1e-5)


@pytest.mark.parametrize("name", ["digits_lstm", "digits_gru"])
def test_recurrent_samples_survive_fp16_and_int8(name):
    """INT8 leaves the recurrence as it is; a preparation that broke it would lose points."""
    sample = load(name)
    inputs = sample.task.data.arrays
    reference = sample.task.score(run(sample.model, **inputs))
    for variant in (Variant.of("fp16"), Variant.of("int8")):
        ready = prepared(sample.model, sample.calibration, variant)
        assert reference == pytest.approx(sample.task.score(run(ready, **inputs)), abs=0.5)


def test_one_node_overflows_fp16_and_everything_else_follows_from_it():
    """A person who looks for the first infinity must find one layer to blame, in fp16 only."""
    sample = load("fp16_overflow")
    inputs = {"image": sample.task.data.arrays["image"][:200]}
    order = [v for n in sample.model.top for v in n.outputs]
    plain = dict(zip(order, exposed(sample.model, order).run(order, inputs), strict=True))
    half = quantize.prepare(sample.model, Variant.of("fp16")).emulation
    found = dict(zip(order, exposed(half, order).run(order, inputs), strict=True))
    guilty = "/contrast/ReduceSum_output_0"
    assert 65504 < plain[guilty].min()
    assert np.isinf(found[guilty]).all()
    before = order[: order.index(guilty)]
    assert before
    assert all(np.isfinite(found[v]).all() for v in before)
    beyond = [v for v in order if np.abs(plain[v]).max() > 65504]
    assert [guilty, "/contrast/Add_output_0"] == beyond  # the addition of 0.001 behind it


def test_overflow_ruins_fp16_and_spares_bf16_and_a_mixture_that_keeps_the_sum_in_fp32():
    """The lesson is the range of a type, and its remedy is a pin."""
    sample = load("fp16_overflow")
    inputs = sample.task.data.arrays
    score = {
        name: sample.task.score(
            run(quantize.prepare(sample.model, Variant.of(precision)).emulation, **inputs)
        )
        for name, precision in {
            "fp32": "fp32",
            "fp16": "fp16",
            "bf16": "bf16",
            "mixed": {"*": "fp16", "/contrast/*": "fp32"},
        }.items()
    }
    assert score["fp16"] < 20
    assert score["fp32"] == pytest.approx(score["bf16"], abs=1)
    assert score["fp32"] == pytest.approx(score["mixed"], abs=0.5)


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


def test_misplaced_pairs_are_found_and_repaired_and_cost_no_accuracy():
    """It is the bad example: what is lost is speed, so nobody notices without the check."""
    sample, good = load("digits_qat_misplaced"), load("digits_qat")
    rules = {f.rule for f in findings.check(sample.model)}
    assert {"before-activation", "output", "residual", "weight-missing"} <= rules
    repaired = findings.repair(sample.model)
    # The shortcut that was excluded needs a scale, which only calibration can tell.
    assert ["residual"] == [f.rule for f in findings.check(repaired)]
    inputs = sample.task.data.arrays
    expected = sample.task.score(run(good.model, **inputs))
    for model in (sample.model, repaired):
        assert expected == pytest.approx(sample.task.score(run(model, **inputs)), abs=1)


def test_every_layer_but_the_stem_is_sparse_two_to_four():
    """One group of four with three weights in it, and TensorRT takes the dense kernel."""
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


# Every sample


@pytest.mark.parametrize("name", samples.names())
def test_sample_is_valid_onnx_and_runs(name):
    """A sample that a checker or a runner refuses would be blamed on the user's installation."""
    sample = load(name)
    onnx.checker.check_model(sample.model.bytes(), full_check=True)
    sample.calibration.check(sample.model)
    batch = next(sample.calibration.batches(sample.model, 2))
    found = run(sample.model, **batch)
    assert len(found) == 2
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", samples.names())
def test_sample_describes_itself(name):
    """Names, titles and descriptions stand in a menu."""
    sample = load(name)
    assert sample.name == name == sample.model.name
    assert sample.title
    assert sample.description.endswith(".")
    assert repr(sample).startswith(f"<Sample {name}: {len(sample.model.nodes)} nodes, ")


@pytest.mark.parametrize("name", samples.names())
def test_number_of_calibration_samples_can_be_chosen(name):
    """A quick look needs few; and the first few are the same however many are asked for."""
    few = again(name).calibration
    assert len(few) == 3
    for key, array in load(name).calibration.arrays.items():
        if name not in TRAITS:
            np.testing.assert_array_equal(array[:3], few.arrays[key])


@pytest.mark.parametrize("name", ["googlenet", "resnet50", "mobilenet_v2", "bert"])
def test_synthetic_weights_are_the_same_every_time(name):
    """Caches and comparisons between sessions hang on the model's digest."""
    assert load(name).model is not again(name).model
    assert load(name).model.digest == again(name).model.digest


def test_a_card_for_every_sample_in_their_order():
    """What the cards say is what loading a sample gives, and the script is there."""
    cards = samples.list()
    assert [c.name for c in cards] == [*samples.names()]
    for card in cards:
        sample = load(card.name)
        assert (card.title, card.nodes) == (sample.title, len(sample.model.nodes))
        assert card.measured_on == (len(sample.task.labels) if sample.task else 0)
        assert bool(card.accuracy) == bool(card.scores) == (sample.task is not None)
        module, _, function = card.script.rpartition(".")
        made = function == "py" or callable(getattr(importlib.import_module(module), function))
        assert made
        assert function != "py" or (SHIPPED / card.script).is_file()
        assert ("CC BY 4.0" in card.licence) == (card.name in NETWORKS)
        assert "Apache-2.0" in card.licence


def test_the_percents_of_cards_are_those_of_the_tables():
    """fp32 and the default everywhere, and beside them what is worse by more than five points: these two."""
    told = {c.name: dict(c.accuracy) for c in samples.list() if c.accuracy}
    for name, row in scores_of_the_readme().items():
        assert told[name].pop("fp32") == row["fp32"]
        assert told[name].pop("int8 auto") == row["auto"]
    worse = {"digits_outlier": {"int8 minmax": 72.19}, "fp16_overflow": {"fp16": 9.12}}
    as_they_are = {"digits_qat": {"as it is": 99.0}, "digits_qat_misplaced": {"as it is": 98.89}}
    assert {k: v for k, v in told.items() if v} == worse | as_they_are


def test_the_picture_of_a_card_has_a_block_for_every_node():
    """And an edge for every value that one node hands to another."""
    for card in samples.list():
        model = load(card.name).model
        drawn = xml.etree.ElementTree.fromstring(card.thumbnail)
        edges = [p.get("d").count("M") for p in drawn.iter("path") if p.get("fill") == "none"]
        blocks = sum(p.get("d").count("M") for p in drawn.iter("path") if p.get("fill") != "none")
        assert blocks == len(model.top), card.name
        assert edges == [sum(v in model.producers for n in model.top for v in dict.fromkeys(n.inputs))]


def test_cards_are_a_grid_in_a_notebook_and_a_table_as_text():
    """Both name every sample; a part of them is cards again, and an untrained sample has no score to show."""
    cards = samples.list()
    shown, text = cards._repr_html_(), repr(cards).splitlines()
    assert [line.split()[0] for line in text] == [*samples.names()]
    assert all(f">{name}</code>" in shown for name in samples.names())
    assert shown.count("<svg") == len(cards)
    few = cards[:2]
    assert isinstance(few, samples.SampleCards)
    assert [c.name for c in few] == [*samples.names()][:2]
    assert "<dt>Right</dt>" in few._repr_html_()
    untrained = next(c for c in cards if c.name == "googlenet")
    assert "<dt>Right</dt>" not in untrained._repr_html_()


def test_unknown_sample_is_refused_with_the_known_names():
    """A typing error should cost one look."""
    with pytest.raises(ModelError) as caught:
        samples.load("resnet51")
    known = ", ".join(f'"{n}"' for n in samples.names())
    expected = f'Cannot load sample "resnet51": no such sample exists. Choose one of {known}.'
    assert expected == str(caught.value)


def test_no_calibration_samples_is_refused():
    """Zero pictures would surface much later as an empty range."""
    with pytest.raises(ModelError, match=r'Cannot load sample "googlenet" with 0 calibration samples\. Ask'):
        samples.load("googlenet", samples=0)


@pytest.mark.parametrize("place", ["rtlab/_share/sample_models", "sample_models"])
def test_files_are_found_in_a_wheel_and_in_a_checkout(tmp_path, place):
    """An installed rtlab has no checkout beside it."""
    ignore = shutil.ignore_patterns("_share", "static", "__pycache__")
    shutil.copytree(ROOT / "rtlab", tmp_path / "rtlab", ignore=ignore)
    shutil.copytree(SHIPPED, tmp_path / place)
    found = child("from rtlab import samples; print(samples.load('digits_inception'))", tmp_path)
    assert found.stdout.startswith("<Sample digits_inception: 43 nodes, 898 calibration samples")


def test_missing_files_are_named(tmp_path):
    """A broken installation should say that it is one."""
    shutil.copytree(
        ROOT / "rtlab", tmp_path / "rtlab", ignore=shutil.ignore_patterns("_share", "static", "__pycache__")
    )
    found = child("from rtlab import samples; samples.load('digits_inception')", tmp_path)
    assert "ModelError: Cannot find the sample models: neither" in found.stderr
    assert "Install rtlab again" in found.stderr


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, text=True, capture_output=True, check=False
    )


# Architectures


@pytest.mark.parametrize(
    ("name", "operators", "parameters"),
    [
        ("googlenet", {"Conv": 57, "Relu": 57, "LRN": 2, "MaxPool": 13, "Concat": 9}, 6_998_552),
        # 25,557,032 as published, and mean and variance of 26,560 normalised channels
        ("resnet50", {"Conv": 53, "BatchNormalization": 53, "Relu": 49, "Add": 16}, 25_557_032 + 53_120),
    ],
)
def test_architecture_has_the_published_operators_and_parameters(name, operators, parameters):
    """A full-size graph is worth looking at only if it is the real one."""
    model = load(name).model
    counts = Counter(n.op for n in model.nodes)
    assert operators == {op: counts[op] for op in operators}
    weights = onnx.load_from_string(model.bytes()).graph.initializer
    assert parameters == sum(int(np.prod(w.dims)) for w in weights)
    assert model.values["image"].shape == ("N", 3, 224, 224)
    last = next(n for n in model.nodes if n.op == "GlobalAveragePool").inputs[0]
    assert model.values[last].shape[1:] == ({"googlenet": 1024, "resnet50": 2048}[name], 7, 7)


@pytest.mark.parametrize("name", ["googlenet", "resnet50"])
def test_activations_stay_standardised_on_pictures_that_weights_were_not_fitted_to(name):
    """Activations that explode or die with depth would make every precision look broken, or none."""
    model = load(name).model
    before = [n.inputs[0] for n in model.nodes if n.op == "Relu" and model.producers[n.inputs[0]].op != "Add"]
    everything = [n.outputs[0] for n in model.nodes]
    found = exposed(model, everything).run(everything, {"image": pictures(7, 224)[4:]})
    held = dict(zip(everything, found, strict=True))
    assert all(np.isfinite(a).all() for a in held.values())
    assert max(float(np.abs(a).max()) for a in held.values()) < 100
    for value in before:
        assert 0.8 < held[value].std() < 1.25, value
        assert 0.1 < held[value].mean() < 0.4, value


@pytest.mark.parametrize("name", ["googlenet", "resnet50"])
def test_synthetic_weights_survive_fp16_and_int8_as_trained_ones_do(name):
    """Random weights usually amplify rounding from layer to layer until nothing is left to compare."""
    model, data = load(name).model, load(name).calibration
    fresh = pictures(18, 224)[16:]
    reference = run(model, image=fresh)
    assert decibel(reference, run(prepared(model, data.take(4), Variant.of("fp16")), image=fresh)) > 45
    minmax = Variant.of("int8", calibrator="minmax")
    assert decibel(reference, run(prepared(model, data.take(4), minmax), image=fresh)) > 20


def test_pictures_have_the_spectrum_of_natural_images():
    """White noise has no large structures, so it would leave deep layers without variation."""
    made = pictures(6, 128)[:, 1]
    power = np.square(np.abs(np.fft.fft2(made - made.mean(axis=(1, 2), keepdims=True)))).mean(axis=0)
    radius = np.hypot(np.fft.fftfreq(128)[:, None], np.fft.fftfreq(128)) * 128
    used = (radius >= 2) & (radius <= 40)
    slope = np.polyfit(np.log(radius[used]), np.log(power[used]) / 2, 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


def test_pictures_are_normalised_photographs_in_range():
    """Calibration must see what a preprocessing pipeline can produce: pixels of 0 to 1, normalised."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    pixels = pictures(4, 64).transpose(0, 2, 3, 1) * deviation + mean
    assert pixels.min() > -1e-6
    assert pixels.max() < 1 + 1e-6
    assert pixels.std(axis=(1, 2)).min() > 0.1


@pytest.mark.parametrize("make", [samples.inception_chain, samples.transformer_stack])
@pytest.mark.parametrize("nodes", [60, 1000, 2500])
def test_chain_has_about_as_many_nodes_as_asked_for_and_runs(make, nodes):
    """Graph tests and benchmarks scale by this number, and compare engines of models that run."""
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


# One trait each


def test_hostile_names_are_kept_as_the_author_wrote_them():
    """The sample exists to show that they survive."""
    model = load("hostile_names").model
    written = [n.name for n in model.nodes]
    assert written[:8] == ["", "", "", "", "conv", "conv.relu", "conv", "conv.relu"]
    for name in ("left|right", "a] [ONNX Layer: b", "line\nbreak\ttab", "unit\x1fseparator\x1e", "__proto__"):
        assert name in written
    assert len({n.id for n in model.nodes}) == len(model.nodes)


def test_both_branches_of_the_if_can_be_reached():
    """A condition that never changes would be folded, and the If with it."""
    model = load("control_flow").model
    picture = load("control_flow").calibration.arrays["image"][:1]
    limit = exposed(model, ["bright"])
    assert {True, False} == {bool(limit.run(["bright"], {"image": s * picture})[0]) for s in (1, -1)}


def test_dynamic_length_is_fixed_by_the_sample_and_free_in_the_file():
    """A sample must build at once, and the file must still need the user's word on its shapes."""
    model = load("dynamic_shapes").model
    assert model.values["tokens"].shape == ("N", "length", 32)
    assert model.input_shape("tokens") == (1, 24, 32)
    with pytest.raises(ModelError, match="is dynamic"):
        rtlab.load(SHIPPED / "dynamic_shapes.onnx").input_shape("tokens")


def test_trait_models_are_what_their_script_writes(tmp_path):
    """A model without the script that made it cannot be changed later."""
    script = str(SHIPPED / "make_traits.py")
    subprocess.run([sys.executable, script, "--out", str(tmp_path)], check=True, capture_output=True)
    assert sorted(f"{n}.onnx" for n in TRAITS) == sorted(p.name for p in tmp_path.iterdir())
    for name in TRAITS:
        expected = onnx.load(tmp_path / f"{name}.onnx").SerializeToString(deterministic=True)
        assert expected == onnx.load(SHIPPED / f"{name}.onnx").SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert", "hostile_names", "digits_inception"])
def test_samples_without_anybodys_data_say_that_it_is_random(name):
    """Only the digits are digits."""
    assert (name != "digits_inception") == again(name).calibration.synthetic


@pytest.mark.parametrize(
    ("name", "doubted"),
    [("digits_outlier", False), ("digits_mobilenet", False), ("digits_dark", True), ("digits_light", True)],
)
def test_thresholds_of_entropy2_are_doubted_where_they_cost_the_output_much_and_nowhere_else(name, doubted):
    """What networks bear that INT8 serves well: 7.7 dB in one value of digits_outlier, the most of them.

    The gated ones lose 8 to 14 dB of their output against minmax or percentile.
    """
    ranges = observed(load(name).model, load(name).calibration)
    found = [s for s in scales(ranges, Calibrator.ENTROPY2).values() if s.doubt]
    assert doubted == bool(found)


#: The folder of each shipped engine among the recordings beside the checkout.
RECORDED = {
    "mobilenet_v2-rtx3060": "fuzzy-mobilenet_v2-rtx3060laptop-fp16",
    "resnet18-a100-fp16": "trex-resnet18-pytorch-a100-fp16",
    "resnet18-a100-int8": "trex-resnet18-pytorch-a100-int8-qat",
    "resnet18-a100-int8-residual": "trex-resnet18-pytorch-a100-int8-qat-residual",
}


def test_engines_from_real_gpus_are_shipped_with_their_notice() -> None:
    notice = (SHIPPED / "engines" / "NOTICE.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([^`]+)` \|", notice, flags=re.MULTILINE)
    assert samples.engines() == tuple(sorted(told)) == tuple(sorted([*RECORDED, "mnist-h100-log"]))
    for name in samples.engines():
        files = samples.engine(name)
        assert files
        assert all(f.is_file() and f.parent.name == name for f in files)
    with pytest.raises(
        ModelError, match=r'^Cannot find engine "../digits": no such .* Choose one of "mnist-'
    ):
        samples.engine("../digits")


@recorded.present
@pytest.mark.parametrize("name", RECORDED)
def test_a_shipped_engine_is_what_its_gpu_wrote(name: str) -> None:
    """Layers and profile to the byte, and the first inferences of those that were timed."""
    there = recorded.files(recorded.FOLDER / RECORDED[name])
    here = SHIPPED / "engines" / name
    assert (here / "layers.json").read_bytes() == there["layers"].read_bytes()
    assert (here / "profile.json").read_bytes() == there["profile"].read_bytes()
    timed = json.loads((here / "times.json").read_text(encoding="utf-8"))
    whole = json.loads(there["times"].read_text(encoding="utf-8"))
    assert timed == whole[:200]
    # And what is shown of it: the median of these, as trtexec takes it.
    shown = rtlab.read(*samples.engine(name))["engine"].timing.shown
    assert statistics.median(t["computeMs"] for t in timed) == pytest.approx(shown, abs=1e-9)


@pytest.mark.skipif(not recorded.REAL, reason="no ../shared/recorded beside the checkout")
def test_the_shipped_log_is_what_its_gpu_wrote() -> None:
    there = recorded.FOLDER.parent / "build-logs" / "sparsity-trt10.16-h100.log"
    assert (SHIPPED / "engines" / "mnist-h100-log" / "build.log").read_bytes() == there.read_bytes()


def test_means_that_only_rounding_leaves_are_zero_so_that_builds_are_found_with_any_count_of_threads():
    """Behind a projection, which is centred, normalisation has nothing to subtract: the 16 expansions and the last."""
    proto = rtlab.samples.load("mobilenet_v2", samples=1).model.proto()
    held = {v.name: onnx.numpy_helper.to_array(v) for v in proto.graph.initializer}
    norms = [n for n in proto.graph.node if n.op_type == "BatchNormalization"]
    centred = [n.name.split("/")[1:3] for n in norms if not held[n.input[3]].any()]
    assert [*([f"block{i}", "expand"] for i in range(2, 18)), ["last", "norm"]] == centred
    assert 52 == len(norms)
