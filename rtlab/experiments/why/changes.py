"""Changes of a neighbourhood, one for each thing that may keep two of its nodes apart.

Some only diagnose: a reader that is detached changes what the model computes. Those that keep the outputs are remedies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.analyses.why import Cause
from rtlab.analyses.why.missed_fusions import BETWEEN
from rtlab.core.phrases import quote_names
from rtlab.core.value import shape_text
from rtlab.core.variant import Rewrite
from rtlab.experiments.why import cutting
from rtlab.experiments.why.cutting import build_node_graph, find_nodes_after, find_nodes_before
from rtlab.quantize import rewrites
from rtlab.quantize.edit import Edit
from rtlab.relation.roles import QUANTIZING_OPS

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: What keeps two apart that another form of one of them makes one step, where that is not the operator itself.
_CAUSED: dict[str, Cause] = {"fold": "normalization", "lift": "layout"}
_FLOATS = frozenset({"fp32", "fp16", "bf16"})
#: Operators on two tensors that broadcast.
_BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Sum"})
#: What stands between two nodes and gives what it reads, perhaps in another type.
_IDLE = BETWEEN - {*QUANTIZING_OPS}
#: By operator, the position of its weight.
_WEIGHTED = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}


@dataclasses.dataclass(frozen=True)
class Change:
    """One change of a graph.

    Attributes:
        cause: What would keep the two nodes apart, if they are one step after the change.
        words: What is done, as an order.
        nodes: The nodes that are in the way.
        do: Does it, with ``args``; raises ``KeyError`` where another change took away what it names.
        substitutes: By a node that it takes away, the one to ask about in its place.
        rewrite: The rewrite of a variant that has it, where it is a remedy.
        retypes: Whether it gives one of the two another arithmetic.
    """

    cause: Cause
    words: str
    nodes: tuple[str, ...]
    do: Callable[..., None]
    args: tuple[object, ...] = ()
    substitutes: tuple[tuple[str, str], ...] = ()
    rewrite: Rewrite | None = None
    retypes: bool = False

    @property
    def keeps(self) -> bool:
        """Whether the outputs stay what they are."""
        return self.rewrite is not None


def apply_changes(model: Model, changes: Sequence[Change]) -> Model:
    """A model with changes, without nodes and inputs that are not read any more."""
    edit = Edit(model, source=True)
    for change in changes:
        with contextlib.suppress(KeyError):
            change.do(edit, *change.args)
    graph = edit.graph
    cutting.remove_unused_nodes(graph)
    ends = {id(v) for v in graph.outputs}
    if read := [v for v in graph.inputs if v.uses() or id(v) in ends]:
        graph.inputs[:] = read
    edit.sort_and_reindex()
    return edit.model


# --- what may stand between ----------------------------------------------------------------------------------------


def iter_changes_between(
    model: Model, first: str, second: str, way: Sequence[str], ends: Collection[str]
) -> Iterator[Change]:
    """What stands on the way from one node to the other, or makes a value of it seen from outside.

    ``ends`` are the outputs of the whole model.
    """
    steps = [model.by_id[first], *(model.by_id[n] for n in way)]
    on = [o for n in steps for o in n.outputs if o]
    yield from _iter_output_changes(model, on, ends)
    yield from _iter_removals(model, way, one_way=False)
    yield from _iter_reader_changes(model, on, {second, *way})


def iter_changes_within(model: Model, nodes: Sequence[str], ends: Collection[str]) -> Iterator[Change]:
    """What makes values between some nodes seen from outside, and what stands among them without computing."""
    readers = {
        v: {r.id for r in model.consumers.get(v, ())} for n in nodes for v in model.by_id[n].outputs if v
    }
    inner = [v for v in readers if readers[v] & {*nodes}]
    yield from _iter_output_changes(model, inner, ends)
    yield from _iter_removals(model, [n for n in nodes if model.by_id[n].op in BETWEEN], one_way=False)
    yield from _iter_reader_changes(model, inner, {*nodes})


def iter_changes_after(
    model: Model, second: str, after: Sequence[str], ends: Collection[str]
) -> Iterator[Change]:
    """What of the second node's step, ``after``, is seen from outside, is read by several, or computes nothing."""
    down = find_nodes_after(model, second)
    nodes = dict.fromkeys([second, *(n for n in after if n in down)])
    on = [o for n in nodes for o in model.by_id[n].outputs if o]
    yield from _iter_output_changes(model, on, ends)
    idle = dict.fromkeys([n for n in nodes if model.by_id[n].op in BETWEEN])
    idle.update(dict.fromkeys(_iter_idle_nodes(model, second)))
    yield from _iter_removals(model, tuple(idle))
    several = [v for v in on if len(model.consumers.get(v, ())) > 1]
    yield from _iter_reader_changes(model, several, set())


