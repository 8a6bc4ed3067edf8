"""The smallest parts of a model that show what changed from one compiler, or one variant, to another."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from rtlab.analyses.bisection import (
    Bisection,
    ChangedGroup,
    Changes,
    Reproduction,
    count_layers,
    find_changes,
)
from rtlab.analyses.bisection.fusion_changes import Kind, find_regroupings
from rtlab.analyses.why.missed_fusions import BETWEEN, find_readers
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.protocols import Builder, BuildRequest
from rtlab.core.schema import Origin
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, ModelError, Unavailable
from rtlab.experiments.experiment import SearchBudget, SearchContext
from rtlab.experiments.why import cutting
from rtlab.experiments.why.oracle import SearchProgress, build_cached
from rtlab.relation.mapping import Mapping
from rtlab.relation.relate import relate

_ACTIVITY = "looking for what changed"
#: Hops of a part around the nodes that changed, the smallest first.
_HOPS = (1, 2, 4)


@dataclasses.dataclass(frozen=True)
class BisectionSide:
    """One of the two: what was given to its compiler, and what that made of it.

    ``facts`` is None where it refused, and ``error_text`` has its words then. ``builder`` is None where it cannot be
    asked, as of an engine from files. ``release`` is that of its compiler, and ``on`` what both
    sides have in common where their titles leave it out.
    """

    title: str
    model: Model
    variant: Variant
    builder: Builder | None
    facts: VariantResult | None
    error_text: str = ""
    release: str = ""
    on: str = ""


@dataclasses.dataclass(frozen=True)
class BisectionSearch:
    """Find the groups of nodes that two engines run in other steps, and for each the smallest part that shows it.

    Both compilers build ever larger neighbourhoods of a group, or of one of the places that changed alike, until they
    differ about it as they do in the whole, in which nodes share their steps or in their kernels; of
    that part nodes are left out, half of them at a time and at last one by one, as long as the two still differ.

    Attributes:
        first: One side.
        second: The other.
    """

    first: BisectionSide
    second: BisectionSide
    partial: ClassVar[bool] = True

    def steps(self, context: SearchContext[object]) -> Iterator[Bisection]:
        """What is known after each part that was found."""
        return _BisectionState(self, context).iter_records()


class _BisectionState:
    """The working state of one bisection."""

    def __init__(self, search: BisectionSearch, context: SearchContext[object]) -> None:
        self.sides, self.context = (search.first, search.second), context
        self.began = time.monotonic()
        self.timestamp = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.budget = _format_budget(context.budget)
        self.unavailable_note = ""

    def iter_records(self) -> Iterator[Bisection]:
        one, two = self.sides
        self.context.check(_ACTIVITY)
        if one.facts is None and two.facts is None:
            yield self._make_record(
                (), f"Both refuse the model: {one.title} and {two.title}.", said=one.error_text
            )
            return
        if one.facts is None or two.facts is None:
            yield from self._search_refusal(0 if one.facts is None else 1)
            return
        changes = find_changes(one.facts, two.facts)
        rows = list(changes.rows)
        askable = one.builder is not None and two.builder is not None
        yield self._make_record(rows, self._describe_changes(changes), left=len(rows) * askable)
        if not askable:
            return
        self.context.phase("Looking for the smallest parts", len(rows))
        for at, change in enumerate(self.context.iterate(list(rows), _ACTIVITY)):
            try:
                rows[at] = self._attach_reproduction(change)
            except Unavailable as error:
                self.unavailable_note = f" Not every part can be built here. {error}"
            self.context.advance()
            # What the budget ended in the middle has not been looked for.
            is_examined = rows[at].shown is not None or not self.context.is_exhausted
            yield self._make_record(
                rows,
                self._describe_changes(changes) + self.unavailable_note,
                left=len(rows) - at - is_examined,
            )

    def _describe_changes(self, changes: Changes) -> str:
        one, two = self.sides
        on = f" on {one.on}" if one.on else ""
        if not changes.rows and not changes.alone:
            return f"{one.title} and {two.title}{on} take the same steps."
        counts = [len(s.facts.engine.layers) - s.facts.engine.sync for s in self.sides if s.facts is not None]
        layers = " became ".join(map(str, dict.fromkeys(counts)))
        groups = pluralize(len(changes.rows), "group") if changes.rows else "no group"
        sentences = [f"From {one.title} to {two.title}{on}, {groups} of nodes changed ({layers} layers)."]
        regrouped_changes = [c for c in changes.rows if c.kind]
        if regrouped_changes:
            count, ways = sum(c.places for c in regrouped_changes), len(regrouped_changes)
            where = f"At {pluralize(count, 'place')}" if count > 1 else "At one place"
            kinds = f", in {ways} ways" if 1 < ways < count else ", each alike" if ways < count else ""
            sentences.append(f"{where}{kinds}, nodes share a layer with others than before.")
        if changes.alone:
            what = f": {changes.types}" if changes.types else ""
            sentences.append(
                f"{pluralize(changes.alone_nodes, 'node')} "
                f"{'keeps its' if changes.alone_nodes == 1 else 'keep their'} grouping "
                f"and differ{'s' * (changes.alone_nodes == 1)} in kernels or types alone{what}."
            )
        if one.builder is None or two.builder is None:
            sentences.append(
                "No part was built: an engine from files has no compiler here that could be asked."
            )
        return " ".join(sentences)

    def _make_record(self, rows: Sequence[ChangedGroup], text: str, **more: object) -> Bisection:
        one, two = self.sides
        return Bisection(
            one.title, two.title, tuple(rows), text,
            builds=self.context.builds, seconds=time.monotonic() - self.began, budget=self.budget, asked=self.timestamp,
            releases=(one.release, two.release), origins=(_get_origin(one), _get_origin(two)), **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def _search_refusal(self, refusing: int) -> Iterator[Bisection]:
        """The fewest nodes that one of the two refuses, and the other builds."""
        side, other = self.sides[refusing], self.sides[1 - refusing]
        place = ("first", "second")[refusing]
        text = f"{side.title} refuses the model, and {other.title} builds it."
        yield self._make_record((), text, refused=place, said=side.error_text)
        units = _list_compute_nodes(other.model)
        self.context.phase("Looking for what is refused", len(units))

        def fails(subset: Sequence[str]) -> bool:
            builds = [self._build(s, self._cut(s, subset)) for s in (side, other)]
            return builds[0] is None and builds[1] is not None

        # One node often is enough: of each operator and type the first is tried.
        kinds = {_refusal_key(other.model, n): n for n in reversed(units)}
        alone = next(
            (n for n in self.context.iterate(reversed(list(kinds.values())), _ACTIVITY) if fails([n])), None
        )
        node_ids = [alone] if alone is not None else self._minimize_nodes(units, fails)
        if alone is None and (len(node_ids) == len(units) or self.context.is_exhausted):
            yield self._make_record(
                (), f"{text} No smaller part was found that shows it.", refused=place, said=side.error_text
            )
            return
        models = self._cut_both(node_ids)
        row = ChangedGroup(
            tuple(n for n in node_ids if n in self.sides[0].model.by_id),
            node_ids[0],
            1,
            *(("refused", "built") if refusing == 0 else ("built", "refused")),
            None,
            "the compiler refuses it",
            part=len(models[1 - refusing].top),
            operators=_format_operators(models[1 - refusing]),
            shown=Reproduction(models, self._collect_logs(models)),
        )
        text += (
            f" {pluralize(len(node_ids), 'node')} of {len(units)} "
            f"{'is' if len(node_ids) == 1 else 'are'} enough for that."
        )
        yield self._make_record([row], text, refused=place, said=side.error_text)

    def _attach_reproduction(self, change: ChangedGroup) -> ChangedGroup:
        """A change with the smallest part that shows it, where there is one."""
        nodes = [n for n in change.example if all(n in s.model.by_id for s in self.sides)]
        if not nodes:
            return change
        some: tuple[list[Model], Kind] | None = None
        for hops in (0, *_HOPS):
            if self.context.is_exhausted:
                break
            around = [cutting.cut_neighbourhood(s.model, nodes, hops) for s in self.sides] if hops else None
            models = around or self._cut_all(nodes)
            difference = self._compare_builds(models, nodes, by_grouping=bool(change.kind))
            if difference is not None and change.kind <= difference:
                return self._shrink_reproduction(change, models, nodes, change.kind)
            if difference and some is None and difference & change.kind:
                some = models, difference & change.kind
        # Where the whole of it takes more than that, a part of it is shown.
        return self._shrink_reproduction(change, some[0], nodes, some[1]) if some is not None else change

    def _shrink_reproduction(
        self, change: ChangedGroup, models: Sequence[Model], nodes: Sequence[str], kind: Kind
    ) -> ChangedGroup:
        units = _list_compute_nodes(models[0])

        def differs(subset: Sequence[str]) -> bool:
            inside = [n for n in nodes if n in subset]
            if not inside:
                return False
            difference = self._compare_builds(self._cut_all(subset), inside, by_grouping=bool(kind))
            return difference is not None and kind <= difference

        node_ids = self._minimize_nodes(units, differs)
        small = self._cut_all(node_ids) if len(node_ids) < len(units) else list(models)
        pair = (small[0], small[1])
        return dataclasses.replace(
            change,
            part=len(pair[0].top),
            operators=_format_operators(pair[0]),
            shown=Reproduction(pair, self._collect_logs(pair)),
        )

    def _minimize_nodes(self, units: Sequence[str], predicate: Callable[[Sequence[str]], bool]) -> list[str]:
        """The fewest of some nodes for which something holds as for all, by delta debugging within the allowance."""
        remaining, size = list(units), 2
        while len(remaining) >= 2 and not self.context.is_exhausted:
            width = max(1, len(remaining) // size)
            blocks = [remaining[i : i + width] for i in range(0, len(remaining), width)]
            trials = [
                *blocks,
                *([n for n in remaining if n not in block] for block in blocks if len(blocks) > 2),
            ]
            smaller = next((t for t in self.context.iterate(trials, _ACTIVITY) if t and predicate(t)), None)
            if smaller is not None:
                remaining, size = smaller, 2 if len(smaller) <= width else max(size - 1, 2)
            elif width == 1:
                break
            else:
                size = min(len(remaining), 2 * size)
        return remaining

    def _compare_builds(
        self, models: Sequence[Model], nodes: Sequence[str], *, by_grouping: bool
    ) -> Kind | None:
        """How the two compilers differ about some nodes of a part: who shares a step with whom, or else their steps.

        None where they do not differ; of steps nothing more is told.
        """
        builds = [self._build(s, m) for s, m in zip(self.sides, models, strict=True)]
        if builds[0] is None or builds[1] is None:
            return None
        (engine, relation), (other, its) = builds[0], builds[1]
        if by_grouping:
            regroupings = find_regroupings(models[0], (relation, its), (engine, other), nodes)
            return (
                frozenset().union(*(p.compute_kind(models[0]) for p in regroupings)) if regroupings else None
            )
        one, two = count_layers(relation, engine, nodes), count_layers(its, other, nodes)
        return frozenset() if one != two else None

    def _build(self, side: BisectionSide, model: Model | None) -> tuple[Engine, Mapping] | None:
        """What a compiler makes of a part; None where it refuses, or nothing can be cut so."""
        if model is None or side.builder is None:
            return None
        self.context.check(_ACTIVITY)
        self.context.count(builds=1)
        try:
            engine = build_cached(
                side.builder, BuildRequest(model, side.variant, several=True), SearchProgress(self.context)
            )
        except BuildError:
            return None
        return engine, relate(model, model, engine)

    def _cut_all(self, node_ids: Sequence[str]) -> list[Model]:
        parts = [self._cut(s, node_ids) for s in self.sides]
        return [m if m is not None else s.model for m, s in zip(parts, self.sides, strict=True)]

    def _cut_both(self, node_ids: Sequence[str]) -> tuple[Model, Model]:
        first, second = self._cut_all(node_ids)
        return first, second

    def _cut(self, side: BisectionSide, node_ids: Sequence[str]) -> Model | None:
        """Some nodes of a side's model with what stands between them; None where they make no model."""
        inside = [n for n in node_ids if n in side.model.by_id]
        if not inside:
            return None
        selected_nodes = frozenset(inside)
        between: dict[str, None] = {}
        for node in inside:
            for value in side.model.by_id[node].outputs:
                for reader in find_readers(side.model, value):
                    if reader in selected_nodes:
                        between.update(dict.fromkeys(cutting.paths(side.model, node, reader) or ()))
        try:
            return cutting.cut_nodes(side.model, [*inside, *between])
        except ModelError:
            return None

    def _collect_logs(self, models: tuple[Model, Model]) -> tuple[str, str]:
        """What both compilers print of the parts, for a report."""
        logs = []
        for side, model in zip(self.sides, models, strict=True):
            self.context.count(builds=1)
            try:
                assert side.builder is not None  # noqa: S101 - a part was built with it
                logs.append(
                    side.builder.build(
                        BuildRequest(model, side.variant, several=True), SearchProgress(self.context)
                    ).log
                )
            except BuildError as error:
                logs.append(f"{error}\n{error.details}")
        return logs[0], logs[1]


