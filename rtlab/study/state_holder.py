"""The one object of a study that changes: it holds the state, and notifies views."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Mapping

from rtlab.analyses.study_state import StudyState
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import View
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import VariantError


class StateHolder:
    """Holds the state of a study, and replaces it."""

    def __init__(self, state: StudyState) -> None:
        self.state = state
        #: Views that are notified, in the thread of the change; one that is gone drops out.
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        self._lock = threading.Lock()

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
            data = CalibrationData.random(self.state.model)
            self.update(
                lambda state: state if state.data is not None else dataclasses.replace(state, data=data)
            )
        assert self.state.data is not None  # noqa: S101 - data is only ever replaced by other data
        return self.state.data

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


def check_variant_name(name: object) -> None:
    """Raise ``VariantError`` where what a variant is to be called is no name."""
    if not isinstance(name, str):
        raise VariantError(f'Cannot call a variant "{name}": it is no name. Choose a name such as "int8".')
