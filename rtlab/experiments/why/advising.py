"""Advice: why every fusion that does not happen does not, by experiment, the costliest first."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.roofline import estimate_timing
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.advice import Advice, Cause, Remedy, is_worthwhile
from rtlab.analyses.why.missed_fusions import MissedPair, find_missed_fusions
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.facts import VariantResult
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import Builder, BuildRequest, Evaluator
from rtlab.core.variant import Rewrite, Variant
from rtlab.errors import BuildError, Cancelled, VariantError, wrap_error
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.running import difference, open_engine
from rtlab.experiments.why.cutting import paths
from rtlab.experiments.why.oracle import SearchProgress
from rtlab.experiments.why.search import FusionBlockerSearch
from rtlab.quantize import prepare, rewrites

if TYPE_CHECKING:
    from rtlab.core.arrays import Batch
    from rtlab.core.model import Model

_ACTIVITY = "asking why fusions do not happen"
#: Parts that may be built for one pair.
_BUILDS = 60
#: Seconds for one pair.
_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class AdviceTools:
    """What advice is made with: a compiler, and what computes outputs, where there is any, on what ``batch`` gives.

    ``recall`` gives an earlier verdict on two nodes, ``keep`` keeps a new one.
    """

    builder: Builder
    evaluator: Evaluator | None
    batch: Callable[[], Batch]
    recall: Callable[[str, str], Verdict | None]
    keep: Callable[[Verdict], None]


@dataclasses.dataclass(frozen=True)
class AdviceSearch:
    """Ask about every missed fusion of a variant, the one with most at stake first, and try the remedies."""

    facts: VariantResult
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[AdviceTools]) -> Iterator[Advice]:
        """The advice after each pair, and after each remedy on the whole model."""
        return _AdviceState(self.facts, context).advice()


class _AdviceState:
    """The working state of one round of advice."""

    def __init__(self, facts: VariantResult, context: WorkContext[AdviceTools]) -> None:
        self.facts, self.context = facts, context
        self.model = facts.prepared.model
        timing = estimate_timing(facts)
        worth = functools.partial(is_worthwhile, milliseconds=None if timing is None else timing.estimated)
        # What could pay comes first, and of that what has most at stake.
        self.missed = sorted(find_missed_fusions(facts), key=lambda m: not worth(m))
        self.worth = sum(map(worth, self.missed))
        self.signatures = {one: self._signature(one) for one in self.missed}
        self.began = time.monotonic()
        self.verdicts: dict[MissedPair, Verdict] = {}
        #: The pair that stands for others like it.
        self.alike: dict[MissedPair, MissedPair] = {}
        self.tried: dict[tuple[Rewrite, ...], Remedy | None] = {}
        self.every: Remedy | None = None
        self.outputs: dict[str, np.ndarray] | None = None
        self.unavailable_note = ""

    def advice(self) -> Iterator[Advice]:
        context = self.context
        context.phase("Asking why fusions do not happen", len(self.missed))
        representatives: dict[object, MissedPair] = {}
        offered_rewrites: dict[Rewrite, None] = {}
        yield self._advice()
        for one in context.iterate(self.missed, _ACTIVITY):
            like = representatives.get(self._context_signature(one))
            if like is not None:
                self.alike[one] = like
            elif self._has_time(len(offered_rewrites)) and (verdict := self._ask(one)) is not None:
                self.verdicts[one] = verdict
                pair_rewrites = self._rewrites(verdict)
                offered_rewrites.update(dict.fromkeys(pair_rewrites))
                if not pair_rewrites:
                    # A remedy is one of a pair's own nodes; any other verdict holds for those that stand alike.
                    representatives[self._context_signature(one)] = one
            context.advance()
            yield self._advice()
        context.phase("Trying remedies on the whole model", len(offered_rewrites))
        for chosen_rewrites in context.iterate(
            [tuple(sorted(offered_rewrites)), *((r,) for r in offered_rewrites)], _ACTIVITY
        ):
            if chosen_rewrites:
                self._try(chosen_rewrites)
                self.every = self._better(chosen_rewrites)
            context.advance()
            yield self._advice()
        paying = [
            r for r in offered_rewrites if (t := self.tried.get((r,))) is not None and t.keeps and t.pays
        ]
        if len(paying) > 1 and not context.is_exhausted:
            together = tuple(sorted(paying))
            self._try(together)
            self.every = self._better(together)
            yield self._advice()

    def _has_time(self, offer_count: int) -> bool:
        """Whether there is time to ask about another pair, and to try what was offered until then."""
        return self.context.remaining > (offer_count + 1) * 2 * (self.facts.engine.seconds or 0.0)

    def _better(self, chosen_rewrites: tuple[Rewrite, ...]) -> Remedy | None:
        """The best of what was taken so far and these, of those that keep the outputs and pay."""
        new = self.tried.get(chosen_rewrites)
        if new is None or not new.keeps or not new.pays:
            return self.every
        best = self.every
        return new if best is None or _compute_gain(new) > _compute_gain(best) else best

    def _context_signature(self, one: MissedPair) -> tuple[object, ...]:
        """The signature of a pair with what stands around it: who else reads and writes there, by operators."""
        model = self.model
        first, second = model.by_id[one.first], model.by_id[one.second]
        written = [model.producers[v].op for n in (first, second) for v in n.inputs if v in model.producers]
        read = [r.op for n in (first, second) for v in n.outputs for r in model.consumers.get(v, ())]
        ends = sum(v in model.outputs for n in (first, second) for v in n.outputs)
        return (self.signatures[one], tuple(sorted(written)), tuple(sorted(read)), ends)

    def _signature(self, one: MissedPair) -> tuple[str, ...]:
        """What the compiler sees of a pair, but for sizes: operators, what stands between, and types."""
        model = self.model
        way = paths(model, one.first, one.second) or ()
        steps = [model.by_id[n] for n in (one.first, *way, one.second)]
        return (*(n.op for n in steps), *(model.values[n.outputs[0]].dtype for n in steps))

    def _note_unavailable(self, error: Exception, action: str) -> None:
        reason = wrap_error(error, action)
        self.unavailable_note = self.unavailable_note or f"Not all could be asked about or tried. {reason}"

    def _ask(self, one: MissedPair) -> Verdict | None:
        """The verdict on a pair; None where its parts cannot be built here, which a note of the advice says."""
        tool, facts = self.context.tool, self.facts
        budget = Budget(max(min(self.context.remaining, _SECONDS), 1.0), _BUILDS)
        inner = WorkContext(tool.builder, SearchProgress(self.context), budget)
        why = FusionBlockerSearch(self.model, facts.engine, facts.variant, one.first, one.second)
        try:
            if (before := tool.recall(one.first, one.second)) is not None:
                return before
            verdict = run_experiment(why, inner)
            tool.keep(verdict)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other pairs are answered
            self._note_unavailable(error, f'ask why "{one.first}" and "{one.second}" are two')
            return None
        finally:
            self.context.count(builds=inner.builds)
        return verdict

    def _rewrites(self, verdict: Verdict) -> list[Rewrite]:
        """Those of a verdict that are forms of the source's own nodes."""
        source_nodes = self.facts.source.by_id
        verdict_rewrites = [Rewrite.of(r) for r in verdict.rewrites]
        return [
            r
            for r in verdict_rewrites
            if r.node in source_nodes and r in rewrites.iter_possible_rewrites(self.facts.source, [r.node])
        ]

    def _try(self, chosen_rewrites: tuple[Rewrite, ...]) -> None:
        """Build the whole model with some rewrites, and compare it with what it was."""
        if chosen_rewrites in self.tried:
            return
        self.tried[chosen_rewrites] = None
        try:
            self.tried[chosen_rewrites] = self._make_remedy(chosen_rewrites)
        except Cancelled:
            raise
        except (BuildError, VariantError):
            # A remedy that cannot be built is none.
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the other remedies are tried
            self._note_unavailable(error, "try a remedy")

    def _make_remedy(self, chosen_rewrites: tuple[Rewrite, ...]) -> Remedy:
        facts = self.facts
        taken = tuple(sorted({*facts.variant.rewrites, *chosen_rewrites}))
        variant: Variant = dataclasses.replace(facts.variant, rewrites=taken)
        source = rewrites.apply_rewrites(facts.source, taken)
        ready = prepare(source, variant, facts.ranges, maker=facts.engine.maker)
        engine = self.context.tool.builder.build(
            BuildRequest(ready.model, variant, several=True), SearchProgress(self.context)
        )
        self.context.count(builds=1)
        after = dataclasses.replace(
            facts, variant=variant, prepared=Prepared(ready.model, ready.model), engine=engine
        )
        times = [estimate_timing(f) for f in (facts, after)]
        estimates = [t.estimated for t in times if t is not None and t.estimated is not None]
        return Remedy(
            tuple(map(str, chosen_rewrites)),
            (facts.engine.layer_count, engine.layer_count),
            (estimates[0], estimates[1]) if len(estimates) == 2 else None,
            self._measure_difference(source),
        )

    def _measure_difference(self, changed_model: Model) -> float | None:
        """The largest difference of any output, by the output's largest magnitude."""
        runner = self.context.tool.evaluator
        if runner is None:
            return None
        if self.outputs is None:
            self.outputs = self._run(
                runner, rewrites.apply_rewrites(self.facts.source, self.facts.variant.rewrites)
            )
        after = self._run(runner, changed_model)
        return max((difference(after[name], was) for name, was in self.outputs.items()), default=0.0)

    def _run(self, runner: Evaluator, model: Model) -> dict[str, np.ndarray]:
        progress = SearchProgress(self.context)
        with open_engine(runner, model, progress) as engine:
            return dict(runner.outputs(engine, self.context.tool.batch(), model.outputs, progress=progress))

    def _advice(self) -> Advice:
        groups: dict[object, list[MissedPair]] = {}
        for one in self.missed:
            verdict = self.verdicts.get(self.alike.get(one, one))
            if verdict is not None:
                groups.setdefault(self._cause_key(verdict, one), []).append(one)
        causes = [self._make_cause(members) for members in groups.values()]
        return Advice(
            tuple(sorted(causes, key=lambda c: -(c.stake or 0.0))),
            len(self.missed),
            self.worth,
            len(self.verdicts),
            self.every,
            tuple(self.verdicts.values()),
            self.context.builds,
            time.monotonic() - self.began,
            self.facts.engine.title,
            self.unavailable_note,
        )

    def _cause_key(self, verdict: Verdict, one: MissedPair) -> object:
        """What pairs share that have one cause: the node itself, or the same operators in the same place."""
        if verdict.verdict == "blocked" and verdict.rewrites:
            return verdict.causes, verdict.nodes
        ops = tuple(self.model.by_id[n].op for n in verdict.nodes if n in self.model.by_id)
        return verdict.verdict, verdict.causes, ops, self.signatures[one]

    def _make_cause(self, members: Sequence[MissedPair]) -> Cause:
        verdict = self.verdicts[self.alike.get(members[0], members[0])]
        stakes = [m.stake for m in members if m.stake is not None]
        pair_rewrites = self._rewrites(verdict)
        return Cause(
            verdict.verdict,
            verdict.cause or "not found",
            verdict.nodes or (members[0].first, members[0].second),
            tuple((m.first, m.second) for m in members),
            len(members),
            sum(stakes) if stakes else None,
            verdict.edit,
            verdict.text,
            self.tried.get((pair_rewrites[0],)) if pair_rewrites else None,
        )


def _compute_gain(remedy: Remedy) -> float:
    """The gain of a remedy in milliseconds, else in layers."""
    return remedy.gain if remedy.gain is not None else float(remedy.layers[0] - remedy.layers[1])
