"""Why a place where a variant rounds loses accuracy, in words, with what it rests on.

The rules read what was seen of the value, and nothing else: whether the place costs anything is for the ranking of
the guilty to say. Each is a function of a place; the first that holds is what is told first. What a cause takes away
is an estimate from the histogram and the magnitudes by channel and sample, as ``rtlab.core.moments`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from rtlab.analyses.diagnosis.half import find_overflow, find_underflow
from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_amax, compute_sqnr
from rtlab.core.variant import Precision
from rtlab.documents.numbers import format_number
from rtlab.quantize.thresholds import HEALTHY_CLIPPED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.analyses.diagnosis.activation_stats import ActivationStats
    from rtlab.analyses.diagnosis.quantizer_site import QuantizerSite

#: How many times larger than what was seen a threshold is that is far off: two of its bits are never used.
_FAR = 4.0
#: How much one sample stands out that alone sets a range, and the share of samples that may do so together.
_WILD, _FEW_WILD = 4.0, 0.02
#: A threshold is no further above the largest sample where that set it.
_SET = 1.05
#: How many times a channel exceeds the middle one where it takes three bits from the others; and the share of channels
#: up to which one speaks of outliers.
_OUTLIER, _FEW_CHANNELS = 8.0, 0.25
#: How far outliers lie above the next channel: a bit.
_GAP = 2.0
#: The same for channels that are unlike throughout: four bits.
_UNEQUAL = 16.0
#: Steps below which a channel of a weight is hardly there, and channels from which on one speaks of unlike ones.
_FEW_STEPS, _SEVERAL = 4.0, 4
#: Decibels of noise that a better threshold takes away where one speaks of clipping: a bit of the result.
_CLIPPING_DB = 6.0
#: The share of fresh samples that reach beyond a calibrated range, and by how much, where it rests on too few.
_OUTSIDE_SHARE, _MORE = 0.1, 1.25
#: The smallest operand of a sum that its partner's rounding leaves alone, in steps.
_DROWNED = 2.0
_INTEGERS = frozenset({Precision.INT8})
#: Operators whose result hangs on small differences of large numbers, or on sums of squares.
_DELICATE = frozenset({
    "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization",
    "LpNormalization", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
})  # fmt: skip
#: Causes of which each follows from the one before.
_SPREAD = frozenset({"outlier-channels", "unequal-channels", "long-tail"})
#: Samples and channels that a sentence names.
_NAMED = 5
#: Causes whose samples are those of the calibration; the samples of others are what accuracy was measured on.
CALIBRATED = frozenset({"one-sample-range"})


def find_causes(place: QuantizerSite) -> tuple[Finding, ...]:
    """Why this place loses, the cause that explains most first; empty where nothing about its numbers is unusual."""
    findings = [f for rule in RULES for f in rule(place)]
    spread = [f for f in findings if f.rule in _SPREAD]
    # One channel that is large makes channels unlike and a tail long: the first says it all.
    return tuple(f for f in findings if f not in spread[1:])


def find_far_off_threshold(place: QuantizerSite) -> Iterator[Finding]:
    """A threshold that nothing comes near: a scale of another tensor, or of other data."""
    both = (place.calibration_stats, place.evaluation_stats)
    largest = max((stats.amax for stats in both if stats is not None), default=0.0)
    if place.amax is None or not 0 < largest < place.amax / _FAR:
        return
    yield place.make_finding(
        "threshold-far-off",
        f'The threshold of "{place.value}" is {place.amax / largest:.3g} times its largest value.',
        f"It stands at {format_number(place.amax)}; no sample reaches beyond {format_number(largest)}, "
        f"{place.steps * largest / place.amax:.3g} of {place.steps} steps.",
        "Take the scale from observed data: another calibrator finds it.",
    )


def find_one_sample_range(place: QuantizerSite) -> Iterator[Finding]:
    """A range that one sample, or a few, set for all."""
    stats = place.calibration_stats
    if place.amax is None or stats is None or len(stats.samples) < 4:
        return
    order = np.argsort(stats.samples)[::-1]
    peaks = stats.samples[order]
    most = max(1, int(len(order) * _FEW_WILD))
    count = next((k for k in range(1, most + 1) if peaks[k - 1] >= _WILD * peaks[k]), 0)
    if not count or not 2 * peaks[count] < place.amax <= _SET * peaks[0]:
        return
    if (
        place.evaluation_stats is not None
        and place.evaluation_stats is not stats
        and (place.evaluation_stats.samples > peaks[0] / 2).any()
    ):
        # Others reach as far: it is rare, and no mistake.
        return
    outlier_samples = tuple(int(i) for i in sorted(order[:count]))
    yield place.make_finding(
        "one-sample-range",
        f"{pluralize(count, 'calibration sample sets', 'calibration samples set')} the range of "
        f'"{place.value}" for all others.',
        f"Sample {_format_numbers(outlier_samples)} reaches {format_number(peaks[0])}; none of the other "
        f"{len(order) - count} reaches beyond {format_number(peaks[count])}, and the threshold is "
        f"{format_number(place.amax)}.",
        "Leave that sample out of the calibration if it is a mistake; else choose a calibrator that clips, such as "
        "percentile.",
        samples=outlier_samples,
    )


def find_too_few_samples(place: QuantizerSite) -> Iterator[Finding]:
    """A range that was calibrated on so few samples that others often leave it."""
    old, new = place.calibration_stats, place.evaluation_stats
    if place.amax is None or old is None or new is None or old is new:
        return
    outside_mask = new.samples > _MORE * place.amax
    if place.amax < 0.9 * old.amax or outside_mask.mean() < _OUTSIDE_SHARE:
        return
    sample_count = place.calibration_samples or len(old.samples)
    yield place.make_finding(
        "too-few-samples",
        f'The range of "{place.value}" was calibrated on too few samples.',
        f"{pluralize(sample_count, 'sample')} reached {format_number(old.amax)}; of {len(outside_mask)} others "
        f"{int(outside_mask.sum())} reach beyond {format_number(_MORE * place.amax)}, up to {format_number(new.amax)}.",
        "Calibrate on more samples, some hundred of the kind that the model will see.",
        samples=tuple(int(i) for i in np.flatnonzero(outside_mask)[:_NAMED]),
    )


def find_clipping(place: QuantizerSite) -> Iterator[Finding]:
    """A threshold that cuts off what carries the signal."""
    stats = place.stats
    if place.amax is None or stats is None or not 0 < place.amax < stats.amax:
        return
    candidates = np.geomspace(stats.amax / 256, stats.amax, 65)
    noise = stats.moments.compute_noise(np.array([place.amax, *candidates]), place.precision.stored)
    best = int(noise[1:].argmin())
    gain_db = compute_sqnr(noise[0], noise[1 + best])
    if (
        candidates[best] <= place.amax
        or gain_db < _CLIPPING_DB
        or stats.compute_clipped_share(place.amax) < HEALTHY_CLIPPED
    ):
        return
    yield place.make_finding(
        "clipping",
        (
            f'The threshold of "{place.value}" cuts off '
            f"{100 * stats.compute_clipped_share(place.amax):.3g} % of its elements."
        ),
        f"It stands at {format_number(place.amax)}, the values reach {format_number(stats.amax)}; a threshold of "
        f"{format_number(float(candidates[best]))} has {gain_db:.3g} dB less noise (estimated).",
        "Choose a calibrator that keeps more, such as minmax or mse.",
    )


def find_outlier_channels(place: QuantizerSite) -> Iterator[Finding]:
    """A few channels so large that the others are left with a few steps."""
    stats = place.stats
    if place.amax is None or stats is None or place.precision not in _INTEGERS:
        return
    peaks, middle = stats.channels, _compute_median(stats.channels)
    order = np.argsort(peaks)[::-1]
    most = min(max(1, int(len(peaks) * _FEW_CHANNELS)), len(peaks) - 1)
    if most < 1 or middle <= 0 or place.amax <= _OUTLIER * middle:
        return
    # They end where the next smaller channel is the farthest below.
    gaps = peaks[order[:most]] / np.maximum(peaks[order[1 : most + 1]], middle)
    count = int(gaps.argmax()) + 1
    if gaps.max() < _GAP or place.amax < _GAP * peaks[order[count]]:
        return
    which = tuple(int(i) for i in order[:count])
    yield place.make_finding(
        "outlier-channels",
        f'{pluralize(len(which), "channel")} of {len(peaks)} of "{place.value}" '
        f"{'takes' if len(which) == 1 else 'take'} the steps from all others.",
        f"Channel {_format_numbers(which)} reaches {format_number(peaks[which[0]])}, half of the channels stay below "
        f"{format_number(middle)}: {place.steps * middle / place.amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile; or equalize the channels with the layers "
        "around them.",
        channels=which,
    )


def find_unequal_channels(place: QuantizerSite) -> Iterator[Finding]:
    """Channels of unlike size throughout, under one scale."""
    stats = place.stats
    if (
        place.amax is None
        or stats is None
        or place.precision not in _INTEGERS
        or place.quantizer.part == "weight"
    ):
        return
    nonzero_peaks = stats.channels[stats.channels > 0]
    quarter = float(np.quantile(nonzero_peaks, 0.25)) if len(nonzero_peaks) >= _SEVERAL else 0.0
    if quarter <= 0 or place.amax / quarter < _UNEQUAL:
        return
    yield place.make_finding(
        "unequal-channels",
        f'The channels of "{place.value}" are too unlike for one scale.',
        f"They reach from {format_number(float(nonzero_peaks.min()))} to "
        f"{format_number(float(nonzero_peaks.max()))}; a quarter of them has "
        f"{place.steps * quarter / place.amax:.3g} of {place.steps} steps or fewer.",
        "Equalize the channels with the layers around them.",
        channels=tuple(int(i) for i in np.argsort(stats.channels)[::-1][:_NAMED]),
    )


def find_unequal_weights(place: QuantizerSite) -> Iterator[Finding]:
    """Channels of a weight that a few large ones leave without steps.

    Under one scale for the whole tensor output channels compete, and input channels do under any scale.
    """
    if place.weight is None or place.precision not in _INTEGERS:
        return
    rows = compute_amax(place.weight.reshape(*place.weight.shape[:2], -1), axis=2).astype(np.float64)
    scales = rows.max(axis=1, keepdims=True, initial=0.0)
    if place.granularity == "tensor":
        scales = np.full_like(scales, scales.max(initial=0.0))
    shares = np.divide(rows, scales, out=np.zeros_like(rows), where=scales > 0)
    for axis, way, fix in (
        (1, "output", 'Scale the weight per channel, weights="channel".'),
        (0, "input", "Equalize the channels with the layer before."),
    ):
        peaks = shares.max(axis=axis, initial=0.0)
        few = np.flatnonzero((peaks > 0) & (peaks * place.steps < _FEW_STEPS))
        if not len(few) or len(peaks) < _SEVERAL:
            continue
        which = tuple(int(i) for i in few[np.argsort(peaks[few])])
        yield place.make_finding(
            "unequal-channels",
            f'The {way} channels of the weight "{place.value}" are too unlike for one scale.',
            f"Of {len(peaks)} {len(which)} {'has' if len(which) == 1 else 'have'} fewer than {_FEW_STEPS:.0f} of "
            f"{place.steps} steps: channel {_format_numbers(which)}, at the least {place.steps * peaks[which[0]]:.2g}.",
            fix,
            channels=which,
        )
        return


def find_long_tail(place: QuantizerSite) -> Iterator[Finding]:
    """Few large elements everywhere, for which all others pay."""
    stats = place.stats
    if place.amax is None or stats is None or place.precision not in _INTEGERS or not stats.histogram.count:
        return
    share = 1e-3
    inner = _compute_quantile(stats, 1 - share)
    if inner <= 0 or place.amax < _OUTLIER * inner:
        return
    yield place.make_finding(
        "long-tail",
        f'One element in a thousand of "{place.value}" takes the steps from all others.',
        f"999 of 1,000 stay below {format_number(inner)}, the threshold is {format_number(place.amax)}: they have "
        f"{place.steps * inner / place.amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile.",
    )


def find_two_scales(place: QuantizerSite) -> Iterator[Finding]:
    """A sum whose one operand is smaller than the rounding of the other."""
    if place.node.op not in {"Add", "Sub", "Sum"} or place.amax is None or place.other_operand is None:
        return
    if place.precision not in _INTEGERS:
        return
    step = place.amax / place.steps
    if not 0 < place.other_operand.rms < _DROWNED * step:
        return
    yield place.make_finding(
        "two-scales",
        f'"{place.node.title}" adds operands of unlike size: rounding the large one drowns the small one.',
        f'"{place.value}" has steps of {format_number(step)}; the other operand, "{place.other_operand.value}", is '
        f"{format_number(place.other_operand.rms)} on the root mean square.",
        "Leave this operand in a higher precision, or choose a calibrator with a smaller threshold for it.",
    )


def find_coarse_weights(place: QuantizerSite) -> Iterator[Finding]:
    """Weights of four bits, which have sixteen numbers at most."""
    if place.quantizer.part != "weight" or place.precision.stored.bits != 4:
        return
    yield place.make_finding(
        "coarse-weights",
        f'The weight "{place.value}" has four bits, and this layer feels it.',
        "Each block of it is rounded to one of sixteen numbers.",
        "Let its rounding be chosen by what the layer computes, weight by weight; or keep the layer in INT8.",
    )


def find_delicate_operator(place: QuantizerSite) -> Iterator[Finding]:
    """A softmax or a normalization in a narrow type."""
    if place.node.op not in _DELICATE or place.precision is Precision.TF32:
        return
    yield place.make_finding(
        "delicate-operator",
        f'"{place.node.title}" computes in {place.precision.upper()}, which {place.node.op} bears badly.',
        "Its result hangs on small differences or on sums of squares.",
        "Keep it in FP32: it is a small part of the time.",
    )


#: In the order in which they are told: what is a mistake before what is the nature of the numbers.
RULES: tuple[Callable[[QuantizerSite], Iterator[Finding]], ...] = (
    find_overflow,
    find_underflow,
    find_far_off_threshold,
    find_one_sample_range,
    find_too_few_samples,
    find_clipping,
    find_outlier_channels,
    find_two_scales,
    find_unequal_channels,
    find_unequal_weights,
    find_long_tail,
    find_coarse_weights,
    find_delicate_operator,
)


def _compute_median(peaks: NDArray[np.float64]) -> float:
    """The median of channels that carry anything."""
    nonzero_peaks = peaks[peaks > 0]
    return float(np.median(nonzero_peaks)) if nonzero_peaks.size else 0.0


def _compute_quantile(stats: ActivationStats, share: float) -> float:
    """The magnitude that this share of all elements, zeros included, does not exceed: the upper edge of its bin."""
    histogram = stats.histogram
    below = np.cumsum(np.concatenate([[histogram.zeros + histogram.small], histogram.counts]))
    at = int(np.searchsorted(below, share * histogram.count))
    return float(histogram.edges[min(at, len(histogram.edges) - 1)]) if at else 0.0


def _format_numbers(which: tuple[int, ...]) -> str:
    more = len(which) - _NAMED
    return ", ".join(map(str, which[:_NAMED])) + (f" and {more} more" if more > 0 else "")
