"""Every pass that a test applies is watched: it keeps what it promises, or the test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rtlab.core.model import Model
from rtlab.quantize import passes
from rtlab.quantize.edit import Edit
from rtlab.quantize.passes import Pass
from rtlab.quantize.placement import WEIGHTED


@pytest.fixture(scope="module", autouse=True)
def promises() -> Iterator[set[str]]:
    seen: set[str] = set()
    apply = passes.apply

    def watched(one: Pass, edit: Edit, check: Callable[[], object] = lambda: None) -> None:
        before = edit.model
        apply(one, edit, check)
        seen.add(one.name)
        assert [] == broken(one.promises, before, edit.model), one.name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "apply", watched)
        yield seen


def broken(promises: tuple[str, ...], before: Model, after: Model) -> list[str]:
    """What is broken of what was promised; numbers are compared elsewhere."""
    return [said for p in promises if p != passes.NUMBERS and (said := _CHECKS[p](before, after))]


def _interface(before: Model, after: Model) -> str:
    for way in ("inputs", "outputs"):
        old, new = (
            [(n, m.values[n].dtype, m.values[n].shape) for n in getattr(m, way)] for m in (before, after)
        )
        if old != new:
            return f"{way} were {old} and are {new}"
    return ""


def _nodes(before: Model, after: Model) -> str:
    order = [n.id for n in after.nodes if n.id in before.by_id]
    if order != [n.id for n in before.nodes]:
        return "nodes are gone, or stand in another order"
    other = next((n.id for n in before.nodes if after.by_id[n.id].op != n.op), "")
    return f'node "{other}" is another operator' if other else ""


def _values(before: Model, after: Model) -> str:
    read = {v for n in after.nodes for v in (*n.inputs, *n.outputs)}
    if missing := next((o for n in before.top for o in n.outputs if o and o not in read), ""):
        return f'value "{missing}" is gone'
    for node in before.top:
        makers = (after.producers.get(out) for out in node.outputs)
        if any(m is not None and {node.id, node.origin}.isdisjoint((m.id, m.origin)) for m in makers):
            return f'what "{node.id}" writes is made by another'
    return ""


def _origins(before: Model, after: Model) -> str:
    sources = {n.origin for n in before.top} | {n.id for n in before.top}
    orphan = next((n.id for n in after.top if n.origin not in sources), "")
    return f'node "{orphan}" serves no node of the source' if orphan else ""


def _order(_: Model, after: Model) -> str:
    available = {*after.inputs, *after.ir.graph.initializers}
    for node in after.top:
        if early := [v for v in node.inputs if v and v not in available]:
            return f'node "{node.id}" stands before what writes "{early[0]}"'
        available.update(node.outputs)
    return ""


def _types(before: Model, after: Model) -> str:
    untyped = {k for k, v in before.values.items() if not v.dtype}
    value = next((k for k, v in after.values.items() if not v.dtype and k not in untyped), "")
    return f'the type of value "{value}" is not known' if value else ""


def _products(before: Model, after: Model) -> str:
    for node in before.top:
        if node.op in WEIGHTED and (node.id not in after.by_id or after.by_id[node.id].op != node.op):
            return f'product "{node.id}" is gone, or another operator'
    return ""


_CHECKS: dict[str, Callable[[Model, Model], str]] = {
    passes.INTERFACE: _interface, passes.NODES: _nodes, passes.VALUES: _values, passes.ORIGINS: _origins,
    passes.ORDER: _order, passes.TYPES: _types, passes.PRODUCTS: _products,
}  # fmt: skip
