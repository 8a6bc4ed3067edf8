"""Weights in four bits keep more of what their layers write than rounded to nearest, for a few plain inferences."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

import rtlab
from benchmarks.test_sensitivity import opened
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import input_statistics, prepare, weight_correction
from rtlab.quantize.input_statistics import ProductForm, make_product_form
from rtlab.study.observations import Observer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conftest import Care
    from rtlab.core.layer_inputs import LayerInputs
    from rtlab.quantize.compose import Prepared

#: Samples that are trained; recurrent ones have no product of these kinds in front of their recurrence.
SAMPLES = (
    "digits_inception", "digits_outlier", "digits_mobilenet", "digits_dark", "digits_light", "digits_vit",
    "digits_lstm", "digits_gru", "digits_sparse24", "fp16_overflow", "sentences",
)  # fmt: skip
#: Samples that are observed, and those that are held out.
MINE, OTHERS = 256, 512
#: Decibels won by the median layer; what it may take in plain inferences of itself, and seconds of one from which on
#: that is asked.
WON, COST, LARGE_S = 6.0, 50.0, 1e-4


@dataclasses.dataclass(frozen=True)
class Layer:
    """Decibels over rounding to nearest, and seconds: to observe and round, and of one plain inference."""

    gain: float
    spent: float
    plain: float


@contextlib.contextmanager
def timed(owner: Any, name: str, node: Callable[..., str]) -> Iterator[dict[str, float]]:
    """Seconds in a function, by the node that its arguments are about."""
    spent: dict[str, float] = {}
    function = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments)
        key = node(*arguments)
        spent[key] = spent.get(key, 0.0) + time.perf_counter() - began
        return result

    with mock.patch.object(owner, name, call):
        yield spent


def measured(model: Model, mine: CalibrationData, others: CalibrationData, precision: str) -> Iterator[Layer]:
    """Every layer whose weights are reconstructed, in the order of the graph."""
    variant, observer = Variant.of(precision, treatments=["reconstruct"]), Observer(model)
    # FP4 rounds activations as well; only weights are compared here.
    scales = {v: Scale(8.0) for v in model.values}
    nearest = prepare(model, Variant.of(precision), scales=scales)
    with timed(input_statistics, "_sum_batch", lambda want, _: want.product.node) as observed:
        seen = observer.inputs(variant, nearest, mine, Silent())
    with (
        mock.patch.object(input_statistics, "SAMPLES", OTHERS),
        mock.patch("rtlab.study.observations.SAMPLES", OTHERS),
    ):
        unseen = observer.inputs(variant, nearest, others, Silent())
    with timed(weight_correction, "_quantize_four_bit_weight", lambda read, *_: read[0].node) as rounded:
        mended = prepare(model, variant, scales=scales, inputs=seen)
    assert seen is not None and unseen is not None  # noqa: PT018 - both are there or none
    for node in (n.id for n in model.top if n.id in rounded):
        one = make_product_form(model, model.by_id[node])
        assert isinstance(one, ProductForm)
        gain = sqnr(model, one, unseen, mended) - sqnr(model, one, unseen, nearest)
        yield Layer(gain, observed[node] + rounded[node], plain(model, node))


def sqnr(model: Model, one: ProductForm, unseen: LayerInputs, ready: Prepared) -> float:
    """Of what a layer writes for held-out samples, with nothing but its own weights rounded."""
    second = unseen.nodes[one.node].second_moment
    assert second is not None
    weight = one.to_rows(weights(model, one.node))
    off = weight - one.to_rows(weights(ready.emulation, one.node))
    power, noise = (np.einsum("goi,gij,goj->", w, second, w, optimize=True) for w in (weight, off))
    return float(10 * np.log10(power / noise))


def weights(model: Model, node: str) -> NDArray[np.float64]:
    """What a product multiplies with."""
    return np.asarray(model.known[model.by_id[node].inputs[1]].numpy(), np.float64)


def plain(model: Model, node: str) -> float:
    """Seconds that ONNX Runtime computes one layer alone for, on all samples at once."""
    session = opened(model.extract([node]).bytes(), "ORT_ENABLE_ALL")
    (read,) = session.get_inputs()
    shape = [MINE, *[d if isinstance(d, int) else 1 for d in model.values[read.name].shape][1:]]
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    spent = []
    for _ in range(7):
        began = time.perf_counter()
        session.run(None, {read.name: x})
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


@pytest.mark.timeout(900)
def test_the_median_layer_keeps_six_decibels_more(care: Care) -> None:
    large = []
    for precision in ("int4", "fp4"):
        layers: list[Layer] = []
        for name in care.size(SAMPLES, ("digits_vit",)):
            sample = rtlab.samples.load(name)
            assert sample.task is not None
            mine, others = sample.calibration.take(MINE), sample.task.data.take(OTHERS)
            layers += measured(sample.model, mine, others, precision)
        assert statistics.median(one.gain for one in layers) >= WON
        large += [one.spent / one.plain for one in layers if one.plain > LARGE_S]
    # A product of microseconds costs many of them, and still only milliseconds.
    assert statistics.median(large) <= care.most(COST)
