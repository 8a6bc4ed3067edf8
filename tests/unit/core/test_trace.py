"""Profiles that are measured in several goes."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest

from rtlab.core.trace import Profile
from rtlab.errors import RunError

FIRST = Profile(
    source="ONNX Runtime 1.31.1 CPU, 2 threads", device="this CPU",
    samples={"a": np.array([1.0, 2.0]), "b": np.array([5.0, 6.0])}, total=np.array([7.0, 8.0, 9.0]), warmup=2,
    taken=datetime.datetime(2026, 11, 22, 8, tzinfo=datetime.timezone.utc),
    note="Inferences include copying. An inference took 2.5 ms with the profiler, 2 ms without", runs=2,
)  # fmt: skip
LATER = dataclasses.replace(
    FIRST, samples={"a": np.array([3.0]), "b": np.array([4.0])}, total=np.array([6.0]), warmup=1,
    taken=datetime.datetime(2026, 11, 22, 9, tzinfo=datetime.timezone.utc),
    note="An inference took 2.25 ms with the profiler, 2e-1 ms without", runs=1,
)  # fmt: skip


def test_two_profiles_of_one_engine_are_as_good_as_one_long() -> None:
    found = FIRST.merged(LATER)
    np.testing.assert_array_equal([1.0, 2.0, 3.0], found.samples["a"])
    np.testing.assert_array_equal([5.0, 6.0, 4.0], found.samples["b"])
    np.testing.assert_array_equal([7.0, 8.0, 9.0, 6.0], found.total)
    assert 3 == found.runs
    assert 3 == found.warmup
    assert LATER.taken == found.taken
    assert 2 == FIRST.runs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "ONNX Runtime 1.31.1 CPU, 1 thread"}, "1.31.1 CPU, 1 thread"),
        ({"device": "another"}, 'one has device "this CPU", the other "another"'),
        ({"processor": "GPU"}, 'one has processor "CPU", the other "GPU"'),
        ({"samples": {"a": np.ones(1)}}, 'layer "b"'),
    ],
)  # fmt: skip
def test_profiles_that_do_not_belong_together_are_refused(change, words) -> None:
    with pytest.raises(RunError) as caught:
        FIRST.merged(dataclasses.replace(LATER, **change))
    assert words in str(caught.value)


def test_a_sentence_that_both_have_stands_once_with_the_later_numbers() -> None:
    wanted = "Inferences include copying. An inference took 2.25 ms with the profiler, 2e-1 ms without"
    assert wanted == FIRST.merged(LATER).note
    assert "" == dataclasses.replace(FIRST, note="").merged(dataclasses.replace(LATER, note="")).note


def test_layers_that_only_one_of_them_times_are_those_of_both() -> None:
    """The inferences of both count; runs are those of layers, and a note on layers without times goes with them."""
    untimed = dataclasses.replace(FIRST, samples={}, runs=None, note="Layers have no times")
    found, other = untimed.merged(LATER), FIRST.merged(dataclasses.replace(untimed, note=""))
    assert (LATER.samples, 1, LATER.note) == (found.samples, found.runs, found.note)
    np.testing.assert_array_equal([7.0, 8.0, 9.0, 6.0], found.total)
    assert (FIRST.samples, 2, FIRST.note) == (other.samples, other.runs, other.note)
