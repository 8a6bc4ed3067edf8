"""Which nodes run on which execution provider, as an engine's layers, and whose times the profiler tells."""

from __future__ import annotations

import collections
import dataclasses
import graphlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.files import optimized
from rtlab.backends.files.optimized import NodeRuns
from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.phrases import many

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Name of a layer's attribute.
PROVIDER = "provider"
#: Names listed in a note.
_LISTED = 4


@dataclasses.dataclass(frozen=True)
class Partition:
    """Nodes that one provider takes together, by ONNX Runtime's names, with their operators."""

    provider: str
    nodes: tuple[tuple[str, str], ...]


def parts(session: Any) -> tuple[Partition, ...]:
    """What a session tells that was made to record it; parts of a provider stand in the order of its compiled nodes."""
    return tuple(
        Partition(str(p.ep_name), tuple((str(n.name), str(n.op_type)) for n in p.get_nodes()))
        for p in session.get_provider_graph_assignment_info()
    )


def note(provider: str, title: str, placed: Sequence[Partition]) -> str:
    """How many nodes run on the provider, and what is left to the CPU."""
    mine = [p for p in placed if p.provider == provider]
    others = [op for p in placed if p.provider != provider for _, op in p.nodes]
    taken = sum(len(p.nodes) for p in mine)
    said = f"{title} runs {taken} of {taken + len(others)} nodes"
    if taken > len(mine):
        said += f", compiled to {many(len(mine), 'subgraph')}"
    if others:
        kinds = [op for op, _ in collections.Counter(others).most_common()]
        listed = ", ".join(kinds[:_LISTED]) + (", ..." if len(kinds) > _LISTED else "")
        said += f"; {len(others)} {'are' if len(others) != 1 else 'is'} left to the CPU: {listed}"
    return said


def regions(model: Model, placed: Sequence[Partition], provider: str, title: str) -> tuple[Layer, ...]:
    """One layer per compiled subgraph and per node that is left to the CPU, in an order in which they can run.

    ONNX Runtime tells nodes as they are after its basic optimizations. A node that these removed belongs where its
    input is made, and one that they made to the node whose name its own begins with.
    """
    owner = _owners(model, placed)
    inside: dict[int, list[int]] = collections.defaultdict(list)
    for node, part in owner.items():
        inside[part].append(node)
    order = _ordered(model, owner, sorted(inside, key=lambda part: inside[part][0]))
    numbers = {
        part: i for i, part in enumerate((p for p in range(len(placed)) if placed[p].provider == provider), 1)
    }
    layers = []
    for index, part in enumerate(order):
        found = placed[part]
        name = f"{title} subgraph {numbers[part]}" if part in numbers else found.nodes[0][0]
        kind = title if part in numbers else found.nodes[0][1]
        layers.append(_layer(model, owner, part, sorted(inside[part]), Layer(
            id=f"{index}:{name}", name=name, kind=kind, index=index, attributes={PROVIDER: found.provider},
        )))  # fmt: skip
    return tuple(layers)


def _owners(model: Model, placed: Sequence[Partition]) -> dict[int, int]:
    """The part of each node of the model that computes something of its inputs, both by position."""
    by_name = {n.id: i for i, n in enumerate(model.top)}
    owner: dict[int, int] = {}
    for number, part in enumerate(placed):
        for name, _ in part.nodes:
            found = by_name.get(name, by_name.get(_stem(name, by_name)))
            if found is not None:
                owner.setdefault(found, number)
    maker = {v: i for i, n in enumerate(model.top) for v in n.outputs if v}
    live = set(model.inputs)
    for i, node in enumerate(model.top):
        if not live.intersection(node.inputs):
            # Made of constants alone, it is folded away, unless a provider took it nevertheless.
            if i in owner:
                live.update(node.outputs)
            continue
        live.update(filter(None, node.outputs))
        before = [owner[maker[v]] for v in node.inputs if maker.get(v) in owner]
        if i not in owner and before:
            owner[i] = before[0]
    return owner


