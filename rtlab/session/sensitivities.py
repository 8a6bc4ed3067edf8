"""What of a variant is guilty of its error."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtlab.backends.reference import evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.phrases import quoted
from rtlab.core.progress import Silent
from rtlab.core.protocols import Evaluator, Progress
from rtlab.core.stage import BUDGET_S
from rtlab.errors import CalibrationError, Cancelled, VariantError, boundary
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.quantize import own, rewrites
from rtlab.questions.sensitivity import ASKED, BY, LOSSES, Asks, By, Effects, LossName, Sensitivity
from rtlab.session.runs import Runs
from rtlab.session.watching import watching

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
        planned = self._known(variant, "look for the guilty")
        _check(asks=(asks, tuple(ASKED)), by=(by, tuple(BY)), loss=(loss or "outputs", tuple(LOSSES)))
        data, chosen, known = self._wanted(loss, labels)
        key = (asks, by, chosen)
        before = self._kept.sensitivities.get(variant, {}).get(key)
        effects = before.effects if before is not None and not again else None
        with watching(progress) as watched:
            ready = self.prepare(variant, progress=watched)
            source, emulation = self._compared(ready, planned, watched)
            search = SensitivitySearch(
                variant,
                source,
                emulation,
                data,
                asks,
                by,
                chosen,
                known,
                verify,
                begun=effects if effects is not None and effects.data is data else None,
            )

            def keep(found: Sensitivity) -> None:
                self._change(lambda kept: kept.sensed(variant, key, found))

            rig = Rig(evaluator(), watched, Allowance(budget_s))
            try:
                if executor is not None and search.begun is None:
                    search = dataclasses.replace(search, begun=_spread(search, executor, parts, rig))
                return carry_out(search, rig, keep)
            finally:
                self._changed()

    def _compared(self, ready: Prepared, planned: Variant, progress: Progress) -> tuple[Model, Model]:
        """What a variant is compared with, place by place, and what is compared with it.

        A model's own pairs round as well, so that it is compared without them.
        """
        source = ready.reference or rewrites.rewritten(self.model, planned.rewrites)
        return own.apart(source, ready.emulate(progress))

    def _wanted(
        self, loss: LossName | None, labels: Any
    ) -> tuple[CalibrationData, LossName, NDArray[np.int64] | None]:
        """The samples, the loss, and the labels that it takes."""
        task = self.task
        data = self.data if task is None else task.data
        chosen: LossName = loss or ("outputs" if labels is None else "labels")
        if chosen == "outputs":
            return data, chosen, None
        if labels is None and task is not None:
            task = self._answered(Silent())
        told = labels if labels is not None else None if task is None else task.labels
        if told is None:
            raise CalibrationError(
                "Cannot take the cross-entropy of labels: there are none. Give labels=, one for each sample, or a task."
            )
        known = np.asarray(told)
        if data.count is not None and len(known) != data.count:
            raise CalibrationError(
                f"Cannot take the cross-entropy of labels: there are {len(known)} labels for {data.count} samples of "
                f"{data.source}. Give one for each."
            )
        return data, chosen, known


def _spread(search: SensitivitySearch, executor: Executor, parts: int, rig: Rig[Evaluator]) -> Effects:
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
    found: list[Effects] = []
    futures = [executor.submit(_effects, searches[0], rig.allowance.seconds)]
    try:
        for k in range(parts):
            found.append(rig.awaited(futures[k], "looking for the guilty"))
            rig.found = True
            rig.advance()
            if not k:
                alike = {"probes": found[0].probes} if found[0].probes else {"verify": None}
                futures += [
                    executor.submit(_effects, dataclasses.replace(one, **alike), rig.allowance.seconds)
                    for one in searches[1:]
                ]
            if rig.over:
                break
    except Cancelled:
        if not found:
            raise
    finally:
        for future in futures:
            future.cancel()
    return Effects.joined(found, search.data)


def _effects(search: SensitivitySearch, seconds: float) -> Effects:
    """What a worker finds; it reports nothing."""
    effects = carry_out(search, Rig(evaluator(), allowance=Allowance(seconds))).effects
    assert effects is not None  # noqa: S101 - what was searched here has them
    return effects


def _check(**choices: tuple[str, tuple[str, ...]]) -> None:
    for name, (given, known) in choices.items():
        if given not in known:
            raise VariantError(
                f'Cannot look for the guilty with {name}="{given}": there is no such choice. Choose {quoted(known)}.'
            )
