"""Nodes in another form that computes the same, which a compiler may treat in another way.

Values keep their names, so that what was observed of them serves the rewritten model too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.phrases import quote_names
from rtlab.core.variant import Rewrite, RewriteKind
from rtlab.errors import VariantError
from rtlab.quantize import existing_qdq, findings, passes
from rtlab.quantize.hoist_transposes import find_permutation, lift
from rtlab.quantize.merging import find_siblings, merge

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

_NORMAL, _GLOBAL = "BatchNormalization", "GlobalAveragePool"


@dataclasses.dataclass(frozen=True)
class _Form:
    """A form that nodes can be written in.

    Attributes:
        refuse: Why a node has no such form; empty where it has.
        describe: What is done, as an order.
        write: Does it, given the model before.
    """

    refuse: Callable[[Model, Node], str]
    describe: Callable[[Model, Node], str]
    write: Callable[[Edit, Model, Node], None]


def iter_possible_rewrites(model: Model, nodes: Iterable[str]) -> Iterator[Rewrite]:
    """The forms that some nodes can be written in."""
    for node in dict.fromkeys(nodes):
        yield from (
            Rewrite(k, node) for k, form in _FORMS.items() if not form.refuse(model, model.by_id[node])
        )


def describe_rewrite(model: Model, rewrite: Rewrite) -> str:
    """A rewrite as an order."""
    if rewrite.kind == "mend":
        return f'put the pair "{rewrite.node}" right'
    if rewrite.kind == "release":
        return f'let "{rewrite.node}" read what its pairs round'
    return _FORMS[rewrite.kind].describe(model, model.by_id[rewrite.node])


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
        node = model.by_id.get(rewrite.node)
        if node is None:
            reason = "there is no node of this id"
        elif rewrite.kind == "mend":
            reason = "there is no finding about a pair that begins there, or rtlab cannot know the fix"
            reason = "" if node.id in repairs else reason
        elif rewrite.kind == "release":
            reason = "it reads nothing that the model itself has quantized"
            reason = "" if node.id in releasable_nodes else reason
        else:
            reason = _FORMS[rewrite.kind].refuse(model, node)
        if reason:
            raise VariantError(
                f'Cannot {rewrite.kind} "{rewrite.node}" of model "{model.name}": {reason}. '
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
        if rewrite.kind in _FORMS:
            _FORMS[rewrite.kind].write(edit, model, model.by_id[rewrite.node])


def _explain_unfoldable(model: Model, node: Node) -> str:
    """Why a normalization cannot be folded; empty where it can."""
    if node.op != _NORMAL:
        return f"it is {node.op}, and this form is one of {_NORMAL}"
    maker = model.producers.get(node.inputs[0])
    if maker is None or maker.op != "Conv":
        return "no convolution stands before it"
    if len(model.consumers.get(node.inputs[0], ())) != 1 or node.inputs[0] in model.outputs:
        return "another node reads what it normalizes"
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


def _explain_unpoolable(model: Model, node: Node) -> str:
    if node.op != _GLOBAL:
        return f"it is {node.op}, and this form is one of {_GLOBAL}"
    return "" if _get_pool_area(model, node) else "the size of what it reads is not known"


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
    weight, *bias = (tensors[v.name or ""].numpy() for v in conv.inputs[1:3] if v is not None)
    shift = np.asarray(bias[0], np.float64) if bias else np.zeros(len(gain))
    folded_weight = np.asarray(weight, np.float64) * gain.reshape(-1, *[1] * (weight.ndim - 1))
    if len(conv.inputs) < 3:
        conv.resize_inputs(3)
    conv.replace_input_with(
        1, edit.add_constant(f"{conv.name}/folded_weight", folded_weight.astype(weight.dtype))
    )
    folded_bias = ((shift - mean) * gain + beta).astype(weight.dtype)
    conv.replace_input_with(2, edit.add_constant(f"{conv.name}/folded_bias", folded_bias))
    edit.substitute(conv_output, normal)


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
    edit.substitute(pool_node.outputs[0], global_pool)
    pool_node.name = title
    edit.sort_and_reindex()


def _drop(edit: Edit, node: str) -> None:
    dropped_node = edit.nodes[node]
    source = dropped_node.inputs[0]
    assert source is not None  # noqa: S101 - it was checked that it reads something
    dropped_node.outputs[0].replace_all_uses_with(source)
    edit.graph.remove(dropped_node, safe=True)
    edit.sort_and_reindex()


_FORMS: dict[RewriteKind, _Form] = {
    "fold": _Form(
        _explain_unfoldable,
        lambda model, node: f'fold "{node.id}" into the weights of "{model.producers[node.inputs[0]].id}"',
        lambda edit, _, node: _fold(edit, node.id),
    ),
    "pool": _Form(
        _explain_unpoolable,
        lambda model, node: (
            f'write "{node.id}" as AveragePool over {"×".join(map(str, _get_pool_area(model, node)))}'
        ),
        lambda edit, model, node: _pool(edit, node.id, _get_pool_area(model, node)),
    ),
    "drop": _Form(
        lambda model, node: "" if _is_noop(model, node) else f"it is {node.op}, and does something here",
        lambda _, node: f'leave out {node.op} "{node.id}", which does nothing',
        lambda edit, _, node: _drop(edit, node.id),
    ),
    "merge": _Form(
        lambda model, node: (
            ""
            if find_siblings(model, node)
            else "it is not the first of several convolutions that read one value through equal windows"
        ),
        lambda model, node: (
            f"write {quote_names(find_siblings(model, node))} as one wider convolution and a Split"
        ),
        lambda edit, model, node: merge(edit, node.id, find_siblings(model, node)),
    ),
    "lift": _Form(
        lambda model, node: (
            "" if find_permutation(model, node) else "it is no pointwise operator on what a Transpose writes"
        ),
        lambda _, node: f'let {node.op} "{node.id}" stand before the Transpose that it reads',
        lambda edit, model, node: lift(edit, node.id, find_permutation(model, node)),
    ),
}
