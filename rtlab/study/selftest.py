"""``rtlab doctor``: the self-test over the backends that are here."""

from __future__ import annotations

from rtlab import backends
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import WorkContext
from rtlab.core.protocols import Progress
from rtlab.experiments.doctor import Report, SelfTest
from rtlab.experiments.experiment import run_experiment


def doctor(progress: Progress, *, backend: str | None = None) -> Report:
    """Try out what rtlab does here: every backend, or the named one.

    Raises:
        Unavailable: there is no backend of that name.
        Cancelled: the work was stopped.
    """
    table = backends.registry() if backend is None else {backend: backends.get(backend)}
    return run_experiment(SelfTest(table), WorkContext(get_evaluator, progress))