def _iter_idle_nodes(model: Model, node: str) -> Iterator[str]:
    """The nodes behind one that compute nothing, as far as nothing else stands before them."""
    todo, visited = [node], set[str]()
    while todo:
        for reader in build_node_graph(model).successors(todo.pop()):
            if model.by_id[reader].op in BETWEEN and reader not in visited:
                visited.add(reader)
                todo.append(reader)
                yield reader


def _iter_removals(model: Model, nodes: Sequence[str], *, one_way: bool = True) -> Iterator[Change]:
    """Nodes that compute nothing, taken away: pairs of Q and DQ, casts, copies.

    Without ``one_way``, a cast whose type nobody takes back stays: its reader computes in that type.
    """
    removed_ids: set[str] = set()
    for node in map(model.by_id.__getitem__, nodes):
        if node.op == "DequantizeLinear":
            maker = model.producers.get(node.inputs[0])
            if maker is not None and maker.op == "QuantizeLinear":
                words = f'remove the Q/DQ pair "{node.id}"'
                yield Change(
                    "quantization", words, (maker.id, node.id), bypass, (maker.inputs[0], node.outputs[0])
                )
        elif node.op in _IDLE and node.id not in removed_ids:
            last = _find_cast_chain(model, node, nodes)
            removed_ids |= set(last)
            keeps_outputs = node.op in {"Identity", "Dropout"} or _same_type(model, node)
            if not (keeps_outputs or one_way or _same_type(model, node, model.by_id[last[-1]])):
                continue
            forms = list(rewrites.iter_possible_rewrites(model, [node.id])) if keeps_outputs else []
            words = f"remove {node.op} {quote_names(last)}"
            yield Change(
                "identity" if keeps_outputs else "cast",
                words,
                last,
                bypass,
                (node.inputs[0], model.by_id[last[-1]].outputs[0]),
                rewrite=forms[0] if forms else None,
            )


def _find_cast_chain(model: Model, node: Node, nodes: Sequence[str]) -> tuple[str, ...]:
    """A cast with those behind it, up to the one that gives the type of what it reads again; else alone."""
    chain, at = [node.id], node
    while at.op == "Cast" and model.values[at.outputs[0]].dtype != model.values[node.inputs[0]].dtype:
        readers = [r for r in model.consumers.get(at.outputs[0], ()) if r.id in nodes and r.op == "Cast"]
        if len(readers) != 1:
            return (node.id,)
        at = readers[0]
        chain.append(at.id)
    return tuple(chain)


def _iter_output_changes(model: Model, values: Sequence[str], ends: Collection[str]) -> Iterator[Change]:
    for value in values:
        if value in ends:
            maker = model.producers[value]
            words = f'do not mark "{value}" as an output'
            yield Change("output", words, (maker.id,), _hide, (value,))


def _iter_reader_changes(
    model: Model, values: Sequence[str], excluded_ids: Collection[str]
) -> Iterator[Change]:
    for value in values:
        for reader in model.consumers.get(value, ()):
            if reader.id in excluded_ids:
                continue
            ends = [o for o in reader.outputs if o in model.outputs]
            if reader.op == "Cast" and ends and not model.consumers.get(ends[0]):
                words = f'do not mark "{ends[0]}" as an output'
                yield Change("output", words, (model.producers[value].id,), _detach, (reader.id, value))
            else:
                words = f'detach the other reader "{reader.id}" ({reader.op}) of "{value}"'
                yield Change("reader", words, (reader.id,), _detach, (reader.id, value))


def _same_type(model: Model, node: Node, last: Node | None = None) -> bool:
    """Whether a node, or one up to a last one, gives the type of what it reads."""
    dtypes = [model.values[v].dtype for v in (node.inputs[0], (last or node).outputs[0])]
    return bool(dtypes[0]) and dtypes[0] == dtypes[1]


# --- what may take the other side ----------------------------------------------------------------------------------


