"""Which nodes, or which quantizers, cause a variant's error: by gradients, and by runs of the model."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.sensitivity import (
    FEW,
    LOSSES,
    Asks,
    By,
    Effects,
    LossName,
    Sensitivity,
    rank_effects,
    reliability,
)
from rtlab.core.arrays import Batch
from rtlab.core.budget import WorkContext
from rtlab.core.protocols import Evaluator
from rtlab.core.trace import Outputs
from rtlab.errors import RunError
from rtlab.experiments.running import batch_size
from rtlab.experiments.sensitivity.estimate import EffectEstimator, build_estimator
from rtlab.experiments.sensitivity.loss import SampleLoss, list_float_outputs
from rtlab.quantize.quantizer_toggles import INPUT, SwitchedModel, build_switched_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model

_ACTIVITY = "ranking by sensitivity"
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
    """Rank nodes or quantizers of a variant by their effect on a loss.

    The number of samples doubles until the ranking is as reliable as ``reach``, or samples or time are used up.

    ``asks``, ``by``, ``loss``, ``labels`` and ``verify`` are those of ``study.accuracy.sensitivity``. ``probes`` is the
    number of random directions of the outputs that each estimate is the mean of; by default eight for a small model and
    one for a large one. ``begun`` are effects of an earlier search.
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

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[Sensitivity]:
        """The ranking after each batch."""
        toggles = build_switched_model(self.source, self.emulation)
        names = list_float_outputs(self.source)
        if self.begun is not None and self.begun.samples:
            # Before anything is opened, so that a cancel keeps it.
            yield _summarize(
                self, self.begun, _map_places(self, toggles), ran=context.tool.source, seconds=0.0
            )
        with contextlib.ExitStack() as stack:
            yield from _SensitivityState(self, context, toggles, names, stack).iter_records()


