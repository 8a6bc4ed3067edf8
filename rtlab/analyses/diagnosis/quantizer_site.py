"""A place where a variant rounds, with statistics of the value that it rounds."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtlab.core.finding import Finding
from rtlab.core.memo import Memoizable
from rtlab.core.moments import Moments
from rtlab.core.variant import Precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.node import Node
    from rtlab.core.quantizer import Quantizer
    from rtlab.core.ranges import Range


@dataclasses.dataclass(frozen=True, eq=False)
class ActivationStats(Memoizable):
    """One value in the reference, over some samples.

    ``histogram`` holds every element. ``peaks`` is the largest magnitude of each channel in each sample, a float64
    array of shape ``(samples, channels)``; one channel stands for all where the value has none. ``squares`` is the mean
    square of each channel, shape ``(channels,)``. Where a batch holds several samples that lie in one tensor in another
    way, ``peaks`` has a row for each batch.
    """

    value: str
    histogram: Range
    peaks: NDArray[np.float64]
    squares: NDArray[np.float64]

    @property
    def amax(self) -> float:
        """The largest magnitude."""
        return self.histogram.amax

    @property
    def rms(self) -> float:
        """The root of the mean square of all elements."""
        return float(np.sqrt(self.squares.mean())) if self.squares.size else 0.0

    @functools.cached_property
    def samples(self) -> NDArray[np.float64]:
        """The largest magnitude in each sample, shape ``(samples,)``."""
        sample_peaks: NDArray[np.float64] = self.peaks.max(axis=1, initial=0.0)
        return sample_peaks

    @functools.cached_property
    def channels(self) -> NDArray[np.float64]:
        """The largest magnitude in each channel, shape ``(channels,)``."""
        channel_peaks: NDArray[np.float64] = self.peaks.max(axis=0, initial=0.0)
        return channel_peaks

    @functools.cached_property
    def moments(self) -> Moments:
        """Sums over the histogram, from which the noise at any threshold follows."""
        return Moments.of(self.histogram)

    def compute_clipped_share(self, amax: float) -> float:
        """The share of all elements beyond a threshold."""
        return float(self.moments.compute_clipped_share(np.array([amax]))[0]) if self.histogram.count else 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class QuantizerSite:
    """One quantizer of a variant.

    ``node`` is the source node that the quantizer belongs to. ``amax`` is the threshold of an activation in INT8 or
    FP8, None where it has none. ``calibration_stats`` are over the samples of the calibration, ``evaluation_stats``
    over those that the accuracy was measured on, which may be the same; None where not observed.
    ``calibration_samples`` is the number of samples that the threshold rests on, 0 where it is not known. ``weight`` is
    the constant where one is rounded, its channels along the first axis, and ``granularity`` says whether all of them
    share one scale. ``region`` are the nodes around it whose values do not fit FP16.
    """

    node: Node
    quantizer: Quantizer
    precision: Precision
    amax: float | None = None
    calibration_stats: ActivationStats | None = None
    evaluation_stats: ActivationStats | None = None
    calibration_samples: int = 0
    weight: NDArray[np.float32] | None = None
    granularity: Literal["channel", "tensor", "block"] = "channel"
    region: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The source's value that is rounded."""
        return self.quantizer.value

    @property
    def stats(self) -> ActivationStats | None:
        """What the value looks like where accuracy was lost."""
        return self.evaluation_stats or self.calibration_stats

    @property
    def steps(self) -> int:
        """Steps between zero and the threshold of INT8."""
        return 127

    def make_finding(
        self,
        rule: str,
        title: str,
        evidence: str,
        fix: str,
        *,
        nodes: tuple[str, ...] = (),
        samples: tuple[int, ...] = (),
        channels: tuple[int, ...] = (),
    ) -> Finding:
        """What a rule found here; ``nodes`` are those concerned beside its own."""
        return Finding(
            f"{rule} {self.quantizer}",
            rule,
            title,
            tuple(dict.fromkeys((self.node.id, *nodes))),
            "",
            fix,
            evidence,
            fixable=False,
            samples=samples,
            channels=channels,
            value=self.value,
        )
