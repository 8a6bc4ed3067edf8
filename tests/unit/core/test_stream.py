"""Streams: DataLoaders, generators and feed dictionaries, read as they come."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from nets import passing
from rtlab.core.data import CACHED_SAMPLES, CalibrationData, SampleStream
from rtlab.core.model import Model
from rtlab.errors import CalibrationError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
NET = passing(x=(FLOAT, ["N", 2]))
FIXED = passing(x=(FLOAT, [4, 2]))
SHAPES = passing(x=(FLOAT, ["N", 3, "H", "W"]))
TEXT = passing(ids=(INT64, ["N", "S"]), mask=(INT64, ["N", "S"]))
WHOLE = passing(x=(FLOAT, [1, 3]), size=(FLOAT, [2]))


def rows(first: int, count: int) -> np.ndarray:
    """Samples that hold their own number."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], 2, axis=1)


def numbers(data: CalibrationData, net: Model = NET, size: int | None = None) -> list[int]:
    """The numbers of all samples, in the order in which they come."""
    return [int(row[0]) for batch in data.batches(net, size) for row in batch["x"]]


def of(source: object, net: Model = NET) -> CalibrationData:
    return CalibrationData.of(source, model=net)


class Tensor:
    """A tensor as PyTorch's behaves here: on a device, with a gradient, and no NumPy array until asked."""

    def __init__(self, values: np.ndarray, *, detached: bool = False, host: bool = False) -> None:
        self._values, self._detached, self._host = values, detached, host

    def detach(self) -> Tensor:
        return Tensor(self._values, detached=True, host=self._host)

    def cpu(self) -> Tensor:
        return Tensor(self._values, detached=self._detached, host=True)

    def numpy(self) -> np.ndarray:
        if not (self._detached and self._host):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")
        return self._values


class Loader:
    """A DataLoader without PyTorch: sized in batches, iterated anew each time, with labels beside the inputs."""

    def __init__(self, samples: int, batch: int) -> None:
        self.samples, self.batch, self.opened = samples, batch, 0

    def __len__(self) -> int:
        return max(0, -(-self.samples // self.batch))

    def __iter__(self):
        self.opened += 1
        for first in range(0, self.samples, self.batch):
            count = min(self.batch, self.samples - first)
            yield [Tensor(rows(first, count)), Tensor(np.zeros(count))]


def test_a_dataloader_is_read_without_its_package():
    data = of(Loader(10, 4))
    data.check(NET)
    assert data.count is None
    assert 12 == len(data), "three batches of four, until the last is seen"
    assert list(range(10)) == numbers(data)
    assert 10 == data.count == len(data)
    assert list(range(10)) == numbers(data), "it can be read again"


ITEMS = {
    "arrays": lambda: [rows(0, 2), rows(2, 1)],
    "mappings": lambda: [{"x": rows(0, 2)}, {"x": rows(2, 1), "labels": np.zeros(1)}],
    "tuples": lambda: [(rows(0, 2), "label"), (rows(2, 1), None)],
    "nested": lambda: [((rows(0, 2),), np.zeros(2)), ({"x": rows(2, 1)}, np.zeros(1))],
    "tensors": lambda: [Tensor(rows(0, 2)), [Tensor(rows(2, 1))]],
    "single samples": lambda: [(row, i) for i, row in enumerate(rows(0, 3))],
    "a generator": lambda: (rows(i, 1) for i in range(3)),
    "a function": lambda: lambda: (rows(i, 1) for i in range(3)),
    "a tuple": lambda: (rows(0, 2), rows(2, 1)),
}


@pytest.mark.parametrize("make", ITEMS.values(), ids=ITEMS)
@pytest.mark.parametrize("size", [None, 1, 2, 8])
def test_every_way_of_giving_samples_gives_the_same(make, size):
    data = of(make())
    data.check(NET)
    assert isinstance(data, SampleStream)
    assert [0, 1, 2] == numbers(data, size=size)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 7))
