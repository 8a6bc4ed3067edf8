"""Neighbourhoods: a part of a model around two nodes, as small as shows what the compiler does with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.analyses.why.missed_fusions import BETWEEN
from rtlab.core.memo import memoized
from rtlab.core.model import Model, extract_nodes, wrap
from rtlab.errors import ModelError
from rtlab.quantize.edit import Edit
from rtlab.relation.roles import PRODUCT_OPS, QUANTIZING_OPS

_FLOATS = frozenset({"fp32", "fp16"})
#: Dimensions of an image or a volume, which a pooling reads; other tensors are read by a product.
_POOLED = (4, 5)


@memoized
def build_node_graph(model: Model) -> Any:
    """A ``networkx.DiGraph`` of the nodes of the main graph by id, with an edge to each reader."""
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(n.id for n in model.top)
    graph.add_edges_from(
        (n.id, r.id) for n in model.top for v in n.outputs for r in model.consumers.get(v, ())
    )
    return graph


def find_nodes_after(model: Model, node: str) -> set[str]:
    """The nodes that depend on a node."""
    import networkx

    after: set[str] = networkx.descendants(build_node_graph(model), node)
    return after


def find_nodes_before(model: Model, node: str) -> set[str]:
    """The nodes that a node depends on."""
    import networkx

    before: set[str] = networkx.ancestors(build_node_graph(model), node)
    return before


def find_route(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """A shortest way along the data from one node to another, both included; None where there is none."""
    import networkx

    try:
        return tuple(networkx.shortest_path(build_node_graph(model), first, second))
    except networkx.NetworkXNoPath:
        return None


def paths(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """The nodes between two neighbours, none of which computes; None where they are no neighbours.

    A transposition is among them: it is where the layout becomes another one.
    """
    nodes_between: dict[str, None] = {}
    is_reached = False
    todo: list[tuple[str, tuple[str, ...]]] = [(o, ()) for o in model.by_id[first].outputs if o]
    while todo:
        value, way = todo.pop()
        for reader in model.consumers.get(value, ()):
            if reader.id == second:
                is_reached = True
                nodes_between.update(dict.fromkeys(way))
            elif (reader.op in BETWEEN or reader.op == "Transpose") and reader.inputs[0] == value:
                todo += [(o, (*way, reader.id)) for o in reader.outputs if o]
    return tuple(nodes_between) if is_reached else None


def iter_neighbourhoods(
    model: Model, nodes: Iterable[str], hops: Sequence[int], *, still_open: bool = False
) -> Iterator[tuple[str, Model]]:
    """Titles and parts of a model around some nodes, by each number of hops, up to one that is the whole model.

    A hop goes over nodes that compute; those between come along. A value that the rest of the model reads is read by
    its readers, whose results are the part's outputs, so that no layout changes because a value in the middle became an
    output.
    """
    for count in hops:
        try:
            part = cut(model, find_neighbourhood(model, nodes, count), still_open=still_open)
        except ModelError:
            # A value that would be an input has a size that is not known.
            continue
        if len(part.top) >= len(model.top):
            return
        yield f"the neighbourhood of {len(part.nodes)} nodes", part


def find_neighbourhood(model: Model, nodes: Iterable[str], hops: int) -> dict[str, None]:
    """Some nodes, and those within some hops of them over nodes that compute."""
    node_ids = dict.fromkeys(nodes)
    edge = list(node_ids)
    for _ in range(hops):
        fresh = [n for at in edge for n in _iter_neighbours(model, at) if n not in node_ids]
        node_ids.update(dict.fromkeys(fresh))
        edge = fresh
    return node_ids


def isolate(model: Model, nodes: Iterable[str], second: str) -> dict[str, None]:
    """Those of some nodes that lead to ``second`` or on from it, without others that read a value on the way.

    Behind it, one reader of a value stays, a product where there is one, with those that are joined with it again.
    """
    chosen, down, todo = {*nodes}, {second}, [second]
    while todo:
        readers = [n for n in build_node_graph(model).successors(todo.pop()) if n in chosen - down]
        if not readers:
            continue
        main = min(readers, key=lambda n: (model.by_id[n].op not in PRODUCT_OPS, model.by_id[n].index))
        joined = find_nodes_before(model, main) | find_nodes_after(model, main)
        fresh = [n for n in readers if n == main or n in joined]
        down.update(fresh)
        todo += fresh
    leading = set[str]().union(*(find_nodes_before(model, n) for n in down))
    return dict.fromkeys(n for n in (x.id for x in model.top) if n in chosen & (down | leading))


def _iter_neighbours(model: Model, node: str) -> Iterator[str]:
    """The neighbours of a node in both directions, with what stands between."""
    graph, visited = build_node_graph(model), set[str]()
    for step in (graph.successors, graph.predecessors):
        todo = list(step(node))
        while todo:
            at = todo.pop()
            if at not in visited:
                visited.add(at)
                yield at
                if model.by_id[at].op in BETWEEN:
                    todo += step(at)


def cut_pair(model: Model, nodes: Sequence[str], *, still_open: bool = False) -> Model:
    """The first two nodes and the others with their weights, and what their inputs are quantized by: the arithmetic.

    What leads from one to the other on another way comes along where no product is among it, as Sigmoid does in SiLU.
    """
    between = find_nodes_after(model, nodes[0]) & find_nodes_before(model, nodes[1])
    is_product_free = not any(model.by_id[n].op in PRODUCT_OPS for n in between)
    return cut_nodes(model, (*nodes, *(sorted(between) if is_product_free else ())), still_open=still_open)


def cut_nodes(model: Model, nodes: Iterable[str], *, still_open: bool = False) -> Model:
    """Some nodes with their weights, and what their inputs are quantized by, and nothing else."""
    node_ids, graph = dict.fromkeys(nodes), build_node_graph(model)
    todo = list(node_ids)
    while todo:
        before = [n for n in graph.predecessors(todo.pop()) if model.by_id[n].op in QUANTIZING_OPS]
        todo += [n for n in before if n not in node_ids]
        node_ids.update(dict.fromkeys(before))
    return cut(model, node_ids, keep_readers=False, still_open=still_open)


def cut(
    model: Model, node_ids: dict[str, None], *, keep_readers: bool = True, still_open: bool = False
) -> Model:
    """Some nodes with what computes their weights and sizes; ``keep_readers`` keeps who else reads their values.

    Sizes that the model leaves open become the usual ones, unless they stay ``still_open``.
    """
    every, graph = dict(node_ids), build_node_graph(model)
    todo = list(node_ids)
    while todo:
        for writer in [w for w in graph.predecessors(todo.pop()) if w not in every]:
            if is_constant(model, writer):
                every.update(dict.fromkeys((writer, *find_nodes_before(model, writer))))
            elif _writes_sizes(model, writer):
                every[writer] = None
                todo += [writer] if model.by_id[writer].op != "Shape" else []
    proto, weights = extract_nodes(model.ir, model.name, every)
    name = f"{model.name}_part"
    brought = {o for n in every.keys() - node_ids.keys() for o in model.by_id[n].outputs}
    kept = [v for v in proto.graph.output if v.name not in brought or v.name in model.outputs]
    del proto.graph.output[:]
    proto.graph.output.extend(kept)
    sizes = {v.name: model.sizes().get(v.name) for v in proto.graph.input}
    for value in proto.graph.input:
        if not value.type.tensor_type.HasField("shape"):
            # Without a shape it would be taken for a scalar.
            shape = sizes[value.name]
            if shape is None:
                raise ModelError(
                    f'Cannot cut out "{value.name}": its shape is not known. Choose other nodes.'
                )
            value.CopyFrom(
                onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)
            )
    if still_open:
        part_model = wrap(proto, name=name, shapes=model.shapes, weights=weights)
    else:
        shapes = {n: s for n, s in sizes.items() if s is not None}
        part_model = wrap(proto, name=name, shapes=shapes, weights=weights).static()
    return add_neutral_readers(
        part_model, frozenset(model.outputs if keep_readers else ()), alone=not keep_readers
    )


def _writes_sizes(model: Model, node: str) -> bool:
    """Whether a node writes a size or a list of them: as an input of a part, it would be one that nobody knows."""
    values = [model.values[o] for o in model.by_id[node].outputs if o]
    ranks = [len(s) for v in values if (s := v.shape) is not None]
    return (
        len(ranks) == len(values)
        and max(ranks) < 2
        and all(v.dtype in {"int64", "int32", "bool"} for v in values)
    )


def remove_unused_nodes(graph: ir.Graph) -> None:
    """Remove nodes that no output depends on."""
    ends = {id(v) for v in graph.outputs}
    for node in reversed(list(graph)):
        if not any(v.uses() or id(v) in ends for v in node.outputs):
            graph.remove(node, safe=True)


def is_constant(model: Model, node: str) -> bool:
    """Whether a node depends on constants only."""
    values = (v for n in (node, *find_nodes_before(model, node)) for v in model.by_id[n].inputs if v)
    return all(v in model.producers or model.values[v].kind == "constant" for v in values)


# Readers and writers that take part in no fusion stand where a part was cut, so that no value becomes an output or an
# input there: a compiler writes and reads these in the layout that the model has, and may give up a fusion for that.


def has_neutral_reader(model: Model, value: str) -> bool:
    """Whether there is a neutral reader for a value."""
    shape = model.sizes().get(value)
    return shape is not None and 2 <= len(shape) <= _POOLED[-1] and model.values[value].dtype in _FLOATS


def add_reader(edit: Edit, value: ir.Value) -> None:
    """Let a neutral reader read a value, where there is one for it; its result is an output.

    Poolings and products were found to stay steps of their own, and to leave what writes their input as it is.
    """
    name = value.name or ""
    if not has_neutral_reader(edit.model, name):
        edit.graph.outputs.append(value)
        return
    shape = edit.model.sizes().get(name) or ()
    # Sizes that are open stay so.
    dims = tuple(value.shape) if value.shape is not None and len(value.shape) == len(shape) else shape
    output = ir.Value(
        name=edit.make_value_name(f"{name}/read"),
        type=value.type,
        shape=ir.Shape(dims if len(shape) in _POOLED else (*dims[:-1], 4)),
    )
    title = edit.make_node_name(f"{name}/neutral")
    if len(shape) in _POOLED:
        node = _make_pooling(value, output, title, len(shape) - 2)
    else:
        weight = edit.add_constant(
            f"{name}/weight", np.ones((shape[-1], 4), (value.dtype or ir.DataType.FLOAT).numpy())
        )
        node = ir.Node("", "MatMul", [value, weight], outputs=[output], name=title)
    edit.graph.append(node)
    edit.graph.outputs.append(output)
    edit.nodes[title], edit.values[output.name or ""] = node, output


def add_writer(edit: Edit, value: ir.Value, graph_input: ir.Value) -> ir.Value:
    """What a neutral writer makes of an input, ``graph_input``, that stands for a value; the input itself without one.

    A pooling alone is neutral: a product may take what reads it into its own step.
    """
    name = value.name or ""
    shape = edit.model.sizes().get(name) or ()
    if not has_neutral_reader(edit.model, name) or len(shape) not in _POOLED:
        return graph_input
    output = ir.Value(name=edit.make_value_name(f"{name}/pooled"), type=value.type, shape=value.shape)
    title = edit.make_node_name(f"{name}/pool")
    node = _make_pooling(graph_input, output, title, len(shape) - 2)
    edit.graph.append(node)
    edit.nodes[title], edit.values[output.name or ""] = node, output
    return output


def _make_pooling(source: ir.Value, output: ir.Value, title: str, area: int) -> ir.Node:
    """A pooling that keeps the shape."""
    attributes = {"kernel_shape": [3] * area, "pads": [1] * (2 * area), "strides": [1] * area}
    onnx_attributes = ir.convenience.convert_attributes(attributes)
    return ir.Node("", "MaxPool", [source], onnx_attributes, outputs=[output], name=title)


def add_neutral_readers(model: Model, ends: frozenset[str], *, alone: bool = False) -> Model:
    """A part with neutral readers at its rim: of outputs that are none of ``ends``, those of the whole model.

    Where it is ``alone``, nobody outside reads what somebody in the part reads.
    """
    edit = Edit(model, source=True)
    cut = [v for v in edit.graph.outputs if v.name not in ends]
    edit.graph.outputs[:] = [v for v in edit.graph.outputs if v.name in ends]
    for value in cut:
        if not alone or not value.uses():
            add_reader(edit, value)
    edit.sort_and_reindex()
    return edit.model
