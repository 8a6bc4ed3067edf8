"""A recurrence before the compiler and after it: what the textbook computes step by step, and which layers do it.

Before: what ONNX's definition of LSTM, GRU and RNN says, a product per gate and step of the input and of the state
(https://onnx.ai/onnx/operators/, equations of each operator). After: the engine's layers. Compilers label few of the
layers of an unrolled recurrence, so whose they are, which step they compute and what for is inferred from the flow of
data, from the shapes of the weights that they read and from the operations in the names of generated kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rtlab.analyses.fusion import map_nodes
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.errors import ModelError
from rtlab.relation.dataflow import operations
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.relation.rnn_steps import (
    LOOPING,
    ORDER,
    Cell,
    Execution,
    Form,
    LayerFlow,
    Member,
    Part,
    RnnSteps,
    has_weight_shape,
)

_LOOP = re.compile(r"\(Unnamed Loop\* (\d+)\)")


class Unrolling:
    """The layers of an engine, given to the recurrent nodes of the model that it was built from."""

    def __init__(self, engine: Engine, built: Model, cells: Sequence[Cell]) -> None:
        self.layers, self.cells = engine.layers, tuple(cells)
        self.names = {c.node: i for i, c in enumerate(cells)}
        self.flow = LayerFlow.from_engine(engine)
        self.sources, self.readers = self.flow.sources, self.flow.readers
        self.around = [_find_dependencies(built, c.node) for c in self.cells]
        #: By position the recurrence that a layer belongs to, and why.
        self.owner: dict[int, tuple[int, str]] = {}
        for position, layer in enumerate(self.layers):
            if owner := self._find_owner(position, layer):
                self.owner[position] = owner
        self._assign_layers_between()
        self._assign_feeding_layers()
        self._assign_final_layers()
        self._assign_state_writers()
        self._assign_control_layers()

    def _owner(self, position: int) -> int:
        """The recurrence that a layer belongs to, by number; -1 for none."""
        return self.owner.get(position, (-1, ""))[0]

    def of(self, at: int) -> Execution:
        """What became of one of the cells."""
        cell = self.cells[at]
        why = {p: reason for p, (owner, reason) in sorted(self.owner.items()) if owner == at}
        for layer in (self.layers[p] for p in why):
            if layer.kind == cell.op and cell.node in {layer.name, *layer.origins}:
                what = f"One layer of kind {cell.op} does all {cell.steps} steps"
                evidence = f"{what}; what it does inside is not reported."
                part = Part("whole", tuple(range(cell.steps)), evidence)
                member = Member(layer, (part,), True, "It is the node itself.", False, ())  # noqa: FBT003
                return Execution((member,), "whole", 0, 0, 1, None, None, (evidence,))
        if not why:
            return Execution((), "unknown", 0, 0, 1, None, None, ())
        return RnnSteps(cell, self.layers, self.flow, why, self.around[at][1]).result()

    def _find_owner(self, position: int, layer: Layer) -> tuple[int, str] | None:
        """A layer that a label, the name of the compiler's loop or the weights that it reads give to a recurrence."""
        labels = set(layer.origins)
        itself = self.names.get(layer.name)
        if itself is not None and layer.kind == self.cells[itself].op:
            return itself, "It is the node itself."
        named = [self.names[n] for n in layer.origins if n in self.names]
        if named:
            return named[0], "The compiler's label names the node."
        names = (layer.name, *(t.name for t in (*layer.constants, *layer.inputs, *layer.outputs)))
        loops = {int(n) for name in names if "Loop*" in name for n in _LOOP.findall(name)}
        if len(loops) == 1 and (index := loops.pop()) < len(self.cells):
            return index, "It names the loop that the compiler made of the node."
        if not layer.constants:
            return None
        cells = [(i, cell) for i, cell in enumerate(self.cells) if self.around[i][0].isdisjoint(labels)]
        fit = [i for i, cell in cells if any(has_weight_shape(t, cell) for t in layer.constants)]
        if len(fit) > 1:
            downstream, upstream = self._excluded_recurrences
            fit = [i for i in fit if i not in downstream[position] and i not in upstream[position]]
        if len(fit) > 1:
            # Of several of one shape the one whose gates it reads; what reads a state may begin the next.
            least = [min(2, cell.gates) for cell in self.cells]
            fit = [i for i in fit if self._reads_gates(position, layer, i, least=least[i])]
        if len(fit) == 1 and not (labels and not self._reads_gates(position, layer, fit[0])):
            return fit[0], "It reads weights of the shape of the node's."
        return None

    @functools.cached_property
    def _excluded_recurrences(self) -> tuple[list[set[int]], list[set[int]]]:
        """By layer the recurrences that it cannot belong to.

        It is behind a layer of a node that depends on the recurrence, or ahead of one that the recurrence depends on.
        """
        mine = set(self.names)
        exclusions: list[list[set[int]]] = []
        forward = range(len(self.layers))
        for side, order, near in ((1, forward, self.sources), (0, forward[::-1], self.readers)):
            # A layer that also computes a recurrence does not part it from what follows.
            marks = [
                set()
                if mine & set(layer.origins)
                else {i for i, around in enumerate(self.around) if not around[side].isdisjoint(layer.origins)}
                for layer in self.layers
            ]
            excluded_by_layer: list[set[int]] = [set() for _ in self.layers]
            for position in order:
                for other in near[position]:
                    excluded_by_layer[position] |= excluded_by_layer[other] | marks[other]
            exclusions.append(excluded_by_layer)
        return exclusions[0], exclusions[1]

    def _reads_gates(self, position: int, layer: Layer, at: int, *, least: int = 1) -> bool:
        """Whether a layer reads what the products of at least so many gates make, from a layer of that recurrence."""
        cell = self.cells[at]
        wide = {k * cell.hidden for k in range(least, cell.gates + 1)}
        is_fed = any(self._owner(s) == at for s in self.sources[position])
        return is_fed and any(t.shape and t.shape[-1] in wide for t in layer.inputs)

    def _assign_layers_between(self) -> None:
        """Layers on a way from one layer of a recurrence to another."""
        after = self._reach(range(len(self.layers)), self.sources)
        before = self._reach(range(len(self.layers) - 1, -1, -1), self.readers)
        for position, layer in enumerate(self.layers):
            if position in self.owner:
                continue
            both = after[position] & before[position]
            both = {i for i in both if not set(layer.origins) & (self.around[i][0] | self.around[i][1])}
            if both:
                self.owner[position] = min(both), "It lies on a way between two layers of the node."

    def _reach(
        self, order: Iterable[int], near: Sequence[Sequence[int]] | Mapping[int, Sequence[int]]
    ) -> list[set[int]]:
        """By layer the recurrences that it can be reached from, in this order of going."""
        reached: list[set[int]] = [set() for _ in self.layers]
        for position in order:
            for other in near[position]:
                reached[position] |= reached[other]
                if other in self.owner:
                    reached[position].add(self.owner[other][0])
        return reached

    def _assign_feeding_layers(self) -> None:
        """Unlabelled layers that only prepare what layers of one recurrence read."""
        for position in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[position]
            if position in self.owner or layer.origins or layer.kind in LOOPING | ORDER:
                continue
            readers = {self._owner(r) for r in self.readers[position]}
            if len(readers) == 1 and (owner := readers.pop()) >= 0:
                self.owner[position] = owner, "Only layers of the node read what it writes."

    def _assign_final_layers(self) -> None:
        """The layer that ends the last step and goes on with what follows, under that one's label alone."""
        for position, layer in enumerate(self.layers):
            if position in self.owner or layer.kind not in {"kgen", "runtime_fusion"}:
                continue
            for source in self.sources[position]:
                at = self._owner(source)
                reads_gates = at >= 0 and self._reads_gates(position, layer, at)
                if reads_gates and self.cells[at].last in operations(layer):
                    why = "It reads the gates of the last step and applies their activations."
                    self.owner[position] = at, why
                    break

    def _assign_state_writers(self) -> None:
        """Unlabelled layers that put the state of a step where other layers of the node put those of theirs."""
        written: dict[str, set[int]] = {}
        for position, (owner, _) in self.owner.items():
            for tensor in self.layers[position].outputs:
                written.setdefault(tensor.name, set()).add(owner)
        for position, layer in enumerate(self.layers):
            if position in self.owner or layer.origins or layer.constants or not layer.outputs:
                continue
            sources = {self._owner(s) for s in self.sources[position]}
            if len(sources) == 1 and all(sources == written.get(t.name) for t in layer.outputs):
                self.owner[position] = sources.pop(), "It writes one step of what layers of the node write."

    def _assign_control_layers(self) -> None:
        """Loops whose turns hold layers of a recurrence, and events between its layers."""
        start = 0
        for position, layer in enumerate(self.layers):
            if layer.kind not in {"cjmp", "jmp"}:
                continue
            resets = (p for p in range(start, position) if self.layers[p].kind == "memset")
            inside = range(max(resets, default=start) + 1, position)
            owners = {self._owner(p) for p in inside} - {-1}
            if len(owners) == 1:
                owner = owners.pop(), "It counts the turns of the loop that holds layers of the node."
                for p in range(start, position + 1):
                    if p not in self.owner and self.layers[p].kind in LOOPING:
                        self.owner[p] = owner
            start = position + 1
        for at in range(len(self.cells)):
            mine = [p for p, (owner, _) in self.owner.items() if owner == at]
            for p in range(min(mine, default=0), max(mine, default=0)):
                if p not in self.owner and self.layers[p].kind in ORDER:
                    self.owner[p] = at, "It orders streams between layers of the node."


