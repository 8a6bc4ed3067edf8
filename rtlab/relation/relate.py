"""Which nodes became which layers, with the evidence for each pair and a reason for each node without a layer.

Evidence is tried in a fixed order: origins that the compiler declared, then the nodes that a layer's name lists, then
the subgraph between the values that it reads and writes, which never takes a node from the layer that names it, then
siblings that were merged, then dataflow around the node, then what the layers of its readers start from. What the ONNX
graph alone tells (folded, view, dead) is an inference and says so.
"""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingType
from collections.abc import Set as AbstractSet

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.trt_operators import TRT_OPS
from rtlab.relation.dataflow import kernel, moves, work
from rtlab.relation.flow import VIEWS, Flow, Key, Reason
from rtlab.relation.mapping import Evidence, Mapping, Missing, Pair
from rtlab.relation.names import Names
from rtlab.relation.recompute_evidence import RecomputeEvidence, format_tensors
from rtlab.relation.rnn_steps import LayerFlow
from rtlab.relation.roles import Roles

#: Operators that fold into the weights or the epilogue of what produced their input.
EPILOGUES = frozenset({
    "BatchNormalization", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu",
    "Selu", "Softplus", "Gelu", "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Exp", "QuantizeLinear",
    "DequantizeLinear", *TRT_OPS,
})  # fmt: skip

#: Letters by which the name of a kernel gives an operation.
_WORD = 4

_WORDS = {
    "folded": "All its inputs are constant, so it is computed once at build time (inferred from the graph).",
    "view": "It only renames or re-indexes memory, so no layer is needed (inferred from the graph).",
    "shape": "It computes sizes, which are known at build time or kept on the host (inferred from the graph).",
    "dead": "No output of the model depends on it (inferred from the graph).",
    "unknown": "The compiler declared no layer for it, and the graph does not say why.",
}


def relate(source: Model, built: Model, engine: Engine) -> Mapping:
    """Relate the nodes of ``source`` to the layers of ``engine``, built from ``built``, the prepared model."""
    return _MappingBuilder(source, built, engine).result()


