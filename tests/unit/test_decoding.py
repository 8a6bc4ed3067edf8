"""Prefill and one decoding step of a decoder with a cache, as two variants of one study."""

from __future__ import annotations

import numpy as np
import pytest

from cached_decoder import HEADS, WIDTH, decoder_proto
from rtlab import Study, load
from rtlab.analyses.recipe import build_recipe
from rtlab.core.variant import Variant
from rtlab.errors import ModelError, VariantError
from rtlab.web.page.controls import build_choice, choice_to_variant

PREFILL, STEP = {"sequence_length": 16}, {"sequence_length": 1}


def decoder_study() -> Study:
    return Study(load(decoder_proto(), shapes={"past_sequence_length": 8}))


def test_a_variant_has_sizes_of_its_own_and_others_as_they_are_named() -> None:
    study = decoder_study()
    variant = study.add("step", precision="fp32", target="cpu", backend="onnxruntime", sizes=STEP)
    assert ("fp32 · sequence_length=1", "fp32 sequence_length=1@cpu/onnxruntime") == (
        variant.name,
        variant.id,
    )
    model = study.state.get_model(variant)
    assert model.input_shape("past_key_values.0.key") == (1, HEADS, 8, WIDTH)
    assert model.input_shape("attention_mask") == (1, 9)
    assert study.state.get_model(variant) is model
    with pytest.raises(ModelError, match=r'"length".*past_sequence_length, sequence_length'):
        study.add("other", precision="fp32", sizes={"length": 1})
    with pytest.raises(VariantError, match="no mapping from symbols"):
        Variant.of("fp32", sizes={"sequence_length": "many"})


def test_the_choice_of_a_page_has_the_sizes_of_its_variant() -> None:
    model = load(decoder_proto())
    sizes = {"sequence_length": 1, "past_key_values.0.key": (1, HEADS, 8, WIDTH), "cache_position": (5,)}
    variant = Variant.of("fp16", target="sm86", sizes=sizes)
    choice = build_choice(model, variant)
    assert choice["sizes"] == [
        "sequence_length=1",
        f"past_key_values.0.key=1x{HEADS}x8x{WIDTH}",
        "cache_position=5x",
    ]
    assert choice_to_variant(choice).sizes == variant.sizes == tuple(sizes.items())


def test_a_part_of_a_model_has_its_sizes_also_inside() -> None:
    model = load(decoder_proto(), shapes={"sequence_length": 3, "past_sequence_length": 5})
    assert model.extract(["mask", "softmax"]).input_shape("scores") == (1, HEADS, 3, 8)
    # What is cut off takes its inputs along.
    until = model.extract_until(["h"])
    assert (until.inputs, until.input_shape("input_ids")) == (("input_ids", "position_ids"), (1, 3))


@pytest.mark.slow
def test_prefill_and_one_step_are_built_measured_and_compared_side_by_side() -> None:
    study = decoder_study()
    for precision in ("fp32", "int8"):
        for name, sizes in (("prefill", PREFILL), ("step", STEP)):
            study.add(
                f"{precision} {name}", precision=precision, target="cpu", backend="onnxruntime",
                calibrator="minmax" if precision == "int8" else None, sizes=sizes,
            )  # fmt: skip
    with pytest.raises(ModelError, match='"sequence_length": 1'):
        study.run(["int8 step"])  # Scales come from the sizes of the study, of which one has no size.
    study = Study(study.model.sized({**PREFILL, "past_sequence_length": 8}))
    for precision in ("fp32", "int8"):
        for name, sizes in (("prefill", {}), ("step", STEP)):
            study.add(
                f"{precision} {name}", precision=precision, target="cpu", backend="onnxruntime",
                calibrator="minmax" if precision == "int8" else None, sizes=sizes,
            )  # fmt: skip
    study.run(budget_s=20)
    prefill, step = (study.state.results[f"int8 {name}"] for name in ("prefill", "step"))
    assert step.source.input_shape("input_ids") == (1, 1)
    assert prefill.source.input_shape("input_ids") == (1, 16)
    assert prefill.ranges.samples == step.ranges.samples
    np.testing.assert_equal(
        {v: s.amax for v, s in prefill.prepared.scales.items()},
        {v: s.amax for v, s in step.prepared.scales.items()},
    )
    for result in (prefill, step):
        assert result.errors is not None
        assert result.profile is not None
        sqnr = {row.value: row.sqnr for row in study[result.name].accuracy.values}
        assert 15 < sqnr["logits"] < 70
    assert "sizes={'sequence_length': 1}" in build_recipe(study.state, ["int8 step"]).python