def _find_dependencies(built: Model, node: str) -> tuple[set[str], set[str]]:
    """The nodes of the main graph that a node depends on, and those that depend on it."""
    start = built.by_id.get(node)
    dependencies: list[set[str]] = [set(), set()]
    for back, visited in zip((True, False), dependencies, strict=True):
        todo = [start] if start else []
        while todo:
            at = todo.pop()
            if back:
                near = [built.producers[v] for v in at.inputs if v in built.producers]
            else:
                near = [n for v in at.outputs for n in built.consumers.get(v, ())]
            todo += [n for n in near if n.id not in visited]
            visited |= {n.id for n in near}
    return dependencies[0], dependencies[1]


Direction = Literal["forward", "reverse", "bidirectional"]

#: The gates in the order of ONNX's weights.
GATES = {"LSTM": ("i", "o", "f", "c"), "GRU": ("z", "r", "h"), "RNN": ("h",)}


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """A recurrent node as its definition computes it, one direction after the other.

    ``inputs`` and ``hidden`` are the widths of what a step reads and of the state; ``steps`` and ``batch`` are those of
    the model at the sizes that ``Model.input_shape`` gives it. ``linear`` is ``linear_before_reset`` of a GRU.
    """

    node: str
    op: str
    direction: Direction
    inputs: int
    hidden: int
    steps: int
    batch: int
    linear: bool = False
    peepholes: bool = False
    activations: tuple[str, ...] = ()

    @property
    def gates(self) -> tuple[str, ...]:
        """Their letters, in the order of ONNX's weights."""
        return GATES[self.op]

    @property
    def directions(self) -> int:
        """How many recurrences run: 2 where it is bidirectional."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def products(self) -> int:
        """Matrix products of all steps: one of the input and one of the state for each gate."""
        return 2 * len(self.gates) * self.steps * self.directions

    @property
    def elementwise(self) -> int:
        """Elementwise operations of all steps, each over ``batch`` x ``hidden`` numbers.

        Two additions (product to product, then the bias) and an activation for each gate; then what makes the new
        state of them.
        """
        if self.op == "LSTM":  # f*c, i*g, their sum, its tanh, times o; a product and a sum for each peephole
            each = 3 * 4 + 5 + 6 * self.peepholes
        elif self.op == "GRU":  # 1-z, times h~, z*h, their sum; r*h; a bias more with linear_before_reset
            each = 3 * 3 + 4 + 1 + self.linear
        else:
            each = 3
        return each * self.steps * self.directions

    @property
    def operations(self) -> int:
        """Nodes of the textbook's graph: products and elementwise operations."""
        return self.products + self.elementwise

    @property
    def flops(self) -> int:
        """Floating-point operations of all products: two for each multiplication and addition."""
        width = len(self.gates) * self.hidden * (self.inputs + self.hidden)
        return 2 * self.batch * width * self.steps * self.directions


