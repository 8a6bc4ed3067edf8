"""Why nodes are one step: with each value between them seen from outside, are they one still?"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.phrases import many
from rtlab.core.protocols import Builder
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.why import changes, cutting, neutral
from rtlab.experiments.why.changes import Change
from rtlab.experiments.why.open_sizes import open_sizes
from rtlab.experiments.why.oracle import DOING, Oracle, inputs_of
from rtlab.quantize.edit import Edit
from rtlab.questions.fusion import related
from rtlab.questions.why import FusionTrial
from rtlab.questions.why.joined import Joined, Parting
from rtlab.questions.why.missed import moving, readers, steps_of
from rtlab.relation.mapping import Mapping as Relation

#: Hops around a step; a part of that many shows the step as it is, or the whole model is asked.
_HOPS = (1, 2)


@dataclasses.dataclass(frozen=True)
class WhyTogether:
    """What holds the nodes of a step together.

    A part around the step is built in which it is as it is in the model; then each value between two of its nodes is
    made an output of the part, and is read by another node too: the compiler shows what it gives up for that.

    Attributes:
        model: What the engine was built from.
        engine: What the compiler made of it.
        variant: What was chosen; target and options hold for every experiment.
        layer: The step, by its id.
    """

    model: Model
    engine: Engine
    variant: Variant
    layer: str
    partial: ClassVar[bool] = True

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose work the step does, in the data's way."""
        run = {*related(self.engine, self.model, self.model).run(self.layer)}
        return tuple(n.id for n in self.model.top if n.id in run)

    @property
    def several(self) -> bool:
        """Whether two of them are neighbours, so that there is something to ask."""
        return any(_seams(self.model, self.nodes))

    def steps(self, rig: Rig[Builder]) -> Iterator[Joined]:
        """What is known after each build.

        Raises:
            VariantError: the step does the work of no two neighbours.
        """
        sizes, nodes = open_sizes(self.model, self.variant.options), self.nodes
        seams = list(_seams(self.model, nodes))
        if not seams:
            raise VariantError(
                f'Cannot ask why "{self.engine.layer(self.layer).name}" is one step: it does the work of no two '
                "neighbours. Choose a layer with several nodes."
            )
        rig.phase("Asking the compiler", 2 * len(seams))
        oracle = Oracle(self.variant, rig, sizes)
        found: list[Parting] = []
        asked_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        left = len(seams)
        values = dict.fromkeys(v for _, _, v in seams)
        taken = [moving(self.model, v, self.engine) for v in values]
        saved = None if None in taken else sum(t for t in taken if t is not None)

        def known() -> Joined:
            return Joined(
                self.layer,
                nodes,
                saved,
                self._text(nodes, len(values), found),
                tuple(found),
                oracle.builds,
                oracle.seconds,
                self.engine.title,
                inputs_of(self.model),
                whole=not left,
                asked=asked_at,
            )

        yield known()
        place = self._place(oracle, nodes, seams[0][:2])
        if place is None:
            yield known()
            return
        where, part = place
        tries = [(seam[:2], change) for seam in seams for change in _partings(part, seam[2])]
        left = len(tries)
        for pair, change in rig.each(tries, DOING):
            built = oracle.build(changes.applied(part, [change]), change.words, where, pair)
            found.append(_parting(*pair, built.trial))
            left -= 1
            yield known()

    def _place(self, oracle: Oracle, nodes: Sequence[str], pair: tuple[str, str]) -> tuple[str, Model] | None:
        """A part in which the step is what it is in the model, else the model itself; None where nothing is left."""
        model = self.model if oracle.sizes is None else oracle.sizes.model
        for hops in _HOPS:
            part = cutting.around(model, nodes, hops, still_open=oracle.sizes is not None)
            if len(part.top) >= len(model.top):
                break
            title = f"the neighbourhood of {len(part.nodes)} nodes"
            built = oracle.build(part, "as it is", title, pair)
            if built.relation is not None and _whole(built.relation, nodes):
                return title, part
            if oracle.rig.over:
                return None
        return "the whole model", model

    def _text(self, nodes: Sequence[str], values: int, found: Sequence[Parting]) -> str:
        layer = self.engine.layer(self.layer)
        ops = [self.model.by_id[n].op for n in nodes]
        told = (
            f'Layer {layer.index + 1}, "{layer.name}", does the work of {", ".join(ops[:-1])} and {ops[-1]}. '
            f"{many(values, 'value')} between them {'is' if values == 1 else 'are'} never written to memory."
        )
        pairs: dict[tuple[str, str], list[str]] = {}
        for trial in found:
            apart = pairs.setdefault((trial.first, trial.second), [])
            if trial.fused is False:
                apart.append(trial.change)
        for (first, second), apart in pairs.items():
            called = f"{self.model.by_id[first].op} and {self.model.by_id[second].op}"
            if apart:
                told += f" {called} are apart once you {' or '.join(apart)}."
            else:
                told += f" {called} hold together whatever was tried."
        return told


def _seams(model: Model, nodes: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Neighbours among some nodes, each with the value that the first writes."""
    chosen = {*nodes}
    for node in nodes:
        for value in model.by_id[node].outputs:
            for reader in dict.fromkeys(readers(model, value)):
                if reader in chosen:
                    yield node, reader, value


def _whole(relation: Relation, nodes: Sequence[str]) -> bool:
    """Whether one step does the work of all these nodes, and of no other."""
    steps = [i for i in steps_of(relation, nodes[0]) if {*relation.run(i)} == {*nodes}]
    return bool(steps)


def _partings(model: Model, value: str) -> Iterator[Change]:
    """What makes a value seen from outside of the step that writes and reads it."""
    maker = (model.producers[value].id,)
    if value not in model.outputs:
        words = f'mark "{value}" as an output'
        yield Change("output", words, maker, functools.partial(_show, value=value))
    if neutral.fits(model, value):
        words = f'let another node read "{value}"'
        yield Change("reader", words, maker, functools.partial(_share, value=value))


def _show(edit: Edit, value: str) -> None:
    edit.graph.outputs.append(edit.values[value])


def _share(edit: Edit, value: str) -> None:
    neutral.read(edit, edit.values[value])


def _parting(first: str, second: str, trial: FusionTrial) -> Parting:
    return Parting(first, second, trial.change, trial.layers, trial.fused, trial.seconds, trial.refused)
