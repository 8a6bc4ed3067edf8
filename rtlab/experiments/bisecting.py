"""The fewest nodes of a model that show what changed from one compiler, or one variant, to another."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from rtlab.analyses.bisection import (
    Bisection,
    ChangedGroup,
    Kind,
    collect_node_layers,
    count_kernels,
    find_changes,
    find_regroupings,
)
from rtlab.analyses.why.missed_fusions import BETWEEN, find_readers
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.protocols import Builder, BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, ModelError, Unavailable
from rtlab.experiments.experiment import minimize
from rtlab.experiments.why import cutting
from rtlab.experiments.why.oracle import SearchProgress
from rtlab.relation.mapping import Mapping
from rtlab.relation.relate import relate

_ACTIVITY = "looking for what changed"
#: Hops of a part around the nodes that changed, the smallest first.
_HOPS = (0, 1, 2, 4)


@dataclasses.dataclass(frozen=True)
class BisectionSide:
    """One of the two: the model that its compiler builds, and the result.

    ``facts`` is None where it refused, with ``error_text``. ``builder`` is None where it cannot be asked, as of files.
    ``on`` is what both sides have in common where their titles leave it out.
    """

    title: str
    model: Model
    variant: Variant
    builder: Builder | None
    facts: VariantResult | None
    error_text: str = ""
    on: str = ""


@dataclasses.dataclass(frozen=True)
class BisectionSearch:
    """Find the groups of nodes that two engines run in other layers, and for each the fewest nodes that show it.

    Both compilers build ever larger neighbourhoods of a group, or of one of the places that changed alike, until they
    differ about it as they do in the whole; then by delta debugging as little of that as still differs. Of a compiler
    that refuses the model the fewest nodes are found that it refuses.
    """

    first: BisectionSide
    second: BisectionSide
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[object]) -> Iterator[Bisection]:
        """The result after each group."""
        state, first, second = _BisectionState((self.first, self.second), context), self.first, self.second
        context.check(_ACTIVITY)
        if first.facts is not None and second.facts is not None:
            return state.compare(first.facts, second.facts)
        if first.facts is None and second.facts is None:
            text = f"Both refuse the model: {first.title} and {second.title}."
            return iter([state.make_record((), text, said=first.error_text)])
        return state.search_refusal(0 if first.facts is None else 1)


class _BisectionState:
    """The working state of one bisection."""

    def __init__(self, sides: tuple[BisectionSide, BisectionSide], context: WorkContext[object]) -> None:
        self.sides, self.context = sides, context
        self.began = time.monotonic()

    def make_record(
        self,
        rows: Sequence[ChangedGroup],
        text: str,
        *,
        refused: Literal["", "first", "second"] = "",
        said: str = "",
        left: int = 0,
    ) -> Bisection:
        one, two = self.sides
        origins = tuple("reported" if s.facts is None else s.facts.engine.origin for s in self.sides)
        return Bisection(
            one.title, two.title, tuple(rows), text, refused, said, self.context.builds,
            time.monotonic() - self.began, left, (origins[0], origins[1]),
        )  # fmt: skip

    def compare(self, before: VariantResult, after: VariantResult) -> Iterator[Bisection]:
        changes, other_count = find_changes(before, after)
        rows = list(changes)
        text = self._describe_changes(before, after, rows, other_count)
        can_build = all(s.builder is not None for s in self.sides)
        yield self.make_record(rows, text, left=len(rows) if can_build else 0)
        if not can_build:
            return
        self.context.phase("Looking for the fewest nodes", len(rows))
        for i, change in enumerate(self.context.iterate(changes, _ACTIVITY)):
            try:
                rows[i] = self._find_smallest(change)
            except Unavailable as error:
                yield self.make_record(
                    rows, f"{text} Not every part can be built here. {error}", left=len(rows) - i - 1
                )
                return
            self.context.advance()
            # A group in which the budget ended is still to be looked for.
            is_done = rows[i].smallest or not self.context.is_exhausted
            yield self.make_record(rows, text, left=len(rows) - i - bool(is_done))

    def _describe_changes(
        self, before: VariantResult, after: VariantResult, rows: Sequence[ChangedGroup], other_count: int
    ) -> str:
        one, two = self.sides
        on = f" on {one.on}" if one.on else ""
        if not rows and not other_count:
            return f"{one.title} and {two.title}{on} take the same steps."
        counts = [f.engine.layer_count for f in (before, after)]
        layers = " became ".join(map(str, dict.fromkeys(counts)))
        groups = pluralize(len(rows), "group") if rows else "no group"
        text = f"From {one.title} to {two.title}{on}, {groups} of nodes changed ({layers} layers)."
        if places := sum(c.places for c in rows if c.kind):
            where = f"At {pluralize(places, 'place')}" if places > 1 else "At one place"
            text += f" {where}, nodes share a layer with others than before."
        if other_count:
            keep, differ = ("keeps its", "differs") if other_count == 1 else ("keep their", "differ")
            text += (
                f" {pluralize(other_count, 'node')} {keep} grouping and {differ} in kernels or types alone."
            )
        if any(s.builder is None for s in self.sides):
            text += " No part was built: an engine from files has no compiler here that could be asked."
        return text

    def search_refusal(self, refusing: Literal[0, 1]) -> Iterator[Bisection]:
        """The fewest nodes that one of the two refuses, and the other builds."""
        side, other = self.sides[refusing], self.sides[1 - refusing]
        place: Literal["first", "second"] = "second" if refusing else "first"
        text = f"{side.title} refuses the model, and {other.title} builds it."
        yield self.make_record((), text, refused=place, said=side.error_text)
        units = _list_compute_nodes(other.model)
        self.context.phase("Looking for what is refused", len(units))

        def fails(nodes: Sequence[str]) -> bool:
            return self._build(side, nodes) is None and self._build(other, nodes) is not None

        nodes = tuple(minimize(units, fails, self.context, _ACTIVITY))
        if len(nodes) == len(units):
            text = f"{text} No smaller part was found that shows it."
            yield self.make_record((), text, refused=place, said=side.error_text)
            return
        row = ChangedGroup(
            nodes, nodes[0], 1, *(("built", "refused") if refusing else ("refused", "built")),
            "the compiler refuses it", nodes, _format_operators(other.model, nodes),
        )  # fmt: skip
        verb = "is" if len(nodes) == 1 else "are"
        text = f"{text} {pluralize(len(nodes), 'node')} of {len(units)} {verb} enough for that."
        yield self.make_record([row], text, refused=place, said=side.error_text)

    def _find_smallest(self, change: ChangedGroup) -> ChangedGroup:
        """A group with the fewest nodes that show it; as it is where none are found within the budget."""
        model = self.sides[0].model
        example = [n for n in change.example if all(n in s.model.by_id for s in self.sides)]

        def differs(nodes: Sequence[str]) -> bool:
            return self._is_changed(nodes, [n for n in example if n in nodes], change.kind)

        compute_nodes = frozenset(_list_compute_nodes(model))
        for hops in _HOPS if example else ():
            if self.context.is_exhausted:
                return change
            nearby = cutting.find_neighbourhood(model, example, hops)
            units = [n.id for n in model.top if n.id in nearby and n.id in compute_nodes]
            if differs(units):
                nodes = tuple(minimize(units, differs, self.context, _ACTIVITY))
                return dataclasses.replace(change, smallest=nodes, operators=_format_operators(model, nodes))
        return change

    def _is_changed(self, nodes: Sequence[str], example: Sequence[str], kind: Kind) -> bool:
        """Whether compilers differ about some of ``nodes``, built alone: in who shares a layer, or in kernels."""
        builds = [self._build(s, nodes) for s in self.sides] if example else [None]
        if builds[0] is None or builds[1] is None:
            return False
        (model, engine, relation), (_, other_engine, other_relation) = builds[0], builds[1]
        if kind:
            regroupings = find_regroupings(model, (relation, other_relation), (engine, other_engine), example)
            kinds = [p.compute_kind(model) for p in regroupings]
            return kind <= frozenset().union(*kinds)
        one = count_kernels(collect_node_layers(relation, engine), example)
        return one != count_kernels(collect_node_layers(other_relation, other_engine), example)

    def _build(self, side: BisectionSide, nodes: Sequence[str]) -> tuple[Model, Engine, Mapping] | None:
        """What a compiler makes of some nodes; None where it refuses, or they make no model."""
        model = _cut(side.model, nodes)
        if model is None or side.builder is None:
            return None
        self.context.check(_ACTIVITY)
        self.context.count(builds=1)
        try:
            request = BuildRequest(model, side.variant, several=True)
            engine = side.builder.build(request, SearchProgress(self.context))
        except BuildError:
            return None
        return model, engine, relate(model, model, engine)


def _cut(model: Model, node_ids: Sequence[str]) -> Model | None:
    """Some nodes with what stands between them; None where they make no model."""
    inside = dict.fromkeys(n for n in node_ids if n in model.by_id)
    between: dict[str, None] = {}
    for node in inside:
        for value in model.by_id[node].outputs:
            for reader in find_readers(model, value):
                if reader in inside:
                    between.update(dict.fromkeys(cutting.paths(model, node, reader) or ()))
    try:
        return cutting.cut_nodes(model, [*inside, *between]) if inside else None
    except ModelError:
        return None


def _format_operators(model: Model, nodes: Sequence[str]) -> str:
    return ", ".join(model.by_id[n].op for n in nodes)


def _list_compute_nodes(model: Model) -> list[str]:
    """The nodes of a model that compute with its inputs."""
    return [n.id for n in model.top if n.op not in BETWEEN and not cutting.is_constant(model, n.id)]
