"""Nodes in another form that computes the same, which a compiler may treat in another way.

Values keep their names, so that what was observed of them serves the rewritten model too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.phrases import quote_names
from rtlab.core.variant import Rewrite
from rtlab.errors import VariantError
from rtlab.quantize import existing_qdq, findings, passes
from rtlab.quantize.hoist_transposes import find_permutation, lift
from rtlab.quantize.merging import find_siblings, merge

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

_NORMAL, _GLOBAL = "BatchNormalization", "GlobalAveragePool"


def iter_possible_rewrites(model: Model, nodes: Iterable[str]) -> Iterator[Rewrite]:
    """The forms that some nodes can be written in."""
    for node in dict.fromkeys(nodes):
        if model.by_id[node].op == _NORMAL and not _explain_unfoldable(model, model.by_id[node]):
            yield Rewrite("fold", node)
        if model.by_id[node].op == _GLOBAL and _get_pool_area(model, model.by_id[node]):
            yield Rewrite("pool", node)
        if _is_noop(model, model.by_id[node]):
            yield Rewrite("drop", node)
        if find_siblings(model, model.by_id[node]):
            yield Rewrite("merge", node)
        if find_permutation(model, model.by_id[node]):
            yield Rewrite("lift", node)


def describe_rewrite(model: Model, rewrite: Rewrite) -> str:
    """A rewrite as an order."""
    node = model.by_id[rewrite.node]
    if rewrite.kind == "fold":
        return f'fold "{node.id}" into the weights of "{model.producers[node.inputs[0]].id}"'
    if rewrite.kind == "drop":
        return f'leave out {node.op} "{node.id}", which does nothing'
    if rewrite.kind == "merge":
        return f"write {quote_names(find_siblings(model, node))} as one wider convolution and a Split"
    if rewrite.kind == "mend":
        return f'put the pair "{node.id}" right'
    if rewrite.kind == "release":
        return f'let "{node.id}" read what its pairs round'
    if rewrite.kind == "lift":
        return f'let {node.op} "{node.id}" stand before the Transpose that it reads'
    return f'write "{node.id}" as AveragePool over {"×".join(map(str, _get_pool_area(model, node)))}'


def find_replacement(model: Model, rewrite: Rewrite) -> str:
    """The node that stands for one that is gone; empty where none is."""
    return model.producers[model.by_id[rewrite.node].inputs[0]].id if rewrite.kind == "fold" else ""


def iter_transposes_before(model: Model, rewrite: Rewrite) -> Iterator[str]:
    """The transpositions that a node is lifted over; none of another form."""
    if rewrite.kind == "lift":
        makers = (model.producers.get(v) for v in model.by_id[rewrite.node].inputs)
        yield from (m.id for m in makers if m is not None and m.op == "Transpose")


def apply_rewrites(model: Model, rewrites: Sequence[Rewrite]) -> Model:
    """The model with nodes in other forms, as a source of its own.

    Raises:
        VariantError: there is no such node, or it has no such form.
    """
    if not rewrites:
        return model
    promises = (passes.INTERFACE, passes.ORDER, passes.TYPES)
    changes = "the same but for rounding"
    rewriting = passes.Pass("rewrites", lambda edit: rewrite_nodes(edit, rewrites), promises, changes=changes)
    return passes.run(model, [rewriting], source=True)


#: The forms that the script of ``patch`` knows.
_SCRIPTED = frozenset({"fold", "pool", "drop", "merge"})


def is_scriptable(rewrites: Iterable[Rewrite]) -> bool:
    """Whether there are rewrites, and ``patch`` can write all of them down; a transposition that moves it cannot."""
    kinds = {r.kind for r in rewrites}
    return bool(kinds) and kinds <= _SCRIPTED


def patch(model: Model, rewrites: Sequence[Rewrite]) -> str:
    """A Python script that does the same to the file of a model, without rtlab, and compares what both compute.

    Raises:
        VariantError: there is no such node, or it has no such form.
    """
    check(model, rewrites)
    edits = []
    for rewrite in rewrites:
        node = model.by_id[rewrite.node]
        area: list[int] | list[str] = list(_get_pool_area(model, node)) if rewrite.kind == "pool" else []
        if rewrite.kind == "merge":
            area = [model.by_id[n].outputs[0] for n in find_siblings(model, node)]
        edits.append((rewrite.kind, node.outputs[0], area))
    shapes = {n: list(model.input_shape(n)) for n in model.inputs}
    text = (resources.files(__package__) / "patcher.txt").read_text("utf-8")
    for name, value in (("EDITS", edits), ("SHAPES", shapes)):
        head, tail = text.split(f"\n{name}: ", 1)
        kind, tail = tail.split(" = ", 1)
        text = f"{head}\n{name}: {kind} = {value!r}{tail[tail.index(chr(10)) :]}"
    return text


def check(model: Model, rewrites: Iterable[Rewrite]) -> None:
    """See that nodes have these forms.

    Raises:
        VariantError: there is no such node, or it has no such form.
    """
    requested_rewrites = tuple(rewrites)
    kinds = {r.kind for r in requested_rewrites}
    repairs = _find_repairs(model, requested_rewrites) if "mend" in kinds else {}
    releasable_nodes = set(existing_qdq.find_quantized_nodes(model)) if "release" in kinds else set()
    for rewrite in requested_rewrites:
        candidates = [rewrite.node] if rewrite.node in model.by_id else []
        is_applicable = (
            rewrite.node in repairs if rewrite.kind == "mend" else rewrite.node in releasable_nodes
        )
        if (
            not is_applicable
            if rewrite.kind in QDQ_REWRITES
            else rewrite not in iter_possible_rewrites(model, candidates)
        ):
            raise VariantError(
                f'Cannot {rewrite.kind} "{rewrite.node}" of model "{model.name}": {_explain_refusal(model, rewrite)}. '
                "Leave it out, or choose another node."
            )


#: What is done to the quantization that a model brings along.
QDQ_REWRITES = frozenset({"mend", "release"})


def _find_repairs(model: Model, rewrites: Iterable[Rewrite]) -> dict[str, list[str]]:
    """The findings that are to be repaired, by the QuantizeLinear that each rewrite names."""
    named_nodes = {r.node for r in rewrites if r.kind == "mend"}
    finding_ids: dict[str, list[str]] = {}
    for finding in findings.check(model):
        if finding.fixable and finding.nodes[0] in named_nodes:
            finding_ids.setdefault(finding.nodes[0], []).append(finding.id)
    return finding_ids


def rewrite_nodes(edit: Edit, rewrites: Sequence[Rewrite]) -> None:
    """Write nodes of a graph under edit in other forms; errors are those of ``apply_rewrites``."""
    model = edit.model
    check(model, rewrites)
    # One after the other may not find any more what one before it has mended, too.
    finding_ids = {i for ids in _find_repairs(model, rewrites).values() for i in ids}
    for graph_pass in findings.iter_repair_passes(edit, finding_ids) if finding_ids else ():
        passes.apply(graph_pass, edit)
    if released_nodes := [r.node for r in rewrites if r.kind == "release"]:
        existing_qdq.release(edit, released_nodes)
    for rewrite in rewrites:
        node = model.by_id[rewrite.node]
        if rewrite.kind == "fold":
            _fold(edit, node.id)
        elif rewrite.kind == "drop":
            _drop(edit, node.id)
        elif rewrite.kind == "merge":
            _merge(edit, node.id, find_siblings(model, node))
        elif rewrite.kind == "lift":
            _lift(edit, node.id, find_permutation(model, node))
        elif rewrite.kind == "pool":
            _pool(edit, node.id, _get_pool_area(model, node))


def _explain_refusal(model: Model, rewrite: Rewrite) -> str:
    if rewrite.node not in model.by_id:
        return "there is no node of this id"
    node = model.by_id[rewrite.node]
    if rewrite.kind == "mend":
        return "there is no finding about a pair that begins there, or rtlab cannot know the fix"
    if rewrite.kind == "release":
        return "it reads nothing that the model itself has quantized"
    if rewrite.kind == "drop":
        return f"it is {node.op}, and does something here"
    if rewrite.kind == "merge":
        return "it is not the first of several convolutions that read one value through equal windows"
    if rewrite.kind == "lift":
        return "it is no pointwise operator on what a Transpose writes"
    expected_op = _NORMAL if rewrite.kind == "fold" else _GLOBAL
    if node.op != expected_op:
        return f"it is {node.op}, and this form is one of {expected_op}"
    return (
        _explain_unfoldable(model, node)
        if rewrite.kind == "fold"
        else "the size of what it reads is not known"
    )


def _explain_unfoldable(model: Model, node: Node) -> str:
    """Why a normalization cannot be folded; empty where it can."""
    maker = model.producers.get(node.inputs[0])
    if maker is None or maker.op != "Conv":
        return "no convolution stands before it"
    if len(model.consumers.get(node.inputs[0], ())) != 1 or node.inputs[0] in model.outputs:
        return "somebody else reads what it normalizes"
    if len([o for o in node.outputs if o]) != 1 or node.attributes.get("training_mode"):
        return "it is in training mode"
    if not all(v in model.known for v in (*node.inputs[1:5], *filter(None, maker.inputs[1:]))):
        return "its numbers, or the weights before it, are not constant"
    return ""


def _is_noop(model: Model, node: Node) -> bool:
    """Whether a node gives what it reads, and the value that it reads is not named by the model's interface."""
    if node.op not in {"Identity", "Dropout", "Cast"} or not node.inputs or not node.outputs:
        return False
    if node.outputs[0] in model.outputs or any(node.outputs[1:]):
        return False
    types = {model.values[v].dtype for v in (node.inputs[0], node.outputs[0])}
    return node.op != "Cast" or (len(types) == 1 and "" not in types)


