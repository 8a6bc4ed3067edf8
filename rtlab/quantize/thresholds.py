"""Scales of observed values by calibrators, what each threshold costs, and the choice of ``auto``."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rtlab.core.calibrators import METHODS, resample_linear
from rtlab.core.moments import Moments
from rtlab.core.precision import get_activation_format
from rtlab.core.scale import CalibratorChoice, Scale
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.core.variant import CALIBRATORS, FIXED, Calibrator, Precision
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.ranges import Range, Ranges


#: What ``auto`` accepts: the share of elements that a threshold clips, and how many decibels its SQNR is below the
#: best.
MAX_CLIPPED, MAX_SQNR_LOSS = 3e-4, 4.0
#: What a threshold may clip, and lose against minmax in decibels, before one has to doubt it: on trained networks whose
#: INT8 is good entropy2 clips at most 0.29 % of a value and loses at most 7.7 dB; where it collapses, 10 to 100 % and
#: 37 dB. A clipped share that costs less than a decibel is no harm: levels of a picture close to the largest.
HEALTHY_CLIPPED, HEALTHY_SQNR_LOSS, _MIN_SQNR_LOSS = 3e-3, 8.0, 1.0
#: An SQNR of more decibels says no more, see ``rtlab.core.moments``; and a difference of fewer is not worth a word.
MAX_SQNR, _MIN_REPORTED_LOSS = 65.0, 0.05
#: Shares from here on have three digits.
_TENTH = 0.1


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
    proportion. The noise is that of the bins' middles on the grid of the precision, see ``rtlab.core.moments``.

    Raises:
        CalibrationError: the value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    search = ThresholdSearch(value_range, precision)
    scales = [search.compute_scale("", c) for c in calibrators]
    amax = np.array([s.amax for s in scales])
    sqnr = search.moments.compute_sqnr(amax, precision.stored).tolist()
    clipped = search.moments.compute_clipped_share(amax).tolist()
    return tuple(
        Threshold(c, s.amax, clipped_share, ratio, s.choice, s.doubt)
        for c, s, clipped_share, ratio in zip(calibrators, scales, clipped, sqnr, strict=True)
    )


def scales(
    ranges: Ranges, calibrator: Calibrator, *, precision: Precision = Precision.INT8
) -> Mapping[str, Scale]:
    """A scale for every observed value.

    A value that was zero throughout gets the threshold 1, which represents zero exactly, and a note.

    Raises:
        CalibrationError: a value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    return {name: compute_scale(name, r, calibrator, precision) for name, r in ranges.values.items()}


def compute_scale(name: str, value_range: Range, calibrator: Calibrator, precision: Precision) -> Scale:
    """The scale of one value; errors are those of ``scales``."""
    return ThresholdSearch(value_range, precision).compute_scale(name, calibrator)