@dataclasses.dataclass(frozen=True)
class Piece:
    """A layer of a recurrence: what it computes of which steps, and how often it runs in one inference.

    ``declared`` says that the compiler itself labels it with the node; ``why`` is how we know otherwise. ``also`` are
    labelled nodes other than the recurrence that the layer computes as well.
    """

    layer: str
    parts: tuple[Part, ...]
    declared: bool
    why: str
    runs: int = 1
    also: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class FusedRecurrence:
    """A recurrence and what the compiler made of it.

    ``form`` says how the steps run: ``unrolled`` into layers of their own, in a ``loop`` whose turn computes ``body``
    steps, ``whole`` in one layer that does not tell, ``unknown``. ``hoisted`` says whether one product makes the inputs
    of all steps at once, and ``merged`` whether all gates of a product are columns of one; None where it is not known.
    All but what a label declares is inferred, and ``evidence`` says from what.
    """

    before: Recurrence
    pieces: tuple[Piece, ...]
    form: Form
    found: int
    body: int
    turns: int
    hoisted: bool | None
    merged: bool | None
    evidence: tuple[str, ...]

    def __repr__(self) -> str:
        what = f"{self.before.operations} operations, {len(self.pieces)} layers, {self.form}"
        return f"<Fused {self.before.node}: {what}>"

    @property
    def products(self) -> int | None:
        """Matrix products that run in one inference; None where layers do not tell."""
        if self.form in {"whole", "unknown"}:
            return None
        roles = {"input product", "recurrent product"}
        return sum(p.runs for p in self.pieces for q in p.parts if q.role in roles)

    @property
    def launches(self) -> int:
        """Layers that compute or move data, counted as often as they run in one inference."""
        return sum(p.runs for p in self.pieces if not {q.role for q in p.parts} <= {"loop", "order"})


