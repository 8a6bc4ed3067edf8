"""Parts of experiments by hand: remedies that pay, changes that part two nodes, peaks of channels."""

from __future__ import annotations

import types

import numpy as np
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab.analyses.why.advice import Remedy
from rtlab.experiments import observation
from rtlab.experiments.why import advising, changes

FLOAT, node = TensorProto.FLOAT, helper.make_node


@pytest.mark.parametrize(
    ("layers", "milliseconds", "largest", "gain", "keeps", "pays"),
    [
        ((10, 8), (1.0, 0.75), 1e-4, 0.25, True, True), ((10, 8), (1.0, 1.5), 1e-4, -0.5, True, False),
        ((10, 12), (1.0, 0.75), 1e-3, 0.25, False, True),
        # Less than a thousandth of the time is none: fewer layers count.
        ((10, 8), (1000.0, 1000.9), None, -0.9, False, True), ((10, 10), (1000.0, 999.1), 0.0, 0.9, True, False),
        ((10, 9), None, 9e-4, None, True, True), ((9, 9), None, 1.0, None, False, False),
    ],
)  # fmt: skip
def test_a_remedy_pays_by_its_time_or_else_by_its_layers(
    layers, milliseconds, largest, gain, keeps, pays
) -> None:
    found = Remedy(("a",), layers, milliseconds, largest)
    assert (keeps, pays) == (found.keeps, found.pays)
    assert found.gain == (None if gain is None else pytest.approx(gain))
    assert ("does not pay" in found.words) == (not pays)


def test_of_remedies_that_keep_the_outputs_and_pay_the_best_is_taken() -> None:
    """B wins most of those; c spoils the outputs, and d wins nothing."""
    remedies = {"a": (0.9, 0.0), "b": (0.5, 0.0), "c": (0.1, 1.0), "d": (1.2, 0.0)}
    tried = {(n,): Remedy((n,), (10, 8), (1.0, after), largest) for n, (after, largest) in remedies.items()}
    for order in ("abcd", "dcba"):
        state = types.SimpleNamespace(tried=tried, every=None)
        for name in order:
            state.every = advising._AdviceState._better(state, (name,))
        assert tried["b",] is state.every


def net(nodes, held, y=(2, 3)):
    return graph(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [*y])], held)


def test_a_pair_between_two_nodes_is_taken_away_as_one() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "first"), node("QuantizeLinear", ["a", "s"], ["q"], "Q"),
        node("DequantizeLinear", ["q", "s"], ["d"], "DQ"), node("Sigmoid", ["d"], ["y"], "second"),
    ]  # fmt: skip
    model = net(nodes, {"s": np.float32(0.1)})
    (found,) = changes._iter_removals(model, ["Q", "DQ"])
    assert ("quantization", ("Q", "DQ"), False) == (found.cause, found.nodes, found.keeps)
    after = changes.apply_changes(model, [found])
    assert [("Relu", ("x",)), ("Sigmoid", ("a",))] == [(n.op, tuple(n.inputs)) for n in after.nodes]


def test_a_weight_that_is_computed_or_stored_becomes_a_constant() -> None:
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], "DQ"), node("Relu", ["x"], ["a"], "first"),
        node("MatMul", ["a", "d"], ["b"], "second"), node("Sigmoid", ["x"], ["g"], "gate"),
        node("Transpose", ["g"], ["t"], "turn"), node("MatMul", ["b", "t"], ["y"], "third"),
    ]  # fmt: skip
    held = {"w": np.ones((3, 3), np.int8), "s": np.float32(0.5)}
    model = net(nodes, held, (2, 2))
    (stored,) = changes._iter_weight_changes(model, model.by_id["second"], "d", "first")
    assert ("quantization", ("DQ",), True) == (stored.cause, stored.nodes, stored.retypes)
    (computed,) = changes._iter_weight_changes(model, model.by_id["third"], "t", "second")
    assert ("weight", ("turn",), False) == (computed.cause, computed.nodes, computed.retypes)
    # What comes from the first of the two is no weight.
    assert [] == [*changes._iter_weight_changes(model, model.by_id["second"], "a", "first")]
    after = changes.apply_changes(model, [stored, computed])
    assert ["first", "second", "third"] == [n.id for n in after.nodes]
    shapes = [after.known[after.by_id[n].inputs[1]].numpy() for n in ("second", "third")]
    assert [((3, 3), np.float32), ((3, 2), np.float32)] == [(a.shape, a.dtype) for a in shapes]
    assert 0.02 < np.concatenate([a.ravel() for a in shapes]).std() < 0.3


VALUES = np.array([[[1, -5], [2, 0]], [[3, 1], [-4, np.nan]]], np.float32)
LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("axis", "samples", "peaks", "energy"),
    [
        (1, 2, [[5, 2], [3, np.inf]], [1 + 25 + 9 + 1, 4 + 16 + LARGEST**2]),
        (-2, 2, [[5, 2], [3, np.inf]], [36, 20 + LARGEST**2]),
        (2, 2, [[2, 5], [4, np.inf]], [1 + 4 + 9 + 16, 25 + 1 + LARGEST**2]),
        (0, 2, [[5], [np.inf]], [56 + LARGEST**2]), (-3, 2, [[5], [np.inf]], [56 + LARGEST**2]),
        (3, 2, [[5], [np.inf]], [56 + LARGEST**2]), (-4, 2, [[5], [np.inf]], [56 + LARGEST**2]),
        (None, 2, [[5], [np.inf]], [56 + LARGEST**2]), (1, 4, [[np.inf]], [56 + LARGEST**2]),
    ],
)  # fmt: skip
def test_peaks_are_of_samples_and_channels_and_energy_is_of_channels(axis, samples, peaks, energy) -> None:
    """What is no number counts as infinite, and in the energy as the largest number."""
    found = observation._reduce_by_channel(VALUES, axis, samples)
    np.testing.assert_array_equal(found[0], peaks)
    np.testing.assert_allclose(found[1], energy)


def test_batches_with_other_numbers_of_channels_are_joined_without_them() -> None:
    one, two = np.array([[1.0, 4.0], [3.0, 2.0]]), np.array([[5.0, 6.0, 7.0]])
    rows, means = observation._join_batches([one, one], [one[0], one[1]], 10)
    np.testing.assert_array_equal(rows, [[1, 4], [3, 2]] * 2)
    np.testing.assert_array_equal(means, [4 / 5, 6 / 5])
    rows, means = observation._join_batches([one, two], [one[0], two[0]], 12)
    np.testing.assert_array_equal(rows, [[4], [3], [7]])
    # 1 + 4 and 5 + 6 + 7 over 12 elements.
    np.testing.assert_array_equal(means, [23 / 12])
    np.testing.assert_array_equal(observation._join_batches([one], [one[0]], 0)[1], one[0])
    np.testing.assert_array_equal(observation._join_batches([one], [one[0]], 2)[1], one[0])
