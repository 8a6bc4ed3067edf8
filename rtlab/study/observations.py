"""Observations of a study's model on its samples."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.study_state import StudyState
from rtlab.backends.reference import get_evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.facts import SCORED, Ranked
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.core.task import Predictions, Task
from rtlab.core.variant import Variant
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import apply_transforms, existing_qdq
from rtlab.study.observer import Observer, observe_peaks
from rtlab.study.state_holder import StateHolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtlab.core.ranges import Ranges


class Observations:
    """The observers of a study: of its model, and of those that its variants' transforms make of it."""

    def __init__(self, holder: StateHolder, stride: int) -> None:
        self.holder, self._stride = holder, stride
        self._forget()

    def _forget(self) -> None:
        self.observer = Observer(self.holder.state.model, self._stride)
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
    def comparison_data(self) -> CalibrationData:
        """What variants run on: all samples, or those that are selected where there is no task."""
        selection = self.holder.state.selection
        return self.holder.data if selection is None or selection.task is not None else selection.data

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
        reader, predictions = get_evaluator(), Predictions()
        data = task.data.take(max(SCORED, fixed_batch(model)))
        output_names = task.wanted(model)
        progress.phase("Asking fp32 for the labels", len(data))
        with reader.reading(model, output_names, progress=progress, limit_s=limits.seconds) as read:
            for batch in data.batches(model, batch_size(model, output_names, data, reader)):
                check(progress, "asking fp32 for the labels")
                count = data.samples_in(model, batch)
                predictions.add(read(batch), count)
                progress.advance(count)
        labelled_task = dataclasses.replace(task.answered(predictions.concatenate()), data=data)
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
        return self._variant_observers.setdefault(key, Observer(transformed_model, self._stride))

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
