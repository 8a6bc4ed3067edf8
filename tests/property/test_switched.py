"""Laws of the graph in which every rounding has a switch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given

import strategies
from promises import promises  # noqa: F401 - watches every pass
from rtlab import samples
from rtlab.backends.standard_operators import needs_standard_operators, serialize_standard
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.errors import VariantError
from rtlab.quantize import passes, prepare, quantizable
from rtlab.quantize.quantizer_toggles import INPUT, build_switched_model
from sessions import run

SAMPLES = (
    "control_flow", "digits_gru", "digits_inception", "digits_mobilenet", "digits_outlier", "digits_qat",
    "digits_vit", "dynamic_shapes", "fp16_overflow", "hostile_names", "sentences",
)  # fmt: skip


def ran(model: Model, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What every operator makes as it is written: fused with others, it adds in another order."""
    data = serialize_standard(model) if needs_standard_operators(model) else model.bytes()
    return run(data, feed, list(model.outputs))


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all((a.dtype, a.tobytes()) == (b.dtype, b.tobytes()) for a, b in zip(one, other, strict=True))


def holds(model: Model, variant: Variant, feed: dict[str, np.ndarray]) -> bool:
    """Whether anything can be switched; both ends are the two models then."""
    emulation = prepare(model, variant, scales={v: Scale(3.0) for v in quantizable(model)}).emulation
    # An operator of another opset is another kernel.
    raised = passes.run(model, [passes.raise_opset(emulation.opset, "for a test")])
    before = ran(raised, feed), ran(emulation, feed)
    try:
        made = build_switched_model(model, emulation)
    except VariantError:
        assert same(*before)
        return False
    onnx.checker.check_model(made.model.proto(), full_check=True)
    written = {v for n in made.model.top for v in n.outputs}
    assert {v for n in model.top for v in n.outputs if v} <= written
    assert len({q.id for q in made.quantizers}) == len(made.quantizers)
    assert same(ran(made.model, {**feed, INPUT: made.make_vector(())}), before[0])
    assert same(ran(made.model, {**feed, INPUT: made.make_inverse_vector(())}), before[1])
    return True


@given(strategies.mixes())
def test_all_off_is_the_source_and_all_on_the_emulation(case):
    model, variant = case
    image = np.random.default_rng(0).standard_normal(model.input_shape("image")).astype(np.float32)
    holds(model, variant, {"image": image})


@pytest.mark.parametrize("precision", [p for p in Precision if p is not Precision.FP32])
@pytest.mark.parametrize("name", SAMPLES)
def test_of_every_sample_both_ends_are_the_two_models(name: str, precision: Precision) -> None:
    sample = samples.load(name)
    feed = next(sample.calibration.batches(sample.model, 2))
    there = holds(sample.model, Variant.of(precision, target="sm120"), dict(feed))
    assert there or name in {"control_flow", "digits_qat", "hostile_names"}
