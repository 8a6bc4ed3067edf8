"""Data: what is refused before an hour of calibration, and how samples become batches."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nets import passing
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model, load
from rtlab.core.rows import Rows
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
    """Exporters rename inputs; the message must show both sides."""
    told = refusal(DYNAMIC, image=floats(2, 3, 4))
    assert 'it names "image"' in told
    assert '"x" fp32 N×3×4' in told
    assert 'it names "x", "y".' in refusal(DYNAMIC, x=floats(2, 3, 4), y=floats(2, 3, 4))
    assert "it names nothing." in refusal(DYNAMIC)


def test_a_wrong_shape_shows_both_and_where_samples_go():
    """Channels last is the usual slip."""
    for shape in [(2, 4, 3), (3, 4), (2, 3, 4, 1), (2, 1, 4, 3), (12,)]:
        told = refusal(DYNAMIC, x=floats(*shape))
        assert f"{'×'.join(map(str, shape))}, the input takes 1×3×4" in told
        assert "N×3×4" in told


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_names_its_sample(bad):
    """One NaN makes every scale NaN, and engines built from those return garbage without a word."""
    data = floats(4, 3, 4)
    data[2, 1, 1] = bad

    assert "in sample 2" in refusal(DYNAMIC, x=data)


def test_different_numbers_of_samples_are_refused():
    """Tokens and masks belong together; a missing mask must not shorten the data in silence."""
    said = refusal(TEXT, ids=np.ones((4, 5), np.int64), mask=np.ones((3, 5), np.int64))

    assert '"ids" 4×5, "mask"' in said


def test_a_fixed_batch_cuts_and_leaves_out_the_incomplete_rest():
    """The graph takes two at a time; a third alone cannot run."""
    batches = list(CalibrationData({"x": floats(5, 3)}).batches(FIXED))

    np.testing.assert_array_equal(floats(5, 3)[:4], np.concatenate([b["x"] for b in batches]))
    assert [(2, 3), (2, 3)] == [b["x"].shape for b in batches]


def test_a_dynamic_batch_takes_any_size_and_loses_no_sample():
    """Scales must come from all samples whatever the batch size."""
    data = CalibrationData({"x": floats(5, 3, 4)})

    assert [2, 2, 1] == [len(b["x"]) for b in data.batches(DYNAMIC, 2)]
    assert [5] == [len(b["x"]) for b in data.batches(DYNAMIC, 100)]
    assert [1] * 5 == [len(b["x"]) for b in data.batches(DYNAMIC)]


@pytest.mark.parametrize("net", [DYNAMIC, FIXED, SCALAR, TEXT], ids=["dynamic", "fixed", "scalar", "text"])
def test_random_data_fits_and_repeats(net):
    """The first view of a model needs data of the right kind, and the same data tomorrow."""
    data = CalibrationData.random(net, samples=3, seed=7)
    again = CalibrationData.random(net, samples=3, seed=7)
    data.check(net)

    assert len(data) >= 3
    assert list(data.batches(net))
    for name, array in data.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    assert "random noise, seed 7" == data.source


def test_random_data_says_so_and_keeps_saying_it():
    """What is cut from it is random too; arrays of someone's own are not, whatever they are called."""
    data = CalibrationData.random(DYNAMIC, samples=4)

    assert data.synthetic
    assert data.take(2).synthetic
    assert data.part(0, 2, model=DYNAMIC).synthetic
    assert not CalibrationData(data.arrays, source="random noise, seed 0").synthetic


