"""The one object of a study that changes: it holds the state, and notifies views."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Mapping

from rtlab.analyses.study_state import StudyState
from rtlab.analyses.titles import get_variant_titles
from rtlab.backends.reference import get_evaluator, get_stand_in
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import View
from rtlab.core.scale import Scale
from rtlab.core.task import Task
from rtlab.core.variant import Variant
from rtlab.errors import CalibrationError, VariantError
from rtlab.experiments.random_samples import draw_samples


class StateHolder:
    """Holds the state of a study, and replaces it."""

    def __init__(self, state: StudyState) -> None:
        self.state = state
        #: Views that are notified, in the thread of the change; one that is gone drops out.
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        self._lock = threading.Lock()
        #: Random samples of models at the sizes of a variant.
        self._random_samples: weakref.WeakKeyDictionary[Model, CalibrationData] = weakref.WeakKeyDictionary()

    def update(self, change: Callable[[StudyState], StudyState]) -> None:
        """Put another state in place of the present one, in one step."""
        with self._lock:
            self.state = change(self.state)

    def publish(self, change: Callable[[StudyState], StudyState]) -> None:
        """Put another state in place of the present one, and notify all views."""
        self.update(change)
        self.notify()

    def notify(self) -> None:
        """Notify all views."""
        for view in tuple(self.views):
            view.changed()

    @property
    def data(self) -> CalibrationData:
        """Samples for calibration and comparison; the user's, or random ones, which are made when they are needed.

        Raises:
            ModelError: there are none of the user, and a dimension of an input has no size.
        """
        if self.state.data is None:
            data = self._draw_samples(self.state.model)
            self.update(
                lambda state: state if state.data is not None else dataclasses.replace(state, data=data)
            )
        assert self.state.data is not None  # noqa: S101 - data is only ever replaced by other data
        return self.state.data

    def data_of(self, variant: Variant, samples: CalibrationData | None = None) -> CalibrationData:
        """The study's samples, or some of them, for a variant; random ones where it has sizes which they do not fit.

        Raises:
            ModelError: a dimension of an input has no size.
            CalibrationError: no random samples can be drawn.
        """
        if not variant.sizes:
            return self.data if samples is None else samples
        model, user_data = self.state.get_model(variant), self.state.user_data if samples is None else samples
        if user_data is not None and _fits(user_data, model):
            return user_data
        if model not in self._random_samples:
            self._random_samples[model] = self._draw_samples(model)
        return self._random_samples[model]

    def task_of(self, variant: Variant, task: Task | None) -> Task | None:
        """A task of the study for a variant; None where the variant has sizes which its samples do not fit."""
        fits = task is None or not variant.sizes or _fits(task.data, self.state.get_model(variant))
        return task if fits else None

    @staticmethod
    def _draw_samples(model: Model) -> CalibrationData:
        return draw_samples(model, get_evaluator() if get_stand_in() is not None else None)

    def result(self, name: str) -> VariantResult:
        """The facts of a variant, by its name or, where none has that name, by its title.

        Raises:
            VariantError: it is not built; or what it failed with.
        """
        state = self.state
        # A list has no hash to look for.
        if isinstance(name, str):
            if name not in state.results and name not in state.variants:
                name = next((n for n, title in get_variant_titles(state).items() if title == name), name)
            if name in state.results:
                return state.results[name]
            if name in state.failures:
                raise state.failures[name]
        hint = f"Add it with study.add; there is {quote_names(state.variants) or 'none yet'}."
        if isinstance(name, str) and name in state.variants:
            hint = "Run study.run()."
        raise VariantError(f'Cannot show variant "{name}": it is not built. {hint}')

    def variant(self, name: str, action: str) -> Variant:
        """A planned variant; ``action`` says in the error what cannot be done with one that is not.

        Raises:
            VariantError: there is no variant of this name.
        """
        variant = self.state.variants.get(name) if isinstance(name, str) else None
        if variant is None:
            raise VariantError(
                f'Cannot {action} variant "{name}": there is none of this name. Add it with study.add.'
            )
        return variant

    def plan(
        self, name: str, variant: Variant, scales: Mapping[str, Scale] | None, *, build: bool = True
    ) -> None:
        """Plan a variant; ``build`` says whether ``run`` builds it without its name."""
        self.update(lambda state: state.with_variant(name, variant, scales, build=build))


def _fits(data: CalibrationData, model: Model) -> bool:
    """Whether samples are the user's, and those of a model at its sizes."""
    if data.synthetic:
        return False
    try:
        data.check(model)
    except CalibrationError:
        return False
    return True


def check_variant_name(name: object) -> None:
    """Raise ``VariantError`` where what a variant is to be called is no name."""
    if not isinstance(name, str):
        raise VariantError(f'Cannot call a variant "{name}": it is no name. Choose a name such as "int8".')
