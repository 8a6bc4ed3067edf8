"""Per-layer times of one engine, and how they read on nodes and on the layers of another engine."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Mapping as MappingType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.core.engine import Engine
from rtlab.core.phrases import pluralize
from rtlab.core.trace import Processor, Profile
from rtlab.relation.mapping import Mapping, Pair
from rtlab.relation.roles import WORKING

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Up to this ratio of the layers' sum to the latency, the cost of timing them is no matter.
_ALIKE = 1.1
#: Of whole inferences, in percent.
PERCENTILES = (50, 90, 95, 99)


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """Median time in milliseconds, half the interquartile range, and the share of the sum of all layers.

    ``spread`` and the ``quartiles``, in milliseconds, are None where only a summary of the samples is known.
    """

    layer: str
    median: float
    spread: float | None
    share: float
    quartiles: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class SharedTime:
    """A time in milliseconds that ``shared`` boxes have together; it is not divided among them.

    It is a part of an inference (``Timing.scale``), of ``layers`` of the engine that ran. Two boxes have the same of
    them or none in common, so that times of different layers add up.
    """

    median: float
    spread: float | None
    share: float
    shared: int
    layers: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Timing:
    """Times of the layers of the engine that was run.

    ``total`` is the median of whole inferences without instrumentation, ``summed`` the sum of the layers' medians,
    both in milliseconds. The sum overstates the latency, because each layer carries the cost of its measurement.
    ``total`` is None where only the layers were timed. ``runs`` counts those of the layers and
    ``inferences`` those of the whole, each 0 where it is not known. ``percentiles`` are those of whole inferences, in
    milliseconds by percent; empty where there are too few to tell. ``samples`` are the whole inferences one by one, in
    the order of measurement, shape ``(inferences,)``, after ``warmup`` untimed ones.
    """

    source: str
    device: str
    taken: datetime.datetime | None
    runs: int
    total: float | None
    summed: float
    layers: tuple[LayerTime, ...]
    note: str = ""
    processor: Processor = "CPU"
    inferences: int = 0
    percentiles: MappingType[int, float] = dataclasses.field(default_factory=dict)
    samples: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.empty(0), repr=False)
    warmup: int = 0

    def __repr__(self) -> str:
        return f"<Timing {self.shown:.3g} ms, {len(self.layers)} layers, measured, {self.source}>"

    @property
    def shown(self) -> float:
        """One number for the whole engine in milliseconds: the inference, or else the sum of its layers."""
        return self.summed if self.total is None else self.total

    @property
    def ratio(self) -> float | None:
        """The sum of the layers by the latency of whole inferences; None where either is not known."""
        return self.summed / self.total if self.total and self.layers else None

    @property
    def scale(self) -> float:
        """What the layers' times are multiplied with where they are shown as parts of an inference.

        On a CPU each layer carries the cost of its own measurement, which in a small model is most of it. Where the sum
        exceeds the latency by more than a tenth, the layers are scaled to the latency; else this is 1.
        """
        ratio = self.ratio
        return 1 / ratio if self.processor == "CPU" and ratio is not None and ratio > _ALIKE else 1.0

    @property
    def scaled(self) -> str:
        """What stands beside layer times that were scaled; empty where they were not."""
        if self.scale == 1 or self.ratio is None:
            return ""
        return (
            f"scaled by {self.scale:.2g} to the whole inference: timed one by one, with the cost of timing each, the "
            f"layers sum to {self.ratio:.2g} times of it"
        )

    @property
    def layer_origin(self) -> Literal["measured", "estimated"]:
        """What the times of layers are as parts of an inference: a scaled time is not measured."""
        return "estimated" if self.scaled else "measured"

    @property
    def layer_source(self) -> str:
        """What stands beside the times of layers as parts of an inference."""
        return f"estimated: {self.scaled}; {self.origin}" if self.scaled else self.origin

    @property
    def origin(self) -> str:
        """What stands beside every one of these numbers."""
        day = self.taken.strftime("%Y-%m-%d") if self.taken else ""
        runs = pluralize(self.runs, "run") if self.runs else ""
        if self.inferences not in {0, self.runs}:
            inference_runs = f"the whole over {pluralize(self.inferences, 'run')}"
            runs = f"layers over {runs}, {inference_runs}" if self.layers and runs else inference_runs
        sum_note = "sum of the layers, not the latency" if self.total is None else ""
        parts = ("measured", self.source, self.device, runs, day, sum_note)
        return ", ".join(p for p in parts if p) + (f". {self.note}" if self.note else "")


def summarize_profile(profile: Profile, engine: Engine, *, note: str = "") -> Timing:
    """Reduce samples to medians and spreads, in the engine's order of execution."""
    reduced = _reduce_samples(profile.samples)
    summed = sum(median for median, _ in reduced.values())
    layers = []
    for layer_id in (y.id for y in engine.layers if y.id in reduced):
        median, quartiles = reduced[layer_id]
        spread = None if quartiles is None else (quartiles[1] - quartiles[0]) / 2
        layers.append(LayerTime(layer_id, median, spread, median / summed if summed else 0.0, quartiles))
    return Timing(
        source=profile.source,
        device=profile.device,
        taken=profile.taken,
        runs=len(profile.total) if profile.runs is None else profile.runs,
        # A single number from elsewhere is the median of an unknown number.
        inferences=len(profile.total) if len(profile.total) > 1 else 0,
        total=float(np.median(profile.total)) if len(profile.total) else None,
        percentiles={
            p: float(np.percentile(profile.total, p))
            for p in PERCENTILES
            # A sample at least has to lie beyond it.
            if len(profile.total) * (100 - p) >= 100
        },
        summed=summed,
        layers=tuple(layers),
        note=note or profile.note,
        processor=profile.processor,
        samples=profile.total,
        warmup=profile.warmup,
    )


