"""Which nodes became which layers, with the evidence for each pair and a reason for each node without a layer.

Evidence is tried in a fixed order: origins that the compiler declared, then the subgraph between the values that a
layer reads and writes, then siblings that were merged, then dataflow around the node, then names. Names come last,
because compilers rename freely. What the ONNX graph alone tells (folded, view, dead) is an inference and says so.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as MappingType
from typing import Literal

from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.node import Node

Evidence = Literal["declared", "inferred", "merged"]
Reason = Literal["folded", "view", "shape", "dead", "unknown"]

#: Operators that only rename, re-index or re-label memory; a compiler need not run anything for them.
VIEWS = frozenset({
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat",
    "Expand", "Cast", "CastLike", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
#: Operators that fold into the weights or the epilogue of what produced their input.
EPILOGUES = frozenset({
    "BatchNormalization", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu",
    "Selu", "Softplus", "Gelu", "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Exp", "QuantizeLinear",
    "DequantizeLinear",
})  # fmt: skip
_SHAPE_SOURCES = frozenset({"Shape", "Size"})
#: Inputs that carry sizes, not data: operator to positions.
_SHAPE_SLOTS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Slice": (1, 2, 3, 4),
    "Resize": (1, 2, 3), "Unsqueeze": (1,), "Squeeze": (1,), "Pad": (1,), "Upsample": (1,), "Range": (0, 1, 2),
    "TopK": (1,), "Split": (1,),
}  # fmt: skip

#: Grammar of TensorRT's names of fused layers.
_FOREIGN = re.compile(r"^\{ForeignNode\[(.*?)\.\.\.(.*)\]\}$")
_JOINT = re.compile(r" \+ | \|\| |, ")

_WORDS = {
    "folded": "All its inputs are constant, so it is computed once at build time (inferred from the graph).",
    "view": "It only renames or re-indexes memory, so no step is needed (inferred from the graph).",
    "shape": "It computes sizes, which are known at build time or kept on the host (inferred from the graph).",
    "dead": "No output of the model depends on it (inferred from the graph).",
    "unknown": "The compiler declared no layer for it, and the graph does not tell why.",
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A node and a layer that belong together. ``note`` says in words how we know."""

    node: str
    layer: str
    evidence: Evidence
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Missing:
    """A node without a layer, the reason, and the sentence that explains it."""

    node: str
    reason: Reason
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Mapping:
    """The relation between the nodes of a source model and the layers of an engine, many to many.

    Every node of the model is in ``pairs`` or in ``missing``, never in both.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[Missing, ...]

    def __repr__(self) -> str:
        unknown = sum(m.reason == "unknown" for m in self.missing)
        return (
            f"<Mapping {len(self._by_node)} nodes in layers, {len(self.missing)} without, {unknown} unknown>"
        )

    @functools.cached_property
    def _by_node(self) -> MappingType[str, tuple[Pair, ...]]:
        return _group(self.pairs, lambda p: p.node)

    @functools.cached_property
    def _by_layer(self) -> MappingType[str, tuple[Pair, ...]]:
        return _group(self.pairs, lambda p: p.layer)

    def layers(self, node: str) -> tuple[str, ...]:
        """Ids of the layers that a node became, in execution order; empty when it has none."""
        return tuple(p.layer for p in self._by_node.get(node, ()))

    def nodes(self, layer: str) -> tuple[str, ...]:
        """Ids of the nodes that a layer runs, in the compiler's order."""
        return tuple(p.node for p in self._by_layer.get(layer, ()))

    def why(self, node: str) -> Missing | None:
        """Why a node has no layer, or None when it has one."""
        return next((m for m in self.missing if m.node == node), None)


def _group(pairs: Iterable[Pair], key: Callable[[Pair], str]) -> dict[str, tuple[Pair, ...]]:
    table: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        table[key(pair)].append(pair)
    return {k: tuple(v) for k, v in table.items()}


