"""Each cause by hand: values of which it is known what is wrong with them, and values with which nothing is."""

import numpy as np
import pytest

from rtlab.analyses.diagnosis.causes import ActivationStats, QuantizerSite, find_causes, find_regions
from rtlab.core.node import Node
from rtlab.core.quantizer import Quantizer
from rtlab.core.variant import Precision
from rtlab.quantize import Collector
from tests.nets import chain

RNG = np.random.default_rng(0)


def _node(op="Conv"):
    return Node("n", "n", op, "", ("v",), ("y",), {}, (), 0, "n")


def _at(part="input", value="v"):
    return Quantizer("n", part, 0, value)


def _watched(array, name="v"):
    """A value of shape (samples, channels, height, width)."""
    array = np.asarray(array, np.float32)
    collector = Collector([name], stride=1)
    collector._add({name: array}, len(array))
    wide = np.abs(array.astype(np.float64)).reshape(*array.shape[:2], -1)
    return ActivationStats(name, collector.ranges.values[name], wide.max(axis=2), (wide**2).mean(axis=(0, 2)))


def _place(array, *, amax=None, precision=Precision.INT8, op="Conv", fresh=None, **more):
    seen = _watched(array)
    threshold = seen.amax if amax is None else amax
    other = seen if fresh is None else _watched(fresh)
    return QuantizerSite(_node(op), _at(), precision, threshold, seen, other, **more)


def _in_fp16(array):
    seen = _watched(array)
    return [
        f.rule
        for f in find_causes(QuantizerSite(_node("Mul"), _at("output"), Precision.FP16, None, seen, seen))
    ]


def _first(place):
    return next(iter(find_causes(place)), None)


def _normal(*shape):
    return np.maximum(RNG.standard_normal(shape), 0)


def test_nothing_is_said_of_ordinary_activations():
    drawn = (_normal(16, 32, 8, 8), RNG.standard_normal((16, 32, 8, 8)), RNG.random((16, 3, 8, 8)))
    for array in (*drawn, np.ones((16, 4, 2, 2))):
        assert find_causes(_place(array)) == ()


def test_a_threshold_that_nothing_comes_near_is_far_off():
    array = _normal(16, 8, 8, 8)
    found = _first(_place(array, amax=10 * array.max()))
    assert found.rule == "threshold-far-off"
    assert "12.7 of 127 steps" in found.evidence
    assert _first(_place(array, amax=3 * array.max())) is None


def test_the_sample_that_sets_a_range_is_named():
    array = _normal(50, 8, 8, 8)
    array[17] *= 30
    found = _first(_place(array))
    assert (found.rule, found.samples) == ("one-sample-range", (17,))


def test_a_range_of_one_sample_that_is_clipped_is_no_harm():
    array = _normal(50, 8, 8, 8)
    peak = array.max()
    array[17] *= 30
    # Nor is one that others set, beyond the largest sample.
    for amax in (peak, 1.5 * array.max()):
        assert "one-sample-range" not in {f.rule for f in find_causes(_place(array, amax=amax))}


def test_a_range_that_one_sample_sets_is_no_mistake_where_fresh_samples_reach_as_far():
    array, fresh = _normal(50, 8, 8, 8), _normal(50, 8, 8, 8)
    array[17] *= 30
    assert _first(_place(array, fresh=fresh)).rule == "one-sample-range"
    fresh[3] *= 30
    assert "one-sample-range" not in {f.rule for f in find_causes(_place(array, fresh=fresh))}


def test_outlier_channels_are_named_the_largest_first():
    array = _normal(16, 32, 8, 8)
    array[:, 3] *= 40
    array[:, 20] *= 80
    found = _first(_place(array))
    assert (found.rule, found.channels) == ("outlier-channels", (20, 3))


def test_outlier_channels_that_a_threshold_clips_are_clipping_or_nothing():
    array = _normal(16, 32, 8, 8)
    array[:, 3] *= 40
    rules = [f.rule for f in find_causes(_place(array, amax=4.0))]
    assert rules[0] == "clipping"
    assert "outlier-channels" not in rules


def test_channels_that_differ_throughout_are_unequal():
    array = _normal(16, 32, 8, 8) * np.geomspace(1, 200, 32).reshape(1, -1, 1, 1)
    assert _first(_place(array)).rule == "unequal-channels"


