"""What is known of the tensors around one node: the weights that it reads, the values that it writes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.analyses.inspection import tensors as _tensors
from rtlab.backends.reference import build_reference, get_evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.engine import Engine
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
    _observe(model, data, collector, progress or Silent())
    return collector.ranges


def observe_values(model: Model, names: Sequence[str], data: CalibrationData, progress: Progress) -> Ranges:
    """Ranges of the named values alone."""
    collector = Collector(names)
    _observe(model, data, collector, progress, names=names)
    return collector.ranges


def observe_peaks(
    model: Model, axes: Mapping[str, int], data: CalibrationData, progress: Progress
) -> Mapping[str, NDArray[np.float64]]:
    """The largest magnitude of each channel of some values, in one streaming pass over so many samples as suffice.

    Args:
        model: The model.
        axes: The values, each with the axis of its channels.
        data: The samples.
        progress: Asked between batches whether to stop.

    Raises:
        Cancelled: the user asked to stop.
    """
    runner, peaks = get_evaluator(), dict[str, Any]()
    names = tuple(axes)
    data = data.take(max(SAMPLES, fixed_batch(model)))
    progress.phase("Observing channels", data.count)
    with runner.reading(model, names, progress=progress) as fetch:
        for batch in data.batches(model, batch_size(model, names, data, runner)):
            check(progress, "observing channels")
            values = {**batch, **fetch(batch)}
            for name, axis in axes.items():
                x = np.abs(np.asarray(values[name], np.float64))
                most = x.max(axis=tuple(i for i in range(x.ndim) if i != axis))
                peaks[name] = most if name not in peaks else np.maximum(peaks[name], most)
            progress.advance(data.samples_in(model, batch))
    return peaks


def observe_part_inputs(
    model: Model, part: Model, data: CalibrationData, progress: Progress
) -> CalibrationData:
    """The values that enter a part of a model, one whole tensor for each of the samples that fit into an inference.

    Raises:
        Cancelled: the user asked to stop.
    """
    runner, names = get_evaluator(), tuple(part.inputs)
    arrays: dict[str, list[NDArray[Any]]] = {n: [] for n in names}
    progress.phase("Computing what enters the part", data.count)
    with runner.reading(model, names, progress=progress) as fetch:
        for batch in data.batches(model, 1):
            check(progress, "computing what enters the part")
            values = {**batch, **fetch(batch)}
            for name in names:
                arrays[name].append(np.asarray(values[name]))
            progress.advance(data.samples_in(model, batch))
    return CalibrationData(
        {n: np.stack(a) for n, a in arrays.items()}, f"values of {data.source}", synthetic=data.synthetic
    )


def _observe(
    model: Model,
    data: CalibrationData,
    collector: Collector,
    progress: Progress,
    *,
    names: Sequence[str] | None = None,
    skip: int = 0,
) -> None:
    """Run the model on the samples after the first ``skip`` and count what it computes."""
    runner = get_evaluator()
    names = quantizable(model) if names is None else names
    size = batch_size(model, names, data, runner)
    progress.phase("Calibrating", None if data.count is None else data.count - skip)
    with runner.reading(model, names, progress=progress) as fetch:
        collector.run(
            data.batches(model, size, skip=skip),
            fetch,
            progress,
            functools.partial(data.samples_in, model),
        )


class Observer:
    """Observes a model: all values at once for calibration, those of one node on demand.

    ``Study`` has the same methods and says what they give.
    """

    def __init__(self, model: Model, stride: int = STRIDE) -> None:
        self.model, self._stride = model, stride
        self._merged_ranges: Ranges | None = None
        self._sources: list[str] = []
        self._random = False
        #: Which parts of which data an executor's workers have observed, by its identity and the number of parts.
        self._parts: dict[tuple[int, int], tuple[CalibrationData, set[int]]] = {}
        self._data: CalibrationData | None = None
        self._complete = False
        self._engine: Engine | None = None
        self._busy = threading.Lock()
        #: Who passes over the data: two passes at once would count every sample twice.
        self._pass_lock = threading.RLock()

    @functools.cached_property
    def _collector(self) -> Collector:
        """Made when something is observed: what is quantizable takes a large model half a second to tell."""
        return Collector(quantizable(self.model), stride=self._stride)

    @property
    def observed_ranges(self) -> Ranges | None:
        """What was observed so far, None before anything was."""
        has_collector = "_collector" in vars(self)
        collected_ranges = self._collector.ranges if has_collector and self._collector.samples else None
        if collected_ranges is None or self._merged_ranges is None:
            return collected_ranges or self._merged_ranges
        return collected_ranges.merge(self._merged_ranges)

    @property
    def complete(self) -> bool:
        """Whether the data of ``ranges`` was seen to its end."""
        return self._complete

    def ranges(self, data: CalibrationData, progress: Progress) -> Ranges:
        """Activation ranges on the data of the first call; goes on where a stopped call ended."""
        with self._pass_lock:
            spread = any(other is data and done_parts for other, done_parts in self._parts.values())
            if not self._complete and not spread:
                self._data = data
                _observe(self.model, data, self._collector, progress, skip=self._collector.samples)
                self._complete = True
            ranges = self.observed_ranges
        assert ranges is not None  # noqa: S101 - a collector that ran to its end has seen a sample
        return ranges

    def observe_more(self, data: CalibrationData, progress: Progress) -> None:
        """Observe other samples too; they count as soon as all of them were seen."""
        with self._pass_lock:
            self._add(observe_part(self.model, data, self._stride, progress))
            self._sources.append(data.source)
            self._random |= data.synthetic

    def observe_in_parallel(
        self, data: CalibrationData, executor: Executor, parts: int, progress: Progress
    ) -> None:
        """Observe samples in an executor's workers, a part each; in what order they end cannot matter.

        Stopped, it keeps the parts that were seen, and goes on with the others when it is called again alike.
        """
        if parts < 1:
            raise CalibrationError(f"Cannot observe in {parts} parts. Give at least one.")
        with self._pass_lock:
            if not self._complete and self._data is data:
                # The parts cover what a stopped pass has seen already.
                self._collector = Collector(quantizable(self.model), stride=self._stride)
            _, done_parts = self._parts.setdefault((id(data), parts), (data, set()))
            remaining_parts = [i for i in range(parts) if i not in done_parts]
            progress.phase("Calibrating", len(remaining_parts))
            shares = {i: data.part(i, parts, model=self.model) for i in remaining_parts}
            futures = {
                i: executor.submit(observe_part, self.model, d, self._stride) for i, d in shares.items()
            }
            try:
                for i, future in futures.items():
                    check(progress, "observing the activations")
                    self._add(future.result())
                    done_parts.add(i)
                    progress.advance()
            finally:
                for future in futures.values():
                    future.cancel()

    def source(self, data: CalibrationData) -> str:
        """Where the samples came from."""
        return " and ".join(dict.fromkeys([data.source, *self._sources]))

    def synthetic(self, data: CalibrationData) -> bool:
        """Whether random samples are among what was observed."""
        return data.synthetic or self._random

    def inputs(
        self, variant: Variant, ready: Prepared, data: CalibrationData, progress: Progress
    ) -> LayerInputs | None:
        """What the products read that a variant's treatments are for, on so many samples as suffice.

        Stopped, it gives what was seen; None where that is nothing, or nothing is asked.

        Args:
            variant: Its treatments.
            ready: The model prepared for it, without them.
            data: The samples.
            progress: Asked between batches whether to stop.
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
        return collector.build_layer_inputs(skipped)

    def _add(self, ranges: Ranges) -> None:
        self._merged_ranges = ranges if self._merged_ranges is None else self._merged_ranges.merge(ranges)

    def weights(self, node: str) -> tuple[_tensors.TensorStats, ...]:
        """Statistics of the constants that a node reads."""
        statistics = []
        for name, tensor in self.model.constants(node).items():
            if tensor.dtype == ir.DataType.STRING:
                continue
            stats = _tensors.compute_stats(
                [tensor.numpy()],
                name=name,
                kind="weight",
                dtype=dtype_text(tensor.dtype),
                shape=tuple(tensor.shape.numpy()),
                source="weights of the model",
            )
            if stats is not None:
                statistics.append(stats)
        return tuple(statistics)

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
        observed_values = ranges.values if ranges is not None else {}
        missing = [n for n in names if n not in observed_values]
        statistics = {
            n: self._calibration_stats(n, ranges, data)
            for n in names
            if ranges is not None and n in observed_values
        }
        statistics |= self._measure_stats(missing, data, progress) if missing else {}
        return tuple(statistics[n] for n in names if n in statistics)

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
        runner = get_evaluator()
        with self._busy:
            if self._engine is None:
                self._engine = build_reference(self.model, progress)
            check(progress, "observing a node")
            data = data.take(max(_OBSERVED, fixed_batch(self.model)))
            batches: list[Any] = []
            try:
                for batch in data.batches(
                    self.model, min(_OBSERVED, batch_size(self.model, names, data, runner))
                ):
                    batches.append(runner.outputs(self._engine, batch, names, progress=progress))
                    check(progress, "observing a node")
            finally:
                # Each node has a session of its own, with all weights in it.
                runner.release(self._engine)
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
                source=f"{runner.source}, {pluralize(len(data), 'sample')} of {data.source}",
            )
            if stats is not None:
                statistics[name] = stats
        return statistics
