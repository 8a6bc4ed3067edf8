"""Which axis: of labels, of channels, of what a weight writes; and which samples go with which labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab import CalibrationData, Study, Task
from rtlab.analyses.channels import ChannelSums
from rtlab.analyses.diagnosis.causes import QuantizerSite, find_unequal_weights
from rtlab.core.model import Model
from rtlab.core.quantizer import Quantizer
from rtlab.core.task import Predictions
from rtlab.core.variant import Precision
from rtlab.experiments import observation
from rtlab.experiments.diagnosing import _get_weight
from rtlab.experiments.repairing import _split_task
from rtlab.experiments.sweep import _make_batch
from rtlab.formulations.table import create_weighted_node
from rtlab.quantize.input_statistics import make_product_form
from rtlab.quantize.weight_correction import _collect_eight_bit_weights

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(11)
#: By operator: attributes, the shape of the weight, and its axis of output channels; five are written, three read.
WEIGHTS = {
    "Gemm": ("Gemm", {}, (3, 5), 1), "Gemm, transB": ("Gemm", {"transB": 1}, (5, 3), 0),
    "MatMul": ("MatMul", {}, (3, 5), 1), "Conv": ("Conv", {}, (5, 3, 1, 2), 0),
    "ConvTranspose": ("ConvTranspose", {}, (3, 5, 1, 2), 1),
}  # fmt: skip


def single(kind: str, weight: np.ndarray | None = None) -> tuple[Model, np.ndarray, int]:
    op, names, shape, axis = WEIGHTS[kind]
    held = RNG.standard_normal(shape).astype(np.float32) if weight is None else weight
    size = ["N", 3] if len(shape) == 2 else ["N", 3, 4, 4]
    ends = [("y", FLOAT, ["N", 5] if len(shape) == 2 else ["N", 5, None, None])]
    made = helper.make_node(op, ["x", "w"], ["y"], "n", **names)
    model = graph([made], [("x", FLOAT, size)], ends, {"w": held})
    return model, held, axis


@pytest.mark.parametrize("kind", WEIGHTS)
def test_a_diagnosis_looks_at_weights_by_what_they_write(kind: str) -> None:
    model, weight, axis = single(kind)
    found = _get_weight(model, model.by_id["n"], Quantizer("n", "weight", 1, "w"))
    assert found.shape[:2] == (5, 3)
    peaks = np.abs(np.moveaxis(weight, axis, 0)).reshape(5, -1).max(axis=1)
    assert np.abs(found).reshape(5, -1).max(axis=1) == pytest.approx(peaks)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("scaled", ["tensor", "channel"])
def test_small_channels_of_a_weight_are_named_on_the_side_where_they_are_small(kind, scaled) -> None:
    """Output channel 3 is a hundredth: without steps under one scale for all. Negative weights count as large."""
    rows = -RNG.uniform(0.5, 1, (5, 4))
    rows[3] *= 0.01
    columns = -RNG.uniform(0.5, 1, (5, 4))
    columns[:, 2] *= 0.01
    _, names, _, axis = WEIGHTS[kind]
    for written, which, side in ((rows, 3, "output"), (columns, 2, "input")):
        weight, more = (written if axis == 0 else written.T).astype(np.float32), []
        if "Conv" in kind:
            weight, more = weight[..., None, None], [2, 2]
        op = helper.make_node(WEIGHTS[kind][0], ["x", "w"], ["y"], "n", **names)
        ends = [("x", FLOAT, ["N", 4, *more])], [("y", FLOAT, ["N", 5, *more])]
        model = graph([op], *ends, {"w": weight})
        place = Quantizer("n", "weight", 1, "w")
        suspect = QuantizerSite(
            model.by_id["n"], place, Precision.INT8,
            weight=_get_weight(model, model.by_id["n"], place), granularity=scaled,
        )  # type: ignore[arg-type]  # fmt: skip
        found = list(find_unequal_weights(suspect))
        told = side == "input" or scaled == "tensor"
        assert [f.channels for f in found] == ([(which,)] if told else [])
        assert all(side in f.title for f in found)


@pytest.mark.parametrize("kind", ["Gemm", "Gemm, transB", "MatMul", "Conv"])
def test_a_weight_as_rows_is_what_multiplies_rows_of_the_input(kind: str) -> None:
    model, weight, axis = single(kind)
    one = make_product_form(model, model.by_id["n"])
    assert one.to_rows(weight)[0] == pytest.approx(np.moveaxis(weight, axis, 0).reshape(5, -1))
    assert one.from_rows(one.to_rows(weight)) == pytest.approx(weight)
    assert (one.size, one.outputs) == (weight.size // 5, 5)
    found = create_weighted_node(model, model.by_id["n"], (2, 3) if weight.ndim == 2 else (2, 3, 4, 4))
    assert found.weight == pytest.approx(weight)
    # Twice the multiplications: of two rows, or of two pictures with 4 x 3 places each.
    assert found.flops == (2 * 15 * 2 if weight.ndim == 2 else 2 * 30 * 2 * 12)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_weights_in_eight_bits_are_multiplied_by_the_scales_of_their_axis(axis: int | None) -> None:
    values = RNG.integers(-9, 9, (3, 3)).astype(np.int8)
    scale = np.float32([0.5, 2, 4]) if axis is not None else np.float32(0.5)
    names = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], "dq", **names),
        helper.make_node("MatMul", ["x", "w"], ["y"], "n"),
    ]
    held = {"q": values, "s": scale, "z": np.zeros(scale.shape, np.int8)}
    model = graph(nodes, [("x", FLOAT, ["N", 3])], [("y", FLOAT, ["N", 3])], held)
    node = model.by_id["dq"]
    object.__setattr__(node, "origin", "n")
    expected = values * (scale[:, None] if axis == 0 else scale)
    assert _collect_eight_bit_weights(model, ["n"])["n"] == pytest.approx(expected.astype(np.float32))


@pytest.mark.parametrize("axis", [1, -1, 0, None, 5])
def test_errors_of_channels_are_numpys_over_all_other_axes(axis: int | None) -> None:
    x, off, own = (RNG.standard_normal((4, 3, 2)).astype(np.float32) for _ in range(3))
    y = x + 0.1 * off
    y[1, 2, 0], y[0, 0, 0], x[0, 1, 1] = np.inf, 0.0, 0.0
    halves = [ChannelSums.from_batch(x[h], y[h], own[h], axis, 0.5) for h in (slice(0, 1), slice(1, 4))]
    if axis == 0:
        halves = [ChannelSums.from_batch(x, y, own, axis, 0.5)]
    sums = halves[0]
    for other in halves[1:]:
        sums.add(other)
    along = axis if axis in {0, 1, -1} else None
    rows = [a[None] if along is None else np.moveaxis(a, along, 0) for a in (x, y, own)]
    for one, a, b, e in zip(sums.compute_rows(quantized=True), *(r.astype(float) for r in rows), strict=True):
        error = (a - b)[np.isfinite(b)]
        bad = int((~np.isfinite(b)).sum())
        assert one.amax == pytest.approx(np.abs(a).max())
        assert one.saturated == pytest.approx((np.abs(a) > 0.5).mean())
        assert (one.overflowed, one.underflowed) == (bad, int(((b == 0) & (a != 0)).sum()))
        signal = (a[np.isfinite(b)] ** 2).sum()
        assert one.own_sqnr == pytest.approx(10 * np.log10(signal / (e**2).sum()))
        if bad:
            assert (one.rmse, one.sqnr, one.max_abs) == (math.inf, -math.inf, math.inf)
        else:
            assert one.rmse == pytest.approx(np.sqrt((error**2).mean()))
            assert one.sqnr == pytest.approx(10 * np.log10(signal / (error**2).sum()))
            assert one.max_abs == pytest.approx(np.abs(error).max())


@pytest.mark.parametrize(
    ("op", "shapes", "position", "axis"),
    [
        ("MatMul", [(2, 3, 4), (2, 4, 5)], 0, -1), ("MatMul", [(2, 3, 4), (2, 4, 5)], 1, -2), ("Relu", [(2,)], 0, None),
        ("Relu", [(2, 3, 4, 5)], 0, 1), ("Relu", [(2, 3, 4)], 0, -1), ("GlobalAveragePool", [(2, 3, 4)], 0, 1),
    ],
)  # fmt: skip
def test_channels_lie_where_their_reader_takes_them(op, shapes, position, axis) -> None:
    names = "ab"[: len(shapes)]
    made = {"MatMul": (2, 3, 5), "GlobalAveragePool": (2, 3, 1)}.get(op, shapes[0])
    ends = [(n, FLOAT, list(s)) for n, s in zip(names, shapes, strict=True)]
    model = graph([helper.make_node(op, list(names), ["y"], "n")], ends, [("y", FLOAT, list(made))], {})
    assert observation.channel_axis(model.by_id["n"], names[position], model) == axis


@pytest.mark.parametrize("count", [5, 6])
def test_halves_of_a_task_keep_each_samples_label(count: int) -> None:
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    halves = _split_task(Task(CalibrationData({"x": x}, "d"), np.arange(count)), single("MatMul")[0])
    assert [h.data.arrays["x"][:, 0].tolist() for h in halves] == [(3.0 * h.labels).tolist() for h in halves]
    assert sorted(np.concatenate([h.labels for h in halves])) == list(range(count))


def test_a_batch_of_more_samples_than_there_are_has_them_again_in_turn() -> None:
    model, *_ = single("MatMul")
    data = CalibrationData({"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, "d")
    assert _make_batch(data, model, 5)["x"][:, 0].tolist() == [0, 3, 0, 3, 0]


def test_outputs_of_parts_stand_in_the_order_of_their_samples_and_a_copy_is_its_own() -> None:
    first, second = Predictions(), Predictions()
    first.add({"y": np.array([[1.0], [2.0]]), "z": np.ones(3)}, 2)
    second.add({"y": np.array([[3.0]]), "z": np.ones(3)}, 1)
    kept = first.copy()
    first.extend(second)
    assert (first.samples, kept.samples, first.nbytes) == (3, 2, 3 * 8 + 6 * 8)
    assert first.concatenate()["y"].tolist() == [[1], [2], [3]]
    assert [len(p) for p in first.concatenate()["z"]] == [3, 3]
    kept.add({"y": np.array([[9.0]]), "z": np.ones(3)}, 1)
    assert (first.concatenate()["y"].tolist(), kept.concatenate()["y"].tolist()) == (
        [[1], [2], [3]],
        [[1], [2], [9]],
    )


def test_a_score_that_goes_on_counts_each_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven samples five are right; after three, the first two of them were."""
    monkeypatch.setattr("rtlab.study.stages.batch_size", lambda *_: 3)
    model, *_ = single("MatMul", np.eye(3, 5, dtype=np.float32))
    x = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2, 0]]
    data = CalibrationData({"x": x}, "d")
    study = Study(model, data=data, task=Task(data, np.array([0, 1, 0, 0, 1, 2, 1])))
    study.add("v", backend="onnxruntime")
    shares = []
    for _ in range(4):
        study.run(["v"], budget_s=1e-9) if not shares else study.measure("v", budget_s=1e-9)
        score = study["v"].score
        shares.append((score.samples, round(score.value, 4), len(score.tally.amounts)))
    assert shares == [(3, 66.6667, 3), (6, 83.3333, 6), (7, 71.4286, 7), (7, 71.4286, 7)]
