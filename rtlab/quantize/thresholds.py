"""What every calibrator would do to one value: its threshold, and what that costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rtlab.core.scale import CalibratorChoice
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision
from rtlab.errors import CalibrationError
from rtlab.quantize.calibrators import ThresholdSearch

if TYPE_CHECKING:
    from rtlab.core.ranges import Range


@dataclasses.dataclass(frozen=True)
class Threshold:
    """One calibrator's choice for one value, estimated from the value's histogram.

    ``amax`` is the threshold in the value's unit. ``clipped`` is the share of all elements, zeros included, whose
    magnitude lies beyond it. ``sqnr`` is the signal-to-noise ratio in decibels of quantizing all elements with it;
    infinite where there is no noise. Above 65 dB it says no more than that. ``choice`` is what ``auto`` took;
    ``doubt`` says in words what is wrong with a threshold that clips more than is healthy, empty otherwise.
    """

    calibrator: Annotated[Calibrator, FieldMeta("Calibrator")]
    amax: Annotated[float, FieldMeta("Threshold", origin="estimated")]
    clipped: Annotated[float, FieldMeta("Clipped", "%", "estimated")]
    sqnr: Annotated[float, FieldMeta("SQNR", "dB", "estimated", infinite=True)]
    choice: Annotated[CalibratorChoice | None, UNSENT] = None
    doubt: Annotated[str, FieldMeta("Doubt")] = ""

    @property
    def chosen(self) -> Annotated[str, FieldMeta("Chosen")]:
        """The method that ``auto`` took; empty for another calibrator."""
        return str(self.choice.calibrator) if self.choice else ""

    @property
    def why(self) -> Annotated[str, FieldMeta("Why")]:
        """The reason of ``auto``; empty for another calibrator."""
        return self.choice.why if self.choice else ""


def thresholds(
    value_range: Range,
    calibrators: Sequence[Calibrator] = CALIBRATORS,
    *,
    precision: Precision = Precision.INT8,
) -> tuple[Threshold, ...]:
    """The threshold of each calibrator, in the order given.

    Both estimates come from the histogram alone. The share clipped divides the bin that the threshold lies in in
    proportion. The noise is that of the bins' middles on the grid of the precision, see ``rtlab.quantize.noise``.

    Raises:
        CalibrationError: the value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    if value_range.count == 0:
        raise CalibrationError(
            "Cannot choose thresholds for a value: it had no elements in any batch. "
            "Give data that reaches this part of the model."
        )
    search = ThresholdSearch(value_range, precision)
    scales = [search.compute_scale("", c) for c in calibrators]
    amax = np.array([s.amax for s in scales])
    sqnr, clipped = (
        search.moments.compute_sqnr(amax, precision).tolist(),
        search.moments.compute_clipped_share(amax).tolist(),
    )
    return tuple(
        Threshold(c, s.amax, clipped_share, ratio, s.choice, s.doubt)
        for c, s, clipped_share, ratio in zip(calibrators, scales, clipped, sqnr, strict=True)
    )
