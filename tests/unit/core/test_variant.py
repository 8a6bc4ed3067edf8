"""Variants: what may be asked for, resolved once."""

from __future__ import annotations

import pytest
from hypothesis import given

import strategies
from rtlab.core.options import BuildOptions
from rtlab.core.variant import Calibrator, Precision, Target, Variant
from rtlab.errors import VariantError


@given(strategies.variants())
def test_a_variant_built_from_its_own_strings_is_the_same(variant):
    """A variant goes through the browser as strings and comes back equal: a built one is found again."""
    again = Variant.of(
        {"*": str(variant.precision), **{pattern: str(p) for pattern, p in variant.pins}},
        calibrator=None if variant.calibrator is None else str(variant.calibrator),
        target=str(variant.target),
        weights=variant.weights,
        sparsity=variant.sparsity,
    )

    assert variant == again
    assert variant.id == again.id


@given(strategies.variants(), strategies.variants())
def test_ids_are_equal_only_for_equal_variants(one, two):
    """The id is the key of everything a study keeps."""
    assert (one == two) == (one.id == two.id)


def test_tensorrts_own_calibrator_is_its_second_entropy_search_by_default():
    """TensorRT has no calibrator that chooses among several; what it does by itself is what implicit INT8 shows."""
    assert Calibrator.ENTROPY2 == Variant.of("int8", options=BuildOptions.of(implicit=True)).calibrator
    assert Calibrator.AUTO == Variant.of("int8", options=BuildOptions.of(max_aux_streams=1)).calibrator


def test_only_precisions_with_scales_have_a_calibrator():
    """Equal work has equal names: fp16 with and without a calibrator is one variant."""
    assert Calibrator.AUTO == Variant.of("int8").calibrator
    assert Calibrator.MINMAX == Variant.of("int8", calibrator="minmax").calibrator
    assert Variant.of("fp16") == Variant.of("fp16", calibrator="minmax")
    assert "int8·auto@sm86" == Variant.of("int8", target="sm86").id
    assert "fp32@cpu/onnxruntime" == Variant.of(backend="onnxruntime").id


@pytest.mark.parametrize(
    ("ask", "names"),
    [
        ({"precision": "fp12"}, ['"fp12"', '"fp4"']),
        ({"precision": "int8", "calibrator": "magic"}, ['"magic"', '"mse"']),
        ({"target": "RTX 4090"}, ['"RTX 4090"', '"sm89"']),
        ({"precision": "fp8", "target": "sm86"}, ['"sm86"', '"fp8"', '"sm89"']),
        ({"precision": "fp4", "target": "sm89"}, ['"sm89"', '"fp4"', '"sm120"']),
        ({"precision": "int8", "calibrator": "percentile(101)"}, ['"101"', '"p"', "50", "100"]),
        ({"precision": "int8", "calibrator": "minmax(3)"}, ['"3"', "minmax"]),
        ({"precision": "int8", "calibrator": "entropy2(bins=300.5)"}, ['"300.5"', '"bins"', "256", "32768"]),
        ({"precision": {"*": "fp32", "op:Conv": "tf32"}}, ['"tf32"']),
        ({"precision": "int8", "weights": "row"}, ['"row"', '"channel"', '"tensor"']),
    ],
)
def test_an_impossible_choice_says_what_is_possible(ask, names):
    """The next step is in the message, so that nobody has to look for the list."""
    with pytest.raises(VariantError) as caught:
        Variant.of(**ask)
    assert all(n in str(caught.value) for n in names)


def test_an_arithmetic_is_refused_before_its_first_processor_and_not_after():
    """FP8 begins with compute capability 8.9, BF16 and TF32 with 8.0, FP4 with 12.0; INT8 and FP16 run everywhere."""
    first = {Precision.TF32: 80, Precision.BF16: 80, Precision.FP8: 89, Precision.FP4: 120}
    targets = [Target(f"sm{sm}") for sm in (75, 80, 86, 89, 120)]
    allowed = {p: [t.sm for t in targets if t.refusal(p) is None] for p in Precision}

    assert {p: [t.sm for t in targets if t.sm >= first.get(p, 0)] for p in Precision} == allowed
    assert [] == [p for p in Precision if Target("cpu").refusal(p)]


def test_a_calibrator_is_its_text_and_its_text_is_the_calibrator():
    """The text travels through the browser, the command line and the names of variants."""
    for text in (
        "percentile(99.9)",
        "entropy2(4096)",
        "entropy(2048, levels=64)",
        "mse(65)",
        "minmax",
        "auto",
    ):
        made = Calibrator.of(text)
        assert made == Calibrator.of(str(made))
    assert "percentile(99.9)" == str(Calibrator.of("percentile( p = 99.9 )"))
    assert Calibrator.PERCENTILE == Calibrator.of("percentile(99.99)")
    assert (99.9, 2048) == (Calibrator.of("percentile(99.9)")["p"], Calibrator.ENTROPY["bins"])


def test_a_mix_needs_a_calibrator_when_any_of_it_does():
    """One int8 pin in an fp16 model still needs scales, and the pins are part of what a variant is."""
    mixed = Variant.of({"*": "fp16", "op:Conv": "int8"}, target="sm86")

    assert Calibrator.AUTO == mixed.calibrator
    assert "fp16·auto op:Conv=int8@sm86" == mixed.id
    assert "fp16·auto · 1 pinned" == mixed.name
    assert {Precision.FP16, Precision.INT8} == mixed.precisions
    assert Calibrator.MINMAX == Variant.of("fp8", target="sm89").calibrator


def test_a_pin_that_the_target_cannot_do_is_refused():
    """The pin is looked at like the precision of the whole."""
    with pytest.raises(VariantError, match=r'^Target "sm86" has no "fp8" arithmetic'):
        Variant.of({"*": "fp16", "/head/*": "fp8"}, target="sm86")
