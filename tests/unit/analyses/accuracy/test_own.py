"""Where error is made, apart from where it has arrived."""

import math

import numpy as np
import pytest

import rtlab
from rtlab.analyses.accuracy import Comparison, compare_values, summarize_errors
from rtlab.core.facts import Errors
from tests.nets import chain


def _run(samples, budget=60.0):
    sample = rtlab.samples.load("digits_outlier")
    study = rtlab.Study(sample.model, data=sample.calibration.take(samples))
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    return study.run(budget_s=budget)["int8"].accuracy


@pytest.mark.slow
def test_the_convolutions_behind_the_outliers_are_where_error_is_made():
    """Their inputs alone have a channel of 8 to 128 times the others; all that follows only carries the error on."""
    found = _run(32)
    spoilt = {f"/blocks/{i}/depthwise/Conv" for i in (1, 2, 3, 4, 5)}
    assert found.guilty(1)[0].node in spoilt
    assert len(spoilt & {v.node for v in found.guilty(6)}) >= 3
    assert not {v.node for v in found.worst(4)} & {v.node for v in found.guilty(4)}
    quiet = found.of("/blocks/5/norm2/BatchNormalization")
    assert (quiet.own_sqnr, quiet.own_max) == (math.inf, 0.0)


def test_sums_of_batches_are_those_of_all_samples():
    values = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    model = chain("a", "b")
    name = model.top[0].outputs[0]
    amax = float(np.sort(np.abs(values), axis=None)[-5])
    comparison = Comparison(model, [name], amax={name: amax})
    for row in values:
        comparison.add({name: row}, {name: row + 0.5}, 1)
        comparison.add_isolated_errors({name: (float((row**2).sum()), float(np.abs(row).max()))})
    found = summarize_errors(comparison.to_errors("here"), model).values[0]
    assert found.own_sqnr == pytest.approx(0, abs=1e-4)
    assert found.own_rmse == pytest.approx(float(np.sqrt((values**2).mean())), rel=1e-6)
    assert found.own_max == pytest.approx(float(np.abs(values).max()))
    assert found.saturated == pytest.approx(4 / 16)
    assert found.sqnr == pytest.approx(10 * math.log10(float((values**2).sum()) / (16 * 0.25)), rel=1e-5)
    # Gone on with, they are the same sums.
    more = Comparison(model, [name], comparison.to_errors("here"))
    assert more.has_isolated_errors
    more.add({name: values[0]}, {name: values[0]}, 1)
    more.add_isolated_errors({name: (0.0, 0.0)})
    again = summarize_errors(more.to_errors("here"), model).values[0]
    assert again.own_rmse == pytest.approx(found.own_rmse * math.sqrt(16 / 24))


def test_the_largest_error_that_a_node_makes_may_be_negative():
    """Energy, largest and smallest element come as numbers beside the reference's values; a second batch adds to it."""
    model = chain("a", "b")
    name, scalars = model.top[0].outputs[0], ("energy", "most", "least")
    comparison, value = Comparison(model, [name]), np.ones((1, 8), np.float32)
    for numbers in ((10.0, 1.0, -3.0), (4.0, 2.0, 0.0)):
        reference = {name: value, **dict(zip(scalars, map(np.float32, numbers), strict=True))}
        errors = compare_values(comparison, {name: scalars}, (), [reference, {name: value}], 1)
    found = summarize_errors(errors, model).values[0]
    assert (3.0, pytest.approx(math.sqrt(14 / 16))) == (found.own_max, found.own_rmse)


def test_a_piece_that_is_not_finite_counts_in_itself_and_hides_no_other():
    """More elements than are summed at once; the second piece has an infinity and the third a number beyond float32."""
    x = np.linspace(-1, 1, 3 * (1 << 16), dtype=np.float32)
    y = (x * np.float32(0.999)).astype(np.float32)
    y[70_000], x[140_000], y[5] = np.inf, 3e30, 0
    model = chain("a", "b")
    name = model.top[0].outputs[0]
    comparison = Comparison(model, [name], amax={name: 0.5})
    comparison.add({name: x}, {name: y}, 1)
    errors = comparison.to_errors("here")
    finite = np.isfinite(y)
    one, two = x[finite].astype(np.float64), y[finite].astype(np.float64)
    apart = one - two
    sums = [one @ one, apart @ apart, one @ two, two @ two, np.abs(apart).max()]
    assert errors.sums[name] == pytest.approx([*sums, finite.sum(), 1, 1, 0, 0], rel=1e-5)
    assert errors.saturated == {name: (np.abs(x) > 0.5).sum()}


def test_a_number_beyond_the_threshold_counts_beside_one_that_is_none():
    x = np.array([0.1, math.nan, -3.0, 2.0, 0.5], np.float32)
    model = chain("a", "b")
    name = model.top[0].outputs[0]
    comparison = Comparison(model, [name], amax={name: 1.0})
    comparison.add({name: x}, {name: x}, 1)
    assert comparison.to_errors("here").saturated == {name: 2}


def test_of_an_engine_that_runs_itself_nothing_is_known_of_what_nodes_make():
    model = chain("a", "b")
    name = model.top[0].outputs[0]
    errors = Errors("there", {name: np.array([1.0, 0.1, 1, 1, 0.1, 4, 0, 0, 0, 0])}, {name: 1})
    found = summarize_errors(errors, model)
    assert found.values[0].own_sqnr is None
    assert found.guilty() == ()
