"""An engine from a build log that lists no layers: the model's nodes, as the log's decisions joined them.

TensorRT 5 to 7 log every decision and never print the resulting layers, which are inferred by replaying the decisions
on the model.
"""

from __future__ import annotations

import dataclasses
import graphlib
from collections import defaultdict
from collections.abc import Iterator

from rtlab.analyses.build.replay import Replay
from rtlab.core.engine import Layer, Tensor
from rtlab.core.model import Model
from rtlab.relation.flow import Flow

#: The kind of a layer that copies into the output of an eliminated Concat.
COPY = "copy"
#: Why a compiler runs nothing for a node. A view may still be a layer.
_NOTHING = {"folded", "dead", "shape"}


def rebuild_layers(replay: Replay, model: Model) -> tuple[Layer, ...]:
    """Layers in an order in which they can run; empty where no decision found a node.

    A layer bears the name that the log gave it, or that of its only node, and its kind is the operator that it begins
    with. A Concat that was eliminated has no layer: its producers write into its output, some of them through a copy.
    Neither has a node that was removed: what it would have read is written under the name of its output.

    Args:
        replay: The build, replayed on the model.
        model: The model that was built; its main graph counts.
    """
    if not any(step.nodes for step in replay.steps):
        return ()
    return _sort_layers(list(_LayerRebuilder(replay, model).iter_layers()))


class _LayerRebuilder:
    """What the decisions left of the nodes."""

    def __init__(self, replay: Replay, model: Model) -> None:
        self.model = model
        self.steps = replay.steps
        self.groups = replay.get_groups(len(replay.steps))
        grouped_nodes = {node for group in self.groups for node in group}
        #: Concats and removed nodes, which have no layer.
        self.eliminated_nodes = {
            n
            for step in replay.steps
            for n in step.nodes
            if n not in grouped_nodes
            and step.decision.action
            in ({"remove", "eliminate"} if model.by_id[n].op == "Concat" else {"remove"})
        }
        self.copied_values = self._find_copied_values()
        #: Under which names a value is written, for the outputs of nodes that are gone.
        self.names: dict[str, tuple[str, ...]] = {}
        for node in reversed(model.top):
            if node.id in self.eliminated_nodes:
                self.names.update((o, self._find_written_names(o, set())) for o in node.outputs)
        reasons = Flow(model).reasons()
        self.single_nodes = [
            (n.id,)
            for n in model.top
            if n.id not in grouped_nodes | self.eliminated_nodes and reasons.get(n.id) not in _NOTHING
        ]

    def iter_layers(self) -> Iterator[Layer]:
        """Those that compute, then the copies."""
        names = {frozenset(s.nodes): s.decision.result for s in self.steps if s.joins and s.decision.result}
        for group in (*self.groups, *self.single_nodes):
            yield self._build_layer(group, names.get(frozenset(group), ""))
        for (value, concat), name in self.copied_values.items():
            source = self._build_tensor(value)
            targets = (t for o in self.model.by_id[concat].outputs for t in self.names.get(o, (o,)))
            yield Layer(
                id="",
                name=f"{name} copy",
                kind=COPY,
                index=0,
                inputs=(source,),
                outputs=tuple(dataclasses.replace(source, name=t) for t in targets),
                origins=(concat,),
            )

    def _find_copied_values(self) -> dict[tuple[str, str], str]:
        """Values that are copied into the output of a Concat that is gone, with their name in the log."""
        copied_values: dict[tuple[str, str], str] = {}
        for step in self.steps:
            if step.decision.action != "copy" or not {*step.nodes[-1:]} & self.eliminated_nodes:
                continue
            into, name = step.nodes[-1], step.decision.names[0]
            input_names = self.model.by_id[into].inputs
            # The log names a tensor, which may be an input of the model, or a layer.
            produced_values = {v for n in step.nodes[:-1] for v in self.model.by_id[n].outputs}
            copied = {name} if name in input_names else produced_values
            copied_values.update({(v, into): name for v in input_names if v in copied})
        return copied_values

    def _find_written_names(self, value: str, members: set[str]) -> tuple[str, ...]:
        """The names under which a value is written for readers outside ``members``; none where there are none.

        A Concat that is gone is written in place, and so is the next one that reads it.
        """
        names: dict[str, None] = {}
        uses_value_name = value in self.model.outputs
        for node in self.model.consumers.get(value, ()):
            if node.id in members:
                continue
            if node.id not in self.eliminated_nodes or (value, node.id) in self.copied_values:
                uses_value_name = True
            else:
                names.update(dict.fromkeys(t for o in node.outputs for t in self.names.get(o, (o,))))
        if uses_value_name:
            names[value] = None
        return tuple(names)

    def _build_layer(self, group: tuple[str, ...], name: str) -> Layer:
        nodes = sorted((self.model.by_id[n] for n in group), key=lambda n: n.index)
        inside = {o for n in nodes for o in n.outputs}
        reads = dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in inside)
        values = self.model.values
        constants = {i for i in reads if i in values and values[i].kind == "constant"}
        return Layer(
            id="",
            name=name or " + ".join(n.id for n in nodes),
            kind=nodes[0].op,
            index=0,
            inputs=tuple(self._build_tensor(i) for i in reads if i not in constants),
            outputs=tuple(
                dataclasses.replace(self._build_tensor(out), name=written_name)
                for out in (o for n in nodes for o in n.outputs if o)
                for written_name in self._find_written_names(out, {*group})
            ),
            origins=tuple(n.id for n in nodes),
        )

    def _build_tensor(self, name: str) -> Tensor:
        """Name and shape; the type that was chosen is not in the log."""
        shape = self.model.values[name].shape if name in self.model.values else None
        sizes = tuple(d for d in shape or () if isinstance(d, int))
        return Tensor(name, shape=sizes if shape is not None and len(sizes) == len(shape) else None)


def _sort_layers(layers: list[Layer]) -> tuple[Layer, ...]:
    writers: defaultdict[str, set[int]] = defaultdict(set)
    for i, layer in enumerate(layers):
        for tensor in layer.outputs:
            writers[tensor.name].add(i)
    needs = {i: set().union(*(writers[t.name] for t in y.inputs)) - {i} for i, y in enumerate(layers)}
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError:
        # A name that means two nodes joined what cannot be one layer; then no order is right.
        order = list(range(len(layers)))
    return tuple(
        dataclasses.replace(layers[i], id=f"{place}:{layers[i].name}", index=place)
        for place, i in enumerate(order)
    )