def test_a_threshold_far_below_the_values_clips():
    array = _normal(16, 8, 16, 16)
    found = _first(_place(array, amax=0.5))
    beyond = (array > 0.5).mean()
    assert found.rule == "clipping"
    assert f"{100 * beyond:.3g} %" in found.title
    assert _first(_place(array, amax=0.9 * array.max())) is None


def test_a_range_of_too_few_samples_is_left_by_others():
    found = _first(_place(_normal(2, 8, 8, 8), fresh=2 * _normal(40, 8, 8, 8), calibration_samples=2))
    assert found.rule == "too-few-samples"
    assert found.evidence.startswith("2 samples reached")


def test_large_elements_in_every_channel_are_a_long_tail():
    array = _normal(32, 8, 32, 32)
    at = RNG.random(array.shape) < 2e-4
    array[at] = 60
    assert _first(_place(array)).rule == "long-tail"


def test_output_channels_of_a_weight_are_unequal_under_one_scale_alone():
    grows = np.geomspace(1, 300, 16).reshape(-1, 1, 1, 1)
    weight = RNG.standard_normal((16, 8, 3, 3)).astype(np.float32) * grows
    one = QuantizerSite(_node(), _at("weight", "w"), Precision.INT8, weight=weight, granularity="tensor")
    assert [f.rule for f in find_causes(one)] == ["unequal-channels"]
    assert find_causes(QuantizerSite(_node(), _at("weight", "w"), Precision.INT8, weight=weight)) == ()


def test_an_input_channel_of_a_weight_that_is_too_small_for_the_scales_of_its_rows_is_named():
    weight = RNG.standard_normal((16, 8, 3, 3)).astype(np.float32)
    weight[:, 5] /= 256
    found = find_causes(QuantizerSite(_node(), _at("weight", "w"), Precision.INT8, weight=weight))
    assert [(f.rule, f.channels) for f in found] == [("unequal-channels", (5,))]


def test_what_leaves_fp16_names_its_region_and_samples():
    array = _normal(8, 4, 4, 4)
    array[3] *= 1e5
    seen = _watched(array)
    at = (_node("Mul"), _at("output"))
    found = _first(QuantizerSite(*at, Precision.FP16, None, seen, seen, region=("a", "n", "b")))
    assert (found.rule, found.samples, found.nodes) == ("fp16-overflow", (3,), ("n", "a", "b"))
    assert not find_causes(QuantizerSite(*at, Precision.BF16, None, seen, seen))


def test_65519_fits_fp16_and_65520_does_not():
    for value, rules in ((65519.0, []), (65520.0, ["fp16-overflow"])):
        with np.errstate(over="ignore"):
            assert bool(np.isinf(np.float16(value))) == bool(rules)
        assert _in_fp16(np.full((4, 2, 2, 2), value)) == rules


@pytest.mark.parametrize("scale", [1e-9, 3e-7, 1e-3])
def test_what_is_too_small_for_fp16_is_told_where_a_float16_loses_it(scale):
    array = scale * _normal(8, 4, 4, 4)
    noise = ((array - array.astype(np.float16)) ** 2).mean()
    lost = 10 * np.log10((array**2).mean() / noise) < 30
    assert lost == (scale < 1e-3)
    assert _in_fp16(array) == ["fp16-underflow"] * int(lost)


def test_a_softmax_in_eight_bits_is_delicate():
    assert [f.rule for f in find_causes(_place(RNG.random((8, 4, 4, 4)), op="Softmax"))] == [
        "delicate-operator"
    ]


def test_a_region_reaches_from_where_values_grow_to_where_they_fit_again():
    model = chain("a", "b", "c", "d", "e")
    written = [n.outputs[0] for n in model.top]
    peaks = dict.fromkeys(written, 1.0) | {written[1]: 1e5, written[2]: 1e6}
    assert find_regions(model, peaks) == ((model.top[1].id, model.top[2].id, model.top[3].id),)
    apart = dict.fromkeys(written, 1.0) | {written[0]: 1e5, written[3]: float("inf")}
    ids = [n.id for n in model.top]
    assert find_regions(model, apart) == ((ids[0], ids[1]), (ids[3], ids[4]))
