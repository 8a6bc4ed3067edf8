"""The search: from the whole model to a part that shows the miss, and from there to the fewest changes that end it.

A layer of three nodes cannot show with two of them. So where the two alone are no layer, parts around them are built by
themselves, the smallest first, as they are and in other forms. What makes one layer of the two in one of these is then
tried where the miss is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any, ClassVar

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import CAUSES, Cause, Outcome, Verdict, describe_agreement
from rtlab.analyses.why.missed_fusions import same_layer, steps_of
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.phrases import list_first, pluralize
from rtlab.core.protocols import Backend, Builder
from rtlab.core.variant import Precision, Variant
from rtlab.errors import ModelError, VariantError
from rtlab.experiments.experiment import minimize
from rtlab.experiments.why import changes, cutting, forms
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
_HALF = "compute everything in FP16"


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
    """A graph that shows the miss, and what the compiler made of it; ``half`` says that it was converted to FP16."""

    title: str
    model: Model
    relation: Relation
    half: bool = False


@dataclasses.dataclass(frozen=True)
class _Form:
    """A form in which a part by itself, of ``nodes``, has one layer that does both; as it is, where it is empty."""

    nodes: Sequence[str] = ()
    half: bool = False
    changes: Sequence[Change] = ()


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
        lone, part = OracleAnswer(None, None), None
        with contextlib.suppress(ModelError):
            part = cutting.cut_pair(model, (*pair, *way), still_open=self.sizes is not None)
            lone = self.oracle.build(part, "", "the two alone", pair)
        yield self._make_verdict("unknown", text=_OPEN)
        form: _Form | None = None
        if lone.fused is False and lone.relation is not None and part is not None:
            is_answered, form = yield from self._search_alone(
                _Stage("the two alone", part, lone.relation), lone
            )
            if is_answered:
                return
        is_settled = yield from self._search_stages(form or _Form())
        if not is_settled and form is None:
            form = yield from self._find_form()
            if form is not None:
                is_settled = yield from self._search_stages(form)
        if not is_settled and form is not None and (form.half or form.changes):
            yield self._make_form_verdict(form, settled=False)
        elif not is_settled:
            yield self._make_negative_verdict(lone, form)

    def _search_alone(
        self, stage: _Stage, lone: OracleAnswer
    ) -> Generator[Verdict, None, tuple[bool, _Form | None]]:
        """What two that are no layer alone lack: whether that is the answer, and the form of a part that has one."""
        is_elsewhere = self._is_fused_elsewhere()
        if not is_elsewhere:
            edge, _, _, operand_changes, _, _, rewritten = self._collect_tiers(stage)
            pair_changes = yield from self._find_fewest(stage, [[*edge, *operand_changes, *rewritten]])
            if any(c.retypes for c in pair_changes):
                yield self._make_retyped_verdict(pair_changes)
                return True, None
            if pair_changes:
                return False, None
        # Where others like these are one layer, they lack neither a type nor a form.
        form = yield from self._find_form(plain=is_elsewhere)
        if form is None and not is_elsewhere:
            yield self._make_negative_verdict(lone)
            return True, None
        return False, form

    def _search_stages(self, form: _Form) -> Generator[Verdict, None, bool]:
        """The verdict in the graphs that show the miss, each changed as a form says; whether there is one."""
        stages = [_Stage("the whole model", self.model, self.relation)]
        if len(self.model.top) > _SMALL:
            near = yield from self._find_neighbourhood(form.nodes)
            stages = [near, *stages] if near is not None else stages
        if form.half or form.changes:
            converted = []
            for stage in filter(None, (self._convert(s, form) for s in stages)):
                if self._fuses(stage, form.changes) if form.changes else self._is_fused(stage):
                    yield self._make_form_verdict(form)
                    return True
                # Where the form is refused, more changes of it show nothing.
                if self.oracle.trials[-1].layers is not None:
                    converted.append(stage)
            stages = converted
        # What lies on the edge is tried in each stage before anything around it.
        for tier_count in (1, None):
            for stage in stages:
                tiers = self._collect_tiers(stage, form.nodes)[:tier_count]
                if few := (yield from self._find_fewest(stage, tiers, form.changes)):
                    if form.half or form.changes:
                        yield self._make_form_verdict(form, few)
                    else:
                        yield from self._search_remedy(stage, few)
                    return True
        return False

    def _convert(self, stage: _Stage, form: _Form) -> _Stage | None:
        """A graph in FP16, where the form is; None where it cannot be converted, or the compiler refuses it."""
        half = self._convert_to_half(stage.model) if form.half else stage.model
        if half is None:
            return None
        if not form.half:
            return stage
        relation = self.oracle.build(half, _HALF, stage.title, self.pair).relation
        return None if relation is None else _Stage(f"{stage.title} in FP16", half, relation, half=True)

    def _convert_to_half(self, model: Model) -> Model | None:
        """A graph in FP16; None where nothing of it is in FP32, or its compiler has no FP16."""
        tool = self.context.tool
        precisions = tool.capabilities().precisions if isinstance(tool, Backend) else ()
        floats = {v.dtype for v in model.values.values() if v.kind != "constant"}
        if Precision.FP16 not in precisions or "fp32" not in floats:
            return None
        try:
            half = prepare(model, Variant(Precision.FP16)).model
        except VariantError:
            return None
        return half if all(n in half.by_id for n in self.pair) else None

    def _is_fused(self, stage: _Stage) -> bool:
        return same_layer(stage.relation, *self.pair) is True

    def _find_form(self, *, plain: bool = False) -> Generator[Verdict, None, _Form | None]:
        """The form of a part by itself in which one layer does both; None where none was tried that has.

        Each part is built as it is and in FP16, the smallest first, and then with changes; ``plain`` builds them as
        they are alone. A part by itself has no readers outside and no outputs of the model.
        """
        stages: list[tuple[Sequence[str], _Stage]] = []
        for nodes, part in self._iter_parts():
            for is_half in (False,) if plain else (False, True):
                converted = self._convert_to_half(part) if is_half else part
                if converted is None or self.context.is_exhausted:
                    continue
                title = f"a part of {len(nodes)} nodes by itself"
                answer = self.oracle.build(converted, _HALF if is_half else "", title, self.pair)
                yield self._make_verdict("unknown", text=_OPEN)
                if answer.fused:
                    return _Form(nodes, is_half)
                if answer.relation is not None:
                    title = f"{title} in FP16" if is_half else title
                    stages.append((nodes, _Stage(title, converted, answer.relation, is_half)))
        for nodes, stage in stages if not plain else ():
            if few := (yield from self._find_form_changes(stage)):
                return _Form(nodes, stage.half, few)
        return None

    def _iter_parts(self) -> Iterator[tuple[Sequence[str], Model]]:
        """Parts by themselves with the ids of their nodes: the core of an attention, and neighbourhoods."""
        near = (cutting.find_neighbourhood(self.model, (*self.pair, *self.way), hops) for hops in _HOPS)
        isolated = [cutting.isolate(self.model, nodes, self.pair[1]) for nodes in near]
        for nodes in dict.fromkeys(
            map(tuple, [forms.find_between_products(self.model, self.pair), *isolated])
        ):
            # Where a value that would be an input has a size that is not known, there is no part.
            with contextlib.suppress(ModelError):
                yield nodes, cutting.cut_nodes(self.model, nodes, still_open=self.sizes is not None)

    def _find_form_changes(self, stage: _Stage) -> Generator[Verdict, None, Sequence[Change]]:
        """The fewest changes of a part by itself after which one layer does both; empty where none has it."""
        part = stage.model
        fixes = [*self.sizes.iter_fixes(part)] if self.sizes else []
        additions, removals = [*forms.iter_pair_additions(part)], [*forms.iter_pair_removals(part)]
        masks, sizes, batch = [*changes.iter_rewrites(part, self.pair)], [], []
        if products := forms.find_inner_products(part):
            masks += forms.iter_mask_removals(part)
        if products and not self.sizes:
            sizes, batch = (
                [*forms.iter_size_changes(part, products)],
                [*forms.iter_batch_changes(part, products)],
            )
        singly = (*additions, *masks, *sizes, *batch)
        together = [fixes, additions, [*fixes, *additions], removals, [*fixes, *removals]]
        both = [[c, *batch] for c in sizes if batch] + [[a, c] for a in additions for c in sizes]
        groups = [fixes, *([c] for c in singly), *together, *both]
        groups = [g for i, g in enumerate(groups) if g and g not in groups[:i]]
        for group in self.context.iterate(groups, ACTIVITY):
            if self._fuses(stage, group):
                return minimize(group, lambda some: self._fuses(stage, some), self.context, ACTIVITY)
            yield self._make_verdict("unknown", text=_OPEN)
        return []

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

    def _find_neighbourhood(self, nodes: Sequence[str]) -> Generator[Verdict, None, _Stage | None]:
        """The smallest part that has some nodes and shows the miss; None where none does."""
        model = self.model
        start = dict.fromkeys((*self.pair, *self.way, *(n for group in self.groups for n in group), *nodes))
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

    def _try_singly(
        self, stage: _Stage, tier: Sequence[Change], first: Sequence[Change]
    ) -> Generator[Verdict, None, Change | None]:
        """The change after which, with ``first``, the two are one layer; of several, one that keeps the outputs."""
        solutions: list[Change] = []
        for change in self.context.iterate(tier, ACTIVITY):
            if self._fuses(stage, [*first, change]):
                solutions.append(change)
                # Rivals come the farthest first, which alone is enough.
                if change.cause == "competitor":
                    break
            yield self._make_verdict("unknown", text=_OPEN)
        return min(solutions, key=lambda c: not c.keeps, default=None)

    def _find_fewest(
        self, stage: _Stage, tiers: Sequence[Sequence[Change]], first: Sequence[Change] = ()
    ) -> Generator[Verdict, None, Sequence[Change]]:
        """The fewest changes after which the two are one layer: tier by tier, each alone and then several together.

        ``first`` are made in any case.
        """
        every: list[Change] = []
        for tier in tiers:
            change = yield from self._try_singly(stage, tier, first)
            if change is not None:
                return [change]
            every += tier
            # The least first: with all that lies nearer changed too, one of the two may be gone.
            together = [list(tier), [*tiers[0], *tier], every] if len(every) > len(tier) else [every]
            for several in together if tier else ():
                if len(several) > 1 and self._fuses(stage, [*first, *several]):
                    return minimize(
                        several, lambda some: self._fuses(stage, [*first, *some]), self.context, ACTIVITY
                    )
        return []

    def _make_negative_verdict(self, lone: OracleAnswer, form: _Form | None = None) -> Verdict:
        """That no form that was tried makes one layer of them; ``form`` is a part that is one layer as it is."""
        trials = self.oracle.trials
        experiments = pluralize(len(trials), "experiment")
        ops = " and ".join(self.search.model.by_id[n].op for n in self.pair)
        if self.context.is_exhausted:
            text = f"The budget was used up after {experiments}, before a cause was found."
        elif form is not None:
            text = (
                f"A part of {len(form.nodes)} nodes by itself has one layer for both, and here they are two, "
                f"whatever was changed around them ({experiments})."
            )
        elif lone.fused is None:
            text = (
                f"The compiler refuses the two alone, and no change makes one layer of them ({experiments})."
            )
        elif lone.fused:
            text = (
                "The two nodes alone are one layer, and here they are not, whatever was changed around them "
                f"({experiments})."
            )
        else:
            tried = [*dict.fromkeys(t.change for t in trials if t.layers is not None)]
            refused = [*dict.fromkeys(t.change for t in trials if t.layers is None)]
            most = max((int(n) for t in trials for n in re.findall(r"\d+", t.where)), default=2)
            text = (
                f"{ops} like these are one layer in none of {experiments}, alone and with up to {most} nodes: "
                f"{list_first(tried)}."
            )
            if refused:
                text += f" The compiler refused to: {list_first(refused)}."
            if _HALF not in tried and _HALF not in refused:
                text += " Not tried: another type."
            return self._make_verdict("not found", text=text)
        return self._make_verdict("unknown", text=text)

    def _make_retyped_verdict(self, pair_changes: Sequence[Change]) -> Verdict:
        """That the two are one layer only in another arithmetic."""
        model = self.search.model
        sources = [model.by_id[c.nodes[0]].inputs[0] for c in pair_changes if c.retypes]
        types = " and ".join(dict.fromkeys(model.values[v].dtype.upper() for v in sources))
        ops, edit = " and ".join(model.by_id[n].op for n in self.pair), changes.join_words(pair_changes)
        text = (
            f"What keeps them apart is {CAUSES['quantization']}: in {types}, {ops} like these are one layer once you "
            f"{edit}. That is another arithmetic, and no remedy."
        )
        nodes = tuple(dict.fromkeys(n for c in pair_changes for n in c.nodes))
        return self._make_verdict("blocked", causes=("quantization",), nodes=nodes, edit=edit, text=text)

    def _make_form_verdict(
        self, form: _Form, others: Sequence[Change] = (), *, settled: bool = True
    ) -> Verdict:
        """That the two are one layer in another form, which computes something else; ``others`` were needed too.

        Unless it is ``settled``, a part by itself alone shows it.
        """
        every = [*form.changes, *others]
        causes: tuple[Cause, ...] = tuple(dict.fromkeys(c.cause for c in every))
        causes = ("type", *causes) if form.half else causes
        edit = " and ".join([*([_HALF] if form.half else []), *(c.words for c in every)])
        nodes = tuple(dict.fromkeys(n for c in every for n in c.nodes)) or self.pair
        ops = " and ".join(self.search.model.by_id[n].op for n in self.pair)
        text = f"What keeps them apart is {', and '.join(CAUSES[c] for c in causes)}: "
        if not settled:
            is_tried = any(t.change == edit and t.fused is False for t in self.oracle.trials)
            text += f"a part of {len(form.nodes)} nodes by itself has one layer for both once you {edit}; "
            text += f"in the model itself that {'is not enough' if is_tried else 'could not be built'}."
        elif form.half and not every:
            text += f"in FP32 this compiler makes no layer of {ops} here, and in FP16 it does."
        else:
            text += f"they are one layer once you {edit}."
        text += " That computes other numbers, and is no remedy"
        text += "; a variant in FP16 has it." if settled and form.half and not every else "."
        return self._make_verdict("blocked", causes=causes, nodes=nodes, edit=edit, text=text)

    def _collect_tiers(self, stage: _Stage, nodes: Sequence[str] = ()) -> list[list[Change]]:
        """Changes by how near they lie: on the edge, behind it, what the two read, what rivals there are, forms.

        Those among ``nodes``, a part that is one layer by itself, come second.
        """
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
            list(changes.iter_changes_within(part, [n for n in nodes if n in part.by_id], ends)),
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
        except (ModelError, VariantError):
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
