"""The forms of a recurrent node, timed beside each other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.experiments.experiment import Rig
from rtlab.experiments.race import Bench, Ready
from rtlab.formulations.recurrent import Form, FormName, Recurrent, Timed, forms

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The fewest rounds whose quartiles are worth telling.
_LEAST = 3
_DOING = "timing the forms of the recurrence"


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

    def steps(self, rig: Rig[Bench]) -> Iterator[tuple[Timed, ...]]:
        """What is known after each round of all forms."""
        rig.phase("Writing out the recurrence")
        batch = self.layer.batch_of()
        every = forms(self.layer)
        rig.phase("Making the forms of the recurrence ready", len(every))
        opened: dict[FormName, Ready] = {}
        made: dict[FormName, NDArray[np.float64]] = {}
        for name in rig.each(every, _DOING):
            opened[name] = rig.tool.open(every[name].model.SerializeToString(), batch, rig.tool.threads)
            made[name] = np.asarray(opened[name].outputs()["Y"], np.float64)
            rig.count(builds=1, runs=1)
            rig.advance()
        errors = {name: float(np.abs(one - made["operator"]).max()) for name, one in made.items()}
        times: dict[FormName, list[float]] = {name: [] for name in every}
        rig.phase("Timing the forms of the recurrence", self.rounds)
        end = time.monotonic() + self.seconds
        for turn in rig.each(range(self.rounds), _DOING):
            if turn >= _LEAST and time.monotonic() > end:
                return
            for name, one in opened.items():
                rig.check(_DOING)
                times[name].append(one.time(3))
                rig.count(runs=3)
            rig.advance()
            yield tuple(_timed(form, times[name], errors[name]) for name, form in every.items())


def _timed(form: Form, times: list[float], error: float) -> Timed:
    low, median, high = (float(q) for q in np.quantile(times, (0.25, 0.5, 0.75)))
    return Timed(form.name, form.products, form.nodes, median, low, high, len(times), error)
