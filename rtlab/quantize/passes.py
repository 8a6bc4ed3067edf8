"""Changes of a model's graph: see ``rtlab.core.pass_protocol`` for what a pass is.

Passes are decided by plans, which only read; applied, each edits the graph in hand. Those of a variant share one copy
of the model (``Edit``), in the form in which the model is held: nothing is converted between them. Only ONNX's opset
converter works on another form, and is a pass of its own; so is its inference of types, which reads another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rtlab.core import pass_protocol
from rtlab.core.model import Model
from rtlab.errors import VariantError
from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import WEIGHTED

Need: TypeAlias = pass_protocol.Need[Model]
Promise: TypeAlias = pass_protocol.Promise[Model]
#: One change of the graph of a model.
Pass = pass_protocol.Pass[Model, Edit]


def run(
    model: Model,
    passes: Iterable[Pass],
    *,
    keep_origins: bool = False,
    source: bool = False,
    check: Callable[[], object] = lambda: None,
) -> Model:
    """The model after all passes; ``keep_origins`` and ``source`` as for ``Edit``, ``check`` as for ``apply``."""
    edit = Edit(model, keep_origins=keep_origins, source=source)
    for graph_pass in passes:
        apply(graph_pass, edit, check)
    return edit.finish()


def apply(graph_pass: Pass, edit: Edit, check: Callable[[], object] = lambda: None) -> None:
    """Apply a pass to what is being edited; ``check`` is called before, and may raise.

    Raises:
        VariantError: the graph lacks what the pass needs.
    """
    check()
    for need in graph_pass.needs:
        if reason := need.check(edit.model):
            raise VariantError(f'Cannot apply "{graph_pass.name}" to model "{edit.model.name}": {reason}.')
    graph_pass.edit(edit)


def require_opset(min_opset: int) -> Need:
    """The default operator set in this version or a later one."""

    def explain_low_opset(model: Model) -> str:
        old = model.opset < min_opset
        return f"it needs opset {min_opset}, and the model has {model.opset}; raise it before" if old else ""

    return Need(f"opset {min_opset}", explain_low_opset)


def _check_interface(before: Model, after: Model) -> str:
    for way in ("inputs", "outputs"):
        old_signature, new_signature = (
            [(n, m.values[n].dtype, m.values[n].shape) for n in getattr(m, way)] for m in (before, after)
        )
        if old_signature != new_signature:
            return f"{way} were {old_signature} and are {new_signature}"
    return ""


def _check_nodes(before: Model, after: Model) -> str:
    order = [n.id for n in after.nodes if n.id in before.by_id]
    if order != [n.id for n in before.nodes]:
        return "nodes are gone, or stand in another order"
    other = next((n.id for n in before.nodes if after.by_id[n.id].op != n.op), "")
    return f'node "{other}" is another operator' if other else ""


def _check_values(before: Model, after: Model) -> str:
    read = {v for n in after.nodes for v in (*n.inputs, *n.outputs)}
    missing_value = next((o for n in before.top for o in n.outputs if o and o not in read), "")
    moved_node = next((n.id for n in before.top if n.id != _find_source(after, n.id, before)), "")
    return (
        f'value "{missing_value}" is gone'
        if missing_value
        else f'what "{moved_node}" writes is made by another'
        if moved_node
        else ""
    )


def _find_source(after: Model, node: str, before: Model) -> str:
    """The source node that what a node wrote comes from now."""
    for out in before.by_id[node].outputs:
        maker = after.producers.get(out)
        if maker is not None and node not in {maker.id, maker.origin}:
            return maker.id
    return node


def _check_origins(before: Model, after: Model) -> str:
    source_ids = {n.origin for n in before.top} | {n.id for n in before.top}
    orphan = next((n.id for n in after.top if n.origin not in source_ids), "")
    return f'node "{orphan}" serves no node of the source' if orphan else ""


def _check_order(_: Model, after: Model) -> str:
    available = {*after.inputs, *after.ir.graph.initializers}
    for node in after.top:
        if early := [v for v in node.inputs if v and v not in available]:
            return f'node "{node.id}" stands before what writes "{early[0]}"'
        available.update(node.outputs)
    return ""


def _check_types(before: Model, after: Model) -> str:
    untyped = {k for k, v in before.values.items() if not v.dtype}
    untyped_value = next((k for k, v in after.values.items() if not v.dtype and k not in untyped), "")
    return f'the type of value "{untyped_value}" is not known' if untyped_value else ""


def _check_products(before: Model, after: Model) -> str:
    for node in before.top:
        if node.op in WEIGHTED and (node.id not in after.by_id or after.by_id[node.id].op != node.op):
            return f'product "{node.id}" is gone, or another operator'
    return ""


#: Inputs and outputs of the model are what they were.
INTERFACE = Promise("inputs and outputs keep their names, types and shapes", _check_interface)
#: Every node of the source is there under its id, with its operator, in the order of the source.
NODES = Promise("nodes keep their ids, operators and order", _check_nodes)
#: Every value that a node of the source writes is there under its name.
VALUES = Promise("values keep their names", _check_values)
#: Every new node tells which node of the source it serves.
ORIGINS = Promise("every node names its origin", _check_origins)
#: Each node stands behind what it reads.
ORDER = Promise("nodes stand behind what they read", _check_order)
#: No value without an element type is added.
TYPES = Promise("every new value has a type", _check_types)
#: Every convolution and every product of matrices is there under its id.
PRODUCTS = Promise("products keep their ids and operators", _check_products)
#: What holds after every pass that quantizes what is quantized already in another way.
REPAIR_PROMISES = (INTERFACE, PRODUCTS, ORIGINS, ORDER, TYPES)
#: What holds after every pass that puts something between nodes and leaves these as they are.
INSERTION_PROMISES = (INTERFACE, NODES, VALUES, ORIGINS, ORDER, TYPES)


#: Types and shapes of all values, as far as ONNX infers them: where operators became others that it knows.
INFER = Pass("types and shapes", Edit.infer, (NODES, VALUES, ORIGINS, ORDER, TYPES))


def raise_opset(opset: int, why: str) -> Pass:
    """The default operator set in a later version, by ONNX's converter, which writes some operators anew.

    It raises VariantError where the converter refuses the graph or loses a node; ``why`` says what for.
    """
    raised = Promise(
        f"opset {opset} or later", lambda _, after: "" if after.opset >= opset else f"it is {after.opset}"
    )
    return Pass(
        f"opset {opset}", lambda edit: edit.raise_opset(opset, why), (raised, INTERFACE, ORIGINS, ORDER)
    )
