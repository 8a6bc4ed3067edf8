"""A recurrence before the compiler and after it: what the textbook computes step by step, and which layers do it.

Before: what ONNX's definition of LSTM, GRU and RNN says, a product per gate and step of the input and of the state
(https://onnx.ai/onnx/operators/, equations of each operator). After: the engine's layers. Compilers label few of the
layers of an unrolled recurrence, so whose they are, which step they compute and what for is inferred from the flow of
data, from the shapes of the weights that they read and from the operations in the names of generated kernels.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.recurrence.unrolling import Unrolling
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.errors import ModelError
from rtlab.relation.mapping import Mapping
from rtlab.relation.rnn_steps import Cell, Execution, Form, Part

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
    source: Model, built: Model, engine: Engine, mapping: Mapping
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
    before: Recurrence, execution: Execution, engine: Engine, mapping: Mapping
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
