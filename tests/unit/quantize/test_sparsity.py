"""2:4 sparsity: what is found, what pruning keeps, and that results still join with the source."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from net_text import parsed, sized
from nets import graph_proto
from rtlab.core.model import Model, load
from rtlab.errors import VariantError
from rtlab.quantize.sparsity import compute_mask, find, select_prunable_weights
from rtlab.quantize.sparsity import prune as prune_weights

RNG = np.random.default_rng(0)


def match_prunable_nodes(model: Model, patterns: list[str]) -> tuple[str, ...]:
    return tuple(w.node for w in select_prunable_weights(model, patterns))


def prune(model: Model, patterns: Sequence[str] = ("*",)) -> Model:
    return prune_weights(model, select_prunable_weights(model, patterns))


def weight(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def net(*pieces: onnx.NodeProto | str, **weights: np.ndarray) -> Model:
    """A model of text and nodes; each weight is an initializer."""
    types = [helper.np_dtype_to_tensor_dtype(w.dtype) for w in weights.values() if w.dtype.kind == "f"]
    kind, (nodes, inputs, outputs) = types[-1] if types else TensorProto.FLOAT, parsed(*pieces)
    ends = [(o, kind, weights[o].shape if o in weights else None) for o in outputs]
    made = graph_proto(nodes, [(n, kind, s) for n, s in inputs.items()], ends, weights)
    return load(sized(made), name="net")


def one(op: str, w: np.ndarray, x: list[int], *, first: bool = False, **attributes: object) -> Model:
    """A model of one node with a constant weight, at its second input unless it is the first."""
    inputs = ["w", "x"] if first else ["x", "w"]
    return net(f"x{x}", helper.make_node(op, inputs, ["y"], "n", **attributes), "y", w=w)


def held(model: Model, node: str) -> np.ndarray:
    """The constant that a node reads."""
    return next(iter(model.constants(node).values())).numpy()


def fours(array: np.ndarray, axis: int) -> np.ndarray:
    """An independent reading of the groups: by index, one at a time."""
    others = [range(n) for i, n in enumerate(array.shape) if i != axis]
    rows = []
    for place in itertools.product(*others):
        line = array[(*place[:axis], slice(None), *place[axis:])]
        rows += [line[i : i + 4] for i in range(0, len(line), 4)]
    return np.array(rows)


AXES = {
    "Conv": (one("Conv", weight(8, 12, 3, 3), [1, 12, 8, 8]), 1),
    "Conv of two groups": (one("Conv", weight(8, 4, 3, 3), [1, 8, 8, 8], group=2), 1),
    "ConvTranspose": (one("ConvTranspose", weight(8, 6, 2, 2), [1, 8, 8, 8]), 0),
    "Gemm": (one("Gemm", weight(16, 10), [2, 16]), 0),
    "Gemm with transB": (one("Gemm", weight(10, 16), [2, 16], transB=1), 1),
    "Gemm with a constant A": (one("Gemm", weight(10, 16), [16, 2], first=True), 1),
    "Gemm with a constant transA": (one("Gemm", weight(16, 10), [16, 2], first=True, transA=1), 0),
    "MatMul": (one("MatMul", weight(16, 10), [2, 16]), 0),
    "MatMul of a stack": (one("MatMul", weight(3, 16, 10), [3, 2, 16]), 1),
    "MatMul with a vector": (one("MatMul", weight(16), [2, 16]), 0),
    "MatMul with a constant A": (one("MatMul", weight(10, 16), [16, 2], first=True), 1),
    "Conv in fp16": (one("Conv", weight(8, 12, 3, 3, dtype="float16"), [1, 12, 8, 8]), 1),
}


@pytest.mark.parametrize(("model", "axis"), AXES.values(), ids=AXES)
def test_the_pattern_is_counted_along_the_summed_axis(model, axis):
    (found,) = find(model)
    assert (axis, True, False) == (found.axis, found.eligible, found.is_sparse)
    before = held(model, "n")
    assert np.mean((fours(before, axis) == 0).sum(axis=1) >= 2) == found.share

    pruned = prune(model)
    (after,) = find(pruned)
    assert (1.0, True) == (after.share, after.is_sparse)
    groups = fours(held(pruned, "n"), axis)
    assert ((groups != 0).sum(axis=1) == 2).all()
    kept = groups != 0
    np.testing.assert_array_equal(fours(before, axis)[kept], groups[kept])


INELIGIBLE = {
    "depthwise": (one("Conv", weight(8, 1, 3, 3), [1, 8, 8, 8], group=8), "depthwise"),
    "three channels": (one("Conv", weight(8, 3, 3, 3), [1, 3, 8, 8]), "it sums over 3"),
    "two in a group": (one("ConvTranspose", weight(8, 2, 2, 2), [1, 8, 8, 8], group=4), "it sums over 2"),
    "K of six": (one("MatMul", weight(6, 2), [2, 6]), "it sums over 6"),
    "fp64": (one("MatMul", weight(8, 2, dtype="float64"), [2, 8]), "the weight is fp64"),
}


@pytest.mark.parametrize(("model", "why"), INELIGIBLE.values(), ids=INELIGIBLE)
def test_what_cannot_follow_the_pattern_says_why(model, why):
    (found,) = find(model)
    assert (False, False) == (found.eligible, found.is_sparse)
    assert found.why.startswith(why)
    assert model is prune(model)
    assert () == match_prunable_nodes(model, ["*"])
    with pytest.raises(VariantError, match=r"Cannot prune .*Choose among the eligible"):
        match_prunable_nodes(model, [f"op:{model.node('n').op}"])


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float16]),
        st.tuples(st.integers(1, 3), st.sampled_from([4, 8]), st.integers(1, 3)),
        elements=st.sampled_from([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0])
        | st.floats(-100, 100, width=16),
    ),
)
def test_no_other_two_of_four_keep_more_energy(array):
    """Against all six patterns, one four at a time: the sum of squares that pruning keeps is the largest there is."""
    kept = compute_mask(array, 1)
    for values, chosen in zip(fours(array, 1), fours(kept, 1), strict=True):
        energy = np.square(values.astype(np.float64))
        best = max(energy[list(pair)].sum() for pair in itertools.combinations(range(4), 2))
        assert 2 == chosen.sum()
        assert best == energy[chosen].sum()


def test_of_equal_magnitudes_the_first_stay():
    expected = [True, True, False, False, True, False, True, False]
    np.testing.assert_array_equal(expected, compute_mask(np.float32([1, -1, 1, 1, 2, 0, -1, 1]), 0))


WEIGHTS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.sampled_from([4, 8])), elements=st.floats(-10, 10, width=32)
)


@settings(max_examples=25)
@given(WEIGHTS)
def test_pruning_twice_is_pruning_once(array):
    once = prune(one("Gemm", array, [1, array.shape[1]], transB=1))

    assert once is prune(once)
    assert ((fours(held(once, "n"), 1) != 0).sum(axis=1) <= 2).all()
    zeros = array == 0
    assert array[zeros].tobytes() == held(once, "n")[zeros].tobytes()


def test_a_weight_that_has_the_pattern_stays_bit_for_bit():
    sparse = weight(8, 8)
    sparse[:, ::2] = -0.0
    text = "x[1, 8]; sparse: h = Gemm(x, a, transB=1); dense: y = Gemm(h, b, transB=1); y"
    model = net(text, a=sparse, b=weight(8, 8))
    assert [True, False] == [w.is_sparse for w in find(model)]
    pruned = prune(model)

    assert sparse.tobytes() == held(pruned, "sparse").tobytes()
    assert [True, True] == [w.is_sparse for w in find(pruned)]
    assert model is prune(model, ["sparse"])


def shared(*, last: str = "Gemm") -> Model:
    reads = {"Gemm": "Gemm(h, w)", "transB": "Gemm(h, w, transB=1)", "Add": "Add(h, w)"}[last]
    return net(f"x[8, 8]; first: h = Gemm(x, w); second: y = {reads}; y", w=weight(8, 8))


@pytest.mark.parametrize(("last", "values"), [("Gemm", ["w/2:4", "w/2:4"]), ("transB", ["w/2:4", "w/2:4~2"])])
def test_two_readers_share_what_is_pruned_along_one_axis(last, values):
    pruned = prune(shared(last=last))
    assert [(v, True) for v in values] == [(w.value, w.is_sparse) for w in find(pruned)]


@pytest.mark.parametrize("last", ["transB", "Add"])
def test_a_reader_that_was_not_asked_keeps_the_dense_weight(last):
    model = shared(last=last)
    before = held(model, "second")
    pruned = prune(model, ["first"])

    assert find(pruned)[0].is_sparse
    assert ("first", "w/2:4") == (find(pruned)[0].node, find(pruned)[0].value)
    np.testing.assert_array_equal(before, held(pruned, "second"))
    onnx.checker.check_model(pruned.proto(), full_check=True)


def test_polygraphy_finds_the_same_pattern():
    """NVIDIA's own checker, which reads the weights one by one, agrees on what was pruned and what was not."""
    from polygraphy.tools.sparse import SparsityPruner

    model = net(
        "x[1, 8, 8, 8]; conv: h = Conv(x, a); pool: p = GlobalAveragePool(h); flat: f = Flatten(p); "
        "gemm: y = Gemm(f, b, transB=1); y",
        a=weight(8, 8, 3, 3),
        b=weight(12, 8),
    )
    for nodes, expected in (([], set()), (["conv"], {"a/2:4"}), (["conv", "gemm"], {"a/2:4", "b/2:4"})):
        checker = SparsityPruner(prune(model, nodes).proto())
        with np.errstate(over="ignore"):  # it marks what it has seen by the largest float64
            checker.check()
        assert expected == checker.sparse_tensors
    with np.errstate(over="ignore"):
        theirs = SparsityPruner(model.proto()).prune()
    pruned = next(numpy_helper.to_array(t) for t in theirs.graph.initializer if t.name == "a")
    np.testing.assert_array_equal(pruned, held(prune(model), "conv"))


