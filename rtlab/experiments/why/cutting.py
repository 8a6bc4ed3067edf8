"""Neighbourhoods: a part of a model around two nodes, as small as shows what the compiler does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rtlab.analyses.why.missed_fusions import BETWEEN
from rtlab.core.extract import extract_nodes
from rtlab.core.model import Model, wrap
from rtlab.experiments.why.neutral import add_neutral_readers
from rtlab.relation.roles import PRODUCT_OPS, QUANTIZING_OPS


def paths(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """The nodes between two neighbours, none of which computes; None where they are no neighbours.

    A transposition is among them: it is where the layout becomes another one.
    """
    start, end = model.by_id[first], model.by_id[second]
    nodes_between: dict[str, None] = {}
    is_reached = False
    todo: list[tuple[str, tuple[str, ...]]] = [(o, ()) for o in start.outputs if o]
    while todo:
        value, way = todo.pop()
        for reader in model.consumers.get(value, ()):
            if reader.id == end.id:
                is_reached = True
                nodes_between.update(dict.fromkeys(way))
            elif (reader.op in BETWEEN or reader.op == "Transpose") and reader.inputs[0] == value:
                todo += [(o, (*way, reader.id)) for o in reader.outputs if o]
    return tuple(nodes_between) if is_reached else None


def find_route(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """A shortest way along the data from one node to another, both included; None where there is none."""
    before: dict[str, str] = {first: ""}
    todo = [first]
    for at in todo:
        if at == second:
            break
        for reader in iter_readers(model, at):
            if reader not in before:
                before[reader] = at
                todo.append(reader)
    if second not in before:
        return None
    route = [second]
    while before[route[-1]]:
        route.append(before[route[-1]])
    return tuple(reversed(route))


def cut_neighbourhood(model: Model, nodes: Iterable[str], hops: int, *, still_open: bool = False) -> Model:
    """The nodes within some hops of those given, with their weights, as a model of its own.

    A hop goes over nodes that compute; those between come along. What lies at the rim keeps its own kind: a value that
    the rest of the model reads is read by its readers, whose results are the part's outputs, so that no layout changes
    because a value in the middle became an output.
    """
    return cut(model, find_neighbourhood(model, nodes, hops), still_open=still_open)


def find_neighbourhood(model: Model, nodes: Iterable[str], hops: int) -> dict[str, None]:
    """Some nodes, and those within some hops of them over nodes that compute."""
    node_ids = dict.fromkeys(nodes)
    edge = list(node_ids)
    for _ in range(hops):
        fresh = [n for at in edge for n in _iter_neighbours(model, at) if n not in node_ids]
        node_ids.update(dict.fromkeys(fresh))
        edge = fresh
    return node_ids


def cut_pair(model: Model, nodes: Sequence[str], *, still_open: bool = False) -> Model:
    """The first two nodes and the others with their weights, and what their inputs are quantized by: the arithmetic.

    What leads from one to the other on another way comes along where no product is among it, as Sigmoid does in SiLU.
    """
    between = reach(model, nodes[0], iter_readers) & reach(model, nodes[1], iter_writers)
    is_product_free = not any(model.by_id[n].op in PRODUCT_OPS for n in between)
    return cut_nodes(model, (*nodes, *(sorted(between) if is_product_free else ())), still_open=still_open)


def cut_nodes(model: Model, nodes: Iterable[str], *, still_open: bool = False) -> Model:
    """Some nodes with their weights, and what their inputs are quantized by, and nothing else."""
    node_ids = dict.fromkeys(nodes)
    todo = list(node_ids)
    while todo:
        before = [n for n in iter_writers(model, todo.pop()) if model.by_id[n].op in QUANTIZING_OPS]
        todo += [n for n in before if n not in node_ids]
        node_ids.update(dict.fromkeys(before))
    return cut(model, node_ids, keep_readers=False, still_open=still_open)


def cut(
    model: Model, node_ids: dict[str, None], *, keep_readers: bool = True, still_open: bool = False
) -> Model:
    """Some nodes with what computes their weights; ``keep_readers`` keeps who else reads their values.

    Sizes that the model leaves open become the usual ones, unless they stay ``still_open``.
    """
    every = dict(node_ids)
    for node in node_ids:
        every.update(dict.fromkeys(_iter_constant_writers(model, node)))
    proto, name = extract_nodes(model.ir, model.name, every), f"{model.name}_part"
    if still_open:
        part_model = wrap(proto, name=name, shapes=model.shapes)
    else:
        sizes = {v.name: model.sizes().get(v.name) for v in proto.graph.input}
        part_model = wrap(proto, name=name, shapes={n: s for n, s in sizes.items() if s is not None}).static()
    return add_neutral_readers(
        part_model, frozenset(model.outputs if keep_readers else ()), alone=not keep_readers
    )


def _iter_neighbours(model: Model, node: str) -> Iterator[str]:
    """The neighbours of a node in both directions, with what stands between."""
    visited: set[str] = set()
    for step in (iter_readers, iter_writers):
        todo = list(step(model, node))
        while todo:
            at = todo.pop()
            if at in visited:
                continue
            visited.add(at)
            yield at
            if model.by_id[at].op in BETWEEN:
                todo += step(model, at)


def iter_readers(model: Model, node: str) -> Iterator[str]:
    """The nodes that read what a node writes."""
    for value in model.by_id[node].outputs:
        yield from (n.id for n in model.consumers.get(value, ()))


def iter_writers(model: Model, node: str) -> Iterator[str]:
    """The nodes that write what a node reads."""
    for value in model.by_id[node].inputs:
        if value in model.producers:
            yield model.producers[value].id


def reach(model: Model, node: str, step: Callable[[Model, str], Iterable[str]]) -> set[str]:
    """The nodes that steps lead to from a node: with ``iter_readers`` those behind it, with ``iter_writers`` before."""
    reachable: set[str] = set()
    todo = [*step(model, node)]
    while todo:
        at = todo.pop()
        if at not in reachable:
            reachable.add(at)
            todo += step(model, at)
    return reachable


def _iter_constant_writers(model: Model, node: str) -> Iterator[str]:
    """The nodes that compute a node's inputs from constants alone."""
    for writer in iter_writers(model, node):
        if is_constant(model, writer):
            yield writer
            yield from _iter_constant_writers(model, writer)


def is_constant(model: Model, node: str) -> bool:
    """Whether a node reads constants only."""
    todo, visited = [node], set[str]()
    while todo:
        at = model.by_id[todo.pop()]
        if at.id in visited:
            continue
        visited.add(at.id)
        for value in at.inputs:
            if not value or model.values[value].kind == "constant":
                continue
            if value not in model.producers:
                return False
            todo.append(model.producers[value].id)
    return True
