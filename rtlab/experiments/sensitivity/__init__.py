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
    LOOKS,
    Asks,
    By,
    Effects,
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
    from rtlab.core.metrics import Tally
    from rtlab.core.model import Model
    from rtlab.core.task import Task

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
    """Rank nodes or quantizers of a variant by their effect on its outputs.

    At the numbers of samples in ``LOOKS`` the search ends where the ranking is as reliable as ``reach``; else it takes
    all samples, as far as there is time. Samples are drawn by chance, for files are often sorted by class.

    ``asks``, ``by`` and ``verify`` are those of ``study.accuracy.sensitivity``; ``task`` counts what was run.
    ``probes`` is the number of random directions of the outputs that each estimate is the mean of; by default eight for
    a small model and one for a large one. ``begun`` are effects of an earlier search.
    """

    variant: str
    source: Model
    emulation: Model
    data: CalibrationData
    asks: Asks = "only"
    by: By = "node"
    task: Task | None = None
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
            begun = Effects(places, none, none, np.zeros(0), probes, search.data, task=search.task)
        lengths = {len(a) for a in search.data.arrays.values() if a.ndim}
        #: The samples in the order in which they are taken; None where they are read from front to back.
        self._order: NDArray[np.int64] | None = None
        if search.source.free_batch and len(lengths) == 1 and max(lengths) > LOOKS[0]:
            self._order = np.random.default_rng(0).permutation(lengths.pop())
        self.effects = begun
        self.elapsed = list(self.effects.work)
        #: Whether samples run one at a time, since outputs do not tell them apart.
        self._alone = self.effect_estimator is not None and self.effect_estimator.alone

    def _open_estimator(self, stack: contextlib.ExitStack, places: Sequence[str]) -> EffectEstimator | None:
        """What estimates, where anything can be."""
        search, context = self.search, self.context
        self.probes = search.probes or (_MANY if self._batch_size() >= _SMALL else 1)
        if search.verify is None:
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
            yield from self._verify()
        else:
            # A search that was stopped among the first samples lacks places; they come first.
            yield from self._measure(0, self.effects.samples or FEW, every)
            yield from self._grow_samples(lambda begin, end: self._measure(begin, end, every))

    def _grow_samples(self, more: Callable[[int, int], Iterator[Sensitivity]]) -> Iterator[Sensitivity]:
        """Take more samples until the ranking is as reliable as ``reach`` at a look, which intervals account for."""
        for end in (*LOOKS, self.search.data.count or 4 * LOOKS[-1]):
            # A search that goes on begins between two looks.
            before = self.effects.samples
            if self._is_over() or (before and before >= end and self._is_reliable()):
                return
            if before < end:
                yield from more(before, end)
                if self.effects.samples == before or self._is_reliable():
                    return

    def _is_reliable(self) -> bool:
        current_reliability = reliability(self.effects.combined_effects)
        return current_reliability is not None and current_reliability >= self.search.reach

    def _is_over(self) -> bool:
        if self.effect_estimator is None or not self.effects.samples:
            return self.context.is_exhausted
        # The rest of the time is for the runs of the first places.
        taken = time.monotonic() - self._began
        return self.context.is_exhausted or taken > _ESTIMATING * self.context.budget.seconds

    def _verify(self) -> Iterator[Sensitivity]:
        """Run places until those that come first were run, and those of which there is no estimate."""
        before: list[int] = []
        while (places := self._select_places()) != before and not self.context.is_exhausted:
            yield from self._measure(0, self.effects.samples, places)
            before = places

    def _select_places(self) -> list[int]:
        """Those that come first by what is known so far, and those of which there is no estimate."""
        means = self.effects.estimated.mean(axis=1)
        unknown = {int(i) for i in np.flatnonzero(np.isnan(means))}
        runs = self.effects.measured[:, : self.effects.estimated.shape[1]]
        if runs.shape[1]:
            run = ~np.isnan(runs).any(axis=1)
            means[run] = runs[run].mean(axis=1)
        first = [int(i) for i in np.argsort(-means) if int(i) not in unknown][: self.search.verify]
        return sorted({*first, *unknown}, key=lambda i: (i in unknown, -means[i]))

    def _estimate(self, begin: int, end: int) -> Iterator[Sensitivity]:
        """An estimate of every place on the samples from one number to another."""
        assert self.effect_estimator is not None  # noqa: S101 - called with an estimator only
        self.context.phase("Following errors to the outputs", max(end - begin, 0))
        for batch, first, count in self._iter_batches(begin, end):
            self.context.check(_ACTIVITY)
            if self._is_over() and (self.effects.samples >= FEW or self.context.is_exhausted):
                return
            plain = self._run_timed(2, self._plain, batch)
            loss = self._make_loss(plain, first, count)
            if loss.rows < count and self.search.source.free_batch:
                self._alone = True
                yield from self._estimate(first, end)
                return
            quantized_outputs = self._run({**batch, INPUT: self.toggles.make_inverse_vector(())})
            is_released = self.search.asks == "released"
            began = time.perf_counter()
            products = self.effect_estimator.products(
                batch, quantized_outputs, loss, first, released=is_released
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
        if self._order is not None:
            for at in range(first, min(last, len(self._order)), size):
                part = data.pick(self._order[at : min(at + size, last)].tolist())
                for batch in part.batches(model, size):
                    count = part.samples_in(model, batch)
                    yield batch, first, count
                    first += count
            return
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
            loss, total_loss, pair = self._reference(batch, first, count)
            if loss.rows < count and self.search.source.free_batch:
                # Such as all boxes found in several pictures: no output tells samples apart.
                self._alone = True
                yield from self._measure(first, end, rows)
                return
            effects = np.full((len(self.vectors), count), np.nan)
            effects[:, : table.shape[1]] = table
            scores = np.full((len(self.vectors) + 2, count), np.nan)
            known = self.effects.scores[:, first : first + count]
            scores[: len(known), : known.shape[1]] = known
            scores[-2:] = pair
            self.context.phase(f"Running {first + count} samples with one switch turned", len(pending))
            for i in self.context.iterate(pending, _ACTIVITY):
                outputs = self._run_timed(1, self._run, {**batch, INPUT: self.vectors[i]})
                switched_loss = loss.each(outputs)
                scores[i] = _get_amounts(loss.tally(outputs))
                effects[i] = switched_loss if self.search.asks == "only" else total_loss - switched_loss
                self.context.count(runs=1)
                self.context.advance()
                if not first:
                    # Something is known at once.
                    self._keep(first, effects, total_loss, scores)
                    yield self._make_record()
            if not np.isnan(effects[list(rows)]).any():
                self._keep(first, effects, total_loss, scores)
                yield self._make_record()

    def _keep(
        self,
        first: int,
        effects: NDArray[np.float64],
        total_loss: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> None:
        """Put the effects on a batch in place of what was known of it."""
        was, last = self.effects, first + effects.shape[1]
        before = was.scores if len(was.scores) else scores[:, :0]
        self.effects = dataclasses.replace(
            was,
            measured=np.concatenate([was.measured[:, :first], effects, was.measured[:, last:]], axis=1),
            losses=np.concatenate([was.losses[:first], total_loss, was.losses[last:]]),
            scores=np.concatenate([before[:, :first], scores, before[:, last:]], axis=1),
            work=(self.elapsed[0], self.elapsed[1], self.elapsed[2]),
        )

    def _make_loss(self, plain: Outputs, first: int, count: int) -> SampleLoss:
        """The loss beside the outputs of fp32 on some samples."""
        search = self.search
        numbers = np.arange(first, first + count)
        if self._order is not None:
            numbers = self._order[numbers]
        # What no number with a fraction says, such as the class itself, is not among the outputs.
        task = search.task if self.names[0] == search.source.outputs[0] else None
        loss = SampleLoss.of(plain, self.names, numbers, task)
        metric = None if loss.task is None else loss.task.counted
        self.effects = dataclasses.replace(self.effects, metric=metric, loss=loss.words)
        return loss

    def _reference(
        self, batch: Batch, first: int, count: int
    ) -> tuple[SampleLoss, NDArray[np.float64], NDArray[np.float64]]:
        """The loss on a batch, what the variant itself loses on it, and the amounts of fp32 and of the variant."""
        if self.effect_estimator is None:
            self._run_timed(2, self._plain, batch)
        off = self._run({**batch, INPUT: self.toggles.make_vector(())})
        loss = self._make_loss(off, first, count)
        quantized_outputs = self._run({**batch, INPUT: self.toggles.make_inverse_vector(())})
        self.context.count(runs=3)
        tally, was = loss.tally(off), self.effects.weights
        weights = np.ones(count) if tally is None or tally.weights is None else tally.weights
        self.effects = dataclasses.replace(
            self.effects, weights=np.concatenate([was[:first], weights, was[first + count :]])
        )
        pair = np.empty((2, count))
        pair[0], pair[1] = _get_amounts(tally), _get_amounts(loss.tally(quantized_outputs))
        return loss, loss.each(quantized_outputs), pair

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


def _get_amounts(tally: Tally | None) -> NDArray[np.float64] | float:
    """The amounts of each sample; NaN where they were not counted."""
    return np.nan if tally is None or tally.amounts is None else tally.amounts


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
        rank_effects(effects, search.by, nodes, search.asks),
        effects.loss,
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
