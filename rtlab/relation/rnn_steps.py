"""The layers of one recurrence, divided into steps: which steps each computes, and what of them."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.relation.dataflow import MOVING, Writers, operations, work

Role = Literal[
    "input product", "recurrent product", "pointwise", "bias", "data", "loop", "order", "whole", "unknown"
]
Form = Literal["unrolled", "loop", "whole", "unknown"]

_NUMBER = re.compile(r"\^(-?\d+)i(?:32|64)")
#: Kinds of layers that order streams, and that count the turns of a loop.
ORDER = frozenset({"signal", "wait"})
LOOPING = frozenset({"memset", "add", "jmp", "cjmp", "shape_call"})
#: Operations of generated kernels that multiply matrices; ``Sum`` does where weights are read as well.
_PRODUCTS = frozenset({"Fc", "Gemm", "Corr", "Sum"})


@dataclasses.dataclass(frozen=True)
class Part:
    """What a layer computes of a recurrence: work, steps in order, how we know; ``gates`` that one product serves."""

    role: Role
    steps: tuple[int, ...]
    evidence: str
    gates: int = 0


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recurrent node of the built model. A step ends with the last of ``count`` activations called ``last``."""

    node: str
    gates: int
    inputs: int
    hidden: int
    steps: int
    batch: int
    op: str
    last: str
    count: int
    directions: int = 1

    @functools.cached_property
    def shapes(self) -> frozenset[tuple[int, ...]]:
        """Last two sizes of weights, as compilers write them: a row for each number read, columns for whole gates."""
        gates = {self.gates, self.gates - 1, 1} if self.op == "GRU" else {self.gates}
        return frozenset((deep, g * self.hidden) for deep in (self.inputs, self.hidden) for g in gates)


@dataclasses.dataclass(frozen=True)
class Member:
    """A layer of a recurrence; ``inside`` says that it runs once in every turn of the loop."""

    layer: Layer
    parts: tuple[Part, ...]
    declared: bool
    why: str
    inside: bool
    also: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Execution:
    """How the steps of one recurrence run; ``steps`` is how many were found."""

    members: tuple[Member, ...]
    form: Form
    steps: int
    body: int
    turns: int
    hoisted: bool | None
    merged: bool | None
    evidence: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LayerFlow:
    """Who reads whose writing, by positions, without a loop's next turn; ``read`` counts layers and inputs read."""

    sources: Sequence[Sequence[int]]
    readers: Mapping[int, Sequence[int]]
    read: Sequence[int]

    @classmethod
    def from_engine(cls, engine: Engine) -> LayerFlow:
        """The flow of an engine."""
        writers = Writers(engine)
        sources = [writers.before(position) for position in range(len(engine.layers))]
        readers: defaultdict[int, list[int]] = defaultdict(list)
        read: list[int] = []
        for position, (layer, before) in enumerate(zip(engine.layers, sources, strict=True)):
            writer_positions = set(before)
            outside = {t.name for t in layer.inputs if writer_positions.isdisjoint(writers.of(position, t))}
            read.append(len(before) + len(outside))
            for source in before:
                readers[source].append(position)
        return cls(sources, readers, read)


