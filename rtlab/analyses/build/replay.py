"""A build replayed on the model: decision by decision, which nodes are one layer from then on."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingType
from typing import Annotated

from rtlab.core.buildlog import Attempt, BuildLog, Decision, NetworkPass
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.schema import UNSENT
from rtlab.relation.mapping import Mapping

_FOREIGN = re.compile(r"\{ForeignNode\[(.*?)\.\.\.(.*)\]\}", re.DOTALL)
_SINGLE = re.compile(r"\{ForeignNode\[(.*)\]\}", re.DOTALL)
_MOVE = re.compile(r"Reformatt(?:ed|ing CopyNode for) (?:Input|Output) Tensor \d+ to (.*)", re.DOTALL)
_COPY_NAME = re.compile(r"(.+?)(?: copy|_clone_\d+)$", re.DOTALL)
_SIGNS = re.compile(r"[^0-9A-Za-z]+")
#: The ONNX parser's name of a layer whose node has none: this and the node's first output.
_UNNAMED = "node_of_"
#: Brackets in brackets in a name; a damaged log may hold any number.
_DEEPEST = 40


@dataclasses.dataclass(frozen=True)
class ReplayedStep:
    """One decision on the model.

    ``place`` is the position of its pass. ``nodes`` are ids of the nodes whose layers it concerned, in the order
    of its names; ``joins`` says that they are one layer from then on; ``layer`` is the id of the engine's layer that
    bears the result in the end, empty where none does or no engine is known.
    """

    decision: Decision
    place: Annotated[int, UNSENT]
    nodes: tuple[str, ...]
    joins: bool
    layer: str


@dataclasses.dataclass(frozen=True, eq=False)
class Replay:
    """The attempt that became the engine, step by step."""

    passes: tuple[NetworkPass, ...]
    steps: tuple[ReplayedStep, ...]

    def get_groups(self, k: int) -> tuple[tuple[str, ...], ...]:
        """Nodes that are one layer after ``k`` steps, each group in the order in which they joined."""
        members: dict[str, tuple[str, ...]] = {}
        for step in self.steps[:k]:
            if step.joins:
                group = tuple(dict.fromkeys(m for node in step.nodes for m in members.get(node, (node,))))
                members.update(dict.fromkeys(group, group))
        return tuple(dict.fromkeys(members.values()))

    @property
    def coverage(self) -> tuple[int, int]:
        """Steps that found a node of the model, and all steps.

        Layers that the parser added, such as constants and reshapes of weights, stand for no node.
        """
        return sum(bool(step.nodes) for step in self.steps), len(self.steps)


def _is_merge(decision: Decision) -> bool:
    """Whether its layers are one from then on; one that duplicates another is done by that one."""
    return decision.action in {"fuse", "merge"} or (decision.action == "eliminate" and bool(decision.result))


def replay_decisions(
    log: BuildLog, model: Model, engine: Engine | None = None, mapping: Mapping | None = None
) -> Replay:
    """Replay the attempt that became the engine.

    Names of layers are resolved through layers that the replay made before, through what the parser said of names,
    through ids and names of nodes, names of tensors, and at last through the grammar of TensorRT's names.

    Args:
        log: The build.
        model: The model that was built; one without nodes gives steps without nodes.
        engine: Its layers are searched for those that bear the results.
        mapping: Where no layer bears a name, the layer that all nodes of a step are in is taken.
    """
    attempt = log.attempts[log.chosen] if log.chosen < len(log.attempts) else Attempt(())
    resolver = _NodeResolver(log, model)
    decisions = [(place, decision) for place, p in enumerate(attempt.passes) for decision in p.decisions]
    nodes_of_steps = [resolver.apply_decision(decision) for _, decision in decisions]
    renames = {
        name: decision.result
        for _, decision in decisions
        if _is_merge(decision) or _is_rename(decision)
        for name in decision.names
        if name != decision.result
    }
    find_layer = _make_layer_finder(engine, mapping, renames)
    steps = (
        ReplayedStep(
            decision, place, nodes, _is_merge(decision) and len(nodes) > 1, find_layer(decision, nodes)
        )
        for (place, decision), nodes in zip(decisions, nodes_of_steps, strict=True)
    )
    return Replay(attempt.passes, tuple(steps))


def _is_rename(decision: Decision) -> bool:
    """Whether a layer has another name from then on, though nothing was joined."""
    return decision.action == "other" and decision.result.startswith("PWN(")


def _make_layer_finder(
    engine: Engine | None, mapping: Mapping | None, renames: MappingType[str, str]
) -> Callable[[Decision, tuple[str, ...]], str]:
    """A function that gives the id of the engine's layer in which a decision ended, empty where there is none."""
    layers = engine.layers if engine else ()
    ids_by_name = {layer.name: layer.id for layer in reversed(layers)}
    counts = Counter(_normalize_name(layer.name) for layer in layers)
    ids_by_plain_name = {p: y.id for y in layers if counts[p := _normalize_name(y.name)] == 1}
    ids = {layer.id for layer in layers}

    def find(decision: Decision, nodes: tuple[str, ...]) -> str:
        for name in filter(None, (decision.result, *decision.names)):
            visited, last = {name}, name
            while (new_name := renames.get(last)) is not None and new_name not in visited:
                visited.add(new_name)
                last = new_name
            if layer := ids_by_name.get(last) or ids_by_plain_name.get(_normalize_name(last)):
                return layer
        # Nodes without a layer are not counted.
        tables = [table for n in nodes if mapping is not None and (table := mapping.layers(n))]
        shared = (i for i in (tables[0] if tables else ()) if i in ids and all(i in t for t in tables))
        return next(shared, "")

    return find


