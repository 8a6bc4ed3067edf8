"""A build replayed on the model: decision by decision, which nodes are one layer from then on."""

from __future__ import annotations

import dataclasses
import functools
import graphlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as MappingType
from typing import Annotated

from rtlab.core.buildlog import Attempt, BuildLog, Decision, NetworkPass
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.schema import UNSENT
from rtlab.relation.flow import Flow
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


#: The kind of a layer that copies into the output of an eliminated Concat.
COPY = "copy"
#: Why a compiler runs nothing for a node. A view may still be a layer.
_NOTHING = {"folded", "dead", "shape"}


def rebuild_layers(replay: Replay, model: Model) -> tuple[Layer, ...]:
    """Layers in an order in which they can run; empty where no decision found a node.

    A layer bears the name that the log gave it, or that of its only node, and its kind is the operator that it begins
    with. A Concat that was eliminated has no layer: its producers write into its output, some of them through a copy.
    Neither has a node that was removed: what it would have read is written under the name of its output.

    Args:
        replay: The build, replayed on the model.
        model: The model that was built; its main graph counts.
    """
    if not any(step.nodes for step in replay.steps):
        return ()
    return _sort_layers(list(_LayerRebuilder(replay, model).iter_layers()))


class _LayerRebuilder:
    """What the decisions left of the nodes."""

    def __init__(self, replay: Replay, model: Model) -> None:
        self.model = model
        self.steps = replay.steps
        self.groups = replay.get_groups(len(replay.steps))
        grouped_nodes = {node for group in self.groups for node in group}
        #: Concats and removed nodes, which have no layer.
        self.eliminated_nodes = {
            n
            for step in replay.steps
            for n in step.nodes
            if n not in grouped_nodes
            and step.decision.action
            in ({"remove", "eliminate"} if model.by_id[n].op == "Concat" else {"remove"})
        }
        self.copied_values = self._find_copied_values()
        #: Under which names a value is written, for the outputs of nodes that are gone.
        self.names: dict[str, tuple[str, ...]] = {}
        for node in reversed(model.top):
            if node.id in self.eliminated_nodes:
                self.names.update((o, self._find_written_names(o, set())) for o in node.outputs)
        reasons = Flow(model).reasons()
        self.single_nodes = [
            (n.id,)
            for n in model.top
            if n.id not in grouped_nodes | self.eliminated_nodes and reasons.get(n.id) not in _NOTHING
        ]

    def iter_layers(self) -> Iterator[Layer]:
        """Those that compute, then the copies."""
        names = {frozenset(s.nodes): s.decision.result for s in self.steps if s.joins and s.decision.result}
        for group in (*self.groups, *self.single_nodes):
            yield self._build_layer(group, names.get(frozenset(group), ""))
        for (value, concat), name in self.copied_values.items():
            source = self._build_tensor(value)
            targets = (t for o in self.model.by_id[concat].outputs for t in self.names.get(o, (o,)))
            yield Layer(
                id="",
                name=f"{name} copy",
                kind=COPY,
                index=0,
                inputs=(source,),
                outputs=tuple(dataclasses.replace(source, name=t) for t in targets),
                origins=(concat,),
            )

    def _find_copied_values(self) -> dict[tuple[str, str], str]:
        """Values that are copied into the output of a Concat that is gone, with their name in the log."""
        copied_values: dict[tuple[str, str], str] = {}
        for step in self.steps:
            if step.decision.action != "copy" or not {*step.nodes[-1:]} & self.eliminated_nodes:
                continue
            into, name = step.nodes[-1], step.decision.names[0]
            input_names = self.model.by_id[into].inputs
            # The log names a tensor, which may be an input of the model, or a layer.
            produced_values = {v for n in step.nodes[:-1] for v in self.model.by_id[n].outputs}
            copied = {name} if name in input_names else produced_values
            copied_values.update({(v, into): name for v in input_names if v in copied})
        return copied_values

    def _find_written_names(self, value: str, members: set[str]) -> tuple[str, ...]:
        """The names under which a value is written for readers outside ``members``; none where there are none.

        A Concat that is gone is written in place, and so is the next one that reads it.
        """
        names: dict[str, None] = {}
        uses_value_name = value in self.model.outputs
        for node in self.model.consumers.get(value, ()):
            if node.id in members:
                continue
            if node.id not in self.eliminated_nodes or (value, node.id) in self.copied_values:
                uses_value_name = True
            else:
                names.update(dict.fromkeys(t for o in node.outputs for t in self.names.get(o, (o,))))
        if uses_value_name:
            names[value] = None
        return tuple(names)

    def _build_layer(self, group: tuple[str, ...], name: str) -> Layer:
        nodes = sorted((self.model.by_id[n] for n in group), key=lambda n: n.index)
        inside = {o for n in nodes for o in n.outputs}
        reads = dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in inside)
        values = self.model.values
        constants = {i for i in reads if i in values and values[i].kind == "constant"}
        return Layer(
            id="",
            name=name or " + ".join(n.id for n in nodes),
            kind=nodes[0].op,
            index=0,
            inputs=tuple(self._build_tensor(i) for i in reads if i not in constants),
            outputs=tuple(
                dataclasses.replace(self._build_tensor(out), name=written_name)
                for out in (o for n in nodes for o in n.outputs if o)
                for written_name in self._find_written_names(out, {*group})
            ),
            origins=tuple(n.id for n in nodes),
        )

    def _build_tensor(self, name: str) -> Tensor:
        """Name and shape; the type that was chosen is not in the log."""
        shape = self.model.values[name].shape if name in self.model.values else None
        sizes = tuple(d for d in shape or () if isinstance(d, int))
        return Tensor(name, shape=sizes if shape is not None and len(sizes) == len(shape) else None)


def _sort_layers(layers: list[Layer]) -> tuple[Layer, ...]:
    writers: defaultdict[str, set[int]] = defaultdict(set)
    for i, layer in enumerate(layers):
        for tensor in layer.outputs:
            writers[tensor.name].add(i)
    needs = {i: set().union(*(writers[t.name] for t in y.inputs)) - {i} for i, y in enumerate(layers)}
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError:
        # A name that means two nodes joined what cannot be one layer; then no order is right.
        order = list(range(len(layers)))
    return tuple(
        dataclasses.replace(layers[i], id=f"{place}:{layers[i].name}", index=place)
        for place, i in enumerate(order)
    )