class ThresholdSearch:
    """Thresholds of one value, each searched once."""

    def __init__(self, value_range: Range, precision: Precision = Precision.INT8) -> None:
        self.value_range, self.precision = value_range, precision
        self._stored = get_activation_format(precision)
        self._thresholds: dict[Calibrator, float] = {}

    @functools.cached_property
    def moments(self) -> Moments:
        """Running sums over the range, which not every calibrator needs."""
        return Moments.of(self.value_range)

    def compute_scale(self, name: str, calibrator: Calibrator) -> Scale:
        """The scale of the value, which messages call ``name``; errors are those of ``scales``."""
        largest = self._stored.largest
        if self.value_range.count == 0:
            what = f'value "{name}"' if name else "a value"
            raise CalibrationError(
                f"Cannot calibrate {what}: it had no elements in any batch. "
                "Give data that reaches this part of the model."
            )
        if self.value_range.amax == 0:
            note = (
                f'value "{name}" was zero in all {self.value_range.count} elements: any scale represents it'
            )
            return Scale(1.0, note, largest)
        choice = self.choose_calibrator() if calibrator == Calibrator.AUTO else None
        amax = self.compute_amax(choice.calibrator if choice else calibrator)
        return Scale(amax, "", largest, choice, self.describe_clipping(amax))

    def compute_amax(self, calibrator: Calibrator) -> float:
        """The threshold of a fixed method."""
        search = METHODS[calibrator.method].search
        if calibrator not in self._thresholds and search is not None:
            parameters: dict[str, Any] = dict(calibrator.settings)
            if "stored" in inspect.signature(search).parameters:
                parameters["stored"] = self._stored
            # A threshold is zero only where nearly every element is.
            self._thresholds[calibrator] = search(self.value_range, **parameters) or self.value_range.amax
        return self._thresholds[calibrator]

    def choose_calibrator(self) -> CalibratorChoice:
        """Which of the fixed methods' thresholds ``auto`` takes: the smallest one that loses little.

        One passes that clips at most 3 elements in 10,000 and whose SQNR is at most 4 dB below the best of them; of
        those the smallest has the finest steps. The rule was measured: on four of eight trained networks it keeps 2 to
        3 dB more of the output than the threshold of the best SQNR; with 6 dB in place of 4, random networks lose up to
        12 dB, because clipped values do not cancel in a mean. In a floating-point type nothing is gained.
        """
        if self.precision is not Precision.INT8:
            return CalibratorChoice(
                Calibrator.MINMAX,
                f"the steps of {self.precision} grow with the magnitude: clipping gains nothing",
            )
        amax = np.array([self.compute_amax(c) for c in FIXED])
        clipped = self.moments.compute_clipped_share(amax)
        sqnr = np.minimum(self.moments.compute_sqnr(amax, self._stored), MAX_SQNR)
        loss = sqnr.max() - sqnr
        passes = (clipped <= MAX_CLIPPED) & (loss <= MAX_SQNR_LOSS)
        # The first of equal thresholds, so that what clips nothing is called minmax.
        at = min(np.flatnonzero(passes), key=lambda i: amax[i], default=0)
        best = FIXED[int(sqnr.argmax())]
        details = [f"clips {_format_percent(clipped[at])}" if clipped[at] else "clips nothing"]
        if best != FIXED[at] and loss[at] >= _MIN_REPORTED_LOSS:
            details.append(f"{loss[at]:.1f} dB below {best}")
        rejections: dict[str, list[str]] = {}
        for i in np.flatnonzero((amax < amax[at]) & ~passes):
            lost, cut = f"lose {loss[i]:.1f} dB", f"clip {_format_percent(clipped[i])}"
            rejections.setdefault(cut if clipped[i] > MAX_CLIPPED else lost, []).append(str(FIXED[i]))
        words = f"the smallest threshold that loses little ({', '.join(details)})"
        if rejections:
            words += "; refused: " + ", ".join(f"{', '.join(n)} ({r})" for r, n in rejections.items())
        return CalibratorChoice(FIXED[at], words)

    def describe_clipping(self, amax: float) -> str:
        """What is wrong with a threshold that clips more than is healthy, against keeping everything; else empty."""
        if amax >= self.value_range.amax:
            return ""
        both = np.array([amax, self.value_range.amax])
        sqnr = np.minimum(self.moments.compute_sqnr(both, self._stored), MAX_SQNR)
        clipped, loss = float(self.moments.compute_clipped_share(both)[0]), float(sqnr[1] - sqnr[0])
        if loss > HEALTHY_SQNR_LOSS or (clipped > HEALTHY_CLIPPED and loss > _MIN_SQNR_LOSS):
            return f"clips {_format_percent(clipped)} of the elements and loses {loss:.1f} dB against minmax"
        return ""


def _format_percent(share: float) -> str:
    return f"{100 * share:.{2 if share < _TENTH else 3}g} %"


def display(ranges: Ranges, value: str, bins: int = 64) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A value's magnitudes for a picture.

    Returns:
        Edges in the value's unit, shape ``(bins + 1,)``, and counts, shape ``(bins,)``; exact zeros are
        counted in the first bin. A value that was zero throughout has edges from 0 to 1.

    Raises:
        CalibrationError: the value was not observed.
    """
    value_range = ranges.values.get(value)
    if value_range is None:
        raise CalibrationError(
            f'Cannot show the magnitudes of "{value}": it is not among the {len(ranges.values)} observed values. '
            "Choose one of ranges.values."
        )
    counts = resample_linear(value_range, bins) if value_range.amax else np.zeros(bins)
    counts[0] += value_range.zeros
    return np.linspace(0.0, value_range.amax or 1.0, bins + 1), counts