class _MappingBuilder:
    """The working state of one ``relate``."""

    def __init__(self, source: Model, built: Model, engine: Engine) -> None:
        self.source, self.built, self.engine = source, built, engine
        self.graph = Flow(source)
        self.reasons = self.graph.reasons()
        self.flow = self.graph if built is source else Flow(built)
        self.names = Names(built, self.flow)
        self.pairs: dict[str, dict[str, Pair]] = defaultdict(dict)
        #: Nodes of the built model by the layers that the compiler puts them in, with a label or by name.
        self.declared_layers: defaultdict[str, set[str]] = defaultdict(set)
        self.taken: set[str] = set()
        self.order = {layer.id: layer.index for layer in engine.layers}
        self._roles = Roles(source, built)
        #: Nodes that each of their layers computes anew, whole.
        self._recomputed_ids: set[str] = set()

    def result(self) -> Mapping:
        self._map_declared()
        self._map_named()
        self._map_bounded()
        self._map_merged()
        self._map_inner_layers()
        # Epilogues follow their producer, so one sweep in graph order settles chains.
        unmapped_nodes = [n for n in self.source.nodes if n.id not in self.pairs]
        for node in unmapped_nodes:
            if node.id not in self.reasons:
                self._map_inside(node)
                if node.id not in self.pairs:
                    self._infer_from_neighbours(node)
        # What the tensors of a layer tell is surer than that others run between.
        self._map_recomputed(self._unknown(unmapped_nodes))
        for node in self._unknown(unmapped_nodes):
            self._infer_from_neighbours(node, between=True)
        self._map_merged(removed=True)
        self._map_recomputed(self._unknown(unmapped_nodes))
        # What rests on one side alone comes last.
        for node in self._unknown(unmapped_nodes):
            self._infer_from_neighbours(node, alone=True)
        unknown = self._unknown(unmapped_nodes)
        self._map_serving_layers(unknown)
        for node in unknown:
            self._map_comparison(node)
        self._map_recomputed(self._unknown(unknown))
        rest = [n.id for n in unmapped_nodes if n.id not in self.pairs]
        missing = (Missing(i, r, _WORDS[r]) for i in rest for r in [self.reasons.get(i, "unknown")])
        pairs = sorted(self._iter_with_roles(), key=lambda p: self.order[p.layer])
        return Mapping(tuple(pairs), tuple(missing))

    def _unknown(self, nodes: Iterable[Node]) -> list[Node]:
        return [n for n in nodes if n.id not in self.pairs and n.id not in self.reasons]

    def _iter_with_roles(self) -> Iterator[Pair]:
        """All pairs, with what each layer does for its node."""
        for node, table in self.pairs.items():
            roles = self._roles.of(node, [self.engine.layer(i) for i in table])
            for pair in table.values():
                role = roles[pair.layer]
                yield pair if role == "work" else pair._replace(role=role)

    def _add_pair(self, node: str, layer: str, evidence: Evidence, note: str) -> None:
        table = self.pairs[node]
        if layer not in table:
            table[layer] = Pair(node, layer, evidence, note)
            self.taken.add(layer)

    def _add_declared(self, node: Node, layer: Layer, evidence: Evidence, note: str) -> None:
        """A pair that the compiler itself states, with a node of the built model."""
        self.declared_layers[node.id].add(layer.id)
        if origin := self._find_origin(node.id):
            self._add_pair(origin, layer.id, evidence, note)

    def _find_origin(self, id_: str) -> str | None:
        """The node of the source that a node of the built model stands for; itself where the source has it."""
        if id_ in self.source.by_id:
            return id_
        node = self.built.by_id.get(id_)
        return node.origin if node is not None and node.origin in self.source.by_id else None

    def _map_declared(self) -> None:
        note = "The compiler names this node in the layer's label."
        for layer in self.engine.layers:
            for id_ in layer.origins:
                for node in self._choose_nodes(self.names.find_exact(id_), layer):
                    self._add_declared(node, layer, "declared", note)
                if id_ in self.source.by_id:
                    self._add_pair(id_, layer.id, "declared", note)

    def _choose_nodes(self, nodes: tuple[Node, ...], layer: Layer) -> Iterable[Node]:
        """Of nodes with one name those whose outputs the layer writes, or else whose inputs it reads."""
        if len(nodes) < 2:
            return nodes
        reads, writes = {t.name for t in layer.inputs}, {t.name for t in layer.outputs}
        writers = [n for n in nodes if writes & set(n.outputs)]
        return writers or [n for n in nodes if reads & set(n.inputs)]

    def _map_named(self) -> None:
        """Layers without labels, by the nodes that their names list."""
        silent = [layer for layer in self.engine.layers if not layer.origins]
        for layer in silent:
            for named_nodes in self.names.find_explicit(layer.name):
                nodes = named_nodes.nodes
                for node in nodes if named_nodes.sure else self._choose_nodes(nodes, layer):
                    self._add_declared(node, layer, "inferred", named_nodes.note)
        for layer in silent:
            for named_nodes in self.names.find_regions(layer.name, self.declared_layers):
                for node in named_nodes.nodes:
                    if node.id not in self.declared_layers:
                        self._add_declared(node, layer, "inferred", named_nodes.note)

    def _map_bounded(self) -> None:
        """Layers without labels, by the subgraph between the values that they read and write."""
        reasons = self.reasons if self.built is self.source else self.flow.reasons()
        regions = _Regions(self.built, self.flow, self.engine, reasons)
        for layer in self.engine.layers:
            # A layer that moves data is no place for a node, unless its name tells one.
            if layer.origins or (moves(layer) and layer.id not in self.taken):
                continue
            for node in regions.of(layer, self.declared_layers, has_name=layer.id in self.taken):
                if origin := self._find_origin(node.id):
                    note = "It lies between the values that the layer reads and writes."
                    self._add_pair(origin, layer.id, "inferred", note)

    def _map_merged(self, *, removed: bool = False) -> None:
        """Nodes whose twin (same operator, input and attributes) has a layer: the compiler merged them.

        With ``removed`` only nodes that are not in the built model, where a rewrite merged them.
        """
        alone = [n for n in self.source.nodes if n.id not in self.pairs and n.id not in self.reasons]
        if removed:
            alone = [n for n in alone if n.id not in self.built.by_id]
        twin_keys = {(n.op, n.inputs[0]) for n in alone if n.inputs and n.inputs[0] and n.op not in VIEWS}
        twins: defaultdict[tuple[object, ...], list[Node]] = defaultdict(list)
        for node in self.source.nodes if twin_keys else ():
            if node.inputs and (node.op, node.inputs[0]) in twin_keys:
                twins[node.op, node.scope, node.inputs[0], repr(sorted(node.attributes.items()))].append(node)
        for group in twins.values():
            have = next((n for n in group if n.id in self.pairs), None)
            for node in group:
                if have and node.id not in self.pairs and node.id not in self.reasons:
                    for layer in self.pairs[have.id]:
                        by = "A rewrite merged it with" if removed else "The compiler names only"
                        note = f'{by} its sibling "{have.title}", which reads the same input.'
                        self._add_pair(node.id, layer, "merged", note)

    def _map_inner_layers(self) -> None:
        """Unlabelled steps between two steps of one node belong to it, such as the inner steps of an LSTM."""
        bare = [y for y in self.engine.layers if y.id not in self.taken and not moves(y)]
        if not bare:
            return
        nodes_by_layer: defaultdict[str, set[str]] = defaultdict(set)
        for node, table in self.pairs.items():
            for layer in table:
                nodes_by_layer[layer].add(node)
        before = self._reach_labels(self.engine.layers, nodes_by_layer)
        after = self._reach_labels(tuple(reversed(self.engine.layers)), nodes_by_layer)
        for step in bare:
            for node in sorted(before[step.id] & after[step.id]):
                note = "The unlabelled layer runs between two layers of this node."
                self._add_pair(node, step.id, "inferred", note)

    def _reach_labels(
        self, layers: tuple[Layer, ...], nodes_by_layer: MappingType[str, set[str]]
    ) -> MappingType[str, set[str]]:
        """By unlabelled layer the nodes of the nearest labelled ones from which it can be reached, in this order."""
        forwards = bool(layers) and layers[0].index <= layers[-1].index
        nodes_by_tensor: dict[str, set[str]] = {}
        reached_nodes: dict[str, set[str]] = {}
        for layer in layers:
            enters, leaves = (layer.inputs, layer.outputs) if forwards else (layer.outputs, layer.inputs)
            nodes = nodes_by_layer.get(layer.id)
            if not nodes:
                near = (nodes_by_tensor.get(t.name, ()) for t in enters)
                nodes = reached_nodes[layer.id] = set().union(*near)
            for tensor in leaves:
                nodes_by_tensor[tensor.name] = nodes_by_tensor.get(tensor.name, set()) | nodes
        return reached_nodes

    def _map_comparison(self, node: Node) -> None:
        """A comparison that the jump of an If or a Loop makes itself: it reads two numbers, and not a truth value."""
        readers = self.graph.readers(node)
        if len({r.id for r in readers}) != 1:
            return
        for layer in map(self.engine.layer, self.pairs.get(readers[0].id, ())):
            numbers = [t for t in layer.inputs if t.dtype not in {"", "bool"}]
            if layer.kind == "cjmp" and len(numbers) == 2 == len(layer.inputs):
                note = "The conditional jump of its only reader compares the values itself."
                self._add_pair(node.id, layer.id, "inferred", note)

    def _map_recomputed(self, nodes: Sequence[Node]) -> None:
        """Nodes that the layers of their readers compute; a reader is settled before what it reads."""
        alone = self._map_sole_nodes() if nodes else {}
        for node in reversed(nodes):
            self._map_recomputed_node(node, alone)

    def _map_recomputed_node(self, node: Node, alone: MappingType[str, AbstractSet[str]]) -> None:
        """A node that the layers of its readers compute, or need not, since they start from what comes before it."""
        if len(node.outputs) != 1:
            return
        readers = self._recompute_evidence.readers(node, self.reasons, self.pairs)
        layers: dict[str, tuple[Tensor, ...]] = {}
        for reader in readers or ():
            run = self._list_working_layers(reader)
            # Of the layers that divide a reader's work, which one starts it is not known.
            if len(run) != 1 and reader not in self._recomputed_ids:
                return
            for layer in run:
                if not (read := self._recompute_evidence.before(node, self.engine.layer(layer), alone)):
                    return
                layers[layer] = read
        self._recomputed_ids.add(node.id)
        for layer, read in layers.items():
            note = (
                f"All that reads it runs in layers that start from what comes before it: this one reads "
                f"{format_tensors(read)}, which cannot hold what the node writes, so it does the node's work or "
                "needs none."
            )
            self._add_pair(node.id, layer, "inferred", note)

    @functools.cached_property
    def _recompute_evidence(self) -> RecomputeEvidence:
        return RecomputeEvidence(self.source, self.graph, self.engine)

    def _list_working_layers(self, node: str) -> list[str]:
        """Ids of the layers that do a node's work."""
        roles = self._roles.of(node, [self.engine.layer(i) for i in self.pairs[node]])
        return [i for i, role in roles.items() if role == "work"]

    def _map_sole_nodes(self) -> MappingType[str, set[str]]:
        """By layer the nodes whose work no other layer does."""
        table: defaultdict[str, set[str]] = defaultdict(set)
        for node in self.pairs:
            run = self._list_working_layers(node)
            if len(run) == 1:
                table[run[0]].add(node)
        return table

    def _map_serving_layers(self, unknown: Iterable[Node]) -> None:
        """Unlabelled steps that serve one node: all that reads them runs it, or all that they read comes from it."""
        layers = self.engine.layers
        at = {y.id: p for p, y in enumerate(layers)}
        nodes_by_layer: list[set[str]] = [set() for _ in layers]
        for node, table in self.pairs.items():
            for layer in table:
                nodes_by_layer[at[layer]].add(node)
        mine: list[AbstractSet[str]] = [frozenset(nodes) for nodes in nodes_by_layer]
        if all(m or moves(y) for m, y in zip(mine, layers, strict=True)):
            return
        self._map_jumps(mine, at)
        flow = LayerFlow.from_engine(self.engine)
        reader_positions = [flow.readers.get(p, ()) for p in range(len(layers))]
        outputs = {t.name for t in self.engine.outputs}
        leaves = [any(t.name in outputs for t in y.outputs) for y in layers]
        note = "All that reads the unlabelled layer runs this node."
        self._assign_by_neighbours(reversed(range(len(layers))), reader_positions, leaves, mine, note=note)
        reads_input = [len(s) < r for s, r in zip(flow.sources, flow.read, strict=True)]
        note = "All that the unlabelled layer reads comes from this node."
        closed_ids = {w.id for n in unknown for w in self.graph.writers(n)}
        self._assign_by_neighbours(
            range(len(layers)), flow.sources, reads_input, mine, note=note, closed_ids=closed_ids
        )

    def _assign_by_neighbours(
        self,
        order: Iterable[int],
        near: Sequence[Sequence[int]],
        rim: Sequence[bool],
        mine: list[AbstractSet[str]],
        *,
        note: str,
        closed_ids: AbstractSet[str] = frozenset(),
    ) -> None:
        """Give steps to the one node that all steps ``near`` them share; none at the ``rim``, nor to ``closed_ids``."""
        common: dict[int, AbstractSet[str]] = {}
        for position in order:
            layer = self.engine.layers[position]
            if mine[position]:
                common[position] = mine[position]
                continue
            sides = [frozenset(common.get(p, ())) for p in near[position]]
            both = frozenset.intersection(*sides) if sides and not rim[position] else frozenset()
            common[position] = both
            # A lone quantization belongs to the tensor, and is named by whom it serves.
            lone = moves(layer) or work(layer) == "quantization"
            if len(both) == 1 and not lone and not both & closed_ids:
                (node,) = both
                self._add_pair(node, layer.id, "inferred", note)
                mine[position] = both

    def _map_jumps(self, mine: list[AbstractSet[str]], at: MappingType[str, int]) -> None:
        """Unlabelled jumps belong to the node that runs, or owns, everything between their loop's start and them."""
        layers = self.engine.layers
        for jump, layer in enumerate(layers):
            if layer.kind != "cjmp" or mine[jump]:
                continue
            start = max((p for p in range(jump) if layers[p].kind == "memset"), default=-1) + 1
            inside = [m for m in mine[start:jump] if m]
            chains = [{o for n in m for o in (n, *self.source.by_id[n].scope)} for m in inside]
            shared_owners = set.intersection(*chains) if chains else set()
            owners = [n for n in shared_owners if n in self.source.by_id]
            if not owners:
                continue
            # Of owners within each other the innermost turns here.
            owner = max(owners, key=lambda n: len(self.source.by_id[n].scope))
            note = "The jump repeats layers that all belong to this node."
            for step in (y for y in layers[start : jump + 1] if work(y) == "control" and not mine[at[y.id]]):
                self._add_pair(owner, step.id, "inferred", note)
                mine[at[step.id]] = frozenset({owner})

    def _infer_from_neighbours(self, node: Node, *, between: bool = False, alone: bool = False) -> None:
        """The layer of both neighbours, or of the producer.

        With ``between`` else the unlabelled layers that run between them; with ``alone`` those of one side will do.
        """
        before, is_before_complete = self._find_nearest_layers(node, self.graph.writers)
        after, is_after_complete = self._find_nearest_layers(node, self.graph.readers)
        if not before and not after and not (is_before_complete and is_after_complete):
            # Nothing around it is known either, so any layer would be a guess.
            return
        both = before & after
        if both or (node.op in EPILOGUES and before and is_before_complete):
            # Of several producers the last one to run carries the epilogue.
            layer = max(both or before, key=self.order.__getitem__)
            self._add_pair(node.id, layer, "inferred", "Its neighbours run in this layer.")
            return
        lone = next(iter(before)) if len(before) == 1 and is_before_complete else None
        if lone is not None and self._is_in_kernel_name(node, self.engine.layer(lone)):
            note = "The kernel that runs its producer names this operation, and no other node of it."
            self._add_pair(node.id, lone, "inferred", note)
            return
        has_both_sides = (before or is_before_complete) and (after or is_after_complete)
        if not alone and not (between and has_both_sides):
            return
        low = max((self.order[i] for i in before), default=-1)
        high = min((self.order[i] for i in after), default=len(self.engine.layers))
        first = bisect.bisect_right(self._free, low, key=lambda step: step.index)
        for step in self._free[first:]:
            if step.index >= high:
                break
            if step.id not in self.taken:
                note = "The unlabelled layer runs between the layers of its neighbours."
                self._add_pair(node.id, step.id, "inferred", note)

    def _is_in_kernel_name(self, node: Node, layer: Layer) -> bool:
        """Whether the name of a layer's kernel tells a node's operation more often than nodes account for it."""
        kernel_info = kernel(layer)
        if kernel_info is None or not (count := kernel_info.rest.count(node.op[:_WORD])):
            return False
        ops = (self.source.by_id[n].op for n, table in self.pairs.items() if layer.id in table)
        return count > sum(op[:_WORD] == node.op[:_WORD] for op in ops)

    @functools.cached_property
    def _free(self) -> list[Layer]:
        """Layers that compute and that no node was found for before dataflow is asked, in order of execution."""
        idle = {"reformat", "none", "control"}
        free = [y for y in self.engine.layers if y.id not in self.taken and work(y) not in idle]
        return sorted(free, key=lambda step: step.index)

    def _find_nearest_layers(
        self, node: Node, step: Callable[[Node], Iterable[Node]]
    ) -> tuple[set[str], bool]:
        """Layers of the nearest nodes in one direction, and whether every path led to one or to the edge."""
        complete = True
        visited: set[str] = set()
        layers: set[str] = set()
        todo = list(step(node))
        while todo:
            other = todo.pop()
            if other.id in visited:
                continue
            visited.add(other.id)
            if other.id in self.pairs:
                layers |= set(self.pairs[other.id])
            elif other.id in self.reasons:
                # A constant starts from nothing, whatever layer has what it was computed from.
                todo += step(other) if self.reasons[other.id] != "folded" else ()
            else:
                complete = False
        return layers, complete

    def _map_inside(self, node: Node) -> None:
        owner = next((o for o in reversed(node.scope) if o in self.pairs), None)
        functions = (s.removeprefix("function ") for s in node.scope if s.startswith("function "))
        callers = (i for name in functions for i in self._by_op.get(name, ()))
        for id_ in [owner] if owner else callers:
            for layer in self.pairs.get(id_, {}):
                self._add_pair(node.id, layer, "inferred", "It runs inside the node that owns its graph.")

    @functools.cached_property
    def _by_op(self) -> MappingType[str, list[str]]:
        table: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.source.nodes:
            table[node.op].append(node.id)
        return table