def iter_competitors_after(model: Model, pair: tuple[str, str], after: Sequence[str]) -> Iterator[Change]:
    """What the compiler joined the second of two nodes with instead: ``after`` are the nodes of its steps.

    A neighbour is replaced, not deleted: where it was, another reader stays, which takes part in no fusion.
    """
    first, second = pair
    down = find_nodes_after(model, second)
    for node in sorted((n for n in after if n in down), key=lambda n: -model.by_id[n].index):
        reads = [v for v in model.by_id[node].inputs if v and _is_written_by(model, v, {second, *down})]
        if reads and all(cutting.has_neutral_reader(model, v) for v in reads):
            op = model.by_id[node].op
            words = f'put a neutral reader in the place of "{node}" ({op})'
            yield Change("competitor", words, (node,), _neutralize, (node, tuple(reads)))
    up = find_nodes_before(model, second) - find_nodes_before(model, first) - {first}
    for node in after:
        if node in up:
            yield from _iter_input_cuts(model, second, node)
    yield from _iter_sibling_changes(model, second, after)


def iter_competitors_before(model: Model, first: str, before: Sequence[str]) -> Iterator[Change]:
    """What the compiler joined the first of two nodes with instead: ``before`` are the nodes of its steps."""
    above = find_nodes_before(model, first)
    for node in before:
        if node in above:
            yield from _iter_input_cuts(model, first, node)
    yield from _iter_sibling_changes(model, first, before)


def _iter_sibling_changes(model: Model, node: str, group: Sequence[str]) -> Iterator[Change]:
    """What a node was merged with that stands beside it and reads the same: products of one tensor as one product."""
    path_ids = {node} | find_nodes_before(model, node) | find_nodes_after(model, node)
    for value in dict.fromkeys(v for v in model.by_id[node].inputs if v and v not in model.known):
        alike = tuple(r.id for r in model.consumers.get(value, ()) if r.id in group and r.id not in path_ids)
        if alike and all(model.by_id[n].op == model.by_id[node].op for n in alike):
            words = f'let "{node}" read an input of its own in place of "{value}", which {quote_names(alike)} read too'
            yield Change("competitor", words, alike, _cut, (node, value))


def _iter_input_cuts(model: Model, reader: str, writer: str) -> Iterator[Change]:
    """An input of one node as an input of the part, in place of what another one writes."""
    for value in model.by_id[reader].inputs:
        at = value
        while at in model.producers and model.producers[at].op in BETWEEN:
            at = model.producers[at].inputs[0]
        if at in model.producers and model.producers[at].id == writer:
            words = (
                f'let "{reader}" read an input in place of what "{writer}" ({model.by_id[writer].op}) writes'
            )
            yield Change("competitor", words, (writer,), _cut, (reader, value))


def _is_written_by(model: Model, value: str, nodes: set[str]) -> bool:
    return value in model.producers and model.producers[value].id in nodes


# --- what the two nodes themselves read ----------------------------------------------------------------------------


def iter_operand_changes(model: Model, first: str, second: str) -> Iterator[Change]:
    """What the two nodes read beside each other: normalizations that can be folded, broadcasts, weights."""
    for id_ in (first, second):
        node = model.by_id[id_]
        if node.op in _BINARY:
            yield from _iter_broadcast_changes(model, node, first)
        position = _WEIGHTED.get(node.op)
        if position is not None and len(node.inputs) > position:
            yield from _iter_weight_changes(model, node, node.inputs[position], first)


def _iter_broadcast_changes(model: Model, node: Node, first: str) -> Iterator[Change]:
    sizes = model.sizes()
    output_shape = sizes.get(node.outputs[0])
    if output_shape is None:
        return
    for value in dict.fromkeys(node.inputs):
        shape = sizes.get(value) if value else None
        if shape is None or shape == output_shape or _is_written_by(model, value, {first}):
            continue
        if value in model.known and math.prod(shape) == 1:
            # One number is in nobody's way; written out, it would be another operation.
            continue
        constant = value in model.known and _is_static(model, node.outputs[0])
        verb = "write out" if constant else "give as an input of the whole size"
        words = f'{verb} "{value}", which "{node.id}" broadcasts from {shape_text(shape)} to {shape_text(output_shape)}'
        yield Change("broadcast", words, (node.id,), _spread, (node.id, value, output_shape))
        if model.by_id[first].op in _WEIGHTED and not constant:
            axis = len(output_shape) - 1 if model.by_id[first].op in {"Gemm", "MatMul"} else 1
            channels = tuple(d if i == axis else 1 for i, d in enumerate(output_shape))
            words = f'give "{node.id}" a constant number for each channel in place of "{value}"'
            cause: Cause = "broadcast" if value in model.known else "weight"
            yield Change(cause, words, (node.id,), _set_constant, (node.id, value, channels))


