"""The catalogue of planted cases, asked of a compiler: what it fuses, and whether that is what is documented."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rtlab.core.options import BuildOptions
from rtlab.core.protocols import Builder, BuildRequest
from rtlab.core.variant import Target, Variant
from rtlab.errors import BuildError, VariantError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.rules.cases import FusionCase, cases
from rtlab.experiments.why.oracle import Under
from rtlab.questions.rules import Fate, FusionRules, RuleOutcome
from rtlab.questions.why.missed import steps_of
from rtlab.relation.mapping import Mapping
from rtlab.relation.relate import relate

__all__ = ["FusionCase", "RuleTable", "cases"]

_DOING = "asking the compiler the catalogue of fusions"


@dataclasses.dataclass(frozen=True)
class RuleTable:
    """Ask a compiler the catalogue.

    Attributes:
        backend: The backend that builds.
        compiler: What its compiler is called.
        version: Its release.
        target: What is built for; a case that needs a newer one is built for that.
        asked: The cases.
    """

    backend: str
    compiler: str
    version: str
    target: Target
    asked: Sequence[FusionCase] = dataclasses.field(default_factory=cases)
    partial: ClassVar[bool] = False

    def steps(self, rig: Rig[Builder]) -> Iterator[FusionRules]:
        """The table after each case."""
        rig.phase("Asking the catalogue of fusions", len(self.asked))
        found: list[RuleOutcome] = []
        day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        for case in rig.each(self.asked, _DOING):
            found.append(self._rule(case, rig))
            rig.count(builds=1)
            rig.advance()
            yield FusionRules(self.compiler, self.version, str(self.target), day, tuple(found))

    def _rule(self, case: FusionCase, rig: Rig[Builder]) -> RuleOutcome:
        target, model = self._target(case), case.model
        told: dict[str, Any] = {"target": str(target)}
        request = BuildRequest(model, _variant(case, target, self.backend), several=True)
        try:
            engine = rig.tool.build(request, Under(rig))
        except (BuildError, VariantError) as error:
            told["refused"] = str(error)
            fate: Fate = ""
        else:
            told["layers"] = len(engine.layers) - engine.sync
            fate = _fate(case, relate(model, model, engine))
        ops = [" or ".join(dict.fromkeys(model.by_id[n].op for n in side)) for side in case.pair]
        pair = ops[0] if case.pair[0] == case.pair[1] else " | ".join(ops)
        return RuleOutcome(case.name, case.title, pair, case.documented, fate, case.source, **told)

    def _target(self, case: FusionCase) -> Target:
        """The table's target, or what a case needs where that is newer."""
        if not case.target or self.target.sm is None:
            return self.target
        needed = Target(case.target)
        return needed if needed.sm is not None and needed.sm > self.target.sm else self.target


def _variant(case: FusionCase, target: Target, backend: str) -> Variant:
    options = None if case.profile is None else BuildOptions.of(profiles=[dict([case.profile])])
    return Variant.of(case.precision, target=target, backend=backend, options=options)


def _fate(case: FusionCase, relation: Mapping) -> Fate:
    """What became of a pair, by the steps that do its work; a node asked about alone is apart in a step of its own."""
    first, second = case.pair
    steps = [{i for n in side for i in steps_of(relation, n)} for side in (first, second)]
    if not all(steps):
        return "gone"
    if first == second:
        own = {first[0]}
        return "apart" if all(own == {*relation.run(i)} for i in steps[0]) else "fused"
    return "fused" if steps[0] & steps[1] else "apart"
