"""Advice: why every fusion that does not happen does not, by experiment, the costliest first."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab import questions
from rtlab.core.facts import Facts
from rtlab.core.prepared import Prepared
from rtlab.core.protocols import Builder, BuildRequest, Evaluator
from rtlab.core.variant import Rewrite, Variant
from rtlab.errors import BuildError, Unavailable, VariantError
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.why.cutting import paths
from rtlab.experiments.why.oracle import Under
from rtlab.experiments.why.search import WhyApart
from rtlab.quantize import prepare, rewrites
from rtlab.questions.why import Verdict
from rtlab.questions.why.advice import Advice, Cause, Remedy
from rtlab.questions.why.missed import Missed, missed

if TYPE_CHECKING:
    from rtlab.core.arrays import Batch
    from rtlab.core.model import Model
    from rtlab.core.ranges import Ranges

_DOING = "asking why fusions do not happen"
#: Parts that may be built for one pair.
_BUILDS = 30
#: Seconds for one pair.
_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Adviser:
    """What advice is made with: a compiler, and what computes outputs on one batch, where there is any.

    ``recall`` tells what was found before of two nodes, ``keep`` keeps what is found now; None for neither.
    """

    builder: Builder
    evaluator: Evaluator | None
    batch: Batch
    recall: Callable[[str, str], Verdict | None] | None = None
    keep: Callable[[Verdict], None] | None = None


@dataclasses.dataclass(frozen=True)
class Advising:
    """Ask about every missed fusion of a variant, the one with most at stake first, and try what may be done.

    Attributes:
        facts: The variant.
        ranges: What its calibrator saw, to prepare it anew.
    """

    facts: Facts
    ranges: Ranges | None = None
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Adviser]) -> Iterator[Advice]:
        """What is known after each pair, and after each remedy on the whole model."""
        return _Advising(self, rig).advice()


class _Advising:
    """The working state of one round of advice."""

    def __init__(self, asked: Advising, rig: Rig[Adviser]) -> None:
        self.facts, self.ranges, self.rig = asked.facts, asked.ranges, rig
        self.model = asked.facts.prepared.model
        self.missed = missed(asked.facts)
        self.signatures = {one: self._signature(one) for one in self.missed}
        self.began = time.monotonic()
        self.verdicts: dict[Missed, Verdict] = {}
        #: Pairs that are like one that never is one step, by that pair.
        self.alike: dict[Missed, Missed] = {}
        self.tried: dict[tuple[Rewrite, ...], Remedy | None] = {}
        self.every: Remedy | None = None
        self.outputs: dict[str, np.ndarray] | None = None
        self.lacking = ""

    def advice(self) -> Iterator[Advice]:
        rig = self.rig
        rig.phase("Asking why fusions do not happen", len(self.missed))
        known: dict[object, Missed] = {}
        offered: dict[Rewrite, None] = {}
        yield self._advice()
        for one in rig.each(self.missed, _DOING):
            like = known.get(self.signatures[one]) or known.get(self._surroundings(one))
            if like is not None:
                self.alike[one] = like
            elif self._room(len(offered)) and (found := self._asked(one)) is not None:
                self.verdicts[one] = found
                own = self._rewrites(found)
                offered.update(dict.fromkeys(own))
                if found.verdict == "never":
                    known[self.signatures[one]] = one
                elif not own:
                    # What has a remedy has one of its own nodes; all else is told of those that stand alike.
                    known[self._surroundings(one)] = one
            rig.advance()
            yield self._advice()
        rig.phase("Trying remedies on the whole model", len(offered))
        for chosen in rig.each([tuple(sorted(offered)), *((r,) for r in offered)], _DOING):
            if chosen:
                self._try(chosen)
                self.every = self._better(chosen)
            rig.advance()
            yield self._advice()
        yield from self._all(offered)

    def _room(self, offered: int) -> bool:
        """Whether there is time to ask about another pair, and to try what was offered until then."""
        build = self.facts.engine.seconds or 0.0
        left = self.rig.allowance.seconds - (time.monotonic() - self.began)
        return left > (offered + 1) * 2 * build

    def _better(self, chosen: tuple[Rewrite, ...]) -> Remedy | None:
        """The best of what was taken so far and these, of those that keep the outputs and pay."""
        new = self.tried.get(chosen)
        if new is None or not new.keeps or not new.pays:
            return self.every
        best = self.every
        return new if best is None or _gained(new) > _gained(best) else best

    def _all(self, offered: Iterable[Rewrite]) -> Iterator[Advice]:
        """Those that pay, together; and where that is worse than one of them, one after the other."""
        paying = [r for r in offered if (t := self.tried.get((r,))) is not None and t.keeps and t.pays]
        together = tuple(sorted(paying))
        if len(paying) < 2 or self.rig.over:
            return
        self._try(together)
        if (found := self._better(together)) is self.tried.get(together):
            self.every = found
            yield self._advice()
            return
        chosen: tuple[Rewrite, ...] = ()
        for rewrite in self.rig.each(sorted(paying, key=lambda r: -self._gain((r,))), _DOING):
            more = tuple(sorted((*chosen, rewrite)))
            self._try(more)
            if self._gain(more) > max(self._gain(chosen), 0.0):
                chosen, self.every = more, self._better(more)
            yield self._advice()

    def _gain(self, chosen: tuple[Rewrite, ...]) -> float:
        found = self.tried.get(chosen)
        return -math.inf if found is None else _gained(found)

    def _surroundings(self, one: Missed) -> tuple[object, ...]:
        """The signature of a pair with what stands around it: who else reads and writes there, by operators."""
        model = self.model
        first, second = model.by_id[one.first], model.by_id[one.second]
        written = [model.producers[v].op for n in (first, second) for v in n.inputs if v in model.producers]
        read = [r.op for n in (first, second) for v in n.outputs for r in model.consumers.get(v, ())]
        ends = sum(v in model.outputs for n in (first, second) for v in n.outputs)
        return (self.signatures[one], tuple(sorted(written)), tuple(sorted(read)), ends)

    def _signature(self, one: Missed) -> tuple[str, ...]:
        """What the compiler sees of a pair, but for sizes: operators, what stands between, and types."""
        model = self.model
        way = paths(model, one.first, one.second) or ()
        steps = [model.by_id[n] for n in (one.first, *way, one.second)]
        return (*(n.op for n in steps), *(model.values[n.outputs[0]].dtype for n in steps))

    def _asked(self, one: Missed) -> Verdict | None:
        """What is found of a pair; None where its parts cannot be built here, which is told beside what is known."""
        try:
            return self._ask(one)
        except Unavailable as error:
            self._lack(error)
            return None

    def _lack(self, error: Unavailable) -> None:
        self.lacking = self.lacking or f"Not all could be asked about or tried. {error}"

    def _ask(self, one: Missed) -> Verdict:
        tool = self.rig.tool
        if tool.recall is not None and (before := tool.recall(one.first, one.second)) is not None:
            return before
        left = self.rig.allowance.seconds - (time.monotonic() - self.began)
        inner = Rig(self.rig.tool.builder, Under(self.rig), Allowance(max(min(left, _SECONDS), 1.0), _BUILDS))
        facts = self.facts
        why = WhyApart(self.model, facts.engine, facts.variant, one.first, one.second)
        found = carry_out(why, inner)
        self.rig.count(builds=inner.builds)
        if tool.keep is not None:
            tool.keep(found)
        return found

    def _rewrites(self, verdict: Verdict) -> list[Rewrite]:
        """Those of a verdict that are forms of the source's own nodes."""
        known = self.facts.source.by_id
        given = [Rewrite.of(r) for r in verdict.rewrites]
        return [r for r in given if r.node in known and r in rewrites.possible(self.facts.source, [r.node])]

    def _try(self, chosen: tuple[Rewrite, ...]) -> None:
        """Build the whole model with some rewrites, and compare it with what it was."""
        if chosen in self.tried:
            return
        facts = self.facts
        taken = tuple(sorted({*facts.variant.rewrites, *chosen}))
        variant: Variant = dataclasses.replace(facts.variant, rewrites=taken)
        try:
            source = rewrites.rewritten(facts.source, taken)
            ready = prepare(source, variant, self.ranges)
            engine = self.rig.tool.builder.build(
                BuildRequest(ready.model, variant, several=True), Under(self.rig)
            )
        except (BuildError, VariantError, Unavailable) as error:
            self.tried[chosen] = None
            if isinstance(error, Unavailable):
                self._lack(error)
            return
        self.rig.count(builds=1)
        after = dataclasses.replace(
            facts, variant=variant, prepared=Prepared(ready.model, ready.model), engine=engine
        )
        times = [questions.roofline.estimate(f) for f in (facts, after)]
        known = [t.estimated for t in times if t is not None and t.estimated is not None]
        self.tried[chosen] = Remedy(
            tuple(map(str, chosen)),
            (len(facts.engine.layers) - facts.engine.sync, len(engine.layers) - engine.sync),
            (known[0], known[1]) if len(known) == 2 else None,
            self._largest(source),
        )

    def _largest(self, changed: Model) -> float | None:
        """The largest difference of any output, by the output's largest magnitude."""
        runner = self.rig.tool.evaluator
        if runner is None:
            return None
        if self.outputs is None:
            self.outputs = self._run(
                runner, rewrites.rewritten(self.facts.source, self.facts.variant.rewrites)
            )
        after = self._run(runner, changed)
        worst = 0.0
        for name, was in self.outputs.items():
            x, y = np.asarray(was, np.float64), np.asarray(after[name], np.float64)
            worst = max(
                worst, float(np.abs(x - y).max(initial=0.0)) / max(float(np.abs(x).max(initial=0.0)), 1e-30)
            )
        return worst

    def _run(self, runner: Evaluator, model: Model) -> dict[str, np.ndarray]:
        engine = runner.build(BuildRequest(model, Variant(), level="basic"), Under(self.rig))
        try:
            return dict(runner.outputs(engine, self.rig.tool.batch, model.outputs, progress=Under(self.rig)))
        finally:
            runner.release(engine)

    def _advice(self) -> Advice:
        groups: dict[object, list[Missed]] = {}
        for one in self.missed:
            verdict = self.verdicts.get(self.alike.get(one, one))
            if verdict is not None:
                groups.setdefault(self._root(verdict, one), []).append(one)
        causes = [self._cause(members) for members in groups.values()]
        return Advice(
            tuple(sorted(causes, key=lambda c: -(c.stake or 0.0))),
            len(self.missed),
            len(self.verdicts),
            self.every,
            tuple(self.verdicts.values()),
            self.rig.builds,
            time.monotonic() - self.began,
            self.facts.engine.title,
            self.lacking,
        )

    def _root(self, verdict: Verdict, one: Missed) -> object:
        """What pairs share that have one cause: the node itself, or the same operators in the same place."""
        if verdict.verdict == "blocked" and verdict.rewrites:
            return verdict.causes, verdict.nodes
        ops = tuple(self.model.by_id[n].op for n in verdict.nodes if n in self.model.by_id)
        return verdict.verdict, verdict.causes, ops, self.signatures[one]

    def _cause(self, members: Sequence[Missed]) -> Cause:
        verdict = self.verdicts[self.alike.get(members[0], members[0])]
        stakes = [m.stake for m in members if m.stake is not None]
        own = self._rewrites(verdict)
        return Cause(
            verdict.verdict,
            verdict.cause or ("the compiler" if verdict.verdict == "never" else "not found"),
            verdict.nodes or (members[0].first, members[0].second),
            tuple((m.first, m.second) for m in members),
            len(members),
            sum(stakes) if stakes else None,
            verdict.edit,
            verdict.text,
            self.tried.get((own[0],)) if own else None,
        )


def _gained(found: Remedy) -> float:
    """What a remedy gains in milliseconds, else in layers."""
    return found.gain if found.gain is not None else float(found.layers[0] - found.layers[1])
