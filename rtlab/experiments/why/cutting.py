"""Neighbourhoods: a part of a model around two nodes, as small as shows what the compiler does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rtlab.core.extract import part
from rtlab.core.model import Model, wrap
from rtlab.experiments.why.neutral import rimmed
from rtlab.questions.why.missed import BETWEEN
from rtlab.relation.roles import PRODUCT_OPS, QUANTIZING_OPS


def paths(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """The nodes between two neighbours, none of which computes; None where they are no neighbours.

    A transposition is among them: it is where the layout becomes another one.
    """
    start, end = model.by_id[first], model.by_id[second]
    found: dict[str, None] = {}
    reached = False
    todo: list[tuple[str, tuple[str, ...]]] = [(o, ()) for o in start.outputs if o]
    while todo:
        value, way = todo.pop()
        for reader in model.consumers.get(value, ()):
            if reader.id == end.id:
                reached = True
                found.update(dict.fromkeys(way))
            elif (reader.op in BETWEEN or reader.op == "Transpose") and reader.inputs[0] == value:
                todo += [(o, (*way, reader.id)) for o in reader.outputs if o]
    return tuple(found) if reached else None


def way(model: Model, first: str, second: str) -> tuple[str, ...] | None:
    """A shortest way along the data from one node to another, both included; None where there is none."""
    before: dict[str, str] = {first: ""}
    todo = [first]
    for at in todo:
        if at == second:
            break
        for reader in _readers(model, at):
            if reader not in before:
                before[reader] = at
                todo.append(reader)
    if second not in before:
        return None
    found = [second]
    while before[found[-1]]:
        found.append(before[found[-1]])
    return tuple(reversed(found))


def around(model: Model, nodes: Iterable[str], hops: int, *, still_open: bool = False) -> Model:
    """The nodes within some hops of those given, with their weights, as a model of its own.

    A hop goes over nodes that compute; those between come along. What lies at the rim keeps its own kind: a value that
    the rest of the model reads is read by its readers, whose results are the part's outputs, so that no layout changes
    because a value in the middle became an output.
    """
    chosen = dict.fromkeys(nodes)
    edge = list(chosen)
    for _ in range(hops):
        fresh = [n for at in edge for n in _near(model, at) if n not in chosen]
        chosen.update(dict.fromkeys(fresh))
        edge = fresh
    return cut(model, chosen, still_open=still_open)


def alone(model: Model, nodes: Sequence[str], *, still_open: bool = False) -> Model:
    """The first two nodes and the others with their weights, and what their inputs are quantized by: the arithmetic.

    What leads from one to the other on another way comes along where no product is among it, as Sigmoid does in SiLU.
    """
    between = _reached(model, nodes[0], _readers) & _reached(model, nodes[1], _writers)
    whole = not any(model.by_id[n].op in PRODUCT_OPS for n in between)
    return these(model, (*nodes, *(sorted(between) if whole else ())), still_open=still_open)


def these(model: Model, nodes: Iterable[str], *, still_open: bool = False) -> Model:
    """Some nodes with their weights, and what their inputs are quantized by, and nothing else."""
    chosen = dict.fromkeys(nodes)
    todo = list(chosen)
    while todo:
        before = [n for n in _writers(model, todo.pop()) if model.by_id[n].op in QUANTIZING_OPS]
        todo += [n for n in before if n not in chosen]
        chosen.update(dict.fromkeys(before))
    return cut(model, chosen, whole=False, still_open=still_open)


def cut(model: Model, chosen: dict[str, None], *, whole: bool = True, still_open: bool = False) -> Model:
    """Some nodes with what computes their weights; ``whole`` keeps who else reads their values.

    Sizes that the model leaves open become the usual ones, unless they stay ``still_open``.
    """
    every = dict(chosen)
    for node in chosen:
        every.update(dict.fromkeys(_constant(model, node)))
    proto, name = part(model.ir, model.name, every), f"{model.name}_part"
    if still_open:
        made = wrap(proto, name=name, shapes=model.shapes)
    else:
        sizes = {v.name: model.sizes().get(v.name) for v in proto.graph.input}
        made = wrap(proto, name=name, shapes={n: s for n, s in sizes.items() if s is not None}).static()
    return rimmed(made, frozenset(model.outputs if whole else ()), alone=not whole)


def _near(model: Model, node: str) -> Iterator[str]:
    """The neighbours of a node in both directions, with what stands between."""
    seen: set[str] = set()
    for step in (_readers, _writers):
        todo = list(step(model, node))
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            yield at
            if model.by_id[at].op in BETWEEN:
                todo += step(model, at)


def _readers(model: Model, node: str) -> Iterator[str]:
    for value in model.by_id[node].outputs:
        yield from (n.id for n in model.consumers.get(value, ()))


def _writers(model: Model, node: str) -> Iterator[str]:
    for value in model.by_id[node].inputs:
        if value in model.producers:
            yield model.producers[value].id


def _reached(model: Model, node: str, step: Callable[[Model, str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    todo = [*step(model, node)]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += step(model, at)
    return found


def _constant(model: Model, node: str) -> Iterator[str]:
    """The nodes that compute a node's inputs from constants alone."""
    for writer in _writers(model, node):
        if is_constant(model, writer):
            yield writer
            yield from _constant(model, writer)


def is_constant(model: Model, node: str) -> bool:
    """Whether a node reads constants only."""
    todo, seen = [node], set[str]()
    while todo:
        at = model.by_id[todo.pop()]
        if at.id in seen:
            continue
        seen.add(at.id)
        for value in at.inputs:
            if not value or model.values[value].kind == "constant":
                continue
            if value not in model.producers:
                return False
            todo.append(model.producers[value].id)
    return True
