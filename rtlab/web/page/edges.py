"""The tensors between the layers of an engine, as edges of its graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rtlab.analyses.cards.picture import Edge
from rtlab.analyses.fusion import map_nodes
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.value import shape_text
from rtlab.relation.writers import Writers

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult


def engine_edges(result: VariantResult, model: Model, missing: Iterable[str]) -> list[Edge]:
    """Edges between the boxes of an engine: its inputs, then its layers in order of execution, then its outputs.

    An edge leads from the last writer before a reader, and against the order of execution only where a tensor is
    written after every reading, as in a loop. A tensor that no layer writes under its name is followed through the
    model, for the layers ``missing`` (see ``find_unwritten_tensors``); without tensors there are no edges.
    """
    engine = result.engine
    writers = Writers(engine)
    first = len(engine.inputs)
    input_index = {t.name: i for i, t in reversed(list(enumerate(engine.inputs)))}

    def sources(position: int, tensor: Tensor) -> list[int]:
        writer_indices = [first + w for w in writers.of(position, tensor)]
        return writer_indices or ([input_index[tensor.name]] if tensor.name in input_index else [])

    edges = [
        _edge(source, first + position, tensor)
        for position, layer in enumerate(engine.layers)
        for tensor in {t.name: t for t in layer.inputs}.values()
        for source in sources(position, tensor)
    ]
    edges += _through_model(result, model, missing, edges)
    end = len(engine.layers)
    for i, tensor in enumerate(engine.outputs):
        source_indices = sources(end, tensor)
        if not source_indices and any(y.outputs for y in engine.layers):
            # A view of a step's output bears the output's name nowhere: the last step feeds it.
            source_indices = [first + end - 1]
        edges += [_edge(source, first + end + i, tensor) for source in source_indices]
    return edges


def find_unwritten_tensors(engine: Engine) -> dict[str, list[str]]:
    """The tensors that layers read, by layer id, and that neither a layer writes nor the engine is given."""
    written_names = {t.name for layer in engine.layers for t in layer.outputs} | {
        t.name for t in engine.inputs
    }
    table: dict[str, list[str]] = {}
    for layer in engine.layers:
        if names := list(dict.fromkeys(t.name for t in layer.inputs if t.name not in written_names)):
            table[layer.id] = names
    return table


def _edge(source: int, target: int, tensor: Tensor) -> Edge:
    return Edge(source=source, target=target, value=tensor.name, label=_label(tensor.shape, tensor.dtype))


@functools.lru_cache(4096)
def _label(shape: tuple[int, ...] | None, dtype: str) -> str:
    return f"{'' if shape is None else shape_text(shape)} {dtype}".strip()


def _through_model(
    result: VariantResult, model: Model, missing: Iterable[str], have: Sequence[Edge]
) -> list[Edge]:
    """Edges into layers that read a tensor under another name, from the dataflow of the model."""
    engine = result.engine
    first = len(engine.inputs)
    edge_keys = {(e["source"], e["target"]) for e in have}
    order = {layer.id: position for position, layer in enumerate(engine.layers)}
    new_edges: list[Edge] = []
    for id_ in missing:
        index = order[id_]
        for source, name in _sources(engine.layers[index], result, model, order):
            if (first + source, first + index) not in edge_keys:
                edge_keys.add((first + source, first + index))
                value = model.values.get(name)
                label = f"{shape_text(value.shape)}" if value else ""
                new_edges.append(Edge(source=first + source, target=first + index, value=name, label=label))
    return new_edges


def _sources(
    layer: Layer, result: VariantResult, model: Model, order: dict[str, int]
) -> Iterable[tuple[int, str]]:
    """The layers before one that run the nodes before its own, and the values that lead there."""
    index = order[layer.id]
    visited: set[str] = set()
    layer_nodes = set(map_nodes(result).nodes(layer.id))
    todo = [i for n in layer_nodes if n in model.by_id for i in model.by_id[n].inputs]
    while todo:
        name = todo.pop()
        node = model.producers.get(name)
        if node is None or node.id in visited:
            continue
        visited.add(node.id)
        layers = [order[i] for i in map_nodes(result).layers(node.id)]
        if node.id in layer_nodes or not layers:
            todo += node.inputs
        elif before := [at for at in layers if at < index]:
            yield max(before), name