def _stem(name: str, known: Mapping[str, int]) -> str:
    """The longest known name that a name begins with, at a mark that ONNX Runtime puts between; empty without one."""
    ends = [i for i, c in enumerate(name) if c in "/_" and name[:i] in known]
    return name[: ends[-1]] if ends else ""


def _ordered(model: Model, owner: Mapping[int, int], parts_: Sequence[int]) -> list[int]:
    maker = {v: owner[i] for i, n in enumerate(model.top) if i in owner for v in n.outputs if v}
    needs: dict[int, set[int]] = {part: set() for part in parts_}
    for i, part in owner.items():
        needs[part] |= {maker[v] for v in model.top[i].inputs if v in maker} - {part}
    rank = {part: i for i, part in enumerate(parts_)}
    sorter = graphlib.TopologicalSorter(needs)
    try:
        sorter.prepare()
    except graphlib.CycleError:
        # A removed node was given to the wrong part; the order of the first nodes is near enough.
        return list(parts_)
    found: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=rank.__getitem__)
        found += ready
        sorter.done(*ready)
    return found


def _layer(model: Model, owner: Mapping[int, int], part: int, nodes: Sequence[int], bare: Layer) -> Layer:
    """A layer with what it reads and writes."""
    made = {v for i in nodes for v in model.top[i].outputs if v}
    read = dict.fromkeys(v for i in nodes for v in model.top[i].inputs if v and v not in made)
    wanted = set(model.outputs)
    wanted.update(
        v for i, node in enumerate(model.top) if owner.get(i, -1) not in {part, -1} for v in node.inputs
    )
    dynamic = {v for i in owner for v in model.top[i].outputs} | set(model.inputs)
    values = model.values
    return dataclasses.replace(
        bare,
        inputs=optimized.tensors(values, (v for v in read if v in dynamic)),
        constants=optimized.tensors(values, (v for v in read if v not in dynamic)),
        outputs=optimized.tensors(
            values, (v for i in nodes for v in model.top[i].outputs if v in wanted and v in made)
        ),
        origins=tuple(model.top[i].id for i in nodes),
    )


def marked(layers: Iterable[Layer], model: Model, placed: Sequence[Partition]) -> tuple[Layer, ...]:
    """Layers of an optimized graph with the provider of each, where it is told.

    A fused layer is not among the nodes that were placed, but the node whose value it writes is.
    """
    by_name = {name: part.provider for part in placed for name, _ in part.nodes}
    by_value = {v: by_name[n.id] for n in model.top if n.id in by_name for v in n.outputs}
    found = []
    for layer in layers:
        told = by_name.get(layer.name) or next(
            (by_value[t.name] for t in layer.outputs if t.name in by_value), None
        )
        more = {} if told is None else {PROVIDER: told}
        found.append(dataclasses.replace(layer, attributes={**layer.attributes, **more}))
    return tuple(found)


def samples(
    told: Mapping[str, NodeRuns], layers: Sequence[Layer], provider: str, title: str
) -> tuple[dict[str, NDArray[np.float64]], str]:
    """Milliseconds per layer and run, and what the profiler tells beyond the layers.

    Compiled subgraphs have names of their own in the profile; their numbers rise as those of the layers do.
    """
    known = {layer.name for layer in layers}
    strange = {
        n: kernel.index for n, kernel in told.items() if n not in known and kernel.provider == provider
    }
    subgraphs = sorted(
        (n for n in known if n.startswith(f"{title} subgraph ")), key=lambda n: int(n.rpartition(" ")[2])
    )
    names: dict[str, str] = {}
    if len(strange) == len(subgraphs):
        names = dict(zip(sorted(strange, key=strange.__getitem__), subgraphs, strict=True))
    found = optimized.samples({names.get(name, name): kernel for name, kernel in told.items()}, layers)
    others = {n: k.taken for n, k in told.items() if n not in known and n not in names and k.taken}
    if not others:
        return found, ""
    time = sum(float(np.median(taken)) for taken in others.values())
    listed = ", ".join(list(others)[:_LISTED]) + (", ..." if len(others) > _LISTED else "")
    return found, f"{time:.3g} ms more in {len(others)} nodes that are no layers: {listed}"
