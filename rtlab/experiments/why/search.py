"""The search: from the whole model to a part that shows the miss, and from there to the fewest changes that end it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import CAUSES, Cause, FusionTrial, Outcome, Verdict, agreement
from rtlab.analyses.why.missed_fusions import same_layer, steps_of
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Backend, Builder
from rtlab.core.variant import Precision, Variant
from rtlab.errors import VariantError
from rtlab.experiments.delta_debugging import minimize
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.changes import Change
from rtlab.experiments.why.open_sizes import open_sizes
from rtlab.experiments.why.oracle import ACTIVITY, Oracle, OracleAnswer, format_input_shapes
from rtlab.experiments.why.retyping import iter_type_changes
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
    """Why two neighbours of a built model are not one step of its engine.

    The compiler is asked by building: first the two alone, then a neighbourhood that shows the miss, then that with one
    change after the other, and at last with several, of which those are dropped that are not needed.

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

    def steps(self, context: WorkContext[Builder]) -> Iterator[Verdict]:
        """What is known after each build."""
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
        #: The sizes that profiles leave open; the model has all others as they usually are.
        self.sizes = open_sizes(search.model, search.variant.options)
        self.model = search.model if self.sizes is None else self.sizes.model
        self.oracle = Oracle(search.variant, context, self.sizes)
        self.timestamp = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.trials: list[FusionTrial] = []
        self.memo: dict[tuple[object, ...], bool | None] = {}
        self.relation = relate_engine(search.engine, search.model, search.model)
        #: The nodes between the two.
        self.way: tuple[str, ...] = ()
        #: What the steps of the two nodes do in the engine that is asked about.
        self.groups = tuple(_group(self.relation, n) for n in (search.first, search.second))

    def iter_verdicts(self) -> Iterator[Verdict]:
        search, model = self.search, self.model
        self.context.phase("Asking the compiler")
        way = self.way = cutting.paths(model, search.first, search.second) or ()
        pair = (search.first, search.second)
        in_same_layer = same_layer(self.relation, *pair)
        if in_same_layer is not False:
            yield self._make_engine_verdict(in_same_layer=in_same_layer)
            return
        part = cutting.cut_pair(model, (*pair, *way), still_open=self.sizes is not None)
        lone = self._build(part, "", "the two alone", pair)
        yield self._make_verdict("unknown", text=_OPEN)
        if lone.fused is False and lone.relation is not None and not self._is_fused_elsewhere(pair):
            # What stands around them cannot be what keeps them apart; they themselves, or what is between them, may.
            pair_changes = yield from self._try_pair(_Stage("the two alone", part, lone.relation), pair)
            if not pair_changes or any(c.retypes for c in pair_changes):
                yield (None if pair_changes else self._try_fp16(pair)) or self._make_negative_verdict(
                    lone, pair_changes
                )
                return
        model_stage = _Stage("the whole model", model, self.relation)
        stages = [model_stage]
        if len(model.top) > _SMALL:
            near = yield from self._find_neighbourhood(pair)
            stages = [near, model_stage] if near is not None else [model_stage]
        answer = yield from self._find_changes(stages, pair)
        if answer is None:
            yield self._try_fp16(pair) or self._make_negative_verdict(lone)
        else:
            yield from self._search_remedy(*answer, pair)

    def _find_changes(
        self, stages: Sequence[_Stage], pair: tuple[str, str]
    ) -> Generator[Verdict, None, tuple[_Stage, Sequence[Change]] | None]:
        """The fewest changes that do, and where: what lies on the edge is asked about before anything around it is."""
        for stage in stages:
            change = yield from self._try_singly(stage, self._collect_tiers(stage, pair)[0], pair)
            if change is not None:
                return stage, [change]
        for stage in stages:
            edge = self._collect_tiers(stage, pair)[0]
            if len(edge) > 1 and self._fuses(stage, edge, pair):
                return stage, self._minimize(stage, edge, pair)
        for stage in stages:
            few = yield from self._try_around(stage, pair)
            if few:
                return stage, few
        return None

    def _is_fused_elsewhere(self, pair: tuple[str, str]) -> bool:
        """Whether two nodes of the same operators are one step elsewhere in the engine."""
        model, ops = self.search.model, tuple(self.search.model.by_id[n].op for n in pair)
        alike = (
            (node.id, reader.id)
            for node in model.top
            if node.op == ops[0]
            for value in node.outputs
            for reader in model.consumers.get(value, ())
            if reader.op == ops[1]
        )
        return any(same_layer(self.relation, *p) for p in alike)

    def _try_pair(self, stage: _Stage, pair: tuple[str, str]) -> Generator[Verdict, None, Sequence[Change]]:
        """Changes of the two nodes and of what is between them, after which they are one step where they are alone."""
        edge, _, operand_changes, _, _, forms = self._collect_tiers(stage, pair)
        change = yield from self._try_singly(stage, (*edge, *operand_changes, *forms), pair)
        if change is not None:
            return [change]
        every = [*edge, *operand_changes, *forms]
        return every if len(every) > 1 and self._fuses(stage, every, pair) else []

    def _find_neighbourhood(self, pair: tuple[str, str]) -> Generator[Verdict, None, _Stage | None]:
        """The smallest part that shows the miss; None where none does."""
        model = self.model
        start = dict.fromkeys((*pair, *self.way, *(n for group in self.groups for n in group)))
        for hops in _HOPS:
            part = cutting.cut_neighbourhood(model, start, hops, still_open=self.sizes is not None)
            if len(part.top) >= len(model.top):
                break
            title = f"the neighbourhood of {len(part.nodes)} nodes"
            answer = self._build(part, "", title, pair)
            yield self._make_verdict("unknown", text=_OPEN)
            if answer.relation is not None and self._repeats(answer, part, frozenset(start), pair):
                return _Stage(title, part, answer.relation)
        return None

    def _repeats(
        self, answer: OracleAnswer, part: Model, start: frozenset[str], pair: tuple[str, str]
    ) -> bool:
        """Whether a part shows the same miss: the two apart, each in one step with the nodes that it has there."""
        if answer.fused is not False or answer.relation is None:
            return False
        there = frozenset(n for n in start if n in part.by_id)
        return [g & there for g in self.groups] == [_group(answer.relation, n) & there for n in pair]

    def _try_singly(
        self, stage: _Stage, tier: Sequence[Change], pair: tuple[str, str]
    ) -> Generator[Verdict, None, Change | None]:
        """The change after which the two are one step; of several, one that keeps the outputs."""
        solutions: list[Change] = []
        for change in self.context.iterate(tier, ACTIVITY):
            if self._fuses(stage, [change], pair):
                solutions.append(change)
                # Rivals come the farthest first, which alone is enough.
                if change.cause == "competitor":
                    break
            yield self._make_verdict("unknown", text=_OPEN)
        return min(solutions, key=lambda c: not c.keeps, default=None)

    def _try_around(self, stage: _Stage, pair: tuple[str, str]) -> Generator[Verdict, None, Sequence[Change]]:
        """The fewest changes, of those on the edge and around it, after which the two are one step."""
        near, *tiers = self._collect_tiers(stage, pair)
        every = list(near)
        for tier in tiers:
            change = yield from self._try_singly(stage, tier, pair)
            if change is not None:
                return [change]
            every += tier
            # The least first: with all that lies nearer changed too, one of the two may be gone.
            for several in (tier, [*near, *tier], every) if tier else ():
                if len(several) > 1 and self._fuses(stage, several, pair):
                    return self._minimize(stage, several, pair)
        return []

    def _make_engine_verdict(self, *, in_same_layer: bool | None) -> Verdict:
        """What the engine itself tells, so that nothing has to be tried."""
        search = self.search
        if in_same_layer:
            step = next(
                i for i in steps_of(self.relation, search.first) if search.second in self.relation.run(i)
            )
            layer = search.engine.layer(step)
            return self._make_verdict(
                "fused", text=f'Layer {layer.index + 1}, "{layer.name}", does the work of both.'
            )
        unmapped_node = next(n for n in (search.first, search.second) if not steps_of(self.relation, n))
        why = self.relation.why(unmapped_node)
        text = (
            why.text if why is not None else "Its layers only serve it, with a cast, a Q/DQ pair or a layout."
        )
        return self._make_verdict(
            "unknown", text=f'No layer is known to do the work of "{unmapped_node}". {text}'
        )

    def _make_negative_verdict(self, lone: OracleAnswer, pair_changes: Sequence[Change] = ()) -> Verdict:
        """That nothing makes one step of them, or only what gives them another arithmetic."""
        trial_count = len(self.trials)
        if self.context.is_exhausted:
            return self._make_verdict(
                "unknown",
                text=f"The budget was used up after {trial_count} experiments, before a cause was found.",
            )
        if lone.fused is None:
            text = (
                "The compiler refuses the two alone, and no change makes one layer of them "
                f"({trial_count} experiments)."
            )
            return self._make_verdict("unknown", text=text)
        if lone.fused:
            text = (
                "The two nodes alone are one layer, and here they are not, whatever was changed around them "
                f"({trial_count} experiments)."
            )
            return self._make_verdict("unknown", text=text)
        ops = " and ".join(self.search.model.by_id[n].op for n in (self.search.first, self.search.second))
        if pair_changes:
            types = " and ".join(dict.fromkeys(self._get_dtype(c) for c in pair_changes if c.retypes))
            text = (
                f"In {types} this compiler never makes one layer of {ops} like these: they are one only once you "
                f"{changes.join_words(pair_changes)}. That is another arithmetic, and no remedy."
            )
            nodes = tuple(dict.fromkeys(n for c in pair_changes for n in c.nodes))
            return self._make_verdict(
                "never",
                causes=("quantization",),
                nodes=nodes,
                edit=changes.join_words(pair_changes),
                text=text,
            )
        text = f"This compiler never makes one layer of {ops} like these; tried: {trial_count} experiments."
        return self._make_verdict("never", text=text)

    def _try_fp16(self, pair: tuple[str, str]) -> Verdict | None:
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
        part = cutting.cut_neighbourhood(
            model, (*pair, *self.way), _HOPS[-1], still_open=self.sizes is not None
        )
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
            f"What keeps them apart is {CAUSES['type']}: in FP32 this compiler makes no layer of {ops} here, and in "
            "FP16 it does. That rounds otherwise, and is no remedy; a variant in FP16 has it."
        )
        return self._make_verdict("blocked", causes=("type",), nodes=pair, edit=words, text=text)

    def _get_dtype(self, change: Change) -> str:
        """The type that a change takes away."""
        node = self.search.model.by_id[change.nodes[0]]
        return self.search.model.values[node.inputs[0]].dtype.upper()

    def _collect_tiers(self, stage: _Stage, pair: tuple[str, str]) -> list[list[Change]]:
        """Changes by how near they lie: on the edge, behind it, what the two read, what rivals there are, forms."""
        (first, second), part = pair, stage.model
        ends = frozenset(self.search.model.outputs)
        before, after = (
            [n for i in steps_of(stage.relation, one) for n in stage.relation.run(i)] for one in pair
        )
        return [
            [
                *changes.iter_changes_between(part, first, second, self.way, ends),
                *iter_type_changes(part, first, second, self.way),
                *(c for c in changes.iter_rewrites(part, [second]) if {*c.nodes} & {*self.way}),
            ],
            list(changes.iter_changes_after(part, second, after, ends)),
            [
                *changes.iter_operand_changes(part, first, second),
                *(self.sizes.iter_fixes(part) if self.sizes else ()),
            ],
            [c for c in changes.iter_competitors_after(part, pair, after) if not {*c.nodes} & {*self.way}],
            list(changes.iter_competitors_before(part, first, before)),
            list(changes.iter_rewrites(part, pair)),
        ]

    def _search_remedy(
        self, stage: _Stage, chosen_changes: Sequence[Change], pair: tuple[str, str]
    ) -> Iterator[Verdict]:
        """What keeps them apart, and then whether another form of what is involved keeps the outputs and does too."""
        yield self._make_blocked_verdict(chosen_changes)
        if all(c.keeps for c in chosen_changes):
            return
        involved_nodes = (*pair, *(n for c in chosen_changes for n in c.nodes))
        for change in self.context.iterate(
            list(changes.iter_rewrites(stage.model, involved_nodes)), ACTIVITY
        ):
            fuses = self._fuses(stage, [change], pair)
            yield self._make_blocked_verdict(chosen_changes, change if fuses else None)
            if fuses:
                return

    def _minimize(self, stage: _Stage, every: Sequence[Change], pair: tuple[str, str]) -> list[Change]:
        """The fewest of some changes that do."""
        return minimize(every, lambda some: self._fuses(stage, some, pair), self.context, ACTIVITY)

    def _fuses(self, stage: _Stage, chosen_changes: Sequence[Change], pair: tuple[str, str]) -> bool:
        part = stage.model
        key = (stage.title, *sorted(c.words for c in chosen_changes))
        if key not in self.memo and self.context.is_exhausted:
            return False
        if key not in self.memo:
            substitutes = {a: b for c in chosen_changes for a, b in c.substitutes}
            node_pair = tuple(substitutes.get(n, n) for n in pair)
            if node_pair[0] == node_pair[1]:
                node_pair = (node_pair[0], self._find_reader(part, pair, substitutes))
            try:
                changed_model = changes.apply_changes(part, chosen_changes)
            except VariantError:
                # Of changes that exclude each other, nothing can be asked.
                node_pair = (node_pair[0], "")
            if not node_pair[1]:
                self.memo[key] = None
                return False
            self.memo[key] = self._build(
                changed_model, changes.join_words(chosen_changes), stage.title, (node_pair[0], node_pair[1])
            ).fused
        return self.memo[key] is True

    def _find_reader(self, part: Model, pair: tuple[str, str], substitutes: Mapping[str, str]) -> str:
        """The only reader of the second node, which is gone: it stands behind the first now. Empty of several."""
        readers = [r.id for o in part.by_id[pair[1]].outputs for r in part.consumers.get(o, ())]
        return readers[0] if len(readers) == 1 and readers[0] not in substitutes else ""

    def _build(self, model: Model, words: str, where: str, pair: tuple[str, str]) -> OracleAnswer:
        answer = self.oracle.build(model, words or "as it is", where, pair)
        self.trials.append(answer.trial)
        return answer

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
            experiments=tuple(self.trials),
            builds=len(self.trials),
            seconds=self.oracle.seconds,
            compiler=search.engine.title,
            shapes=format_input_shapes(search.model),
            elsewhere=self._describe_recorded(),
            asked=self.timestamp,
            **more,
        )

    def _describe_recorded(self) -> str:
        """What recorded engines of the same family tell of such a pair."""
        if not self.search.engine.maker.tensorrt:
            return ""
        return agreement.describe_agreement(
            *(self.search.model.by_id[n].op for n in (self.search.first, self.search.second))
        )


def _group(relation: Relation, node: str) -> frozenset[str]:
    """The nodes whose work is done in the steps that do a node's."""
    return frozenset(n for i in steps_of(relation, node) for n in relation.run(i))