def sized(*shape: int | str) -> Model:
    """A model that reads one input of this shape."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    return load(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), name="large"
    )


@pytest.mark.parametrize(
    ("shape", "samples"),
    # 4 GiB are 2^30 numbers: of samples of 2^26 numbers 16, of batches of four of them 4; small ones as many as asked.
    [((1, 1 << 26), 16), ((4, 1 << 26), 16), (("N", 1 << 26), 16), ((1, 1 << 20), 64), ((1, 1 << 30), 1)],
)
def test_random_samples_that_take_gigabytes_are_fewer_and_none_is_drawn_before_it_is_read(shape, samples):
    data = CalibrationData.random(sized(*shape))
    assert samples == len(data)
    assert 0 == data.arrays["x"].drawn


def test_a_file_comes_back_as_it_was_saved(tmp_path):
    """``rtlab inspect --data`` reads what numpy.savez wrote."""
    np.savez(tmp_path / "d.npz", x=floats(5, 3, 4))
    data = CalibrationData.read(tmp_path / "d.npz")
    data.check(DYNAMIC)

    np.testing.assert_array_equal(floats(5, 3, 4), data.arrays["x"])
    assert "<CalibrationData 5 samples from d.npz: x 5×3×4>" == repr(data)
    np.testing.assert_array_equal(floats(5, 3, 4)[:2], data.take(2).arrays["x"])


def test_a_task_counts_hits_in_percent_or_by_its_own_metric():
    """Accuracy on the task is the number that a user answers for."""
    labels = np.array([0, 1, 1, 0])
    outputs = np.array([[2, 1], [0, 9], [5, 4], [1, 0]], np.float32)
    data = CalibrationData({"x": floats(4, 3, 4)})

    assert 75.0 == Task(data, labels).score(outputs)
    assert 100.0 == Task(data, labels).score(outputs[:2])
    assert 4.0 == Task(data, labels, metric=lambda y, t: len(y) * (t[:1].sum() + 1)).score(outputs)


def test_a_metric_is_given_all_outputs_by_name():
    """A detector's boxes are worth nothing without its scores."""
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
    joined = held.joined()

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


def test_arrays_are_taken_as_they_are():
    """The shortest way to give data: what one has in the notebook."""
    x = floats(5, 3, 4)
    data = CalibrationData({"x": x})

    assert data is CalibrationData.of(data)
    for given_ in (x, {"x": x}):
        made = CalibrationData.of(given_, model=DYNAMIC)
        made.check(DYNAMIC)
        assert made.arrays["x"] is x, "nothing is copied"
        assert 5 == made.count == len(made)


def test_tensors_of_other_packages_are_arrays():
    """A tensor on a GPU has no NumPy array until it is detached and on the host."""

    class Tensor:
        def __init__(self, steps: int) -> None:
            self.steps = steps

        def detach(self) -> Tensor:
            return Tensor(self.steps + 1)

        def cpu(self) -> Tensor:
            return Tensor(self.steps + 1)

        def __array__(self, dtype=None, copy=None):
            if self.steps < 2:
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
            return floats(5, 3, 4)

    for source in (Tensor(0), {"x": Tensor(0)}):
        np.testing.assert_array_equal(floats(5, 3, 4), CalibrationData.of(source, model=DYNAMIC).arrays["x"])


def test_one_array_needs_a_model_with_one_input():
    """Which input it is for must not be guessed."""
    with pytest.raises(CalibrationError, match="no model says which"):
        CalibrationData.of(floats(5, 3, 4))
    with pytest.raises(CalibrationError, match='inputs are "ids", "mask"'):
        CalibrationData.of(np.zeros((2, 5), np.int64), model=TEXT)


def test_a_file_of_one_array_is_not_loaded_as_a_whole(tmp_path):
    """A calibration set larger than memory is read batch by batch."""
    np.save(tmp_path / "d.npy", floats(50, 3, 4))
    data = CalibrationData.of(tmp_path / "d.npy", model=DYNAMIC)
    data.check(DYNAMIC)

    assert isinstance(data.arrays["x"], Rows)
    assert "<CalibrationData 50 samples from d.npy: x 50×3×4>" == repr(data)
    np.testing.assert_array_equal(
        floats(50, 3, 4), np.concatenate([b["x"] for b in data.batches(DYNAMIC, 7)])
    )
    part = pickle.dumps(data.part(0, 10))
    assert len(part) < 1500, "a share carries its own samples and no others"


def test_a_file_that_is_read_piece_by_piece_is_the_array_that_it_holds(tmp_path):
    """Whatever NumPy can do with the array, it can do with the file."""
    held = floats(9, 3, 4)
    np.save(tmp_path / "d.npy", held)
    rows = CalibrationData.of(tmp_path / "d.npy", model=DYNAMIC).arrays["x"]
    assert (held.shape, held.ndim, held.dtype, len(held)) == (rows.shape, rows.ndim, rows.dtype, len(rows))
    for key in (
        0,
        -1,
        np.int64(4),
        slice(2, 5),
        slice(None, None, 3),
        slice(7, 99),
        slice(5, 2),
        [3, 1],
        (1, 2),
    ):
        np.testing.assert_array_equal(held[key], rows[key])
    np.testing.assert_array_equal(held[3:6][1:], rows.part(3, 6)[1:])
    np.testing.assert_array_equal(held * 2, rows * 2)
    assert held.mean() == rows.mean()
    assert np.float64 == np.asarray(rows, np.float64).dtype
    with pytest.raises(IndexError):
        rows[9]