def placed(mapping: Mapping, model: Model) -> Mapping:
    """A mapping of nodes as one of the places where they run (``Model.places``).

    The same, where no function is called more than once. Otherwise a node of such a function has one pair per call:
    with the layers of that call as far as these are known, else with all layers of the node.
    """
    if len(model.places) == len(model.nodes) and all(i in model.places for i in model.by_id):
        return mapping
    pairs: list[Pair] = []
    for pair in mapping.pairs:
        for id_ in model.where(pair.node):
            if id_ != pair.node and (call := _known_call(id_, mapping, model)):
                layers = mapping.layers(model.places[call].node.id)
                if pair.layer not in layers and set(layers) & set(mapping.layers(pair.node)):
                    continue
            pairs.append(dataclasses.replace(pair, node=id_))
    missing = [dataclasses.replace(m, node=id_) for m in mapping.missing for id_ in model.where(m.node)]
    return Mapping(tuple(pairs), tuple(missing))


def _known_call(place: str, mapping: Mapping, model: Model) -> str | None:
    """The nearest owner of a place that runs in this place alone and has layers."""
    owner = model.owners[place]
    while owner:
        node = model.places[owner].node.id
        if node == owner and mapping.layers(node):
            return owner
        owner = model.owners[owner]
    return None


def relate(source: Model, built: Model, engine: Engine) -> Mapping:
    """Relate the nodes of ``source`` to the layers of ``engine``, which was built from ``built``.

    ``built`` is the prepared model; its nodes name their source through ``Node.origin``.
    """
    return _Relation(source, built, engine).result()


