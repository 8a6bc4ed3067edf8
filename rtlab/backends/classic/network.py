"""A network on its way through the passes, and the log of what they decide, in TensorRT's own words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rtlab.core.node import Node

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: What a Concat that is gone leaves where a tensor cannot be written in place.
COPY = "copy"


@dataclasses.dataclass(eq=False)
class NetworkLayer:
    """A layer of the network as it is at present.

    ``kind`` is the operator that its work is; ``nodes`` are ids in the order in which they joined, ``ops`` their
    operators. ``reads`` and ``writes`` are names of values, without constants. ``absorbed`` are nodes that it does the
    work of together with other layers. ``int8`` says that it computes on integers, ``narrow`` that it writes them.
    ``rules`` are the names of those that made it.
    """

    name: str
    kind: str
    nodes: list[str]
    ops: list[str]
    reads: list[str]
    writes: list[str]
    node: Node
    absorbed: list[str] = dataclasses.field(default_factory=list)
    int8: bool = False
    narrow: bool = False
    shared: bool = False
    rules: list[str] = dataclasses.field(default_factory=list)


class Network:
    """Layers by name, who writes and who reads each value, and the lines of the log so far.

    A value without a writer is an input of the model or a constant; ``constants`` are those that are known before the
    first inference.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.outputs = set(model.outputs)
        self.constants = {
            n for n, v in model.values.items() if v.kind == "constant" and n not in model.producers
        }
        self.layers: dict[str, NetworkLayer] = {}
        self.writer: dict[str, NetworkLayer] = {}
        self._readers: dict[str, dict[str, NetworkLayer]] = {}
        self.lines: list[str] = []
        #: Rules, each with the nodes that it made one layer of.
        self.fusions: list[tuple[str, tuple[str, ...]]] = []
        #: By two neighbours, or by one node, the rules that were tried on them and why each did not hold.
        self.refusals: dict[tuple[str, ...], dict[str, str]] = {}
        #: What became of nodes that have no layer: the rule that took them.
        self.removed_nodes: dict[str, str] = {}
        inner = self._collect_body_inputs()
        for node in model.top:
            reads = dict.fromkeys([*filter(None, node.inputs), *inner.get(node.id, ())])
            writes = [o for o in node.outputs if o]
            self._add_layer(NetworkLayer(node.id, node.op, [node.id], [node.op], list(reads), writes, node))

    def _collect_body_inputs(self) -> dict[str, list[str]]:
        """What the bodies of a node read of the main graph."""
        body_inputs: dict[str, list[str]] = {}
        outer_values = {*self.model.producers, *self.model.inputs}
        for node in self.model.nodes:
            if node.scope and not node.scope[0].startswith("function "):
                body_inputs.setdefault(node.scope[0], []).extend(v for v in node.inputs if v in outer_values)
        return body_inputs

    def __iter__(self) -> Iterator[NetworkLayer]:
        """The layers at this moment in the order of the graph; what goes meanwhile is left out."""
        now = sorted(self.layers.values(), key=lambda y: y.node.index)
        return (y for y in now if self.layers.get(y.name) is y)

    def get_readers(self, value: str) -> tuple[NetworkLayer, ...]:
        """The layers that read a value, once each."""
        return tuple(self._readers.get(value, {}).values())

    def get_consumers(self, layer: NetworkLayer) -> tuple[NetworkLayer, ...]:
        """The layers that read what a layer writes, once each."""
        return tuple({r.name: r for v in layer.writes for r in self.get_readers(v)}.values())

    def get_data_inputs(self, layer: NetworkLayer) -> list[str]:
        """What a layer reads beside constants."""
        return [v for v in layer.reads if v not in self.constants]

    def get_shape(self, value: str) -> tuple[int | str | None, ...] | None:
        """The shape of a value as far as it is known."""
        graph_value = self.model.values.get(value)
        return graph_value.shape if graph_value else None

    def record_refusal(self, nodes: Sequence[str], after: NetworkLayer, rule: str, reason: str) -> None:
        """Remember why a rule did not join nodes of one layer with the layer after it, or leave that layer out."""
        ends: list[tuple[str, ...]] = [(n, after.nodes[0]) for n in nodes] or [(after.nodes[0],)]
        for end in ends:
            self.refusals.setdefault(end, {}).setdefault(rule, reason)

    def fuse(self, first: NetworkLayer, second: NetworkLayer, rule: str) -> NetworkLayer:
        """Two layers become one, which does the work of the first and then that of the second."""
        self.lines.append(f"{rule}: Fusing {first.name} with {second.name}")
        return self.join(first, [second], f"{first.name} + {second.name}", rule)

    def fuse_pointwise(self, first: NetworkLayer, second: NetworkLayer, rule: str) -> NetworkLayer:
        """Two pointwise layers become one."""
        self.lines.append(f"{rule}: Fusing {first.name} with {second.name}")
        fused_layer = self.join(first, [second], f"PWN({first.name}, {second.name})", rule)
        fused_layer.kind = "PointWise"
        return fused_layer

    def fold_scale(self, first: NetworkLayer, second: NetworkLayer, rule: str) -> NetworkLayer:
        """A scale goes into the weights of the layer before it, which keeps its name."""
        self.lines.append(f"Fusing convolution weights from {first.name} with scale {second.name}")
        return self.join(first, [second], first.name, rule)

    def absorb(self, layer: NetworkLayer, absorbed_layers: Sequence[NetworkLayer], rule: str) -> NetworkLayer:
        """A layer takes others into itself, and keeps its name."""
        names = " and ".join(t.name for t in absorbed_layers)
        self.lines.append(
            f"{rule}: fusing {f'({names})' if len(absorbed_layers) > 1 else names} into {layer.name}"
        )
        return self.join(layer, absorbed_layers, layer.name, rule)

    def share(self, layer: NetworkLayer, shared_layer: NetworkLayer, rule: str) -> None:
        """A layer does the work of another, which stays as long as it has other readers."""
        value = shared_layer.writes[0]
        self._remove_reader(layer, value)
        layer.reads = [r for r in layer.reads if r != value]
        for name in self.get_data_inputs(shared_layer):
            self._add_reader(layer, name)
        layer.absorbed += shared_layer.nodes
        layer.rules.append(rule)
        shared_layer.shared = True
        if not any(self.get_readers(v) or v in self.outputs for v in shared_layer.writes):
            self.drop(shared_layer, rule)

    def remove(self, layer: NetworkLayer, rule: str) -> None:
        """A layer goes; whoever read its first output reads its first input."""
        self.lines.append(f"Removing {layer.name}")
        source = layer.reads[0]
        self._replace_output(layer, source)
        if layer.writes[0] in self.constants:
            self.constants.add(source)
        self.discard(layer, rule)

    def drop(self, layer: NetworkLayer, rule: str) -> None:
        """A layer goes, and nobody reads what it wrote, or it is a constant from now on."""
        self.lines.append(f"Removing {layer.name}")
        self.discard(layer, rule)

    def swap(self, first: NetworkLayer, second: NetworkLayer, rule: str) -> None:
        """Two layers, each with one input and one output of which only the other knows, change places."""
        self.lines.append(f"Swapping {first.name} with {second.name}")
        into, between, out = self.get_data_inputs(first)[0], first.writes[0], second.writes[0]
        self._remove_reader(first, into)
        self._remove_reader(second, between)
        first.reads = [between if r == into else r for r in first.reads]
        second.reads = [into if r == between else r for r in second.reads]
        first.writes, second.writes = [out], [between]
        self._add_reader(first, between)
        self._add_reader(second, into)
        self.writer[out], self.writer[between] = first, second
        for layer in (first, second):
            layer.rules.append(rule)

    def remove_duplicate(self, layer: NetworkLayer, twin: NetworkLayer, rule: str) -> None:
        """A layer goes that writes what another one does."""
        self.lines.append(f"Eliminating {layer.name} which duplicates (Q) {twin.name}")
        self._replace_output(layer, twin.writes[0])
        self._remove_layer(layer)
        twin.nodes += layer.nodes
        twin.ops += layer.ops
        twin.rules.append(rule)
        self.fusions.append((rule, tuple(twin.nodes)))

    def retarget(self, value: str, into: NetworkLayer) -> None:
        """A value is written at its place in the output of a layer that is gone."""
        self.lines.append(f"Retargeting {value} to {into.name}")
        if (writer := self.writer.get(value)) is None:
            return
        is_read = value in self.outputs or bool(self.get_readers(value))
        remaining_outputs = [v for v in writer.writes if v != value or is_read]
        writer.writes = [*remaining_outputs, *(v for v in into.writes if v not in remaining_outputs)]
        for out in into.writes:
            self.writer[out] = writer

    def add_copy(self, name: str, values: Sequence[str], into: NetworkLayer, rule: str) -> None:
        """Values are copied to their places in the output of a layer that is gone."""
        self.lines.append(f"Generating copy for {name} to {into.name} because input is not movable")
        copy_layer = NetworkLayer(
            f"{name} copy", COPY, list(into.nodes), [COPY], list(values), list(into.writes), into.node
        )
        copy_layer.rules.append(rule)
        title, number = copy_layer.name, 1
        while copy_layer.name in self.layers:
            number += 1
            copy_layer.name = f"{title} {number}"
        self._add_layer(copy_layer)

    def _add_layer(self, layer: NetworkLayer) -> None:
        self.layers[layer.name] = layer
        for value in layer.writes:
            self.writer[value] = layer
        for value in layer.reads:
            self._add_reader(layer, value)

    def _remove_layer(self, layer: NetworkLayer) -> None:
        del self.layers[layer.name]
        for value in layer.reads:
            self._remove_reader(layer, value)
        for value in layer.writes:
            if self.writer.get(value) is layer:
                del self.writer[value]

    def discard(self, layer: NetworkLayer, rule: str) -> None:
        """Take a layer out, and note which rule did."""
        self._remove_layer(layer)
        self.removed_nodes.update(dict.fromkeys(layer.nodes, rule))

    def _replace_output(self, layer: NetworkLayer, source: str) -> None:
        """Who read the first output of a layer reads another value."""
        for reader in self.get_consumers(layer):
            self._remove_reader(reader, layer.writes[0])
            reader.reads = [source if r == layer.writes[0] else r for r in reader.reads]
            self._add_reader(reader, source)

    def _remove_reader(self, layer: NetworkLayer, value: str) -> None:
        self._readers.get(value, {}).pop(layer.name, None)

    def _add_reader(self, layer: NetworkLayer, value: str) -> None:
        if value not in layer.reads:
            layer.reads.append(value)
        self._readers.setdefault(value, {})[layer.name] = layer

    def join(self, first: NetworkLayer, others: Sequence[NetworkLayer], name: str, rule: str) -> NetworkLayer:
        """Put one layer in the place of several."""
        parts = (first, *others)
        for part in parts:
            self._remove_layer(part)
        written = [v for p in parts for v in p.writes]
        inner_values = set(written)
        dead_values = {v for v in inner_values if v not in self.outputs and not self.get_readers(v)}
        fused_layer = dataclasses.replace(
            first,
            name=name,
            nodes=[n for p in parts for n in p.nodes],
            ops=[o for p in parts for o in p.ops],
            reads=list(dict.fromkeys(r for p in parts for r in p.reads if r not in inner_values)),
            writes=[v for v in written if v not in dead_values] or written[-1:],
            absorbed=[n for p in parts for n in p.absorbed],
            int8=any(p.int8 for p in parts),
            rules=[*(r for p in parts for r in p.rules), rule],
        )
        self._add_layer(fused_layer)
        self.fusions.append((rule, tuple(fused_layer.nodes)))
        return fused_layer


def check_sole_reader(network: Network, first: NetworkLayer, second: NetworkLayer) -> str:
    """Why a layer is not the only one to see what another writes; empty where it is."""
    for value in first.writes:
        if value in network.outputs:
            return f'"{value}" between them is an output of the model'
        others = [r.name for r in network.get_readers(value) if r is not second]
        if others:
            return f'"{others[0]}" reads "{value}" too'
    return ""


def sort_topologically(layers: Iterable[NetworkLayer]) -> list[NetworkLayer]:
    """Layers in an order in which they can run; several may write into the output of a Concat that is gone."""
    import networkx

    unsorted_layers = list(layers)
    writers: dict[str, list[int]] = {}
    for i, layer in enumerate(unsorted_layers):
        for value in layer.writes:
            writers.setdefault(value, []).append(i)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(unsorted_layers)))
    graph.add_edges_from(
        (w, i) for i, y in enumerate(unsorted_layers) for v in y.reads for w in writers.get(v, ()) if w != i
    )
    order = networkx.lexicographical_topological_sort(graph, key=lambda i: unsorted_layers[i].node.index)
    return [unsorted_layers[i] for i in order]