def recurrences(model: Model) -> tuple[Recurrence, ...]:
    """The LSTM, GRU and RNN nodes of a model, in graph order.

    Raises:
        ModelError: the number of steps is dynamic and has no name; the message says how to name it.
    """
    nodes = [n for n in model.nodes if n.op in GATES and not n.domain]
    if not nodes:
        return ()
    sized = model.static()
    return tuple(_recurrence(node, sized) for node in nodes)


def _recurrence(node: Node, sized: Model) -> Recurrence:
    shape = _get_static_shape(node, sized, 0, 3)
    weights = _get_static_shape(node, sized, 1, 3)
    recurrent = _get_static_shape(node, sized, 2, 3)
    batch, steps = (0, 1) if node.attributes.get("layout") else (1, 0)
    attributes = node.attributes
    names = attributes.get("activations")
    return Recurrence(
        node=node.id,
        op=node.op,
        direction={"reverse": "reverse", "bidirectional": "bidirectional"}.get(  # type: ignore[arg-type]
            str(attributes.get("direction", "forward")), "forward"
        ),
        inputs=weights[2],
        hidden=recurrent[2],
        steps=shape[steps],
        batch=shape[batch],
        linear=bool(attributes.get("linear_before_reset")),
        peepholes=len(node.inputs) > 7 and bool(node.inputs[7]),
        activations=tuple(map(str, names)) if isinstance(names, list) else (),
    )


def _get_static_shape(node: Node, model: Model, at: int, rank: int) -> tuple[int, ...]:
    name = node.inputs[at]
    value = model.values.get(name)
    shape = value.shape if value is not None else None
    sizes = tuple(d for d in shape or () if isinstance(d, int))
    if shape is None or len(sizes) != len(shape) or len(sizes) != rank:
        raise ModelError(
            f'Cannot count the steps of "{node.title}": the shape of its input "{name}" is not known. Name the sizes '
            "of the model's inputs, as in rtlab.load(path, shapes={...}), or simplify the model with constant shapes."
        )
    return sizes


def find_fused_recurrences(facts: VariantResult) -> tuple[FusedRecurrence, ...]:
    """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
    return analyze_recurrences(facts.source, facts.prepared.model, facts.engine, map_nodes(facts))


def analyze_recurrences(
    source: Model, built: Model, engine: Engine, mapping: NodeMapping
) -> tuple[FusedRecurrence, ...]:
    """What the compiler made of every recurrent node of ``source``.

    Args:
        source: The model that the study is of; its sizes give the number of steps.
        built: The prepared model, whose nodes the engine's labels name.
        engine: The layers.
        mapping: Source nodes and layers, asked where the flow of data between the node's tensors does not tell.

    Raises:
        ModelError: the number of steps is dynamic and has no name.
    """
    nodes = recurrences(source)
    unrolling = Unrolling(engine, built, [_cell(r, built) for r in nodes])
    return tuple(_analyze_recurrence(r, unrolling.of(i), engine, mapping) for i, r in enumerate(nodes))


def _cell(before: Recurrence, built: Model) -> Cell:
    names = [n.id for n in built.nodes if before.node in {n.id, n.origin} and n.op == before.op]
    usual = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}[before.op]
    activations = [a[:4] for a in before.activations[: len(usual)] or usual]
    # The last activation of a direction makes the new state; the first of them serves several gates.
    serves = (max(1, len(before.gates) - 1), 1, 1)
    count = sum(n for a, n in zip(activations, serves, strict=False) if a == activations[-1])
    return Cell(
        names[0] if names else before.node,
        len(before.gates),
        before.inputs,
        before.hidden,
        before.steps,
        before.batch,
        before.op,
        activations[-1],
        count,
        before.directions,
    )


def _analyze_recurrence(
    before: Recurrence, execution: Execution, engine: Engine, mapping: NodeMapping
) -> FusedRecurrence:
    turns = {True: execution.turns, False: 1}
    members = execution.members
    pieces = [Piece(m.layer.id, m.parts, m.declared, m.why, turns[m.inside], m.also) for m in members]
    if not pieces:
        layer_ids = {layer.id for layer in engine.layers}
        parts = (Part("unknown", (), "Nothing about this layer shows a step."),)
        mapped = (i for i in mapping.layers(before.node) if i in layer_ids)
        pieces = [Piece(i, parts, declared=False, why="The mapping pairs it.") for i in mapped]
    return FusedRecurrence(
        before,
        tuple(pieces),
        execution.form,
        execution.steps,
        execution.body,
        execution.turns,
        execution.hoisted,
        execution.merged,
        execution.evidence,
    )
