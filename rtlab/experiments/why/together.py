"""Why nodes are one step: with each value between them seen from outside, are they one still?"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why import FusedLayer, SplitTrial
from rtlab.analyses.why.missed_fusions import estimate_transfer_time, find_readers, steps_of
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.protocols import Builder
from rtlab.core.variant import Variant
from rtlab.errors import VariantError
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.changes import Change
from rtlab.experiments.why.open_sizes import open_sizes
from rtlab.experiments.why.oracle import ACTIVITY, Oracle, format_input_shapes

#: Hops around a step; a part of that many shows the step as it is, or the whole model is asked.
_HOPS = (1, 2)


@dataclasses.dataclass(frozen=True)
class FusionSplitSearch:
    """Why the nodes of a layer, by its id, are one.

    A part around the layer is built in which it is as it is in the model; then each value between two of its nodes is
    made an output of the part, and is read by another node too: the compiler shows which fusions it gives up for that.
    """

    model: Model
    engine: Engine
    variant: Variant
    layer: str
    partial: ClassVar[bool] = True

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose work the layer does, in graph order."""
        run = {*relate_engine(self.engine, self.model, self.model).run(self.layer)}
        return tuple(n.id for n in self.model.top if n.id in run)

    def steps(self, context: WorkContext[Builder]) -> Iterator[FusedLayer]:
        """The explanation after each build.

        Raises:
            VariantError: the layer does the work of no two neighbours.
        """
        sizes, nodes = open_sizes(self.model, self.variant.options), self.nodes
        seams = list(_iter_internal_values(self.model, nodes))
        if not seams:
            raise VariantError(
                f'Cannot ask why "{self.engine.layer(self.layer).name}" is one layer: it does the work of no two '
                "neighbours. Choose a layer with several nodes."
            )
        context.phase("Asking the compiler", 2 * len(seams))
        oracle = Oracle(self.variant, context, sizes)
        trials: list[SplitTrial] = []
        timestamp = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        values = dict.fromkeys(v for _, _, v in seams)
        move_times = [estimate_transfer_time(self.model, v, self.engine) for v in values]
        saved_time = None if None in move_times else sum(t for t in move_times if t is not None)

        def make_record(*, whole: bool = False) -> FusedLayer:
            return FusedLayer(
                self.layer,
                nodes,
                saved_time,
                self._describe(nodes, len(values), trials),
                tuple(trials),
                len(oracle.trials),
                oracle.seconds,
                self.engine.title,
                format_input_shapes(self.model),
                whole=whole,
                asked=timestamp,
            )

        yield make_record()
        place = self._find_part(oracle, nodes, seams[0][:2])
        if place is None:
            yield make_record()
            return
        where, part = place
        tries = [(seam[:2], change) for seam in seams for change in _iter_split_changes(part, seam[2])]
        for pair, change in context.iterate(tries, ACTIVITY):
            oracle.build(changes.apply_changes(part, [change]), change.words, where, pair)
            one = oracle.trials[-1]
            trials.append(SplitTrial(*pair, one.change, one.layers, one.fused, one.seconds, one.refused))
            yield make_record(whole=len(trials) == len(tries))

    def _find_part(
        self, oracle: Oracle, nodes: Sequence[str], pair: tuple[str, str]
    ) -> tuple[str, Model] | None:
        """A part in which the layer is as in the model, else the model itself; None once the budget is used up."""
        model = self.model if oracle.sizes is None else oracle.sizes.model
        still_open = oracle.sizes is not None
        for title, part in cutting.iter_neighbourhoods(model, nodes, _HOPS, still_open=still_open):
            relation = oracle.build(part, "", title, pair).relation
            if relation is not None and any(
                {*relation.run(i)} == {*nodes} for i in steps_of(relation, nodes[0])
            ):
                return title, part
            if oracle.context.is_exhausted:
                return None
        return "the whole model", model

    def _describe(self, nodes: Sequence[str], values: int, trials: Sequence[SplitTrial]) -> str:
        layer = self.engine.layer(self.layer)
        ops = [self.model.by_id[n].op for n in nodes]
        text = (
            f'Layer {layer.index + 1}, "{layer.name}", does the work of {", ".join(ops[:-1])} and {ops[-1]}. '
            f"{pluralize(values, 'value')} between them {'is' if values == 1 else 'are'} never written to memory."
        )
        for first, second in dict.fromkeys((t.first, t.second) for t in trials):
            text += f" {self.model.by_id[first].op} and {self.model.by_id[second].op}"
            splits = [t.change for t in trials if (t.first, t.second) == (first, second) and t.fused is False]
            text += (
                f" are apart once you {' or '.join(splits)}."
                if splits
                else " hold together whatever was tried."
            )
        return text


def _iter_internal_values(model: Model, nodes: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Neighbours among some nodes, each with the value that the first writes."""
    node_set = {*nodes}
    for node in nodes:
        for value in model.by_id[node].outputs:
            for reader in dict.fromkeys(find_readers(model, value)):
                if reader in node_set:
                    yield node, reader, value


def _iter_split_changes(model: Model, value: str) -> Iterator[Change]:
    """What makes a value seen from outside of the layer that writes and reads it."""
    maker = (model.producers[value].id,)
    if value not in model.outputs:
        words = f'mark "{value}" as an output'
        yield Change("output", words, maker, lambda edit: edit.graph.outputs.append(edit.values[value]))
    if cutting.has_neutral_reader(model, value):
        words = f'let another node read "{value}"'
        yield Change("reader", words, maker, lambda edit: cutting.add_reader(edit, edit.values[value]))
