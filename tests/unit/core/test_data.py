"""Data: what is refused before an hour of calibration, how samples become batches, and samples that are drawn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nets import graph, passing
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.task import Predictions, Task
from rtlab.errors import CalibrationError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DYNAMIC = passing(x=(FLOAT, ["N", 3, 4]))
FIXED = passing(x=(FLOAT, [2, 3]))
SCALAR = passing(x=(FLOAT, ["N", 2]), scale=(FLOAT, []))
TEXT = passing(ids=(INT64, ["N", 5]), mask=(INT64, ["N", 5]))


def refusal(net: Model, **arrays: object) -> str:
    with pytest.raises(CalibrationError) as caught:
        CalibrationData(arrays).check(net)
    return str(caught.value)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_wrong_name_lists_what_is_there_and_what_is_wanted():
    told = refusal(DYNAMIC, image=floats(2, 3, 4))
    assert 'it names "image"' in told
    assert '"x" fp32 N×3×4' in told
    assert 'it names "x", "y".' in refusal(DYNAMIC, x=floats(2, 3, 4), y=floats(2, 3, 4))
    assert "it names nothing." in refusal(DYNAMIC)


def test_a_wrong_shape_shows_both_and_where_samples_go():
    for shape in [(2, 4, 3), (3, 4), (2, 3, 4, 1), (2, 1, 4, 3), (12,)]:
        assert f"{'×'.join(map(str, shape))}, the input takes 1×3×4" in refusal(DYNAMIC, x=floats(*shape))
    assert "the input takes 2×3" in refusal(FIXED, x=floats(5, 4, 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_names_its_sample(bad):
    """One NaN makes every scale NaN, and engines built from those return garbage without a word."""
    data = floats(4, 3, 4)
    data[2, 1, 1] = bad
    assert "in sample 2" in refusal(DYNAMIC, x=data)


def test_different_numbers_of_samples_are_refused():
    assert '"ids" 4×5, "mask"' in refusal(TEXT, ids=np.ones((4, 5), np.int64), mask=np.ones((3, 5), np.int64))


@pytest.mark.parametrize("net", [DYNAMIC, FIXED, SCALAR, TEXT], ids=["dynamic", "fixed", "scalar", "text"])
def test_random_data_fits_and_repeats(net):
    data = CalibrationData.random(net, samples=3, seed=7)
    again = CalibrationData.random(net, samples=3, seed=7)
    data.check(net)
    assert len(data) == (4 if net is FIXED else 3)
    assert list(data.batches(net))
    for name, array in data.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    assert "random noise, seed 7" == data.source


def test_random_data_says_so_and_keeps_saying_it():
    data = CalibrationData.random(DYNAMIC, samples=4)
    assert data.synthetic
    assert data.take(2).synthetic
    assert data.part(0, 2, model=DYNAMIC).synthetic
    assert not CalibrationData(data.arrays, source="random noise, seed 0").synthetic


@pytest.mark.parametrize(
    ("shape", "samples"),
    # 2^16 bytes are 2^14 numbers; small ones are as many as asked.
    [((1, 1 << 11), 8), ((4, 1 << 9), 32), (("N", 1 << 11), 8), ((1, 1 << 6), 64), ((1, 1 << 15), 1)],
)
def test_random_samples_that_take_much_memory_are_fewer(monkeypatch, shape, samples):
    monkeypatch.setattr("rtlab.core.random_inputs._MOST", 1 << 16)
    ends = ([(n, FLOAT, shape)] for n in "xy")
    net = graph([helper.make_node("Relu", ["x"], ["y"])], *ends, {})
    assert samples == len(CalibrationData.random(net))


def test_a_file_comes_back_as_it_was_saved(tmp_path):
    np.savez(tmp_path / "d.npz", x=floats(5, 3, 4))
    data = CalibrationData.read(tmp_path / "d.npz")
    data.check(DYNAMIC)
    np.testing.assert_array_equal(floats(5, 3, 4), data.arrays["x"])
    assert "<CalibrationData 5 samples from d.npz: x 5×3×4>" == repr(data)
    np.testing.assert_array_equal(floats(5, 3, 4)[:2], data.take(2).arrays["x"])
    assert CalibrationData.of(data) is data
    np.save(tmp_path / "d.npy", floats(5, 3, 4))
    one = CalibrationData.of(tmp_path / "d.npy", model=DYNAMIC)
    assert "<CalibrationData 5 samples from d.npy: x 5×3×4>" == repr(one)
    np.testing.assert_array_equal(floats(5, 3, 4), one.arrays["x"])
    x = CalibrationData.of(str(tmp_path / "d.npz")).arrays["x"]
    for source in (x, {"x": x}):
        assert CalibrationData.of(source, model=DYNAMIC).arrays["x"] is x, "nothing is copied"


def test_a_task_counts_hits_in_percent_or_by_its_own_metric():
    labels = np.array([0, 1, 1, 0])
    outputs = np.array([[2, 1], [0, 9], [5, 4], [1, 0]], np.float32)
    data = CalibrationData({"x": floats(4, 3, 4)})
    assert 75.0 == Task(data, labels).score(outputs)
    assert 100.0 == Task(data, labels).score(outputs[:2])
    assert 4.0 == Task(data, labels, metric=lambda y, t: len(y) * (t[:1].sum() + 1)).score(outputs)


def test_a_metric_is_given_all_outputs_by_name():
    labels = np.array([0, 1, 1, 0])
    boxes, scores = floats(4, 2), np.array([0, 1, 0, 0], np.float32)
    data = CalibrationData({"x": floats(4, 3, 4)})
    task = Task(data, labels, metric=lambda y, t: float((y["scores"] == t).sum() + len(y["boxes"])))
    assert 3.0 + 4.0 == task.score({"boxes": boxes, "scores": scores})
    assert ("boxes", "scores") == task.wanted(dataclasses.replace(DYNAMIC, outputs=("boxes", "scores")))
    assert ("boxes",) == Task(data, labels).wanted(dataclasses.replace(DYNAMIC, outputs=("boxes", "scores")))


def test_outputs_without_a_row_per_sample_stay_apart():
    """Seven boxes of the first picture, none of the second: joined, nobody could tell whose they are."""
    held = Predictions()
    held.add({"boxes": floats(7, 4), "logits": floats(1, 3), "map": floats(1, 2, 2)}, 1)
    held.add({"boxes": floats(0, 4), "logits": floats(1, 3), "map": floats(1, 4, 4)}, 1)
    joined = held.concatenate()
    assert 2 == held.samples
    assert 4 * (28 + 6 + 4 + 16) == held.nbytes
    assert [(7, 4), (0, 4)] == [b.shape for b in joined["boxes"]]
    assert (2, 3) == joined["logits"].shape
    assert [(1, 2, 2), (1, 4, 4)] == [m.shape for m in joined["map"]]
    task = Task(CalibrationData({"x": floats(2, 3, 4)}), np.zeros(2))
    with pytest.raises(CalibrationError, match='the first output, "boxes"'):
        task.score(joined, held.samples)
    counting = Task(task.data, np.zeros(2), metric=lambda y, t: sum(map(len, y["boxes"])) + len(t))
    assert 9.0 == counting.score(joined, held.samples)


def test_tensors_of_other_packages_are_arrays():

    class Tensor:
        def __init__(self, steps: int) -> None:
            self.steps = steps

        def detach(self) -> Tensor:
            return Tensor(self.steps + 1)

        cpu = detach

        def __array__(self, dtype=None, copy=None):
            if self.steps < 2:
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
            return floats(5, 3, 4)

    for source in (Tensor(0), {"x": Tensor(0)}):
        np.testing.assert_array_equal(floats(5, 3, 4), CalibrationData.of(source, model=DYNAMIC).arrays["x"])


def test_one_array_needs_a_model_with_one_input():
    with pytest.raises(CalibrationError, match="no model says which"):
        CalibrationData.of(floats(5, 3, 4))
    with pytest.raises(CalibrationError, match='inputs are "ids", "mask"'):
        CalibrationData.of(np.zeros((2, 5), np.int64), model=TEXT)


def test_a_value_that_is_no_number_is_found_beyond_the_first_piece():
    large = np.zeros((20, 512, 512), np.float32)
    large[18, 511, 0] = np.inf
    assert "infinity in sample 18." in refusal(passing(x=(FLOAT, ["N", 512, 512])), x=large)


@given(st.integers(1, 40), st.integers(1, 7))
def test_parts_are_all_samples_once(samples, count):
    data = CalibrationData({"x": floats(samples, 3, 4)})
    parts = [data.part(i, count) for i in range(count)]
    np.testing.assert_array_equal(data.arrays["x"], np.concatenate([p.arrays["x"] for p in parts]))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(2, 40), st.integers(1, 7))
def test_no_part_ends_within_a_batch(samples, count):
    """Where the graph fixes the batch, a cut within one would lose its samples in every part."""
    data = CalibrationData({"x": floats(samples, 3)})
    parts = [data.part(i, count, model=FIXED) for i in range(count)]
    batches = [b["x"] for p in parts if len(p) for b in p.batches(FIXED)]
    np.testing.assert_array_equal(
        np.concatenate([b["x"] for b in data.batches(FIXED)]), np.concatenate(batches)
    )


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 40))
def test_skipping_leaves_out_the_first_samples(samples, size, skip):
    array = floats(samples, 3, 4)
    batches = [b["x"] for b in CalibrationData({"x": array}).batches(DYNAMIC, size, skip=skip)]
    np.testing.assert_array_equal(array[skip:], np.concatenate([array[:0], *batches]))


def test_skipping_counts_samples_in_fixed_batches_too():
    for data in (CalibrationData({"x": floats(8, 3)}), CalibrationData({"x": floats(8, 2, 3)})):
        first, *rest = data.batches(FIXED)
        again = list(data.batches(FIXED, skip=data.samples_in(FIXED, first)))
        np.testing.assert_array_equal([b["x"] for b in rest], [b["x"] for b in again])


def test_a_scalar_beside_a_batch_gets_one_value_per_sample():
    data = CalibrationData({"x": floats(3, 2), "scale": floats(3)})
    data.check(SCALAR)
    assert [([[0, 1]], 0), ([[2, 3]], 1), ([[4, 5]], 2)] == [
        (b["x"].tolist(), b["scale"].tolist()) for b in data.batches(SCALAR)
    ]


def test_a_model_without_inputs_has_one_batch():
    constant = helper.make_node("Constant", [], ["y"], value_float=1.0)
    assert [{}] == list(CalibrationData({}).batches(graph([constant], [], [("y", FLOAT, [])], {})))
