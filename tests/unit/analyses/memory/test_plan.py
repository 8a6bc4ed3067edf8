"""Memory plans of small engines by hand, and of those of the corpus by their bound."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import engines
import strategies
from rtlab import load
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import make_empty_model
from rtlab.core.variant import Target
from rtlab.errors import VariantError


def engine(*steps, inputs=(), outputs=()) -> Engine:
    layers = tuple(Layer(str(i), f"layer {i}", "kgen", i, *map(tuple, ends)) for i, ends in enumerate(steps))
    ends = tuple(inputs), tuple(outputs)
    return Engine("tensorrt-rtx", "1", Target("sm86"), layers, *ends, maker=TENSORRT_RTX)


def tensor(name, *shape, dtype="int8", **more) -> Tensor:
    return Tensor(name, dtype, shape, **more)


X, A, B, C, Y = (tensor(n, 1, size) for n, size in zip("xabcy", (10, 300, 200, 700, 20), strict=True))
CHAIN = engine(([X], [A]), ([A], [B]), ([B, A], [C]), ([C], [Y]), inputs=[X], outputs=[Y])


def test_a_chain_by_hand() -> None:
    """Rounded to 256: a 512, b 256, c 768. Step 2 has all three; inputs and outputs are not in the arena."""
    found = plan_engine_memory(CHAIN, make_empty_model())
    assert [a.value for a in found.allocations] == ["a", "b", "c"]
    assert [(a.first, a.last, a.nbytes) for a in found.allocations] == [(0, 2, 300), (1, 2, 200), (2, 3, 700)]
    assert found.alive.tolist() == [512, 768, 1536, 768]
    assert (found.peak, found.bound, found.naive, found.step) == (1536, 1536, 1536, 2)
    assert found.at_peak == (0, 1, 2)
    assert (found.caller("input"), found.caller("output")) == (10, 20)


def test_addresses_are_multiples_of_the_alignment() -> None:
    assert plan_engine_memory(CHAIN, make_empty_model(), align=1).peak == 1200
    assert plan_engine_memory(CHAIN, make_empty_model(), align=512).peak == 512 + 512 + 1024


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (tensor("t", 1, 3, 4, 4, format="Thirty-two wide channel vectorized row major Int8 format"), 32 * 16),
        (tensor("t", 1, 3, 4, 4, dtype="fp16", format="Channel major FP16 format where channel % 8 == 0"), 8 * 32),
        (tensor("t", 2, 33, dtype="int8", format="CHW32"), 2 * 64),
        (tensor("t", 2, 3, 4, dtype="fp32", strides=(16, 4, 1)), 2 * 16 * 4),
        (tensor("t", 1, 64, 8, 8, dtype="fp32", strides=(16384, 1, 2048, 256)), 8 * 8 * 256 * 4),
        (tensor("t", 1, 10, dtype="fp32", strides=(99, 1)), 40),
        (tensor("t", 5, dtype="int4"), 3),
        (tensor("t", dtype="int64"), 8),
        (tensor("t", 0, 4), 0),
    ],
    ids=["chw32", "hwc8", "rank 2", "padded rows", "part of a wider one", "stride of one", "int4", "scalar", "none"],
)  # fmt: skip
def test_layouts_and_strides_add_to_the_size(given: Tensor, expected: int) -> None:
    found = plan_engine_memory(
        engine(([], [given]), ([given], [Y]), outputs=[Y]), make_empty_model(), align=1
    )
    assert [a.nbytes for a in found.allocations] == [expected]


def test_a_tensor_is_as_large_as_its_largest_mention() -> None:
    half, whole = tensor("c", 1, 50), tensor("c", 1, 100)
    found = plan_engine_memory(
        engine(([], [half]), ([], [half]), ([whole], [Y]), outputs=[Y]), make_empty_model()
    )
    assert [(a.nbytes, a.first, a.last) for a in found.allocations] == [(100, 0, 2)]


def test_another_batch_scales_what_is_computed_from_the_inputs() -> None:
    """Built for 4, asked for 8: twice what came from the input, also with heads folded into the batch."""
    x, folded, table, y = tensor("x", 4, 8), tensor("f", 12, 2), tensor("c", 4, 10), tensor("y", 4, 1)
    given = engine(([x], [folded]), ([], [table]), ([folded, table], [y]), inputs=[x], outputs=[y])
    found = plan_engine_memory(given, make_empty_model(), batch=8)
    assert {a.value: a.nbytes for a in found.allocations} == {"f": 48, "c": 40}
    assert (found.batch, found.engine_batch, found.scaled) == (8, 4, True)
    assert found.caller("input") == 64
    assert not plan_engine_memory(given, make_empty_model(), batch=4).scaled


def test_a_dynamic_batch_is_resolved_not_scaled() -> None:
    x, a, y = tensor("x", -1, 8), tensor("a", -1, 100), tensor("y", -1, 1)
    given = engine(([x], [a]), ([a], [y]), inputs=[x], outputs=[y])
    assert [
        plan_engine_memory(given, make_empty_model(), batch=n).allocations[0].nbytes for n in (None, 1, 7)
    ] == [
        100,
        100,
        700,
    ]
    assert not plan_engine_memory(given, make_empty_model(), batch=7).scaled


def test_open_dimensions_take_the_sizes_that_were_named() -> None:
    proto = strategies.of_nodes(
        [strategies.helper.make_node("Relu", ["x"], ["y"], name="relu")], shape=["N", "length"], result=["N", "length"]
    )  # fmt: skip
    x, a, y = tensor("x", -1, -1), tensor("inner", -1, 3, -1), tensor("y", -1, -1)
    given = engine(([x], [a]), ([a], [y]), inputs=[x], outputs=[y])
    named = load(proto, shapes={"length": 5})
    assert plan_engine_memory(given, named, batch=2).allocations[0].nbytes == 2 * 3 * 5
    with pytest.raises(VariantError, match="shapes="):
        plan_engine_memory(given, load(proto))


@pytest.mark.parametrize("batch", [0, -3, 1.5, "3", float("nan"), True, 2**31])
def test_a_batch_is_at_least_one(batch) -> None:
    with pytest.raises(VariantError, match="at least 1"):
        plan_engine_memory(CHAIN, make_empty_model(), batch=batch)


def test_what_no_address_reaches_is_refused() -> None:
    large = tensor("a", 1, 2**40)
    given = engine(([X], [large]), ([large], [Y]), inputs=[X], outputs=[Y])
    assert plan_engine_memory(given, make_empty_model(), batch=2**20).peak == 2**60
    with pytest.raises(VariantError, match="64 bits"):
        plan_engine_memory(given, make_empty_model(), batch=2**30)


def test_an_engine_without_shapes_or_tensors_has_no_plan_and_asks_for_them() -> None:
    x, a, y = (Tensor(n, "fp32", None) for n in "xay")
    given = engine(([x], [a]), ([a], [y]), inputs=[x], outputs=[y])
    for one, words in ((given, "any of the 3 tensors"), (engine(([], [])), "profilingVerbosity=detailed")):
        with pytest.raises(VariantError, match=words):
            plan_engine_memory(one, make_empty_model())


def test_inputs_of_several_batches_have_none_to_choose() -> None:
    a, b = tensor("a", 2, 4), tensor("b", 3, 4)
    given = engine(([a, b], [A]), ([A], [Y]), inputs=[a, b], outputs=[Y])
    assert plan_engine_memory(given, make_empty_model()).engine_batch is None
    with pytest.raises(VariantError, match="2, 3"):
        plan_engine_memory(given, make_empty_model(), batch=4)


def test_a_tensor_of_unknown_size_is_told_apart() -> None:
    unknown = Tensor("u", "fp32", None)
    found = plan_engine_memory(
        engine(([], [unknown, A]), ([unknown, A], [Y]), outputs=[Y]), make_empty_model()
    )
    assert [life.id for life in found.unsized] == ["u"]
    assert [a.value for a in found.allocations] == ["a"]


def test_what_the_compiler_reports_stands_beside_the_plan() -> None:
    totals = {"activation": 2 * 8_192_000 + 1536, "weights": 77, "scratch": 5}
    found = plan_engine_memory(dataclasses.replace(CHAIN, totals=totals), make_empty_model())
    assert (found.reported, found.scratch) == (16_385_536, 5)
    assert (found.weights, found.weights_origin) == (77, "reported")


def test_weights_are_estimated_where_none_are_reported() -> None:
    told = {"Weights": {"Type": "Half", "Count": 10}, "Bias": {"Type": "Float", "Count": 1}}
    layers = (dataclasses.replace(CHAIN.layers[0], kind="CaskConvolution", attributes=told),)
    assert plan_engine_memory(dataclasses.replace(CHAIN, layers=layers), make_empty_model()).weights == 24
    weight = strategies.numpy_helper.from_array(np.zeros((4, 4), np.float32), "w")
    node = strategies.helper.make_node("MatMul", ["x", "w"], ["y"], name="n")
    found = plan_engine_memory(CHAIN, load(strategies.of_nodes([node], weights=[weight])))
    assert (found.weights, found.weights_origin) == (64, "estimated")


@engines.detailed
@pytest.mark.parametrize("batch", [None, 1, 64])
def test_plans_of_engines_reach_their_bound(folder, batch) -> None:
    found = plan_engine_memory(engines.read(folder)[0], make_empty_model(), batch=batch)
    assert found.overhead <= 0.05
    assert found.bound == found.alive.max()
    assert not found.unsized


@pytest.mark.parametrize(
    ("folder", "peak", "weights"),
    [
        # The pooling reads 32×32×32 in FP32 and writes a quarter; how much the product weighs nobody tells.
        (engines.RESIDUAL, 8 * 32 * (32**2 + 16**2) * 4, None),
        # The first expansion reads 16 channels of 48×48 and writes 64.
        (engines.MOBILE, 48**2 * (16 + 64) * 2, None),
        # The first pooling; three convolutions, their biases, and the product of 16 by 10.
        (engines.FOLDER / "written-fp32", 4 * 16 * (16**2 + 8**2) * 4, 4 * (16 * 27 + 2 * 16 * 144 + 3 * 16 + 170)),
    ],
)  # fmt: skip
def test_peaks_and_weights_by_hand(folder, peak: int, weights: int | None) -> None:
    engine_, _ = engines.read(folder)
    found = plan_engine_memory(engine_, make_empty_model())
    assert (peak, weights) == (found.peak, found.weights)
    batch = engine_.inputs[0].shape[0]
    assert math.isclose(
        plan_engine_memory(engine_, make_empty_model(), batch=1).peak, peak / batch, rel_tol=1e-3
    )
