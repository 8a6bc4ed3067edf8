"""The forms of a recurrent node, timed beside each other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.core.precision import compute_amax
from rtlab.experiments.benchmark import BenchmarkRunner, LoadedModel
from rtlab.experiments.experiment import SearchContext
from rtlab.formulations.recurrent import Form, FormName, FormTiming, Recurrent, build_forms

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The fewest rounds whose quartiles are worth telling.
_MIN_ROUNDS = 3
_ACTIVITY = "timing the forms of the recurrence"


@dataclasses.dataclass(frozen=True)
class RecurrentForms:
    """All forms of a recurrent layer run in turn on one batch of noise, so that a busy moment strikes them all.

    Attributes:
        layer: The recurrent layer.
        seconds: After this long no further round begins; every form runs at least three times.
        rounds: The most runs.
    """

    layer: Recurrent
    seconds: float = 1.2
    rounds: int = 40
    partial: ClassVar[bool] = True

    def steps(self, context: SearchContext[BenchmarkRunner]) -> Iterator[tuple[FormTiming, ...]]:
        """What is known after each round of all forms."""
        context.phase("Writing out the recurrence")
        batch = self.layer.create_batch()
        every = build_forms(self.layer)
        context.phase("Making the forms of the recurrence ready", len(every))
        loaded_models: dict[FormName, LoadedModel] = {}
        outputs: dict[FormName, NDArray[np.float64]] = {}
        for name in context.iterate(every, _ACTIVITY):
            loaded_models[name] = context.tool.open(
                every[name].model.SerializeToString(), batch, context.tool.threads
            )
            outputs[name] = np.asarray(loaded_models[name].outputs()["Y"], np.float64)
            context.count(builds=1, runs=1)
            context.advance()
        errors = {name: float(compute_amax(one - outputs["operator"])) for name, one in outputs.items()}
        times: dict[FormName, list[float]] = {name: [] for name in every}
        context.phase("Timing the forms of the recurrence", self.rounds)
        end = time.monotonic() + self.seconds
        for turn in context.iterate(range(self.rounds), _ACTIVITY):
            if turn >= _MIN_ROUNDS and time.monotonic() > end:
                return
            for name, one in loaded_models.items():
                context.check(_ACTIVITY)
                times[name].append(one.time(3))
                context.count(runs=3)
            context.advance()
            yield tuple(_summarize_times(form, times[name], errors[name]) for name, form in every.items())


def _summarize_times(form: Form, times: list[float], error: float) -> FormTiming:
    low, median, high = (float(q) for q in np.quantile(times, (0.25, 0.5, 0.75)))
    return FormTiming(form.name, form.products, form.nodes, median, low, high, len(times), error)