def _get_pool_area(model: Model, node: Node) -> tuple[int, ...]:
    """What a global pooling covers; empty where that is not known."""
    shape = model.values[node.inputs[0]].shape or ()
    area = tuple(d for d in shape[2:] if isinstance(d, int))
    return area if area and len(area) == len(shape) - 2 else ()


def _fold(edit: Edit, node: str) -> None:
    """``w' = w · g``, ``b' = (b - mean) · g + beta`` with ``g = gamma / sqrt(var + epsilon)``, per output channel.

    As ONNX defines BatchNormalization in inference; computed in float64 and stored in the weight's type.
    """
    tensors = edit.model.known
    normal = edit.nodes[node]
    conv_output = normal.inputs[0]
    conv = conv_output.producer() if conv_output is not None else None
    assert conv_output is not None and conv is not None  # noqa: S101, PT018 - it was checked that it can be folded
    gamma, beta, mean, var = (
        np.asarray(tensors[v.name or ""].numpy(), np.float64) for v in normal.inputs[1:5] if v is not None
    )
    epsilon = normal.attributes.get("epsilon")
    gain = gamma / np.sqrt(var + (epsilon.as_float() if epsilon is not None else 1e-5))
    weight, bias = (
        tensors[v.name or ""].numpy() if v is not None else None
        for v in _get_weight_and_bias(conv.inputs[1:3])
    )
    assert weight is not None  # noqa: S101 - a convolution has weights
    shift = np.zeros(len(gain)) if bias is None else np.asarray(bias, np.float64)
    folded_weight = np.asarray(weight, np.float64) * gain.reshape(-1, *[1] * (weight.ndim - 1))
    if len(conv.inputs) < 3:
        conv.resize_inputs(3)
    conv.replace_input_with(
        1, edit.add_constant(f"{conv.name}/folded_weight", folded_weight.astype(weight.dtype))
    )
    folded_bias = ((shift - mean) * gain + beta).astype(weight.dtype)
    conv.replace_input_with(2, edit.add_constant(f"{conv.name}/folded_bias", folded_bias))
    _replace_node(edit, conv_output, normal)