class _Relation:
    """The working state of one ``relate``."""

    def __init__(self, source: Model, built: Model, engine: Engine) -> None:
        self.source, self.built, self.engine = source, built, engine
        self.graph = _Flow(source)
        self.reasons = self.graph.reasons()
        self.found: dict[str, dict[str, Pair]] = defaultdict(dict)
        self.order = {layer.id: layer.index for layer in engine.layers}

    def result(self) -> Mapping:
        self._declared()
        self._bounded()
        self._named()
        missing: list[Missing] = []
        self._merged()
        self._adopted()
        # Epilogues follow their producer, so one sweep in graph order settles chains.
        for node in self.source.nodes:
            if node.id not in self.found and node.id not in self.reasons:
                self._inside(node)
                if node.id not in self.found:
                    self._inferred(node)
        for node in self.source.nodes:
            if node.id not in self.found:
                reason = self.reasons.get(node.id, "unknown")
                missing.append(Missing(node.id, reason, _WORDS[reason]))
        pairs = tuple(
            sorted(
                (p for table in self.found.values() for p in table.values()),
                key=lambda p: self.order[p.layer],
            )
        )
        return Mapping(pairs, tuple(missing))

    def _pair(self, node: str, layer: str, evidence: Evidence, note: str) -> None:
        self.found[node].setdefault(layer, Pair(node, layer, evidence, note))

    def _origin(self, id_: str) -> str | None:
        """The node of the source that a node of the built model stands for; itself where the source has it."""
        if id_ in self.source.by_id:
            return id_
        node = self.built.by_id.get(id_)
        return node.origin if node is not None and node.origin in self.source.by_id else None

    def _declared(self) -> None:
        for layer in self.engine.layers:
            for id_ in layer.origins:
                if origin := self._origin(id_):
                    self._pair(
                        origin, layer.id, "declared", "The compiler names this node in the layer's label."
                    )

    def _bounded(self) -> None:
        """Layers without labels, by the subgraph between the values that they read and write."""
        alias = self._aliases()
        made = {v for layer in self.engine.layers for t in layer.outputs if (v := alias.get(t.name))}
        flow = _Flow(self.built)
        reasons = flow.reasons()
        for layer in self.engine.layers:
            if layer.origins or _moves(layer):
                continue
            stop = {alias[t.name] for t in layer.inputs if t.name in alias}
            outs = [alias[t.name] for t in layer.outputs if t.name in alias]
            stop |= made - set(outs)
            seen: set[str] = set()
            todo = [("", o) for o in outs]
            while todo:
                node = flow.producer.get(todo.pop())
                if node is None or node.id in seen or reasons.get(node.id) == "folded":
                    continue
                seen.add(node.id)
                todo += [k for k in flow.inputs(node) if k[1] not in stop]
            for node in self.built.nodes:
                if node.id in seen and (origin := self._origin(node.id)):
                    note = "It lies between the values that the layer reads and writes."
                    self._pair(origin, layer.id, "inferred", note)

    def _aliases(self) -> dict[str, str]:
        """Tensor names of the engine that stand for values of the built model, copies resolved."""
        alias: dict[str, str] = {}
        for layer in self.engine.layers:
            for name, value in self._standing(layer):
                alias.setdefault(name, value)
        for layer in self.engine.layers:
            if _moves(layer) and layer.inputs and layer.outputs:
                a, b = layer.inputs[0].name, layer.outputs[0].name
                if a in alias:
                    alias.setdefault(b, alias[a])
                elif b in alias:
                    alias.setdefault(a, alias[b])
        return alias

    def _standing(self, layer: Layer) -> Iterator[tuple[str, str]]:
        """Tensors of one layer with the values that they stand for, the surest first."""
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor.name in self.built.values:
                yield tensor.name, tensor.name
        told = layer.attributes.get("values")
        if isinstance(told, dict):
            yield from told.items()
        node = self.built.by_id.get(layer.name)
        if node is not None and node.op == layer.kind:
            # A node that was kept as it is, though what it writes may have been renamed.
            yield from zip((t.name for t in layer.outputs), node.outputs, strict=False)

    def _named(self) -> None:
        taken = {p.layer for table in self.found.values() for p in table.values()}
        for layer in self.engine.layers:
            if layer.id not in taken and not layer.origins and (origin := self._origin(layer.name)):
                self._pair(origin, layer.id, "inferred", "The layer bears the node's name.")
            if not layer.origins:
                for id_ in self._listed(layer.name):
                    if (listed := self._origin(id_)) and listed not in self.found:
                        self._pair(listed, layer.id, "inferred", "The layer's name lists the node.")

    def _listed(self, name: str) -> list[str]:
        """Nodes in a fused layer's name: ``a + b``, ``a || b``, ``PWN(a, b)``, ``{ForeignNode[a...b]}``."""
        if name.startswith("Reformatting CopyNode"):
            return []
        if region := _FOREIGN.match(name):
            first, last = region.groups()
            # Without both ends in the graph, only what the name bears is known.
            return self.graph.between(first, last) or [first, last]
        parts = []
        for part in _JOINT.split(name):
            word = part
            while word.startswith("PWN("):
                word = word[len("PWN(") :]
            # Of a bracket around several names each end is in another part.
            while word.count(")") > word.count("("):
                word = word[:-1] if word.endswith(")") else word.replace(")", "", 1)
            parts.append(word.strip())
        return parts

    def _merged(self) -> None:
        """Nodes whose twin (same operator, input and attributes) has a layer: the compiler merged them."""
        twins: defaultdict[tuple[object, ...], list[Node]] = defaultdict(list)
        for node in self.source.nodes:
            if node.inputs and node.inputs[0] and node.op not in VIEWS:
                twins[node.op, node.scope, node.inputs[0], repr(sorted(node.attributes.items()))].append(node)
        for group in twins.values():
            have = [n for n in group if n.id in self.found]
            for node in group:
                if have and node.id not in self.found and node.id not in self.reasons:
                    for layer in self.found[have[0].id]:
                        note = f'The compiler names only its sibling "{have[0].title}", which reads the same input.'
                        self._pair(node.id, layer, "merged", note)

    def _adopted(self) -> None:
        """Unlabelled steps between two steps of one node belong to it, such as the inner steps of an LSTM."""
        labelled: defaultdict[str, set[str]] = defaultdict(set)
        for node, table in self.found.items():
            for layer in table:
                labelled[layer].add(node)
        before = self._reached(self.engine.layers, labelled)
        after = self._reached(tuple(reversed(self.engine.layers)), labelled)
        for step in self.engine.layers:
            if step.id not in labelled and not _moves(step):
                for node in sorted(before[step.id] & after[step.id]):
                    self._pair(
                        node, step.id, "inferred", "The unlabelled step runs between two steps of this node."
                    )

    def _reached(
        self, layers: tuple[Layer, ...], labelled: MappingType[str, set[str]]
    ) -> MappingType[str, set[str]]:
        """For each layer the nodes of the nearest labelled layers that it can be reached from, in this order."""
        forwards = bool(layers) and layers[0].index <= layers[-1].index
        carried: defaultdict[str, set[str]] = defaultdict(set)
        reached: defaultdict[str, set[str]] = defaultdict(set)
        for layer in layers:
            enters, leaves = (layer.inputs, layer.outputs) if forwards else (layer.outputs, layer.inputs)
            for tensor in enters:
                reached[layer.id] |= carried[tensor.name]
            for tensor in leaves:
                carried[tensor.name] |= labelled.get(layer.id) or reached[layer.id]
        return reached

    def _inferred(self, node: Node) -> None:
        """Dataflow: an epilogue follows its producer; otherwise the unlabelled layers around the node."""
        before, settled = self._near(node, self.graph.writers)
        after, ended = self._near(node, self.graph.readers)
        if not before and not after and not (settled and ended):
            # Nothing around it is known either, so any layer would be a guess.
            return
        both = before & after
        if both or (node.op in EPILOGUES and before and settled):
            # Of several producers the last one to run carries the epilogue.
            layer = max(both or before, key=self.order.__getitem__)
            self._pair(node.id, layer, "inferred", "Its neighbours run in this layer.")
            return
        taken = {i for table in self.found.values() for i in table}
        low = max((self.order[i] for i in before), default=-1)
        high = min((self.order[i] for i in after), default=len(self.engine.layers))
        for step in self.engine.layers:
            if low < step.index < high and step.id not in taken and not _moves(step):
                note = "The unlabelled step runs between the layers of its neighbours."
                self._pair(node.id, step.id, "inferred", note)

    def _near(self, node: Node, step: Callable[[Node], Iterable[Node]]) -> tuple[set[str], bool]:
        """Layers of the nearest nodes in one direction, looking through nodes that need no layer.

        The second result tells whether every path led to a layer or to the edge of the graph.
        """
        complete = True
        seen: set[str] = set()
        layers: set[str] = set()
        todo = list(step(node))
        while todo:
            other = todo.pop()
            if other.id in seen:
                continue
            seen.add(other.id)
            if other.id in self.found:
                layers |= set(self.found[other.id])
            elif other.id in self.reasons:
                todo += step(other)
            else:
                complete = False
        return layers, complete

    def _inside(self, node: Node) -> None:
        owner = next((o for o in reversed(node.scope) if o in self.found), None)
        owners = [owner] if owner else [n.id for n in self.source.nodes if f"function {n.op}" in node.scope]
        for id_ in owners:
            for layer in self.found.get(id_, {}):
                self._pair(node.id, layer, "inferred", "It runs inside the node that owns its graph.")