class _Regions:
    """Regions of a built model, by the layers of its engine; ``reasons`` are those of its nodes without a layer."""

    def __init__(self, built: Model, flow: Flow, engine: Engine, reasons: MappingType[str, Reason]) -> None:
        self.built, self.flow, self.engine, self.reasons = built, flow, engine, reasons
        self._alias = self._map_aliases()
        self._written_values = {v for y in engine.layers for t in y.outputs if (v := self._alias.get(t.name))}

    def of(
        self, layer: Layer, declared_layers: MappingType[str, AbstractSet[str]], *, has_name: bool
    ) -> list[Node]:
        """The nodes between a layer's values, in graph order, without those that the compiler puts into other layers.

        None, where no value that the layer reads is known and nothing else ends the way back to the model's inputs:
        all that comes before the layer would seem to lie in it.
        """
        reads = {self._alias[t.name] for t in layer.inputs if t.name in self._alias}
        if layer.inputs and not reads and has_name:
            # Without a bound on this side, what the name does not list may belong to the layers before it.
            return []
        writes = [self._alias[t.name] for t in layer.outputs if t.name in self._alias]
        visited: dict[str, Node] = {}
        starts = set(self.built.inputs) if layer.inputs and not reads else set()
        todo = [(key, True) for key in writes]
        while todo:
            key, outer = todo.pop()
            if key in starts:
                return []
            node = self.flow.producer.get(key)
            if node is None or node.id in visited or self.reasons.get(node.id) == "folded":
                continue
            elsewhere = node.id in declared_layers and layer.id not in declared_layers[node.id]
            if elsewhere and not outer:
                continue
            visited[node.id] = node
            if not elsewhere:
                todo += [
                    (k, False)
                    for k in self.flow.inputs(node)
                    if k not in reads and (k not in self._written_values or k in writes)
                ]
        return sorted(visited.values(), key=lambda n: n.index)

    def _map_aliases(self) -> dict[str, Key]:
        """Tensor names of the engine with the values of the built model's main graph that they are, copies resolved."""
        alias: dict[str, Key] = {}
        for layer in self.engine.layers:
            for name, value in self._iter_values(layer):
                alias.setdefault(name, value)
        for layer in self.engine.layers:
            if moves(layer) and layer.inputs and layer.outputs:
                a, b = layer.inputs[0].name, layer.outputs[0].name
                if a in alias:
                    alias.setdefault(b, alias[a])
                elif b in alias:
                    alias.setdefault(a, alias[b])
        return alias

    def _iter_values(self, layer: Layer) -> Iterator[tuple[str, str]]:
        """Tensors of one layer with the values that they stand for, the surest first."""
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor.name in self.built.values:
                yield tensor.name, tensor.name
        values = layer.attributes.get("values")
        if isinstance(values, dict):
            yield from values.items()
        node = self.built.by_id.get(layer.name)
        if node is not None and node.op == layer.kind:
            # A node that was kept as it is, though what it writes may have been renamed.
            yield from zip((t.name for t in layer.outputs), node.outputs, strict=False)
