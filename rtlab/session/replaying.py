"""Answers as records: dated files with all that an answer holds for, by which the same is asked again elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, overload

from rtlab.core import files
from rtlab.core.protocols import Progress
from rtlab.errors import VariantError, boundary
from rtlab.experiments.why import WhyTogether, step_of
from rtlab.questions.bisection import Bisection
from rtlab.questions.bisection import record as changes
from rtlab.questions.bisection.record import BisectionRecord, BisectionReplay
from rtlab.questions.why import Verdict
from rtlab.questions.why.joined import Joined
from rtlab.questions.why.record import StepRecord, StepReplay, VerdictReplay, replayed, step_replayed
from rtlab.session import records
from rtlab.session.bisecting import Bisections
from rtlab.session.searches import Searches

R = TypeVar("R")


class Replays(Bisections[R], Searches[R]):
    """Writes records, and asks theirs again."""

    @boundary("write a record")
    def record(
        self, found: Verdict | Joined | Bisection, path: str | Path, *, variant: str | Sequence[str]
    ) -> Path:
        """Write a verdict, why a step is one, or what changed between two variants, as JSON; gives the path.

        With it goes all that it holds for.

        Args:
            found: What ``why`` or ``bisect`` gave.
            path: Where the record goes.
            variant: The variant that was asked about, or both of them.

        Raises:
            VariantError: the variant is not built, or there are not as many as the answer is about.
            RtlabError: the file cannot be written there.
        """
        names = _names(variant, 2 if isinstance(found, Bisection) else 1, "record")
        if isinstance(found, Bisection):
            text = self.bisected(names[0], names[1], found).text()
        else:
            text = records.recorded(self.facts_of(names[0]), found).text()
        return files.write(path, text.encode(), what="the record", model=self.model)

    @overload
    def replay(
        self, path: str | Path, *, variant: str, progress: Progress | None = None
    ) -> VerdictReplay | StepReplay: ...

    @overload
    def replay(
        self, path: str | Path, *, variant: Sequence[str], progress: Progress | None = None
    ) -> VerdictReplay | StepReplay | BisectionReplay: ...

    @boundary("replay a record")
    def replay(
        self, path: str | Path, *, variant: str | Sequence[str], progress: Progress | None = None
    ) -> VerdictReplay | StepReplay | BisectionReplay:
        """Ask what a record answers again, with the compilers of this study, and lay both beside each other.

        The compiler may be another release than that of the record; the model has to be the same.

        Args:
            path: A record.
            variant: The variant to ask of; of what changed, both.
            progress: Where to report; the host's reporter by default.

        Raises:
            ReadError: the file is no record.
            VariantError: the variant is not built, or of another model than the record.
            Unavailable: its compiler is not installed here.
        """
        there = records.opened(path)
        names = _names(variant, 2 if isinstance(there, BisectionRecord) else 1, "replay")
        if isinstance(there, BisectionRecord):
            for name, side in zip(names, (there.first, there.second), strict=True):
                if name in self.facts:
                    self._check_same(path, name, there.model, side.variant, side.digest)
            return changes.replayed(there, self.bisect(names[0], names[1], again=True, progress=progress))
        self._check_same(path, names[0], there.model, there.variant, there.digest)
        if isinstance(there, StepRecord):
            return self._replay_step(there, names[0], progress)
        told = there.verdict
        now = self.why(told.first, told.second, variant=names[0], again=True, progress=progress)
        return replayed(there, now)

    def _replay_step(self, there: StepRecord, variant: str, progress: Progress | None) -> StepReplay:
        """Ask why the step that does the work of a record's first node is one; where it does no other, nothing."""
        facts = self.facts_of(variant)
        layer = step_of(facts, there.step.nodes[0])
        several = WhyTogether(facts.prepared.model, facts.engine, facts.variant, layer).several
        now = self.why(layer, variant=variant, again=True, progress=progress) if several else None
        return step_replayed(there, facts.engine.title, now)

    def _check_same(self, path: str | Path, name: str, model: str, variant: str, digest: str) -> None:
        """See that a record is of the graph that a variant was built from.

        Raises:
            VariantError: it is of another one.
        """
        if digest != self.facts_of(name).prepared.model.digest:
            raise VariantError(
                f'Cannot replay "{path}": it is of "{model}" as {variant}, and "{name}" was built from '
                "another graph or with other weights. Load that model, and choose a variant in that precision."
            )


def _names(variant: str | Sequence[str], count: int, doing: str) -> tuple[str, ...]:
    names = (variant,) if isinstance(variant, str) else tuple(variant)
    if len(names) != count:
        wanted = "one variant" if count == 1 else "two variants"
        raise VariantError(
            f"Cannot {doing}: the answer is about {wanted}, and {len(names)} were named. Name "
            f"{'it' if count == 1 else 'both, as variant=(first, second)'}."
        )
    return names