def test_batches_have_the_size_and_every_sample_once(counts, size):
    starts = itertools.accumulate(counts, initial=0)
    items = [rows(first, count) for first, count in zip(starts, counts, strict=False)]
    batches = [b["x"] for b in of(items).batches(NET, size)]
    np.testing.assert_array_equal(rows(0, sum(counts)), np.concatenate(batches))
    assert all(size == len(b) for b in batches[:-1])
    whole = sum(counts) // 4 * 4
    if whole:
        assert list(range(whole)) == numbers(of(items), FIXED)


def test_batches_may_differ_in_shape():
    shapes = [(2, 3, 8, 8), (1, 3, 8, 8), (1, 3, 4, 6), (3, 8, 8)]
    data = of([np.zeros(s, np.float32) for s in shapes], SHAPES)
    assert [(3, 3, 8, 8), (1, 3, 4, 6), (1, 3, 8, 8)] == [b["x"].shape for b in data.batches(SHAPES, 4)]


def test_one_symbol_has_one_size_in_all_inputs():
    good = {"ids": np.zeros((1, 7), np.int64), "mask": np.ones((1, 7), np.int64)}
    bad = {"ids": np.zeros((1, 7), np.int64), "mask": np.ones((1, 6), np.int64)}
    data = of([good, good, bad], TEXT)
    data.check(TEXT)
    with pytest.raises(CalibrationError, match=r'sample 2 of .* "mask" has shape 1×6'):
        list(data.batches(TEXT))


def test_inputs_without_a_common_batch_are_whole_inferences():
    feeds = [{"x": np.full((1, 3), i, np.float32), "size": np.ones(2, np.float32)} for i in range(3)]
    data = of(feeds, WHOLE)
    batches = list(data.batches(WHOLE, 8))
    assert [0, 1, 2] == [int(b["x"][0, 0]) for b in batches]
    assert 3 == data.count == sum(data.samples_in(WHOLE, b) for b in batches)
    assert 2 == len(list(data.take(2).batches(WHOLE)))


def test_a_generator_is_read_once_and_its_start_again():
    data = of(rows(i, 1) for i in range(200))
    data.check(NET)
    first = data.take(8)
    assert list(range(8)) == numbers(first)
    assert list(range(200)) == numbers(data)
    assert 200 == data.count
    assert list(range(8)) == numbers(first)
    assert list(range(CACHED_SAMPLES)) == numbers(data.take(150)), "no more were kept"
    assert [0] == [int(b["x"][0, 0]) for b in itertools.islice(data.batches(NET, 1), 1)]
    with pytest.raises(CalibrationError, match="Cannot read generator"):
        numbers(data)


def test_a_buffer_that_is_used_again_does_no_harm():
    buffer = np.zeros((1, 2), np.float32)

    def samples():
        for i in range(5):
            buffer[:] = i
            yield buffer

    batches = list(of(samples).batches(NET, 1))
    assert [0, 1, 2, 3, 4] == [int(b["x"][0, 0]) for b in batches]


@pytest.mark.parametrize("at", [0, 3, 100])
@pytest.mark.parametrize("once", [True, False])
def test_a_source_that_raises_half_way_names_the_sample(at, once):
    def samples():
        for i in range(200):
            if i == at:
                raise OSError("image file is truncated")
            yield rows(i, 1)

    data = of(samples() if once else samples)
    with pytest.raises(CalibrationError, match=f"Cannot read sample {at} of .*OSError: image") as caught:
        numbers(data)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(CalibrationError, match=f"Cannot read sample {at} of"):
        numbers(data)
    if at == 100:
        assert list(range(10)) == numbers(data.take(10)), "what was seen is kept"


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (np.zeros((1, 2)), '"x" is float64'), (rows(0, 1)[:, :1], "shape 1×1, the input takes N×2"),
        (rows(0, 1)[None, None], '"x" has shape 1×1×1×2'), ({"image": rows(0, 1)}, '"image"'),
        ({"x": "text"}, 'it gives "x", the inputs are'), ("text", "it gives 0 arrays, the inputs are"),
        ((), "it gives 0 arrays"), (np.float32([[1, 2], [3, np.nan]]), '"x" has NaN'),
    ],
    ids=["type", "shape", "rank", "name", "no array", "text", "nothing", "nan"],
)  # fmt: skip
def test_an_item_that_does_not_fit_names_its_sample(item, said):
    data = of([rows(0, 3), item])
    data.check(NET)
    with pytest.raises(CalibrationError, match=f"sample {4 if 'NaN' in said else 3} of .*{said}"):
        numbers(data)


