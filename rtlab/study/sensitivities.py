"""What the search for the causes of a variant's error runs on."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.analyses.sensitivity import Effects, LossName
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent
from rtlab.core.protocols import Evaluator
from rtlab.errors import CalibrationError, Cancelled, VariantError
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.study.observations import Observations

if TYPE_CHECKING:
    from numpy.typing import NDArray


def get_loss_inputs(
    observations: Observations, loss: LossName | None, labels: Any
) -> tuple[CalibrationData, LossName, NDArray[np.int64] | None]:
    """The samples, the loss, and the labels that it takes."""
    task = observations.holder.state.task
    data = observations.holder.data if task is None else task.data
    loss_name: LossName = loss or ("outputs" if labels is None else "labels")
    if loss_name == "outputs":
        return data, loss_name, None
    if labels is None and task is not None:
        task = observations.ensure_labels(Silent())
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


def search_in_executor(
    search: SensitivitySearch, executor: Executor, parts: int, rig: WorkContext[Evaluator]
) -> Effects:
    """Effects on all samples, a part of them in each of an executor's workers.

    How the first part was found, by estimates or by runs, the others are. Stopped, or over its time, it gives what is
    known of the parts up to there.
    """
    if parts < 1:
        raise CalibrationError(f"Cannot measure sensitivity in {parts} parts. Give at least one.")
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
    rig.phase(f"Ranking by sensitivity in {parts} parts", parts)
    part_effects: list[Effects] = []
    futures = [executor.submit(_compute_effects, searches[0], rig.budget.seconds)]
    try:
        for k in range(parts):
            part_effects.append(rig.wait_for(futures[k], "ranking by sensitivity"))
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


def check_choices(**choices: tuple[str, tuple[str, ...]]) -> None:
    """Raise ``VariantError`` where a choice is not among those that are allowed."""
    for name, (choice, allowed_choices) in choices.items():
        if choice not in allowed_choices:
            raise VariantError(
                f'Cannot measure sensitivity with {name}="{choice}": there is no such choice. Choose '
                f"{quote_names(allowed_choices)}."
            )
