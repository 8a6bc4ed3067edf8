"""The search: from the whole model to a part that shows the miss, and from there to the fewest changes that end it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Backend, Builder
from rtlab.core.variant import Precision, Variant
from rtlab.errors import ModelError, VariantError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.changes import Change
from rtlab.experiments.why.open_sizes import open_sizes
from rtlab.experiments.why.oracle import DOING, Oracle, Ruling, inputs_of
from rtlab.experiments.why.retyping import retyped
from rtlab.quantize import prepare
from rtlab.questions.fusion import related
from rtlab.questions.why import CAUSES, Cause, FusionTrial, Outcome, Verdict, agreement
from rtlab.questions.why.missed import steps_of, together
from rtlab.relation.mapping import Mapping as Relation

#: A model of no more nodes is asked about as a whole: that takes no longer, and nothing is cut.
_SMALL = 60
#: Hops of a neighbourhood, the smallest first.
_HOPS = (1, 2, 4)
_OPEN = "Not settled yet."
#: Types that are no FP32 any more.
_NARROW = frozenset({"fp16", "bf16", "int8", "uint8", "fp8", "int4", "uint4", "fp4"})


@dataclasses.dataclass(frozen=True)
class WhyApart:
    """Why two neighbours of a built model are not one step of its engine.

    The compiler is asked by building: first the two alone, then a neighbourhood that shows the miss, then that with one
    change after the other, and at last with several, of which those are dropped that are not needed (delta debugging:
    A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002).

    Attributes:
        model: What the engine was built from.
        engine: What the compiler made of it.
        variant: What was chosen; target and options hold for every experiment.
        first: The node that writes.
        second: The one that reads it.
    """

    model: Model
    engine: Engine
    variant: Variant
    first: str
    second: str
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Builder]) -> Iterator[Verdict]:
        """What is known after each build."""
        return _Search(self, rig).verdicts()


@dataclasses.dataclass(frozen=True, eq=False)
class _Stage:
    """A graph that shows the miss, and what the compiler made of it."""

    title: str
    model: Model
    relation: Relation


class _Search:
    """The working state of one question."""

    def __init__(self, asked: WhyApart, rig: Rig[Builder]) -> None:
        self.asked, self.rig = asked, rig
        #: The sizes that profiles leave open; the model has all others as they usually are.
        self.sizes = open_sizes(asked.model, asked.variant.options)
        self.model = asked.model if self.sizes is None else self.sizes.model
        self.oracle = Oracle(asked.variant, rig, self.sizes)
        self.asked_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.trials: list[FusionTrial] = []
        self.memo: dict[tuple[object, ...], bool | None] = {}
        self.relation = related(asked.engine, asked.model, asked.model)
        #: The nodes between the two.
        self.way: tuple[str, ...] = ()
        #: What the steps of the two nodes do in the engine that is asked about.
        self.groups = tuple(_group(self.relation, n) for n in (asked.first, asked.second))

    def verdicts(self) -> Iterator[Verdict]:
        asked, model = self.asked, self.model
        way = cutting.paths(model, asked.first, asked.second)
        if way is None:
            raise ModelError(self._no_neighbours())
        self.rig.phase("Asking the compiler")
        self.way = way
        pair = (asked.first, asked.second)
        shared = together(self.relation, *pair)
        if shared is not False:
            yield self._settled(shared=shared)
            return
        part = cutting.alone(model, (*pair, *way), still_open=self.sizes is not None)
        lone = self._build(part, "", "the two alone", pair)
        yield self._verdict("unknown", text=_OPEN)
        if lone.fused is False and lone.relation is not None and not self._elsewhere(pair):
            # What stands around them cannot be what keeps them apart; they themselves, or what is between them, may.
            own = yield from self._themselves(_Stage("the two alone", part, lone.relation), pair)
            if not own or any(c.retypes for c in own):
                yield (None if own else self._halved(pair)) or self._none(lone, own)
                return
        whole = _Stage("the whole model", model, self.relation)
        stages = [whole]
        if len(model.top) > _SMALL:
            near = yield from self._neighbourhood(pair)
            stages = [near, whole] if near is not None else [whole]
        answer = yield from self._found(stages, pair)
        if answer is None:
            yield self._halved(pair) or self._none(lone)
        else:
            yield from self._cured(*answer, pair)

    def _found(
        self, stages: Sequence[_Stage], pair: tuple[str, str]
    ) -> Generator[Verdict, None, tuple[_Stage, Sequence[Change]] | None]:
        """The fewest changes that do, and where: what lies on the edge is asked about before anything around it is."""
        for stage in stages:
            found = yield from self._singly(stage, self._tiers(stage, pair)[0], pair)
            if found is not None:
                return stage, [found]
        for stage in stages:
            edge = self._tiers(stage, pair)[0]
            if len(edge) > 1 and self._fuses(stage, edge, pair):
                return stage, self._fewest(stage, edge, pair)
        for stage in stages:
            few = yield from self._around(stage, pair)
            if few:
                return stage, few
        return None

    def _elsewhere(self, pair: tuple[str, str]) -> bool:
        """Whether two nodes of the same operators are one step elsewhere in the engine."""
        model, wanted = self.asked.model, tuple(self.asked.model.by_id[n].op for n in pair)
        alike = (
            (node.id, reader.id)
            for node in model.top
            if node.op == wanted[0]
            for value in node.outputs
            for reader in model.consumers.get(value, ())
            if reader.op == wanted[1]
        )
        return any(together(self.relation, *p) for p in alike)

    def _themselves(self, stage: _Stage, pair: tuple[str, str]) -> Generator[Verdict, None, Sequence[Change]]:
        """Changes of the two nodes and of what is between them, after which they are one step where they are alone."""
        edge, _, own, _, _, forms = self._tiers(stage, pair)
        found = yield from self._singly(stage, (*edge, *own, *forms), pair)
        if found is not None:
            return [found]
        every = [*edge, *own, *forms]
        return every if len(every) > 1 and self._fuses(stage, every, pair) else []

    def _neighbourhood(self, pair: tuple[str, str]) -> Generator[Verdict, None, _Stage | None]:
        """The smallest part that shows the miss; None where none does."""
        model = self.model
        start = dict.fromkeys((*pair, *self.way, *(n for group in self.groups for n in group)))
        for hops in _HOPS:
            part = cutting.around(model, start, hops, still_open=self.sizes is not None)
            if len(part.top) >= len(model.top):
                break
            title = f"the neighbourhood of {len(part.nodes)} nodes"
            answer = self._build(part, "", title, pair)
            yield self._verdict("unknown", text=_OPEN)
            if answer.relation is not None and self._repeats(answer, part, frozenset(start), pair):
                return _Stage(title, part, answer.relation)
        return None

    def _repeats(self, answer: Ruling, part: Model, start: frozenset[str], pair: tuple[str, str]) -> bool:
        """Whether a part shows the same miss: the two apart, each in one step with the nodes that it has there."""
        if answer.fused is not False or answer.relation is None:
            return False
        there = frozenset(n for n in start if n in part.by_id)
        return [g & there for g in self.groups] == [_group(answer.relation, n) & there for n in pair]

    def _singly(
        self, stage: _Stage, tier: Sequence[Change], pair: tuple[str, str]
    ) -> Generator[Verdict, None, Change | None]:
        """The change after which the two are one step; of several, one that keeps the outputs."""
        found: list[Change] = []
        for change in self.rig.each(tier, DOING):
            if self._fuses(stage, [change], pair):
                found.append(change)
                # Rivals come the farthest first, which alone is enough.
                if change.cause == "competitor":
                    break
            yield self._verdict("unknown", text=_OPEN)
        return min(found, key=lambda c: not c.keeps, default=None)

    def _around(self, stage: _Stage, pair: tuple[str, str]) -> Generator[Verdict, None, Sequence[Change]]:
        """The fewest changes, of those on the edge and around it, after which the two are one step."""
        near, *tiers = self._tiers(stage, pair)
        every = list(near)
        for tier in tiers:
            found = yield from self._singly(stage, tier, pair)
            if found is not None:
                return [found]
            every += tier
            # The least first: with all that lies nearer changed too, one of the two may be gone.
            for several in (tier, [*near, *tier], every) if tier else ():
                if len(several) > 1 and self._fuses(stage, several, pair):
                    return self._fewest(stage, several, pair)
        return []

    def _settled(self, *, shared: bool | None) -> Verdict:
        """What the engine itself tells, so that nothing has to be tried."""
        asked = self.asked
        if shared:
            step = next(
                i for i in steps_of(self.relation, asked.first) if asked.second in self.relation.run(i)
            )
            layer = asked.engine.layer(step)
            return self._verdict(
                "fused", text=f'Layer {layer.index + 1}, "{layer.name}", does the work of both.'
            )
        lost = next(n for n in (asked.first, asked.second) if not steps_of(self.relation, n))
        why = self.relation.why(lost)
        text = (
            why.text if why is not None else "Its layers only serve it, with a cast, a Q/DQ pair or a layout."
        )
        return self._verdict("unknown", text=f'No layer is known to do the work of "{lost}". {text}')

    def _none(self, lone: Ruling, own: Sequence[Change] = ()) -> Verdict:
        """That nothing makes one step of them, or only what gives them another arithmetic."""
        tried = len(self.trials)
        if self.rig.over:
            return self._verdict(
                "unknown", text=f"The budget was over after {tried} experiments, before a cause was found."
            )
        if lone.fused is None:
            text = f"The compiler refuses the two alone, and no change makes one step of them ({tried} experiments)."
            return self._verdict("unknown", text=text)
        if lone.fused:
            text = (
                "The two nodes alone are one step, and here they are not, whatever was changed around them "
                f"({tried} experiments)."
            )
            return self._verdict("unknown", text=text)
        ops = " and ".join(self.asked.model.by_id[n].op for n in (self.asked.first, self.asked.second))
        if own:
            types = " and ".join(dict.fromkeys(self._arithmetic(c) for c in own if c.retypes))
            text = (
                f"In {types} this compiler never makes one step of {ops} like these: they are one only once you "
                f"{changes.joined(own)}. That is another arithmetic, and no remedy."
            )
            nodes = tuple(dict.fromkeys(n for c in own for n in c.nodes))
            return self._verdict(
                "never", causes=("quantization",), nodes=nodes, edit=changes.joined(own), text=text
            )
        text = f"This compiler never makes one step of {ops} like these; tried: {tried} experiments."
        return self._verdict("never", text=text)

    def _halved(self, pair: tuple[str, str]) -> Verdict | None:
        """That the two are one step once all around them is in FP16; None where that is not so, or cannot be tried.

        A part that is one in FP16 has to show the miss as it is, so that the type alone is what differs.
        """
        model = self.model
        tool = self.rig.tool
        known = tool.capabilities().precisions if isinstance(tool, Backend) else ()
        floats = {v.dtype for v in model.values.values() if v.kind != "constant"}
        if Precision.FP16 not in known or self.rig.over or "fp32" not in floats or floats & _NARROW:
            return None
        part = cutting.around(model, (*pair, *self.way), _HOPS[-1], still_open=self.sizes is not None)
        half = prepare(part, Variant(Precision.FP16)).model
        if not all(n in half.by_id for n in pair):
            return None
        title, words = f"the neighbourhood of {len(part.nodes)} nodes", "compute everything in FP16"
        if (
            not self._build(half, words, title, pair).fused
            or self._build(part, "", title, pair).fused is not False
        ):
            return None
        ops = " and ".join(model.by_id[n].op for n in pair)
        text = (
            f"What keeps them apart is {CAUSES['type']}: in FP32 this compiler makes no step of {ops} here, and in "
            "FP16 it does. That rounds otherwise, and is no remedy; a variant in FP16 has it."
        )
        return self._verdict("blocked", causes=("type",), nodes=pair, edit=words, text=text)

    def _arithmetic(self, change: Change) -> str:
        """The type that a change takes away."""
        node = self.asked.model.by_id[change.nodes[0]]
        return self.asked.model.values[node.inputs[0]].dtype.upper()

    def _tiers(self, stage: _Stage, pair: tuple[str, str]) -> list[list[Change]]:
        """Changes by how near they lie: on the edge, behind it, what the two read, what rivals there are, forms."""
        (first, second), part = pair, stage.model
        ends = frozenset(self.asked.model.outputs)
        before, after = (
            [n for i in steps_of(stage.relation, one) for n in stage.relation.run(i)] for one in pair
        )
        return [
            [
                *changes.between(part, first, second, self.way, ends),
                *retyped(part, first, second, self.way),
                *(c for c in changes.rewritten(part, [second]) if {*c.nodes} & {*self.way}),
            ],
            list(changes.behind(part, second, after, ends)),
            [*changes.operands(part, first, second), *(self.sizes.fixed(part) if self.sizes else ())],
            [c for c in changes.rivals_behind(part, pair, after) if not {*c.nodes} & {*self.way}],
            list(changes.rivals_before(part, first, before)),
            list(changes.rewritten(part, pair)),
        ]

    def _cured(self, stage: _Stage, chosen: Sequence[Change], pair: tuple[str, str]) -> Iterator[Verdict]:
        """What keeps them apart, and then whether another form of what is involved keeps the outputs and does too."""
        yield self._blocked(chosen)
        if all(c.keeps for c in chosen):
            return
        involved = (*pair, *(n for c in chosen for n in c.nodes))
        for change in self.rig.each(list(changes.rewritten(stage.model, involved)), DOING):
            fuses = self._fuses(stage, [change], pair)
            yield self._blocked(chosen, change if fuses else None)
            if fuses:
                return

    def _fewest(self, stage: _Stage, every: Sequence[Change], pair: tuple[str, str]) -> list[Change]:
        """The fewest of some changes that do, by delta debugging."""
        left, size = list(every), 2
        while len(left) >= 2:
            width = max(1, len(left) // size)
            blocks = [left[i : i + width] for i in range(0, len(left), width)]
            rest = ([c for c in left if c not in block] for block in self.rig.each(blocks, DOING))
            smaller = next((r for r in rest if r and self._fuses(stage, r, pair)), None)
            if smaller is not None:
                left, size = smaller, max(size - 1, 2)
            elif size >= len(left):
                break
            else:
                size = min(len(left), 2 * size)
        return left

    def _fuses(self, stage: _Stage, chosen: Sequence[Change], pair: tuple[str, str]) -> bool:
        part = stage.model
        key = (stage.title, *sorted(c.words for c in chosen))
        if key not in self.memo and self.rig.over:
            return False
        if key not in self.memo:
            stands = {a: b for c in chosen for a, b in c.stands}
            asked = tuple(stands.get(n, n) for n in pair)
            if asked[0] == asked[1]:
                asked = (asked[0], self._next(part, pair, stands))
            try:
                changed = changes.applied(part, chosen)
            except VariantError:
                # Of changes that exclude each other, nothing can be asked.
                asked = (asked[0], "")
            if not asked[1]:
                self.memo[key] = None
                return False
            self.memo[key] = self._build(
                changed, changes.joined(chosen), stage.title, (asked[0], asked[1])
            ).fused
        return self.memo[key] is True

    def _next(self, part: Model, pair: tuple[str, str], stands: Mapping[str, str]) -> str:
        """The only reader of the second node, which is gone: it stands behind the first now. Empty of several."""
        readers = [r.id for o in part.by_id[pair[1]].outputs for r in part.consumers.get(o, ())]
        return readers[0] if len(readers) == 1 and readers[0] not in stands else ""

    def _build(self, model: Model, words: str, where: str, pair: tuple[str, str]) -> Ruling:
        found = self.oracle.build(model, words or "as it is", where, pair)
        self.trials.append(found.trial)
        return found

    def _blocked(self, chosen: Sequence[Change], cure: Change | None = None) -> Verdict:
        causes: tuple[Cause, ...] = tuple(dict.fromkeys(c.cause for c in chosen))
        nodes = tuple(dict.fromkeys(n for c in chosen for n in c.nodes))
        told = ", and ".join(CAUSES[c] for c in causes)
        edit = changes.joined([cure] if cure else chosen)
        text = f"What keeps them apart is {told}: they are one step once you {changes.joined(chosen)}."
        if cure is not None:
            text += f" What the model computes stays the same if you {edit} instead."
        keeps = cure is not None or all(c.keeps for c in chosen)
        forms = (
            tuple(str(c.rewrite) for c in ([cure] if cure else chosen) if c.rewrite is not None)
            if keeps
            else ()
        )
        return self._verdict(
            "blocked", causes=causes, nodes=nodes, edit=edit, remedy=keeps, rewrites=forms, text=text
        )

    def _verdict(self, verdict: Outcome, **more: Any) -> Verdict:
        asked = self.asked
        return Verdict(
            asked.first,
            asked.second,
            verdict,
            experiments=tuple(self.trials),
            builds=len(self.trials),
            seconds=self.oracle.seconds,
            compiler=asked.engine.title,
            shapes=inputs_of(asked.model),
            elsewhere=self._elsewhere_said(),
            asked=self.asked_at,
            **more,
        )

    def _elsewhere_said(self) -> str:
        """What recorded engines of the same family tell of such a pair."""
        if not self.asked.engine.maker.tensorrt:
            return ""
        return agreement.said(*(self.asked.model.by_id[n].op for n in (self.asked.first, self.asked.second)))

    def _no_neighbours(self) -> str:
        asked = self.asked
        return (
            f'Cannot ask why "{asked.first}" and "{asked.second}" are not one step: they are no neighbours. Choose two '
            "nodes of which one reads what the other writes."
        )


def _group(relation: Relation, node: str) -> frozenset[str]:
    """The nodes whose work is done in the steps that do a node's."""
    return frozenset(n for i in steps_of(relation, node) for n in relation.run(i))
