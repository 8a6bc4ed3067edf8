"""Some samples in place of all: errors and scores of every variant on these alone, until all are wanted again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.core.budget import BUDGET_S, Budget, parse_budget
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.lazy import LazyArray
from rtlab.core.phrases import pluralize
from rtlab.core.protocols import Progress
from rtlab.core.stage import Stage, StageStatus
from rtlab.errors import CalibrationError, boundary
from rtlab.study.measuring import plan_stages
from rtlab.study.progress import report_progress
from rtlab.study.runs import Runs
from rtlab.study.state import SampleSelection, StudyState

if TYPE_CHECKING:
    from typing_extensions import Self

R = TypeVar("R")
#: What rests on the samples that values are compared and scored on.
_STAGES = (Stage.COMPARED, Stage.SCORED)


class Selecting(Runs[R]):
    """Which samples the variants of a study are compared and scored on."""

    @property
    def chosen(self) -> tuple[int, ...]:
        """The samples that ``only`` chose, by number; empty where all count."""
        selection = self._state.selection
        return () if selection is None else selection.samples

    @boundary("choose samples")
    def only(
        self,
        samples: Iterable[int] | None,
        *,
        budget_s: float = BUDGET_S,
        progress: Progress | None = None,
    ) -> Self:
        """Compare and score every variant on some samples alone, such as those that flipped; None takes all again.

        All that views and questions tell of errors and scores is of these samples then, also of variants that are
        built meanwhile. Times, scales and ranges stay those of all data. What was known of all samples is set aside,
        and comes back without being measured anew.

        Args:
            samples: Numbers from 0, those of the task's data, or of the study's where there is no task.
            budget_s: Seconds that each variant may take.
            progress: Where to report; the host's reporter by default.

        Raises:
            CalibrationError: there is no such sample, or the data is a stream, which is read from front to back.
            Cancelled: the work was stopped. The choice holds; ``run`` goes on with what is missing.
        """
        seconds = parse_budget(budget_s)
        with report_progress(progress) as reporter:
            self._ensure_labels(reporter)
        selection = None if samples is None else self._resolve_samples(samples)
        with self._lock:
            self._state = _select_samples(self._state, selection)
        self._notify_views()
        with report_progress(progress) as reporter:
            for name, facts in self.facts.items():
                if not facts.recorded and any(
                    facts.stages[s].state == "waiting" for s in _STAGES if s in facts.stages
                ):
                    job = self._job(name, reporter)
                    # Whoever stops this before its turn finds it to be gone on with.
                    self._keep(job, plan_stages(job, facts, "cancelled"))
            for name, facts in self.facts.items():
                if not facts.recorded and any(s.why == "cancelled" for s in facts.stages.values()):
                    full_job = dataclasses.replace(self._job(name, reporter), all_samples=True)
                    self._run_stages(full_job, facts, reporter, Budget(seconds))
        return self

    def use(self, data: Any) -> Self:
        """Take other samples, as ``Observations.use`` does; a choice among those before is over."""
        if self.task is None:
            self._update_state(
                lambda state: _select_samples(state, None) if state.selection is not None else state
            )
        return super().use(data)

    def _resolve_samples(self, samples: Iterable[int]) -> SampleSelection:
        data = self.task.data if self.task is not None else self.data
        prefix = "Cannot choose samples"
        try:
            numbers = tuple(sorted({_parse_sample_number(i) for i in samples}))
        except TypeError as error:
            raise CalibrationError(f"{prefix}: {error}. Give whole numbers, such as [3, 17].") from error
        if not numbers:
            raise CalibrationError(f"{prefix}: none is named. Give some numbers, or None for all samples.")
        if numbers[0] < 0 or numbers[-1] >= len(data):
            wild = numbers[0] if numbers[0] < 0 else numbers[-1]
            raise CalibrationError(
                f"{prefix}: there is no sample {wild} in {data.source}, which has {len(data)}. Count from 0 to "
                f"{len(data) - 1}."
            )
        part, task = _part(data, numbers), None
        if self.task is not None:
            labels = self.task.labels[list(numbers)]
            task = dataclasses.replace(self.task, data=part, labels=labels, picked=True)
        return SampleSelection(numbers, part, task)


def _part(data: CalibrationData, samples: tuple[int, ...]) -> CalibrationData:
    """Some of the samples by number."""
    if not data.arrays:
        raise CalibrationError(
            f"Cannot choose samples of {data.source}: it is read from front to back. Give arrays, an .npy file or a "
            "folder of pictures."
        )
    rows = list(samples)
    arrays = {
        k: np.stack([np.asarray(a[i]) for i in rows]) if isinstance(a, LazyArray) else a[rows]
        for k, a in data.arrays.items()
    }
    return dataclasses.replace(
        data, arrays=arrays, source=f"{pluralize(len(rows), 'chosen sample')} of {data.source}"
    )


def _parse_sample_number(number: Any) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f'"{number}" is no number of a sample')
    return int(number.__index__())


def _select_samples(state: StudyState, selection: SampleSelection | None) -> StudyState:
    """With other samples chosen: what is known of all comes back, or is set aside."""
    full_facts = dict(state.facts if state.selection is None else state.all_sample_facts)
    facts = {n: _switch_samples(f, full_facts.get(n), back=selection is None) for n, f in state.facts.items()}
    saved_facts = {} if selection is None else full_facts
    return dataclasses.replace(
        state,
        selection=selection,
        facts=MappingProxyType(facts),
        all_sample_facts=MappingProxyType(saved_facts),
    )


def _switch_samples(facts: VariantResult, full_facts: VariantResult | None, *, back: bool) -> VariantResult:
    """Without what rests on other samples, or ``back`` with what is known of all, where that is of the same engine."""
    if facts.recorded:
        return facts
    if back and full_facts is not None and full_facts.engine is facts.engine:
        stages = {**facts.stages, **{s: full_facts.stages[s] for s in _STAGES if s in full_facts.stages}}
        return dataclasses.replace(facts, errors=full_facts.errors, score=full_facts.score, stages=stages)
    # A stage with nothing to find out stays so.
    stages = {
        s: StageStatus(s, "waiting") if s in _STAGES and w.state != "none" else w
        for s, w in facts.stages.items()
    }
    return dataclasses.replace(facts, errors=None, score=None, stages=stages)
