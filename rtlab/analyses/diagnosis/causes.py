"""Why a place where a variant rounds loses accuracy, in words, with the evidence.

The rules read the statistics of the value alone: whether the place costs anything is for the ranking of the guilty to
say. The effect of a cause is an estimate from the histogram and the magnitudes by channel and sample, as
``rtlab.core.moments`` has it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.finding import Finding
from rtlab.core.memo import Memoizable
from rtlab.core.moments import Moments
from rtlab.core.phrases import pluralize
from rtlab.core.precision import compute_amax, compute_sqnr
from rtlab.core.variant import Calibrator, Precision
from rtlab.documents.numbers import format_number
from rtlab.quantize.existing_qdq import SURPLUS
from rtlab.quantize.thresholds import HEALTHY_CLIPPED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.quantizer import Quantizer
    from rtlab.core.ranges import Range
    from rtlab.core.variant import Variant


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


#: How many times larger than what was seen a threshold is that is far off: two of its bits are never used.
_FAR = 4.0
#: How much one sample exceeds the others that alone sets a range, and the share of samples that may do so together.
_WILD, _FEW_WILD = 4.0, 0.02
#: A threshold is no further above the largest sample where that set it.
_SET = 1.05
#: How many times a channel exceeds the middle one where it takes three bits from the others; and the share of channels
#: up to which they are outliers.
_OUTLIER, _FEW_CHANNELS = 8.0, 0.25
#: How far outliers lie above the next channel: a bit.
_GAP = 2.0
#: The same for channels that are unlike throughout: four bits.
_UNEQUAL = 16.0
#: Steps below which a channel of a weight is hardly there, and the fewest channels that are compared.
_FEW_STEPS, _SEVERAL = 4.0, 4
#: Decibels of noise that a better threshold takes away where one clips: a bit of the result.
_CLIPPING_DB = 6.0
#: The share of fresh samples that reach beyond a calibrated range, and by how much, where it rests on too few.
_OUTSIDE_SHARE, _MORE = 0.1, 1.25
#: The largest finite number of FP16; from 65,520 on a number rounds to infinity (IEEE 754-2019, 4.3.1).
_LARGEST_FP16, _INFINITE = 65504.0, 65520.0
#: The step of FP16's subnormal numbers, half of which becomes zero; and the SQNR in decibels below which they are poor.
_STEP, _POOR = 2.0**-24, 30.0
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
    findings: list[Finding] = []
    stats, amax = place.stats, place.amax
    if stats is not None and place.precision is Precision.FP16:
        findings += [*find_overflow(place, stats), *find_underflow(place, stats)]
    if stats is not None and amax is not None:
        findings += [f for rule in _THRESHOLD_RULES for f in rule(place, stats, amax)]
        if place.precision is Precision.INT8:
            findings += [f for rule in _SPREAD_RULES for f in rule(place, stats, amax)]
    findings += [*find_unequal_weights(place), *find_delicate_operator(place)]
    spread = [f for f in findings if f.rule in _SPREAD]
    # One channel that is large makes channels unlike and a tail long: the first says it all.
    return tuple(f for f in findings if f not in spread[1:])


def find_regions(model: Model, peaks: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Groups of neighbouring nodes that have to compute in more than FP16, in graph order.

    A node belongs to one where it reads or writes a value that FP16 cannot hold: pinning the one that writes it alone
    changes nothing, because the next one rounds to FP16 again.
    """
    # Importing it takes a while, and few variants overflow.
    from scipy.cluster.hierarchy import DisjointSet

    large = find_too_large_values(peaks)
    touched_values = {n.id: sorted(large & {*n.inputs, *n.outputs}) for n in model.top}
    values = DisjointSet(large)
    for one, two in (pair for group in touched_values.values() for pair in pairwise(group)):
        values.merge(one, two)
    regions: dict[str, list[str]] = {}
    for node, group in touched_values.items():
        if group:
            regions.setdefault(values[group[0]], []).append(node)
    return tuple(map(tuple, regions.values()))


