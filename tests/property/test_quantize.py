"""Laws of calibration and of preparing, over data and graphs of every kind."""

from __future__ import annotations

import functools
import pickle
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import strategies
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.node import ORIGIN
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.ranges import Ranges
from rtlab.core.scale import Scale
from rtlab.core.variant import CALIBRATORS, Calibrator, Variant
from rtlab.quantize import Collector, fp16, int8, prepare, quantizable, scales

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32, allow_subnormal=True)
ARRAYS = hnp.arrays(np.float32, st.integers(1, 200), elements=FLOATS)


def execute(model: Model, feed: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    backend = OnnxRuntime(threads=1)
    engine = backend.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    return dict(backend.outputs(engine, feed, names))


def prepared(model: Model) -> list[Model]:
    halves = fp16(model)
    return [int8(model, {v: Scale(3.0) for v in quantizable(model)}), halves.typed, halves.emulation]


def image(model: Model) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).standard_normal(model.input_shape("image")).astype(np.float32)}


def collect(values, batches, fetch) -> Ranges:
    collector = Collector(values)
    collector.run(batches, fetch, Silent())
    return collector.ranges


def observe(*arrays: np.ndarray) -> Ranges:
    return collect(["x"], [{"x": a} for a in arrays], dict)


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


@pytest.mark.slow
@given(st.integers(1, 7), st.permutations(range(12)))
def test_scales_of_a_model_depend_on_neither_batch_size_nor_order(size, order):
    model, data, names, expected = tiny()
    shuffled = CalibrationData({"x": data.arrays["x"][order]})
    found = collect(names, shuffled.batches(model, size), fetch())
    assert expected == scales(found, Calibrator.ENTROPY2)


@functools.cache
def tiny():
    import rtlab.testing

    model = rtlab.testing.tiny_model()
    data = CalibrationData.random(model, samples=12)
    names = quantizable(model)
    backend, engine = runner()
    first = collect(names, data.batches(model, 12), lambda b: backend.outputs(engine, b, names))
    return model, data, names, scales(first, Calibrator.ENTROPY2)


@functools.cache
def runner():
    import rtlab.testing

    backend = OnnxRuntime(threads=1)
    model = rtlab.testing.tiny_model()
    return backend, backend.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())


def fetch():
    backend, engine = runner()
    return lambda batch: backend.outputs(engine, batch, quantizable(tiny()[0]))


@given(ARRAYS, ARRAYS, ARRAYS)
def test_saving_and_pickling_keep_every_number(a, b, c):
    seen = observe(a, b).merge(observe(c))
    with tempfile.TemporaryDirectory() as folder:
        seen.save(Path(folder) / "ranges.npz")
        assert same(seen, Ranges.read(Path(folder) / "ranges.npz"))
    assert same(seen, pickle.loads(pickle.dumps(seen)))


@given(strategies.models(bodies=True))
def test_every_node_of_a_prepared_model_leads_back_to_the_source(model):
    before = model.bytes()
    for ready in prepared(model):
        onnx.checker.check_model(ready.proto(), full_check=True)
        assert {n.origin for n in ready.nodes} == {n.id for n in model.nodes}
        assert [(n.id, n.name, n.op) for n in model.nodes] == [
            (n.id, n.name, n.op) for n in ready.nodes if n.id in model.by_id
        ]
        assert all(ORIGIN in n.metadata_props for n in ready.ir.graph)
        assert (model.inputs, model.outputs) == (ready.inputs, ready.outputs)
    assert before == model.bytes()


@given(strategies.models(bodies=True))
def test_every_value_of_the_source_is_in_the_prepared_models(model):
    quantized, typed, emulation = prepared(model)
    made = [v for n in model.top for v in n.outputs]
    for ready in (quantized, emulation):
        written = {v: n.origin for n in ready.top for v in n.outputs}
        assert {v: n.id for n in model.top for v in n.outputs} == {v: written[v] for v in made}
        assert all(model.values[v].dtype == ready.values[v].dtype for v in made)
    assert set(made) <= set(typed.values)


@pytest.mark.slow
@given(strategies.models(bodies=True, hostile=False))
def test_what_is_fp16_in_the_typed_model_is_an_fp16_number_in_the_emulation(model):
    halves = fp16(model)
    names = [v for n in model.top for v in n.outputs if halves.typed.values[v].dtype == "fp16"]
    for name, array in execute(halves.emulation, image(model), names).items() if names else ():
        np.testing.assert_array_equal(array.astype(np.float16).astype(np.float32), array, err_msg=name)


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
