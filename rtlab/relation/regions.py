"""The nodes of a model between the values that a layer reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.relation.dataflow import moves
from rtlab.relation.flow import Flow, Key, Reason


class Regions:
    """Regions of a built model, by the layers of its engine; ``reasons`` are those of its nodes without a layer."""

    def __init__(self, built: Model, flow: Flow, engine: Engine, reasons: Mapping[str, Reason]) -> None:
        self.built, self.flow, self.engine, self.reasons = built, flow, engine, reasons
        self._alias = self._map_aliases()
        self._written_values = {v for y in engine.layers for t in y.outputs if (v := self._alias.get(t.name))}

    def of(
        self, layer: Layer, declared_layers: Mapping[str, AbstractSet[str]], *, has_name: bool
    ) -> list[Node]:
        """The nodes between a layer's values, in graph order, without those that the compiler puts into other layers.

        ``declared_layers`` are the layers of nodes by the compiler's word, and ``has_name`` says that the layer is
        among them. None, where no value that the layer reads is known and nothing else ends the way back to the model's
        inputs: all that comes before the layer would seem to lie in it.
        """
        reads = {self._alias[t.name] for t in layer.inputs if t.name in self._alias}
        if layer.inputs and not reads and has_name:
            # Without a bound on this side, what the name does not list may belong to the layers before it.
            return []
        writes = [self._alias[t.name] for t in layer.outputs if t.name in self._alias]
        visited: dict[str, Node] = {}
        starts = set(self.built.inputs) if layer.inputs and not reads else set()
        todo = [(key, True) for key in writes]
        while todo:
            key, outer = todo.pop()
            if key in starts:
                return []
            node = self.flow.producer.get(key)
            if node is None or node.id in visited or self.reasons.get(node.id) == "folded":
                continue
            elsewhere = node.id in declared_layers and layer.id not in declared_layers[node.id]
            if elsewhere and not outer:
                continue
            visited[node.id] = node
            if not elsewhere:
                todo += [
                    (k, False)
                    for k in self.flow.inputs(node)
                    if k not in reads and (k not in self._written_values or k in writes)
                ]
        return sorted(visited.values(), key=lambda n: n.index)

    def _map_aliases(self) -> dict[str, Key]:
        """Tensor names of the engine with the values of the built model's main graph that they are, copies resolved."""
        alias: dict[str, Key] = {}
        for layer in self.engine.layers:
            for name, value in self._iter_values(layer):
                alias.setdefault(name, value)
        for layer in self.engine.layers:
            if moves(layer) and layer.inputs and layer.outputs:
                a, b = layer.inputs[0].name, layer.outputs[0].name
                if a in alias:
                    alias.setdefault(b, alias[a])
                elif b in alias:
                    alias.setdefault(a, alias[b])
        return alias

    def _iter_values(self, layer: Layer) -> Iterator[tuple[str, str]]:
        """Tensors of one layer with the values that they stand for, the surest first."""
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor.name in self.built.values:
                yield tensor.name, tensor.name
        values = layer.attributes.get("values")
        if isinstance(values, dict):
            yield from values.items()
        node = self.built.by_id.get(layer.name)
        if node is not None and node.op == layer.kind:
            # A node that was kept as it is, though what it writes may have been renamed.
            yield from zip((t.name for t in layer.outputs), node.outputs, strict=False)