def _is_static(model: Model, value: str) -> bool:
    """Whether no size of a value is open."""
    return not any(isinstance(d, str) for d in model.values[value].shape or ())


def _iter_weight_changes(model: Model, node: Node, value: str, first: str) -> Iterator[Change]:
    if value in model.known or _is_written_by(model, value, {first}):
        return
    maker = model.producers.get(value)
    if maker is not None and maker.op == "DequantizeLinear" and maker.inputs[0] in model.known:
        words = f'give "{node.id}" float weights in place of "{maker.id}"'
        yield Change("quantization", words, (maker.id,), make_constant, (value,), retypes=True)
        return
    if model.sizes().get(value) is None or not _is_static(model, value):
        return
    words = f'make the weight "{value}" of "{node.id}" a constant'
    yield Change("weight", words, (node.id,) if maker is None else (maker.id,), make_constant, (value,))


# --- the same in another form --------------------------------------------------------------------------------------


def iter_rewrites(model: Model, nodes: Sequence[str]) -> Iterator[Change]:
    """Nodes, and normalizations behind them, in another form that computes the same: these are the remedies."""
    behind = (r for n in nodes for r in build_node_graph(model).successors(n))
    normal = (r for r in behind if model.by_id[r].op == "BatchNormalization")
    for rewrite in rewrites.iter_possible_rewrites(model, (*nodes, *normal)):
        if rewrite.kind == "merge":
            # It changes what stands beside a node, not what the node is joined with.
            continue
        substitute = rewrites.find_replacement(model, rewrite)
        words = rewrites.describe_rewrite(model, rewrite)
        yield Change(
            _CAUSED.get(rewrite.kind, "operator"),
            words,
            tuple(rewrites.iter_transposes_before(model, rewrite)) or (rewrite.node,),
            rewrites.rewrite_nodes,
            ((rewrite,),),
            substitutes=((rewrite.node, substitute),) if substitute else (),
            rewrite=rewrite,
        )


# --- the type that the two compute in ------------------------------------------------------------------------------


def iter_type_changes(model: Model, first: str, second: str, way: Sequence[str]) -> Iterator[Change]:
    """Each of two nodes in the other one's type, where casts between them lead from one to the other.

    That rounds otherwise: it diagnoses, and is no remedy.
    """
    casts = tuple(n for n in way if model.by_id[n].op == "Cast")
    if not casts:
        return
    source, target = model.by_id[casts[0]].inputs[0], model.by_id[casts[-1]].outputs[0]
    before, after = model.values[source].dtype, model.values[target].dtype
    if before == after or not {before, after} <= _FLOATS:
        return
    for node, like, dtype, do in (
        (second, first, before, _retype_reader),
        (first, second, after, _retype_writer),
    ):
        words = f'compute "{node}" in {dtype.upper()}, as "{like}" does'
        yield Change("type", words, casts, do, (node, source, target))


def _retype_reader(edit: Edit, node: str, source: str, target: str) -> None:
    """A reader in the type of what it reads, before the casts."""
    inner, outer, reader = edit.values[source], edit.values[target], edit.nodes[node]
    edit_types = _get_dtype(inner), _get_dtype(outer)
    for position, value in enumerate(reader.inputs):
        if value is outer:
            edit.set_input(node, position, inner)
    _cast_inputs(edit, node, *edit_types)
    for out in reader.outputs:
        _cast_back(edit, node, out, *edit_types)


def _retype_writer(edit: Edit, node: str, source: str, target: str) -> None:
    """A writer in the type in which its value is read, behind the casts."""
    inner, outer = edit.values[source], edit.values[target]
    edit_types = _get_dtype(outer), _get_dtype(inner)
    _cast_inputs(edit, node, *edit_types)
    outer.replace_all_uses_with(_cast_back(edit, node, inner, *edit_types))


def _get_dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None  # noqa: S101 - its type is one of _FLOATS
    return value.dtype


def _cast_inputs(edit: Edit, node: str, kind: ir.DataType, was: ir.DataType) -> None:
    """What a node reads in one type in another; of a constant, its numbers."""
    for position, value in enumerate(edit.nodes[node].inputs):
        if value is None or value.dtype != was:
            continue
        constant = edit.model.known.get(value.name or "")
        if constant is not None:
            typed = edit.add_constant(f"{value.name}/typed", constant.numpy().astype(kind.numpy()))
        else:
            attributes = {"to": int(kind)}
            typed = edit.insert(
                "Cast", f"{node}/typed", [value], origin=node, kind=kind, before=node, attrs=attributes
            )
        edit.set_input(node, position, typed)