def _format_operators(model: Model) -> str:
    """Those of a part, in its order."""
    return ", ".join(n.op for n in model.top)


def _get_origin(side: BisectionSide) -> Origin:
    """Where what is told of its steps is from."""
    return side.facts.engine.origin if side.facts is not None else "reported"


def _format_budget(most: SearchBudget) -> str:
    """What may be taken, in words."""
    limits = [f"{most.seconds:g} s"] if math.isfinite(most.seconds) else []
    limits += [pluralize(int(most.builds), "build")] if math.isfinite(most.builds) else []
    return f"at most {' and '.join(limits)}" if limits else "no bound"


def _list_compute_nodes(model: Model) -> list[str]:
    """The nodes of a model that compute with its inputs."""
    return [n.id for n in model.top if n.op not in BETWEEN and not cutting.is_constant(model, n.id)]


def _refusal_key(model: Model, node: str) -> tuple[str, Iterable[str]]:
    """What a compiler may refuse of a node, but for sizes: its operator, its types, and what its inputs come from."""
    onnx_node = model.by_id[node]
    producer_ops = tuple(model.producers[v].op if v in model.producers else "" for v in onnx_node.inputs)
    return onnx_node.op, (*producer_ops, *(model.values[v].dtype for v in onnx_node.inputs if v))
