"""Observation of a model's tensors: ranges for calibration, and statistics of the tensors around one node."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.analyses.inspection import tensors as _tensors
from rtlab.backends.reference import get_evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.core.ranges import Ranges
from rtlab.core.value import dtype_text
from rtlab.core.variant import Variant
from rtlab.errors import CalibrationError, Cancelled, RunError
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import display, quantizable
from rtlab.quantize.input_statistics import SAMPLES, InputCollector, plan_input_stats
from rtlab.quantize.ranges import STRIDE, Collector

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Samples on which a node is observed that calibration did not watch.
_OBSERVED = 4


def observe_part(
    model: Model, data: CalibrationData, stride: int = STRIDE, progress: Progress | None = None
) -> Ranges:
    """Ranges of every quantizable value on some samples; another process or machine may run it."""
    collector = Collector(quantizable(model), stride=stride)
    _observe(model, data, collector, progress or Silent(), quantizable(model))
    return collector.ranges


def observe_values(model: Model, names: Sequence[str], data: CalibrationData, progress: Progress) -> Ranges:
    """Ranges of the named values alone."""
    collector = Collector(names)
    _observe(model, data, collector, progress, names)
    return collector.ranges


def _observe(
    model: Model, data: CalibrationData, collector: Collector, progress: Progress, names: Sequence[str]
) -> None:
    """Run the model on the samples that the collector has not counted yet."""
    runner, skip = get_evaluator(), collector.samples
    size = batch_size(model, names, data, runner)
    progress.phase("Calibrating", None if data.count is None else data.count - skip)
    with runner.reading(model, names, progress=progress) as fetch:
        collector.run(
            data.batches(model, size, skip=skip), fetch, progress, functools.partial(data.samples_in, model)
        )


def observe_peaks(
    model: Model, axes: Mapping[str, int], data: CalibrationData, progress: Progress
) -> Mapping[str, NDArray[np.float64]]:
    """The largest magnitude of each channel of values, by the axis of the channels, on so many samples as suffice.

    Raises:
        Cancelled: the work was stopped.
    """
    peaks, names = dict[str, Any](), tuple(axes)
    data = data.take(max(SAMPLES, fixed_batch(model)))
    size = batch_size(model, names, data, get_evaluator())
    for values in _iter_values(model, names, data, size, progress, phase="Observing channels"):
        for name, axis in axes.items():
            x = np.abs(np.asarray(values[name], np.float64))
            most = x.max(axis=tuple(i for i in range(x.ndim) if i != axis))
            peaks[name] = most if name not in peaks else np.maximum(peaks[name], most)
    return peaks


def observe_part_inputs(
    model: Model, part: Model, data: CalibrationData, progress: Progress
) -> CalibrationData:
    """The values that enter a part of a model, one whole tensor for each of the samples that fit into an inference.

    Raises:
        Cancelled: the work was stopped.
    """
    names = tuple(part.inputs)
    batches = list(_iter_values(model, names, data, 1, progress, phase="Computing what enters the part"))
    return CalibrationData(
        {n: np.stack([np.asarray(values[n]) for values in batches]) for n in names},
        f"values of {data.source}",
        synthetic=data.synthetic,
    )


def _iter_values(
    model: Model, names: Sequence[str], data: CalibrationData, size: int, progress: Progress, *, phase: str
) -> Iterator[Mapping[str, Any]]:
    """Values and inputs of a model, batch by batch."""
    progress.phase(phase, data.count)
    with get_evaluator().reading(model, names, progress=progress) as fetch:
        for batch in data.batches(model, size):
            check(progress, f"{phase[0].lower()}{phase[1:]}")
            yield {**batch, **fetch(batch)}
            progress.advance(data.samples_in(model, batch))


class Observer:
    """Observes a model: all values at once for calibration, those of one node on demand."""

    def __init__(self, model: Model, stride: int = STRIDE) -> None:
        self.model, self._stride = model, stride
        self._merged_ranges: Ranges | None = None
        self._sources: list[str] = []
        self._random = False
        #: Whether the data of ``ranges`` was seen to its end.
        self.complete = False
        #: Two passes at once would count every sample twice.
        self._pass_lock = threading.RLock()

    @functools.cached_property
    def _collector(self) -> Collector:
        """Made at the first pass: to list what is quantizable takes half a second for a large model."""
        return Collector(quantizable(self.model), stride=self._stride)

    @property
    def observed_ranges(self) -> Ranges | None:
        """What was observed so far, None before anything was."""
        has_collector = "_collector" in vars(self)
        collected_ranges = self._collector.ranges if has_collector and self._collector.samples else None
        if collected_ranges is None or self._merged_ranges is None:
            return collected_ranges or self._merged_ranges
        return collected_ranges.merge(self._merged_ranges)

    def ranges(
        self, data: CalibrationData, progress: Progress, executor: Executor | None = None, parts: int = 1
    ) -> Ranges:
        """Activation ranges on the data of the first call; goes on where a stopped call ended.

        The workers of an ``executor`` observe a part each; stopped, what they saw is lost.
        """
        with self._pass_lock:
            if not self.complete:
                if executor is None:
                    _observe(self.model, data, self._collector, progress, quantizable(self.model))
                else:
                    parts_ranges = self._observe_in_parallel(data, executor, parts, progress)
                    # The parts cover what a stopped pass has seen already.
                    vars(self).pop("_collector", None)
                    self._add(parts_ranges)
                self.complete = True
            ranges = self.observed_ranges
        assert ranges is not None  # noqa: S101 - a collector that ran to its end has seen a sample
        return ranges

    def observe_more(
        self, data: CalibrationData, progress: Progress, executor: Executor | None = None, parts: int = 1
    ) -> None:
        """Observe other samples too; they count as soon as all of them were seen."""
        with self._pass_lock:
            self._add(
                observe_part(self.model, data, self._stride, progress)
                if executor is None
                else self._observe_in_parallel(data, executor, parts, progress)
            )
            self._sources.append(data.source)
            self._random |= data.synthetic

    def _observe_in_parallel(
        self, data: CalibrationData, executor: Executor, parts: int, progress: Progress
    ) -> Ranges:
        """Ranges of samples of which an executor's workers observe a part each."""
        if parts < 1:
            raise CalibrationError(f"Cannot observe in {parts} parts. Give at least one.")
        progress.phase("Calibrating", parts)
        shares = [data.part(i, parts, model=self.model) for i in range(parts)]
        futures = [executor.submit(observe_part, self.model, share, self._stride) for share in shares]
        part_ranges: list[Ranges] = []
        try:
            for future in futures:
                check(progress, "observing the activations")
                part_ranges.append(future.result())
                progress.advance()
        finally:
            for future in futures:
                future.cancel()
        return functools.reduce(Ranges.merge, part_ranges)

    def source(self, data: CalibrationData) -> str:
        """Where the samples came from."""
        return " and ".join(dict.fromkeys([data.source, *self._sources]))

    def synthetic(self, data: CalibrationData) -> bool:
        """Whether random samples are among what was observed."""
        return data.synthetic or self._random

    def inputs(
        self, variant: Variant, ready: Prepared, data: CalibrationData, progress: Progress
    ) -> LayerInputs:
        """What the products read that a variant's transforms are for, on so many samples as suffice.

        ``ready`` is the model prepared for the variant without them. Stopped, it returns what was seen.

        Raises:
            Cancelled: stopped before anything was seen.
        """
        layer_inputs, skipped = plan_input_stats(self.model, variant, ready)
        if not layer_inputs:
            return LayerInputs({}, 0, skipped)
        collector, runner = InputCollector(layer_inputs), get_evaluator()
        data = data.take(max(SAMPLES, fixed_batch(self.model)))
        size = batch_size(self.model, collector.values, data, runner)
        progress.phase("Observing what products read", data.count)
        with self._pass_lock, runner.reading(self.model, collector.values, progress=progress) as fetch:
            try:
                collector.run(
                    data.batches(self.model, size),
                    fetch,
                    progress,
                    functools.partial(data.samples_in, self.model),
                )
            except Cancelled:
                if not collector.samples:
                    raise
        return collector.build_layer_inputs(skipped)

    def _add(self, ranges: Ranges) -> None:
        self._merged_ranges = ranges if self._merged_ranges is None else self._merged_ranges.merge(ranges)

    def weights(self, node: str) -> tuple[_tensors.TensorStats, ...]:
        """Statistics of the constants that a node reads."""
        statistics = (
            _tensors.compute_stats(
                [tensor.numpy()],
                name=name,
                kind="weight",
                dtype=dtype_text(tensor.dtype),
                shape=tuple(tensor.shape.numpy()),
                source="weights of the model",
            )
            for name, tensor in self.model.constants(node).items()
            if tensor.dtype != ir.DataType.STRING
        )
        return tuple(stats for stats in statistics if stats is not None)

    def activations(
        self, node: str, data: CalibrationData, progress: Progress
    ) -> tuple[_tensors.TensorStats, ...]:
        """Statistics of what a node of the main graph writes, in fp32."""
        graph_node = self.model.node(node)
        if graph_node.scope:
            raise RunError(
                f'Cannot observe node "{graph_node.title}": it stands inside "{graph_node.scope[0]}", and tensors of '
                "a body or a function cannot be read from outside. Select the node that owns it."
            )
        names = [o for o in graph_node.outputs if o]
        ranges = self.observed_ranges
        observed = {n for n in names if ranges is not None and n in ranges.values}
        measured = self._measure_stats([n for n in names if n not in observed], data, progress)
        statistics = (
            self._calibration_stats(n, ranges, data)
            if ranges is not None and n in observed
            else measured.get(n)
            for n in names
        )
        return tuple(stats for stats in statistics if stats is not None)

    def _calibration_stats(self, name: str, ranges: Ranges, data: CalibrationData) -> _tensors.TensorStats:
        value, value_range = self.model.values[name], ranges.values[name]
        return _tensors.summarize_magnitudes(
            name,
            dtype=value.dtype,
            shape=value.shape,
            source=f"calibration on {ranges.samples} samples of {data.source}",
            minimum=value_range.min,
            maximum=value_range.max,
            zeros=value_range.zeros,
            small=value_range.small,
            fine=(value_range.edges, value_range.counts),
            coarse=display(ranges, name, _tensors.BINS),
        )

    def _measure_stats(
        self, names: Sequence[str], data: CalibrationData, progress: Progress
    ) -> dict[str, _tensors.TensorStats]:
        if not names:
            return {}
        data = data.take(max(_OBSERVED, fixed_batch(self.model)))
        size = min(_OBSERVED, batch_size(self.model, names, data, get_evaluator()))
        batches = list(_iter_values(self.model, names, data, size, progress, phase="Observing a node"))
        statistics = {}
        for name in names:
            arrays = [b[name] for b in batches if isinstance(b[name], np.ndarray)]
            if not arrays or arrays[0].dtype.kind not in "fiubV":
                continue
            value = self.model.values[name]
            stats = _tensors.compute_stats(
                arrays,
                name=name,
                kind="activation",
                dtype=value.dtype,
                shape=value.shape,
                source=f"{get_evaluator().source}, {pluralize(len(data), 'sample')} of {data.source}",
            )
            if stats is not None:
                statistics[name] = stats
        return statistics