class _SensitivityState:
    """The working state of one search."""

    def __init__(
        self,
        search: SensitivitySearch,
        context: WorkContext[Evaluator],
        toggles: SwitchedModel,
        names: Sequence[str],
        stack: contextlib.ExitStack,
    ) -> None:
        self.search, self.context, self.toggles, self.names = search, context, toggles, names
        self._began = time.monotonic()
        context.phase("Opening the switched model")
        open_ = context.tool.reading
        self._run = stack.enter_context(open_(toggles.model, names, progress=context))
        self._plain = stack.enter_context(open_(search.source, names, progress=context))
        context.count(builds=2)
        self.nodes = _map_places(search, toggles)
        places = tuple(self.nodes)
        vector = toggles.make_vector if search.asks == "only" else toggles.make_inverse_vector
        self.vectors = [vector([p]) for p in places]
        self.effect_estimator = self._open_estimator(stack, places)
        none = np.zeros((len(places), 0))
        probes, begun = 0 if self.effect_estimator is None else self.probes, search.begun
        if begun is None or bool(begun.probes) != bool(probes):
            begun = Effects(places, none, none, np.zeros(0), probes, search.data)
        self.effects = begun
        self.elapsed = list(self.effects.work)
        #: Whether samples run one at a time, since outputs do not tell them apart.
        self._alone = self.effect_estimator is not None and self.effect_estimator.alone

    def _open_estimator(self, stack: contextlib.ExitStack, places: Sequence[str]) -> EffectEstimator | None:
        """What estimates, where anything can be."""
        search, context = self.search, self.context
        self.probes = search.probes or (_MANY if self._batch_size() >= _SMALL else 1)
        if search.verify is None or search.loss != "outputs":
            return None
        if search.asks == "released" and self._should_measure_all():
            return None
        context.phase("Writing the gradients")
        graph = build_estimator(search.source, search.emulation, self.names, self.probes, search.asks)
        if graph is None:
            return None
        context.phase("Opening the gradients")
        run = stack.enter_context(context.tool.reading(graph.model, graph.products, progress=context))
        context.count(builds=1)
        return EffectEstimator(graph, run, places, self.toggles.nodes if search.by == "node" else None)

    def _should_measure_all(self) -> bool:
        """Whether every place is run: as in an earlier search, or where half of the time is enough for that."""
        search = self.search
        if search.begun is not None and search.begun.samples:
            return not search.begun.probes
        feed = {**next(search.data.batches(search.source, 1)), INPUT: self.toggles.make_inverse_vector(())}
        self._run(feed)
        began = time.perf_counter()
        self._run(feed)
        taken = (time.perf_counter() - began) * len(self.vectors) * _SAMPLES
        return search.probes is None and taken < self.context.budget.seconds / 2

    def _batch_size(self) -> int:
        """How many samples run at a time."""
        return batch_size(self.search.source, None, self.search.data, self.context.tool)

    def iter_records(self) -> Iterator[Sensitivity]:
        """Estimate, or measure, batch by batch; then measure what comes first."""
        every = range(len(self.vectors))
        if self.effect_estimator is not None:
            try:
                yield from self._grow_samples(self._estimate)
            except RunError:
                if self.effects.samples:
                    raise
                # A gradient's rule does not fit this graph: runs need no rules.
                self.effect_estimator = None
                self.effects = dataclasses.replace(self.effects, probes=0)
        if self.effect_estimator is not None:
            yield from self._measure(0, self.effects.samples, self._select_places())
        else:
            # A search that was stopped among the first samples lacks places; they come first.
            yield from self._measure(0, self.effects.samples or FEW, every)
            yield from self._grow_samples(lambda begin, end: self._measure(begin, end, every))

    def _grow_samples(self, more: Callable[[int, int], Iterator[Sensitivity]]) -> Iterator[Sensitivity]:
        """Take more samples until the ranking is as reliable as ``reach``."""
        while not self._is_done():
            before = self.effects.samples
            yield from more(before, max(FEW, 2 * before))
            if self.effects.samples == before:
                return

    def _is_done(self) -> bool:
        current_reliability = reliability(self.effects.combined_effects)
        over = self.context.is_exhausted
        if self.effect_estimator is not None and self.effects.samples:
            # The rest of the time is for the runs of the first places.
            over |= time.monotonic() - self._began > _ESTIMATING * self.context.budget.seconds
        return over or (current_reliability is not None and current_reliability >= self.search.reach)

    def _select_places(self) -> list[int]:
        """Places to run: those that come first, and those of which there is no estimate."""
        means = self.effects.estimated.mean(axis=1)
        order = [int(i) for i in np.argsort(-means) if not np.isnan(means[i])]
        return [*order[: self.search.verify], *(int(i) for i in np.flatnonzero(np.isnan(means)))]

    def _estimate(self, begin: int, end: int) -> Iterator[Sensitivity]:
        """An estimate of every place on the samples from one number to another."""
        assert self.effect_estimator is not None  # noqa: S101 - called with an estimator only
        self.context.phase("Following errors to the outputs", max(end - begin, 0))
        for batch, first, count in self._iter_batches(begin, end):
            self.context.check(_ACTIVITY)
            if self.context.is_exhausted:
                return
            plain = self._run_timed(2, self._plain, batch)
            loss = SampleLoss.of(plain, self.names, count, None, first)
            if loss.rows < count and self.search.source.free_batch:
                self._alone = True
                yield from self._estimate(first, end)
                return
            quantized_outputs = self._run({**batch, INPUT: self.toggles.make_inverse_vector(())})
            is_released = self.search.asks == "released"
            began = time.perf_counter()
            products = self.effect_estimator.products(
                batch, plain, quantized_outputs, loss, first, released=is_released
            )
            self.elapsed[0] += time.perf_counter() - began
            self.context.count(runs=3)
            self.context.advance(count)
            was = self.effects
            rows = self.effect_estimator.effects(products, count, released=is_released)
            self.effects = dataclasses.replace(
                was,
                estimated=np.concatenate([was.estimated, rows], axis=1),
                losses=np.concatenate([was.losses, loss.each(quantized_outputs)]),
                work=(self.elapsed[0], self.elapsed[1], self.elapsed[2]),
            )
            yield self._make_record()

    def _iter_batches(self, first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
        """Batches of the samples from one number to another, with the number of the first in each, and how many."""
        data, model = self.search.data, self.search.source
        most = 1 if self._alone else self._batch_size()
        size = min(most, max(1, last - first))
        for batch in data.batches(model, size, skip=first):
            count = data.samples_in(model, batch)
            yield batch, first, count
            first += count
            if first >= last:
                return

    def _measure(self, begin: int, end: int, rows: Sequence[int]) -> Iterator[Sensitivity]:
        """The effect of places that lack it, on the samples from one number to another, batch by batch."""
        for batch, first, count in self._iter_batches(begin, end) if rows else ():
            table = self.effects.measured[:, first : first + count]
            pending = [i for i in rows if table.shape[1] < count or np.isnan(table[i]).any()]
            if not pending:
                continue
            if self.context.is_exhausted:
                return
            loss, total_loss = self._reference(batch, first, count)
            if loss.rows < count and self.search.source.free_batch:
                # Such as all boxes found in several pictures: no output tells samples apart.
                self._alone = True
                yield from self._measure(first, end, rows)
                return
            effects = np.full((len(self.vectors), count), np.nan)
            effects[:, : table.shape[1]] = table
            self.context.phase(f"Running {first + count} samples with one switch turned", len(pending))
            for i in self.context.iterate(pending, _ACTIVITY):
                switched_loss = loss.each(self._run_timed(1, self._run, {**batch, INPUT: self.vectors[i]}))
                effects[i] = switched_loss if self.search.asks == "only" else total_loss - switched_loss
                self.context.count(runs=1)
                self.context.advance()
                if not first:
                    # Something is known at once.
                    self._keep(first, effects, total_loss)
                    yield self._make_record()
            if not np.isnan(effects[list(rows)]).any():
                self._keep(first, effects, total_loss)
                yield self._make_record()

    def _keep(self, first: int, effects: NDArray[np.float64], total_loss: NDArray[np.float64]) -> None:
        """Put the effects on a batch in place of what was known of it."""
        was, last = self.effects, first + effects.shape[1]
        self.effects = dataclasses.replace(
            was,
            measured=np.concatenate([was.measured[:, :first], effects, was.measured[:, last:]], axis=1),
            losses=np.concatenate([was.losses[:first], total_loss, was.losses[last:]]),
            work=(self.elapsed[0], self.elapsed[1], self.elapsed[2]),
        )

    def _reference(self, batch: Batch, first: int, count: int) -> tuple[SampleLoss, NDArray[np.float64]]:
        """The loss on a batch, and what the variant itself loses on it."""
        if self.effect_estimator is None:
            self._run_timed(2, self._plain, batch)
        off = self._run({**batch, INPUT: self.toggles.make_vector(())})
        loss = SampleLoss.of(off, self.names, count, self.search.labels, first)
        total_loss = loss.each(self._run({**batch, INPUT: self.toggles.make_inverse_vector(())}))
        self.context.count(runs=3)
        return loss, total_loss

    def _run_timed(self, kind: int, run: Callable[[Batch], Outputs], batch: Batch) -> Outputs:
        began = time.perf_counter()
        outputs = run(batch)
        self.elapsed[kind] += time.perf_counter() - began
        return outputs

    def _make_record(self) -> Sensitivity:
        taken = time.monotonic() - self._began
        notes = () if self.effect_estimator is None else self.effect_estimator.notes
        return _summarize(
            self.search, self.effects, self.nodes, ran=self.context.tool.source, seconds=taken, notes=notes
        )


def _map_places(search: SensitivitySearch, toggles: SwitchedModel) -> Mapping[str, str]:
    """The node of each place that is ranked."""
    return (
        {p: p for p in toggles.nodes} if search.by == "node" else {q.id: q.node for q in toggles.quantizers}
    )


def _summarize(
    search: SensitivitySearch,
    effects: Effects,
    nodes: Mapping[str, str],
    *,
    ran: str,
    seconds: float,
    notes: Sequence[str] = (),
) -> Sensitivity:
    """What follows from effects."""
    table = effects.combined_effects
    complete_rows = table[~np.isnan(table).any(axis=1)]
    messages = []
    if len(complete_rows) < len(table):
        messages.append(f"{len(complete_rows)} of {len(table)} places were measured before the end")
    if search.data.synthetic:
        messages.append("the samples are random: on real ones the ranking may differ")
    if effects.probes:
        messages += [_LINEAR[search.asks], *notes]
    work = effects.work[0] if effects.probes else effects.work[1]
    return Sensitivity(
        search.variant,
        search.asks,
        search.by,
        rank_effects(effects, search.by, nodes),
        LOSSES[search.loss],
        float(effects.losses.mean()),
        effects.samples,
        effects.probes,
        reliability(complete_rows),
        work / effects.work[2] if effects.work[2] else None,
        seconds,
        f"{ran}, {search.data.source}",
        tuple(messages),
        effects,
    )
