"""Laws of every precision and of mixing them, over graphs of every kind."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import strategies
from net_text import written
from promises import promises  # noqa: F401 - watches every pass
from rtlab.core.model import Model, load
from rtlab.core.node import ORIGIN
from rtlab.core.prepared import Prepared
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import assign, prepare, quantizable
from rtlab.quantize.fp16_passes import round_to_tf32, truncate
from rtlab.quantize.passes import run
from rtlab.quantize.weights import ScaleLayout, choose_int4_block, quantize_to_four_bits
from sessions import computed as execute

HALVES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


def prepared(model: Model, variant: Variant) -> Prepared:
    return prepare(model, variant, scales={v: Scale(3.0) for v in quantizable(model)})


def image(model: Model) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).standard_normal(model.input_shape("image")).astype(np.float32)}


@given(strategies.mixes())
def test_every_prepared_model_is_valid_and_leads_back_to_the_source(case):
    model, variant = case
    before = model.bytes()
    ready = prepared(model, variant)
    ids = {n.id for n in model.top}
    for graph in (ready.model, ready.emulation):
        onnx.checker.check_model(graph.proto(), full_check=True)
        assert (model.inputs, model.outputs) == (graph.inputs, graph.outputs)
        assert {n.id for n in model.nodes} == {n.origin for n in graph.nodes}
        assert ids <= {n.id for n in graph.top}
        assert graph is model or all(ORIGIN in n.metadata_props for n in graph.ir.graph)
    assert before == model.bytes()


@given(strategies.mixes())
def test_the_emulation_has_every_value_of_the_source(case):
    model, ready = case[0], prepared(*case)
    makers = {v: n.origin for n in ready.emulation.top for v in n.outputs}
    made = {v: n.id for n in model.top for v in n.outputs if v}
    assert made == {v: makers.get(v) for v in made}
    assert {v: model.values[v].dtype for v in made} == {v: ready.emulation.values[v].dtype for v in made}
    assert set(made) <= set(ready.model.values)


@given(strategies.mixes(hostile=False))
def test_the_emulation_runs_and_stays_near_the_source(case):
    model, variant = case
    feed = image(model)
    values = [v for n in model.top for v in n.outputs if model.values[v].dtype == "fp32"]
    source = execute(model, feed, values)
    largest = max(float(np.abs(a).max(initial=0)) for a in source.values())
    got = execute(prepared(model, variant).emulation, feed, values)
    output = model.outputs[0]
    assert source[output].shape == got[output].shape
    assert np.isfinite(got[output]).all()
    assert float(np.abs(source[output] - got[output]).max()) <= 2 * (1 + largest)


@pytest.mark.slow
@given(strategies.mixes(hostile=False))
def test_what_the_typed_graph_holds_in_16_bits_is_rounded_in_the_emulation(case):
    model, ready = case[0], prepared(*case)
    types = {v: ready.model.values[v].dtype for n in model.top for v in n.outputs if v}
    names = [v for v, t in types.items() if t in HALVES]
    for name, array in execute(ready.emulation, image(model), names).items() if names else ():
        again = array.astype(HALVES[types[name]]).astype(np.float32)
        np.testing.assert_array_equal(array, again, err_msg=name)


@given(strategies.mixes())
def test_a_node_computes_in_what_was_asked_or_in_the_rest(case):
    model, variant = case
    asked = assign(model, variant)
    rest = {Precision.FP32, variant.precision}
    already = prepared(model, Variant.of("fp32")).precisions  # what the source itself has quantized
    ready = prepared(model, variant)
    # A part of the model needs no scale that the whole does not: ranges are collected once for all variants.
    assert not any("no scale" in note for note in ready.notes)
    for node, precision in ready.precisions.items():
        assert precision in rest | {asked[node], already.get(node)}


@given(strategies.mixes())
def test_the_last_pin_that_fits_a_node_counts(case):
    model, variant = case
    for node in model.top:
        # Drawn patterns are whole ids or operators.
        fitting = [p for pattern, p in variant.pins if pattern in {node.id, f"op:{node.op}"}]
        assert (fitting or [variant.precision])[-1] is assign(model, variant)[node.id]


@given(hnp.arrays(np.float32, st.integers(1, 300), elements=FLOATS))
def test_tf32_keeps_ten_bits_and_is_nearest(array):
    """Found by search in the neighbourhood, not by the bit trick of the code."""
    array = array[np.abs(array) < 3e38]
    got = round_to_tf32(array)
    assert not (got.view(np.uint32) & 0x1FFF).any()
    below = (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    above = ((array.view(np.uint32) & np.uint32(0xFFFFE000)) + np.uint32(0x2000)).view(np.float32)
    error = np.abs(got.astype(np.float64) - array)
    wide = above.astype(np.float64)
    assert (error == np.minimum(np.abs(below - array), np.abs(wide - array))).all()
    np.testing.assert_array_equal(got, round_to_tf32(got))


NORMAL = st.floats(2.0**-100, 2.0**113, width=32) | st.floats(-(2.0**113), -(2.0**-100), width=32)


@pytest.mark.slow
@given(hnp.arrays(np.float32, 64, elements=NORMAL | st.integers(-5000, 5000).map(float)))
def test_the_graph_rounds_activations_to_tf32_like_the_bits(array):
    net = written("x[1, 64]; n: y = MatMul(x, eye); y[1, 64]", eye=np.eye(64, dtype=np.float32))
    rounded = execute(run(net, [truncate(["n"])]), {"x": array[None]}, ["y"])["y"][0]
    tie = (array.view(np.uint32) & 0x1FFF) == 0x1000
    np.testing.assert_array_equal(round_to_tf32(array)[~tie], rounded[~tie])
    assert not (rounded.view(np.uint32) & 0x1FFF).any()
    error, least = (np.abs(r.astype(np.float64) - array) for r in (rounded, round_to_tf32(array)))
    assert (error == least).all()


@given(
    hnp.arrays(np.float32, st.tuples(st.sampled_from([16, 32, 96, 256]), st.integers(1, 5)),
               elements=st.floats(-100, 100, width=32)),
    st.sampled_from([Precision.INT4, Precision.FP4]),
)  # fmt: skip
def test_four_bit_weights_are_the_nearest_of_their_block(weight, precision):
    block = 16 if precision is Precision.FP4 else choose_int4_block(weight.shape[0])
    stored = quantize_to_four_bits(weight, ScaleLayout(0, block), precision)
    numbers = np.arange(-7.0, 8.0) if precision is Precision.INT4 else np.array(
        [s * n for s in (-1, 1) for n in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
    )  # fmt: skip
    scale = stored.scale.astype(np.float32) * (1 if stored.tensor_scale is None else stored.tensor_scale)
    every = numbers[:, None, None] * np.repeat(scale, block, axis=0).astype(np.float64)
    least = np.abs(every - weight).min(axis=0)
    error = np.abs(stored.dequantize().astype(np.float64) - weight)
    np.testing.assert_allclose(error, least, rtol=1e-5, atol=1e-6 * float(np.abs(weight).max(initial=0)))


@given(strategies.mixes(hostile=False))
def test_preparing_again_after_saving_gives_the_same_graphs(case):
    model, variant = case
    one, two = (prepared(m, variant) for m in (model, load(model.bytes(), name=model.name)))
    assert [one.model.digest, one.emulation.digest] == [two.model.digest, two.emulation.digest]
    assert (one.precisions, one.notes) == (two.precisions, two.notes)


@given(st.integers(1, 5000))
def test_int4_blocks_divide_the_axis(size):
    block = choose_int4_block(size)
    assert 0 == size % block
    assert block <= 128 or block == size