def test_positions_stand_for_the_inputs_in_their_order():
    item = (np.zeros((2, 5), np.int64), np.ones((2, 5), np.int64), np.zeros(2))
    (batch,) = of([item], TEXT).batches(TEXT)
    assert {"ids": 0, "mask": 10} == {k: int(v.sum()) for k, v in batch.items()}
    for wrong, said in ((item[:1], "it gives 1 array"), ((item[0], item[1][:1]), '2×5, "mask" 1×5')):
        with pytest.raises(CalibrationError, match=said):
            of([wrong], TEXT).check(TEXT)


def test_a_fixed_batch_is_not_filled_from_two_shapes():
    net = passing(x=(FLOAT, [2, "L"]))
    data = of([np.zeros((count, length), np.float32) for count, length in ((3, 5), (2, 5), (1, 6))], net)
    with pytest.raises(CalibrationError, match="a batch of 2"):
        list(data.batches(net))


def test_what_crosses_to_another_process_is_what_was_kept():
    for data in (of(rows(i, 1) for i in range(200)), of(Loader(200, 1))):
        data.check(NET)
        there = pickle.loads(pickle.dumps(data))
        assert list(range(32)) == numbers(there.take(32))
        assert CACHED_SAMPLES == len(numbers(there.take(2000)))
        with pytest.raises(CalibrationError, match="on after sample 64"):
            numbers(there)
        assert list(range(200)) == numbers(data)
    few = pickle.loads(pickle.dumps(of([rows(0, 3)])))
    assert [0, 1, 2] == numbers(few)
    assert 3 == few.count


COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=60)


@given(COUNTS, st.integers(1, 7), st.integers(1, 40), st.integers(0, 2), st.booleans())
def test_a_pass_that_was_stopped_goes_on(counts, size, taken, ahead, once):
    """Calibration reads ahead and may be stopped anywhere: every sample is used once, even of a generator."""
    starts = itertools.accumulate(counts, initial=0)
    items = [rows(first, count) for first, count in zip(starts, counts, strict=False)]
    data = of(iter(items) if once else items)
    data.check(NET)
    reader = data.batches(NET, size)
    read = [[int(row[0]) for row in batch["x"]] for batch in itertools.islice(reader, taken + ahead)]
    reader.close()
    used = list(itertools.chain.from_iterable(read[:taken]))
    rest = [int(row[0]) for batch in data.batches(NET, size, skip=len(used)) for row in batch["x"]]
    assert list(range(sum(counts))) == used + rest
    assert sum(counts) == data.count


def test_a_pass_over_a_dataloader_opens_it_once():
    """Opening starts worker processes and reads the first batch: checking must not double that."""
    loader = Loader(300, 4)
    data = of(loader)
    data.check(NET)
    numbers(data.take(8))
    assert list(range(300)) == numbers(data)
    assert 1 == loader.opened


def test_samples_are_not_all_held():
    alive = []

    class Watched(np.ndarray):
        def __del__(self) -> None:
            alive.remove(1)

    def samples():
        for i in range(500):
            alive.append(1)
            yield rows(i, 1).view(Watched)

    most = 0
    for _ in of(samples).batches(NET, 4):
        most = max(most, len(alive))
    assert most <= 8


def test_whole_inferences_go_on_as_well():
    feeds = ({"x": np.full((1, 3), i, np.float32), "size": np.ones(2, np.float32)} for i in range(200))
    data = of(feeds, WHOLE)
    seen = [int(b["x"][0, 0]) for b in itertools.islice(data.batches(WHOLE), 100)]
    seen += [int(b["x"][0, 0]) for b in data.batches(WHOLE, skip=99)][1:]
    assert list(range(200)) == seen
