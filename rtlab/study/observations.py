"""Observations of a study's model on its samples."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.inspection import tensors as _tensors
from rtlab.analyses.study_state import StudyState
from rtlab.backends.reference import get_evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.facts import SCORED, Ranked
from rtlab.core.layer_inputs import LayerInputs
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.prepared import Prepared
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.core.ranges import Ranges
from rtlab.core.task import Predictions, Task
from rtlab.core.value import dtype_text
from rtlab.core.variant import Variant
from rtlab.errors import CalibrationError, Cancelled, RunError
from rtlab.experiments.running import batch_size, fixed_batch
from rtlab.quantize import apply_transforms, display, existing_qdq, quantizable
from rtlab.quantize.input_statistics import SAMPLES, InputCollector, plan_input_stats
from rtlab.quantize.ranges import STRIDE, Collector
from rtlab.study.state_holder import StateHolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Samples on which a node is observed that calibration did not watch.
_OBSERVED = 4


def observe_values(
    model: Model,
    names: Sequence[str],
    data: CalibrationData,
    progress: Progress | None = None,
    stride: int = STRIDE,
) -> Ranges:
    """Ranges of the named values on some samples; another process or machine may run it."""
    collector = Collector(names, stride=stride)
    _observe(model, data, collector, progress or Silent(), names)
    return collector.ranges


def _observe(
    model: Model,
    data: CalibrationData,
    collector: Collector | InputCollector,
    progress: Progress,
    names: Sequence[str],
    *,
    phase: str = "Calibrating",
) -> None:
    """Run the model on the samples that the collector has not counted yet."""
    runner, skip = get_evaluator(), collector.samples
    size = batch_size(model, names, data, runner)
    progress.phase(phase, None if data.count is None else data.count - skip)
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
    model: Model,
    names: Sequence[str],
    data: CalibrationData,
    size: int,
    progress: Progress,
    *,
    phase: str,
    limit_s: float | None = None,
) -> Iterator[Mapping[str, Any]]:
    """Values and inputs of a model, batch by batch."""
    progress.phase(phase, data.count)
    with get_evaluator().reading(model, names, progress=progress, limit_s=limit_s) as fetch:
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

    def restore(self, calibration: Calibration, data: CalibrationData | None) -> None:
        """Take what an earlier observer has seen to its end, on all of ``data`` and what came after."""
        self._merged_ranges, self.complete = calibration.ranges, True
        first = "" if data is None else f"{data.source} and "
        if first and calibration.source.startswith(first):
            self._sources = calibration.source.removeprefix(first).split(" and ")

    def observe_more(
        self, data: CalibrationData, progress: Progress, executor: Executor | None = None, parts: int = 1
    ) -> None:
        """Observe other samples too; they count as soon as all of them were seen."""
        with self._pass_lock:
            self._add(
                observe_values(self.model, quantizable(self.model), data, progress, self._stride)
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
        names = quantizable(self.model)
        futures = [
            executor.submit(observe_values, self.model, names, share, None, self._stride) for share in shares
        ]
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
        collector = InputCollector(layer_inputs)
        data = data.take(max(SAMPLES, fixed_batch(self.model)))
        phase = "Observing what products read"
        with self._pass_lock:
            try:
                _observe(self.model, data, collector, progress, collector.values, phase=phase)
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


class Observations:
    """The observers of a study: of its model, and of those that its variants' transforms make of it."""

    def __init__(self, holder: StateHolder, stride: int) -> None:
        self.holder, self.stride = holder, stride
        self._forget()
        if (calibration := holder.state.calibration) is not None and calibration.complete:
            self.observer.restore(calibration, holder.state.data)

    def _forget(self) -> None:
        self.observer = Observer(self.holder.state.model, self.stride)
        self._variant_observers: dict[tuple[object, ...], Observer] = {}
        self._peaks: dict[tuple[object, ...], Mapping[str, NDArray[np.float64]]] = {}

    def replace_data(self, data: CalibrationData) -> None:
        """Take other samples; observations on those before are dropped, and so is a selection among them."""
        self._forget()

        def change(state: StudyState) -> StudyState:
            all_samples = state if state.task or state.selection is None else state.with_selection(None)
            return dataclasses.replace(all_samples, data=data, calibration=None)

        self.holder.update(change)

    @property
    def selected_data(self) -> CalibrationData | None:
        """The samples that variants run on where some are selected and there is no task; None for all."""
        selection = self.holder.state.selection
        return None if selection is None or selection.task is not None else selection.data

    def scoring_task(self, progress: Progress) -> Task | None:
        """The task with labels, of the samples that are selected."""
        selection = self.holder.state.selection
        return self.ensure_labels(progress) if selection is None else selection.task

    def ranges(self, progress: Progress) -> Ranges:
        """Ranges of the model's activations on the study's data; errors as of ``Study.calibration.scales``."""
        with self.publishing():
            return self.observer.ranges(self.holder.data, progress)

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Put what the model's observer has seen into the state, whatever ends the work."""
        observer = self.observer
        try:
            yield
        finally:
            ranges = observer.observed_ranges
            if ranges is not None and observer is self.observer:
                data = self.holder.data
                seen = Calibration(ranges, data.count, observer.source(data), complete=observer.complete)

                def change(state: StudyState) -> StudyState:
                    ranking = state.calibration.ranking if state.calibration else ()
                    return with_ranking(dataclasses.replace(state, calibration=seen), ranking)

                self.holder.update(change)

    def ensure_labels(self, progress: Progress) -> Task | None:
        """The task; without labels, with the outputs of the model in fp32, which are computed once.

        Those of a model with its own Q/DQ pairs are what it gives without them.
        """
        task, source, limits = self.holder.state.task, self.holder.state.model, self.holder.state.limits
        if task is None or not task.unanswered:
            return task
        model = existing_qdq.separate_existing_qdq(source, source)[0]
        data, predictions = task.data.take(max(SCORED, fixed_batch(model))), Predictions()
        names = tuple(task.wanted(model))
        size = batch_size(model, names, data, get_evaluator())
        phase, limit_s = "Asking fp32 for the labels", limits.seconds
        for values in _iter_values(model, names, data, size, progress, phase=phase, limit_s=limit_s):
            count = data.samples_in(model, {n: values[n] for n in model.inputs})
            predictions.add({n: values[n] for n in names}, count)
        labelled_task = dataclasses.replace(
            task.answered(predictions.concatenate()), data=data.take(predictions.samples)
        )
        self.holder.update(lambda state: dataclasses.replace(state, task=labelled_task))
        return labelled_task

    def observer_of(self, variant: Variant, progress: Progress | None = None) -> Observer:
        """The observer of the model that a variant rounds: pruned weights, and scale that moved, give others."""
        key = apply_transforms.make_activation_key(variant)
        if key == ((),):
            return self.observer
        if (observer := self._variant_observers.get(key)) is not None:
            return observer
        transformed_model, _ = apply_transforms.apply_transforms(
            self.holder.state.model, variant, self.peaks_of(variant, progress or Silent())
        )
        if apply_transforms.changes_existing_pairs(variant):
            transformed_model = existing_qdq.release_all_nodes(transformed_model)
        # Of two threads the first one's is taken, and what it observes serves both.
        return self._variant_observers.setdefault(key, Observer(transformed_model, self.stride))

    def peaks_of(self, variant: Variant, progress: Progress) -> Mapping[str, NDArray[np.float64]] | None:
        """The channels' largest magnitudes that a variant's smoothing needs, observed once; None without smoothing."""
        if all(t.kind != "smooth" for t in variant.treatments):
            return None
        key, peaks = apply_transforms.make_activation_key(variant), self._peaks
        if key not in peaks:
            model, axes = apply_transforms.plan_smoothing_observation(self.holder.state.model, variant)
            peaks[key] = observe_peaks(model, axes, self.holder.data, progress) if axes else {}
        return peaks[key]


def with_ranking(state: StudyState, ranking: tuple[Ranked, ...]) -> StudyState:
    """With a ranking of calibrators beside what was observed."""
    calibration = state.calibration and dataclasses.replace(state.calibration, ranking=ranking)
    return dataclasses.replace(state, calibration=calibration)
