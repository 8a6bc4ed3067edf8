"""What changed from one variant of a study to another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TypeVar

from rtlab import backends
from rtlab.analyses.bisection import Bisection
from rtlab.backends.capabilities import require_capability
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.protocols import Builder, Progress
from rtlab.errors import BackendError, Unavailable, VariantError, boundary
from rtlab.experiments.bisecting import BisectionSearch, BisectionSide
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.why import get_builder
from rtlab.study.progress import report_progress
from rtlab.study.runs import Runs

R = TypeVar("R")


class Bisections(Runs[R]):
    """Looks for what changed."""

    @boundary("look for what changed")
    def bisect(
        self,
        first: str,
        second: str,
        *,
        builds: int = 200,
        seconds: float = 60.0,
        progress: Progress | None = None,
    ) -> Bisection:
        """What changed from one variant to another: groups of nodes, and for each the fewest that show it.

        The two may differ in their compiler, their precision or their options; of a compiler that refuses the model
        the fewest nodes are found that it refuses. Of engines from files the groups alone are told. What is not built
        yet is built first. What was found before a cancel, or within the budget, is the answer.

        Args:
            first: A variant.
            second: Another one.
            builds: How many parts may be built.
            seconds: How long it may take, but for a build that is at work by then.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant.
            Cancelled: stopped before anything was found.
        """
        for name in (first, second):
            self._require_variant(name, "bisect")
        with report_progress(progress) as reporter:
            one, two = (self._side(name, reporter) for name in (first, second))
            if one.title == two.title:
                one, two = (
                    dataclasses.replace(s, title=n, on=s.title) for s, n in ((one, first), (two, second))
                )
            rig: WorkContext[object] = WorkContext(None, reporter, Budget(seconds, builds))
            try:
                return run_experiment(
                    BisectionSearch(one, two), rig, functools.partial(self._keep_bisection, first, second)
                )
            finally:
                self._notify_views()

    def _keep_bisection(self, first: str, second: str, bisection: Bisection) -> None:
        self._update_state(lambda state: state.with_bisection(first, second, bisection))

    def _side(self, name: str, progress: Progress) -> BisectionSide:
        """A variant as a bisection takes it, built where it is not yet."""
        if name not in self.facts:
            with contextlib.suppress(BackendError):
                self.run([name], progress=progress, compare=False)
        variant, facts = self.variants[name], self.facts.get(name)
        if facts is None:
            prepared_model = self.prepare(name, progress=progress).model
            compiler: Builder = require_capability(variant.backend or "", "builds", "build")
            version = backends.get(variant.backend or "").availability().version
            title = f"{backends.get(variant.backend or '').capabilities().maker.title} {version} · {variant.target}"
            return BisectionSide(title, prepared_model, variant, compiler, None, str(self.failures[name]))
        builder: Builder | None = None
        with contextlib.suppress(VariantError, Unavailable):
            builder = get_builder(facts)
        return BisectionSide(facts.engine.title, facts.prepared.model, facts.variant, builder, facts)
