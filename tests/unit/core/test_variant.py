"""Variants: what may be asked for, resolved once."""

from __future__ import annotations

import pytest
from hypothesis import given

import strategies
from rtlab.core.variant import Calibrator, Precision, Target, Variant
from rtlab.errors import VariantError


@given(strategies.variants())
def test_a_variant_built_from_its_own_strings_is_the_same(variant):
    again = Variant.of(
        {"*": str(variant.precision), **{pattern: str(p) for pattern, p in variant.pins}},
        calibrator=None if variant.calibrator is None else str(variant.calibrator), target=str(variant.target),
        weights=variant.weights, sparsity=variant.sparsity,
    )  # fmt: skip
    assert variant == again
    assert variant.id == again.id


@given(strategies.variants(), strategies.variants())
def test_ids_are_equal_only_for_equal_variants(one, two):
    assert (one == two) == (one.id == two.id)


def test_an_arithmetic_is_refused_before_its_first_processor_and_not_after():
    """FP8 begins with compute capability 8.9, BF16 and TF32 with 8.0, FP4 with 12.0; INT8 and FP16 run everywhere."""
    first = {Precision.TF32: 80, Precision.BF16: 80, Precision.FP8: 89, Precision.FP4: 120}
    targets = [Target(f"sm{sm}") for sm in (75, 80, 86, 89, 120)]
    allowed = {p: [t.sm for t in targets if t.refusal(p) is None] for p in Precision}
    assert {p: [t.sm for t in targets if t.sm >= first.get(p, 0)] for p in Precision} == allowed
    assert [] == [p for p in Precision if Target("cpu").refusal(p)]


def test_a_pin_that_the_target_cannot_do_is_refused():
    with pytest.raises(VariantError, match=r'^Target "sm86" has no "fp8" arithmetic'):
        Variant.of({"*": "fp16", "/head/*": "fp8"}, target="sm86")


@pytest.mark.parametrize(
    "text", ["percentile(90, p=91)", "percentile(90, 91)", "minmax(1)", "percentile(p=nan)"]
)
def test_a_parameter_that_a_calibrator_lacks_or_has_twice_is_refused(text: str) -> None:
    with pytest.raises(VariantError, match="takes"):
        Calibrator.of(text)
