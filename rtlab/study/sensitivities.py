"""What of a variant is guilty of its error."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.analyses.sensitivity import ASKS, BY, LOSSES, Asks, By, Effects, LossName, Sensitivity
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import BUDGET_S, Budget, WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent
from rtlab.core.protocols import Evaluator, Progress
from rtlab.errors import CalibrationError, Cancelled, VariantError, boundary
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.quantize import existing_qdq, rewrites
from rtlab.study.progress import report_progress
from rtlab.study.runs import Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.prepared import Prepared
    from rtlab.core.variant import Variant

R = TypeVar("R")


class Sensitivities(Runs[R]):
    """Ranks what rounds."""

    @boundary("look for the guilty")
    def sensitivity(
        self,
        variant: str,
        *,
        asks: Asks = "only",
        by: By = "node",
        loss: LossName | None = None,
        labels: Any = None,
        verify: int | None = 8,
        budget_s: float = BUDGET_S,
        again: bool = False,
        executor: Executor | None = None,
        parts: int = 8,
        progress: Progress | None = None,
    ) -> Sensitivity:
        """Which nodes, or which places that round, are guilty of a variant's error, the guiltiest first.

        Effects are differences of a continuous loss on the CPU. ``reliability`` says how far a ranking on other samples
        would be the same; samples are added until it is 0.95, or the budget is used up. What was found before a cancel
        is kept, and asked once more it goes on from there. The variant need not be built. What the model itself has
        quantized counts, too: effects are differences to the model without its pairs.

        Args:
            variant: Its name.
            asks: ``only``, what a place harms where nothing else is quantized; or ``released``, what is won back where
                it alone is not.
            by: ``node``, with all that it rounds; or ``quantizer``, each place that rounds: an input, a weight, an
                output.
            loss: ``outputs``, the energy of the error of all floating-point outputs; or ``labels``, the cross-entropy
                of the task's labels. By default the latter where ``labels`` are given.
            labels: One label for each sample, in place of the task's.
            verify: How many of the first places of an estimate the model is run for; None runs it for all, and
                estimates nothing.
            budget_s: How long it may take.
            again: Whether to forget what was found before.
            executor: Any ``concurrent.futures.Executor``, whose workers take a part of the samples each; all samples
                are used then, as far as the budget goes. What comes first is verified here.
            parts: Into how many parts the samples are cut for an executor.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, nothing of it rounds, or a choice is none.
            ModelError: the model has no floating-point outputs.
            CalibrationError: there are fewer labels than samples, or they are no classes.
            RunError: the model itself gives NaN or infinity.
            Cancelled: stopped before anything was found.
        """
        planned_variant = self._require_variant(variant, "look for the guilty")
        _check(asks=(asks, tuple(ASKS)), by=(by, tuple(BY)), loss=(loss or "outputs", tuple(LOSSES)))
        data, loss_name, label_array = self._loss_inputs(loss, labels)
        key = (asks, by, loss_name)
        before = self._state.sensitivities.get(variant, {}).get(key)
        effects = before.effects if before is not None and not again else None
        with report_progress(progress) as reporter:
            ready = self.prepare(variant, progress=reporter)
            source, emulation = self._comparison_models(ready, planned_variant, reporter)
            search = SensitivitySearch(
                variant,
                source,
                emulation,
                data,
                asks,
                by,
                loss_name,
                label_array,
                verify,
                begun=effects if effects is not None and effects.data is data else None,
            )

            def keep(sensitivity: Sensitivity) -> None:
                self._update_state(lambda state: state.with_sensitivity(variant, key, sensitivity))

            rig = WorkContext(get_evaluator(), reporter, Budget(budget_s))
            try:
                if executor is not None and search.begun is None:
                    search = dataclasses.replace(
                        search, begun=_search_in_executor(search, executor, parts, rig)
                    )
                return run_experiment(search, rig, keep)
            finally:
                self._notify_views()

    def _comparison_models(
        self, ready: Prepared, planned_variant: Variant, progress: Progress
    ) -> tuple[Model, Model]:
        """What a variant is compared with, place by place, and what is compared with it.

        A model's own pairs round as well, so that it is compared without them.
        """
        source = ready.reference or rewrites.apply_rewrites(self.model, planned_variant.rewrites)
        return existing_qdq.separate_existing_qdq(source, ready.emulate(progress))

    def _loss_inputs(
        self, loss: LossName | None, labels: Any
    ) -> tuple[CalibrationData, LossName, NDArray[np.int64] | None]:
        """The samples, the loss, and the labels that it takes."""
        task = self.task
        data = self.data if task is None else task.data
        loss_name: LossName = loss or ("outputs" if labels is None else "labels")
        if loss_name == "outputs":
            return data, loss_name, None
        if labels is None and task is not None:
            task = self._ensure_labels(Silent())
        label_source = labels if labels is not None else None if task is None else task.labels
        if label_source is None:
            raise CalibrationError(
                "Cannot take the cross-entropy of labels: there are none. Give labels=, one for each sample, or a task."
            )
        label_array = np.asarray(label_source)
        if data.count is not None and len(label_array) != data.count:
            raise CalibrationError(
                f"Cannot take the cross-entropy of labels: there are {len(label_array)} labels for {data.count} "
                f"samples of {data.source}. Give one for each."
            )
        return data, loss_name, label_array


def _search_in_executor(
    search: SensitivitySearch, executor: Executor, parts: int, rig: WorkContext[Evaluator]
) -> Effects:
    """Effects on all samples, a part of them in each of an executor's workers.

    How the first part was found, by estimates or by runs, the others are. Stopped, or over its time, it gives what is
    known of the parts up to there.
    """
    if parts < 1:
        raise CalibrationError(f"Cannot look for the guilty in {parts} parts. Give at least one.")
    parts = min(parts, search.data.count or parts)
    shares = [search.data.part(i, parts, model=search.source) for i in range(parts)]
    begins = np.cumsum([0, *(s.count or 0 for s in shares)])
    searches = [
        dataclasses.replace(
            search,
            data=share,
            labels=None if search.labels is None else search.labels[begin:],
            verify=None if search.verify is None else 0,
            reach=math.inf,
        )
        for share, begin in zip(shares, begins, strict=False)
    ]
    rig.phase(f"Looking for the guilty in {parts} parts", parts)
    part_effects: list[Effects] = []
    futures = [executor.submit(_compute_effects, searches[0], rig.budget.seconds)]
    try:
        for k in range(parts):
            part_effects.append(rig.wait_for(futures[k], "looking for the guilty"))
            rig.has_result = True
            rig.advance()
            if not k:
                overrides = {"probes": part_effects[0].probes} if part_effects[0].probes else {"verify": None}
                futures += [
                    executor.submit(
                        _compute_effects, dataclasses.replace(one, **overrides), rig.budget.seconds
                    )
                    for one in searches[1:]
                ]
            if rig.is_exhausted:
                break
    except Cancelled:
        if not part_effects:
            raise
    finally:
        for future in futures:
            future.cancel()
    return Effects.concatenate(part_effects, search.data)


def _compute_effects(search: SensitivitySearch, seconds: float) -> Effects:
    """What a worker finds; it reports nothing."""
    effects = run_experiment(search, WorkContext(get_evaluator(), budget=Budget(seconds))).effects
    assert effects is not None  # noqa: S101 - what was searched here has them
    return effects


def _check(**choices: tuple[str, tuple[str, ...]]) -> None:
    for name, (choice, allowed_choices) in choices.items():
        if choice not in allowed_choices:
            raise VariantError(
                f'Cannot look for the guilty with {name}="{choice}": there is no such choice. Choose '
                f"{quote_names(allowed_choices)}."
            )
