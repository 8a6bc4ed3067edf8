"""Why a place where a variant rounds loses accuracy, in words, with what it rests on.

The rules read what was seen of the value, and nothing else: whether the place costs anything is for the ranking of
the guilty to say. Each is a function of a place; the first that holds is what is told first. What a cause takes away
is an estimate from the histogram and the magnitudes by channel and sample, as ``rtlab.quantize.noise`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.finding import Finding
from rtlab.core.phrases import many
from rtlab.core.variant import Precision
from rtlab.documents.numbers import number
from rtlab.quantize.calibrators import HEALTHY_CLIPPED
from rtlab.questions.diagnosis.half import flushed, overflow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.questions.diagnosis.suspect import Suspect
    from rtlab.questions.diagnosis.watched import Watched

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
_LOST = 6.0
#: The share of fresh samples that reach beyond a calibrated range, and by how much, where it rests on too few.
_BEYOND, _MORE = 0.1, 1.25
#: The smallest operand of a sum that its partner's rounding leaves alone, in steps.
_DROWNED = 2.0
_INTEGERS = frozenset({Precision.INT8})
_FOUR_BITS = frozenset({Precision.INT4, Precision.FP4})
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


def causes(place: Suspect) -> tuple[Finding, ...]:
    """Why this place loses, the cause that explains most first; empty where nothing about its numbers is unusual."""
    told = [f for rule in RULES for f in rule(place)]
    spread = [f for f in told if f.rule in _SPREAD]
    # One channel that is large makes channels unlike and a tail long: the first says it all.
    return tuple(f for f in told if f not in spread[1:])


def far_off(place: Suspect) -> Iterator[Finding]:
    """A threshold that nothing comes near: a scale of another tensor, or of other data."""
    seen = _largest(place)
    if place.amax is None or not 0 < seen < place.amax / _FAR:
        return
    yield place.finding(
        "threshold-far-off",
        f'The threshold of "{place.value}" is {place.amax / seen:.3g} times its largest value.',
        f"It stands at {number(place.amax)}; no sample reaches beyond {number(seen)}, "
        f"{place.steps * seen / place.amax:.3g} of {place.steps} steps.",
        "Take the scale from observed data: another calibrator finds it.",
    )


def one_sample(place: Suspect) -> Iterator[Finding]:
    """A range that one sample, or a few, set for all."""
    seen = place.calibrated
    if place.amax is None or seen is None or len(seen.samples) < 4:
        return
    order = np.argsort(seen.samples)[::-1]
    peaks = seen.samples[order]
    most = max(1, int(len(order) * _FEW_WILD))
    count = next((k for k in range(1, most + 1) if peaks[k - 1] >= _WILD * peaks[k]), 0)
    if not count or not 2 * peaks[count] < place.amax <= _SET * peaks[0]:
        return
    if place.fresh is not None and place.fresh is not seen and (place.fresh.samples > peaks[0] / 2).any():
        # Others reach as far: it is rare, and no mistake.
        return
    wild = tuple(int(i) for i in sorted(order[:count]))
    yield place.finding(
        "one-sample-range",
        f"{many(count, 'calibration sample sets', 'calibration samples set')} the range of "
        f'"{place.value}" for all others.',
        f"Sample {_listed(wild)} reaches {number(peaks[0])}; none of the other {len(order) - count} reaches beyond "
        f"{number(peaks[count])}, and the threshold is {number(place.amax)}.",
        "Leave that sample out of the calibration if it is a mistake; else choose a calibrator that clips, such as "
        "percentile.",
        samples=wild,
    )


def too_few(place: Suspect) -> Iterator[Finding]:
    """A range that was calibrated on so few samples that others often leave it."""
    old, new = place.calibrated, place.fresh
    if place.amax is None or old is None or new is None or old is new:
        return
    beyond = new.samples > _MORE * place.amax
    if place.amax < 0.9 * old.amax or beyond.mean() < _BEYOND:
        return
    told = place.calibrated_on or len(old.samples)
    yield place.finding(
        "too-few-samples",
        f'The range of "{place.value}" was calibrated on too few samples.',
        f"{many(told, 'sample')} reached {number(old.amax)}; of {len(beyond)} others {int(beyond.sum())} reach beyond "
        f"{number(_MORE * place.amax)}, up to {number(new.amax)}.",
        "Calibrate on more samples, some hundred of the kind that the model will see.",
        samples=tuple(int(i) for i in np.flatnonzero(beyond)[:_NAMED]),
    )


def clipping(place: Suspect) -> Iterator[Finding]:
    """A threshold that cuts off what carries the signal."""
    seen = place.watched
    if place.amax is None or seen is None or not 0 < place.amax < seen.amax:
        return
    candidates = np.geomspace(seen.amax / 256, seen.amax, 65)
    noise = seen.moments.noise(np.array([place.amax, *candidates]), place.precision)
    best = int(noise[1:].argmin())
    lost = 10 * np.log10(noise[0] / noise[1 + best]) if noise[1 + best] > 0 else np.inf
    if candidates[best] <= place.amax or lost < _LOST or seen.clipped(place.amax) < HEALTHY_CLIPPED:
        return
    yield place.finding(
        "clipping",
        f'The threshold of "{place.value}" cuts off {_percent(seen.clipped(place.amax))} of its elements.',
        f"It stands at {number(place.amax)}, the values reach {number(seen.amax)}; a threshold of "
        f"{number(float(candidates[best]))} has {lost:.3g} dB less noise (estimated).",
        "Choose a calibrator that keeps more, such as minmax or mse.",
    )


def outlier_channels(place: Suspect) -> Iterator[Finding]:
    """A few channels so large that the others are left with a few steps."""
    seen = place.watched
    if place.amax is None or seen is None or place.precision not in _INTEGERS:
        return
    peaks, middle = seen.channels, _middle(seen.channels)
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
    yield place.finding(
        "outlier-channels",
        f'{many(len(which), "channel")} of {len(peaks)} of "{place.value}" '
        f"{'takes' if len(which) == 1 else 'take'} the steps from all others.",
        f"Channel {_listed(which)} reaches {number(peaks[which[0]])}, half of the channels stay below "
        f"{number(middle)}: {place.steps * middle / place.amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile; or equalize the channels with the layers "
        "around them.",
        channels=which,
    )


def unequal_channels(place: Suspect) -> Iterator[Finding]:
    """Channels of unlike size throughout, under one scale."""
    seen = place.watched
    if (
        place.amax is None
        or seen is None
        or place.precision not in _INTEGERS
        or place.quantizer.part == "weight"
    ):
        return
    alive = seen.channels[seen.channels > 0]
    quarter = float(np.quantile(alive, 0.25)) if len(alive) >= _SEVERAL else 0.0
    if quarter <= 0 or place.amax / quarter < _UNEQUAL:
        return
    yield place.finding(
        "unequal-channels",
        f'The channels of "{place.value}" are too unlike for one scale.',
        f"They reach from {number(float(alive.min()))} to {number(float(alive.max()))}; a quarter of them has "
        f"{place.steps * quarter / place.amax:.3g} of {place.steps} steps or fewer.",
        "Equalize the channels with the layers around them.",
        channels=tuple(int(i) for i in np.argsort(seen.channels)[::-1][:_NAMED]),
    )


def unequal_weights(place: Suspect) -> Iterator[Finding]:
    """Channels of a weight that a few large ones leave without steps.

    Under one scale for the whole tensor output channels compete, and input channels do under any scale.
    """
    if place.weight is None or place.precision not in _INTEGERS:
        return
    rows = (
        np.abs(place.weight.reshape(*place.weight.shape[:2], -1)).max(axis=2, initial=0.0).astype(np.float64)
    )
    scales = rows.max(axis=1, keepdims=True, initial=0.0)
    if place.scaled == "tensor":
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
        yield place.finding(
            "unequal-channels",
            f'The {way} channels of the weight "{place.value}" are too unlike for one scale.',
            f"Of {len(peaks)} {len(which)} {'has' if len(which) == 1 else 'have'} fewer than {_FEW_STEPS:.0f} of "
            f"{place.steps} steps: channel {_listed(which)}, at the least {place.steps * peaks[which[0]]:.2g}.",
            fix,
            channels=which,
        )
        return


def long_tail(place: Suspect) -> Iterator[Finding]:
    """Few large elements everywhere, for which all others pay."""
    seen = place.watched
    if place.amax is None or seen is None or place.precision not in _INTEGERS or not seen.seen.count:
        return
    share = 1e-3
    inner = _quantile(seen, 1 - share)
    if inner <= 0 or place.amax < _OUTLIER * inner:
        return
    yield place.finding(
        "long-tail",
        f'One element in a thousand of "{place.value}" takes the steps from all others.',
        f"999 of 1,000 stay below {number(inner)}, the threshold is {number(place.amax)}: they have "
        f"{place.steps * inner / place.amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile.",
    )


def two_scales(place: Suspect) -> Iterator[Finding]:
    """A sum whose one operand is smaller than the rounding of the other."""
    if place.node.op not in {"Add", "Sub", "Sum"} or place.amax is None or place.beside is None:
        return
    if place.precision not in _INTEGERS:
        return
    step = place.amax / place.steps
    if not 0 < place.beside.rms < _DROWNED * step:
        return
    yield place.finding(
        "two-scales",
        f'"{place.node.title}" adds operands of unlike size: rounding the large one drowns the small one.',
        f'"{place.value}" has steps of {number(step)}; the other operand, "{place.beside.value}", is '
        f"{number(place.beside.rms)} on the root mean square.",
        "Leave this operand in a higher precision, or choose a calibrator with a smaller threshold for it.",
    )


def coarse_weights(place: Suspect) -> Iterator[Finding]:
    """Weights of four bits, which have sixteen numbers at most."""
    if place.quantizer.part != "weight" or place.precision not in _FOUR_BITS:
        return
    yield place.finding(
        "coarse-weights",
        f'The weight "{place.value}" has four bits, and this layer feels it.',
        "Each block of it is rounded to one of sixteen numbers.",
        "Let its rounding be chosen by what the layer computes, weight by weight; or keep the layer in INT8.",
    )


def delicate(place: Suspect) -> Iterator[Finding]:
    """A softmax or a normalization in a narrow type."""
    if place.node.op not in _DELICATE or place.precision is Precision.TF32:
        return
    yield place.finding(
        "delicate-operator",
        f'"{place.node.title}" computes in {place.precision.upper()}, which {place.node.op} bears badly.',
        "Its result hangs on small differences or on sums of squares.",
        "Keep it in FP32: it is a small part of the time.",
    )


#: In the order in which they are told: what is a mistake before what is the nature of the numbers.
RULES: tuple[Callable[[Suspect], Iterator[Finding]], ...] = (
    overflow,
    flushed,
    far_off,
    one_sample,
    too_few,
    clipping,
    outlier_channels,
    two_scales,
    unequal_channels,
    unequal_weights,
    long_tail,
    coarse_weights,
    delicate,
)


def _largest(place: Suspect) -> float:
    return max((w.amax for w in (place.calibrated, place.fresh) if w is not None), default=0.0)


def _middle(peaks: NDArray[np.float64]) -> float:
    """The median of channels that carry anything."""
    alive = peaks[peaks > 0]
    return float(np.median(alive)) if alive.size else 0.0


def _quantile(seen: Watched, share: float) -> float:
    """The magnitude that this share of all elements, zeros included, does not exceed: the upper edge of its bin."""
    found = seen.seen
    below = np.cumsum(np.concatenate([[found.zeros + found.small], found.counts]))
    at = int(np.searchsorted(below, share * found.count))
    return float(found.edges[min(at, len(found.edges) - 1)]) if at else 0.0


def _listed(which: tuple[int, ...]) -> str:
    more = len(which) - _NAMED
    return ", ".join(map(str, which[:_NAMED])) + (f" and {more} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
