"""A build replayed on the model: decision by decision, which nodes are one layer from then on."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
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
    """The attempt that became the engine, step by step. ``k`` counts steps that are done, from 0 to all."""

    passes: tuple[NetworkPass, ...]
    steps: tuple[ReplayedStep, ...]

    def __repr__(self) -> str:
        matched_steps, steps = self.coverage
        return f"<Replay {len(self.passes)} passes, {steps} steps, {matched_steps} of them with nodes>"

    @property
    def coverage(self) -> tuple[int, int]:
        """Steps that found a node of the model, and all steps.

        Layers that the parser added, such as constants and reshapes of weights, stand for no node.
        """
        return sum(bool(step.nodes) for step in self.steps), len(self.steps)

    def get_groups(self, k: int) -> tuple[tuple[str, ...], ...]:
        """Nodes that are one layer after ``k`` steps, each group in the order in which they joined."""
        members: dict[str, list[str]] = {}
        for step in self.steps[:k]:
            if step.joins:
                member_nodes: dict[str, None] = {}
                for node in step.nodes:
                    member_nodes.update(dict.fromkeys(members.get(node, [node])))
                group = list(member_nodes)
                members.update(dict.fromkeys(group, group))
        unique = {id(group): group for group in members.values()}
        return tuple(tuple(group) for group in unique.values())

    def count_layers(self, k: int) -> int | None:
        """Layers of the network after ``k`` steps.

        The log tells it at the end of a pass. In between it follows from the steps, if these make up the difference
        that the pass tells; else it is None, as within a pass that hands regions to another compiler.
        """
        return self._counts[min(max(k, 0), len(self.steps))]

    @functools.cached_property
    def _counts(self) -> tuple[int | None, ...]:
        counts: list[int | None] = [next((p.before for p in self.passes if p.before is not None), None)]
        for network_pass in self.passes:
            counts[-1] = counts[-1] if network_pass.before is None else network_pass.before
            now, inner = counts[-1], []
            for decision in network_pass.decisions:
                now = None if now is None else now + _compute_layer_delta(decision)
                inner.append(now)
            if inner and network_pass.after is not None and inner[-1] != network_pass.after:
                inner = [*[None] * (len(inner) - 1), network_pass.after]
            counts.extend(inner)
            if not inner and network_pass.after is not None:
                counts[-1] = network_pass.after
        return tuple(counts)


def _compute_layer_delta(decision: Decision) -> int:
    """By how much the number of layers changes."""
    if decision.action in {"fuse", "merge"}:
        return 1 - len(decision.names)
    if decision.action == "other":
        return int(decision.rule == "reformat")
    return {"eliminate": -1, "remove": -1, "copy": 1}.get(decision.action, 0)


def _is_merge(decision: Decision) -> bool:
    """Whether its layers are one from then on; one that duplicates another is done by that one."""
    return decision.action in {"fuse", "merge"} or (decision.action == "eliminate" and bool(decision.result))


def _is_rename(decision: Decision) -> bool:
    """Whether a layer has another name from then on, though nothing was joined."""
    return decision.action == "other" and decision.result.startswith("PWN(")


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
    names = _NodeResolver(log, model)
    resolved_steps: list[tuple[Decision, int, tuple[str, ...]]] = []
    renames: dict[str, str] = {}
    for place, stage in enumerate(attempt.passes):
        for decision in stage.decisions:
            resolved_steps.append((decision, place, names.apply_decision(decision)))
            if _is_merge(decision) or _is_rename(decision):
                renames.update((n, decision.result) for n in decision.names if n != decision.result)
    bearers = _LayerFinder(engine, mapping, renames)
    return Replay(
        attempt.passes,
        tuple(
            ReplayedStep(
                decision,
                place,
                nodes,
                joins=_is_merge(decision) and len(nodes) > 1,
                layer=bearers.find(decision, nodes),
            )
            for decision, place, nodes in resolved_steps
        ),
    )


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
        node_ids: dict[str, None] = {}
        for name in decision.names:
            # A region's labels are names of nodes, which layers of other nodes may bear.
            label = decision.rule == "Myelin" and name in self.ids
            node_ids.update(dict.fromkeys((name,) if label else self.find_nodes(name)))
        nodes = tuple(node_ids)
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
        node_ids: dict[str, None] = {}
        for part in _split_name(name):
            node_ids.update(dict.fromkeys(self.find_nodes(part, depth + 1)))
        return tuple(node_ids)

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


class _LayerFinder:
    """Finds the layer of the engine in which a decision ended."""

    def __init__(
        self, engine: Engine | None, mapping: Mapping | None, renames: MappingType[str, str]
    ) -> None:
        layers = engine.layers if engine else ()
        self.by_name = {layer.name: layer.id for layer in reversed(layers)}
        counts = Counter(_normalize_name(layer.name) for layer in layers)
        self.by_plain = {p: layer.id for layer in layers if counts[p := _normalize_name(layer.name)] == 1}
        self.mapping = mapping if engine else None
        self.ids = {layer.id for layer in layers}
        self.renames = renames

    def find(self, decision: Decision, nodes: tuple[str, ...]) -> str:
        """Its id, or nothing."""
        if not self.ids:
            return ""
        for name in (decision.result, *decision.names):
            if name and (layer := self._find_by_name(name)):
                return layer
        if self.mapping is None or not nodes:
            return ""
        tables = [dict.fromkeys(self.mapping.layers(node)) for node in nodes]
        layer_tables = [table for table in tables if table]
        shared_layers = (
            (layer for layer in layer_tables[0] if all(layer in t for t in layer_tables))
            if layer_tables
            else iter(())
        )
        return next((layer for layer in shared_layers if layer in self.ids), "")

    def _find_by_name(self, name: str) -> str:
        visited: set[str] = set()
        while (new_name := self.renames.get(name)) is not None and new_name not in visited:
            visited.add(new_name)
            name = new_name
        return self.by_name.get(name) or self.by_plain.get(_normalize_name(name), "")