def _get_weight_and_bias(inputs: Sequence[ir.Value | None]) -> tuple[ir.Value | None, ir.Value | None]:
    return inputs[0], inputs[1] if len(inputs) > 1 else None


def _replace_node(edit: Edit, value: ir.Value, node: ir.Node) -> None:
    """Let a value stand for what a node wrote, under its name, and take the node away."""
    graph, old = edit.graph, node.outputs[0]
    name = old.name
    for i, end in enumerate(graph.outputs):
        if end is old:
            graph.outputs[i] = value
    old.replace_all_uses_with(value)
    graph.remove(node, safe=True)
    value.type, value.shape, old.name, value.name = old.type, old.shape, None, name
    edit.sort_and_reindex()


def _pool(edit: Edit, node: str, area: tuple[int, ...]) -> None:
    global_pool = edit.nodes[node]
    attributes = ir.convenience.convert_attributes({"kernel_shape": list(area)})
    title = global_pool.name
    pool_node = ir.Node(
        "", "AveragePool", list(global_pool.inputs), attributes, num_outputs=1,
        name=edit.make_node_name(f"{node}/pool"), metadata_props=dict(global_pool.metadata_props),
    )  # fmt: skip
    edit.graph.insert_before(global_pool, pool_node)
    pool_node.outputs[0].name = edit.make_value_name(f"{node}/pool/output")
    _replace_node(edit, pool_node.outputs[0], global_pool)
    pool_node.name = title
    edit.sort_and_reindex()


def _merge(edit: Edit, node: str, group: tuple[str, ...]) -> None:
    parts = merge(edit, node, group)
    for name, part in zip(group, parts, strict=True):
        _replace_node(edit, part, edit.nodes[name])


def _lift(edit: Edit, node: str, permutation: tuple[int, ...]) -> None:
    original = edit.nodes[node]
    lifted_value, lifted_node = lift(edit, node, permutation)
    _replace_node(edit, lifted_value, original)
    lifted_node.name = node
    edit.sort_and_reindex()


def _drop(edit: Edit, node: str) -> None:
    dropped_node = edit.nodes[node]
    source = dropped_node.inputs[0]
    assert source is not None  # noqa: S101 - it was checked that it reads something
    dropped_node.outputs[0].replace_all_uses_with(source)
    edit.graph.remove(dropped_node, safe=True)
    edit.sort_and_reindex()
