"""The error that a node makes, by two ways: its shadow, and the model in which this node alone is rounded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import rtlab
from rtlab import samples
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import prepare, quantizable
from rtlab.quantize.isolated_error import build_isolated_error_model
from rtlab.quantize.quantizer_toggles import INPUT, build_switched_model
from sessions import run

NAMES = ("digits_outlier", "digits_vit", "fp16_overflow", "sentences")
PRECISIONS = ("int8", "fp16", "int4", "tf32")


def values(model: Model, feed: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    """Values as each operator makes them as it is written."""
    proto = model.proto()
    others = (n for n in names if n not in model.outputs)
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in others)
    return dict(zip(names, run(proto.SerializeToString(), feed, names), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_own_errors_are_those_of_the_model_in_which_one_node_alone_is_rounded(
    name: str, precision: str
) -> None:
    sample = samples.load(name)
    feed = dict(next(sample.calibration.batches(sample.model, 4)))
    scales = {v: Scale(3.0) for v in quantizable(sample.model)}
    emulation = prepare(sample.model, Variant.of(precision, target="sm120"), scales=scales).emulation
    shadow, other = (
        build_isolated_error_model(sample.model, emulation),
        build_switched_model(sample.model, emulation),
    )
    assert shadow is not None
    onnx.checker.check_model(shadow.model.proto(), full_check=True)
    kept = [v for v in shadow.error_sums if v in sample.model.producers]
    sums = values(shadow.model, feed, [*(n for s in shadow.error_sums.values() for n in s.scalars), *kept])
    plain = values(other.model, {**feed, INPUT: other.make_vector(())}, kept)
    assert kept
    assert {sample.model.producers[v].id for v in kept} == {*other.nodes}
    for value in kept:
        assert plain[value].tobytes() == sums[value].tobytes()
        node = sample.model.producers[value].id
        alone = values(other.model, {**feed, INPUT: other.make_vector([node])}, [value])[value]
        error = alone.astype(np.float64) - plain[value]
        if np.abs(error).max() > 1e18:
            # What 16 bits leave of a mask of -3.4e38: its square is beyond float32.
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            energy = pytest.approx((error**2).sum(), rel=1e-4, abs=1e-30, nan_ok=True)
            assert sums[shadow.error_sums[value].energy] == energy
            assert sums[shadow.error_sums[value].maximum] == pytest.approx(error.max(), rel=1e-5, nan_ok=True)
            assert sums[shadow.error_sums[value].minimum] == pytest.approx(error.min(), rel=1e-5, nan_ok=True)


@pytest.mark.slow
def test_elements_beyond_the_threshold_are_counted() -> None:
    sample = samples.load("digits_outlier")
    made = rtlab.Study(sample.model, data=sample.calibration.take(40))
    made.add("int8", scales={v: Scale(3.0) for v in quantizable(sample.model)}, backend="onnxruntime")
    made.measure(made.run()["int8"].name)
    told = {v.value: v for v in made["int8"].accuracy.values}
    feed = dict(next(sample.calibration.take(40).batches(sample.model, 40)))
    asked = [v for v in quantizable(sample.model) if v in told]
    found = values(sample.model, feed, asked)
    for value in asked:
        assert told[value].elements == found[value].size
        assert told[value].saturated == pytest.approx((np.abs(found[value]) > 3).mean())
    assert sum(told[v].saturated > 0 for v in asked) > 5