def _cast_back(edit: Edit, node: str, out: ir.Value, kind: ir.DataType, was: ir.DataType) -> ir.Value:
    """Give what a node writes another type, and a cast back for those that read it; returns what is written."""
    inner, outer = edit.split(out.name or "", f"{node}/in_{kind.name.lower()}")
    inner.type = ir.TensorType(kind)
    attributes = {"to": int(was)}
    edit.insert("Cast", f"{node}/back", [inner], origin=node, output=outer, after=node, attrs=attributes)
    return inner


# --- how each is done ----------------------------------------------------------------------------------------------


def _hide(edit: Edit, value: str) -> None:
    """A value that is read within the graph in place of an output: that alone has no layout of its own."""
    output = edit.values[value]
    edit.graph.outputs[:] = [v for v in edit.graph.outputs if v is not output]
    if not output.uses():
        cutting.add_reader(edit, output)


def bypass(edit: Edit, source: str, target: str) -> None:
    """Let readers of one value read another one in its place."""
    old, new = edit.values[target], edit.values[source]
    edit.graph.outputs[:] = [new if end is old else end for end in edit.graph.outputs]
    old.replace_all_uses_with(new)


def _add_input(edit: Edit, like: ir.Value, name: str, shape: ir.Shape | None) -> ir.Value:
    """A new input of the type of a value."""
    new_input = ir.Value(
        name=edit.make_value_name(name), type=like.type, shape=None if shape is None else shape.copy()
    )
    edit.graph.inputs.append(new_input)
    edit.values[new_input.name or ""] = new_input
    return new_input


def _replace_operand(node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    for position, operand in enumerate(node.inputs):
        if operand is old:
            node.replace_input_with(position, new)


def _detach(edit: Edit, reader: str, value: str) -> None:
    node, was = edit.nodes[reader], edit.values[value]
    if was in node.inputs:
        _replace_operand(node, was, _add_input(edit, was, f"{value}/apart", was.shape))


def _cut(edit: Edit, reader: str, value: str) -> None:
    """Detach, with a neutral writer behind the new input: in the layout that an input has, it would be another step."""
    node, was = edit.nodes[reader], edit.values[value]
    if was in node.inputs:
        new_input = _add_input(edit, was, f"{value}/apart", was.shape)
        _replace_operand(node, was, cutting.add_writer(edit, was, new_input))


def _neutralize(edit: Edit, node: str, values: tuple[str, ...]) -> None:
    for name in values:
        _detach(edit, node, name)
        cutting.add_reader(edit, edit.values[name])


def _spread(edit: Edit, node: str, value: str, shape: tuple[int, ...]) -> None:
    reader, was = edit.nodes[node], edit.values[value]
    constant, written = edit.model.known.get(value), reader.outputs[0].shape
    still_open = written is not None and not written.is_static()
    if constant is not None and not still_open:
        new_value = edit.add_constant(f"{value}/whole", np.broadcast_to(constant.numpy(), shape))
    else:
        new_value = _add_input(edit, was, f"{value}/whole", written if still_open else ir.Shape(shape))
    _replace_operand(reader, was, new_value)


def make_constant(edit: Edit, value: str) -> None:
    """Random numbers in place of a value: what is computed changes, what the compiler sees of it does not."""
    shape = edit.model.sizes().get(value)
    if shape is None:
        raise KeyError(value)
    edit.values[value].replace_all_uses_with(_add_noise(edit, value, shape))


def _set_constant(edit: Edit, node: str, value: str, shape: tuple[int, ...]) -> None:
    """Random numbers in place of what one node reads."""
    _replace_operand(edit.nodes[node], edit.values[value], _add_noise(edit, value, shape))


def _add_noise(edit: Edit, value: str, shape: tuple[int, ...]) -> ir.Value:
    kind = (edit.values[value].dtype or ir.DataType.FLOAT).numpy()
    return edit.add_constant(f"{value}/constant", np.random.default_rng(0).normal(0, 0.1, shape).astype(kind))


def join_words(changes: Sequence[Change]) -> str:
    """Changes in words."""
    return " and ".join(c.words for c in changes)