def test_a_weight_that_is_an_output_or_stands_in_a_constant_is_handled():
    inside = numpy_helper.from_array(weight(8, 8), "inside")
    constant = helper.make_node("Constant", [], ["w"], "c", value=inside)
    model = net("x[1, 8]", constant, "n: y = MatMul(x, w); m: z = MatMul(y, v); z; v", v=weight(8, 8))
    pruned = prune(model)
    assert [("n", "w/2:4", True), ("m", "v/2:4", True)] == [
        (s.node, s.value, s.is_sparse) for s in find(pruned)
    ]
    onnx.checker.check_model(pruned.proto(), full_check=True)
    np.testing.assert_array_equal(held(model, "m"), pruned.ir.graph.initializers["v"].const_value.numpy())


def test_patterns_mean_ids_names_and_operators():
    model = shared()
    assert ("first", "second") == match_prunable_nodes(model, ["*"])
    assert ("first",) == match_prunable_nodes(model, ["fir*"])
    assert ("first", "second") == match_prunable_nodes(model, ["second", "op:Gemm"])
    with pytest.raises(VariantError, match="no node of the main graph"):
        match_prunable_nodes(model, ["third"])
    with pytest.raises(VariantError, match="no constant weight"):
        match_prunable_nodes(net("x[1]; second: y = Relu(x); y"), ["second"])


def test_a_four_is_sparse_with_two_zeros_or_more() -> None:
    """All sixteen patterns of zeros: 6 have two, 4 three and 1 four."""
    patterns = np.array([*itertools.product([0, 1], repeat=4)], np.float32)
    for model in (one("MatMul", patterns.T.copy(), [1, 4]), one("Gemm", patterns, [1, 4], transB=1)):
        (sparse_weight,) = find(model)
        assert 11 / 16 == sparse_weight.share