def find_too_large_values(peaks: Mapping[str, float]) -> frozenset[str]:
    """Values that FP16 cannot hold, by the largest magnitude of each in the reference."""
    return frozenset(v for v, peak in peaks.items() if not peak < _INFINITE)


def find_overflow(place: QuantizerSite, stats: ActivationStats) -> Iterator[Finding]:
    """A value beyond what FP16 holds."""
    if stats.amax < _INFINITE:
        return
    overflow_mask = stats.samples >= _INFINITE
    region = place.region or (place.node.id,)
    yield place.make_finding(
        "fp16-overflow",
        f'"{place.value}" leaves the range of FP16.',
        f"It reaches {format_number(stats.amax)} in {int(overflow_mask.sum())} of {len(overflow_mask)} samples, and "
        f"FP16 ends at {_LARGEST_FP16:,.0f}: what is larger becomes infinite.",
        f"Keep {pluralize(len(region), 'node')} in FP32, from where the values grow to where they fit again, or choose "
        "BF16.",
        nodes=region,
        samples=tuple(int(i) for i in np.flatnonzero(overflow_mask)[:_NAMED]),
    )


def find_underflow(place: QuantizerSite, stats: ActivationStats) -> Iterator[Finding]:
    """A value so small that FP16 leaves little or nothing of it."""
    # Rounding to subnormals errs by a step over the root of 12, whatever the magnitude is.
    if not 0 < stats.rms < 1 or compute_sqnr(stats.rms**2, _STEP**2 / 12) >= _POOR:
        return
    remains = "all of it becomes zero" if stats.amax <= _STEP / 2 else "a few steps are left of it"
    yield place.make_finding(
        "fp16-underflow",
        f'"{place.value}" is too small for FP16.',
        f"It is {format_number(stats.rms)} on the root mean square and at most {format_number(stats.amax)}; the "
        f"smallest number of FP16 is {format_number(_STEP)}, so that {remains}.",
        "Keep what writes and what reads it in FP32, scale it up before and down behind, or choose BF16.",
    )


def find_far_off_threshold(place: QuantizerSite, stats: ActivationStats, amax: float) -> Iterator[Finding]:
    """A threshold that nothing comes near: a scale of another tensor, or of other data."""
    largest = max(stats.amax, place.calibration_stats.amax if place.calibration_stats is not None else 0.0)
    if not 0 < largest < amax / _FAR:
        return
    yield place.make_finding(
        "threshold-far-off",
        f'The threshold of "{place.value}" is {amax / largest:.3g} times its largest value.',
        f"It stands at {format_number(amax)}; no sample reaches beyond {format_number(largest)}, "
        f"{place.steps * largest / amax:.3g} of {place.steps} steps.",
        "Take the scale from observed data: another calibrator finds it.",
    )


def find_one_sample_range(place: QuantizerSite, _: ActivationStats, amax: float) -> Iterator[Finding]:
    """A range that one sample, or a few, set for all."""
    stats, fresh = place.calibration_stats, place.evaluation_stats
    if stats is None or len(stats.samples) < 4:
        return
    order = np.argsort(stats.samples)[::-1]
    peaks = stats.samples[order]
    most = max(1, int(len(order) * _FEW_WILD))
    count = next((k for k in range(1, most + 1) if peaks[k - 1] >= _WILD * peaks[k]), 0)
    if not count or not 2 * peaks[count] < amax <= _SET * peaks[0]:
        return
    if fresh is not None and fresh is not stats and (fresh.samples > peaks[0] / 2).any():
        # Others reach as far: it is rare, and no mistake.
        return
    outlier_samples = tuple(int(i) for i in sorted(order[:count]))
    yield place.make_finding(
        "one-sample-range",
        f"{pluralize(count, 'calibration sample sets', 'calibration samples set')} the range of "
        f'"{place.value}" for all others.',
        f"Sample {_format_numbers(outlier_samples)} reaches {format_number(peaks[0])}; none of the other "
        f"{len(order) - count} reaches beyond {format_number(peaks[count])}, and the threshold is "
        f"{format_number(amax)}.",
        "Leave that sample out of the calibration if it is a mistake; else choose a calibrator that clips, such as "
        "percentile.",
        samples=outlier_samples,
    )