def _moves(layer: Layer) -> bool:
    """Whether a layer only changes a memory layout or copies, by the compiler's own word for it."""
    if layer.origins:
        return False
    word = layer.name.removeprefix("__myl_").split("_", 1)[0]
    if layer.name.startswith("Reformatting CopyNode"):
        return True
    return layer.kind in {"ReorderInput", "ReorderOutput", "Reformat", "copy"} or word in {
        "Move",
        "Tran",
        "Resh",
        "MoveTran",
    }


class _Flow:
    """Producers and readers in every graph of a model, and what the graph alone tells of each node."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.producer: dict[tuple[str, str], Node] = {}
        self._readers: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
        for node in model.nodes:
            for out in node.outputs:
                if out:
                    self.producer[_space(node), out] = node
        for node in model.nodes:
            for key in dict.fromkeys(self.inputs(node)):
                self._readers[key].append(node)

    def inputs(self, node: Node) -> list[tuple[str, str]]:
        """Keys of the values that a node reads."""
        return [(_space(node), i) for i in node.inputs if i]

    def writers(self, node: Node) -> list[Node]:
        """The nodes that write what a node reads."""
        return [w for k in self.inputs(node) if (w := self.producer.get(k)) is not None]

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a node's outputs."""
        return [r for o in node.outputs if o for r in self._readers.get((_space(node), o), ())]

    def reasons(self) -> dict[str, Reason]:
        """The reason for having no layer, for each node for which the graph tells one."""
        folded, shaped = self._folded(), self._shaped()
        alive = self._alive()
        table: dict[str, Reason] = {}
        for node in self.model.nodes:
            if node.id not in alive:
                table[node.id] = "dead"
            elif node.id in shaped:
                table[node.id] = "shape"
            elif node.id in folded:
                table[node.id] = "folded"
            elif node.op in VIEWS:
                table[node.id] = "view"
        return table

    def _folded(self) -> set[str]:
        done: set[str] = set()
        for node in self.model.nodes:
            if node.op == "Constant" or (
                node.inputs and all(self._fixed(k, done) for k in self.inputs(node))
            ):
                done.add(node.id)
        return done

    def between(self, first: str, last: str) -> list[str]:
        """Ids of the nodes on the paths from one node to another, both included; empty when there is none."""
        table = self.model.by_id
        if first not in table or last not in table:
            return []
        down, up = self._closure(table[first], self.readers), self._closure(table[last], self.writers)
        return [n.id for n in self.model.nodes if n.id in down and n.id in up]

    def _closure(self, node: Node, step: Callable[[Node], Iterable[Node]]) -> set[str]:
        seen: set[str] = set()
        todo = [node]
        while todo:
            found = todo.pop()
            if found.id not in seen:
                seen.add(found.id)
                todo += step(found)
        return seen

    def _fixed(self, key: tuple[str, str], done: set[str]) -> bool:
        node = self.producer.get(key)
        if node is not None:
            return node.id in done
        value = self.model.values.get(key[1])
        return not key[0] and value is not None and value.kind == "constant"

    def _shaped(self) -> set[str]:
        done: set[str] = set()
        for node in self.model.nodes:
            reads = [k for k in self.inputs(node) if not self._fixed(k, set())]
            from_shape = [self.producer.get(k) for k in reads]
            if node.op in _SHAPE_SOURCES or (
                reads and all(n is not None and n.id in done for n in from_shape)
            ):
                done.add(node.id)
        # Backwards: what only feeds size inputs is shape arithmetic too.
        for node in reversed(self.model.nodes):
            uses = [
                (reader, position)
                for out in node.outputs
                for reader in self._readers.get((_space(node), out), ())
                for position, name in enumerate(reader.inputs)
                if name == out
            ]
            if uses and all(r.id in done or p in _SHAPE_SLOTS.get(r.op, ()) for r, p in uses):
                done.add(node.id)
        # A node that turns sizes into data (ConstantOfShape, Range) makes a constant, not a size.
        return {i for i in done if self.model.by_id[i].op not in {"ConstantOfShape", "Range", "Expand"}}

    def _alive(self) -> set[str]:
        seen: set[str] = set()
        todo = [self.producer[k] for o in self.model.outputs if (k := ("", o)) in self.producer]
        by_owner: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            if node.scope:
                by_owner[node.scope[-1]].append(node)
        while todo:
            node = todo.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            todo += [self.producer[k] for k in self.inputs(node) if k in self.producer]
            # A body counts as used when its owner is; what it reads from outside is used too.
            todo += by_owner.get(node.id, ())
            todo += by_owner.get(f"function {node.op}", ())
        return seen


def _space(node: Node) -> str:
    """Functions have a name space of their own; bodies share that of the graph around them."""
    return node.scope[0] if node.scope and node.scope[0].startswith("function ") else ""
