"""Laws of calibration and of preparing, over data and graphs of every kind."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import strategies
from observed import collect
from observed import observed as observe
from one_precision import fp16
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.ranges import Ranges
from rtlab.core.variant import CALIBRATORS, Calibrator, Variant
from rtlab.quantize import Collector, prepare, quantizable, scales
from sessions import computed as execute

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32, allow_subnormal=True)
ARRAYS = hnp.arrays(np.float32, st.integers(1, 200), elements=FLOATS)


def image(model: Model) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).standard_normal(model.input_shape("image")).astype(np.float32)}


def same(one: Ranges, two: Ranges) -> bool:
    return one.values.keys() == two.values.keys() and all(
        (a.min, a.max, a.count, a.zeros, a.small, a.top) == (b.min, b.max, b.count, b.zeros, b.small, b.top)
        and np.array_equal(a.counts, b.counts)
        for a, b in ((one.values[k], two.values[k]) for k in one.values)
    )


@given(ARRAYS, st.lists(st.integers(0, 200), max_size=5), st.randoms(use_true_random=False))
def test_ranges_depend_on_neither_batch_size_nor_order(array, cuts, random):
    """A peer's scales change 1.74x with the batch size (NVIDIA/Model-Optimizer issue 619)."""
    parts = np.split(array, sorted(min(c, array.size) for c in cuts))
    random.shuffle(parts)
    shuffled = np.array(array)
    random.shuffle(shuffled)
    whole = observe(array)
    assert same(whole, observe(*parts))
    assert same(whole, observe(shuffled))


@given(ARRAYS, ARRAYS, ARRAYS)
def test_merging_is_associative_and_commutative(a, b, c):
    x, y, z = observe(a), observe(b), observe(c)
    whole = observe(a, b, c)
    assert same(whole, x.merge(y).merge(z))
    assert same(whole, x.merge(y.merge(z)))
    assert same(whole, z.merge(x).merge(y))


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 70), st.integers(1, 40), st.integers(1, 40)),
    st.lists(st.integers(0, 6), max_size=3),
    st.sampled_from([1, 2, 4, 6]),
    st.integers(0, 2**32 - 1),
)
def test_what_is_read_of_maps_depends_on_neither_batch_size_nor_order(shape, cuts, stride, seed):
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    parts = [p for p in np.split(array, sorted(min(c, shape[0]) for c in cuts)) if p.size]
    seen = []
    for batches in ([array], parts[::-1], [array[i : i + 1] for i in range(shape[0])]):
        collector = Collector(["x"], stride=stride)
        collector.run([{"x": b} for b in batches], dict, Silent())
        seen.append(collector.ranges)
    assert {shape[0]} == {r.samples for r in seen}
    assert same(seen[0], seen[1])
    assert same(seen[0], seen[2])
    only = seen[0].values["x"]
    assert only.count == only.zeros + only.small + int(only.counts.sum())
    assert (float(array.min()), float(array.max())) == (only.min, only.max)


@given(ARRAYS)
def test_minmax_never_saturates_and_no_method_exceeds_it(array):
    seen = observe(array)
    amax = float(np.abs(array).max())
    for method in CALIBRATORS:
        scale = scales(seen, method)["x"]
        assert np.isfinite(scale.scale)
        assert scale.scale > 0
        if amax > 0:
            assert 0 < scale.amax <= amax
    if amax > 0:
        assert amax == scales(seen, Calibrator.MINMAX)["x"].amax


@given(ARRAYS, st.integers(-40, 40))
def test_scales_follow_the_unit_of_the_value(array, exponent):
    factor = np.float32(2.0**exponent)
    array = np.clip(array, -(2.0**60), 2.0**60)
    array[np.abs(array) < 2.0**-20] = 0
    for method in (Calibrator.MINMAX, Calibrator.ENTROPY2, Calibrator.PERCENTILE):
        one, two = scales(observe(array), method)["x"], scales(observe(array * factor), method)["x"]
        if np.any(array):
            assert one.amax * float(factor) == two.amax


@given(ARRAYS, ARRAYS, ARRAYS)
def test_pickling_keeps_every_number(a, b, c):
    seen = observe(a, b).merge(observe(c))
    assert same(seen, pickle.loads(pickle.dumps(seen)))


@given(strategies.models(bodies=True, hostile=False))
def test_prepared_models_run_and_come_close(model):
    feed, output = image(model), model.outputs[0]
    values = [v for n in model.top for v in n.outputs if model.values[v].dtype == "fp32"]
    source = execute(model, feed, values)
    want, largest = source[output], max(float(np.abs(a).max(initial=0)) for a in source.values())
    names = list(quantizable(model))
    seen = collect(names, [feed], lambda b: execute(model, b, names)) if names else None
    ready = prepare(model, Variant.of("int8", calibrator="minmax"), seen)
    halves = fp16(model)
    for other, tolerance in ((halves.typed, 0.02), (halves.emulation, 0.02), (ready.emulation, 0.5)):
        got = execute(other, feed, [output])[output]
        assert want.shape == got.shape
        assert float(np.abs(want - got).max()) <= tolerance * (1 + largest)
