"""What the builder timed before it chose: for each layer the tactics of all runners in all combinations of formats."""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from rtlab.core.buildlog import BuildLog, TacticTime, Tuning
from rtlab.core.schema import UNSENT, FieldMeta

#: Candidates of one layer that are kept.
MAX_CANDIDATES = 20
#: Copies between formats, which the builder times to know their cost, not to choose a layer's tactic.
_COPIES = frozenset({"Reformat"})
#: What Myelin puts behind the name of an operator where it becomes a layer.
_MYELIN = re.compile(r"_myl\d+_\d+$")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A tactic, whose runner and formats it is, and whether its time came from a timing cache."""

    tactic: TacticTime
    runner: Annotated[str, UNSENT]
    formats: str
    cached: Annotated[bool, UNSENT]

    @property
    def name(self) -> Annotated[str, FieldMeta("Tactic")]:
        """The tactic's own name, or its runner's and its id where it has none."""
        return self.tactic.name or f"{self.runner} {self.tactic.tactic}".strip()


@dataclasses.dataclass(frozen=True)
class LayerTactics:
    """What was timed for one layer, and what the timing cache holds for it.

    ``nodes`` are labels of its ONNX nodes, where the log has them. ``timed`` are its tactics, the fastest first, in
    *reported* milliseconds; of runners other than the graph compiler at most the best 20. A build takes what is
    ``remembered``, None where no editable cache has it; ``key`` is its key there, empty where it cannot be forced.
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
        timings = [t for t in self.timed if int(t.tactic, 0) == int(self.remembered.tactic, 0)]
        return timings[0].milliseconds - self.timed[0].milliseconds if timings else None


@dataclasses.dataclass(frozen=True)
class Contest:
    """The candidates of one layer, the fastest first, at most ``MAX_CANDIDATES`` of ``count``. There is at least one.

    Times are what the builder *reported* of its own machine. The fastest wins; the builder may still take another
    combination of formats, where copies between formats would cost more than is won. ``layer`` is the layer's name,
    ``id`` that of the engine's layer which bears it, empty where none does or no engine is known. Within a region that
    a compiler of its own takes whole, each operator has a contest: ``operator`` is its name, which stands in ``layer``
    before that of the region.
    """

    layer: Annotated[str, FieldMeta("Layer")]
    candidates: tuple[Candidate, ...]
    count: Annotated[int, FieldMeta("Timed", origin="reported")]
    id: str = ""
    operator: Annotated[str, UNSENT] = ""

    @property
    def winner(self) -> Candidate:
        """The fastest."""
        return self.candidates[0]

    @property
    def runner_up(self) -> Candidate | None:
        """The second; None where there was no choice."""
        return self.candidates[1] if len(self.candidates) > 1 else None

    @property
    def margin(self) -> Annotated[float | None, FieldMeta("Margin", origin="reported")]:
        """Time of the runner-up by that of the winner: 1.2 is won by 20 %. None where there was no choice."""
        second, first = self.runner_up, self.winner.tactic.milliseconds
        return second.tactic.milliseconds / first if second and first > 0 else None


@dataclasses.dataclass(frozen=True)
class Price:
    """What it would cost to force a candidate of a layer in place of the fastest, by the builder's *reported* times.

    ``milliseconds`` are added; ``of_layer`` is that by the layer's fastest time, ``of_engine`` by the sum of the
    fastest of all layers, None where these are zero. ``reformats`` says that the candidate's formats are not the
    winner's: copies between formats may come on top, or fall away, and are not counted.
    """

    layer: str
    candidate: Candidate
    milliseconds: float
    of_layer: float | None
    of_engine: float | None
    reformats: bool


def sum_fastest_times(contests: Sequence[Contest]) -> float:
    """Milliseconds of the fastest candidates of all layers, one after the other; a region counts as a whole."""
    return math.fsum(contest.winner.tactic.milliseconds for contest in contests if not contest.operator)


def compute_prices(contest: Contest, engine: float) -> tuple[Price, ...]:
    """The price of each candidate but the fastest, cheapest first; ``engine`` is ``sum_fastest_times`` of all."""
    first, prices = contest.winner, []
    least = first.tactic.milliseconds
    for candidate in contest.candidates[1:]:
        extra = candidate.tactic.milliseconds - least
        shares = (_compute_share(extra, least), _compute_share(extra, engine))
        prices.append(Price(contest.layer, candidate, extra, *shares, candidate.formats != first.formats))
    return tuple(prices)


def _compute_share(extra: float, total_time: float) -> float | None:
    """None of no time at all, and of one so short that no number is the share."""
    share = extra / total_time if total_time > 0 else math.inf
    return share if math.isfinite(share) else None


def sum_runner_up_losses(contests: Sequence[Contest]) -> float:
    """Milliseconds that an engine would take longer if every layer that has a choice took its runner-up."""
    return math.fsum(
        second.tactic.milliseconds - contest.winner.tactic.milliseconds
        for contest in contests
        if (second := contest.runner_up) is not None and not contest.operator
    )


def find_contests(log: BuildLog, ids: Mapping[str, str] | None = None) -> tuple[Contest, ...]:
    """The contests of the layers that the chosen attempt tried, in the order in which it did.

    ``ids`` are those of the engine's layers by their names.

    A builder that tries several networks times a layer once and remembers; so times of all attempts count, for layers
    that the chosen one has. Copies between formats are left out: the builder times them for every tensor.
    """
    table: defaultdict[tuple[str, str], list[Tuning]] = defaultdict(list)
    tuned_layers: dict[tuple[str, str], None] = {}
    for tuning in (t for t in log.tunings if t.runner not in _COPIES):
        table[tuning.layer, tuning.operator].append(tuning)
        if tuning.attempt == log.chosen:
            tuned_layers[tuning.layer, tuning.operator] = None
    # What is inside a region is in the log of the attempt that timed it first.
    places = {layer: place for place, layer in enumerate(dict.fromkeys(layer for layer, _ in tuned_layers))}
    tuned_layers |= dict.fromkeys(key for key in table if key[1] and key[0] in places)
    ids_by_name = {_MYELIN.sub("", name): id_ for name, id_ in (ids or {}).items()} | dict(ids or {})
    contests = (
        _build_contest(*key, table[key], ids_by_name.get(key[1] or key[0]) or ids_by_name.get(key[0], ""))
        for key in sorted(tuned_layers, key=lambda key: (places[key[0]], key[1] != ""))
    )
    return tuple(contest for contest in contests if contest is not None)


def _build_contest(layer: str, operator: str, tunings: list[Tuning], id_: str) -> Contest | None:
    candidates: dict[tuple[str, str, str], Candidate] = {}
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for tuning in tunings:
        place = (tuning.runner, tuning.formats)
        # Another profile or attempt times the same tactics again.
        counts[place] = max(counts[place], tuning.count)
        for row in tuning.timed:
            key = (*place, row.tactic)
            candidate = Candidate(row, tuning.runner, tuning.formats, cached=not tuning.count)
            previous = candidates.get(key, candidate)
            candidates[key] = min(previous, candidate, key=lambda c: (c.cached, c.tactic.milliseconds))
    if not candidates:
        return None
    fastest = heapq.nsmallest(MAX_CANDIDATES, candidates.values(), key=lambda c: c.tactic.milliseconds)
    count = sum(counts.values()) + sum(c.cached for c in candidates.values())
    return Contest(" in ".join(filter(None, (operator, layer))), tuple(fastest), count, id_, operator)
