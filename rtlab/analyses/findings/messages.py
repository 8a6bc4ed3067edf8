"""What a log reports, as findings on the nodes of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rtlab.core.facts import VariantResult
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.relation.flow import Flow
from rtlab.relation.names import Names

#: What stands behind the name of a layer or of a tensor that the compiler made into one.
_KIND = re.compile(r"\s*\[\w+\](?=$|\.\.\.|\]\})")


def report_messages(facts: VariantResult) -> tuple[Finding, ...]:
    """The messages of a variant's log, failures first; nodes are those of its source that the messages name."""
    names = Names(facts.source, Flow(facts.source)) if facts.messages and facts.source.nodes else None
    return tuple(
        Finding(
            id=f"message:{message.id}",
            rule=message.id,
            title=message.title,
            nodes=() if names is None else tuple(_find_nodes(message.names, names)),
            cost=message.cost,
            fix=message.remedy,
            evidence=message.evidence,
            fixable=False,
        )
        for message in facts.messages
    )


def _find_nodes(printed_names: tuple[str, ...], names: Names) -> Iterator[str]:
    """Ids of the nodes that names of layers, nodes and tensors stand for, in graph order; of a region all in it."""
    ids: set[str] = set()
    for name in printed_names:
        bare = _KIND.sub("", name)
        if bare.startswith("{") and not bare.endswith("]}"):
            # Cut off: as far as it goes.
            bare = f"{bare}]}}"
        groups = [*names.find_explicit(bare), *names.find_regions(bare, ())]
        ids |= {n.id for group in groups for n in group.nodes}
        if not groups:
            ids |= _find_tensor_nodes(bare, names.model)
    return (n.id for n in names.model.nodes if n.id in ids)


def _find_tensor_nodes(name: str, model: Model) -> set[str]:
    """Ids of the node that writes a value, else of those that read it; else of the nodes of an operator."""
    if (producer := model.producers.get(name)) is not None:
        return {producer.id}
    if readers := model.consumers.get(name):
        return {n.id for n in readers}
    return {n.id for n in model.nodes if n.op == name}
