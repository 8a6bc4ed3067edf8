"""Which nodes, or which places that round, are guilty of a variant's error: by gradients, and by runs of the model."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.core.arrays import Batch
from rtlab.core.protocols import Evaluator
from rtlab.core.trace import Outputs
from rtlab.errors import RunError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.sensitivity.estimate import Guess, estimator
from rtlab.experiments.sensitivity.loss import SampleLoss, floating
from rtlab.experiments.sizing import batch_size
from rtlab.quantize.switched import INPUT, Switched, switched
from rtlab.questions.sensitivity import (
    FEW,
    LOSSES,
    Asks,
    By,
    Effects,
    LossName,
    Sensitivity,
    ranked,
    reliability,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model

_DOING = "looking for the guilty"
#: The part of the time that is for estimates, where there is more to do.
_ESTIMATING = 0.6
#: Probes of a model of which so many samples fit into a batch.
_MANY, _SMALL = 8, 8
#: Samples that runs of all places have to be affordable for.
_SAMPLES = 32
_LINEAR: dict[Asks, str] = {
    "only": "estimates follow each error to the outputs as far as the model is linear: verify large ones",
    "released": "estimates are of second order, at the values of the variant: verify large ones",
}


@dataclasses.dataclass(frozen=True)
class SensitivitySearch:
    """Rank what rounds in a variant by what it does to a loss.

    The first samples are few; then there are twice as many each time, until the ranking is as reliable as asked for,
    the samples are over, or the time is.

    Attributes:
        variant: Its name.
        source: What was prepared.
        emulation: What the CPU computes as the variant.
        data: The samples.
        asks: What a place harms alone, or what it would win back alone.
        by: Whether nodes are ranked, with all that they round, or each place that rounds.
        loss: The energy of the outputs' error, or the cross-entropy of the labels.
        labels: One label for each sample, for that.
        verify: How many of the first places of an estimate are run; None runs all, and estimates nothing.
        probes: Random directions of the outputs that each estimate is the mean of; None takes eight for a small model
            and one for a large one, of which more samples serve better, and none where all places can be run.
        reach: The reliability from which on no more samples are taken.
        begun: What was found before, to go on from there.
    """

    variant: str
    source: Model
    emulation: Model
    data: CalibrationData
    asks: Asks = "only"
    by: By = "node"
    loss: LossName = "outputs"
    labels: NDArray[np.int64] | None = None
    verify: int | None = 8
    probes: int | None = None
    reach: float = 0.95
    begun: Effects | None = None
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Evaluator]) -> Iterator[Sensitivity]:
        """What is known after each batch."""
        made = switched(self.source, self.emulation)
        names = floating(self.source)
        if self.begun is not None and self.begun.samples:
            # Known before anything is opened, which a cancel would keep from being said.
            yield _told(self, self.begun, _nodes(self, made), ran=rig.tool.source, seconds=0.0)
        with contextlib.ExitStack() as opened:
            yield from _Looking(self, rig, made, names, opened).records()


class _Looking:
    """The working state of one search."""

    def __init__(
        self,
        asked: SensitivitySearch,
        rig: Rig[Evaluator],
        made: Switched,
        names: Sequence[str],
        opened: contextlib.ExitStack,
    ) -> None:
        self.asked, self.rig, self.made, self.names = asked, rig, made, names
        self._began = time.monotonic()
        rig.phase("Opening the switched model")
        open_ = rig.tool.reading
        self._run = opened.enter_context(open_(made.model, names, progress=rig))
        self._plain = opened.enter_context(open_(asked.source, names, progress=rig))
        rig.count(builds=2)
        self.nodes = _nodes(asked, made)
        places = tuple(self.nodes)
        vector = made.vector if asked.asks == "only" else made.released
        self.vectors = [vector([p]) for p in places]
        self.guess = self._guess(opened, places)
        none = np.zeros((len(places), 0))
        begun = asked.begun
        probes = 0 if self.guess is None else self.probes
        fresh = begun is None or bool(begun.probes) != bool(probes)
        self.effects = (
            Effects(places, none, none, np.zeros(0), probes, asked.data) if fresh or begun is None else begun
        )
        self.spent = list(self.effects.work)
        #: Whether samples run one at a time, since outputs do not tell them apart.
        self._alone = self.guess is not None and self.guess.alone

    def _guess(self, opened: contextlib.ExitStack, places: Sequence[str]) -> Guess | None:
        """What estimates, where anything can be."""
        asked, rig = self.asked, self.rig
        self.probes = asked.probes or (_MANY if self._size() >= _SMALL else 1)
        if asked.verify is None or asked.loss != "outputs":
            return None
        if asked.asks == "released" and self._measures():
            return None
        rig.phase("Writing the gradients")
        graph = estimator(asked.source, asked.emulation, self.names, self.probes, asked.asks)
        if graph is None:
            return None
        rig.phase("Opening the gradients")
        run = opened.enter_context(rig.tool.reading(graph.model, graph.written, progress=rig))
        rig.count(builds=1)
        return Guess(graph, run, places, self.made.nodes if asked.by == "node" else None)

    def _measures(self) -> bool:
        """Whether every place is run: as it was before, or where that can be had."""
        asked = self.asked
        if asked.begun is not None and asked.begun.samples:
            return not asked.begun.probes
        return asked.probes is None and self._affordable()

    def _affordable(self) -> bool:
        """Whether all places can be run in half of the time, on samples enough."""
        batch = next(self.asked.data.batches(self.asked.source, 1))
        feed = {**batch, INPUT: self.made.released(())}
        self._run(feed)
        began = time.perf_counter()
        self._run(feed)
        taken = (time.perf_counter() - began) * len(self.vectors) * _SAMPLES
        return taken < self.rig.allowance.seconds / 2

    def _size(self) -> int:
        """How many samples run at a time."""
        model = self.asked.source
        values = tuple(o for n in model.top for o in n.outputs if o)
        return batch_size(model, values, self.asked.data, self.rig.tool)

    def records(self) -> Iterator[Sensitivity]:
        """Estimate, or measure, batch by batch; then measure what comes first."""
        every = range(len(self.vectors))
        if self.guess is not None:
            try:
                yield from self._grown(self._estimated)
            except RunError:
                if self.effects.samples:
                    raise
                # A rule took for granted what this graph does not hold to: the runs need no rules.
                self.guess = None
                self.effects = dataclasses.replace(self.effects, probes=0)
        if self.guess is not None:
            yield from self._measured(0, self.effects.samples, self._first())
        else:
            # What was stopped among the first samples lacks places; they come first.
            yield from self._measured(0, self.effects.samples or FEW, every)
            yield from self._grown(lambda begin, end: self._measured(begin, end, every))

    def _grown(self, more: Callable[[int, int], Iterator[Sensitivity]]) -> Iterator[Sensitivity]:
        """Take more samples until the ranking is as reliable as asked for."""
        while not self._enough():
            before = self.effects.samples
            yield from more(before, max(FEW, 2 * before))
            if self.effects.samples == before:
                return

    def _enough(self) -> bool:
        known = reliability(self.effects.known)
        over = self.rig.over
        if self.guess is not None and self.effects.samples:
            # The rest of the time is for those that come first.
            over |= time.monotonic() - self._began > _ESTIMATING * self.rig.allowance.seconds
        return over or (known is not None and known >= self.asked.reach)

    def _first(self) -> list[int]:
        """Places to run: those that come first, and those of which there is no estimate."""
        means = self.effects.estimated.mean(axis=1)
        order = [int(i) for i in np.argsort(-means) if not np.isnan(means[i])]
        return [*order[: self.asked.verify], *(int(i) for i in np.flatnonzero(np.isnan(means)))]

    def _estimated(self, begin: int, end: int) -> Iterator[Sensitivity]:
        """An estimate of every place on the samples from one number to another."""
        assert self.guess is not None  # noqa: S101 - nobody asks without
        self.rig.phase("Following errors to the outputs", max(end - begin, 0))
        for batch, first, count in self._batches(begin, end):
            self.rig.check(_DOING)
            if self.rig.over:
                return
            plain = self._timed(2, self._plain, batch)
            loss = SampleLoss.of(plain, self.names, count, None, first)
            if loss.rows < count and self.asked.source.free_batch:
                self._alone = True
                yield from self._estimated(first, end)
                return
            whole = self._run({**batch, INPUT: self.made.released(())})
            released = self.asked.asks == "released"
            began = time.perf_counter()
            found = self.guess.products(batch, plain, whole, loss, first, released=released)
            self.spent[0] += time.perf_counter() - began
            self.rig.count(runs=3)
            self.rig.advance(count)
            was = self.effects
            rows = self.guess.effects(found, count, released=released)
            self.effects = dataclasses.replace(
                was,
                estimated=np.concatenate([was.estimated, rows], axis=1),
                losses=np.concatenate([was.losses, loss.each(whole)]),
                work=(self.spent[0], self.spent[1], self.spent[2]),
            )
            yield self._record()

    def _batches(self, first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
        """Batches of the samples from one number to another, with the number of the first in each, and how many."""
        data, model = self.asked.data, self.asked.source
        most = 1 if self._alone else self._size()
        size = min(most, max(1, last - first))
        for batch in data.batches(model, size, skip=first):
            count = data.samples_in(model, batch)
            yield batch, first, count
            first += count
            if first >= last:
                return

    def _measured(self, begin: int, end: int, rows: Sequence[int]) -> Iterator[Sensitivity]:
        """The effect of places that lack it, on the samples from one number to another, batch by batch."""
        for batch, first, count in self._batches(begin, end) if rows else ():
            table = self.effects.measured[:, first : first + count]
            lacking = [i for i in rows if table.shape[1] < count or np.isnan(table[i]).any()]
            if not lacking:
                continue
            if self.rig.over:
                return
            loss, whole = self._reference(batch, first, count)
            if loss.rows < count and self.asked.source.free_batch:
                # Such as all boxes found in several pictures: no output tells samples apart.
                self._alone = True
                yield from self._measured(first, end, rows)
                return
            found = np.full((len(self.vectors), count), np.nan)
            found[:, : table.shape[1]] = table
            self.rig.phase(f"Running {first + count} samples with one switch turned", len(lacking))
            for i in self.rig.each(lacking, _DOING):
                own = loss.each(self._timed(1, self._run, {**batch, INPUT: self.vectors[i]}))
                found[i] = own if self.asked.asks == "only" else whole - own
                self.rig.count(runs=1)
                self.rig.advance()
                if not first:
                    # Something is known at once.
                    self._keep(first, found, whole)
                    yield self._record()
            if not np.isnan(found[list(rows)]).any():
                self._keep(first, found, whole)
                yield self._record()

    def _keep(self, first: int, found: NDArray[np.float64], whole: NDArray[np.float64]) -> None:
        """Put the effects on a batch in place of what was known of it."""
        was, last = self.effects, first + found.shape[1]
        self.effects = dataclasses.replace(
            was,
            measured=np.concatenate([was.measured[:, :first], found, was.measured[:, last:]], axis=1),
            losses=np.concatenate([was.losses[:first], whole, was.losses[last:]]),
            work=(self.spent[0], self.spent[1], self.spent[2]),
        )

    def _reference(self, batch: Batch, first: int, count: int) -> tuple[SampleLoss, NDArray[np.float64]]:
        """The loss on a batch, and what the variant itself loses on it."""
        if self.guess is None:
            self._timed(2, self._plain, batch)
        off = self._run({**batch, INPUT: self.made.vector(())})
        loss = SampleLoss.of(off, self.names, count, self.asked.labels, first)
        whole = loss.each(self._run({**batch, INPUT: self.made.released(())}))
        self.rig.count(runs=3)
        return loss, whole

    def _timed(self, kind: int, run: Callable[[Batch], Outputs], batch: Batch) -> Outputs:
        began = time.perf_counter()
        found = run(batch)
        self.spent[kind] += time.perf_counter() - began
        return found

    def _record(self) -> Sensitivity:
        taken = time.monotonic() - self._began
        notes = () if self.guess is None else self.guess.notes
        return _told(
            self.asked, self.effects, self.nodes, ran=self.rig.tool.source, seconds=taken, notes=notes
        )


def _nodes(asked: SensitivitySearch, made: Switched) -> Mapping[str, str]:
    """The node of each place that is ranked."""
    return {p: p for p in made.nodes} if asked.by == "node" else {q.id: q.node for q in made.quantizers}


def _told(
    asked: SensitivitySearch,
    effects: Effects,
    nodes: Mapping[str, str],
    *,
    ran: str,
    seconds: float,
    notes: Sequence[str] = (),
) -> Sensitivity:
    """What follows from effects."""
    table = effects.known
    known = table[~np.isnan(table).any(axis=1)]
    said = []
    if len(known) < len(table):
        said.append(f"{len(known)} of {len(table)} places were measured before the end")
    if asked.data.synthetic:
        said.append("the samples are random: what is guilty on real ones may be another")
    if effects.probes:
        said += [_LINEAR[asked.asks], *notes]
    work = effects.work[0] if effects.probes else effects.work[1]
    return Sensitivity(
        asked.variant,
        asked.asks,
        asked.by,
        ranked(effects, asked.by, nodes),
        LOSSES[asked.loss],
        float(effects.losses.mean()),
        effects.samples,
        effects.probes,
        reliability(known),
        work / effects.work[2] if effects.work[2] else None,
        seconds,
        f"{ran}, {asked.data.source}",
        tuple(said),
        effects,
    )
