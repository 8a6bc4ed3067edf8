"""Some samples in place of all: errors and scores of every variant on these alone, until all are wanted again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.core.data import CalibrationData
from rtlab.core.facts import Facts
from rtlab.core.lazy import LazyArray
from rtlab.core.phrases import many
from rtlab.core.protocols import Progress
from rtlab.core.stage import BUDGET_S, Budget, Stage, Standing, budget_of
from rtlab.errors import CalibrationError, boundary
from rtlab.session.contents import Chosen, Contents
from rtlab.session.measuring import planned
from rtlab.session.runs import Runs
from rtlab.session.watching import watching

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
        found = self._kept.chosen
        return () if found is None else found.samples

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
        seconds = budget_of(budget_s)
        with watching(progress) as watched:
            self._answered(watched)
        found = None if samples is None else self._chosen(samples)
        with self._lock:
            self._kept = _turned(self._kept, found)
        self._changed()
        with watching(progress) as watched:
            for name, facts in self.facts.items():
                if not facts.recorded and any(
                    facts.stages[s].state == "waiting" for s in _STAGES if s in facts.stages
                ):
                    job = self._job(name, watched)
                    # Whoever stops this before its turn finds it to be gone on with.
                    self._keep(job, planned(job, facts, "cancelled"))
            for name, facts in self.facts.items():
                if not facts.recorded and any(s.why == "cancelled" for s in facts.stages.values()):
                    whole = dataclasses.replace(self._job(name, watched), whole=True)
                    self._follow(whole, facts, watched, Budget(seconds))
        return self

    def use(self, data: Any) -> Self:
        """Take other samples, as ``Observations.use`` does; a choice among those before is over."""
        if self.task is None:
            self._change(lambda kept: _turned(kept, None) if kept.chosen is not None else kept)
        return super().use(data)

    def _chosen(self, samples: Iterable[int]) -> Chosen:
        data = self.task.data if self.task is not None else self.data
        doing = "Cannot choose samples"
        try:
            listed = tuple(sorted({_whole(i) for i in samples}))
        except TypeError as error:
            raise CalibrationError(f"{doing}: {error}. Give whole numbers, such as [3, 17].") from error
        if not listed:
            raise CalibrationError(f"{doing}: none is named. Give some numbers, or None for all samples.")
        if listed[0] < 0 or listed[-1] >= len(data):
            wild = listed[0] if listed[0] < 0 else listed[-1]
            raise CalibrationError(
                f"{doing}: there is no sample {wild} in {data.source}, which has {len(data)}. Count from 0 to "
                f"{len(data) - 1}."
            )
        part, task = _part(data, listed), None
        if self.task is not None:
            labels = self.task.labels[list(listed)]
            task = dataclasses.replace(self.task, data=part, labels=labels, picked=True)
        return Chosen(listed, part, task)


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
        data, arrays=arrays, source=f"{many(len(rows), 'chosen sample')} of {data.source}"
    )


def _whole(number: Any) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f'"{number}" is no number of a sample')
    return int(number.__index__())


def _turned(kept: Contents, chosen: Chosen | None) -> Contents:
    """With other samples chosen: what is known of all comes back, or is set aside."""
    whole = dict(kept.facts if kept.chosen is None else kept.whole)
    facts = {n: _turn(f, whole.get(n), back=chosen is None) for n, f in kept.facts.items()}
    aside = {} if chosen is None else whole
    return dataclasses.replace(
        kept, chosen=chosen, facts=MappingProxyType(facts), whole=MappingProxyType(aside)
    )


def _turn(facts: Facts, whole: Facts | None, *, back: bool) -> Facts:
    """Without what rests on other samples, or ``back`` with what is known of all, where that is of the same engine."""
    if facts.recorded:
        return facts
    if back and whole is not None and whole.engine is facts.engine:
        stages = {**facts.stages, **{s: whole.stages[s] for s in _STAGES if s in whole.stages}}
        return dataclasses.replace(facts, errors=whole.errors, score=whole.score, stages=stages)
    # A stage with nothing to find out stays so.
    stages = {
        s: Standing(s, "waiting") if s in _STAGES and w.state != "none" else w
        for s, w in facts.stages.items()
    }
    return dataclasses.replace(facts, errors=None, score=None, stages=stages)
