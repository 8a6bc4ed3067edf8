"""Which layers of an engine belong to which recurrence.

Written from listings of TensorRT-RTX 1.7 of LSTM, GRU and RNN of 1 to 256 steps, one and two directions, fp32 and fp16.
There it unrolls up to eight steps with an input product each; of nine or more it makes one input product for all steps,
and runs from sixteen on a loop whose turn holds eight steps, with what is left over behind it. All gates of a product
are columns of one; with one sample a product is a multiplication and a sum inside a generated kernel, which often ends
one step and begins the next.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.relation.kernel import operations
from rtlab.relation.rnn_steps import (
    LOOPING,
    ORDER,
    Cell,
    Execution,
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
        self._assign_layers()

    def of(self, at: int) -> Execution:
        """What became of one of the cells."""
        cell = self.cells[at]
        mine = sorted(p for p, (owner, _) in self.owner.items() if owner == at)
        position = next((p for p in mine if self._is_node_layer(self.layers[p], cell)), None)
        if position is not None:
            return self._describe_single_layer(position, at)
        if not mine:
            return Execution((), "unknown", 0, 0, 1, None, None, ())
        why = {p: self.owner[p][1] for p in mine}
        return RnnSteps(cell, self.layers, self.flow, why, self.around[at][1]).result()

    def _describe_single_layer(self, position: int, at: int) -> Execution:
        layer, cell = self.layers[position], self.cells[at]
        evidence = (
            f"One layer of kind {cell.op} does all {cell.steps} steps; what it does inside is not reported."
        )
        part = Part("whole", tuple(range(cell.steps)), evidence)
        member = Member(layer, (part,), declared=True, why="It is the node itself.", inside=False, also=())
        return Execution((member,), "whole", 0, 0, 1, None, None, (evidence,))

    def _assign_layers(self) -> None:
        for position, layer in enumerate(self.layers):
            owner = self._find_owner(position, layer)
            if owner is not None:
                self.owner[position] = owner
        self._assign_layers_between()
        self._assign_feeding_layers()
        self._assign_final_layers()
        self._assign_state_writers()
        self._assign_control_layers()

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
        fit = [
            i
            for i, cell in enumerate(self.cells)
            if any(has_weight_shape(t, cell) for t in layer.constants)
            and self.around[i][0].isdisjoint(labels)
        ]
        if len(fit) > 1:
            downstream, upstream = self._excluded_recurrences
            fit = [i for i in fit if i not in downstream[position] and i not in upstream[position]]
        if len(fit) > 1:
            fit = self._pick_nearest(position, fit)
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
        for side, order, near in (
            (1, range(len(self.layers)), self.sources),
            (0, range(len(self.layers) - 1, -1, -1), self.readers),
        ):
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

    def _pick_nearest(self, position: int, fit: list[int]) -> list[int]:
        """Of several recurrences of one shape the one whose gates it reads; what reads a state may begin the next."""
        return [
            i
            for i in fit
            if self._reads_gates(position, self.layers[position], i, least=min(2, self.cells[i].gates))
        ]

    def _reads_gates(self, position: int, layer: Layer, at: int, *, least: int = 1) -> bool:
        """Whether a layer reads what the products of at least so many gates make, from a layer of that recurrence."""
        cell = self.cells[at]
        wide = {k * cell.hidden for k in range(least, cell.gates + 1)}
        return any(t.shape is not None and t.shape and t.shape[-1] in wide for t in layer.inputs) and any(
            self.owner.get(s, (-1, ""))[0] == at for s in self.sources[position]
        )

    @staticmethod
    def _is_node_layer(layer: Layer, cell: Cell) -> bool:
        return layer.kind == cell.op and cell.node in {layer.name, *layer.origins}

    def _assign_layers_between(self) -> None:
        """Layers on a way from one layer of a recurrence to another."""
        after = self._reach(range(len(self.layers)), self.sources)
        before = self._reach(range(len(self.layers) - 1, -1, -1), self.readers)
        for position, layer in enumerate(self.layers):
            if position in self.owner:
                continue
            both = sorted(after[position] & before[position])
            both = [i for i in both if not set(layer.origins) & (self.around[i][0] | self.around[i][1])]
            if both:
                self.owner[position] = both[0], "It lies on a way between two layers of the node."

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
            readers = {self.owner.get(r, (-1, ""))[0] for r in self.readers[position]}
            if len(readers) == 1 and (owner := readers.pop()) >= 0:
                self.owner[position] = owner, "Only layers of the node read what it writes."

    def _assign_final_layers(self) -> None:
        """The layer that ends the last step and goes on with what follows, under that one's label alone."""
        for position, layer in enumerate(self.layers):
            if position in self.owner or layer.kind not in {"kgen", "runtime_fusion"}:
                continue
            for source in self.sources[position]:
                at = self.owner.get(source, (-1, ""))[0]
                if (
                    at >= 0
                    and self._reads_gates(position, layer, at)
                    and self.cells[at].last in operations(layer)
                ):
                    self.owner[position] = (
                        at,
                        "It reads the gates of the last step and applies their activations.",
                    )
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
            sources = {self.owner.get(s, (-1, ""))[0] for s in self.sources[position]}
            if len(sources) == 1 and all(sources == written.get(t.name) for t in layer.outputs):
                self.owner[position] = sources.pop(), "It writes one step of what layers of the node write."

    def _assign_control_layers(self) -> None:
        """Loops whose turns hold layers of a recurrence, and events between its layers."""
        start = 0
        for position, layer in enumerate(self.layers):
            if layer.kind not in {"cjmp", "jmp"}:
                continue
            first = (
                max((p for p in range(start, position) if self.layers[p].kind == "memset"), default=start) + 1
            )
            owners = {self.owner[p][0] for p in range(first, position) if p in self.owner}
            if len(owners) == 1:
                owner = owners.pop()
                for p in range(start, position + 1):
                    if p not in self.owner and self.layers[p].kind in LOOPING:
                        self.owner[p] = (
                            owner,
                            "It counts the turns of the loop that holds layers of the node.",
                        )
            start = position + 1
        for at in range(len(self.cells)):
            mine = [p for p, (owner, _) in self.owner.items() if owner == at]
            for p in range(min(mine, default=0), max(mine, default=0)):
                if p not in self.owner and self.layers[p].kind in ORDER:
                    self.owner[p] = at, "It orders streams between layers of the node."


def _find_dependencies(built: Model, node: str) -> tuple[set[str], set[str]]:
    """The nodes of the main graph that a node depends on, and those that depend on it."""
    if node not in built.by_id:
        return set(), set()
    start = built.by_id[node]
    dependencies: list[set[str]] = []
    for back in (True, False):
        visited: set[str] = set()
        todo = [start]
        while todo:
            at = todo.pop()
            near = (
                [built.producers[v] for v in at.inputs if v in built.producers]
                if back
                else [n for v in at.outputs for n in built.consumers.get(v, ())]
            )
            todo += [n for n in near if n.id not in visited]
            visited |= {n.id for n in near}
        dependencies.append(visited)
    return dependencies[0], dependencies[1]
