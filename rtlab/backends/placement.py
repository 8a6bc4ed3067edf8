"""Which nodes run on which execution provider, as an engine's layers, and whose times the profiler tells."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.readers import optimized
from rtlab.backends.readers.optimized import NodeRuns
from rtlab.core.engine import Layer
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize

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


def list_partitions(session: Any) -> tuple[Partition, ...]:
    """What a session tells that was made to record it; parts of a provider stand in the order of its compiled nodes."""
    return tuple(
        Partition(str(p.ep_name), tuple((str(n.name), str(n.op_type)) for n in p.get_nodes()))
        for p in session.get_provider_graph_assignment_info()
    )


def describe_placement(provider: str, title: str, partitions: Sequence[Partition]) -> str:
    """How many nodes run on the provider, and what is left to the CPU."""
    provider_parts = [p for p in partitions if p.provider == provider]
    others = [op for p in partitions if p.provider != provider for _, op in p.nodes]
    node_count = sum(len(p.nodes) for p in provider_parts)
    text = f"{title} runs {node_count} of {node_count + len(others)} nodes"
    if node_count > len(provider_parts):
        text += f", compiled to {pluralize(len(provider_parts), 'subgraph')}"
    if others:
        kinds = [op for op, _ in collections.Counter(others).most_common()]
        kind_list = ", ".join(kinds[:_LISTED]) + (", ..." if len(kinds) > _LISTED else "")
        text += f"; {len(others)} {'are' if len(others) != 1 else 'is'} left to the CPU: {kind_list}"
    return text


def build_regions(
    model: Model, partitions: Sequence[Partition], provider: str, title: str
) -> tuple[Layer, ...]:
    """One layer per compiled subgraph and per node that is left to the CPU, in an order in which they can run.

    ONNX Runtime tells nodes as they are after its basic optimizations. A node that these removed belongs where its
    input is made, and one that they made to the node whose name its own begins with.
    """
    owner = _assign_owners(model, partitions)
    members: dict[int, list[int]] = collections.defaultdict(list)
    for node, part in owner.items():
        members[part].append(node)
    order = _sort_parts(model, owner, sorted(members, key=lambda part: members[part][0]))
    numbers = {
        part: i
        for i, part in enumerate((p for p in range(len(partitions)) if partitions[p].provider == provider), 1)
    }
    layers = []
    dynamic = {v for i in owner for v in model.top[i].outputs} | set(model.inputs)
    for index, part in enumerate(order):
        name, kind = (
            (f"{title} subgraph {numbers[part]}", title) if part in numbers else partitions[part].nodes[0]
        )
        nodes = [model.top[i] for i in sorted(members[part])]
        written = dict.fromkeys(v for n in nodes for v in n.outputs if v)
        read = dict.fromkeys(v for n in nodes for v in n.inputs if v and v not in written)
        read_elsewhere = set(model.outputs).union(
            *(node.inputs for i, node in enumerate(model.top) if owner.get(i, part) != part)
        )
        layers.append(
            Layer(
                id=f"{index}:{name}",
                name=name,
                kind=kind,
                index=index,
                inputs=optimized.to_tensors(model.values, (v for v in read if v in dynamic)),
                constants=optimized.to_tensors(model.values, (v for v in read if v not in dynamic)),
                outputs=optimized.to_tensors(model.values, (v for v in written if v in read_elsewhere)),
                origins=tuple(n.id for n in nodes),
                attributes={PROVIDER: partitions[part].provider},
            )
        )
    return tuple(layers)


def _assign_owners(model: Model, partitions: Sequence[Partition]) -> dict[int, int]:
    """The part of each node of the model that computes something of its inputs, both by position."""
    by_name = {n.id: i for i, n in enumerate(model.top)}
    owner: dict[int, int] = {}
    for number, part in enumerate(partitions):
        for name, _ in part.nodes:
            position = by_name.get(name, by_name.get(_find_stem(name, by_name)))
            if position is not None:
                owner.setdefault(position, number)
    producer = {v: i for i, n in enumerate(model.top) for v in n.outputs if v}
    dynamic_values = set(model.inputs)
    for i, node in enumerate(model.top):
        if not dynamic_values.intersection(node.inputs):
            # Made of constants alone, it is folded away, unless a provider took it nevertheless.
            if i in owner:
                dynamic_values.update(node.outputs)
            continue
        dynamic_values.update(filter(None, node.outputs))
        input_owners = [owner[producer[v]] for v in node.inputs if producer.get(v) in owner]
        if i not in owner and input_owners:
            owner[i] = input_owners[0]
    return owner


def _find_stem(name: str, positions: Mapping[str, int]) -> str:
    """The longest known name that a name begins with, at a mark that ONNX Runtime puts between; empty without one."""
    ends = [i for i, c in enumerate(name) if c in "/_" and name[:i] in positions]
    return name[: ends[-1]] if ends else ""


def _sort_parts(model: Model, owner: Mapping[int, int], parts: Sequence[int]) -> list[int]:
    """Parts in an order in which they can run, which is that of their first nodes as far as it can be."""
    import networkx

    producer = {v: owner[i] for i, n in enumerate(model.top) if i in owner for v in n.outputs if v}
    graph = networkx.DiGraph()
    graph.add_nodes_from(parts)
    graph.add_edges_from(
        (producer[v], part)
        for i, part in owner.items()
        for v in model.top[i].inputs
        if producer.get(v, part) != part
    )
    rank = {part: i for i, part in enumerate(parts)}
    try:
        return list(networkx.lexicographical_topological_sort(graph, key=rank.__getitem__))
    except networkx.NetworkXUnfeasible:
        # A removed node was given to the wrong part; the order of the first nodes is near enough.
        return list(parts)


def add_providers(
    layers: Iterable[Layer], model: Model, partitions: Sequence[Partition]
) -> tuple[Layer, ...]:
    """Layers of an optimized graph with the provider of each, where it is told.

    A fused layer is not among the nodes that were placed, but the node whose value it writes is.
    """
    by_name = {name: part.provider for part in partitions for name, _ in part.nodes}
    by_value = {v: by_name[n.id] for n in model.top if n.id in by_name for v in n.outputs}
    marked_layers = []
    for layer in layers:
        provider = by_name.get(layer.name) or next(
            (by_value[t.name] for t in layer.outputs if t.name in by_value), None
        )
        more = {} if provider is None else {PROVIDER: provider}
        marked_layers.append(dataclasses.replace(layer, attributes={**layer.attributes, **more}))
    return tuple(marked_layers)


def collect_samples(
    kernel_runs: Mapping[str, NodeRuns], layers: Sequence[Layer], provider: str, title: str
) -> dict[str, NDArray[np.float64]]:
    """Milliseconds per layer and run.

    Compiled subgraphs have names of their own in the profile; their numbers rise as those of the layers do.
    """
    layer_names = {layer.name for layer in layers}
    unmatched = sorted(
        (n for n, kernel in kernel_runs.items() if n not in layer_names and kernel.provider == provider),
        key=lambda n: kernel_runs[n].index,
    )
    subgraphs = sorted(
        (n for n in layer_names if n.startswith(f"{title} subgraph ")),
        key=lambda n: int(n.rpartition(" ")[2]),
    )
    # A time at the wrong layer is worse than none.
    names = dict(zip(unmatched, subgraphs, strict=True)) if len(unmatched) == len(subgraphs) else {}
    renamed_runs = {names.get(name, name): kernel for name, kernel in kernel_runs.items()}
    return optimized.collect_samples(renamed_runs, layers)
