"""Changes of a model's graph.

Passes are decided by plans, which only read; applied, each edits the graph in hand. Those of a variant share one copy
of the model (``Edit``), in the form in which the model is held. Only ONNX's opset converter and its inference of types
work on protos; each is a pass of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from rtlab.core.model import Model
from rtlab.errors import VariantError
from rtlab.quantize.edit import Edit

#: What may hold of a graph after a pass, beside the one before; every pass that a test applies is checked for it.
INTERFACE = "inputs and outputs keep their names, types and shapes"
NODES = "nodes keep their ids, operators and order"
VALUES = "values keep their names"
ORIGINS = "every new node names a node of the source as its origin"
ORDER = "each node comes after its inputs"
TYPES = "every new value has a type"
PRODUCTS = "convolutions and products of matrices keep their ids and operators"
NUMBERS = "outputs keep their numbers, but for the order of sums"
#: What holds after every pass that changes existing quantization.
REPAIR_PROMISES = (INTERFACE, PRODUCTS, ORIGINS, ORDER, TYPES)
#: What holds after every pass that inserts nodes between others.
INSERTION_PROMISES = (INTERFACE, NODES, VALUES, ORIGINS, ORDER, TYPES)


@dataclasses.dataclass(frozen=True, eq=False)
class Pass:
    """One change of a graph, made by a function that decided it.

    Attributes:
        name: What it does, in a few words.
        edit: Does it.
        promises: What holds afterwards.
        min_opset: The lowest default operator set that it needs.
        notes: Sentences on what is unexpected, and on what is left out.
    """

    name: str
    edit: Callable[[Edit], None]
    promises: tuple[str, ...]
    min_opset: int = 0
    notes: tuple[str, ...] = ()


def run(model: Model, passes: Iterable[Pass], *, keep_origins: bool = False, source: bool = False) -> Model:
    """The model after all passes; ``keep_origins`` and ``source`` as for ``Edit``."""
    edit = Edit(model, keep_origins=keep_origins, source=source)
    for graph_pass in passes:
        apply(graph_pass, edit)
    return edit.model


def apply(graph_pass: Pass, edit: Edit, check: Callable[[], object] = lambda: None) -> None:
    """Apply a pass to what is being edited; ``check`` is called before, and may raise.

    Raises:
        VariantError: the opset of the graph is lower than the pass needs.
    """
    check()
    model = edit.model
    if model.opset < graph_pass.min_opset:
        raise VariantError(
            f'Cannot apply "{graph_pass.name}" to model "{model.name}": it needs opset {graph_pass.min_opset}, and the '
            f"model has {model.opset}; raise it before."
        )
    graph_pass.edit(edit)


#: Types and shapes of all values, as far as ONNX infers them.
INFER = Pass("types and shapes", Edit.infer, (NODES, VALUES, ORIGINS, ORDER, TYPES, NUMBERS))


def raise_opset(opset: int, why: str) -> Pass:
    """The default operator set in a later version, by ONNX's converter; ``why`` says what for.

    Applied, it raises VariantError where the converter refuses the graph or loses a node.
    """
    promises = (INTERFACE, ORIGINS, ORDER, NUMBERS)
    return Pass(f"opset {opset}", lambda edit: edit.raise_opset(opset, why), promises)
