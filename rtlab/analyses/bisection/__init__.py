"""What changed from one engine of a model to another: groups of nodes, and the fewest nodes that still show each."""

from __future__ import annotations

import dataclasses
import html
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

from rtlab.analyses import fusion
from rtlab.analyses.bisection.fusion_changes import (
    Kind,
    NodeLayers,
    Regrouping,
    collect_node_layers,
    count_kernels,
    describe_cause,
    describe_layers,
    find_regroupings,
    format_counts,
    join_components,
)
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.results import ResultTable


@dataclasses.dataclass(frozen=True)
class ChangedGroup:
    """Nodes that two engines run in other layers, at one place or at several that changed alike.

    ``first`` and ``second`` are the layers: what they run, or their kernels where these alone differ; ``cause`` says
    what differs. ``smallest`` are the fewest nodes that both compilers still run otherwise, empty where none were
    found. ``example`` are the nodes of the place that they are looked for around; ``kind`` says who shares a layer
    with whom now, and is empty where kernels alone differ.
    """

    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    title: Annotated[str, FieldMeta("First node")]
    places: Annotated[int, FieldMeta("Places", note="Where the model changed in this way.")]
    first: Annotated[str, FieldMeta("Before", origin="{of.origins[0]}")]
    second: Annotated[str, FieldMeta("After", origin="{of.origins[1]}")]
    cause: Annotated[str, FieldMeta("What differs")]
    smallest: tuple[str, ...] = ()
    operators: Annotated[str, FieldMeta("Fewest nodes", note="By operator, of those that still show it.")] = (
        ""
    )
    example: Annotated[tuple[str, ...], UNSENT] = ()
    kind: Annotated[Kind, UNSENT] = frozenset()


@dataclasses.dataclass(frozen=True)
class Bisection:
    """What changed from one engine to another.

    ``left`` counts the groups of which the fewest nodes were not looked for within the budget. ``origins`` say whose
    layers rules predict. ``refused`` is which of the two compilers refuses the model, ``first`` or ``second``, in the
    words of ``said``; ``changes`` has one row then, the nodes that it refuses.
    """

    first: Annotated[str, FieldMeta("First")]
    second: Annotated[str, FieldMeta("Second")]
    changes: tuple[ChangedGroup, ...]
    text: Annotated[str, FieldMeta("Answer")]
    refused: Annotated[Literal["", "first", "second"], FieldMeta("Refused by")] = ""
    said: Annotated[str, FieldMeta("In the compiler's words")] = ""
    builds: Annotated[int, FieldMeta("Builds")] = 0
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")] = 0.0
    left: Annotated[int, FieldMeta("Not examined", note="Groups that the budget, or a cancel, left.")] = 0
    origins: Annotated[tuple[Origin, Origin], UNSENT] = ("reported", "reported")

    def _repr_html_(self) -> str:
        table = ResultTable(ChangedGroup, self.changes, placeholder="", of=self)
        return f"<p>{html.escape(self.text)}</p>{table.html()}"

    def to_text(self) -> str:
        """The answer, and a table of what changed."""
        table = (
            ResultTable(ChangedGroup, self.changes, placeholder="", of=self).text() if self.changes else ""
        )
        cost = (
            f"{pluralize(self.builds, 'build')} in {self.seconds:.2g} s (measured here)"
            if self.builds
            else ""
        )
        return "\n\n".join(filter(None, (self.text, table, self.said, cost)))


def find_changes(before: VariantResult, after: VariantResult) -> tuple[tuple[ChangedGroup, ...], int]:
    """The groups of nodes that two engines of one model run in other layers, the largest first.

    A group is a place where nodes share their layers with others than before; places that changed alike are one row.
    Where the rest differs in kernels alone, neighbours that do are a row of their own; between precisions every layer
    does, and the second of what is returned counts their nodes.
    """
    engines, model = (before.engine, after.engine), before.source
    maps = [fusion.map_nodes(f) for f in (before, after)]
    regroupings = find_regroupings(model, maps, engines)
    kinds: defaultdict[Kind, list[Regrouping]] = defaultdict(list)
    for place in regroupings:
        kinds[place.compute_kind(model)].append(place)
    layers = [collect_node_layers(m, e) for m, e in zip(maps, engines, strict=True)]
    rows = []
    for kind, alike in kinds.items():
        # The one with the fewest nodes stands for all.
        example = min(alike, key=lambda p: len(p.nodes)).nodes
        one, two = (describe_layers(model, m, e, example) for m, e in zip(maps, engines, strict=True))
        nodes = tuple(n for p in alike for n in p.nodes)
        cause = describe_cause(model, alike)
        rows.append(ChangedGroup(nodes, example[0], len(alike), one, two, cause, example=example, kind=kind))
    regrouped = {n for p in regroupings for n in p.nodes}
    others = [
        n.id
        for n in model.nodes
        if n.id not in regrouped and count_kernels(layers[0], [n.id]) != count_kernels(layers[1], [n.id])
    ]
    if _get_precisions(before) != _get_precisions(after):
        return _sort(rows), len(others)
    rows += [_make_kernel_change(nodes, layers) for nodes in _join_neighbours(model, others, layers)]
    return _sort(rows), 0


def _sort(rows: list[ChangedGroup]) -> tuple[ChangedGroup, ...]:
    return tuple(sorted(rows, key=lambda c: -len(c.nodes)))


def _get_precisions(facts: VariantResult) -> frozenset[str]:
    """The variant's precisions, or the types of the layers of an engine from files."""
    if not facts.recorded:
        return frozenset(map(str, facts.variant.precisions))
    return frozenset(y.precision for y in facts.engine.layers if y.precision)


def _join_neighbours(model: Model, nodes: Sequence[str], layers: Sequence[NodeLayers]) -> list[list[str]]:
    """Nodes of which one reads what the other writes, together; a node that no layer runs parts none."""
    mates: defaultdict[str, list[str]] = defaultdict(list)
    chosen = frozenset(nodes)
    for node in nodes:
        pending, visited = [node], {node}
        while pending:
            for value in model.by_id[pending.pop()].outputs:
                for reader in (r.id for r in model.consumers.get(value, ()) if r.id not in visited):
                    visited.add(reader)
                    if reader in chosen:
                        mates[node].append(reader)
                        mates[reader].append(node)
                    elif not any(side.get(reader) for side in layers):
                        pending.append(reader)
    return join_components(nodes, mates)


def _make_kernel_change(nodes: Sequence[str], layers: Sequence[NodeLayers]) -> ChangedGroup:
    one, two = (count_kernels(side, nodes) for side in layers)
    old, new = (
        format_counts(Counter(name for _, _, name in counts.elements())) for counts in (one - two, two - one)
    )
    types = ["/".join(sorted({t for _, t, _ in counts if t})) for counts in (one, two)]
    cause = f"{types[0]} became {types[1]}" if types[0] != types[1] and all(types) else "other kernels"
    return ChangedGroup(tuple(nodes), nodes[0], 1, old, new, cause, example=tuple(nodes))
