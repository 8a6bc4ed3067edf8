"""The search: from the whole model to a part that shows the miss, and from there to the fewest changes that end it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Generator, Iterator, Sequence
from typing import Any, ClassVar

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import CAUSES, Cause, Outcome, Verdict, describe_agreement
from rtlab.analyses.why.missed_fusions import same_layer, steps_of
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Backend, Builder
from rtlab.core.variant import Precision, Variant
from rtlab.errors import VariantError
from rtlab.experiments.experiment import minimize
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.changes import Change
from rtlab.experiments.why.open_sizes import open_sizes
from rtlab.experiments.why.oracle import ACTIVITY, Oracle, OracleAnswer, format_input_shapes
from rtlab.experiments.why.reported import read_engine
from rtlab.quantize import prepare
from rtlab.relation.mapping import Mapping as Relation

#: A model of no more nodes is asked about as a whole: that takes no longer, and nothing is cut.
_SMALL = 60
#: Hops of a neighbourhood, the smallest first.
_HOPS = (1, 2, 4)
_OPEN = "Not settled yet."
#: Types that are no FP32 any more.
_NARROW = frozenset({"fp16", "bf16", "int8", "uint8", "fp8", "int4", "uint4", "fp4"})


@dataclasses.dataclass(frozen=True)
class FusionBlockerSearch:
    """Why two neighbours of a built model, ``first`` and its reader ``second``, are not one layer of its engine.

    The compiler builds the two alone, then a neighbourhood that shows the miss, then that with one change at a time,
    and at last with several, which are minimized. Target and options of the variant hold for every build.
    """

    model: Model
    engine: Engine
    variant: Variant
    first: str
    second: str
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[Builder]) -> Iterator[Verdict]:
        """The verdict after each build."""
        return _Search(self, context).iter_verdicts()


@dataclasses.dataclass(frozen=True, eq=False)
class _Stage:
    """A graph that shows the miss, and what the compiler made of it."""

    title: str
    model: Model
    relation: Relation


class _Search:
    """The working state of one question."""

    def __init__(self, search: FusionBlockerSearch, context: WorkContext[Builder]) -> None:
        self.search, self.context = search, context
        self.pair = (search.first, search.second)
        #: The sizes that profiles leave open; the model has all others as they usually are.
        self.sizes = open_sizes(search.model, search.variant.options)
        self.model = search.model if self.sizes is None else self.sizes.model
        self.oracle = Oracle(search.variant, context, self.sizes)
        self.timestamp = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.memo: dict[tuple[str, ...], bool] = {}
        self.relation = relate_engine(search.engine, search.model, search.model)
        #: The nodes between the two.
        self.way: tuple[str, ...] = ()
        #: The nodes of the layers of the two in the engine.
        self.groups = tuple(_group(self.relation, n) for n in self.pair)

    def iter_verdicts(self) -> Iterator[Verdict]:
        search, model = self.search, self.model
        self.context.phase("Asking the compiler")
        pair = self.pair
        if (shown := read_engine(search.engine, self.relation, *pair)) is not None:
            yield self._make_verdict(shown[0], text=shown[1])
            return
        way = self.way = cutting.paths(model, *pair) or ()
        part = cutting.cut_pair(model, (*pair, *way), still_open=self.sizes is not None)
        lone = self.oracle.build(part, "", "the two alone", pair)
        yield self._make_verdict("unknown", text=_OPEN)
        if lone.fused is False and lone.relation is not None and not self._is_fused_elsewhere():
            # What stands around them cannot be what keeps them apart; they themselves, or what is between them, may.
            stage = _Stage("the two alone", part, lone.relation)
            edge, _, operand_changes, _, _, forms = self._collect_tiers(stage)
            pair_changes = yield from self._find_fewest(stage, [[*edge, *operand_changes, *forms]])
            if not pair_changes or any(c.retypes for c in pair_changes):
                yield (None if pair_changes else self._try_fp16()) or self._make_negative_verdict(
                    lone, pair_changes
                )
                return
        stages = [_Stage("the whole model", model, self.relation)]
        if len(model.top) > _SMALL:
            near = yield from self._find_neighbourhood()
            stages = [near, *stages] if near is not None else stages
        # What lies on the edge is tried in each stage before anything around it.
        for tier_count in (1, None):
            for stage in stages:
                tiers = self._collect_tiers(stage)[:tier_count]
                if few := (yield from self._find_fewest(stage, tiers)):
                    yield from self._search_remedy(stage, few)
                    return
        yield self._try_fp16() or self._make_negative_verdict(lone)

    def _is_fused_elsewhere(self) -> bool:
        """Whether two nodes of the same operators are one step elsewhere in the engine."""
        model, ops = self.search.model, tuple(self.search.model.by_id[n].op for n in self.pair)
        alike = (
            (node.id, reader.id)
            for node in model.top
            if node.op == ops[0]
            for value in node.outputs
            for reader in model.consumers.get(value, ())
            if reader.op == ops[1]
        )
        return any(same_layer(self.relation, *p) for p in alike)

    def _find_neighbourhood(self) -> Generator[Verdict, None, _Stage | None]:
        """The smallest part that shows the miss; None where none does."""
        model = self.model
        start = dict.fromkeys((*self.pair, *self.way, *(n for group in self.groups for n in group)))
        for title, part in cutting.iter_neighbourhoods(
            model, start, _HOPS, still_open=self.sizes is not None
        ):
            answer = self.oracle.build(part, "", title, self.pair)
            yield self._make_verdict("unknown", text=_OPEN)
            if answer.relation is not None and self._repeats(answer, part, frozenset(start)):
                return _Stage(title, part, answer.relation)
        return None

    def _repeats(self, answer: OracleAnswer, part: Model, start: frozenset[str]) -> bool:
        """Whether a part shows the same miss: the two apart, each in one step with the nodes that it has there."""
        if answer.fused is not False or answer.relation is None:
            return False
        there = frozenset(n for n in start if n in part.by_id)
        return [g & there for g in self.groups] == [_group(answer.relation, n) & there for n in self.pair]

    def _try_singly(self, stage: _Stage, tier: Sequence[Change]) -> Generator[Verdict, None, Change | None]:
        """The change after which the two are one step; of several, one that keeps the outputs."""
        solutions: list[Change] = []
        for change in self.context.iterate(tier, ACTIVITY):
            if self._fuses(stage, [change]):
                solutions.append(change)
                # Rivals come the farthest first, which alone is enough.
                if change.cause == "competitor":
                    break
            yield self._make_verdict("unknown", text=_OPEN)
        return min(solutions, key=lambda c: not c.keeps, default=None)

    def _find_fewest(
        self, stage: _Stage, tiers: Sequence[Sequence[Change]]
    ) -> Generator[Verdict, None, Sequence[Change]]:
        """The fewest changes after which the two are one layer: tier by tier, each alone and then several together."""
        every: list[Change] = []
        for tier in tiers:
            change = yield from self._try_singly(stage, tier)
            if change is not None:
                return [change]
            every += tier
            # The least first: with all that lies nearer changed too, one of the two may be gone.
            together = [list(tier), [*tiers[0], *tier], every] if len(every) > len(tier) else [every]
            for several in together if tier else ():
                if len(several) > 1 and self._fuses(stage, several):
                    return minimize(several, lambda some: self._fuses(stage, some), self.context, ACTIVITY)
        return []

    def _make_negative_verdict(self, lone: OracleAnswer, pair_changes: Sequence[Change] = ()) -> Verdict:
        """That nothing makes one layer of them, or only what gives them another arithmetic."""
        model, experiments = self.search.model, f"{len(self.oracle.trials)} experiments"
        ops = " and ".join(model.by_id[n].op for n in self.pair)
        if self.context.is_exhausted:
            text = f"The budget was used up after {experiments}, before a cause was found."
        elif lone.fused is None:
            text = (
                f"The compiler refuses the two alone, and no change makes one layer of them ({experiments})."
            )
        elif lone.fused:
            text = (
                "The two nodes alone are one layer, and here they are not, whatever was changed around them "
                f"({experiments})."
            )
        elif not pair_changes:
            text = f"This compiler never makes one layer of {ops} like these; tried: {experiments}."
            return self._make_verdict("never", text=text)
        else:
            sources = [model.by_id[c.nodes[0]].inputs[0] for c in pair_changes if c.retypes]
            types = " and ".join(dict.fromkeys(model.values[v].dtype.upper() for v in sources))
            edit = changes.join_words(pair_changes)
            text = (
                f"In {types} this compiler never makes one layer of {ops} like these: they are one only once you "
                f"{edit}. That is another arithmetic, and no remedy."
            )
            nodes = tuple(dict.fromkeys(n for c in pair_changes for n in c.nodes))
            return self._make_verdict("never", causes=("quantization",), nodes=nodes, edit=edit, text=text)
        return self._make_verdict("unknown", text=text)

    def _try_fp16(self) -> Verdict | None:
        """That the two are one step once all around them is in FP16; None where that is not so, or cannot be tried.

        A part that is one in FP16 has to show the miss as it is, so that the type alone is what differs.
        """
        model = self.model
        tool = self.context.tool
        precisions = tool.capabilities().precisions if isinstance(tool, Backend) else ()
        floats = {v.dtype for v in model.values.values() if v.kind != "constant"}
        if (
            Precision.FP16 not in precisions
            or self.context.is_exhausted
            or "fp32" not in floats
            or floats & _NARROW
        ):
            return None
        nodes = cutting.find_neighbourhood(model, (*self.pair, *self.way), _HOPS[-1])
        part = cutting.cut(model, nodes, still_open=self.sizes is not None)
        half = prepare(part, Variant(Precision.FP16)).model
        if not all(n in half.by_id for n in self.pair):
            return None
        title, words = f"the neighbourhood of {len(part.nodes)} nodes", "compute everything in FP16"
        if (
            not self.oracle.build(half, words, title, self.pair).fused
            or self.oracle.build(part, "", title, self.pair).fused is not False
        ):
            return None
        ops = " and ".join(model.by_id[n].op for n in self.pair)
        text = (
            f"What keeps them apart is {CAUSES['type']}: in FP32 this compiler makes no layer of {ops} here, and in "
            "FP16 it does. That rounds otherwise, and is no remedy; a variant in FP16 has it."
        )
        return self._make_verdict("blocked", causes=("type",), nodes=self.pair, edit=words, text=text)

    def _get_dtype(self, change: Change) -> str:
        """The type that a change takes away."""
        node = self.search.model.by_id[change.nodes[0]]
        return self.search.model.values[node.inputs[0]].dtype.upper()

    def _collect_tiers(self, stage: _Stage) -> list[list[Change]]:
        """Changes by how near they lie: on the edge, behind it, what the two read, what rivals there are, forms."""
        (first, second), part = self.pair, stage.model
        ends = frozenset(self.search.model.outputs)
        before, after = (
            [n for i in steps_of(stage.relation, one) for n in stage.relation.run(i)] for one in self.pair
        )
        return [
            [
                *changes.iter_changes_between(part, first, second, self.way, ends),
                *changes.iter_type_changes(part, first, second, self.way),
                *(c for c in changes.iter_rewrites(part, [second]) if {*c.nodes} & {*self.way}),
            ],
            list(changes.iter_changes_after(part, second, after, ends)),
            [
                *changes.iter_operand_changes(part, first, second),
                *(self.sizes.iter_fixes(part) if self.sizes else ()),
            ],
            [
                c
                for c in changes.iter_competitors_after(part, self.pair, after)
                if not {*c.nodes} & {*self.way}
            ],
            list(changes.iter_competitors_before(part, first, before)),
            list(changes.iter_rewrites(part, self.pair)),
        ]

    def _search_remedy(self, stage: _Stage, chosen_changes: Sequence[Change]) -> Iterator[Verdict]:
        """What keeps them apart, and then whether another form of what is involved keeps the outputs and does too."""
        yield self._make_blocked_verdict(chosen_changes)
        if all(c.keeps for c in chosen_changes):
            return
        involved_nodes = (*self.pair, *(n for c in chosen_changes for n in c.nodes))
        for change in self.context.iterate(
            list(changes.iter_rewrites(stage.model, involved_nodes)), ACTIVITY
        ):
            fuses = self._fuses(stage, [change])
            yield self._make_blocked_verdict(chosen_changes, change if fuses else None)
            if fuses:
                return

    def _fuses(self, stage: _Stage, chosen_changes: Sequence[Change]) -> bool:
        """Whether the two are one layer after some changes; False once the budget is used up."""
        key = (stage.title, *sorted(c.words for c in chosen_changes))
        if key not in self.memo and self.context.is_exhausted:
            return False
        if key not in self.memo:
            self.memo[key] = self._build_changed(stage, chosen_changes)
        return self.memo[key]

    def _build_changed(self, stage: _Stage, chosen_changes: Sequence[Change]) -> bool:
        part = stage.model
        substitutes = {a: b for c in chosen_changes for a, b in c.substitutes}
        first, second = (substitutes.get(n, n) for n in self.pair)
        if first == second:
            # The second is gone: its only reader stands behind the first now.
            readers = [r.id for o in part.by_id[self.pair[1]].outputs for r in part.consumers.get(o, ())]
            if len(readers) != 1 or readers[0] in substitutes:
                return False
            second = readers[0]
        try:
            changed_model = changes.apply_changes(part, chosen_changes)
        except VariantError:
            # Changes that exclude each other show nothing.
            return False
        words = changes.join_words(chosen_changes)
        return self.oracle.build(changed_model, words, stage.title, (first, second)).fused is True

    def _make_blocked_verdict(self, chosen_changes: Sequence[Change], cure: Change | None = None) -> Verdict:
        causes: tuple[Cause, ...] = tuple(dict.fromkeys(c.cause for c in chosen_changes))
        nodes = tuple(dict.fromkeys(n for c in chosen_changes for n in c.nodes))
        cause_text = ", and ".join(CAUSES[c] for c in causes)
        edit = changes.join_words([cure] if cure else chosen_changes)
        text = (
            f"What keeps them apart is {cause_text}: "
            f"they are one layer once you {changes.join_words(chosen_changes)}."
        )
        if cure is not None:
            text += f" What the model computes stays the same if you {edit} instead."
        keeps = cure is not None or all(c.keeps for c in chosen_changes)
        forms = (
            tuple(str(c.rewrite) for c in ([cure] if cure else chosen_changes) if c.rewrite is not None)
            if keeps
            else ()
        )
        return self._make_verdict(
            "blocked", causes=causes, nodes=nodes, edit=edit, remedy=keeps, rewrites=forms, text=text
        )

    def _make_verdict(self, verdict: Outcome, **more: Any) -> Verdict:
        search = self.search
        return Verdict(
            search.first,
            search.second,
            verdict,
            experiments=tuple(self.oracle.trials),
            builds=len(self.oracle.trials),
            seconds=self.oracle.seconds,
            compiler=search.engine.title,
            shapes=format_input_shapes(search.model),
            elsewhere=(
                describe_agreement(*(search.model.by_id[n].op for n in self.pair))
                if search.engine.maker.tensorrt
                else ""
            ),
            asked=self.timestamp,
            **more,
        )


def _group(relation: Relation, node: str) -> frozenset[str]:
    """The nodes whose work is done in the steps that do a node's."""
    return frozenset(n for i in steps_of(relation, node) for n in relation.run(i))