def test_a_value_that_is_no_number_is_found_beyond_the_first_piece():
    """Large arrays are looked at piece by piece; the number of the sample must not start anew."""
    large = np.zeros((20, 512, 512), np.float32)
    large[18, 511, 0] = np.inf

    assert "infinity in sample 18." in refusal(passing(x=(FLOAT, ["N", 512, 512])), x=large)


@given(st.integers(1, 40), st.integers(1, 7))
def test_parts_are_all_samples_once(samples, count):
    """Workers that calibrate a part each must together have seen what one would have."""
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
    """Calibration that was stopped goes on with the next sample."""
    array = floats(samples, 3, 4)
    batches = [b["x"] for b in CalibrationData({"x": array}).batches(DYNAMIC, size, skip=skip)]

    np.testing.assert_array_equal(array[skip:], np.concatenate([array[:0], *batches]))


def test_skipping_counts_samples_in_fixed_batches_too():
    """The count is that of ``samples_in``, whatever the graph fixes."""
    for data in (CalibrationData({"x": floats(8, 3)}), CalibrationData({"x": floats(8, 2, 3)})):
        first, *rest = data.batches(FIXED)
        again = list(data.batches(FIXED, skip=data.samples_in(FIXED, first)))
        np.testing.assert_array_equal([b["x"] for b in rest], [b["x"] for b in again])


def test_whole_inputs_must_have_the_batch_that_the_graph_fixes():
    """An array with a dimension more holds a whole input per sample."""
    CalibrationData({"x": floats(5, 2, 3)}).check(FIXED)

    assert "the input takes 2×3" in refusal(FIXED, x=floats(5, 4, 3))


def test_lists_are_arrays_too():
    """In a notebook one types a list."""
    data = CalibrationData({"ids": [[1, 2, 3, 4, 5]], "mask": [[1, 1, 1, 1, 0]]})
    data.check(TEXT)

    assert 1 == len(data)


def test_fewer_samples_than_a_batch_are_refused():
    """Nothing would run, and nothing would be said."""
    with pytest.raises(CalibrationError) as caught:
        list(CalibrationData({"x": floats(1, 3)}).batches(FIXED))
    assert (
        'Cannot cut arrays into batches for model "net": 1 samples are fewer than one batch of 2. '
        "Give at least 2 samples."
    ) == str(caught.value)


def test_a_scalar_beside_a_batch_gets_one_value_per_sample():
    """A threshold or a timestep is an input without a batch dimension."""
    data = CalibrationData({"x": floats(3, 2), "scale": floats(3)})
    data.check(SCALAR)

    assert [([[0, 1]], 0), ([[2, 3]], 1), ([[4, 5]], 2)] == [
        (b["x"].tolist(), b["scale"].tolist()) for b in data.batches(SCALAR)
    ]


def test_a_model_without_inputs_has_one_batch():
    """A graph of constants runs, once."""
    constant = helper.make_node("Constant", [], ["y"], value_float=1.0)
    graph = helper.make_graph([constant], "net", [], [helper.make_tensor_value_info("y", FLOAT, [])])
    net = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))

    assert [{}] == list(CalibrationData({}).batches(net))


def test_random_data_rounds_up_to_whole_batches():
    """Asking for three samples of a graph that takes two at a time gives four, not two."""
    assert (4, 3) == CalibrationData.random(FIXED, samples=3).arrays["x"].shape


def test_an_archive_is_read_by_either_way(tmp_path):
    """``of`` is the one word for everything that holds samples."""
    np.savez(tmp_path / "d.npz", x=floats(5, 3, 4))

    np.testing.assert_array_equal(floats(5, 3, 4), CalibrationData.of(str(tmp_path / "d.npz")).arrays["x"])
