"""Whether a layer computes a node itself: none of its inputs can hold the output of the node."""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.sizes import Sizes
from rtlab.core.value import shape_text
from rtlab.relation.dataflow import Writers
from rtlab.relation.flow import VIEWS, Flow, Reason, reach

#: Views that give all the numbers they read, and numbers of the same type.
_LOSSLESS_VIEWS = frozenset({
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand",
})  # fmt: skip
#: Operators that a compiler may move to the other side of the node that they read, for they only pick or place numbers.
_MOVABLE = VIEWS | frozenset({
    "Gather", "GatherElements", "GatherND", "Pad", "ReverseSequence", "ScatterElements", "ScatterND", "Tile", "Trilu",
})  # fmt: skip


class RecomputeEvidence:
    """What the layers of an engine are given of the numbers that a node of the model starts from.

    A layer that runs a reader of a node needs what the node writes. Either another layer writes it, into a tensor that
    the layer reads, or the layer makes it itself. Where none of the tensors that the layer reads, and that depend on
    what the node depends on, can hold it by type and size, it is the latter.
    """

    def __init__(self, model: Model, flow: Flow, engine: Engine) -> None:
        self._model, self._flow, self._engine = model, flow, engine
        self._inputs = {t.name for t in engine.inputs}

    def readers(
        self, node: Node, reasons: Mapping[str, Reason], mapped_ids: Container[str]
    ) -> dict[str, Node] | None:
        """The nodes in layers that compute with what a node writes, through reshapes; None where others may."""
        outputs = set(self._model.outputs)
        reader_nodes: dict[str, Node] = {}
        todo = [node]
        while todo:
            at = todo.pop()
            if at.scope or outputs & set(at.outputs):
                return None
            for reader in self._flow.readers(at):
                if reader.id in reader_nodes or reasons.get(reader.id) in {"shape", "folded", "dead"}:
                    continue
                mapped, is_view = reader.id in mapped_ids, reasons.get(reader.id) == "view"
                if mapped and reader.op not in _MOVABLE and not reader.scope:
                    reader_nodes[reader.id] = reader
                elif not mapped and is_view and reader.op in _LOSSLESS_VIEWS:
                    todo.append(reader)
                else:
                    return None
        return reader_nodes

    def before(self, node: Node, layer: Layer, alone: Mapping[str, AbstractSet[str]]) -> tuple[Tensor, ...]:
        """What a layer reads that depends on what ``node`` does; none where one of it can hold what that writes."""
        position = self._position[layer.id]
        carriers = self._collect_carriers(node, position, alone)
        read = tuple({t.name: t for t in layer.inputs if self._carries(position, t, carriers)}.values())
        return () if any(self._can_hold(t, node) for t in read) else read

    @functools.cached_property
    def _position(self) -> dict[str, int]:
        return {y.id: p for p, y in enumerate(self._engine.layers)}

    @functools.cached_property
    def _sources(self) -> list[dict[str, tuple[int, ...]]]:
        """The positions that write what each layer reads, by the tensor's name."""
        writers = Writers(self._engine)
        return [
            {t.name: writers.of(p, t) for t in layer.inputs} for p, layer in enumerate(self._engine.layers)
        ]

    def _carries(self, position: int, tensor: Tensor, carriers: AbstractSet[object]) -> bool:
        sources = self._sources[position][tensor.name]
        if not sources:
            return tensor.name not in self._inputs or tensor.name in carriers
        # What a loop brings from its last turn may be anything.
        return any(s in carriers or s >= position for s in sources)

    def _collect_carriers(self, node: Node, end: int, alone: Mapping[str, AbstractSet[str]]) -> set[object]:
        """The inputs that a node depends on, and the positions of all layers before ``end`` that depend on these.

        A layer that ends in a node behind this one has nothing more to give to it.
        """
        ancestors = reach(node, self._flow.writers)
        descendants = reach(node, self._flow.readers)
        del descendants[node.id]
        read = {k for n in ancestors.values() for k in self._flow.inputs(n)}
        carriers: set[object] = {k for k in read if k not in self._flow.producer}
        for position, layer in enumerate(self._engine.layers[:end]):
            last = [n for i in alone.get(layer.id, ()) if (n := descendants.get(i)) and n.op not in _MOVABLE]
            if last and len({t.name for t in layer.outputs}) == 1:
                continue
            if any(self._carries(position, t, carriers) for t in layer.inputs):
                carriers.add(position)
        return carriers

    def _can_hold(self, tensor: Tensor, node: Node) -> bool:
        """Whether a tensor can be what a node writes, perhaps in another type, layout or shape, repeated or padded."""
        value = self._model.values.get(node.outputs[0])
        if tensor.dtype == "bool" and value is not None and value.dtype not in {"", "bool"}:
            return False
        node_shape = self._sizes.get(node.outputs[0]) if self._sizes is not None else None
        if node_shape is None or tensor.shape is None or min(tensor.shape, default=1) < 0:
            return True
        if math.prod(node_shape) == math.prod(tensor.shape):
            return True
        ours, theirs = (sorted((d for d in s if d != 1), reverse=True) for s in (node_shape, tensor.shape))
        return len(ours) <= len(theirs) and all(a <= b for a, b in zip(ours, theirs, strict=False))

    @functools.cached_property
    def _sizes(self) -> Sizes | None:
        """The sizes of the model's values, where they are those that the engine was told of."""
        sizes = self._model.sizes()
        engine_shapes = {t.name: t.shape for t in self._engine.inputs}
        same = all(
            engine_shapes.get(n) is not None and engine_shapes[n] == sizes.get(n) for n in self._model.inputs
        )
        return sizes if same else None


def format_tensors(tensors: Iterable[Tensor]) -> str:
    """Tensors in words, each with its type and shape."""
    return ", ".join(f'"{t.name}" ({t.dtype or "?"} {shape_text(t.shape)})' for t in tensors)
