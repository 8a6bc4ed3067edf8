"""The smallest parts of a model that show what changed from one compiler, or one variant, to another."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from rtlab.core.engine import Engine
from rtlab.core.facts import Facts
from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.protocols import Builder, BuildRequest
from rtlab.core.schema import Origin
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, ModelError, Unavailable
from rtlab.experiments.experiment import Allowance, Rig
from rtlab.experiments.why import cutting
from rtlab.experiments.why.oracle import Under, built
from rtlab.questions.bisection import Bisection, Changed, Changes, Reproduction, changed, doing
from rtlab.questions.bisection.regrouped import Kind, places
from rtlab.questions.why.missed import BETWEEN, readers
from rtlab.relation.mapping import Mapping
from rtlab.relation.relate import relate

_DOING = "looking for what changed"
#: Hops of a part around the nodes that changed, the smallest first.
_HOPS = (1, 2, 4)


@dataclasses.dataclass(frozen=True)
class BisectionSide:
    """One of the two: what was given to its compiler, and what that made of it.

    ``facts`` is None where it refused, and ``said`` has its words then. ``builder`` is None where it cannot be asked,
    as of an engine from files. ``release`` is that of its compiler, and ``on`` what both
    sides have in common where their titles leave it out.
    """

    title: str
    model: Model
    variant: Variant
    builder: Builder | None
    facts: Facts | None
    said: str = ""
    release: str = ""
    on: str = ""


@dataclasses.dataclass(frozen=True)
class Bisecting:
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

    def steps(self, rig: Rig[object]) -> Iterator[Bisection]:
        """What is known after each part that was found."""
        return _Bisecting(self, rig).records()


class _Bisecting:
    """The working state of one bisection."""

    def __init__(self, asked: Bisecting, rig: Rig[object]) -> None:
        self.sides, self.rig = (asked.first, asked.second), rig
        self.began = time.monotonic()
        self.asked = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.budget = _budget(rig.allowance)
        self.lacking = ""

    def records(self) -> Iterator[Bisection]:
        one, two = self.sides
        self.rig.check(_DOING)
        if one.facts is None and two.facts is None:
            yield self._record((), f"Both refuse the model: {one.title} and {two.title}.", said=one.said)
            return
        if one.facts is None or two.facts is None:
            yield from self._refusal(0 if one.facts is None else 1)
            return
        changes = changed(one.facts, two.facts)
        found = list(changes.rows)
        askable = one.builder is not None and two.builder is not None
        yield self._record(found, self._told(changes), left=len(found) * askable)
        if not askable:
            return
        self.rig.phase("Looking for the smallest parts", len(found))
        for at, change in enumerate(self.rig.each(list(found), _DOING)):
            try:
                found[at] = self._shown(change)
            except Unavailable as error:
                self.lacking = f" Not every part can be built here. {error}"
            self.rig.advance()
            # What the budget ended in the middle has not been looked for.
            looked = found[at].shown is not None or not self.rig.over
            yield self._record(found, self._told(changes) + self.lacking, left=len(found) - at - looked)

    def _told(self, found: Changes) -> str:
        one, two = self.sides
        on = f" on {one.on}" if one.on else ""
        if not found.rows and not found.alone:
            return f"{one.title} and {two.title}{on} take the same steps."
        counts = [len(s.facts.engine.layers) - s.facts.engine.sync for s in self.sides if s.facts is not None]
        layers = " became ".join(map(str, dict.fromkeys(counts)))
        groups = many(len(found.rows), "group") if found.rows else "no group"
        told = [f"From {one.title} to {two.title}{on}, {groups} of nodes changed ({layers} layers)."]
        shared = [c for c in found.rows if c.kind]
        if shared:
            count, ways = sum(c.places for c in shared), len(shared)
            where = f"At {many(count, 'place')}" if count > 1 else "At one place"
            kinds = f", in {ways} ways" if 1 < ways < count else ", each alike" if ways < count else ""
            told.append(f"{where}{kinds}, nodes share a layer with others than before.")
        if found.alone:
            what = f": {found.types}" if found.types else ""
            told.append(
                f"{many(found.alone_nodes, 'node')} {'keeps its' if found.alone_nodes == 1 else 'keep their'} grouping "
                f"and differ{'s' * (found.alone_nodes == 1)} in kernels or types alone{what}."
            )
        if one.builder is None or two.builder is None:
            told.append("No part was built: an engine from files has no compiler here that could be asked.")
        return " ".join(told)

    def _record(self, found: Sequence[Changed], text: str, **more: object) -> Bisection:
        one, two = self.sides
        return Bisection(
            one.title, two.title, tuple(found), text,
            builds=self.rig.builds, seconds=time.monotonic() - self.began, budget=self.budget, asked=self.asked,
            releases=(one.release, two.release), origins=(_origin(one), _origin(two)), **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def _refusal(self, refusing: int) -> Iterator[Bisection]:
        """The fewest nodes that one of the two refuses, and the other builds."""
        side, other = self.sides[refusing], self.sides[1 - refusing]
        place = ("first", "second")[refusing]
        text = f"{side.title} refuses the model, and {other.title} builds it."
        yield self._record((), text, refused=place, said=side.said)
        units = _units(other.model)
        self.rig.phase("Looking for what is refused", len(units))

        def fails(chosen: Sequence[str]) -> bool:
            made = [self._build(s, self._cut(s, chosen)) for s in (side, other)]
            return made[0] is None and made[1] is not None

        # One node often is enough: of each operator and type the first is tried.
        kinds = {_kind(other.model, n): n for n in reversed(units)}
        alone = next((n for n in self.rig.each(reversed(list(kinds.values())), _DOING) if fails([n])), None)
        chosen = [alone] if alone is not None else self._fewest(units, fails)
        if alone is None and (len(chosen) == len(units) or self.rig.over):
            yield self._record(
                (), f"{text} No smaller part was found that shows it.", refused=place, said=side.said
            )
            return
        models = self._models(chosen)
        row = Changed(
            tuple(n for n in chosen if n in self.sides[0].model.by_id),
            chosen[0],
            1,
            *(("refused", "built") if refusing == 0 else ("built", "refused")),
            None,
            "the compiler refuses it",
            part=len(models[1 - refusing].top),
            operators=_operators(models[1 - refusing]),
            shown=Reproduction(models, self._logs(models)),
        )
        text += f" {many(len(chosen), 'node')} of {len(units)} {'is' if len(chosen) == 1 else 'are'} enough for that."
        yield self._record([row], text, refused=place, said=side.said)

    def _shown(self, change: Changed) -> Changed:
        """A change with the smallest part that shows it, where there is one."""
        nodes = [n for n in change.example if all(n in s.model.by_id for s in self.sides)]
        if not nodes:
            return change
        some: tuple[list[Model], Kind] | None = None
        for hops in (0, *_HOPS):
            if self.rig.over:
                break
            around = [cutting.around(s.model, nodes, hops) for s in self.sides] if hops else None
            models = around or self._cut_all(nodes)
            shown = self._differ(models, nodes, grouped=bool(change.kind))
            if shown is not None and change.kind <= shown:
                return self._smallest(change, models, nodes, change.kind)
            if shown and some is None and shown & change.kind:
                some = models, shown & change.kind
        # Where the whole of it takes more than that, a part of it is shown.
        return self._smallest(change, some[0], nodes, some[1]) if some is not None else change

    def _smallest(
        self, change: Changed, models: Sequence[Model], nodes: Sequence[str], kind: Kind
    ) -> Changed:
        units = _units(models[0])

        def differs(chosen: Sequence[str]) -> bool:
            inside = [n for n in nodes if n in chosen]
            if not inside:
                return False
            shown = self._differ(self._cut_all(chosen), inside, grouped=bool(kind))
            return shown is not None and kind <= shown

        chosen = self._fewest(units, differs)
        small = self._cut_all(chosen) if len(chosen) < len(units) else list(models)
        pair = (small[0], small[1])
        return dataclasses.replace(
            change,
            part=len(pair[0].top),
            operators=_operators(pair[0]),
            shown=Reproduction(pair, self._logs(pair)),
        )

    def _fewest(self, units: Sequence[str], holds: Callable[[Sequence[str]], bool]) -> list[str]:
        """The fewest of some nodes for which something holds as for all, by delta debugging within the allowance."""
        left, size = list(units), 2
        while len(left) >= 2 and not self.rig.over:
            width = max(1, len(left) // size)
            blocks = [left[i : i + width] for i in range(0, len(left), width)]
            trials = [*blocks, *([n for n in left if n not in block] for block in blocks if len(blocks) > 2)]
            smaller = next((t for t in self.rig.each(trials, _DOING) if t and holds(t)), None)
            if smaller is not None:
                left, size = smaller, 2 if len(smaller) <= width else max(size - 1, 2)
            elif width == 1:
                break
            else:
                size = min(len(left), 2 * size)
        return left

    def _differ(self, models: Sequence[Model], nodes: Sequence[str], *, grouped: bool) -> Kind | None:
        """How the two compilers differ about some nodes of a part: who shares a step with whom, or else their steps.

        None where they do not differ; of steps nothing more is told.
        """
        made = [self._build(s, m) for s, m in zip(self.sides, models, strict=True)]
        if made[0] is None or made[1] is None:
            return None
        (engine, relation), (other, its) = made[0], made[1]
        if grouped:
            found = places(models[0], (relation, its), (engine, other), nodes)
            return frozenset().union(*(p.kind(models[0]) for p in found)) if found else None
        one, two = doing(relation, engine, nodes), doing(its, other, nodes)
        return frozenset() if one != two else None

    def _build(self, side: BisectionSide, model: Model | None) -> tuple[Engine, Mapping] | None:
        """What a compiler makes of a part; None where it refuses, or nothing can be cut so."""
        if model is None or side.builder is None:
            return None
        self.rig.check(_DOING)
        self.rig.count(builds=1)
        try:
            engine = built(side.builder, BuildRequest(model, side.variant, several=True), Under(self.rig))
        except BuildError:
            return None
        return engine, relate(model, model, engine)

    def _cut_all(self, chosen: Sequence[str]) -> list[Model]:
        found = [self._cut(s, chosen) for s in self.sides]
        return [m if m is not None else s.model for m, s in zip(found, self.sides, strict=True)]

    def _models(self, chosen: Sequence[str]) -> tuple[Model, Model]:
        first, second = self._cut_all(chosen)
        return first, second

    def _cut(self, side: BisectionSide, chosen: Sequence[str]) -> Model | None:
        """Some nodes of a side's model with what stands between them; None where they make no model."""
        inside = [n for n in chosen if n in side.model.by_id]
        if not inside:
            return None
        wanted = frozenset(inside)
        between: dict[str, None] = {}
        for node in inside:
            for value in side.model.by_id[node].outputs:
                for reader in readers(side.model, value):
                    if reader in wanted:
                        between.update(dict.fromkeys(cutting.paths(side.model, node, reader) or ()))
        try:
            return cutting.these(side.model, [*inside, *between])
        except ModelError:
            return None

    def _logs(self, models: tuple[Model, Model]) -> tuple[str, str]:
        """What both compilers print of the parts, for a report."""
        logs = []
        for side, model in zip(self.sides, models, strict=True):
            self.rig.count(builds=1)
            try:
                assert side.builder is not None  # noqa: S101 - a part was built with it
                logs.append(
                    side.builder.build(BuildRequest(model, side.variant, several=True), Under(self.rig)).log
                )
            except BuildError as error:
                logs.append(f"{error}\n{error.details}")
        return logs[0], logs[1]


def _operators(model: Model) -> str:
    """Those of a part, in its order."""
    return ", ".join(n.op for n in model.top)


def _origin(side: BisectionSide) -> Origin:
    """Where what is told of its steps is from."""
    return side.facts.engine.origin if side.facts is not None else "reported"


def _budget(most: Allowance) -> str:
    """What may be taken, in words."""
    told = [f"{most.seconds:g} s"] if math.isfinite(most.seconds) else []
    told += [many(int(most.builds), "build")] if math.isfinite(most.builds) else []
    return f"at most {' and '.join(told)}" if told else "no bound"


def _units(model: Model) -> list[str]:
    """The nodes of a model that compute with its inputs."""
    return [n.id for n in model.top if n.op not in BETWEEN and not cutting.is_constant(model, n.id)]


def _kind(model: Model, node: str) -> tuple[str, Iterable[str]]:
    """What a compiler may refuse of a node, but for sizes: its operator, its types, and what its inputs come from."""
    found = model.by_id[node]
    made = tuple(model.producers[v].op if v in model.producers else "" for v in found.inputs)
    return found.op, (*made, *(model.values[v].dtype for v in found.inputs if v))
