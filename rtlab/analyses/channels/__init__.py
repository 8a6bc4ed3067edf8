"""The errors of one value, channel by channel: which of them lose what the whole loses."""

from __future__ import annotations

import dataclasses
import html
import math
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rtlab.core.data import RANDOM
from rtlab.core.precision import compute_amax, compute_sqnr
from rtlab.core.schema import FieldMeta
from rtlab.documents.results import ResultTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class ChannelDelta:
    """The errors of one channel of a value over all samples; what each number is, ``ValueDelta`` says.

    ``amax`` is the largest magnitude of the channel in the reference.
    """

    channel: Annotated[int, FieldMeta("Channel")]
    amax: Annotated[float, FieldMeta("Largest magnitude", origin="measured", infinite=True)]
    max_abs: Annotated[float, FieldMeta("Largest error", origin="measured", infinite=True)]
    rmse: Annotated[float, FieldMeta("RMSE", origin="measured", infinite=True)]
    sqnr: Annotated[float, FieldMeta("SQNR", "dB", "measured", infinite=True)]
    own_sqnr: Annotated[float | None, FieldMeta("Own SQNR", "dB", "measured", infinite=True, omit=True)]
    saturated: Annotated[float | None, FieldMeta("Saturated", "%", "measured", omit=True)]
    overflowed: Annotated[int, FieldMeta("Not finite", origin="measured")]
    underflowed: Annotated[int, FieldMeta("Became zero", origin="measured")]


@dataclasses.dataclass(frozen=True)
class ChannelErrors:
    """The errors of each channel of one value, in their order.

    ``axis`` is the axis of the channels, None where there is none, and all of the value is one. ``threshold`` is the
    largest magnitude that its quantizer has a step for, None where it is not quantized.
    """

    variant: str
    value: Annotated[str, FieldMeta("Value")]
    node: Annotated[str, FieldMeta("Node", links="nodes")]
    axis: Annotated[int | None, FieldMeta("Axis of the channels", omit=True)]
    threshold: Annotated[float | None, FieldMeta("Threshold", origin="reported", omit=True)]
    samples: Annotated[int, FieldMeta("Samples")]
    source: Annotated[str, FieldMeta("Source")]
    channels: tuple[ChannelDelta, ...] = dataclasses.field(repr=False)
    synthetic: bool = False

    def worst(self, count: int = 5) -> tuple[ChannelDelta, ...]:
        """The channels with the lowest SQNR."""
        return tuple(sorted(self.channels, key=lambda c: c.sqnr)[:count])

    @property
    def origin(self) -> str:
        """What stands beside every one of these numbers."""
        on = f", {RANDOM}" if self.synthetic else ""
        return f"measured, {self.source}, {self.samples} samples{on}"

    def _repr_html_(self) -> str:
        words = f"Channels of {self.value}: {self.origin}"
        return f"<p>{html.escape(words)}</p>{ResultTable(ChannelDelta, self.channels, of=self).html()}"


@dataclasses.dataclass(eq=False)
class ChannelSums:
    """Sums over the samples so far, by channel, from which their errors follow.

    ``sums`` is a float64 array of shape ``(channels, 6)``: of x² and (x - y)², over elements that are finite in the
    variant, how many these are, how many are not, are zero in the variant alone, and lie beyond the threshold.
    ``most`` has the largest magnitudes of x and x - y, ``isolated_sums`` the sum of squares of the own error.
    """

    sums: NDArray[np.float64]
    most: NDArray[np.float64]
    isolated_sums: NDArray[np.float64] | None

    @classmethod
    def from_batch(
        cls,
        reference: NDArray[np.float32],
        variant: NDArray[np.float32],
        isolated_error: NDArray[np.float32] | None,
        axis: int | None,
        threshold: float | None,
    ) -> ChannelSums:
        """Those of one batch: tensors of one shape, with the own error as a difference."""
        x, y = _reshape_by_channel(reference, axis), _reshape_by_channel(variant, axis)
        is_finite = np.isfinite(x) & np.isfinite(y)
        is_equal = is_finite | (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.where(is_finite, x - y, 0)
        saturated_counts = (np.abs(x) > threshold).sum(axis=1) if threshold is not None else np.zeros(len(x))
        sums = np.stack(
            [
                np.square(np.where(is_finite, x, 0)).sum(axis=1),
                np.square(error).sum(axis=1),
                is_equal.sum(axis=1),
                (~is_equal).sum(axis=1),
                ((y == 0) & (x != 0)).sum(axis=1),
                saturated_counts,
            ],
            axis=1,
        )
        most = np.stack([compute_amax(x, 1), compute_amax(error, 1)], axis=1)
        isolated_sums = (
            None
            if isolated_error is None
            else np.square(_reshape_by_channel(isolated_error, axis)).sum(axis=1)
        )
        return cls(sums, most, isolated_sums)

    def add(self, other: ChannelSums) -> None:
        """Take those of another batch, with as many channels."""
        self.sums += other.sums
        self.most = np.maximum(self.most, other.most)
        if self.isolated_sums is not None and other.isolated_sums is not None:
            self.isolated_sums = self.isolated_sums + other.isolated_sums

    def compute_rows(self, *, quantized: bool) -> tuple[ChannelDelta, ...]:
        """The errors of each channel."""
        rows = []
        for i, (xx, ee, count, bad, underflow_count, saturated_count) in enumerate(self.sums.tolist()):
            isolated_sqnr = (
                None if self.isolated_sums is None else compute_sqnr(xx, float(self.isolated_sums[i]))
            )
            elements = count + bad
            rows.append(
                ChannelDelta(
                    channel=i,
                    amax=float(self.most[i, 0]),
                    max_abs=math.inf if bad else float(self.most[i, 1]),
                    rmse=math.inf if bad else math.sqrt(ee / count) if count else 0.0,
                    sqnr=-math.inf if bad else compute_sqnr(xx, ee),
                    own_sqnr=isolated_sqnr,
                    saturated=saturated_count / elements if quantized and elements else None,
                    overflowed=int(bad),
                    underflowed=int(underflow_count),
                )
            )
        return tuple(rows)


def _reshape_by_channel(array: NDArray[np.float32], axis: int | None) -> NDArray[np.float64]:
    """A row for each channel, in double precision; a single one where there is no such axis."""
    if axis is None or not -array.ndim <= axis < array.ndim:
        return np.asarray(array, np.float64).reshape(1, -1)
    channels_first = np.moveaxis(array, axis, 0)
    return np.asarray(channels_first, np.float64).reshape(len(channels_first), -1)