def _reduce_samples(
    samples: MappingType[str, np.ndarray[Any, Any]],
) -> dict[str, tuple[float, tuple[float, float] | None]]:
    """Median and quartiles by layer, of all layers with as many samples at once; those without any are left out."""
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for layer, taken in samples.items():
        alike[len(taken)].append(layer)
    summaries: dict[str, tuple[float, tuple[float, float] | None]] = {}
    for count, ids in alike.items():
        if count > 1:
            table = np.stack([samples[i] for i in ids])
            low, high = np.percentile(table, [25, 75], axis=1)
            medians = np.median(table, axis=1).tolist()
            quartiles = zip(low.tolist(), high.tolist(), strict=True)
            summaries.update(zip(ids, zip(medians, quartiles, strict=True), strict=True))
        elif count:
            summaries.update((i, (float(samples[i][0]), None)) for i in ids)
    # In the order of the samples, for a sum of floats depends on it.
    return {i: summaries[i] for i in samples if i in summaries}


def map_times_to_nodes(times: Timing, mapping: Mapping) -> dict[str, SharedTime]:
    """The time of each node: that of its layers, with the number of nodes that share them.

    A layer that only serves, such as by a Q, counts for a node that it serves alone: nodes that read one quantized
    tensor have no time in common.
    """
    layers: defaultdict[str, list[str]] = defaultdict(list)
    for pair in mapping.pairs:
        if _does_work(pair, mapping) or len(mapping.of(pair.layer)) == 1:
            layers[pair.node].append(pair.layer)
    return share_times(times, layers)


def map_times_to_layers(times: Timing, measured: Mapping, target: Mapping) -> dict[str, SharedTime]:
    """The times of one engine read on the layers of another, joined by node.

    A layer of the shown engine gets the time of every measured layer that does the work of one of its nodes. Where a
    measured layer also holds nodes of other shown layers, they have one time together, which ``shared`` counts.
    """
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    for pair in measured.pairs:
        if _does_work(pair, measured):
            by_node[pair.node].append(pair.layer)
    layers: defaultdict[str, list[str]] = defaultdict(list)
    for pair in target.pairs:
        if _does_work(pair, target):
            layers[pair.layer] += by_node[pair.node]
    return share_times(times, layers)


def _does_work(pair: Pair, mapping: Mapping) -> bool:
    """Whether a layer does a node's work, or stands for it where no layer does."""
    roles = mapping.roles(pair.node)
    return pair.role in WORKING or WORKING.isdisjoint(roles)


def share_times(times: Timing, layers: MappingType[str, Iterable[str]]) -> dict[str, SharedTime]:
    """The times of boxes by the measured ``layers`` of each; boxes that have some in common have one time together."""
    by_layer = {t.layer: t for t in times.layers}
    order = {layer: at for at, layer in enumerate(by_layer)}
    timed = {box: [i for i in ids if i in by_layer] for box, ids in layers.items()}
    #: The group of each layer: all that are joined by a box, in one list.
    groups: dict[str, list[str]] = {}
    for ids in timed.values():
        for layer in ids:
            own, other = groups.setdefault(ids[0], [ids[0]]), groups.setdefault(layer, [layer])
            if own is not other:
                small, large = sorted((own, other), key=len)
                large += small
                groups.update(dict.fromkeys(small, large))
    sharing = Counter(id(groups[ids[0]]) for ids in timed.values() if ids)
    sums = {
        key: _sum([by_layer[i] for i in sorted(group, key=order.__getitem__)], sharing[key], times.scale)
        for key, group in {id(g): g for g in groups.values()}.items()
    }
    return {box: sums[id(groups[ids[0]])] for box, ids in timed.items() if ids}


def _sum(times: list[LayerTime], shared: int, scale: float) -> SharedTime:
    spreads = [t.spread for t in times if t.spread is not None]
    return SharedTime(
        median=sum(t.median for t in times) * scale,
        # Spreads of independent medians add in squares.
        spread=float(np.sqrt(sum(s**2 for s in spreads))) * scale if len(spreads) == len(times) else None,
        share=sum(t.share for t in times),
        shared=shared,
        layers=tuple(t.layer for t in times),
    )
