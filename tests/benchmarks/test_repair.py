"""Every trained sample comes back to fp32, the cheapest way, whatever precision and calibrator took it away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import rtlab
from planted_faults import quantized
from rtlab.core.model import wrap
from rtlab.core.variant import CALIBRATORS

if TYPE_CHECKING:
    from conftest import Care

#: What a score may stay behind fp32, in points, and how many variants may be run.
MAX_DROP, RUNS = 0.5, 12
TRAINED = (
    "digits_outlier", "digits_inception", "digits_mobilenet", "digits_vit", "digits_light", "digits_dark",
    "digits_sparse24", "digits_gru", "digits_lstm", "fp16_overflow", "sentences", "digits_qat", "digits_qat_misplaced",
)  # fmt: skip
#: What is quantized already is not quantized again; some are taken, too, quantized by minmax in their own graph.
QUANTIZED = ("digits_qat", "digits_qat_misplaced")
THEIRS = ("digits_outlier", "digits_inception", "digits_mobilenet", "digits_light")
#: Another scale, weights reconstructed, and a region that has to be kept high.
FEW = (("digits_outlier", "int8", "minmax"), ("digits_light", "int4", ""), ("fp16_overflow", "fp16", ""))


def choices() -> Iterator[tuple[str, str, str]]:
    """Samples, precisions and calibrators; none where the precision or the graph has its scales."""
    for sample in TRAINED:
        yield sample, "fp16", ""
        if sample in QUANTIZED or sample in THEIRS:
            yield sample, "int8", ""
        if sample not in QUANTIZED:
            yield sample, "int4", ""
            yield from ((sample, p, str(c)) for p in ("int8", "fp8") for c in CALIBRATORS)


@pytest.mark.timeout(3600)
def test_what_is_lost_comes_back_within_half_a_point_or_what_the_samples_can_tell(care: Care) -> None:
    for name, precision, calibrator in FEW if care.smoke else choices():
        sample = rtlab.samples.load(name)
        model = sample.model
        if precision == "int8" and not calibrator and name in THEIRS:
            model = wrap(quantized(model, sample.calibration)[0], name=name)
        study = rtlab.Study(model, data=sample.calibration, task=sample.task)
        study.add("v", precision=precision, backend="onnxruntime", calibrator=calibrator or None)
        study.run(["v"], compare=False)
        found = study.accuracy.repair("v", MAX_DROP, runs=RUNS)
        assert found.enough, (name, precision, calibrator)
        assert found.runs <= RUNS
        assert not found.kept_high or name == "fp16_overflow"