def find_too_few_samples(place: QuantizerSite, _: ActivationStats, amax: float) -> Iterator[Finding]:
    """A range that was calibrated on so few samples that others often leave it."""
    old, new = place.calibration_stats, place.evaluation_stats
    if old is None or new is None or old is new:
        return
    outside_mask = new.samples > _MORE * amax
    if amax < 0.9 * old.amax or outside_mask.mean() < _OUTSIDE_SHARE:
        return
    sample_count = place.calibration_samples or len(old.samples)
    yield place.make_finding(
        "too-few-samples",
        f'The range of "{place.value}" was calibrated on too few samples.',
        f"{pluralize(sample_count, 'sample')} reached {format_number(old.amax)}; of {len(outside_mask)} others "
        f"{int(outside_mask.sum())} reach beyond {format_number(_MORE * amax)}, up to {format_number(new.amax)}.",
        "Calibrate on more samples, some hundred of the kind that the model will see.",
        samples=tuple(int(i) for i in np.flatnonzero(outside_mask)[:_NAMED]),
    )


def find_clipping(place: QuantizerSite, stats: ActivationStats, amax: float) -> Iterator[Finding]:
    """A threshold that cuts off what carries the signal."""
    clipped = stats.compute_clipped_share(amax)
    if not 0 < amax < stats.amax or clipped < HEALTHY_CLIPPED:
        return
    candidates = np.geomspace(stats.amax / 256, stats.amax, 65)
    noise = stats.moments.compute_noise(np.array([amax, *candidates]), place.precision.stored)
    best = int(noise[1:].argmin())
    gain_db = compute_sqnr(noise[0], noise[1 + best])
    if candidates[best] <= amax or gain_db < _CLIPPING_DB:
        return
    yield place.make_finding(
        "clipping",
        f'The threshold of "{place.value}" cuts off {100 * clipped:.3g} % of its elements.',
        f"It stands at {format_number(amax)}, the values reach {format_number(stats.amax)}; a threshold of "
        f"{format_number(float(candidates[best]))} has {gain_db:.3g} dB less noise (estimated).",
        "Choose a calibrator that keeps more, such as minmax or mse.",
    )


def find_outlier_channels(place: QuantizerSite, stats: ActivationStats, amax: float) -> Iterator[Finding]:
    """A few channels so large that the others are left with a few steps."""
    peaks = stats.channels
    middle = float(np.median(peaks[peaks > 0])) if (peaks > 0).any() else 0.0
    order = np.argsort(peaks)[::-1]
    most = min(max(1, int(len(peaks) * _FEW_CHANNELS)), len(peaks) - 1)
    if most < 1 or middle <= 0 or amax <= _OUTLIER * middle:
        return
    # They end where the next smaller channel is the farthest below.
    gaps = peaks[order[:most]] / np.maximum(peaks[order[1 : most + 1]], middle)
    count = int(gaps.argmax()) + 1
    if gaps.max() < _GAP or amax < _GAP * peaks[order[count]]:
        return
    which = tuple(int(i) for i in order[:count])
    yield place.make_finding(
        "outlier-channels",
        f'{pluralize(len(which), "channel")} of {len(peaks)} of "{place.value}" '
        f"{'takes' if len(which) == 1 else 'take'} the steps from all others.",
        f"Channel {_format_numbers(which)} reaches {format_number(peaks[which[0]])}, half of the channels stay below "
        f"{format_number(middle)}: {place.steps * middle / amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile; or equalize the channels with the layers "
        "around them.",
        channels=which,
    )


