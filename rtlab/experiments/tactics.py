"""Tactics: what the builder timed for each layer of a variant, and which of them its timing cache holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rtlab import questions
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.facts import Facts
from rtlab.core.protocols import Tuner
from rtlab.experiments.experiment import Rig
from rtlab.questions.build.tactics import contests

_DOING = "listing the tactics"


@dataclasses.dataclass(frozen=True)
class LayerTactics:
    """What was timed for one layer, and what the timing cache holds for it.

    Attributes:
        layer: The operator or layer as the build log names it.
        nodes: Labels of its ONNX nodes, where the log tells them.
        timed: Its tactics, the fastest first, by milliseconds that the builder *reported*; of layers of other runners
            than the graph compiler at most the best 20.
        remembered: What the timing cache holds, and a build with it takes; None where no editable cache has it.
        key: Its key in the cache; empty where it cannot be forced.
    """

    layer: str
    nodes: tuple[str, ...]
    timed: tuple[TacticTime, ...]
    remembered: TacticTime | None = None
    key: str = ""

    @property
    def cost(self) -> float | None:
        """Milliseconds that what is remembered takes longer than the fastest, *reported*; None where it is untimed."""
        if self.remembered is None:
            return None
        known = [t for t in self.timed if int(t.tactic, 0) == int(self.remembered.tactic, 0)]
        return known[0].milliseconds - self.timed[0].milliseconds if known else None


@dataclasses.dataclass(frozen=True)
class TacticListing:
    """List the tactics of each layer: first the operators of the graph compiler, then the layers of other runners.

    What the logs tell is known first; the timing cache is opened once, in a child process, which counts as a build.

    Attributes:
        facts: What is known of the variant, whose log lists the layers of other runners.
        logs: Logs of builds made here, its own first. A build that finds an operator in its timing cache does not time
            it again, so that logs of others count that differ in the cache only. Empty where it was read from files.
        cache: Its timing cache, None where none can be edited here.
    """

    facts: Facts
    logs: tuple[str, ...]
    cache: Path | None
    partial: ClassVar[bool] = False

    def steps(self, rig: Rig[Tuner | None]) -> Iterator[tuple[LayerTactics, ...]]:
        """What the logs tell, then what the cache holds too.

        Raises:
            ReadError: the timing cache cannot be read, or is of another version or GPU.
            BackendError: the child process that reads it crashed.
        """
        tuner = rig.tool
        listed = [] if tuner is None else [tuner.operators(log) for log in rig.each(self.logs, _DOING)]
        own = listed[0] if listed else ()
        known: dict[str, Operator] = {}
        for operator in (o for operators in listed for o in operators if o.key):
            known.setdefault(operator.key, operator)
        yield self._of(own, {})
        for cache in rig.each((self.cache,), _DOING):
            if tuner is None or cache is None or not known:
                return
            remembered = tuner.remembered(cache, tuple(known), rig)
            rig.count(builds=1)
            told = {o.key for o in own}
            more = (o for key, o in known.items() if key in remembered and key not in told)
            yield self._of((*own, *more), remembered)

    def _of(self, operators: Iterable[Operator], remembered: Mapping[str, Entry]) -> tuple[LayerTactics, ...]:
        found = [_entered(o, remembered.get(o.key)) for o in operators]
        log = questions.build.log(self.facts)
        found += [
            LayerTactics(contest.layer, (), tuple(c.tactic for c in contest.candidates))
            for contest in (contests(log) if log is not None else ())
            if not contest.operator
        ]
        return tuple(found)


def _entered(operator: Operator, entry: Entry | None) -> LayerTactics:
    holds = None
    if entry is not None:
        names = {int(t.tactic, 0): t.name for t in operator.timed}
        holds = TacticTime(entry.id, names.get(entry.tactic, ""), entry.milliseconds)
    return LayerTactics(operator.name, operator.nodes, operator.timed, holds, operator.key if holds else "")
