"""Tactics: what the builder timed for each layer of a variant, and which of them its timing cache holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.tactics import LayerTactics, find_contests
from rtlab.core.budget import WorkContext
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.facts import VariantResult
from rtlab.core.protocols import Tuner

_ACTIVITY = "listing the tactics"


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

    facts: VariantResult
    logs: tuple[str, ...]
    cache: Path | None
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Tuner | None]) -> Iterator[tuple[LayerTactics, ...]]:
        """What the logs tell, then what the cache holds too.

        Raises:
            ReadError: the timing cache cannot be read, or is of another version or GPU.
            BackendError: the child process that reads it crashed.
        """
        tuner = context.tool
        log_operators = (
            [] if tuner is None else [tuner.operators(log) for log in context.iterate(self.logs, _ACTIVITY)]
        )
        variant_operators = log_operators[0] if log_operators else ()
        operators_by_key: dict[str, Operator] = {}
        for operator in (o for operators in log_operators for o in operators if o.key):
            operators_by_key.setdefault(operator.key, operator)
        yield self._list_layers(variant_operators, {})
        for cache in context.iterate((self.cache,), _ACTIVITY):
            if tuner is None or cache is None or not operators_by_key:
                return
            cache_entries = tuner.remembered(cache, tuple(operators_by_key), context)
            context.count(builds=1)
            listed_keys = {o.key for o in variant_operators}
            more = (
                o for key, o in operators_by_key.items() if key in cache_entries and key not in listed_keys
            )
            yield self._list_layers((*variant_operators, *more), cache_entries)

    def _list_layers(
        self, operators: Iterable[Operator], cache_entries: Mapping[str, Entry]
    ) -> tuple[LayerTactics, ...]:
        layers = [_make_layer_tactics(o, cache_entries.get(o.key)) for o in operators]
        log = get_build_log(self.facts)
        layers += [
            LayerTactics(contest.layer, (), tuple(c.tactic for c in contest.candidates))
            for contest in (find_contests(log) if log is not None else ())
            if not contest.operator
        ]
        return tuple(layers)


def _make_layer_tactics(operator: Operator, entry: Entry | None) -> LayerTactics:
    holds = None
    if entry is not None:
        names = {int(t.tactic, 0): t.name for t in operator.timed}
        holds = TacticTime(entry.id, names.get(entry.tactic, ""), entry.milliseconds)
    return LayerTactics(operator.name, operator.nodes, operator.timed, holds, operator.key if holds else "")
