"""What changed from one variant of a study to another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import TypeVar

from rtlab import backends
from rtlab.analyses.bisection import Bisection, report
from rtlab.analyses.bisection.record import BisectionRecord
from rtlab.backends.capabilities import require_capability
from rtlab.core.progress import Silent
from rtlab.core.protocols import Builder, Progress
from rtlab.errors import BackendError, Unavailable, VariantError, boundary
from rtlab.experiments.bisecting import BisectionSearch, BisectionSide
from rtlab.experiments.experiment import SearchBudget, SearchContext, run_experiment
from rtlab.experiments.why import get_builder
from rtlab.experiments.why.oracle import forget
from rtlab.study import records
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
        folder: str | Path | None = None,
        builds: int = 200,
        seconds: float = 60.0,
        again: bool = False,
        progress: Progress | None = None,
    ) -> Bisection:
        """What changed from one variant to another: groups of nodes, and for each the smallest part that shows it.

        The two may differ in their compiler, their precision or their options; of a compiler that refuses the model
        the fewest nodes are found that it refuses. Of engines from files the groups alone are told. What is not built
        yet is built first. What was found before a cancel, or within the budget, is the answer. A whole answer is kept
        in the user's cache too: asked once more of the same model, compilers and targets, it is told at once, with the
        date on which it was found.

        Args:
            first: A variant.
            second: Another one.
            folder: Where a text for a bug report goes, with the parts and their logs; None writes nothing.
            builds: How many parts may be built.
            seconds: How long it may take, but for a build that is at work by then.
            again: Whether to ask anew what was asked before.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant.
            Cancelled: stopped before anything was found.
            RtlabError: the folder cannot be written.
        """
        for name in (first, second):
            self._require_variant(name, "bisect")
        with report_progress(progress) as reporter:
            one, two = (self._side(name, reporter) for name in (first, second))
            if one.title == two.title:
                one, two = (
                    dataclasses.replace(s, title=n, on=s.title) for s, n in ((one, first), (two, second))
                )
            bisection = None if again else records.load_bisection(self.model.name, one, two)
            if bisection is None:
                for builder in filter(None, (one.builder, two.builder) if again else ()):
                    forget(builder)
                rig: SearchContext[object] = SearchContext(None, reporter, SearchBudget(seconds, builds))
                try:
                    bisection = run_experiment(
                        BisectionSearch(one, two), rig, functools.partial(self._keep_bisection, first, second)
                    )
                finally:
                    self._notify_views()
                records.save_bisection(self.model.name, one, two, bisection)
            else:
                self._keep_bisection(first, second, bisection)
                self._notify_views()
        if folder is not None:
            report.write_report(bisection, self.model, folder)
        return bisection

    def _keep_bisection(self, first: str, second: str, bisection: Bisection) -> None:
        self._update_state(lambda state: state.with_bisection(first, second, bisection))

    def bisected(self, first: str, second: str, found: Bisection) -> BisectionRecord:
        """What changed from one variant to another, with all that it holds for: see ``record``.

        Raises:
            VariantError: there is no such variant.
        """
        for name in (first, second):
            self._require_variant(name, "record a bisection of")
        one, two = (self._side(name, Silent()) for name in (first, second))
        return records.create_bisection_record(self.model.name, one, two, found)

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
            return BisectionSide(
                title, prepared_model, variant, compiler, None, str(self.failures[name]), version
            )
        builder: Builder | None = None
        with contextlib.suppress(VariantError, Unavailable):
            builder = get_builder(facts)
        return BisectionSide(
            facts.engine.title,
            facts.prepared.model,
            facts.variant,
            builder,
            facts,
            release=facts.engine.version,
        )