class _NodeResolver:
    """Which nodes a layer or a tensor of the log stands for, at the present point of the replay."""

    def __init__(self, log: BuildLog, model: Model) -> None:
        self.log = log
        self.layer_nodes: dict[str, tuple[str, ...]] = {}
        self.ids = {node.id for node in model.nodes}
        self.ids_by_name = _index_unique_names((node.name, node) for node in model.nodes if node.name)
        self.producers = {name: node.id for name, node in model.producers.items()}
        self.ids_by_plain_name = _index_unique_names(
            (_normalize_name(name), node) for node in model.nodes for name in {node.id, node.name} if name
        )
        self._resolve = functools.cache(self._search)

    def apply_decision(self, decision: Decision) -> tuple[str, ...]:
        """The nodes that a decision concerns; layers that it makes are known from then on."""
        # A region's labels are names of nodes, which layers of other nodes may bear.
        labels = self.ids if decision.rule == "Myelin" else ()
        node_ids = (
            i for name in decision.names for i in ((name,) if name in labels else self.find_nodes(name))
        )
        nodes = tuple(dict.fromkeys(node_ids))
        if (decision.result and decision.action in {"fuse", "merge", "eliminate"}) or _is_rename(decision):
            self.layer_nodes[decision.result] = nodes
        return nodes

    def find_nodes(self, name: str, depth: int = 0) -> tuple[str, ...]:
        """Ids of the nodes behind a name, in its order; empty where it is none of the model's."""
        if (layer_nodes := self.layer_nodes.get(name)) is not None:
            return layer_nodes
        if direct := self._resolve(name):
            return direct
        if depth == _DEEPEST:
            return ()
        parts = (self.find_nodes(part, depth + 1) for part in _split_name(name))
        return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))

    def _search(self, name: str) -> tuple[str, ...]:
        node_name = self.log.nodes.get(name, name)
        if node_name in self.ids:
            return (node_name,)
        if node_name in self.ids_by_name:
            return (self.ids_by_name[node_name],)
        tensor = self.log.tensors.get(name, node_name.removeprefix(_UNNAMED))
        if tensor in self.producers:
            return (self.producers[tensor],)
        plain = _normalize_name(node_name)
        return (self.ids_by_plain_name[plain],) if plain in self.ids_by_plain_name else ()


def _index_unique_names(pairs: Iterable[tuple[str, Node]]) -> dict[str, str]:
    """Names that one node alone bears."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for name, node in pairs:
        owners[name].add(node.id)
    return {name: next(iter(ids)) for name, ids in owners.items() if len(ids) == 1 and name}


def _normalize_name(name: str) -> str:
    """A name without the signs that compilers change."""
    return _SIGNS.sub("_", name).strip("_")


def _split_name(name: str) -> tuple[str, ...]:
    """Names that a name of a layer is made of, in TensorRT's grammar; none where it is of one piece."""
    for rule in (_FOREIGN, _SINGLE, _MOVE):
        if match := rule.fullmatch(name):
            return match.groups()
    for sign in (" || ", " + "):
        if len(parts := _split_outside_brackets(name, sign)) > 1:
            return parts
    if name.startswith("PWN(") and name.endswith(")"):
        return _split_outside_brackets(name[4:-1], ", ")
    match = _COPY_NAME.fullmatch(name)
    return match.groups() if match else ()


def _split_outside_brackets(name: str, sign: str) -> tuple[str, ...]:
    """The pieces between signs that stand in no brackets."""
    pieces: list[str] = []
    open_ = 0
    for piece in name.split(sign):
        if open_ > 0:
            pieces[-1] += sign + piece
        else:
            pieces.append(piece)
        open_ += sum(piece.count(c) for c in "([{") - sum(piece.count(c) for c in ")]}")
    return tuple(pieces)