class RnnSteps:
    """Divides the layers of one recurrence into steps; ``mine`` are their positions, with why they are."""

    def __init__(
        self,
        cell: Cell,
        layers: Sequence[Layer],
        flow: LayerFlow,
        mine: Mapping[int, str],
        dependent_nodes: AbstractSet[str],
    ) -> None:
        self.cell, self.layers, self.flow, self.mine = cell, layers, flow, mine
        self.dependent_nodes = dependent_nodes
        self.inside, self.turns, self.loop_evidence = self._loop()
        #: Activations that end steps: on the longest way to a layer, and with it.
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.weights = {p: [t for t in layers[p].constants if has_weight_shape(t, cell)] for p in mine}
        #: Whether a layer depends on the state, and whether it reads what comes from outside the recurrence.
        self.state: dict[int, bool] = {}
        self.outer: dict[int, bool] = {}
        for position in mine:
            layer = self.layers[position]
            near = [s for s in flow.sources[position] if s in self.after]
            self.before[position] = max((self.after[s] for s in near), default=0)
            ends = operations(layer).count(self.cell.last)
            self.after[position] = self.before[position] + ends
            first = not layer.inputs and self._only_moves(layer)
            is_gated = "Sigm" in operations(layer) or self._reads_state_weights(position)
            self.state[position] = first or is_gated or bool(ends) or any(self.state[s] for s in near)
            read = flow.read[position]
            quiet = [s for s in near if not self.weights[s]]
            self.outer[position] = len(near) < read or any(self.outer[s] for s in quiet)
        self.body = max((self.after[p] for p in self.inside), default=0) // self.cell.count
        last = max(self.after.values(), default=0) // self.cell.count
        self.step_count = last + self.body * (self.turns - 1)

    def result(self) -> Execution:
        """All of it."""
        members = tuple(self._member(p) for p in self.mine)
        form: Form = "loop" if self.inside else "unrolled"
        evidence = [*self.loop_evidence]
        if self.step_count != self.cell.steps:
            evidence.append(
                f"{self.step_count} steps were found in the layers and the node has {self.cell.steps}: "
                "the division into steps is not certain."
            )
            form = form if self.step_count else "unknown"
        else:
            how = f"{self.turns} turns of {self.body}" if self.inside else "one after the other"
            evidence.append(f"The longest way through the layers passes {self.step_count} new states, {how}.")
        inputs = [(m, q) for m in members for q in m.parts if q.role == "input product"]
        products = [q for m in members for q in m.parts if q.role.endswith("product")]
        hoisted = any(len(q.steps) > 1 and not m.inside for m, q in inputs) if inputs else None
        merged = any(q.gates > 1 for q in products) if products else None
        steps = (self.step_count, self.body, self.turns)
        return Execution(members, form, *steps, hoisted, merged, tuple(evidence))

    def _loop(self) -> tuple[set[int], int, list[str]]:
        """The layers of a turn, how many turns, and how that is known."""
        jump = next((p for p in self.mine if self.layers[p].kind == "cjmp"), None)
        if jump is None:
            return set(), 1, []
        start = max((p for p in range(jump) if self.layers[p].kind == "memset"), default=-1) + 1
        inside = {p for p in self.mine if start <= p <= jump}
        counter = next((t.name for t in self.layers[jump].inputs), "")
        limit, adds = self._value(jump), (p for p in sorted(inside) if self.layers[p].kind == "add")
        counts = (p for p in adds if any(t.name == counter for t in self.layers[p].outputs))
        rise = next(map(self._value, counts), None)
        if not limit or not rise or limit % rise:
            return inside, 1, ["A conditional jump repeats layers; how often is not reported."]
        note = f"A conditional jump repeats layers until a counter that rises by {rise} reaches {limit}."
        return inside, limit // rise, [note]

    def _value(self, position: int) -> int | None:
        """The number that a name of the compiler's gives the second input."""
        names = [t.name for t in self.layers[position].inputs[1:]]
        return next((int(m[1]) for n in names if (m := _NUMBER.search(n))), None)

    def _only_moves(self, layer: Layer) -> bool:
        ops = operations(layer)
        return set(ops) <= MOVING if ops else work(layer) == "reformat"

    def _reads_state_weights(self, position: int) -> bool:
        """Whether it reads weights that can only be those of the state."""
        cell = self.cell
        read = self.weights[position]
        return cell.inputs != cell.hidden and any((t.shape or (0, 0))[-2] == cell.hidden for t in read)

    def _member(self, position: int) -> Member:
        layer, node = self.layers[position], self.cell.node
        also = tuple(n for n in layer.origins if n != node)
        inside, why = position in self.inside, self.mine[position]
        return Member(layer, self._parts(position), node in layer.origins, why, inside, also)

    def _steps_at(self, position: int, activations: int) -> tuple[int, ...]:
        """The step that is under way after so many activations; in a loop the same one of every turn."""
        step = activations // self.cell.count
        if self.inside and position not in self.inside and step >= self.body:
            step += self.body * (self.turns - 1)
        if position in self.inside:
            return tuple(step + self.body * turn for turn in range(self.turns))
        return (step,)

    def _parts(self, position: int) -> tuple[Part, ...]:
        layer, cell = self.layers[position], self.cell
        if layer.kind in ORDER:
            return (Part("order", (), "It orders the streams."),)
        if layer.kind in LOOPING:
            return (Part("loop", (), f'Layers of kind "{layer.kind}" set and count variables of the loop.'),)
        ops = operations(layer)
        if not layer.inputs and ops == ("Sum",) and not self._has_constant_state(layer):
            return (Part("bias", (), "It adds the two biases of the gates, once for all steps."),)
        read = self.weights[position]
        if set(layer.origins) & self.dependent_nodes:
            # A product of what follows the recurrence may read weights of a like shape.
            read = [t for t in read if (t.shape or (0,))[-1] > cell.hidden]
        products = (self._product(position, t, read, ops) for t in read)
        return (*self._iter_activations(position, ops), *products) or (self._make_rest_part(position),)

    def _iter_activations(self, position: int, ops: tuple[str, ...]) -> Iterator[Part]:
        ends = ops.count(self.cell.last)
        if ends or "Sigm" in ops:
            first, count = self.before[position], self.cell.count
            turns = (self._steps_at(position, first + k * count) for k in range(max(1, ends // count)))
            each = {s for steps in turns for s in steps}
            yield Part("pointwise", tuple(sorted(each)), f"Its name lists the activations: {''.join(ops)}.")

    def _make_rest_part(self, position: int) -> Part:
        """What a layer does that reads no weights and applies no activation."""
        layer, now = self.layers[position], self._steps_at(position, self.before[position])
        if self._only_moves(layer):
            return Part("data", self._find_served_steps(position), "It only moves or retypes data.")
        if layer.kind == "gemm" or not layer.inputs:
            return Part("unknown", now, "Nothing about it shows its work.")
        if self.state[position]:
            return Part("pointwise", now, "It works on the state between products.")
        return Part("data", self._find_served_steps(position), "It prepares what layers of the node read.")

    def _has_constant_state(self, layer: Layer) -> bool:
        """Whether a sum without inputs is the product of the weights and a constant first state."""
        last = [t.shape for t in layer.constants if t.shape is not None]
        return self.cell.node not in layer.origins and any(
            s[-2] == self.cell.hidden for s in last if len(s) > 1
        )

    def _product(self, position: int, tensor: Tensor, read: list[Tensor], ops: tuple[str, ...]) -> Part:
        layer, cell = self.layers[position], self.cell
        assert tensor.shape is not None  # noqa: S101 - ``has_weight_shape`` has looked at it
        deep, wide = tensor.shape[-2:]
        gates = wide // cell.hidden
        if cell.inputs != cell.hidden:
            recurrent = deep == cell.hidden
            how = f"its weights are {deep}×{wide}"
        elif len(read) > 1:
            recurrent = tensor is read[0]
            how = f"it reads weights for the input and for the state, {deep}×{wide} each"
        else:
            recurrent = self.state[position] or not self.outer[position]
            how = "it reads the state" if recurrent else "it reads nothing that comes from the state"
        gates_text = f"{gates} gates are columns of one product" if gates > 1 else "one gate"
        # Some activations come before the product of their kernel.
        product = max((i for i, o in enumerate(ops) if o in _PRODUCTS), default=0)
        steps = self._steps_at(position, self.before[position] + ops[:product].count(cell.last))
        if recurrent:
            return Part("recurrent product", steps, f"Product with the state: {how}; {gates_text}.", gates)
        rows = [math.prod(t.shape[:-1]) for t in layer.outputs if t.shape and t.shape[-1] == wide]
        all_steps = cell.steps * cell.batch * cell.directions
        if cell.steps > 1 and all_steps in rows and cell.last not in ops:
            rows_text = f"{cell.steps} × {cell.batch} rows"
            why = f"Product with the input of all steps at once: {rows_text}; {how}; {gates_text}."
            return Part("input product", tuple(range(cell.steps)), why, gates)
        if all(t is tensor for t in read):
            steps = self._find_served_steps(position)
        return Part("input product", steps, f"Product with the input: {how}; {gates_text}.", gates)

    def _find_served_steps(self, position: int) -> tuple[int, ...]:
        """The steps of the layers that work on the state with what this one prepares."""
        steps: set[int] = set()
        todo, visited = [position], {position}
        while todo:
            for reader in self.flow.readers[todo.pop()]:
                if reader in visited or reader not in self.before:
                    continue
                visited.add(reader)
                if self.state[reader]:
                    steps |= set(self._steps_at(reader, self.before[reader]))
                else:
                    todo.append(reader)
        return tuple(sorted(s for s in steps if s < max(self.step_count, 1)))


def has_weight_shape(tensor: Tensor, cell: Cell) -> bool:
    """Whether a constant has the shape of weights of the recurrence: of the input or the state, for some gates."""
    shape = tensor.shape
    return shape is not None and shape[-2:] in cell.shapes and "folded_replicate" not in tensor.name
