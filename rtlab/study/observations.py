"""What a study runs its model on, and what was observed of its activations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rtlab.analyses.accuracy import describe_random_inputs
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.backends.reference import get_evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.facts import SCORED
from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Limits, Progress
from rtlab.core.ranges import Ranges
from rtlab.core.task import Predictions, Task
from rtlab.core.variant import Variant
from rtlab.errors import (
    CalibrationError,
    boundary,
)
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import apply_transforms, existing_qdq
from rtlab.quantize.ranges import STRIDE
from rtlab.study.observer import Observer, observe_peaks
from rtlab.study.progress import report_progress
from rtlab.study.variants import Variants

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray
    from typing_extensions import Self

    from rtlab.analyses.inspection.tensors import TensorStats
    from rtlab.core.facts import Ranked

R = TypeVar("R")


class Observations(Variants[R]):
    """The samples of a study, and the ranges of activations on them."""

    def __init__(
        self,
        model: Model | str | Path | bytes | onnx.ModelProto,
        *,
        data: Any = None,
        task: Task | None = None,
        limits: Limits | None = None,
        stride: int = STRIDE,
    ) -> None:
        super().__init__(model, task=task, limits=limits)
        self._data = None if data is None else CalibrationData.of(data, model=self.model)
        if self._data is not None:
            self._data.check(self.model)
        self._stride = stride
        self._observer = Observer(self.model, stride)
        self._variant_observers: dict[tuple[object, ...], Observer] = {}
        self._peaks: dict[tuple[object, ...], Mapping[str, NDArray[np.float64]]] = {}
        self._ranking: tuple[Ranked, ...] = ()

    @property
    def data(self) -> CalibrationData:
        """Samples for calibration and comparison; where none were given, random ones, made when they are asked for.

        Raises:
            ModelError: none were given, and a dimension of an input has no size.
        """
        if self._data is None:
            self._data = CalibrationData.random(self.model)
        return self._data

    @property
    def _comparison_data(self) -> CalibrationData:
        """What variants run on: all samples, or those that were chosen where there is no task."""
        selection = self._state.selection
        return self.data if selection is None or selection.task is not None else selection.data

    @property
    def _selected_task(self) -> Task | None:
        """The task, with the samples that were chosen."""
        selection = self._state.selection
        return self.task if selection is None else selection.task

    def _ensure_labels(self, progress: Progress) -> Task | None:
        """The task; where it came without labels, with the model's own answers in fp32, which are asked for once.

        Those of a model with its own Q/DQ pairs are what it gives without them.
        """
        task = self.task
        if task is None or not task.unanswered:
            return task
        model, reader, predictions = (
            existing_qdq.separate_existing_qdq(self.model, self.model)[0],
            get_evaluator(),
            Predictions(),
        )
        data = task.data.take(max(SCORED, fixed_batch(model)))
        output_names = task.wanted(model)
        progress.phase("Asking fp32 for the labels", len(data))
        with reader.reading(model, output_names, progress=progress, limit_s=self.limits.seconds) as read:
            for batch in data.batches(model, batch_size(model, output_names, data, reader)):
                check(progress, "asking fp32 for the labels")
                count = data.samples_in(model, batch)
                predictions.add(read(batch), count)
                progress.advance(count)
        self.task = labelled_task = dataclasses.replace(task.answered(predictions.concatenate()), data=data)
        return labelled_task

    def _prepare_scoring_task(self, progress: Progress) -> Task | None:
        """The task with labels, of the samples that were chosen."""
        selection = self._state.selection
        return self._ensure_labels(progress) if selection is None else selection.task

    def use(self, data: Any) -> Self:
        """Take other samples for calibration and comparison from now on: ``study.use("samples.npz").run()``.

        Variants that are built stay on screen and say what they rest on; ``run`` builds those anew whose errors or
        scales rest on random input.

        Args:
            data: Whatever ``CalibrationData.of`` takes.

        Raises:
            CalibrationError: the data cannot be read, or does not fit the model.
        """
        calibration_data = CalibrationData.of(data, model=self.model)
        calibration_data.check(self.model)
        with self._lock:
            self._data = calibration_data
            self._observer, self._variant_observers, self._peaks = Observer(self.model, self._stride), {}, {}
            self._ranking = ()
        self._notify_views()
        return self

    def outdated(self, name: str) -> bool:
        """Whether a built variant rests on random input although the study has other data by now."""
        result = self.facts.get(name)
        if result is None or result.recorded or not describe_random_inputs(result):
            return False
        return not self.data.synthetic

    @property
    def given(self) -> CalibrationData | None:
        """The samples that somebody gave; None where random ones are drawn when they are needed."""
        return self._data if self._data is not None and not self._data.synthetic else None

    def ranges(self, progress: Progress | None = None) -> Ranges:
        """Activation ranges of the model, gathered in one streaming pass over the study's data, once.

        A pass that was stopped goes on where it ended.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite.
            Cancelled: the work was stopped; what was seen is kept.
        """
        return self._observer.ranges(self.data, progress or Silent())

    @boundary("observe the samples")
    def observe(
        self,
        more: Any = None,
        *,
        executor: Executor | None = None,
        parts: int = 4,
        progress: Progress | None = None,
    ) -> Calibration:
        """Gather activation ranges for every calibrator, or add those of more samples.

        Variants that are built keep the scales that they have; ``calibrate`` builds one with the new ones.

        Args:
            more: More data, whatever ``CalibrationData.of`` takes; the study's own by default.
            executor: Any ``concurrent.futures.Executor``, whose workers observe a part each.
            parts: Into how many parts the data is cut for an executor.
            progress: Where to report; the host's reporter by default.

        Raises:
            Unavailable: nothing here can run the model.
            CalibrationError: a value is not finite, or the data does not fit the model.
            Cancelled: the work was stopped; what was seen is kept.
        """
        extra = None if more is None else CalibrationData.of(more, model=self.model)
        if extra is not None:
            extra.check(self.model)
        with report_progress(progress) as reporter:
            if executor is not None and not (extra is None and self._observer.complete):
                self._observer.observe_in_parallel(
                    self.data if extra is None else extra, executor, parts, reporter
                )
            elif extra is not None:
                self._observer.observe_more(extra, reporter)
            else:
                self._observer.ranges(self.data, reporter)
        self._ranking = ()
        return self._require_calibration()

    @property
    def calibration(self) -> Calibration | None:
        """What was observed so far; None before anything was."""
        with self._lock:
            observer, ranking = self._observer, self._ranking
        ranges = observer.observed_ranges
        if ranges is None:
            return None
        return Calibration(ranges, self.data.count, observer.source(self.data), ranking, observer.complete)

    def _require_calibration(self) -> Calibration:
        calibration = self.calibration
        if calibration is None:
            raise CalibrationError("Nothing was observed yet. Call study.observe().")
        return calibration

    def weights(self, node: str) -> tuple[TensorStats, ...]:
        """Statistics of the constants that a node reads.

        Raises:
            ModelError: there is no such node, or its weights cannot be read any more.
        """
        return self._observer.weights(node)

    def activations(self, node: str, *, progress: Progress | None = None) -> tuple[TensorStats, ...]:
        """Statistics of what a node of the main graph writes, in fp32.

        What calibration observed is taken from there; the rest is measured on a few samples.

        Raises:
            ModelError: there is no such node.
            RunError: it stands in a body or a function, or nothing here can run the model.
            Cancelled: the work was stopped.
        """
        return self._observer.activations(node, self.data, progress or Silent())

    def _observer_of(self, variant: Variant, progress: Progress | None = None) -> Observer:
        """The observer of the model that a variant rounds: pruned weights, and scale that moved, give others."""
        key = apply_transforms.make_activation_key(variant)
        if key == ((),):
            return self._observer
        observers = self._variant_observers
        if (observer := observers.get(key)) is not None:
            return observer
        transformed_model, _ = apply_transforms.apply_transforms(
            self.model, variant, self._peaks_of(variant, progress or Silent())
        )
        if apply_transforms.changes_existing_pairs(variant):
            transformed_model = existing_qdq.release_all_nodes(transformed_model)
        # Of two that ask at once the first one's is taken, and what it observes serves both.
        return observers.setdefault(key, Observer(transformed_model, self._stride))

    def _peaks_of(self, variant: Variant, progress: Progress) -> Mapping[str, NDArray[np.float64]] | None:
        """The channels' largest magnitudes that a variant's smoothing needs, observed once; None without smoothing."""
        if all(t.kind != "smooth" for t in variant.treatments):
            return None
        key, peaks = apply_transforms.make_activation_key(variant), self._peaks
        if key not in peaks:
            model, axes = apply_transforms.plan_smoothing_observation(self.model, variant)
            peaks[key] = observe_peaks(model, axes, self.data, progress) if axes else {}
        return peaks[key]