def find_unequal_channels(place: QuantizerSite, stats: ActivationStats, amax: float) -> Iterator[Finding]:
    """Channels of unlike size throughout, under one scale."""
    nonzero_peaks = stats.channels[stats.channels > 0]
    quarter = float(np.quantile(nonzero_peaks, 0.25)) if len(nonzero_peaks) >= _SEVERAL else 0.0
    if quarter <= 0 or amax / quarter < _UNEQUAL:
        return
    yield place.make_finding(
        "unequal-channels",
        f'The channels of "{place.value}" are too unlike for one scale.',
        f"They reach from {format_number(float(nonzero_peaks.min()))} to "
        f"{format_number(float(nonzero_peaks.max()))}; a quarter of them has "
        f"{place.steps * quarter / amax:.3g} of {place.steps} steps or fewer.",
        "Equalize the channels with the layers around them.",
        channels=tuple(int(i) for i in np.argsort(stats.channels)[::-1][:_NAMED]),
    )


def find_unequal_weights(place: QuantizerSite) -> Iterator[Finding]:
    """Channels of a weight that a few large ones leave without steps.

    Under one scale for the whole tensor output channels compete, and input channels do under any scale.
    """
    if place.weight is None or place.precision is not Precision.INT8:
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


def find_long_tail(place: QuantizerSite, stats: ActivationStats, amax: float) -> Iterator[Finding]:
    """Few large elements everywhere, for which all others pay."""
    histogram = stats.histogram
    below = np.cumsum([histogram.zeros + histogram.small, *histogram.counts])
    # The upper edge of the bin that 999 of 1,000 elements do not exceed.
    at = int(np.searchsorted(below, (1 - 1e-3) * histogram.count))
    inner = float(histogram.edges[min(at, len(histogram.edges) - 1)]) if at else 0.0
    if inner <= 0 or amax < _OUTLIER * inner:
        return
    yield place.make_finding(
        "long-tail",
        f'One element in a thousand of "{place.value}" takes the steps from all others.',
        f"999 of 1,000 stay below {format_number(inner)}, the threshold is {format_number(amax)}: they have "
        f"{place.steps * inner / amax:.3g} of {place.steps} steps.",
        "Choose a calibrator that clips rare values, such as percentile.",
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


_ThresholdRule = Callable[["QuantizerSite", "ActivationStats", float], Iterator[Finding]]
#: What is a mistake before what is the nature of the numbers.
_THRESHOLD_RULES: tuple[_ThresholdRule, ...] = (
    find_far_off_threshold,
    find_one_sample_range,
    find_too_few_samples,
    find_clipping,
)
_SPREAD_RULES: tuple[_ThresholdRule, ...] = (find_outlier_channels, find_unequal_channels, find_long_tail)


def _format_numbers(which: tuple[int, ...]) -> str:
    more = len(which) - _NAMED
    return ", ".join(map(str, which[:_NAMED])) + (f" and {more} more" if more > 0 else "")


#: Causes that a threshold has which clips rare values, or one that clips less.
_CLIPS = frozenset({"one-sample-range", "outlier-channels", "long-tail"})
_KEEPS = frozenset({"threshold-far-off", "clipping"})
#: Causes that another scale helps against.
SCALED = _CLIPS | _KEEPS
#: Causes that a higher precision alone takes away.
_PINS = frozenset({"fp16-overflow", "fp16-underflow", "delicate-operator"})


def list_pair_rewrites(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What ``Study.add`` takes as ``rewrites`` so that pairs of the model itself no longer stand in a wrong place."""
    pairs = (f.id.partition(":")[2] for f in findings if f.rule in SURPLUS and f.fixable)
    return tuple(f"mend {pair}" for pair in dict.fromkeys(pairs))


def choose_calibrators(findings: Iterable[Finding], variant: Variant) -> Mapping[str, Calibrator]:
    """Calibrators of single values that causes ask for, of which the variant's others keep theirs; by value."""
    calibrators: dict[str, Calibrator] = {}
    for finding in findings:
        if finding.rule in SCALED and finding.value:
            calibrators.setdefault(finding.value, _choose_calibrator(finding, variant))
    return {value: c for value, c in calibrators.items() if c != variant.calibrator}


def _choose_calibrator(finding: Finding, variant: Variant) -> Calibrator:
    """What calibrates in another way than the variant's, as a cause wants it."""
    preference = Calibrator.PERCENTILE if finding.rule in _CLIPS else Calibrator.MSE
    if variant.calibrator == preference:
        return Calibrator.MSE if preference is Calibrator.PERCENTILE else Calibrator.MINMAX
    return preference


@dataclasses.dataclass(frozen=True)
class Cure:
    """One change of a variant: what a button says, what the new variant is called, and the arguments of ``add``."""

    label: str
    title: str
    choice: Mapping[str, Any]


def pin_to_fp32(
    arguments: Mapping[str, Any], nodes: Iterable[str], quantized_nodes: Collection[str] = ()
) -> dict[str, Any]:
    """The arguments of ``add`` with some nodes in FP32; those that the model itself quantizes leave their pairs."""
    node_ids = tuple(nodes)
    pins = {**arguments["precision"], **dict.fromkeys(node_ids, Precision.FP32)}
    return {**_release_nodes(arguments, node_ids, quantized_nodes), "precision": pins}


def requantize(arguments: Mapping[str, Any], nodes: Iterable[str], calibrator: Calibrator) -> dict[str, Any]:
    """The arguments of ``add`` with nodes that the model itself quantizes in INT8 once more, by scales found here."""
    node_ids, precisions = tuple(nodes), arguments["precision"]
    # Said only where it is not so already.
    pins = {n: Precision.INT8 for n in node_ids if precisions.get(n, precisions["*"]) != Precision.INT8}
    return {
        **_release_nodes(arguments, node_ids, node_ids),
        "precision": {**precisions, **pins},
        "calibrator": calibrator,
    }


def _release_nodes(
    arguments: Mapping[str, Any], nodes: Iterable[str], quantized_nodes: Collection[str]
) -> dict[str, Any]:
    released = (f"release {n}" for n in nodes if n in quantized_nodes)
    return {**arguments, "rewrites": [*arguments["rewrites"], *released]}


def propose_cure(
    finding: Finding, name: str, variant: Variant, quantized_nodes: Collection[str] = ()
) -> Cure | None:
    """What may be done about a cause, the cheapest first; None where no choice of the variant helps.

    ``quantized_nodes`` are the nodes that the model itself quantizes: they know no calibrator until they leave their
    pairs.
    """
    arguments = get_add_arguments(variant)
    is_quantized = bool(finding.nodes) and finding.nodes[0] in quantized_nodes
    if rewrites := list_pair_rewrites([finding]):
        choice = {**arguments, "rewrites": [*arguments["rewrites"], *rewrites]}
        return Cure("Put this pair right", f"{name} mended", choice)
    if finding.rule in SCALED:
        scale = _choose_calibrator(finding, variant)
        choice = {**arguments, "calibrator": scale}
        if is_quantized:
            choice = requantize(arguments, finding.nodes[:1], scale)
        return Cure(f"Another scale: {scale}", f"{name} {scale}", choice)
    if finding.rule == "unequal-channels" and variant.weights == "tensor":
        return Cure("Scale weights per channel", f"{name} per channel", {**arguments, "weights": "channel"})
    if finding.rule == "unequal-channels" and not variant.treatments and not is_quantized:
        choice = {**arguments, "treatments": [*variant.treatments, "equalize"]}
        return Cure("Equalize the channels", f"{name} equalized", choice)
    if finding.rule in _PINS:
        count = pluralize(len(finding.nodes), "node")
        region = "region" if len(finding.nodes) > 1 else "node"
        choice = pin_to_fp32(arguments, finding.nodes, quantized_nodes)
        return Cure(f"Pin this {region}: {count} in FP32", f"{name} {count} pinned", choice)
    return None
