"""Changes of a model's graph: see ``rtlab.core.change`` for what a pass is.

Passes are decided by plans, which only read; applied, each edits the graph in hand. Those of a variant share one copy
of the model (``Edit``), in the form in which the model is held: nothing is converted between them. Only ONNX's opset
converter works on another form, and is a pass of its own; so is its inference of types, which reads another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rtlab.core import change
from rtlab.core.model import Model
from rtlab.errors import VariantError
from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import WEIGHTED

Need: TypeAlias = change.Need[Model]
Promise: TypeAlias = change.Promise[Model]
#: One change of the graph of a model.
Pass: TypeAlias = change.Pass[Model, Edit]


def run(
    model: Model,
    passes: Iterable[Pass],
    *,
    later: bool = False,
    source: bool = False,
    check: Callable[[], object] = lambda: None,
) -> Model:
    """The model after all of the passes; ``later`` and ``source`` as for ``Edit``, ``check`` as for ``apply``."""
    edit = Edit(model, later=later, source=source)
    for one in passes:
        apply(one, edit, check)
    return edit.finish()


def apply(one: Pass, edit: Edit, check: Callable[[], object] = lambda: None) -> None:
    """Apply a pass to what is being edited; ``check`` is called before, and may raise.

    Raises:
        VariantError: the graph lacks what the pass needs.
    """
    check()
    for need in one.needs:
        if why := need.lacks(edit.model):
            raise VariantError(f'Cannot apply "{one.name}" to model "{edit.model.name}": {why}.')
    one(edit)


def opset(least: int) -> Need:
    """The default operator set in this version or a later one."""

    def lacks(model: Model) -> str:
        old = model.opset < least
        return f"it needs opset {least}, and the model has {model.opset}; raise it before" if old else ""

    return Need(f"opset {least}", lacks)


def _interface(before: Model, after: Model) -> str:
    for way in ("inputs", "outputs"):
        was, now = (
            [(n, m.values[n].dtype, m.values[n].shape) for n in getattr(m, way)] for m in (before, after)
        )
        if was != now:
            return f"{way} were {was} and are {now}"
    return ""


def _nodes(before: Model, after: Model) -> str:
    order = [n.id for n in after.nodes if n.id in before.by_id]
    if order != [n.id for n in before.nodes]:
        return "nodes are gone, or stand in another order"
    other = next((n.id for n in before.nodes if after.by_id[n.id].op != n.op), "")
    return f'node "{other}" is another operator' if other else ""


def _values(before: Model, after: Model) -> str:
    read = {v for n in after.nodes for v in (*n.inputs, *n.outputs)}
    lost = next((o for n in before.top for o in n.outputs if o and o not in read), "")
    moved = next((n.id for n in before.top if n.id != _source(after, n.id, before)), "")
    return f'value "{lost}" is gone' if lost else f'what "{moved}" writes is made by another' if moved else ""


def _source(after: Model, node: str, before: Model) -> str:
    """The source node that what a node wrote comes from now."""
    for out in before.by_id[node].outputs:
        maker = after.producers.get(out)
        if maker is not None and node not in {maker.id, maker.origin}:
            return maker.id
    return node


def _origins(before: Model, after: Model) -> str:
    known = {n.origin for n in before.top} | {n.id for n in before.top}
    lost = next((n.id for n in after.top if n.origin not in known), "")
    return f'node "{lost}" serves no node of the source' if lost else ""


def _order(_: Model, after: Model) -> str:
    there = {*after.inputs, *after.ir.graph.initializers}
    for node in after.top:
        if early := [v for v in node.inputs if v and v not in there]:
            return f'node "{node.id}" stands before what writes "{early[0]}"'
        there.update(node.outputs)
    return ""


def _types(before: Model, after: Model) -> str:
    untyped = {k for k, v in before.values.items() if not v.dtype}
    lost = next((k for k, v in after.values.items() if not v.dtype and k not in untyped), "")
    return f'the type of value "{lost}" is not known' if lost else ""


def _products(before: Model, after: Model) -> str:
    for node in before.top:
        if node.op in WEIGHTED and (node.id not in after.by_id or after.by_id[node.id].op != node.op):
            return f'product "{node.id}" is gone, or another operator'
    return ""


#: Inputs and outputs of the model are what they were.
INTERFACE = Promise("inputs and outputs keep their names, types and shapes", _interface)
#: Every node of the source is there under its id, with its operator, in the order of the source.
NODES = Promise("nodes keep their ids, operators and order", _nodes)
#: Every value that a node of the source writes is there under its name.
VALUES = Promise("values keep their names", _values)
#: Every new node tells which node of the source it serves.
ORIGINS = Promise("every node names its origin", _origins)
#: Each node stands behind what it reads.
ORDER = Promise("nodes stand behind what they read", _order)
#: No value without an element type is added.
TYPES = Promise("every new value has a type", _types)
#: Every convolution and every product of matrices is there under its id.
PRODUCTS = Promise("products keep their ids and operators", _products)
#: What holds after every pass that quantizes what is quantized already in another way.
REPAIRED = (INTERFACE, PRODUCTS, ORIGINS, ORDER, TYPES)
#: What holds after every pass that puts something between nodes and leaves these as they are.
KEPT = (INTERFACE, NODES, VALUES, ORIGINS, ORDER, TYPES)


@dataclasses.dataclass(frozen=True)
class Infer:
    """Types and shapes of all values, as far as ONNX infers them: where operators became others that it knows."""

    notes: tuple[str, ...] = ()
    name = "types and shapes"
    needs = ()
    promises = (NODES, VALUES, ORIGINS, ORDER, TYPES)
    changes = ""

    def __call__(self, edit: Edit) -> None:
        """Do it."""
        edit.infer()


@dataclasses.dataclass(frozen=True)
class Raise:
    """The default operator set in a later version, by ONNX's converter; ``why`` says what for."""

    opset: int
    why: str
    notes: tuple[str, ...] = ()
    needs = ()
    changes = ""

    @property
    def name(self) -> str:
        """What it does, in a few words."""
        return f"opset {self.opset}"

    @property
    def promises(self) -> tuple[Promise, ...]:
        """The opset, and all that there was; the converter writes some operators anew."""
        least = self.opset
        reached = Promise(
            f"opset {least} or later", lambda _, after: "" if after.opset >= least else f"it is {after.opset}"
        )
        return (reached, INTERFACE, ORIGINS, ORDER)

    def __call__(self, edit: Edit) -> None:
        """Convert.

        Raises:
            VariantError: ONNX's converter refuses the graph, or loses a node.
        """
        edit.raise_opset(self.opset, self.why)
